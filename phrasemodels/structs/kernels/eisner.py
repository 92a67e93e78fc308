# mypy: disallow-untyped-defs=False
"""Projective trees on the CPU: batches of sentences, and their place in autograd."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import over_batch, reference_vjp, trees
from phrasemodels.structs.kernels.vector import COMPILE


@njit(**COMPILE)
def _splits(row, N):
    size = trees.number_of_splits(N)
    return row[: 3 * size].reshape((3, size))


@njit(**COMPILE)
def _marginals(first, step, scores, lengths, one_root, posteriors, log_z, cells):
    """cells: marginals of complete spans and of arcs, (2, B, N, N)."""
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        cells[:, b] = 0.0
        theta, c = np.full((N, N), -np.inf), np.empty((6, N, N))
        for h in range(N):
            for m in range(1, N):
                if h != m:
                    theta[h, m] = scores[b, h, m]
        q = _splits(posteriors[b], N)
        log_z[b] = trees.log_partition(theta, one_root, c, q)
        if log_z[b] > -np.inf:
            trees.marginals(q, c, cells[0, b, :N, :N], cells[1, b, :N, :N])


@njit(**COMPILE)
def _covariance(first, step, grad, lengths, posteriors, cells, out):
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        q = _splits(posteriors[b], N)
        g, result = np.zeros((N, N)), np.zeros((N, N))
        for h in range(N):
            for m in range(1, N):
                g[h, m] = grad[b, h, m]
        e, c = np.empty((6, N, N)), np.empty((6, N, N))
        complete, arcs = cells[0, b, :N, :N], cells[1, b, :N, :N]
        trees.expectations(q, g, complete, arcs, e)
        trees.covariance(q, g, complete, arcs, e, c, result)
        out[b] = 0.0
        for h in range(N):
            for m in range(N):
                out[b, h, m] = result[h, m]


class _Pass:
    """The posteriors of one batch, and what follows from them."""

    def __init__(self, arcs: Tensor, lengths: Tensor, one_root: bool):
        B, N, _ = arcs.shape
        scores = np.ascontiguousarray(arcs.detach().double().numpy())
        dtype = arcs.detach().numpy().dtype
        self.lengths = lengths.numpy()
        self.posteriors = np.empty((B, 3 * trees.number_of_splits(int(self.lengths.max()) + 1)), dtype)
        log_z, self.cells = np.empty(B), np.empty((2, B, N, N))
        over_batch(_marginals, B, scores, self.lengths, one_root, self.posteriors, log_z, self.cells)
        self.log_z = torch.from_numpy(log_z).to(arcs.dtype)
        # a copy even in float64: users may change it
        self.marginals = torch.from_numpy(self.cells[1].astype(dtype))

    def covariance(self, grad: Tensor) -> Tensor:
        """Gradient to the scores from the gradient to the marginals."""
        out = np.empty(grad.shape)
        given = np.ascontiguousarray(grad.double().numpy()), self.lengths, self.posteriors, self.cells
        over_batch(_covariance, len(out), *given, out)
        return torch.from_numpy(out).to(grad.dtype)


class LogPartition(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → log Z."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        run = _Pass(arcs, lengths, one_root)
        ctx.reference, ctx.marginals = reference, run.marginals
        ctx.save_for_backward(arcs)
        return run.log_z

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
        return None, ctx.marginals * grad[:, None, None], None, None


class Marginals(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → p(arc)."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        ctx.reference, ctx.run = reference, _Pass(arcs, lengths, one_root)
        ctx.save_for_backward(arcs)
        return ctx.run.marginals

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
        return None, ctx.run.covariance(grad), None, None
