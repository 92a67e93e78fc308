"""Projective dependency trees (Eisner 1996), with any number of root arcs (`multi_root`) or one (`single_root`).

Shapes: B sentences, n words. Arguments of every function:
    arcs     (B, n+1, n+1): arcs[b, h, m] is the score of word h as the head of word m; position 0 is the root.
             The diagonal and arcs into the root are not read.
    lengths  (B,) numbers of words, without the root, in 0..n, a tensor or a list; None: all are n

A score of -inf forbids an arc. If a score of a sentence is NaN or +inf, its log Z, marginals and gradients are NaN, and its
trees are undefined.
A sentence without words has one tree, the empty one, with the score 0.
Scores in the padding are not read. Time and memory of the reference are O(B·n³). ValueError: wrong
shapes or lengths.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.calls import registers_kernels, with_kernel_fallback
from phrasemodels.structs.charts import Chart
from phrasemodels.structs.inference import Lengths
from phrasemodels.structs.kernels import eisner as kernel
from phrasemodels.structs.kernels import gpu, kbest, projective, sampling
from phrasemodels.structs.semiring import Log

# (lengths (B,), d) → (B,) booleans: whether words 1..d may form a complete span of the root
RootRule = Callable[[Tensor, int], Tensor]


class Projective:
    """The functions over projective trees, for one rule about the number of the root's arcs."""

    def __init__(self, root_rule: RootRule):
        self._root_rule = root_rule
        self._one_root = root_rule is _exactly_one

    @with_kernel_fallback
    def log_partition(self, arcs: Tensor, lengths: Lengths = None) -> Tensor:
        """Return log Z, (B,)."""
        inside = self._inside(arcs, lengths)
        if kernels.usable(inside.lengths, arcs):
            reference = partial(self.log_partition, lengths=lengths)
            return kernel.LogPartition.apply(reference, arcs, inside.lengths, self._one_root)
        if gpu.usable(inside.lengths, arcs):
            reference = partial(self.log_partition, lengths=lengths)
            return gpu.EisnerLogPartition.apply(reference, arcs, inside.lengths, self._one_root)
        return inference.log_partition(inside, arcs)

    @with_kernel_fallback
    def marginals(self, arcs: Tensor, lengths: Lengths = None) -> Tensor:
        """Return p(h is the head of m), (B, n+1, n+1); 0 on the diagonal, into the root and in the padding."""
        inside = self._inside(arcs, lengths)
        if kernels.usable(inside.lengths, arcs):
            reference = partial(self.marginals, lengths=lengths)
            return kernel.Marginals.apply(reference, arcs, inside.lengths, self._one_root)
        if gpu.usable(inside.lengths, arcs):
            reference = partial(self.marginals, lengths=lengths)
            return gpu.EisnerMarginals.apply(reference, arcs, inside.lengths, self._one_root)
        return inference.marginals(inside, arcs)[0]

    @with_kernel_fallback
    def argmax(self, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the score (B,), differentiable, and the heads (B, n+1) of a best tree; -1 at the root and in the padding."""
        inside = self._inside(arcs, lengths)
        found = (
            projective.argmax(arcs, inside.lengths, self._one_root) if kernels.usable(inside.lengths, arcs) else None
        )
        if found is not None:
            return kernels.with_gradient(found[0], partial(score_heads, heads=found[1]), arcs), found[1]
        best, (parts,) = inference.argmax(inside, arcs)
        heads = _heads(parts)
        return torch.where(best > -torch.inf, score_heads(arcs, heads), best), heads

    @with_kernel_fallback
    def topk(self, arcs: Tensor, k: int, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the scores (k, B), differentiable, and the heads (k, B, n+1) of the k best trees, best first.

        Where there are fewer trees that are not forbidden, the other scores are -inf and their heads -1. Scores on a GPU are
        copied to the CPU.
        """
        lengths = self._inside(arcs, lengths).lengths
        best, heads = kernels.on_cpu(kbest.trees, arcs, lengths, self._one_root, k)
        best, heads = best.to(arcs), heads.to(arcs.device)
        return kernels.with_gradient(best, partial(score_heads, heads=heads), arcs), heads

    @with_kernel_fallback
    def sample(self, arcs: Tensor, k: int, lengths: Lengths = None, generator: torch.Generator | None = None) -> Tensor:
        """Return the heads of k independent samples, (k, B, n+1), as in `argmax`."""
        inside = self._inside(arcs, lengths)
        if kernels.usable(inside.lengths, arcs):
            draws = torch.rand((k, arcs.shape[0], 2 * arcs.shape[1]), generator=generator, dtype=torch.float64)
            return sampling.heads(arcs, inside.lengths, self._one_root, draws)
        inside.lengths = inside.lengths.repeat(k)
        return _heads(inference.sample(inside, arcs, k=k, generator=generator)[0])

    def minimum_risk(self, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the expected number (B,) of right arcs, and the heads (B, n+1) of the tree with most of them."""
        return self.argmax(torch.where(arcs == -torch.inf, arcs, self.marginals(arcs, lengths)), lengths)

    @with_kernel_fallback
    def entropy(self, arcs: Tensor, lengths: Lengths = None) -> Tensor:
        """Return −Σ p log p over all trees, in nats, (B,)."""
        inside = self._inside(arcs, lengths)
        if kernels.usable(inside.lengths, arcs):
            reference = partial(self.entropy, lengths=lengths)
            return kernel.Entropy.apply(reference, arcs, inside.lengths, self._one_root)
        return inference.entropy(inside, arcs)

    def total(self, semiring: Log, arcs: Tensor, lengths: Lengths = None) -> Tensor:
        """Return ⊕ over all trees of the products ⊗ of their scores in any semiring, lowered; see `semiring`."""
        return semiring.lower(self._inside(arcs, lengths)(semiring, arcs))

    def _inside(self, arcs: Tensor, lengths: Lengths) -> "_InsidePass":
        if arcs.dim() != 3 or arcs.shape[1] != arcs.shape[2] or arcs.shape[1] < 1:
            raise ValueError(f"arcs must be (B, n+1, n+1) with the root at 0, not {tuple(arcs.shape)}")
        lengths = inference.check_lengths(lengths, arcs.shape[0], arcs.shape[1] - 1, arcs.device)
        return _InsidePass(lengths, self._root_rule)


def _any_number(lengths: Tensor, d: int) -> Tensor:
    return torch.ones_like(lengths, dtype=torch.bool)


def _exactly_one(lengths: Tensor, d: int) -> Tensor:
    # with words left after d, the root would need a second arc
    return lengths == d


multi_root = Projective(_any_number)
"""Trees with any number of arcs from the root."""
single_root = Projective(_exactly_one)
"""Trees with one arc from the root."""


def score_heads(arcs: Tensor, heads: Tensor) -> Tensor:
    """Return the sum of the scores of the arcs from heads (..., B, n+1), (..., B); a head of -1 adds 0."""
    B, N, _ = arcs.shape
    sentence = torch.arange(B, device=arcs.device)[:, None]
    chosen = arcs[sentence, heads.clamp(min=0), torch.arange(N, device=arcs.device)]
    return torch.where(heads >= 0, chosen, 0).sum(-1)


def _heads(parts: Tensor) -> Tensor:
    return torch.where(parts.sum(-2) > 0, parts.argmax(-2), -1)


class _InsidePass:
    """The inside pass over complete spans C and incomplete spans I, to the right (head i) and to the left (head j).

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
        if N == 1:
            return arcs.sum((2, 3))  # one tree, the empty one; no arc is read
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


@registers_kernels
def _first_calls(dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    arcs = torch.zeros(1, 3, 3, dtype=dtype).requires_grad_()
    whole = ("log_partition", "marginals", "entropy", "argmax")
    calls = {name: partial(getattr(multi_root, name), arcs) for name in whole}
    return calls | {name: partial(getattr(multi_root, name), arcs, 1) for name in ("sample", "topk")}
