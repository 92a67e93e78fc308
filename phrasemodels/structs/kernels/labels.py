# mypy: disallow-untyped-defs=False
"""Labelled spans on the CPU: sums over the labels of each span, with vectors of labels, then the passes of `trees` over the spans alone.

p(label) below is the probability of a label given its span. With a gradient g to the marginals, the gradients to the scores
of spans are h = Cov[Σ_label p g, span], and the gradient to a label is p(label) (h + p(span) (g − Σ_label p g)). Shapes: B
sentences, N words, L labels.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import njit
from numba.extending import overload
from torch import Tensor

from phrasemodels.structs.kernels import Gradient, Kernel, Scores, factors, numbers, over_batch, tensor
from phrasemodels.structs.kernels.simd import (
    COMPILE,
    INLINE,
    LANES,
    added,
    exp32,
    exponential,
    highest,
    lanes,
    larger,
    last,
    load,
    ratio,
    spread,
    store,
    unknown,
)  # fmt: skip
from phrasemodels.structs.kernels.trees import span_passes

if TYPE_CHECKING:
    from phrasemodels.structs.structure import Structure


def _exp(x):
    """Return exp x of a vector of numbers ≤ 0."""


@overload(_exp, jit_options=INLINE)  # type: ignore[arg-type]
def _exp_of(x):
    def long(x):
        m, e = exponential(x)
        return m * ratio(e)

    return long if x == lanes else lambda x: exp32(x)


@njit(**COMPILE)
def _weigh(first, step, labels, lengths, tops, totals):
    """Compute the top score of each span's labels, NaN for one of a sentence with NaN or +inf; and Σ exp(score − top), unless all
    are forbidden. There is at least a vector of labels; the last vector overlaps the one before it."""
    _, N, _, L = labels.shape
    width = LANES * 8 // labels.itemsize
    for b in range(first, len(labels), step):
        lost = spread(labels.dtype.type(0))
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                at = ((b * N + i) * N + j) * L
                most = load(labels, at)
                lost += unknown(most)
                for k in range(width, L, width):
                    x = load(labels, at + min(k, L - width))
                    lost += unknown(x)
                    most = larger(most, x)
                top = highest(most)
                tops[b, i, j] = top
                if top > -np.inf:
                    total = _exp(load(labels, at) - top)
                    for k in range(width, L, width):
                        total += last(_exp(load(labels, at + min(k, L - width)) - top), L - k)
                    totals[b, i, j] = added(total)
        if lengths[b] > 0:
            tops[b, 0, 0] += added(lost)


@njit(**COMPILE)
def _share(first, step, labels, lengths, tops, p, scale, out):
    """Write scale · p · exp(score − top) to the labels of each span."""
    _, N, _, L = labels.shape
    width, real = LANES * 8 // labels.itemsize, labels.dtype.type
    for b in range(first, len(labels), step):
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                at, top, share = ((b * N + i) * N + j) * L, real(tops[b, i, j]), real(scale[b] * p[b, i, j])
                if top > -np.inf or top != top:
                    for k in range(0, L, width):
                        k = min(k, L - width)
                        store(out, at + k, _exp(load(labels, at + k) - top) * share)


@njit(**COMPILE)
def _means(first, step, labels, lengths, tops, grad, means):
    """Compute Σ exp(score − top) grad of the labels of each span; with score − top in place of an empty grad."""
    _, N, _, L = labels.shape
    width = LANES * 8 // labels.itemsize
    for b in range(first, len(labels), step):
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                at, top = ((b * N + i) * N + j) * L, labels.dtype.type(tops[b, i, j])
                if top > -np.inf or top != top:
                    total = spread(labels.dtype.type(0))
                    for k in range(0, L, width):
                        begin = at + min(k, L - width)
                        x = load(labels, begin) - top
                        by = load(grad, begin) if grad.size > 0 else larger(x, spread(labels.dtype.type(-1e30)))
                        total += last(_exp(x) * by, L - k)
                    means[b, i, j] = added(total)


@njit(**COMPILE)
def _changes(first, step, labels, lengths, tops, p, change, grad, means, out):
    """Write exp(score − top) (change + p (grad − mean)) to the labels of each span."""
    _, N, _, L = labels.shape
    width, real = LANES * 8 // labels.itemsize, labels.dtype.type
    for b in range(first, len(labels), step):
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                at, top = ((b * N + i) * N + j) * L, real(tops[b, i, j])
                share, mean, own = real(p[b, i, j]), real(means[b, i, j]), real(change[b, i, j])
                if top > -np.inf or top != top:
                    for k in range(0, L, width):
                        begin = at + min(k, L - width)
                        each = (load(grad, begin) - mean) * share + own
                        store(out, begin, _exp(load(labels, begin) - top) * each)


def _wide(labels, more=-np.inf):
    """Return the labels, and `more` after them if they would not fill a vector."""
    x = numbers(labels)
    width, L = LANES * 8 // x.itemsize, x.shape[-1]
    if width <= L:
        return x
    wide = np.full((*x.shape[:3], width), more, x.dtype)  # np.pad takes longer than a short sentence
    wide[..., :L] = x
    return wide


class SpanLabels(Kernel):
    """Serves log Z, marginals, their gradients and entropies of labelled spans; see `Kernel`."""

    def log_partition(
        self, structure: "Structure", scores: Scores, lengths: Tensor, which: Sequence[int]
    ) -> tuple[Tensor, Gradient]:
        weighed = _Weighed(scores[0], lengths)
        log_z, p = weighed.passes(bool(which))
        return log_z.to(scores[0].dtype), lambda grad: (weighed.share(p / weighed.totals, grad),)

    def marginals(self, structure: "Structure", scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        weighed = _Weighed(scores[0], lengths)
        log_z, p = weighed.passes(scale is not None)
        found = () if scale is None else (weighed.share(p / weighed.totals, scale),)
        return log_z.to(scores[0].dtype), found

    def hessian_vector(self, structure: "Structure", scores: Scores, lengths: Tensor, grads: Sequence[Any]) -> Scores:
        weighed, given = _Weighed(scores[0], lengths), _wide(grads[0], 0.0)
        x, totals, out = weighed.x, weighed.totals, np.zeros_like(weighed.x)
        mean = weighed.means(given)
        p, change = weighed.passes(True)[1] / totals, weighed.passes(True, mean)[1] / totals
        over_batch(_changes, len(x), x, weighed.lengths, weighed.tops, p, change, given, mean, out)
        return (weighed.narrow(out),)

    def entropy(self, structure: "Structure", scores: Scores, lengths: Tensor) -> Tensor:
        """Return log Z − E[score], with E[score] = Σ p(span) (top + E[label of the span − top])."""
        weighed = _Weighed(scores[0], lengths)
        log_z, p = weighed.passes(True)
        mean = weighed.means(np.empty((0, 0, 0, 0), weighed.x.dtype))
        expected = np.where(p == 0, 0, p * (np.where(p == 0, 0, weighed.tops) + mean)).sum((1, 2))
        none = log_z.numpy() == -np.inf
        value = np.where(none, 0, np.maximum(np.where(none, 0, log_z.numpy()) - expected, 0))
        return tensor(value, scores[0].dtype)


class _Weighed:
    """The sums over the labels of each span: the weight of a span, Σ exp of its labels, is total · exp(top), (B, N, N), float64; 1 · exp 0
    where there is no span."""

    def __init__(self, labels, lengths):
        self.labels, self.x, self.lengths = labels, _wide(labels), lengths.numpy()[:, 0]
        self.tops, self.totals = np.zeros(self.x.shape[:3]), np.ones(self.x.shape[:3])
        over_batch(_weigh, len(self.x), self.x, self.lengths, self.tops, self.totals)

    def passes(self, wanted, grad=None):
        """Return log Z (B,), and the marginals of spans or their gradient; see `span_passes`."""
        log_z, out = span_passes(self.tops, self.totals, self.lengths, wanted, grad)
        return torch.from_numpy(log_z), out

    def means(self, given):
        """Return E[given | span], (B, N, N), for numbers (B, N, N, L), or of label − top if they are empty."""
        means = np.zeros(self.x.shape[:3])
        over_batch(_means, len(means), self.x, self.lengths, self.tops, given, means)
        return means / self.totals

    def share(self, p, scale):
        """Return scale · p · exp(score − top) for the labels of each span, in their type; 0 where there is no span."""
        out = np.zeros_like(self.x)
        over_batch(_share, len(out), self.x, self.lengths, self.tops, p, factors(scale, len(out)), out)
        return self.narrow(out)

    def narrow(self, out):
        """Return numbers of labels without those that fill a vector."""
        return torch.from_numpy(np.ascontiguousarray(out[..., : self.labels.shape[-1]]))
