"""Projective dependency trees (Eisner 1996), with any number of root arcs (`multi_root`) or one (`single_root`).

Arguments of every function:
    arcs     (B, n+1, n+1): arcs[b, h, m] is the score of word h as the head of word m; position 0 is the root.
             The diagonal and arcs into the root are not read.
    lengths  (B,) numbers of words, without the root, in 1..n, n where None

-inf forbids an arc. A sentence with a score that is NaN or +inf has NaN for log Z, marginals and gradients, and trees of no
meaning; in the padding scores may be anything. The reference takes O(n³) time and memory.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.charts import Chart
from phrasemodels.structs.kernels import eisner as kernel
from phrasemodels.structs.semiring import Log

# which sentences may end with words 1..d below the root: (lengths, d) → (B,) of bool
RootRule = Callable[[Tensor, int], Tensor]


class Projective:
    """Five functions over projective trees under one rule for the root's arcs."""

    def __init__(self, root_rule: RootRule):
        self._root_rule = root_rule
        self._one_root = root_rule is _exactly_one

    def log_partition(self, arcs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """log Z, (B,)."""
        inside = self._inside(arcs, lengths)
        if kernels.usable(arcs):
            reference = partial(self.log_partition, lengths=lengths)
            return kernel.LogPartition.apply(reference, arcs, inside.lengths, self._one_root)
        return inference.log_partition(inside, arcs)

    def marginals(self, arcs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """p(h is the head of m), (B, n+1, n+1); 0 on the diagonal, into the root and in the padding."""
        inside = self._inside(arcs, lengths)
        if kernels.usable(arcs):
            reference = partial(self.marginals, lengths=lengths)
            return kernel.Marginals.apply(reference, arcs, inside.lengths, self._one_root)
        return inference.marginals(inside, arcs)[0]

    def argmax(self, arcs: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Score (B,), differentiable, and heads (B, n+1) of a best tree; -1 at the root and in the padding."""
        best, (parts,) = inference.argmax(self._inside(arcs, lengths), arcs)
        heads = _heads(parts)
        return score_heads(arcs, heads).masked_fill(best == -torch.inf, -torch.inf), heads

    def sample(
        self, arcs: Tensor, k: int, lengths: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Heads of k independent samples, (k, B, n+1), as in `argmax`."""
        inside = self._inside(arcs, lengths)
        inside.lengths = inside.lengths.repeat(k)
        return _heads(inference.sample(inside, arcs, k=k, generator=generator)[0])

    def entropy(self, arcs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """−Σ p log p over trees, in nats, (B,)."""
        return inference.entropy(self._inside(arcs, lengths), arcs)

    def _inside(self, arcs: Tensor, lengths: Tensor | None) -> "_Inside":
        if arcs.dim() != 3 or arcs.shape[1] != arcs.shape[2] or arcs.shape[1] < 2:
            raise ValueError(f"arcs must be (B, n+1, n+1) with the root at 0, not {tuple(arcs.shape)}")
        lengths = inference.check_lengths(lengths, arcs.shape[0], arcs.shape[1] - 1, arcs.device)
        return _Inside(lengths, self._root_rule)


def _any_number(lengths: Tensor, d: int) -> Tensor:
    return torch.ones_like(lengths, dtype=torch.bool)


def _exactly_one(lengths: Tensor, d: int) -> Tensor:
    # a root that has finished words 1..d before the last could take a second arc
    return lengths == d


multi_root = Projective(_any_number)
single_root = Projective(_exactly_one)


def score_heads(arcs: Tensor, heads: Tensor) -> Tensor:
    """Sum of the scores of the arcs to heads (B, n+1), (B,)."""
    chosen = arcs.gather(1, heads.clamp(min=0)[:, None])[:, 0]
    return torch.where(heads >= 0, chosen, 0).sum(-1)


def _heads(parts: Tensor) -> Tensor:
    return torch.where(parts.sum(-2) > 0, parts.argmax(-2), -1)


class _Inside:
    """Complete spans C and incomplete spans I, to the right (head i) and to the left (head j).

    I→(i,j) = arcs(i,j) ⊗ ⊕_k C→(i,k) ⊗ C←(k+1,j)      C→(i,j) = ⊕_k I→(i,k) ⊗ C→(k,j)
    I←(i,j) = arcs(j,i) ⊗ ⊕_k C→(i,k) ⊗ C←(k+1,j)      C←(i,j) = ⊕_k C←(i,k) ⊗ I←(k,j)
    """

    def __init__(self, lengths: Tensor, root_rule: RootRule):
        self.lengths = lengths
        self.root_rule = root_rule

    def __call__(self, semiring: Log, arcs: Tensor) -> Tensor:
        N = arcs.shape[1]
        word = torch.arange(N, device=arcs.device) <= self.lengths[:, None]
        dependent = word & (torch.arange(N, device=arcs.device) > 0)
        arcs = semiring.lift(torch.where(word[:, :, None] & dependent[:, None, :], arcs, 0))
        one = torch.zeros_like(arcs[:, :, :, 0])
        right, left = Chart(one), Chart(one)  # complete
        for d in range(1, N):
            m = N - d
            meet = semiring.sum(right.prefixes(m) + left.suffixes(m), -1)
            to_right = meet + arcs.diagonal(d, 2, 3)
            to_left = meet + arcs.diagonal(-d, 2, 3)
            if d == 1:
                open_right, open_left = Chart(to_right), Chart(to_left)
            else:
                open_right.append(to_right)
                open_left.append(to_left)
            new_right = semiring.sum(open_right.prefixes(m) + right.suffixes(m), -1)
            left.append(semiring.sum(left.prefixes(m) + open_left.suffixes(m), -1))
            right.append(self._end_root(semiring, new_right, d))
        sentence = torch.arange(len(self.lengths), device=arcs.device)
        return right.from_left[:, sentence, 0, self.lengths]

    def _end_root(self, semiring: Log, right: Tensor, d: int) -> Tensor:
        forbidden = ~self.root_rule(self.lengths, d)
        first = torch.arange(right.shape[2], device=right.device) == 0
        return torch.where(forbidden[:, None] & first, semiring.zero_like(right), right)
