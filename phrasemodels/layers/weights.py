"""Scores to attention weights: the part in which the systems of paper 003 differ.

Every part takes scores (B, q, k), a row of k keys for each of q queries, and lengths (B), the number of keys that are
there, and gives weights of the same shape, 0 at keys that are not. In trees the keys are the possible heads of the
queries: q = k, and position 0 is the root, which has no head.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.blocks import within
from phrasemodels.structs import chain, eisner


class Softmax(nn.Module):
    """One key is selected: p(z = i) ∝ exp(s_i). Simple attention."""

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return scores.masked_fill(~_there(scores, lengths), -torch.inf).softmax(-1)


class Sigmoid(nn.Module):
    """Every key is selected or not, each for itself: p(z_i = 1) = σ(s_i)."""

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return scores.sigmoid().masked_fill(~_there(scores, lengths), 0)


class Segments(nn.Module):
    """p(z_i = 1) of a chain of two states, in which neighbours are selected together (segmental attention).

    State 1 has the potential s_i, state 0 has 0; `transitions` (2, 2) [from, to] are learned, with an L2 penalty whose
    gradient is `decay` times themselves. The weights are λ p_i / Σ_j p_j with λ = 2, as in the released code.
    """

    decay = 0.005

    def __init__(self) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(2, 2))

    def count(self, unary: Tensor, lengths: Tensor) -> Tensor:
        """How often the potentials (C, n, 2) enter the score of a chain: once each."""
        return unary

    def normalise(self, p: Tensor) -> Tensor:
        """Marginals (..., n) to weights."""
        return 2 * p / p.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        p = chain.marginals(*self.potentials(scores, lengths))[..., 1]
        return self.normalise(p).view_as(scores)

    def best(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The best z (B, q, k): 1 where a key is selected, -1 where there is none."""
        return chain.argmax(*self.potentials(scores, lengths))[1].view(scores.shape)

    def potentials(self, scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Unary (B·q, k, 2), pairwise (2, 2) and lengths (B·q): every query has a chain."""
        queries, n = scores.shape[1:]
        lengths = lengths.repeat_interleave(queries)
        selected = scores.reshape(-1, n)
        unary = self.count(torch.stack([torch.zeros_like(selected), selected], -1), lengths)
        transitions = _Decayed.apply(self.transitions, self.decay)
        return bounded(unary, transitions, lengths), transitions, lengths


class SegmentsByEdge(Segments):
    """The score as the slides print it: a sum over edges of θ_i + θ_{i+1} + b, which counts all but the ends twice."""

    def count(self, unary: Tensor, lengths: Tensor) -> Tensor:
        place = torch.arange(unary.shape[1], device=unary.device)
        inner = (place > 0) & (place < lengths[:, None] - 1)
        return unary * (1 + inner.to(unary.dtype))[..., None]


class MarginalSegments(Segments):
    """The marginals themselves, without λ: the reading of the slides."""

    def normalise(self, p: Tensor) -> Tensor:
        return p


class Trees(nn.Module):
    """p(i is the head of j) over projective trees with any number of root arcs (syntactic attention)."""

    trees = eisner.multi_root

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        # rows are dependents here and heads there; there lengths do not count the root
        return self.trees.marginals(scores.transpose(1, 2), lengths - 1).transpose(1, 2)

    def best(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Heads (B, n) of the best tree; -1 for the root and in the padding."""
        return self.trees.argmax(scores.transpose(1, 2), lengths - 1)[1]


class SingleRootTrees(Trees):
    """The same over trees with one root arc."""

    trees = eisner.single_root


class Hard(nn.Module):
    """1 for the key with the highest score. A row of -inf selects nothing: see `indicated`."""

    def forward(self, scores: Tensor, lengths: Tensor) -> Tensor:
        best, key = scores.masked_fill(~_there(scores, lengths), -torch.inf).max(-1)
        chosen = F.one_hot(key, scores.shape[-1]).to(scores.dtype)
        return chosen * (best > -torch.inf).unsqueeze(-1)


def indicated(heads: Tensor) -> Tensor:
    """Scores (B, n, n) that say what a parser says: 0 for the heads (B, n), -1 where there is none, -inf elsewhere."""
    chosen = F.one_hot(heads + 1, heads.shape[1] + 1)[..., 1:]
    return torch.zeros_like(chosen, dtype=torch.get_default_dtype()).masked_fill(chosen == 0, -torch.inf)


def bounded(unary: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """Unary potentials (C, n, S) with those of a virtual start and end, whose transitions are the means of the columns
    and rows of `transitions` (S, S)."""
    place = torch.arange(unary.shape[1], device=unary.device)
    first = (place == 0).to(unary.dtype)[:, None] * transitions.mean(0)
    last = (place == lengths[:, None] - 1).to(unary.dtype)[..., None] * transitions.mean(1)
    return unary + first + last


def _there(scores: Tensor, lengths: Tensor) -> Tensor:
    return within(lengths, scores.shape[-1]).unsqueeze(1)


class _Decayed(torch.autograd.Function):
    """The identity; its gradient gains rate · w. Not a term of the loss, so the loss stays that of the paper."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(w)
        ctx.rate = rate
        return w.view_as(w)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad + ctx.rate * ctx.saved_tensors[0], None
