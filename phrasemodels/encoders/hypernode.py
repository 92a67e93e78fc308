"""The PhraseTransformer encoder of paper 000: attention over words and phrases in two phases.

`HypernodeEncoder.plain` follows the equations of the paper; `forward` computes the same result with less work. Eq 4 and 6, the
nodes and their relation A, are in `layers.phrases`.

Three things are saved. In the first layer, hypernodes that start as zeros share one row until phase 2 (or dropout) makes
them differ. In the last layer, phase 2 has only the words as queries. And where nodes have few neighbours, phase 2 runs
over lists of neighbours in place of all N² scores.

Shapes: B batch, n words, m hypernodes, N = n + m nodes (words first), R query rows, d model width, h heads, dk = d/h.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels import config
from phrasemodels.encoders import EncoderConfig
from phrasemodels.layers.attention import Activation, Attend, MultiHeadAttention, identity, sigma_on_heads
from phrasemodels.layers.blocks import AddNorm, feed_forward, without_padding
from phrasemodels.layers.phrases import Band, PhraseGraph, ZeroInit, band, dots, mix, phrase_graph


def softmax_within(q: Tensor, k: Tensor, v: Tensor, graph: PhraseGraph) -> Tensor:
    """Attend to related nodes alone: the scores of all others are -inf (one interpretation of Eq 5).

    q (B, h, R, dk); k, v (B, h, N, dk). Each of the R query rows of the graph must be related to at least one node.
    """
    if graph.band is not None:
        return softmax_over_lists(q, k, v, graph.band)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=graph.related.unsqueeze(1))


def softmax_hadamard(q: Tensor, k: Tensor, v: Tensor, graph: PhraseGraph) -> Tensor:
    """Return softmax((QKᵀ/√dk) ∘ A)V as Eq 5 is printed. Shapes as in `softmax_within`.

    An unrelated node has the score 0, hence a weight in proportion to e⁰ = 1; only padding is left out.
    """
    if graph.band is not None:
        return hadamard_over_lists(q, k, v, graph.band, graph.valid)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 * graph.related.unsqueeze(1)
    return scores.masked_fill(~graph.valid[:, None, None], float("-inf")).softmax(-1) @ v


@dataclass(frozen=True)
class HypernodeEncoderConfig(EncoderConfig):
    """The encoder of paper 000. Where the paper can be interpreted in several ways, a field takes the one that is wanted.

    longest: number of words of the longest phrase; only LengthEmbedding reads it, the others take phrases of any
    length. attend: softmax_within or softmax_hadamard. sigma: the activation that follows the second attention,
    torch.sigmoid, or identity (the Linear variant). readout: where it is applied, to the heads (sigma_on_heads) or to
    their output projection (sigma_on_projection). residual: AddNorm, or Replace with d_ff=0 as the equations are
    printed. initialise: the first states of hypernodes, ZeroInit, MeanInit or LengthEmbedding.
    """

    longest: int = 2
    attend: Attend = softmax_within
    sigma: Activation = torch.sigmoid
    readout: Callable[..., Tensor] = sigma_on_heads
    residual: Callable[[int, float], nn.Module] = AddNorm
    initialise: Callable[[int, int], nn.Module] = ZeroInit

    def __post_init__(self) -> None:
        super().__post_init__()
        config.at_least(self, 2, "longest")

    def build(self) -> "HypernodeEncoder":
        return HypernodeEncoder(self)


class HypernodeLayer(nn.Module):
    """One layer: U = LN(H + Drop(across(H))); V = LN(U + Drop(inside(U, A))); result LN(V + Drop(FFN(V))).

    `across` is attention over all nodes (phase 1), `inside` attention to the nodes that A relates (phase 2, Eq 5).
    """

    def __init__(self, config: HypernodeEncoderConfig) -> None:
        super().__init__()
        self.across = MultiHeadAttention(config.d, config.heads)
        self.inside = MultiHeadAttention(config.d, config.heads, config.attend, config.sigma, config.readout)
        self.feed_forward = feed_forward(config.d, config.d_ff)
        self.residuals = nn.ModuleList(config.residual(config.d, config.dropout) for _ in range(3))

    def forward(self, nodes: Tensor, graph: PhraseGraph) -> Tensor:
        """nodes (B, N, d) -> (B, N, d)."""
        valid = graph.valid[:, None, None, :]
        nodes = self.residuals[0](nodes, lambda x: self.across(x, x, valid))  # phase 1, all pairs of nodes: Eq 2, 3
        nodes = self.residuals[1](nodes, lambda x: self.inside(x, x, graph))  # phase 2, related nodes: Eq 5, 7
        return self.residuals[2](nodes, self.feed_forward)


class HypernodeEncoder(nn.Module):
    """Algorithm 1: words and hypernodes, layer upon layer; the rows of the words are the output."""

    def __init__(self, config: HypernodeEncoderConfig) -> None:
        super().__init__()
        self.initialise = config.initialise(config.d, config.longest)
        self.layers = nn.ModuleList(HypernodeLayer(config) for _ in range(config.layers))

    def plain(self, words: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """Run Algorithm 1 as printed. Arguments and result as in `forward`."""
        words, graph = without_padding(words, lengths), phrase_graph(members, lengths, words.shape[1])
        nodes = torch.cat([words, self.initialise(words, graph)], 1)
        for layer in self.layers:
            nodes = layer(nodes, graph)
        return nodes[:, : words.shape[1]]

    def forward(self, words: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), members (B, m, k) with -1 for none -> states of the words (B, n, d).

        Equal to `plain` up to rounding (tests/encoders/test_hypernode.py), but faster.
        """
        words, graph = without_padding(words, lengths), phrase_graph(members, lengths, words.shape[1])
        nodes = self.initialise(words, graph)
        return encode(self.layers, words, nodes, graph, isinstance(self.initialise, ZeroInit))


