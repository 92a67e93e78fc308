"""Linear chains with shared pairwise scores on the CPU: blocks of sequences, and their place in autograd."""

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from phrasemodels.structs.kernels import lanes, reference_vjp, torch_threads
from phrasemodels.structs.kernels.vector import COMPILE

# a row of 16 float64 is 4 vectors: enough to hide the cost of a loop, few enough that a step stays in the L1 cache
MOST_LANES = 16


@njit(parallel=True, **COMPILE)
def _forward_backward(unary, A, order, lengths, charts, log_z, marginals):
    """charts: u, α, a, s of the forward pass, β, b, s of the backward pass, p; each (blocks, C, T, lanes)."""
    _, blocks, _, _, L = charts.shape
    for block in prange(blocks):
        ours = order[block * L : (block + 1) * L]
        u, alpha, a, s, beta, b, r, p = _block(charts, block)
        m, z = _lane_lengths(ours, lengths, L), np.empty(L)
        _gather(unary, ours, lengths, u)
        lanes.forward(u, A, alpha, a, s, m, z)
        lanes.backward(u, A, beta, b, r, m)
        lanes.posterior(alpha, beta, m, z, p)
        for lane in range(len(ours)):
            log_z[ours[lane]] = z[lane]
        _scatter(p, ours, marginals)


@njit(parallel=True, **COMPILE)
def _covariance(grad, A, order, lengths, charts, work, unary_grad, marked):
    """The gradient to unary, and in `work` and `marked` what the gradient to A is summed from."""
    _, blocks, _, _, L = charts.shape
    for block in prange(blocks):
        ours = order[block * L : (block + 1) * L]
        u, alpha, a, s, beta, b, r, p = _block(charts, block)
        g, E, F, x = work[0, block], work[1, block], work[2, block], work[3, block]
        m = _lane_lengths(ours, lengths, L)
        _gather(grad, ours, lengths, g)
        lanes.expectation_before(a, s, alpha, A, g, E)
        lanes.expectation_after(b, r, beta, u, A, g, F, m)
        lanes.center(p, E, F)
        _scatter_gradient(p, E, F, ours, unary_grad)
        lanes.marked_pairs(p, r, u, beta, A, m, E, g, marked[block])
        lanes.pair_factors(p, r, b, m, E, g, x, F)


@njit(parallel=True, **COMPILE)
def _counts(weight, A, order, lengths, charts, work, marked):
    """In `work` and `marked` what the sum of weighted pair marginals is summed from."""
    _, blocks, C, T, L = charts.shape
    for block in prange(blocks):
        ours = order[block * L : (block + 1) * L]
        u, alpha, a, s, beta, b, r, p = _block(charts, block)
        left, right, x, y = work[0, block], work[1, block], work[2, block], work[3, block]
        m = _lane_lengths(ours, lengths, L)
        left[:], right[:] = 0.0, 0.0
        for lane in range(len(ours)):
            left[:, :, lane] = weight[ours[lane]]
        lanes.marked_pairs(p, r, u, beta, A, m, left, right, marked[block])
        lanes.pair_factors(p, r, b, m, left, right, x, y)


@njit(**COMPILE)
def _block(charts, i):
    return (charts[0, i], charts[1, i], charts[2, i], charts[3, i],
            charts[4, i], charts[5, i], charts[6, i], charts[7, i])  # fmt: skip


@njit(**COMPILE)
def _lane_lengths(ours, lengths, L):
    out = np.ones(L, np.int64)  # lanes without a sequence have one word
    for lane in range(len(ours)):
        out[lane] = lengths[ours[lane]]
    return out


@njit(**COMPILE)
def _gather(x, ours, lengths, out):
    out[:] = 0.0
    C = len(out)
    for lane in range(len(ours)):
        for t in range(lengths[ours[lane]]):
            for c in range(C):
                out[c, t, lane] = x[ours[lane], t, c]


@njit(**COMPILE)
def _scatter(p, ours, out):
    C, T, _ = p.shape
    for lane in range(len(ours)):
        for t in range(T):
            for c in range(C):
                out[ours[lane], t, c] = p[c, t, lane]


@njit(**COMPILE)
def _scatter_gradient(p, E, F, ours, out):
    C, T, _ = p.shape
    for lane in range(len(ours)):
        for t in range(T):
            for c in range(C):
                out[ours[lane], t, c] = p[c, t, lane] * (E[c, t, lane] + F[c, t, lane])


class _Pass:
    """The charts of one batch, and what follows from them."""

    def __init__(self, unary: Tensor, A: Tensor, lengths: Tensor):
        B, T, C = unary.shape
        L = min(MOST_LANES, -(-B // torch.get_num_threads()))
        blocks = -(-B // L)
        self.dtype = unary.dtype
        self.A = np.ascontiguousarray(A.detach().numpy(), np.float64)
        self.lengths = lengths.numpy()
        # like lengths in one block: a block takes as many steps as its longest
        self.order = np.argsort(self.lengths, kind="stable")
        self.charts = np.empty((8, blocks, C, T, L))
        self.log_z = np.empty(B)
        self.marginals = np.empty((B, T, C), unary.detach().numpy().dtype)
        with torch_threads():
            _forward_backward(unary.detach().numpy(), *self._where(), self.log_z, self.marginals)

    def _where(self) -> tuple[np.ndarray, ...]:
        return self.A, self.order, self.lengths, self.charts

    def pairs(self, weight: Tensor) -> Tensor:
        """Σ_b weight_b Σ_t p(z_t = j, z_t+1 = k), (C, C)."""
        work, marked = self._work()
        with torch_threads():
            _counts(weight.double().numpy(), *self._where(), work, marked)
        return self._pair_sum([(work[2], self.charts[5])], marked)

    def covariance(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients to unary and pairwise from the gradient to the marginals."""
        work, marked = self._work()
        unary_grad = np.empty_like(self.marginals)
        with torch_threads():
            _covariance(grad.numpy(), *self._where(), work, unary_grad, marked)
        factors = [(work[3], self.charts[5]), (work[2], work[0])]
        return torch.from_numpy(unary_grad), self._pair_sum(factors, marked)

    def _work(self) -> tuple[np.ndarray, np.ndarray]:
        _, blocks, C, T, L = self.charts.shape
        return np.empty((4, blocks, C, T, L)), np.zeros((blocks, C, C))

    def _pair_sum(self, factors: list[tuple[np.ndarray, np.ndarray]], marked: np.ndarray) -> Tensor:
        L = self.charts.shape[-1]
        total = 0
        for x, y in factors:
            left, right = torch.from_numpy(x).flatten(2), torch.from_numpy(y).flatten(2)
            total = total + (left[:, :, :-L] @ right[:, :, L:].mT).sum(0)
        top = self.A.max(1, keepdims=True)
        scaled = torch.from_numpy(np.exp(self.A - np.where(top == -np.inf, 0, top)))
        return (scaled * total + torch.from_numpy(marked.sum(0))).to(self.dtype)


class LogPartition(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → log Z."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference, ctx.run = reference, _Pass(unary, pairwise, lengths)
        ctx.save_for_backward(unary, pairwise)
        return torch.from_numpy(ctx.run.log_z).to(unary.dtype)

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        unary = torch.from_numpy(ctx.run.marginals) * grad[:, None, None]
        return None, unary, ctx.run.pairs(grad), None


class Marginals(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → p(z_t = c)."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference, ctx.run = reference, _Pass(unary, pairwise, lengths)
        ctx.save_for_backward(unary, pairwise)
        return torch.from_numpy(ctx.run.marginals)

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        return None, *ctx.run.covariance(grad), None
