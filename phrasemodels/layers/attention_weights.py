"""Attention weights from scores: softmax, sigmoid, chains and trees, in which the systems of paper 003 differ.

Every module maps scores (B, q, k) of k keys for each of q queries, and lengths (B), the number of real keys, to weights
(B, q, k), which are 0 for padded keys. In trees the keys are the possible heads of the queries: q = k, and position 0 is
the root, which counts as a key and has no head: its row of weights is 0.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.blocks import masked_softmax, token_mask
from phrasemodels.structs import chain, eisner


class SoftmaxWeights(nn.Module):
    """p(z = i) ∝ exp(s_i): one key is selected. Simple attention."""

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return masked_softmax(scores, _real(scores, lengths), -1)


class SigmoidWeights(nn.Module):
    """p(z_i = 1) = σ(s_i): each key is selected independently."""

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return scores.sigmoid().masked_fill(~_real(scores, lengths), 0)


class SegmentWeights(nn.Module):
    """λ p_i / Σ_j p_j, with p_i = p(z_i = 1) in a linear chain of two states and λ = 2, as in the released code.

    Neighbours are selected together (segmental attention). State 1 has the potential s_i, state 0 has 0. `transitions`
    (2, 2) [from, to] are learned. `decay` times the transitions is added to their gradient (L2 regularisation, which the
    released code applies so, not as a term of the loss). micro_batches: how many backward passes an update sums up; each
    adds its share of the decay.
    """

    decay = 0.005
    micro_batches = 1

    def __init__(self) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(2, 2))

    def count(self, unary: Tensor, lengths: Tensor) -> Tensor:
        """Return the potentials of single keys (B·q, k, 2), times how often the score of a chain counts each: once."""
        return unary

    def normalise(self, p: Tensor) -> Tensor:
        """Return the weights for marginals (..., n)."""
        return 2 * p / p.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        p = chain.marginals(*self.potentials(scores, lengths))[..., 1]
        return self.normalise(p).view_as(scores)

    def best(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Return the best z (B, q, k): 1 for a selected key, 0 for any other, -1 for padding."""
        return chain.argmax(*self.potentials(scores, lengths))[1].view(scores.shape)

    def potentials(self, scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return unary (B·q, k, 2) and pairwise (2, 2) potentials and lengths (B·q): one chain per query."""
        queries, n = scores.shape[1:]
        lengths = lengths.repeat_interleave(queries)
        selected = scores.reshape(-1, n)
        unary = self.count(torch.stack([torch.zeros_like(selected), selected], -1), lengths)
        transitions = _Decayed.apply(self.transitions, self.decay / self.micro_batches)
        return add_virtual_ends(unary, transitions, lengths), transitions, lengths


class EdgeSegmentWeights(SegmentWeights):
    """The score as the slides of paper 003 print it: Σ over edges (i, i+1) of θ_i + θ_{i+1} + transition.

    So the potentials of all keys but the first and the last count twice. The only key of a chain of one counts once.
    """

    def count(self, unary: Tensor, lengths: Tensor) -> Tensor:
        place = torch.arange(unary.shape[1], device=unary.device)
        inner = (place > 0) & (place < lengths[:, None] - 1)
        return unary * (1 + inner.to(unary.dtype))[..., None]


class MarginalSegmentWeights(SegmentWeights):
    """p(z_i = 1) without λ and the normalisation, as the slides of paper 003 print it."""

    def normalise(self, p: Tensor) -> Tensor:
        return p


class TreeWeights(nn.Module):
    """weights[b, j, i] = p(i is the head of j) in projective trees with any number of root arcs (syntactic attention)."""

    trees = eisner.multi_root

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        # a row of scores is a dependent; `eisner` takes heads as rows, and lengths without the root
        return self.trees.marginals(scores.transpose(1, 2), (lengths - 1).clamp(min=0)).transpose(1, 2)

    def best(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Return the heads (B, n) of the best tree; -1 for the root and in the padding."""
        return self.trees.argmax(scores.transpose(1, 2), (lengths - 1).clamp(min=0))[1]


class SingleRootTreeWeights(TreeWeights):
    """p(i is the head of j) in projective trees with one root arc."""

    trees = eisner.single_root


class HardWeights(nn.Module):
    """1 for the key with the highest score, 0 for all others; a row of -inf selects no key (see `scores_of_heads`)."""

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        best, key = scores.masked_fill(~_real(scores, lengths), -torch.inf).max(-1)
        chosen = F.one_hot(key, scores.shape[-1]).to(scores.dtype)
        return chosen * (best > -torch.inf).unsqueeze(-1)


def scores_of_heads(heads: Tensor) -> Tensor:
    """Return scores (B, n, n) that select the given heads (B, n): 0 for a head, -inf for all others; head -1 selects none."""
    chosen = F.one_hot(heads + 1, heads.shape[1] + 1)[..., 1:]
    return torch.zeros_like(chosen, dtype=torch.get_default_dtype()).masked_fill(chosen == 0, -torch.inf)


def add_virtual_ends(unary: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """Add the transitions from a virtual start and to a virtual end to unary potentials (B·q, n, S) of S states, a chain
    in each row.

    As in the released code: the start has the mean transition into each state (over rows of `transitions` (S, S) [from, to]),
    the end the mean transition out of each state (over columns).
    """
    place = torch.arange(unary.shape[1], device=unary.device)
    # added to the potentials of the first and the last key, so that the chain itself needs no virtual states
    first = (place == 0).to(unary.dtype)[:, None] * transitions.mean(0)
    last = (place == lengths[:, None] - 1).to(unary.dtype)[..., None] * transitions.mean(1)
    return unary + first + last


def _real(scores: Tensor, lengths: Tensor) -> Tensor:
    return token_mask(lengths, scores.shape[-1]).unsqueeze(1)


class _Decayed(torch.autograd.Function):
    """The identity, whose gradient gains rate · w. The penalty is no term of the loss, which stays the paper's."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.rate = rate
        return w.view_as(w)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad + ctx.rate * ctx.saved_tensors[0], None
