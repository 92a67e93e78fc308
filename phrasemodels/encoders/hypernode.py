"""The PhraseTransformer encoder of paper 000: attention over words and phrases in two phases.

This file follows the equations of the paper. `hypernode_fast` computes the same result with less work; it is what
`HypernodeEncoder.forward` calls. Eq 4 and 6, the nodes and their relation A, are in `layers.phrases`.

Shapes: B batch, n words, m hypernodes, N = n + m nodes (words first), R query rows, d model width, h heads, dk = d/h.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders import EncoderConfig, hypernode_fast
from phrasemodels.layers import checks
from phrasemodels.layers.attention import Activation, Attend, MultiHeadAttention, sigma_on_heads
from phrasemodels.layers.blocks import AddNorm, feed_forward
from phrasemodels.layers.phrases import PhraseGraph, ZeroInit, phrase_graph


def softmax_within(q: Tensor, k: Tensor, v: Tensor, graph: PhraseGraph) -> Tensor:
    """Attend to related nodes alone: the scores of all others are -inf (one interpretation of Eq 5).

    q (B, h, R, dk); k, v (B, h, N, dk). Each of the R query rows of the graph must be related to at least one node.
    """
    if graph.band is not None:
        return hypernode_fast.softmax_over_lists(q, k, v, graph.band)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=graph.related.unsqueeze(1))


def softmax_hadamard(q: Tensor, k: Tensor, v: Tensor, graph: PhraseGraph) -> Tensor:
    """Return softmax((QKᵀ/√dk) ∘ A)V as Eq 5 is printed. Shapes as in `softmax_within`.

    An unrelated node has the score 0, hence a weight in proportion to e⁰ = 1; only padding is left out.
    """
    if graph.band is not None:
        return hypernode_fast.hadamard_over_lists(q, k, v, graph.band, graph.valid)
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
        checks.at_least(self, 2, "longest")

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
        graph = phrase_graph(members, lengths, words.shape[1])
        nodes = torch.cat([words, self.initialise(words, graph)], 1)
        for layer in self.layers:
            nodes = layer(nodes, graph)
        return nodes[:, : words.shape[1]]

    def forward(self, words: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), members (B, m, k) with -1 for none -> states of the words (B, n, d).

        Equal to `plain` up to rounding (tests/test_hypernode.py), but faster.
        """
        graph = phrase_graph(members, lengths, words.shape[1])
        nodes = self.initialise(words, graph)
        return hypernode_fast.encode(self.layers, words, nodes, graph, isinstance(self.initialise, ZeroInit))
