"""Dependency trees whose arcs may cross, with any number of root arcs (`multi_root`) or one (`single_root`).

Arguments and results are those of `eisner`: arcs (B, n+1, n+1) with the score of word h as the head of word m at [h, m] and the
root at 0, and lengths (B,). Time is O(B·n³).

log Z is the logarithm of the determinant of Tutte's matrix-tree theorem (Koo et al. 2007; Smith and Smith 2007). The
determinant itself loses all digits if scores spread widely. So words are eliminated one by one without any subtraction, as
Grassmann, Taksar and Heyman (1985) do for Markov chains: a word v with the heads' sum s_v = Σ_h w(h, v) leaves

    Z(w) = s_v Z(w'),    w'(h, m) = w(h, m) + w(h, v) w(v, m) / s_v

which is Gaussian elimination with every sum of a column kept instead of recomputed. With one root arc, root arcs are left out
of s_v, so that they count to first order only, and the last word's is taken. Logarithms make it right at any spread. The next
word is the one with the largest s_v.

MAP is by Chu and Liu (1965) and Edmonds (1967), the k best trees by dividing what is left (Murty 1968). Samples reverse the
elimination: see `kernels.arborescences`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.calls import registers_kernels, with_kernel_fallback
from phrasemodels.structs.eisner import score_heads
from phrasemodels.structs.inference import Lengths
from phrasemodels.structs.kernels import arborescences, edmonds
from phrasemodels.structs.semiring import logsumexp


class NonProjective:
    """The functions over all dependency trees, for any number of root arcs or one."""

    def __init__(self, one_root: bool):
        self._one_root = one_root

    @with_kernel_fallback
    def log_partition(self, arcs: Tensor, lengths: Lengths = None) -> Tensor:
        """Return log Z, (B,)."""
        lengths = _check(arcs, lengths)
        if kernels.usable(lengths, arcs):
            reference = partial(self.log_partition, lengths=lengths)
            return arborescences.LogPartition.apply(reference, arcs, lengths, self._one_root)
        if arcs.shape[1] == 1:
            return torch.where(_read(arcs, lengths), arcs, 0).sum((1, 2))  # one tree, the empty one
        total = _eliminate(*_weights(arcs, lengths), lengths, self._one_root)
        total = torch.where(lengths == 0, 0, total)
        return total.masked_fill(total == -torch.inf, -torch.inf)  # no gradient to the factors of an impossible product

    @with_kernel_fallback
    def marginals(self, arcs: Tensor, lengths: Lengths = None) -> Tensor:
        """Return p(h is the head of m), (B, n+1, n+1); 0 on the diagonal, into the root and in the padding."""
        lengths = _check(arcs, lengths)
        if kernels.usable(lengths, arcs):
            reference = partial(self.marginals, lengths=lengths)
            return arborescences.Marginals.apply(reference, arcs, lengths, self._one_root)
        if inference.transformed():
            return torch.func.grad(lambda a: self.log_partition(a, lengths).sum())(arcs)
        keep = torch.is_grad_enabled() and arcs.requires_grad
        with torch.inference_mode(False), torch.enable_grad(), kernels.reference_only():
            leaf = arcs if keep else arcs.detach().clone().requires_grad_()
            total = self.log_partition(leaf, lengths).sum()
            return torch.autograd.grad(total, leaf, create_graph=keep)[0]

    @with_kernel_fallback
    def argmax(self, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the score (B,), differentiable, and the heads (B, n+1) of a best tree; -1 at the root and in the padding.

        If every tree is forbidden, or a score is NaN or +inf, the score is -inf or NaN and all heads are -1. Scores on a GPU
        are copied to the CPU.
        """
        lengths = _check(arcs, lengths)
        best, heads = kernels.on_cpu(edmonds.best, arcs, lengths, self._one_root)
        best, heads = best.to(arcs), heads.to(arcs.device)
        return kernels.with_gradient(best, partial(score_heads, heads=heads), arcs), heads

    @with_kernel_fallback
    def topk(self, arcs: Tensor, k: int, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the scores (k, B), differentiable, and the heads (k, B, n+1) of the k best trees, best first, in O(B·k·n⁴) time.

        Where there are fewer trees that are not forbidden, the other scores are -inf and their heads -1. Scores on a GPU are
        copied to the CPU.
        """
        lengths = _check(arcs, lengths)
        best, heads = kernels.on_cpu(edmonds.k_best, arcs, lengths, self._one_root, k)
        best, heads = best.to(arcs), heads.to(arcs.device)
        return kernels.with_gradient(best, partial(score_heads, heads=heads), arcs), heads

    @with_kernel_fallback
    def sample(self, arcs: Tensor, k: int, lengths: Lengths = None, generator: torch.Generator | None = None) -> Tensor:
        """Return the heads of k independent samples, (k, B, n+1), as in `argmax`. Scores on a GPU are copied to the CPU."""
        lengths = _check(arcs, lengths)
        draws = torch.rand((k, *arcs.shape), generator=generator, dtype=torch.float64, device=arcs.device)
        return kernels.on_cpu(arborescences.sample, arcs, lengths, self._one_root, draws).to(arcs.device)

    def minimum_risk(self, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the expected number (B,) of right arcs, and the heads (B, n+1) of the tree with most of them."""
        return self.argmax(torch.where(arcs == -torch.inf, arcs, self.marginals(arcs, lengths)), lengths)

    @with_kernel_fallback
    def entropy(self, arcs: Tensor, lengths: Lengths = None) -> Tensor:
        """Return −Σ p log p over all trees, in nats, (B,), as log Z − E[score]."""
        lengths, (exact,) = _check(arcs, lengths), inference.in_float64((arcs,))
        p, log_z = self.marginals(exact, lengths), self.log_partition(exact, lengths)
        allowed = _read(exact, lengths) & (exact != -torch.inf)
        expected = (p * torch.where(allowed, exact, 0)).sum((1, 2))
        none = log_z == -torch.inf
        return torch.where(none, 0, log_z.masked_fill(none, 0) - expected).to(arcs.dtype)


multi_root = NonProjective(one_root=False)
single_root = NonProjective(one_root=True)


def _check(arcs: Tensor, lengths: Lengths) -> Tensor:
    if arcs.dim() != 3 or arcs.shape[1] != arcs.shape[2] or arcs.shape[1] < 1:
        raise ValueError(f"arcs must be (B, n+1, n+1) with the root at 0, not {tuple(arcs.shape)}")
    return inference.check_lengths(lengths, arcs.shape[0], arcs.shape[1] - 1, arcs.device)


def _read(arcs: Tensor, lengths: Tensor) -> Tensor:
    """Return whether an arc (B, n+1, n+1) is that of a tree."""
    at = torch.arange(arcs.shape[1], device=arcs.device)
    word = at <= lengths[:, None]
    return word[:, :, None] & (word & (at > 0))[:, None] & (at[:, None] != at)


def _weights(arcs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return log weights of arcs from the root (B, n), and between words (B, n, n); -inf for those of no tree."""
    read = torch.where(_read(arcs, lengths), arcs, -torch.inf)
    return read[:, 0, 1:], read[:, 1:, 1:]


def _eliminate(root: Tensor, words: Tensor, lengths: Tensor, one_root: bool) -> Tensor:
    """Return log Z (B,) from the log weights of `_weights`."""
    B, n = root.shape
    sentence, at = torch.arange(B, device=root.device), torch.arange(n, device=root.device)
    left, total = at < lengths[:, None], torch.zeros_like(root[:, 0])
    for _ in range(n - 1):
        more = left.sum(1) > 1
        sums = logsumexp(words, 1)
        if not one_root:
            sums = logsumexp(torch.stack([sums, root], 1), 1)
        v = torch.where(left, sums.detach(), -torch.inf).argmax(1)
        v = torch.where(
            left[sentence, v], v, left.to(torch.int8).argmax(1)
        )  # argmax takes any word if all sums are -inf
        s = sums[sentence, v]
        out = words[sentence, v] - s.masked_fill(s == -torch.inf, 0)[:, None]
        gone = more[:, None] & (at == v[:, None])
        keep = ~gone & left
        path = words[sentence, :, v][:, :, None] + out[:, None]
        allowed = (keep[:, :, None] & keep[:, None]) & (at[:, None] != at)
        both = logsumexp(torch.stack([words, torch.where(more[:, None, None], path, -torch.inf)]), 0)
        by_root = torch.where(more[:, None], root[sentence, v][:, None] + out, -torch.inf)
        root = torch.where(keep, logsumexp(torch.stack([root, by_root]), 0), -torch.inf)
        words = torch.where(allowed, both, -torch.inf)
        left = keep
        total = total + torch.where(more, s, 0)
    return total + logsumexp(root, 1)


@registers_kernels
def _first_calls(dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    arcs = torch.zeros(1, 3, 3, dtype=dtype).requires_grad_()
    whole = ("log_partition", "marginals", "entropy", "argmax")
    calls = {name: partial(getattr(multi_root, name), arcs) for name in whole}
    return calls | {name: partial(getattr(multi_root, name), arcs, 1) for name in ("sample", "topk")}
