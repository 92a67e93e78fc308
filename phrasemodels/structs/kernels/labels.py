# mypy: disallow-untyped-defs=False
"""Labelled spans on the CPU: sums over the labels of each span, with vectors of labels, then inside, outside and covariance passes over the
spans alone, of LANES sentences, with weights as in `simd`.

A span of words i..j is split at k, and its weight is a sum over k of products of two cells of a chart. All arrays are parts of one
flat workspace w. Each cell is stored at [i, j] (SPAN) and at [j, i] (SPAN_T), so that both factors of every sum are contiguous. SPLITS is
the sum over splits, OWN the weight of the span itself: SPAN = OWN · SPLITS. All passes but the inside pass use
q(k) = left_k right_k / Σ_k left_k right_k, the posterior of a split given its cell, which is cheaper to recompute than to store.
They are sums of products of probabilities, which cannot overflow:

    marginals       p(left_k) and p(right_k) each gain p(cell) q(k)
    expectations    e(cell) = g + Σ_k q(k) (e(left_k) + e(right_k)) = E[Σ g over the spans inside a cell | the cell]
    covariance      d(cell) = p(cell) E[Σ g over the spans outside a cell | the cell]:
                    d(left_k) gains q(k) (d(cell) + p(cell) (g + e(right_k))), d(right_k) the same with e(left_k)

With g the gradient to the marginals and G = Σ g over a tree's spans, the gradient to the score of a span is the covariance
p (E[G | span] − E[G]). p(label) below is the probability of a label given its span. With a gradient g to the marginals of labels, the
gradients to the scores of spans are h = Cov[Σ_label p g, span], and the gradient to a label is p(label) (h + p(span) (g − Σ_label p g)).
Shapes: B sentences, N words, L labels.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numba import njit
from numba.extending import overload
from torch import Tensor

from phrasemodels.structs.kernels import Gradient, Kernel, Scores, factors, numbers, over_batch, scratch, tensor
from phrasemodels.structs.kernels.simd import (
    COMPILE,
    INLINE,
    INNER,
    LANES,
    WEIGHT,
    above,
    added,
    exp32,
    exponential,
    exponentials,
    highest,
    lanes,
    larger,
    last,
    load,
    logarithm,
    maximum,
    normal,
    possible,
    ratio,
    spread,
    store,
    unknown,
)

if TYPE_CHECKING:
    from phrasemodels.structs.structure import Structure

NEGLIGIBLE = 1e-120  # a probability; products of smaller ones would be subnormal, for which processors are slow
SPAN, SPAN_T, SPLITS, OWN = range(4)


class Layout(NamedTuple):
    """N, and the positions of p, e, d (2, N, N), g (N, N), lengths and E[G]; the weights (4, N, N) begin at 0."""

    N: int
    p: int
    e: int
    d: int
    g: int
    lengths: int
    mean: int
    size: int


@njit(**INLINE)
def _sum_of(w, left, right, n):
    """Return Σ_k left_k right_k over n cells, as m, e."""
    left, right = left * WEIGHT, right * WEIGHT
    top = load(w, left + LANES) + load(w, right + LANES)
    for k in range(WEIGHT, n * WEIGHT, WEIGHT):
        top = maximum(top, load(w, left + k + LANES) + load(w, right + k + LANES))
    total = spread(0.0)
    for k in range(0, n * WEIGHT, WEIGHT):
        scale = ratio(load(w, left + k + LANES) + load(w, right + k + LANES) - top)
        total += load(w, left + k) * load(w, right + k) * scale
    return normal(total, top)


@njit(**INLINE)
def _put(w, cell, m, e):
    """Write the weight m · 2^e to a cell."""
    store(w, cell * WEIGHT, m)
    store(w, cell * WEIGHT + LANES, e)


@njit(**INLINE)
def _posterior(w, left, right, e):
    """Return the posterior of one split times m, for a cell with the weight m · 2^e."""
    scale = ratio(load(w, left * WEIGHT + LANES) + load(w, right * WEIGHT + LANES) - e)
    return load(w, left * WEIGHT) * load(w, right * WEIGHT) * scale


@njit(**INLINE)
def _spread_both(w, at, e, p, d, left, right, n):
    """Add p and d of a cell to the cells of its n splits."""
    for k in range(n):
        a, b = (left + k) * LANES, (right + k) * LANES
        q = _posterior(w, left + k, right + k, e)
        x, y = q * p, q * d
        store(w, at.p + a, load(w, at.p + a) + x)
        store(w, at.p + b, load(w, at.p + b) + x)
        store(w, at.d + a, load(w, at.d + a) + (y + x * load(w, at.e + b)))
        store(w, at.d + b, load(w, at.d + b) + (y + x * load(w, at.e + a)))


@njit(**COMPILE)
def span_layout(N):
    """Return the layout for sentences of N words."""
    n = N * N * LANES
    p = 8 * n
    end = p + 7 * n
    return Layout(N, p, p + 2 * n, p + 4 * n, p + 6 * n, end, end + LANES, end + 2 * LANES)


@njit(**INNER)
def _open_spans(w, block, order, scores, factors, lengths):
    """Write factor · exp(score) of the spans of a block to the workspace w, 1 in the padding; return its layout."""
    count = min(LANES, len(order) - block)
    N = lengths[order[block + count - 1]]
    at = span_layout(N)
    for lane in range(LANES):
        b = order[block + min(lane, count - 1)]
        n = lengths[b] if lane < count else 0
        w[at.lengths + lane] = n
        for i in range(N):
            for j in range(N):
                w[(OWN * N * N + i * N + j) * WEIGHT + lane] = scores[b, i, j] if i <= j < n else 0.0
    exponentials(w, OWN * N * N * WEIGHT, at.p)
    for lane in range(count):
        b = order[block + lane]
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                w[(OWN * N * N + i * N + j) * WEIGHT + lane] *= factors[b, i, j]
    return at


@njit(**INNER)
def _inside_spans(w, at, log_z):
    """Fill the chart and log Z. The length of a sentence becomes 0 if all its trees are forbidden."""
    N = at.N
    log_z[:] = 0.0  # of empty sentences
    M = N * N
    for j in range(N):
        for i in range(j, -1, -1):
            own = (OWN * M + i * N + j) * WEIGHT
            m, e = load(w, own), load(w, own + LANES)
            if i < j:
                x, y = _sum_of(w, i * N + i, SPAN_T * M + j * N + i + 1, j - i)
                _put(w, SPLITS * M + i * N + j, x, y)
                m, e = normal(m * x, e + y)
            else:
                m, e = normal(m, e)
            _put(w, i * N + j, m, e)
            _put(w, SPAN_T * M + j * N + i, m, e)
        for lane in range(LANES):
            if w[at.lengths + lane] == j + 1:
                e_top = w[j * WEIGHT + LANES + lane]
                log_z[lane] = logarithm(w[j * WEIGHT + lane], e_top)
                if not possible(e_top):
                    w[at.lengths + lane] = 0.0


@njit(**INNER)
def _outside_spans(w, at):
    """Compute p of all spans at SPAN, and d of all but themselves at SPAN too; d is 0 unless e and g are given."""
    N = at.N
    M = N * N
    for x in range(2 * M * LANES):
        w[at.p + x] = w[at.d + x] = 0.0
    for lane in range(LANES):
        if w[at.lengths + lane] > 0.0:
            w[at.p + (int(w[at.lengths + lane]) - 1) * LANES + lane] = 1.0
    for j in range(N - 1, -1, -1):
        for i in range(j + 1):
            cell, other = (i * N + j) * LANES, (SPAN_T * M + j * N + i) * LANES
            p = above(load(w, at.p + cell) + load(w, at.p + other), NEGLIGIBLE)
            d = load(w, at.d + cell) + load(w, at.d + other)
            store(w, at.p + cell, p)
            store(w, at.d + cell, d)
            if i < j:
                splits = (SPLITS * M + i * N + j) * WEIGHT
                share, e = 1.0 / load(w, splits), load(w, splits + LANES)
                d += p * load(w, at.g + cell)
                _spread_both(w, at, e, p * share, d * share, i * N + i, SPAN_T * M + j * N + i + 1, j - i)


@njit(**INNER)
def _expect_spans(w, at):
    """Compute e of all spans, E[Σ g over a span and those inside | the span]."""
    N = at.N
    M = N * N
    for j in range(N):
        for i in range(j, -1, -1):
            total = spread(0.0)
            if i < j:
                splits, left, right = (SPLITS * M + i * N + j) * WEIGHT, i * N + i, SPAN_T * M + j * N + i + 1
                e = load(w, splits + LANES)
                for k in range(j - i):
                    both = load(w, at.e + (left + k) * LANES) + load(w, at.e + (right + k) * LANES)
                    total += _posterior(w, left + k, right + k, e) * both
                total = total / load(w, splits)
            total += load(w, at.g + (i * N + j) * LANES)
            store(w, at.e + (i * N + j) * LANES, total)
            store(w, at.e + (SPAN_T * M + j * N + i) * LANES, total)


@njit(**COMPILE)
def _span_passes(first, step, work, order, scores, factors, lengths, grad, log_z, out):
    """Compute log Z (B,); and, unless `out` (B, N, N) is empty, marginals, or with `grad` (B, N, N) their gradient."""
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = _open_spans(w, block, order, scores, factors, lengths)
        N = at.N
        _inside_spans(w, at, z)
        count = min(LANES, len(order) - block)
        for lane in range(count):
            log_z[order[block + lane]] = z[lane]
        if out.size == 0:
            continue
        for i in range(at.e, at.lengths):
            w[i] = 0.0
        if grad.size > 0:
            for lane in range(count):
                n = int(w[at.lengths + lane])
                for i in range(n):
                    for j in range(i, n):
                        w[at.g + (i * N + j) * LANES + lane] = grad[order[block + lane], i, j]
            _expect_spans(w, at)
        _outside_spans(w, at)
        _close_spans(w, block, at, order, grad.size > 0, out)


@njit(**INNER)
def _close_spans(w, block, at, order, gradient, out):
    """Copy marginals, or their gradients p (e − E[G]) + d, to the rows of the block, with 0 in the padding."""
    N = at.N
    for lane in range(min(LANES, len(order) - block)):
        x, n = out[order[block + lane]], int(w[at.lengths + lane])
        x[:] = 0.0
        mean = w[at.e + max(n - 1, 0) * LANES + lane]
        for i in range(n):
            for j in range(i, n):
                cell = (i * N + j) * LANES + lane
                p = w[at.p + cell]
                x[i, j] = p * (w[at.e + cell] - mean) + w[at.d + cell] if gradient else p


def span_passes(scores, factors, words, wanted, grad=None):
    """Return log Z (B,), and the marginals of spans (B, N, N), which are empty unless `wanted`; with `grad` (B, N, N), the
    gradient to the marginals, the gradient to the scores instead. The weight of a span is factor · exp(score), both (B, N, N) and
    float64, with 0 in the padding of scores, and factors > 0; a score that is NaN makes its sentence NaN. words (B,)."""
    B, N, _ = scores.shape
    order = np.argsort(words, kind="stable")  # a block takes as many steps as its longest sentence
    log_z, out = np.empty(B), np.empty((B, N, N) if wanted else (0, 0, 0))
    given = np.empty((0, 0, 0)) if grad is None else grad
    blocks = -(-B // LANES)
    work = scratch(blocks, span_layout(N).size)
    over_batch(_span_passes, blocks, work, order, scores, factors, words, given, log_z, out)
    if not scores.max(initial=0) < np.inf:  # a score is NaN or +inf; the padding is 0
        read = np.triu(np.ones((N, N), bool)) & (np.arange(N) < words[:, None, None])
        lost = (read & ~(scores < np.inf)).any((1, 2))
        log_z[lost] = np.nan
        if wanted:
            out[read & lost[:, None, None]] = np.nan
    return log_z, out


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


def _wide(labels):
    """Return the labels, and -inf after them if they would not fill a vector."""
    x = numbers(labels)
    width, L = LANES * 8 // x.itemsize, x.shape[-1]
    if width <= L:
        return x
    wide = np.full((*x.shape[:3], width), -np.inf, x.dtype)  # np.pad takes longer than a short sentence
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
        weighed, given = _Weighed(scores[0], lengths), grads[0]
        shares = weighed.share(1 / weighed.totals, 1.0)
        mean = _sum(shares, given)
        p, change = (weighed.passes(True, g)[1] for g in (None, mean.double().numpy()))
        p, change = (tensor(x, given.dtype)[..., None] for x in (p, change))
        found = torch.where(shares == 0, 0, shares * (change + p * (given - mean[..., None])))
        return (found + 0 * p,)  # p is NaN where results are unknown

    def entropy(self, structure: "Structure", scores: Scores, lengths: Tensor) -> Tensor:
        """Return log Z − E[score], with E[score] = Σ p(span) (top + E[label of the span − top])."""
        weighed = _Weighed(scores[0], lengths)
        log_z, p = weighed.passes(True)
        tops = weighed.tops
        mean = _sum(weighed.share(1 / weighed.totals, 1.0), scores[0] - tensor(tops, scores[0].dtype)[..., None])
        expected = np.where(p == 0, 0, p * (np.where(p == 0, 0, tops) + mean.numpy())).sum((1, 2))
        none = log_z.numpy() == -np.inf
        value = np.where(none, 0, np.maximum(np.where(none, 0, log_z.numpy()) - expected, 0))
        return tensor(value, scores[0].dtype)


def _sum(shares, x):
    """Return Σ share · x over the labels of each span, (B, N, N), for numbers x (B, N, N, L); a label without probability adds 0."""
    return torch.where(shares == 0, 0, shares * x).sum(-1)


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

    def share(self, p, scale):
        """Return scale · p · exp(score − top) for the labels of each span, in their type; 0 where there is no span."""
        out = np.zeros_like(self.x)
        over_batch(_share, len(out), self.x, self.lengths, self.tops, p, factors(scale, len(out)), out)
        return torch.from_numpy(np.ascontiguousarray(out[..., : self.labels.shape[-1]]))
