"""Attention weights from scores: softmax, sigmoid, chains and trees, in which the systems of paper 003 differ.

Every module maps scores (B, ..., q, k) of k keys for each of q queries, and lengths, to weights of the same shape, which are 0 for
padded keys. Lengths are the numbers of real keys, a tensor (B) or a list, or a mask (B, k); None: all are k. Dimensions between B
and q are heads of attention. In trees the keys are the possible heads of the queries: q = k, and position 0 is the root, which
counts as a key and has no head: its row of weights is 0.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from phrasemodels.layers.blocks import as_lengths, masked_softmax, token_mask
from phrasemodels.structs import chain, eisner
from phrasemodels.structs.dispatch import Lengths, Unscripted, not_traced, transformed

Chains = list[
    tuple[Tensor, tuple[Tensor, Tensor, Tensor]]
]  # scores of a part, and its unary and pairwise potentials and lengths


class SoftmaxWeights(nn.Module):
    """p(z = i) ∝ exp(s_i): one key is selected. Simple attention."""

    def forward(self, scores: Tensor, lengths: Lengths) -> Tensor:
        """Return the weights (B, ..., q, k) for scores (B, ..., q, k) and lengths (B)."""
        return masked_softmax(scores, _real(scores, lengths) & (scores != -torch.inf), -1)


class SigmoidWeights(nn.Module):
    """p(z_i = 1) = σ(s_i): each key is selected independently."""

    def forward(self, scores: Tensor, lengths: Lengths) -> Tensor:
        """Return the weights (B, ..., q, k) for scores (B, ..., q, k) and lengths (B)."""
        return scores.masked_fill(~_real(scores, lengths), -torch.inf).sigmoid()


class SegmentWeights(Unscripted):
    """p_i / Σ_j p_j with p_i = p(z_i = 1) in a linear chain of two states: neighbours are selected together (segmental attention).

    It takes the place of a softmax: the weights of a query sum to 1. State 1 has the potential s_i, state 0 has 0. The
    transitions [from, to] are learned; those from a virtual start and to a virtual end are their means over the other side.

    Args:
        heads: Number of heads with transitions of their own, for scores (B, heads, q, k). None: one (2, 2) for all.
    """

    def __init__(self, heads: int | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(*(() if heads is None else (heads,)), 2, 2))

    def count(self, unary: Tensor, lengths: Tensor) -> Tensor:
        """Return the potentials of single keys (B, k, 2), times how often the score of a chain counts each: once."""
        return unary

    @not_traced
    def normalise(self, p: Tensor, chains: Chains) -> Tensor:
        """Return the weights for marginals (..., k) of chains."""
        kind, total = torch.finfo(p.dtype), p.sum(-1, keepdim=True)
        found, lost = p / total.clamp(min=kind.tiny), total < kind.tiny / kind.eps
        # where all scores are low, p has few digits, or is 0
        if transformed() or lost.any():
            found = torch.where(lost, self._joined(_quotients, chains), found)
        return found

    def forward(self, scores: Tensor, lengths: Lengths) -> Tensor:
        """Return the weights (B, ..., q, k) for scores (B, ..., q, k) and lengths (B)."""
        chains = self._chains(scores, lengths)
        return self.normalise(self._joined(lambda *x: chain.marginals(*x)[..., 1], chains), chains)

    def best(self, scores: Tensor, lengths: Lengths) -> Tensor:
        """Return the best z (B, ..., q, k): 1 for a selected key, 0 for any other, -1 for padding."""
        return self._joined(lambda *x: chain.argmax(*x)[1], self._chains(scores, lengths))

    def _joined(self, function: Callable[..., Tensor], chains: Chains) -> Tensor:
        found = [function(*x).view(part.shape) for part, x in chains]
        return found[0] if self.transitions.dim() == 2 else torch.stack(found, 1)

    def _chains(self, scores: Tensor, lengths: Lengths) -> Chains:
        """Return the scores of each part that has its own transitions, and its chains: all, or one part a head."""
        lengths = as_lengths(lengths, scores, -1)
        if self.transitions.dim() == 2:
            return [(scores, self.potentials(scores, lengths, self.transitions))]
        if scores.dim() != 4 or scores.shape[1] != len(self.transitions):
            raise ValueError(f"scores must be (B, {len(self.transitions)} heads, q, k), not {tuple(scores.shape)}")
        heads = zip(scores.unbind(1), self.transitions, strict=True)
        return [(part, self.potentials(part, lengths, transitions)) for part, transitions in heads]

    def potentials(self, scores: Tensor, lengths: Tensor, transitions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return unary (B', k, 2) and pairwise (2, 2) potentials and lengths (B'): a chain for each query of scores (B, ..., q, k)."""
        selected = scores.flatten(0, -2)
        lengths = lengths.repeat_interleave(scores.shape[1:-1].numel())
        unary = self.count(torch.stack([torch.zeros_like(selected), selected], -1), lengths)
        return add_virtual_ends(unary, transitions, lengths), transitions, lengths


