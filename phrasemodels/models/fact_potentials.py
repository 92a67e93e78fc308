"""Potentials of a chain of facts (paper 003, sequential attention), and readings of those that the slides and the code give.

Shapes: B batch, n facts, K hops, d width. Each class is a part of phrasemodels.models.memory.ChainConfig; it is made from
(hops, d, slots), the number of hops, the width, and the largest number of facts.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn


class BinaryPotentials(nn.Module):
    """Unary potentials x_i^k · q^k and pairwise potentials x_i^k · x_j^{k+1}; q^{k+1} is a linear map of q^k.

    count: how often the unary potentials enter the score of a chain; twice in the released code, where each is part of
    two edges. (A normalisation of the pairwise potentials over all pairs of facts would only add a constant.)
    """

    count = 2

    def __init__(self, hops: int, d: int, slots: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(d, d) for _ in range(hops - 1))

    def queries(self, query: Tensor, keys: list[Tensor]) -> list[Tensor]:
        """query q^1 (B, d), keys x^k (B, n, d) of each hop -> q^1 .. q^K, each (B, d)."""
        queries = [query]
        for step in self.maps:
            queries.append(step(queries[-1]))
        return queries

    def forward(self, queries: list[Tensor], keys: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unary (B, K, n) and pairwise (B, K-1, n, n) potentials.

        allowed (B, n, n): whether fact j may follow fact i; scores of other pairs are not used.
        """
        return self.count * _matches(queries, keys), _products(keys)


class BinaryPotentialsOnce(BinaryPotentials):
    """BinaryPotentials in which each unary potential counts once."""

    count = 1


class RowNormalisedPotentials(BinaryPotentialsOnce):
    """Pairwise potentials log p(j | i) with p(j | i) = softmax_j(x_i^k · x_j^{k+1} + x_j^{k+1} · q^{k+1}), j ≠ i.

    The released code puts a log-softmax into θ_{k,k+1} when its linear start ends; this one is along the facts j that may
    follow fact i. The unary potentials, of the start and the end of the chain, enter once more outside of it.
    """

    def forward(self, queries: list[Tensor], keys: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unary (B, K, n) and pairwise (B, K-1, n, n) potentials; for `allowed` see BinaryPotentials."""
        unary = _matches(queries, keys)
        scores = _products(keys) + unary[:, 1:].unsqueeze(2)
        lowest = torch.finfo(scores.dtype).min  # not −∞: the only fact of a story has no other that follows it
        return unary, scores.masked_fill(~allowed.unsqueeze(1), lowest).log_softmax(-1)


class ReleasedPotentials(BinaryPotentials):
    """BinaryPotentials as the released code computes them from `linear_updates` training batches on: without pairs.

    The log-softmax that its linear start ends with is along an axis of one element, so all of θ_{k,k+1} becomes 0: no
    pairwise potentials remain, and of the unary potentials those of the start and the end of the chain, once. (For K = 3,
    which was not released, the fact in the middle also counts once.)
    """

    def __init__(self, hops: int, d: int, slots: int, linear_updates: int = 0) -> None:
        super().__init__(hops, d, slots)
        self.linear_updates = linear_updates
        # a parameter, so that a loaded model knows whether its linear start is over
        self.updates = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, queries: list[Tensor], keys: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unary (B, K, n) and pairwise (B, K-1, n, n) potentials; for `allowed` see BinaryPotentials."""
        if self.training:
            self.updates.add_(1)
        unary, pairs = super().forward(queries, keys, allowed)
        if self.updates <= self.linear_updates and self.linear_updates:
            return unary, pairs
        return unary / self.count, torch.zeros_like(pairs)


class UnaryPotentials(nn.Module):
    """Unary potentials x_i^k · q^k, and learned transitions between slots; q^{k+1} = Σ_i (q^k · x_i^k) x_i^{k+1}.

    The transitions from the start and to the end are means over all slots, including slots without facts.
    """

    def __init__(self, hops: int, d: int, slots: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(slots, slots))

    def queries(self, query: Tensor, keys: list[Tensor]) -> list[Tensor]:
        """query q^1 (B, d), keys x^k (B, n, d) of each hop -> q^1 .. q^K, each (B, d)."""
        queries = [query]
        for one, other in pairwise(keys):
            match = (one @ queries[-1].unsqueeze(-1)).transpose(1, 2)
            queries.append((match @ other).squeeze(1))
        return queries

    def forward(self, queries: list[Tensor], keys: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unary (B, K, n) and pairwise (B, K-1, n, n) potentials; for `allowed` see BinaryPotentials."""
        B, n, _ = keys[0].shape
        start, end = self.transitions.mean(0)[-n:], self.transitions.mean(1)[-n:]
        first, *between, last = _matches(queries, keys).unbind(1)
        unary = torch.stack([first + start, *between, last + end], 1)
        return unary, self.transitions[-n:, -n:].expand(B, len(keys) - 1, n, n)


Potentials = BinaryPotentials | UnaryPotentials


def _matches(queries: list[Tensor], keys: list[Tensor]) -> Tensor:
    """Return x_i^k · q^k, (B, K, n)."""
    return torch.stack([(x @ q.unsqueeze(-1)).squeeze(-1) for x, q in zip(keys, queries, strict=True)], 1)


def _products(keys: list[Tensor]) -> Tensor:
    """Return x_i^k · x_j^{k+1}, (B, K-1, n, n)."""
    return torch.stack([one @ other.transpose(1, 2) for one, other in pairwise(keys)], 1)
