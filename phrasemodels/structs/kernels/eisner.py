# mypy: disallow-untyped-defs=False
"""Projective trees on the CPU: batches in blocks of LANES sentences, as autograd functions.

The backward pass of the marginals repeats the inside pass, a fifth of the work, so that nothing needs to be saved.
Shapes: B sentences, N positions (the root and N − 1 words).
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import numbers, over_batch, possible_scores, reference_vjp, scratch, trees
from phrasemodels.structs.kernels.sequences import exponentials
from phrasemodels.structs.kernels.simd import COMPILE, LANES


@njit(**COMPILE)
def open_block(w, block, order, scores, lengths):
    """Copy the scores of the arcs of a block to the workspace w; return its layout.

    Arcs in the padding get 0; arcs into the root and from a word to itself are forbidden.
    """
    count = min(LANES, len(order) - block)
    N = lengths[order[block + count - 1]] + 1
    at = trees.layout(N)
    arcs = trees.ARC * N * N
    for lane in range(LANES):
        b = order[block + min(lane, count - 1)]
        n = lengths[b] if lane < count else 0
        w[at.lengths + lane] = n
        for h in range(N):
            for m in range(N):
                x = scores[b, h, m] if max(h, m) <= n else 0.0
                w[(arcs + h * N + m) * trees.WEIGHT + lane] = -np.inf if h == m or m == 0 else x
    exponentials(w, arcs * trees.WEIGHT, at.p)
    return at


@njit(**COMPILE)
def _marginals(first, step, work, order, scores, lengths, one_root, log_z, out):
    """Compute log Z (B,), and marginals (B, N, N) unless `out` is empty."""
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = open_block(w, block, order, scores, lengths)
        trees.inside(w, at, one_root, z)
        for lane in range(min(LANES, len(order) - block)):
            log_z[order[block + lane]] = z[lane]
        if out.size > 0:
            trees.marginals(w, at)
            N = at.N
            for lane in range(min(LANES, len(order) - block)):
                p = out[order[block + lane]]
                p[:] = 0.0
                for h in range(N):
                    for m in range(1, N):
                        kind = trees.OPEN_RIGHT if h < m else trees.OPEN_LEFT_T
                        if h != m:
                            p[h, m] = w[at.p + ((kind * N + h) * N + m) * LANES + lane]


@njit(**COMPILE)
def _expect(w, block, order, scores, lengths, one_root, grad, log_z):
    """Compute log Z of a block, and E[G] for the gradient `grad` (B, N, N) to the marginals; return the layout."""
    at = open_block(w, block, order, scores, lengths)
    trees.inside(w, at, one_root, log_z)
    N = at.N
    for lane in range(LANES):
        b = order[min(block + lane, len(order) - 1)]
        n = w[at.lengths + lane]
        for h in range(N):
            for m in range(N):
                w[at.g + (h * N + m) * LANES + lane] = grad[b, h, m] if 0 < m <= n and h <= n else 0.0
    trees.expectations(w, at)
    for lane in range(LANES):
        n = int(w[at.lengths + lane])
        w[at.mean + lane] = w[at.e + n * LANES + lane]
    return at


@njit(**COMPILE)
def _close(w, block, at, order, out):
    """Copy the gradients from the workspace to the rows of the block in out (B, N, N), with 0 in the padding."""
    N = at.N
    for lane in range(min(LANES, len(order) - block)):
        x = out[order[block + lane]]
        x[:] = 0.0
        for h in range(N):
            for m in range(1, N):
                if h != m:
                    x[h, m] = w[at.g + (h * N + m) * LANES + lane]


@njit(**COMPILE)
def _covariance(first, step, work, order, scores, lengths, one_root, grad, out):
    """Compute the gradient (B, N, N) to the scores from the gradient `grad` (B, N, N) to the marginals."""
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = _expect(w, block, order, scores, lengths, one_root, grad, z)
        trees.covariance(w, at)
        _close(w, block, at, order, out)


@njit(**COMPILE)
def _entropy(first, step, work, order, scores, lengths, one_root, finite, entropy, out):
    """Compute the entropy (B,), log Z − E[score]; and Cov[score, arc] (B, N, N) unless `out` is empty.

    finite (B, N, N): the scores with 0 for forbidden arcs.
    """
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = _expect(w, block, order, scores, lengths, one_root, finite, z)
        for lane in range(min(LANES, len(order) - block)):
            # the difference of almost equal numbers may be below 0; all trees are forbidden if log Z is -inf
            entropy[order[block + lane]] = max(z[lane] - w[at.mean + lane], 0.0)
        if out.size > 0:
            trees.covariance(w, at)
            _close(w, block, at, order, out)


class Batch:
    """Scores in the form that the kernels take."""

    def __init__(self, arcs: Tensor, lengths: Tensor, one_root: bool):
        self.shape, self.dtype = arcs.shape, arcs.dtype
        self.scores = numbers(arcs)
        words = lengths.numpy()
        # sorted by length, because a block takes as many steps as its longest sentence
        self.arguments = np.argsort(words, kind="stable"), self.scores, words, one_root
        self.unknown = self._unknown(words)

    def _unknown(self, words: np.ndarray) -> np.ndarray | None:
        """Return the arcs (B, N, N) of sentences with a score that is NaN or +inf, for which kernels give finite numbers;
        None if there are none."""
        if self.scores.max() < np.inf:  # false if a score is NaN
            return None
        N = self.shape[1]
        word = np.arange(N) <= words[:, None]
        read = word[:, :, None] & word[:, None] & (np.arange(N) > 0) & ~np.eye(N, dtype=bool)
        return read & (read & ~(self.scores < np.inf)).any((1, 2), keepdims=True)

    def run(self, kernel, *arguments):
        B, N, _ = self.shape
        blocks = -(-B // LANES)
        over_batch(kernel, blocks, scratch(blocks, trees.layout(N).size), *self.arguments, *arguments)

    def marginals(self, wanted: bool = True) -> tuple[Tensor, Tensor]:
        """Return log Z (B,) and marginals (B, N, N), which are empty unless `wanted`."""
        log_z, out = np.empty(self.shape[0]), np.empty(self.shape if wanted else (0, 0, 0), self.scores.dtype)
        self.run(_marginals, log_z, out)
        if self.unknown is not None:
            log_z[self.unknown.any((1, 2))] = np.nan
            out[self.unknown if wanted else ()] = np.nan
        return torch.from_numpy(log_z).to(self.dtype), torch.from_numpy(out)

    def entropy(self, wanted: bool) -> tuple[Tensor, Tensor]:
        """Return the entropy (B,) and Cov[score, arc] (B, N, N), which is empty unless `wanted`."""
        entropy, out = np.empty(self.shape[0]), np.empty(self.shape if wanted else (0, 0, 0), self.scores.dtype)
        self.run(_entropy, numbers(possible_scores(torch.from_numpy(self.scores))), entropy, out)
        if self.unknown is not None:
            entropy[self.unknown.any((1, 2))] = np.nan
            out[self.unknown if wanted else ()] = np.nan
        return torch.from_numpy(entropy).to(self.dtype), torch.from_numpy(out)

    def covariance(self, grad: Tensor) -> Tensor:
        """Return the gradient to the scores from the gradient to the marginals, both (B, N, N)."""
        out = np.empty(self.shape, self.scores.dtype)
        self.run(_covariance, numbers(grad), out)
        if self.unknown is not None:
            out[self.unknown] = np.nan
        return torch.from_numpy(out)


class LogPartition(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → log Z."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        ctx.reference, ctx.settings = reference, (lengths, one_root)
        ctx.save_for_backward(arcs)
        return Batch(arcs, lengths, one_root).marginals(wanted=False)[0]

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
        p = Batch(*ctx.saved_tensors, *ctx.settings).marginals()[1]
        return None, p * grad[:, None, None], None, None


class Marginals(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → p(arc)."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        ctx.reference, ctx.settings = reference, (lengths, one_root)
        ctx.save_for_backward(arcs)
        return Batch(arcs, lengths, one_root).marginals()[1]

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
        return None, Batch(*ctx.saved_tensors, *ctx.settings).covariance(grad), None, None


class Entropy(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → entropy. The gradient is −Cov[score, arc], which is computed
    with it, as they share most of the work."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        ctx.reference = reference
        entropy, ctx.covariance = Batch(arcs, lengths, one_root).entropy(ctx.needs_input_grad[1])
        ctx.save_for_backward(arcs)
        return entropy

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
        return None, -grad[:, None, None] * ctx.covariance, None, None