class ReleasedSegmentWeights(SegmentWeights):
    """λ p_i / Σ_j p_j with λ = 2, and a decay of the transitions, as in the released code of paper 003.

    The released code adds `decay` times the transitions to their gradient, once an update. The trainer does so by
    `decay_gradient`, after it has summed the gradients of all micro-batches and workers. Where all p underflow, as of float32
    scores below -92, the weights and their gradient are 0.
    """

    decay = 0.005

    def normalise(self, p: Tensor, chains: Chains) -> Tensor:
        return 2 * (p / p.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny))

    def decay_gradient(self) -> None:
        """Add `decay` times the transitions to their gradient, if they have one."""
        if self.transitions.grad is not None:
            self.transitions.grad += self.decay * self.transitions.detach()


class EdgeSegmentWeights(ReleasedSegmentWeights):
    """The score as the slides of paper 003 print it: Σ over edges (i, i+1) of θ_i + θ_{i+1} + transition.

    So the potentials of all keys but the first and the last count twice. The only key of a chain of one counts once.
    """

    def count(self, unary: Tensor, lengths: Tensor) -> Tensor:
        place = torch.arange(unary.shape[1], device=unary.device)
        inner = (place > 0) & (place < lengths[:, None] - 1)
        return unary * (1 + inner.to(unary.dtype))[..., None]


class MarginalSegmentWeights(ReleasedSegmentWeights):
    """p(z_i = 1) without λ and the normalisation, as the slides of paper 003 print it."""

    def normalise(self, p: Tensor, chains: Chains) -> Tensor:
        return p


class TreeWeights(Unscripted):
    """weights[b, j, i] = p(i is the head of j) in projective trees with any number of root arcs (syntactic attention)."""

    trees = eisner.multi_root

    def forward(self, scores: Tensor, lengths: Lengths) -> Tensor:
        """Return the weights (B, ..., q, k) for scores (B, ..., q, k) and lengths (B)."""
        return self.trees.marginals(*self._arcs(scores, lengths)).mT

    def best(self, scores: Tensor, lengths: Lengths) -> Tensor:
        """Return the heads (B, ..., n) of the best tree; -1 for the root and in the padding."""
        return self.trees.argmax(*self._arcs(scores, lengths))[1]

    def _arcs(self, scores: Tensor, lengths: Lengths) -> tuple[Tensor, Tensor]:
        # a row of scores is a dependent; `eisner` takes heads as rows, and lengths without the root
        words = (as_lengths(lengths, scores, -1) - 1).clamp(min=0)
        return scores.mT, words.view(-1, *(1 for _ in scores.shape[1:-2])).expand(scores.shape[:-2])


class SingleRootTreeWeights(TreeWeights):
    """p(i is the head of j) in projective trees with one root arc."""

    trees = eisner.single_root


class HardWeights(nn.Module):
    """1 for the key with the highest score, 0 for all others; a row of -inf selects no key (see `scores_of_heads`)."""

    def forward(self, scores: Tensor, lengths: Lengths) -> Tensor:
        """Return the weights (B, ..., q, k) for scores (B, ..., q, k) and lengths (B)."""
        best, key = scores.masked_fill(~_real(scores, lengths), -torch.inf).max(-1)
        chosen = (key[..., None] == torch.arange(scores.shape[-1], device=scores.device)).to(scores.dtype)
        return chosen * (best > -torch.inf).unsqueeze(-1)


def _quotients(unary: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """Return p_i / Σ_j p_j (B', k) of chains (B', k, 2) of any scores: the marginals of a mark that one selected key has."""
    # the states of a key: not selected or selected before the mark, marked, and both after it
    selected, side = unary.new_tensor([[0, 1, 1, 0, 1], [-1, -1, 0, 1, 1]]).long()
    place = torch.arange(unary.shape[1], device=unary.device)
    first, last = (place == 0)[:, None], (place == lengths[:, None] - 1)[..., None]
    unary = unary[..., selected].masked_fill((first & (side > 0)) | (last & (side < 0)), -torch.inf)
    allowed = (side[:, None] < 0) == (side <= 0)
    marked = transitions[selected][:, selected].masked_fill(~allowed, -torch.inf)
    return chain.marginals(unary, marked, lengths)[..., 2]


def scores_of_heads(heads: Tensor) -> Tensor:
    """Return scores (B, n, n) that select the given heads (B, n): 0 for a head, -inf for all others; head -1 selects none."""
    chosen = heads[..., None] == torch.arange(heads.shape[1], device=heads.device)
    return torch.zeros_like(chosen, dtype=torch.get_default_dtype()).masked_fill(~chosen, -torch.inf)


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


def _real(scores: Tensor, lengths: Lengths) -> Tensor:
    lengths = as_lengths(lengths, scores, -1)
    return token_mask(lengths, scores.shape[-1]).view(len(scores), *(1 for _ in scores.shape[1:-1]), scores.shape[-1])
