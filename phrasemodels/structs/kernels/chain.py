# mypy: disallow-untyped-defs=False
"""Linear chains on the CPU: batches in blocks of LANES sequences, or by `rescaled_chain`, as autograd functions.

The backward pass of the marginals repeats the forward recursion, a fifth of the work, so that nothing needs to be saved.
Shapes: B sequences, T positions, C tags; S = T − 1 pairwise scores per sequence, or 1 if all positions share them.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import (
    numbers,
    over_batch,
    reference_vjp,
    rescaled_chain,
    rescaled_covariances,
    scratch,
    sequences,
)
from phrasemodels.structs.kernels.simd import COMPILE, LANES


@njit(**COMPILE)
def open_block(w, block, again, order, unary, pairwise, lengths):
    """Copy the scores of a block, padded with 0 to its longest sequence, to the workspace w; return its layout.

    again: w holds the pairwise scores of another block, which stay if all sequences share them.
    """
    B, _, C = unary.shape
    P, S = pairwise.shape[:2]
    count = min(LANES, B - block)
    T = lengths[order[block + count - 1]]
    at = sequences.layout(T, C, max(1, min(S, T - 1)))
    for lane in range(LANES):
        b = order[block + min(lane, count - 1)]
        n = lengths[b] if lane < count else 0
        w[at.lengths + lane] = n
        for t in range(T):
            for c in range(C):
                w[at.unary + (t * C + c) * 2 * LANES + lane] = unary[b, t, c] if t < n else 0.0
        if P > 1 or S > 1 or not again:
            for t in range(at.S):
                for j in range(C):
                    for k in range(C):
                        x = pairwise[b if P > 1 else 0, t, j, k] if S == 1 or t + 1 < n else 0.0
                        w[at.pairwise + ((t * C + j) * C + k) * 2 * LANES + lane] = x
    sequences.exponentials(w, at.unary, at.a)
    if P > 1 or S > 1 or not again:
        sequences.exponentials(w, at.pairwise, at.pair_grads)
    return at


@njit(**COMPILE)
def close_block(w, block, order, x, T, C, out):
    """Copy x (T, C) from the workspace to the rows of the block in out (B, T, C), with 0 in the padding."""
    for lane in range(min(LANES, len(out) - block)):
        b = order[block + lane]
        for t in range(out.shape[1]):
            for c in range(C):
                out[b, t, c] = w[x + (t * C + c) * LANES + lane] if t < T else 0.0


@njit(**COMPILE)
def _marginals(first, step, work, order, unary, pairwise, lengths, log_z, out):
    """Compute log Z (B,), and marginals (B, T, C) unless `out` is empty."""
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = open_block(w, block, block > first * LANES, order, unary, pairwise, lengths)
        sequences.forward(w, at, z, False)
        for lane in range(min(LANES, len(order) - block)):
            log_z[order[block + lane]] = z[lane]
        if out.size > 0:
            sequences.marginals(w, at)
            close_block(w, block, order, at.p, at.T, at.C, out)


@njit(**COMPILE)
def _covariance(first, step, work, order, unary, pairwise, lengths, grad, centre, out, pairs_out):
    """Compute the gradients to unary (B, T, C) and to pairwise: (B, S, C · C), or their sums per block (blocks, S, C · C).

    grad (B, T, C): the gradient to the marginals; or, without `centre`, a factor of the marginals.
    """
    w, z, B = work[first], np.empty(LANES), len(order)
    for block in range(first * LANES, B, step * LANES):
        at = open_block(w, block, block > first * LANES, order, unary, pairwise, lengths)
        T, C = at.T, at.C
        for lane in range(LANES):
            b = order[min(block + lane, B - 1)]
            n = w[at.lengths + lane]
            for t in range(T):
                for c in range(C):
                    w[at.g + (t * C + c) * LANES + lane] = grad[b, t, c] if t < n else 0.0
        for i in range(at.pair_grads, at.unary):
            w[i] = 0.0
        sequences.forward(w, at, z, centre)
        if not centre:
            for i in range(T * C * LANES):
                w[at.e + i], w[at.g + i] = w[at.g + i], 0.0
        sequences.covariance(w, at, centre)
        close_block(w, block, order, at.e, T, C, out)
        if len(pairs_out) == B:
            close_block(w, block, order, at.pair_grads, min(at.S, T - 1), C * C, pairs_out)
        else:
            for i in range(C * C):
                total = 0.0
                for lane in range(LANES):
                    total += w[at.pair_grads + i * LANES + lane]
                pairs_out[block // LANES, 0, i] = total


class Batch:
    """Scores in the form that the kernels take."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Tensor):
        self.B, self.T, self.C = unary.shape
        self.shared = pairwise.dim() == 2
        self.dtype = unary.dtype
        pairs = pairwise[None, None] if self.shared else pairwise
        self.scores = numbers(unary), numbers(pairs), lengths.numpy()
        # sorted by length, because a block takes as many steps as its longest sequence
        self.order = np.argsort(self.scores[2], kind="stable")
        self.blocks = -(-self.B // LANES)
        self.narrow = rescaled_chain.applies(*self.scores[:2])
        self.unknown = None if self.narrow else self._unknown()

    def _unknown(self) -> np.ndarray | None:
        """Return the positions (B, T) of sequences with a score that is NaN or +inf, for which kernels give finite numbers;
        None if there are none."""
        unary, pairwise, lengths = self.scores
        if unary.max() < np.inf and pairwise.max() < np.inf:  # false if a score is NaN
            return None
        inside = np.arange(self.T) < lengths[:, None]
        known = (unary < np.inf).all(2) | ~inside
        pairs = (pairwise < np.inf).all((2, 3)) | ~inside[:, 1:]
        return inside & ~(known.all(1, keepdims=True) & pairs.all(1, keepdims=True))

    def run(self, kernel, *arguments, more: int = 0):
        """Run a kernel over the blocks, with `more` lanes of workspace behind the layout."""
        T, C, S = self.T, self.C, self.scores[1].shape[1]
        work = scratch(self.blocks, sequences.layout(T, C, S).size + more * LANES)
        over_batch(kernel, self.blocks, work, self.order, *self.scores, *arguments)

    def empty(self, *shape: int) -> np.ndarray:
        """Return an array of the scores' type."""
        return np.empty(shape, self.scores[0].dtype)

    def marginals(self, wanted: bool = True) -> tuple[Tensor, Tensor]:
        """Return log Z (B,) and marginals (B, T, C), which are empty unless `wanted`."""
        if self.narrow:
            log_z, out, _ = rescaled_chain.marginals(self.scores, self.shared, np.ones(self.B), wanted, False)
            return torch.from_numpy(log_z).to(self.dtype), torch.from_numpy(out)
        log_z, out = np.empty(self.B), self.empty(*((self.B, self.T, self.C) if wanted else (0, 0, 0)))
        self.run(_marginals, log_z, out)
        if self.unknown is not None:
            log_z[self.unknown[:, 0]] = np.nan
            out[self.unknown if wanted else ()] = np.nan
        return torch.from_numpy(log_z).to(self.dtype), torch.from_numpy(out)

    def gradients(self, grad: Tensor, centre: bool) -> tuple[Tensor, Tensor]:
        """Return the gradients to unary and pairwise; grad and centre as in `_covariance`."""
        if self.narrow:
            if centre:
                out, pairs = rescaled_covariances.covariances(self.scores, self.shared, numbers(grad))
            else:
                scale = grad[:, 0, 0].double().numpy()
                _, out, pairs = rescaled_chain.marginals(self.scores, self.shared, scale, True, True)
            return torch.from_numpy(out), torch.from_numpy(pairs).to(self.dtype)
        S = self.scores[1].shape[1]
        out = self.empty(self.B, self.T, self.C)
        pairs = np.empty((self.blocks if self.shared else self.B, S, self.C**2))  # float64, as blocks are summed
        self.run(_covariance, numbers(grad), centre, out, pairs)
        pairs = pairs.sum(0) if self.shared else pairs
        if self.unknown is not None:
            out[self.unknown] = np.nan
            following = self.unknown[:, 1:]
            pairs[following.any() if self.shared else following] = np.nan
        shape = self.scores[1].shape[-2:] if self.shared else self.scores[1].shape
        return torch.from_numpy(out), torch.from_numpy(pairs.reshape(shape)).to(self.dtype)


def pair_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """Return p(z_t = c, z_t+1 = d), (B, T-1, C, C)."""
    B, T, C = unary.shape
    each = pairwise.expand(B, T - 1, C, C)
    return Batch(unary, each, lengths).gradients(unary.new_ones(B, T, C), centre=False)[1]


class LogPartition(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → log Z."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference, ctx.lengths = reference, lengths
        ctx.save_for_backward(unary, pairwise)
        return Batch(unary, pairwise, lengths).marginals(wanted=False)[0]

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        unary, pairwise = ctx.saved_tensors
        factor = grad[:, None, None].expand(unary.shape)
        return None, *Batch(unary, pairwise, ctx.lengths).gradients(factor, centre=False), None


class Marginals(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → p(z_t = c)."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference, ctx.lengths = reference, lengths
        ctx.save_for_backward(unary, pairwise)
        return Batch(unary, pairwise, lengths).marginals()[1]

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        return None, *Batch(*ctx.saved_tensors, ctx.lengths).gradients(grad, centre=True), None


class PairMarginals(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → p(z_t = c, z_t+1 = d); the reference computes its derivatives."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference = reference
        ctx.save_for_backward(unary, pairwise)
        return pair_marginals(unary, pairwise, lengths)

    @staticmethod
    def backward(ctx, grad):
        return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
