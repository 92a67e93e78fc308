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
    """charts: u, α, a, s, p, r as in `lanes`, each (blocks, C, T, LANES)."""
    blocks = charts.shape[1]
    for block in range(first, blocks, step):
        ours = order[block * LANES : (block + 1) * LANES]
        u, alpha, a, s, p, r = _block(charts, block)
        m, z = _lane_lengths(ours, lengths), np.empty(LANES)
        _gather(unary, ours, lengths, u)
        lanes.forward(u, A, alpha, a, s, m, z)
        lanes.marginals(alpha, a, s, A, m, p, r)
        for lane in range(len(ours)):
            log_z[ours[lane]] = z[lane]
        _scatter(p, ours, marginals)


@njit(**COMPILE)
def _covariance(first, step, grad, A, order, lengths, charts, work, unary_grad, marked):
    """The gradient to unary, and in `work` and `marked` what the gradient to A is summed from."""
    blocks = charts.shape[1]
    for block in range(first, blocks, step):
        ours = order[block * LANES : (block + 1) * LANES]
        g, alpha, a, s, p, _ = _block(charts, block)  # u is not needed any more
        e, d, h = work[0, block], work[1, block], work[2, block]
        _gather(grad, ours, lengths, g)
        lanes.expectation(alpha, a, s, p, A, g, e)
        lanes.covariance(alpha, a, s, p, A, g, e, d, h, g)
        _scatter(g, ours, unary_grad)
        lanes.marked_pairs(alpha, s, p, d, A, e, marked[block])
        e *= a


@njit(**COMPILE)
def _counts(first, step, weight, A, order, charts, work, marked):
    """In `work` and `marked` what the sum of weighted pair marginals is summed from."""
    blocks = charts.shape[1]
    for block in range(first, blocks, step):
        ours = order[block * LANES : (block + 1) * LANES]
        _, alpha, a, s, p, _ = _block(charts, block)
        left, zero = work[0, block], work[1, block]
        left[:], zero[:] = 0.0, 0.0
        for lane in range(len(ours)):
            left[:, :, lane] = weight[ours[lane]]
        lanes.marked_pairs(alpha, s, p, zero, A, left, marked[block])
        left *= a


@njit(**COMPILE)
def _block(charts, i):
    return charts[0, i], charts[1, i], charts[2, i], charts[3, i], charts[4, i], charts[5, i]


@njit(**COMPILE)
def _lane_lengths(ours, lengths):
    out = np.ones(LANES, np.int64)  # lanes without a sequence have one word
    for lane in range(len(ours)):
        out[lane] = lengths[ours[lane]]
    return out


@njit(**COMPILE)
def _gather(x, ours, lengths, out):
    C, T, _ = out.shape
    for t in range(T):
        for c in range(C):
            row = out[c, t]
            row[len(ours) :] = 0.0
            for lane in range(len(ours)):
                row[lane] = x[ours[lane], t, c] if t < lengths[ours[lane]] else 0.0


@njit(**COMPILE)
def _scatter(p, ours, out):
    C, T, _ = p.shape
    for t in range(T):
        for c in range(C):
            row = p[c, t]
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
        self.charts = np.empty((6, blocks, C, T, LANES))
        log_z, marginals = np.empty(B), np.empty((B, T, C))
        work = scores, self.A, self.order, self.lengths, self.charts, log_z, marginals
        over_batch(_forward_backward, blocks, *work)
        self.log_z = torch.from_numpy(log_z).to(unary.dtype)
        self.marginals = torch.from_numpy(marginals).to(unary.dtype)

    def pairs(self, weight: Tensor) -> Tensor:
        """Σ_b weight_b Σ_t p(z_t = j, z_t+1 = k), (C, C)."""
        work, marked = self._work(2)
        over_batch(_counts, len(marked), _float64(weight), self.A, self.order, self.charts, work, marked)
        return self._pair_sum([(work[0], self.charts[5])], marked)

    def covariance(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients to unary and pairwise from the gradient to the marginals."""
        work, marked = self._work(3)
        out = np.empty(grad.shape)
        given = _float64(grad), self.A, self.order, self.lengths, self.charts
        over_batch(_covariance, len(marked), *given, work, out, marked)
        factors = [(work[0], self.charts[5]), (self.charts[2], work[2])]
        return torch.from_numpy(out).to(self.dtype), self._pair_sum(factors, marked)

    def _work(self, fields: int) -> tuple[np.ndarray, np.ndarray]:
        _, blocks, C, T, _ = self.charts.shape
        return np.empty((fields, blocks, C, T, LANES)), np.zeros((blocks, C, C))

    def _pair_sum(self, factors: list[tuple[np.ndarray, np.ndarray]], marked: np.ndarray) -> Tensor:
        """Σ_t p_t(j, k) (...) = E_jk Σ_t x_t(j) y_t+1(k), for each pair of factors."""
        total = 0
        for x, y in factors:
            left, right = torch.from_numpy(x).flatten(2), torch.from_numpy(y).flatten(2)
            total = total + (left[:, :, :-LANES] @ right[:, :, LANES:].mT).sum(0)
        E = lanes.scaled(self.A.T.copy())[1].T
        return (torch.from_numpy(E) * total + torch.from_numpy(marked.sum(0))).to(self.dtype)


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