NODES_PER_NEIGHBOUR = (
    6  # with fewer nodes per neighbour, all scores take less time than lists (benchmarks/hypernode.py)
)


def encode(layers: Iterable[Any], words: Tensor, hypernodes: Tensor, graph: PhraseGraph, equal: bool) -> Tensor:
    """Run the layers of a HypernodeEncoder: words (B, n, d), hypernodes (B, m, d) -> states of the words (B, n, d).

    equal: the hypernodes of a sentence are equal.
    """
    n, graph = words.shape[1], with_lists(graph)
    nodes, rows = torch.cat([words, hypernodes], 1), row_per_node(graph)
    if equal and hypernodes.shape[1]:
        nodes, rows = nodes[:, : n + 1], row_for_hypernodes(graph, words.dtype)
    *lower, top = layers
    for layer in lower:
        nodes, rows = run_layer(layer, nodes, graph, rows), row_per_node(graph)
    return run_layer(top, nodes, graph.first(n), rows)


def with_lists(graph: PhraseGraph) -> PhraseGraph:
    """Return the graph with lists of neighbours, if they are short."""
    most = int(graph.related.sum(2).max()) if graph.related.numel() else graph.related.shape[2]
    short = most * NODES_PER_NEIGHBOUR <= graph.related.shape[2]
    return graph._replace(band=band(graph.related, most)) if short else graph


class NodeRows(NamedTuple):
    """Which rows stand for the N nodes: one row per node, or the words and one row for all hypernodes.

    The second is exact while the hypernodes are equal: m equal keys weigh as much as one key with log m added to its
    score, and equal queries get equal answers.
    """

    keys: Tensor  # (B, 1, 1, rows): whether a row is a node, or the logarithm of the number of its nodes
    spread: Callable[[Tensor], Tensor]  # (B, rows, d) -> (B, N, d); rows of words alone stay as they are


def row_per_node(graph: PhraseGraph) -> NodeRows:
    """Return one row per node."""
    return NodeRows(graph.valid[:, None, None, :], identity)


def row_for_hypernodes(graph: PhraseGraph, dtype: torch.dtype) -> NodeRows:
    """Return one row per word, and one for all hypernodes."""
    m, n = graph.incidence.shape[1:]
    counts = torch.cat([graph.valid[:, :n], graph.valid[:, n:].sum(1, keepdim=True)], 1)

    def spread(x: Tensor) -> Tensor:
        return torch.cat([x[:, :n], x[:, n:].expand(-1, m, -1)], 1) if x.shape[1] > n else x

    return NodeRows(counts.to(dtype).log()[:, None, None, :], spread)


def run_layer(layer: Any, nodes: Tensor, graph: PhraseGraph, rows: NodeRows) -> Tensor:
    """Run a HypernodeLayer: rows (B, rows, d) that stand for all nodes -> the nodes (B, R, d) that are queries."""
    across, inside = layer.across, layer.inside
    if drops(layer.residuals[0]):
        nodes = layer.residuals[0](rows.spread(nodes), lambda _: rows.spread(across(nodes, nodes, rows.keys)))
        rows = row_per_node(graph)
    else:
        nodes = layer.residuals[0](nodes, lambda _: across(nodes, nodes, rows.keys))
    queries = nodes[:, : graph.related.shape[1]]

    def phase2(_: Tensor) -> Tensor:
        q, k, v = inside.query(queries), inside.key(nodes), inside.value(nodes)
        return inside.attend_heads(*(inside.split(rows.spread(x)) for x in (q, k, v)), graph)

    return layer.residuals[2](layer.residuals[1](rows.spread(queries), phase2), layer.feed_forward)


def drops(module: nn.Module) -> bool:
    """Return whether a dropout of the module is on, so that equal rows become unequal."""
    return any(isinstance(part, nn.Dropout) and part.training and part.p > 0 for part in module.modules())


def softmax_over_lists(q: Tensor, k: Tensor, v: Tensor, lists: Band) -> Tensor:
    """Compute `hypernode.softmax_within` over lists of neighbours."""
    edges = lists.of_heads(q.shape[1])
    scores = dots(q, k, edges) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~lists.real.unsqueeze(2), float("-inf")).softmax(-1)
    return mix(weights, v, edges).transpose(1, 2)


def hadamard_over_lists(q: Tensor, k: Tensor, v: Tensor, lists: Band, valid: Tensor) -> Tensor:
    """Compute `hypernode.softmax_hadamard` over lists of neighbours; valid (B, N) is false for padding.

    An unrelated node has the weight 1, so the sum over all nodes is Σ (eˢ - 1) v over the neighbours and Σ v over all
    nodes; where all nodes are neighbours there is no 1, only Σ eˢ v.
    """
    edges = lists.of_heads(q.shape[1])
    known = (lists.real & valid[:, : q.shape[2], None]).unsqueeze(2)  # padding is related to itself alone
    scores = (dots(q, k, edges) / q.shape[-1] ** 0.5).masked_fill(~known, float("-inf"))
    real = valid.to(v.dtype)
    unrelated = real.sum(1)[:, None, None, None] - known.sum(-1, keepdim=True)
    highest = scores.detach().amax(-1, keepdim=True)
    highest = torch.where(unrelated > 0, highest.clamp(min=0), highest)
    one, near = torch.where(unrelated > 0, (-highest).exp(), 0), (scores - highest).exp()
    more = mix((near - one).masked_fill(~known, 0), v, edges)
    total = (v * real[:, None, :, None]).sum(2).unsqueeze(1)  # a sum in pairs, which a matrix product does not promise
    return ((more + one * total) / (near.sum(-1, keepdim=True) + one * unrelated)).transpose(1, 2)
