"""The PhraseTransformer encoder of paper 000: attention over words and phrases in two phases.

Shapes: B batch, n words, m hypernodes, N = n + m nodes (words first), d model width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from phrasemodels.layers.attention import (
    Activation,
    Attend,
    MultiHeadAttention,
    identity,
    sigma_on_heads,
    softmax_within,
)
from phrasemodels.layers.blocks import AddNorm, feed_forward
from phrasemodels.layers.phrases import PhraseGraph, ZeroInit, phrase_graph


@dataclass(frozen=True)
class HypernodeEncoderConfig:
    """The switches of paper 000, each a part that is passed in.

    attend: softmax_within (`neg_inf`) or softmax_hadamard. sigma: torch.sigmoid, or identity (the Linear variant).
    readout: sigma_on_heads or sigma_on_projection. residual: AddNorm (`block`), or Replace with d_ff=0 (`literal`).
    initialise: ZeroInit, MeanInit or LengthEmbedding. longest: words of the longest phrase.
    """

    d: int = 512
    heads: int = 8
    layers: int = 6
    d_ff: int = 2048
    dropout: float = 0.1
    longest: int = 2
    attend: Attend = softmax_within
    sigma: Activation = torch.sigmoid
    readout: Callable[..., Tensor] = sigma_on_heads
    residual: Callable[[int, float], nn.Module] = AddNorm
    initialise: Callable[[int, int], nn.Module] = ZeroInit

    def build(self) -> "HypernodeEncoder":
        return HypernodeEncoder(self)


class Rows(NamedTuple):
    """Rows that stand for the nodes: a row each, or the words and one row for all hypernodes, which are alike.

    m equal keys weigh as one key with log m added to its score, and equal queries get equal answers. Exact.
    """

    keys: Tensor  # (B, 1, 1, rows): which are nodes, or the logarithm of how many
    spread: Callable[[Tensor], Tensor]  # (B, rows, d) -> (B, N, d); words alone stay as they are


def each(graph: PhraseGraph) -> Rows:
    """Every node has its row."""
    return Rows(graph.valid[:, None, None, :], identity)


def alike(graph: PhraseGraph, dtype: torch.dtype) -> Rows:
    """One row stands for all hypernodes."""
    m, n = graph.incidence.shape[1:]
    counts = torch.cat([graph.valid[:, :n], graph.valid[:, n:].sum(1, keepdim=True)], 1)

    def spread(x: Tensor) -> Tensor:
        return torch.cat([x[:, :n], x[:, n:].expand(-1, m, -1)], 1) if x.shape[1] > n else x

    return Rows(counts.to(dtype).log()[:, None, None, :], spread)


def draws(module: nn.Module) -> bool:
    """Whether equal rows leave it unequal: some dropout is on."""
    return any(isinstance(part, nn.Dropout) and part.training and part.p > 0 for part in module.modules())


class HypernodeLayer(nn.Module):
    """Phase 1 over all pairs of nodes (Eq 2-3), phase 2 within phrases (Eq 5-7), then the feed-forward layer.

    U = LN(H + Drop(MultiHead(H))); V = LN(U + Drop(MultiHead'(U; A))); H' = LN(V + Drop(FFN(V))).
    """

    def __init__(self, config: HypernodeEncoderConfig) -> None:
        super().__init__()
        self.across = MultiHeadAttention(config.d, config.heads)
        self.inside = MultiHeadAttention(config.d, config.heads, config.attend, config.sigma, config.readout)
        self.feed_forward = feed_forward(config.d, config.d_ff)
        self.residuals = nn.ModuleList(config.residual(config.d, config.dropout) for _ in range(3))

    def forward(self, nodes: Tensor, graph: PhraseGraph, rows: Rows) -> Tensor:
        """Rows (B, rows, d) that stand for all nodes -> the nodes (B, R, d) that are queries of the graph."""
        if draws(self.residuals[0]):
            nodes = self.residuals[0](rows.spread(nodes), lambda _: rows.spread(self.across(nodes, nodes, rows.keys)))
            rows = each(graph)
        else:
            nodes = self.residuals[0](nodes, lambda _: self.across(nodes, nodes, rows.keys))
        asking = nodes[:, : graph.related.shape[1]]
        inside = self.inside

        def phase2(_: Tensor) -> Tensor:
            q, k, v = inside.query(asking), inside.key(nodes), inside.value(nodes)
            return inside.among(*(inside.split(rows.spread(x)) for x in (q, k, v)), graph)

        asked = self.residuals[1](rows.spread(asking), phase2)
        return self.residuals[2](asked, self.feed_forward)


class HypernodeEncoder(nn.Module):
    """Algorithm 1 of paper 000: words and hypernodes, layer upon layer; the words' rows are the output.

    What is known or dropped is not computed: in the first layer hypernodes that start as zeros share one row until
    phase 2 (or dropout) tells them apart, and in the last layer only the words' rows leave phase 2.
    """

    def __init__(self, config: HypernodeEncoderConfig) -> None:
        super().__init__()
        self.initialise = config.initialise(config.d, config.longest)
        self.layers = nn.ModuleList(HypernodeLayer(config) for _ in range(config.layers))

    def forward(self, words: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), members (B, m, k) with -1 for none -> word states (B, n, d)."""
        n, m = words.shape[1], members.shape[1]
        graph = phrase_graph(members, lengths, n)
        nodes = torch.cat([words, self.initialise(words, graph)], 1)
        rows = each(graph)
        if m and isinstance(self.initialise, ZeroInit):
            nodes, rows = nodes[:, : n + 1], alike(graph, words.dtype)
        for layer in self.layers[:-1]:
            nodes, rows = layer(nodes, graph, rows), each(graph)
        return self.layers[-1](nodes, graph.first(n), rows)
