# mypy: disallow-untyped-defs=False
"""Linear chains with shared pairwise scores on the CPU: blocks of sequences, and their place in autograd."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import lanes, over_batch, reference_vjp
from phrasemodels.structs.kernels.lanes import LANES
from phrasemodels.structs.kernels.vector import COMPILE


@njit(**COMPILE)
def _forward_backward(first, step, unary, A, order, lengths, charts, log_z, marginals):
    """charts: u, α, a, s, p, r as in `lanes`, each (blocks, T · C · LANES)."""
    blocks = charts.shape[1]
    for block in range(first, blocks, step):
        ours = order[block * LANES : (block + 1) * LANES]
        u, alpha, a, s, p, r = _block(charts, block, lengths[ours].max(), len(A))
        m, z = _lane_lengths(ours, lengths), np.empty(LANES)
        _gather(unary, ours, lengths, u)
        lanes.forward(u, A, alpha, a, s, m, z)
        lanes.marginals(alpha, a, s, A, m, p, r)
        for lane in range(len(ours)):
            log_z[ours[lane]] = z[lane]
        _scatter(p, ours, marginals)


@njit(**COMPILE)
def _covariance(first, step, grad, A, order, lengths, charts, unary_grad, pair_grads):
    """The gradient to unary, and that to A from each block."""
    blocks = charts.shape[1]
    for block in range(first, blocks, step):
        ours = order[block * LANES : (block + 1) * LANES]
        g, alpha, a, s, p, r = _block(charts, block, lengths[ours].max(), len(A))  # u is not needed any more
        e, d, h = np.empty_like(p), np.empty_like(p), np.empty_like(p)
        _gather(grad, ours, lengths, g)
        lanes.expectation(alpha, a, s, p, A, g, e)
        lanes.covariance(alpha, a, s, p, A, g, e, d, h, g)
        _scatter(g, ours, unary_grad)
        lanes.marked_pairs(alpha, s, p, d, A, e, pair_grads[block])
        lanes.pairs(a, e, r, h, A, pair_grads[block])


@njit(**COMPILE)
def _counts(first, step, weight, A, order, lengths, charts, counts):
    """Weighted sums of pair marginals of each block."""
    blocks = charts.shape[1]
    for block in range(first, blocks, step):
        ours = order[block * LANES : (block + 1) * LANES]
        _, alpha, a, s, p, r = _block(charts, block, lengths[ours].max(), len(A))
        left, zero = np.zeros_like(p), np.zeros_like(p)
        for lane in range(len(ours)):
            left[:, :, lane] = weight[ours[lane]]
        lanes.marked_pairs(alpha, s, p, zero, A, left, counts[block])
        lanes.pairs(a, left, r, zero, A, counts[block])


@njit(**COMPILE)
def _block(charts, i, T, C):
    """Charts of block i, whose longest sequence has T positions."""
    size, shape = T * C * LANES, (T, C, LANES)
    return (charts[0, i][:size].reshape(shape), charts[1, i][:size].reshape(shape), charts[2, i][:size].reshape(shape),
            charts[3, i][:size].reshape(shape), charts[4, i][:size].reshape(shape), charts[5, i][:size].reshape(shape))  # fmt: skip


@njit(**COMPILE)
def _lane_lengths(ours, lengths):
    out = np.ones(LANES, np.int64)  # lanes without a sequence have one word
    for lane in range(len(ours)):
        out[lane] = lengths[ours[lane]]
    return out


@njit(**COMPILE)
def _gather(x, ours, lengths, out):
    T, C, _ = out.shape
    for t in range(T):
        for c in range(C):
            row = out[t, c]
            row[len(ours) :] = 0.0
            for lane in range(len(ours)):
                row[lane] = x[ours[lane], t, c] if t < lengths[ours[lane]] else 0.0


@njit(**COMPILE)
def _scatter(p, ours, out):
    T, C, _ = p.shape
    for lane in range(len(ours)):
        out[ours[lane], T:] = 0.0
    for t in range(T):
        for c in range(C):
            row = p[t, c]
            for lane in range(len(ours)):
                out[ours[lane], t, c] = row[lane]


def _float64(x: Tensor) -> np.ndarray:
    return np.ascontiguousarray(x.detach().double().numpy())


class _Pass:
    """The charts of one batch, and what follows from them."""

    def __init__(self, unary: Tensor, A: Tensor, lengths: Tensor):
        B, T, C = unary.shape
        blocks = -(-B // LANES)
        self.dtype = unary.dtype
        # one dtype for all, so that there is one thing to compile
        scores, self.A = _float64(unary), _float64(A)
        self.lengths = lengths.numpy()
        # like lengths in one block: a block takes as many steps as its longest
        self.order = np.argsort(self.lengths, kind="stable")
        self.charts = np.empty((6, blocks, T * C * LANES))
        log_z, marginals = np.empty(B), np.empty((B, T, C))
        work = scores, self.A, self.order, self.lengths, self.charts, log_z, marginals
        over_batch(_forward_backward, blocks, *work)
        self.log_z = torch.from_numpy(log_z).to(unary.dtype)
        self.marginals = torch.from_numpy(marginals).to(unary.dtype)

    def pairs(self, weight: Tensor) -> Tensor:
        """Σ_b weight_b Σ_t p(z_t = j, z_t+1 = k), (C, C)."""
        counts = self._pair_sums()
        given = _float64(weight), self.A, self.order, self.lengths, self.charts
        over_batch(_counts, len(counts), *given, counts)
        return torch.from_numpy(counts.sum(0)).to(self.dtype)

    def covariance(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients to unary and pairwise from the gradient to the marginals."""
        out, pairs = np.empty(grad.shape), self._pair_sums()
        given = _float64(grad), self.A, self.order, self.lengths, self.charts
        over_batch(_covariance, len(pairs), *given, out, pairs)
        return torch.from_numpy(out).to(self.dtype), torch.from_numpy(pairs.sum(0)).to(self.dtype)

    def _pair_sums(self) -> np.ndarray:
        return np.zeros((self.charts.shape[1], *self.A.shape))


class LogPartition(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → log Z."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference, ctx.run = reference, _Pass(unary, pairwise, lengths)
        ctx.save_for_backward(unary, pairwise)
        return ctx.run.log_z

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        unary = ctx.run.marginals * grad[:, None, None]
        return None, unary, ctx.run.pairs(grad), None


class Marginals(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → p(z_t = c)."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference, ctx.run = reference, _Pass(unary, pairwise, lengths)
        ctx.save_for_backward(unary, pairwise)
        return ctx.run.marginals

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        return None, *ctx.run.covariance(grad), None
