# mypy: disallow-untyped-defs=False
"""Labelled spans on the CPU: sums over the labels of each span, then the passes of `binary` over spans, as autograd functions.

p(label) below is that of a label given its span. With a gradient g to the marginals, those to the scores of spans are
h = Cov[Σ_label p g, span], and the gradient to a label is p(label) (h + p(span) (g − Σ_label p g)).
Shapes: B sentences, N words, L labels.
"""

from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from numba.extending import overload
from torch import Tensor

from phrasemodels.structs.kernels import binary, numbers, over_batch, reference_vjp
from phrasemodels.structs.kernels.exp32 import exp32
from phrasemodels.structs.kernels.scaled import exponential, ratio
from phrasemodels.structs.kernels.simd import (
    COMPILE,
    INLINE,
    LANES,
    added,
    highest,
    lanes,
    larger,
    last,
    load,
    spread,
    store,
    unknown,
)  # fmt: skip


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
    """Compute Σ exp(score − top) grad of the labels of each span."""
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
                        total += last(_exp(load(labels, begin) - top) * load(grad, begin), L - k)
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


def _wide(labels: Tensor, more: float = -np.inf) -> np.ndarray:
    """Return the labels, and `more` behind them if they would not fill a vector."""
    x = numbers(labels)
    width, L = LANES * 8 // x.itemsize, x.shape[-1]
    if width <= L:
        return x
    wide = np.full((*x.shape[:3], width), more, x.dtype)  # np.pad takes longer than a short sentence
    wide[..., :L] = x
    return wide


def weigh(labels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return `top` and `total`, (B, N, N), float64: the weight of a span, Σ exp of its labels, is total · exp(top). Where there is no
    span, they are 0 and 1."""
    x = _wide(labels)
    tops, totals = np.zeros(x.shape[:3]), np.ones(x.shape[:3])
    over_batch(_weigh, len(x), x, lengths.numpy(), tops, totals)
    return torch.from_numpy(tops), torch.from_numpy(totals)


def share(labels: Tensor, lengths: Tensor, tops: Tensor, p: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return p · exp(score − top) for the labels of each span, (B, N, N, L), in their type, times the `scale` of the sentence, (B,);
    0 where there is no span."""
    x = _wide(labels)
    by = np.ones(len(x), x.dtype) if scale is None else numbers(scale)
    out = np.zeros(x.shape, x.dtype)
    over_batch(_share, len(x), x, lengths.numpy(), tops.numpy(), p.numpy(), by, out)
    return torch.from_numpy(np.ascontiguousarray(out[..., : labels.shape[-1]]))


class LogPartition(torch.autograd.Function):
    """(reference, labels, lengths) → log Z."""

    @staticmethod
    def forward(ctx, reference, labels, lengths):
        ctx.reference, ctx.lengths, wanted = reference, lengths, ctx.needs_input_grad[1]
        ctx.save_for_backward(labels)
        ctx.tops, totals = weigh(labels, lengths)
        log_z, p = binary.passes(ctx.tops, totals, lengths, wanted)
        ctx.p = p.div_(totals) if wanted else p
        return log_z.to(labels.dtype)

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        return None, share(*ctx.saved_tensors, ctx.lengths, ctx.tops, ctx.p, grad), None


class Marginals(torch.autograd.Function):
    """(reference, labels, lengths) → p(labelled span)."""

    @staticmethod
    def forward(ctx, reference, labels, lengths):
        ctx.reference, ctx.lengths = reference, lengths
        ctx.save_for_backward(labels)
        tops, totals = weigh(labels, lengths)
        _, p = binary.passes(tops, totals, lengths, True)
        return share(labels, lengths, tops, p.div_(totals))

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        (labels,), lengths = ctx.saved_tensors, ctx.lengths
        tops, totals = weigh(labels, lengths)
        x, given, words = _wide(labels), _wide(grad.contiguous(), 0.0), lengths.numpy()
        means, out = np.zeros(x.shape[:3]), np.zeros(x.shape, x.dtype)
        over_batch(_means, len(x), x, words, tops.numpy(), given, means)
        mean = torch.from_numpy(means).div_(totals)
        _, p = binary.passes(tops, totals, lengths, True)
        _, change = binary.passes(tops, totals, lengths, True, mean)
        p, change = p.div_(totals).numpy(), change.div_(totals).numpy()
        over_batch(_changes, len(x), x, words, tops.numpy(), p, change, given, means, out)
        return None, torch.from_numpy(np.ascontiguousarray(out[..., : labels.shape[-1]])), None


class _Expected(NamedTuple):
    """Of each span (B, N, N), in float64: `top` and `total` of `weigh`, the expectation of label − top, and p(span); of each label
    (B, N, N, L), in the type of the labels: p(label | span), and label − top, 0 if it is forbidden; and log Z (B,)."""

    tops: Tensor
    totals: Tensor
    above: Tensor
    spans: Tensor
    given: Tensor
    each: Tensor
    log_z: Tensor

    @property
    def scores(self) -> Tensor:
        """The expected score of the label of each span, 0 for impossible spans."""
        return torch.where(self.spans == 0, 0, self.tops + self.above)


def _expected(labels: Tensor, lengths: Tensor) -> _Expected:
    tops, totals = weigh(labels, lengths)
    log_z, spans = binary.passes(tops, totals, lengths, True)
    given = share(labels, lengths, tops, 1 / totals)
    each = torch.where(given == 0, 0, labels - tops.to(labels.dtype)[..., None])
    return _Expected(tops, totals, (given * each).sum(-1).double(), spans, given, each, log_z)


class Entropy(torch.autograd.Function):
    """(reference, labels, lengths) → −Σ p log p = log Z − E[score], with E[score] = Σ p(span) (top + E[label − top]).

    Its gradient is minus the covariance of the score and each labelled span.
    """

    @staticmethod
    def forward(ctx, reference, labels, lengths):
        ctx.reference, ctx.lengths = reference, lengths
        ctx.save_for_backward(labels)
        found = _expected(labels, lengths)
        none = found.log_z == -torch.inf
        value = found.log_z.masked_fill(none, 0) - (found.spans * found.scores).sum((1, 2))
        return value.masked_fill_(none, 0).to(labels.dtype)

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        found = _expected(*ctx.saved_tensors, ctx.lengths)
        _, change = binary.passes(found.tops, found.totals, ctx.lengths, True, found.scores)
        spans, change, above = (x.to(grad.dtype)[..., None] for x in (found.spans, change, found.scores - found.tops))
        out = found.given.mul_(change + spans * (found.each - above)).mul_(-grad[:, None, None, None])
        return None, out.masked_fill_((found.log_z == -torch.inf)[:, None, None, None], 0), None
