"""The PhraseTransformer encoder of paper 000: attention over words and phrases in two phases.

Shapes: B batch, n words, m hypernodes, N = n + m nodes (words first), d model width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from phrasemodels.layers.attention import (
    Activation,
    Attend,
    MultiHeadAttention,
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

    def forward(self, nodes: Tensor, graph: PhraseGraph, rows: int, phase1: Callable[[Tensor], Tensor]) -> Tensor:
        """nodes (B, N, d) -> the first `rows` nodes (B, rows, d); phase1 does the attention over all pairs."""
        nodes = self.residuals[0](nodes, phase1)
        related = graph.related[:, None, :rows]
        valid = graph.valid[:, None, None, :]
        nodes = self.residuals[1](nodes[:, :rows], lambda queries: self.inside(queries, nodes, related, valid))
        return self.residuals[2](nodes, self.feed_forward)

    def all_pairs(self, graph: PhraseGraph) -> Callable[[Tensor], Tensor]:
        """Phase 1: every node attends to every node."""
        valid = graph.valid[:, None, None, :]
        return lambda nodes: self.across(nodes, nodes, valid)

    def all_pairs_from_zero(self, graph: PhraseGraph, n: int) -> Callable[[Tensor], Tensor]:
        """Phase 1 where all hypernodes are the same zero row: one row stands for the m of them.

        m equal keys weigh as one key with log m added to its score, and equal queries get equal answers. Exact.
        """
        counts = torch.cat([graph.valid[:, :n], graph.valid[:, n:].sum(1, keepdim=True)], 1)

        def phase1(nodes: Tensor) -> Tensor:
            shared = nodes[:, : n + 1]
            out = self.across(shared, shared, counts.to(nodes.dtype).log()[:, None, None, :])
            return torch.cat([out[:, :n], out[:, n:].expand(-1, nodes.shape[1] - n, -1)], 1)

        return phase1


class HypernodeEncoder(nn.Module):
    """Algorithm 1 of paper 000: words and hypernodes, layer upon layer; the words' rows are the output.

    What is known or dropped is not computed: in the first layer hypernodes that start as zeros share one row of
    phase 1, and in the last layer only the words' rows leave phase 2.
    """

    def __init__(self, config: HypernodeEncoderConfig) -> None:
        super().__init__()
        self.initialise = config.initialise(config.d, config.longest)
        self.layers = nn.ModuleList(HypernodeLayer(config) for _ in range(config.layers))

    def forward(self, words: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), members (B, m, k) with -1 for none -> word states (B, n, d)."""
        n = words.shape[1]
        graph = phrase_graph(members, lengths, n)
        nodes = torch.cat([words, self.initialise(words, graph)], 1)
        shared = isinstance(self.initialise, ZeroInit) and members.shape[1] > 0
        for index, layer in enumerate(cast(list[HypernodeLayer], list(self.layers))):
            first, last = index == 0, index == len(self.layers) - 1
            phase1 = layer.all_pairs_from_zero(graph, n) if first and shared else layer.all_pairs(graph)
            nodes = layer(nodes, graph, n if last else nodes.shape[1], phase1)
        return nodes[:, :n]
