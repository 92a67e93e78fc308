# mypy: disallow-untyped-defs=False
"""Labelled spans on the CPU: sums over the labels of each span, then the passes of `binary` over spans, as autograd functions.

p(label) below is that of a label given its span. With a gradient g to the marginals, those to the scores of spans are
h = Cov[Σ_label p g, span], and the gradient to a label is p(label) (h + p(span) (g − Σ_label p g)).
Shapes: B sentences, N words, L labels.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import binary, numbers, over_batch, reference_vjp
from phrasemodels.structs.kernels.scaled import exponential, ratio
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, LANES, highest, larger, load, spread, store


@njit(**INLINE)
def _exponentials(row, L, top):
    """Replace the scores of a row, which is padded with -inf, by exp(score − top); return their sum."""
    total = spread(0.0)
    for at in range(0, L, LANES):
        m, e = exponential(load(row, at) - top)
        x = m * ratio(e)
        store(row, at, x)
        total += x
    store(row, len(row) - LANES, total)
    each = 0.0
    for lane in range(len(row) - LANES, len(row)):
        each += row[lane]
    return each


@njit(**COMPILE)
def _sums(first, step, labels, lengths, grad, sums, means):
    """Compute log Σ exp of the labels of each span, NaN if a score is NaN or +inf; and Σ p grad, unless `grad` is empty."""
    L = labels.shape[3]
    row = np.full(-(-L // LANES) * LANES + LANES, -np.inf)
    for b in range(first, len(labels), step):
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                known = True
                for label in range(L):
                    x = np.float64(labels[b, i, j, label])
                    row[label] = x
                    known &= x < np.inf
                for label in range(L, len(row) - LANES):
                    row[label] = -np.inf
                tops = load(row, 0)
                for at in range(LANES, len(row) - LANES, LANES):
                    tops = larger(tops, load(row, at))
                top = highest(tops)
                sums[b, i, j] = top if known else np.nan
                if known and top > -np.inf:
                    total = _exponentials(row, L, top)
                    sums[b, i, j] = top + np.log(total)
                    if grad.size > 0:
                        mean = 0.0
                        for label in range(L):
                            mean += row[label] * grad[b, i, j, label]
                        means[b, i, j] = mean / total


@njit(**COMPILE)
def _shares(first, step, labels, lengths, sums, p, change, grad, means, out):
    """Write p(label) p(span) to `out`, or with `grad` p(label) (change + p(span) (grad − mean)); 0 where there is no span."""
    L = labels.shape[3]
    row = np.full(-(-L // LANES) * LANES + LANES, -np.inf)
    for b in range(first, len(labels), step):
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                if sums[b, i, j] == -np.inf:
                    continue
                for label in range(L):
                    row[label] = labels[b, i, j, label]
                for label in range(L, len(row) - LANES):
                    row[label] = -np.inf
                _exponentials(row, L, sums[b, i, j])
                for label in range(L):
                    x = p[b, i, j]
                    if grad.size > 0:
                        x = change[b, i, j] + x * (grad[b, i, j, label] - means[b, i, j])
                    out[b, i, j, label] = row[label] * x


EMPTY, NOTHING = np.empty((0, 0, 0)), np.empty((0, 0, 0, 0))


def sums(labels: Tensor, lengths: Tensor, grad: np.ndarray = NOTHING) -> tuple[np.ndarray, np.ndarray]:
    """Return log Σ exp of the labels of each span, and with `grad` (B, N, N, L) their means, (B, N, N)."""
    total, means = np.zeros(labels.shape[:3]), np.zeros(labels.shape[:3] if grad.size else (0, 0, 0))
    over_batch(_sums, len(labels), numbers(labels), lengths.numpy(), _like(grad, labels), total, means)
    return total, means


def shares(labels, lengths, total, p, change=EMPTY, grad=NOTHING, means=EMPTY) -> Tensor:
    """Return the result of `_shares`, (B, N, N, L), in the type of the labels."""
    x = numbers(labels)
    out = np.zeros(x.shape, x.dtype)
    over_batch(_shares, len(x), x, lengths.numpy(), total, p, change, _like(grad, labels), means, out)
    return torch.from_numpy(out)


def _like(grad: np.ndarray, labels: Tensor) -> np.ndarray:
    return np.ascontiguousarray(grad, numbers(labels[:0]).dtype)  # one type, so that kernels are compiled once


class LogPartition(torch.autograd.Function):
    """(reference, labels, lengths) → log Z."""

    @staticmethod
    def forward(ctx, reference, labels, lengths):
        ctx.reference, ctx.lengths = reference, lengths
        ctx.save_for_backward(labels)
        ctx.total, _ = sums(labels, lengths)
        log_z, ctx.p = binary.passes(torch.from_numpy(ctx.total), lengths, ctx.needs_input_grad[1])
        return log_z.to(labels.dtype)

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        p = ctx.p * grad.double()[:, None, None]
        return None, shares(*ctx.saved_tensors, ctx.lengths, ctx.total, p.numpy()), None


class Marginals(torch.autograd.Function):
    """(reference, labels, lengths) → p(labelled span)."""

    @staticmethod
    def forward(ctx, reference, labels, lengths):
        ctx.reference, ctx.lengths = reference, lengths
        ctx.save_for_backward(labels)
        total, _ = sums(labels, lengths)
        return shares(labels, lengths, total, binary.passes(torch.from_numpy(total), lengths, True)[1].numpy())

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        (labels,), to_labels = ctx.saved_tensors, numbers(grad)
        total, means = sums(labels, ctx.lengths, to_labels)
        scores = torch.from_numpy(total)
        p = binary.passes(scores, ctx.lengths, True)[1].numpy()
        change = binary.passes(scores, ctx.lengths, True, torch.from_numpy(means))[1].numpy()
        return None, shares(labels, ctx.lengths, total, p, change, to_labels, means), None
