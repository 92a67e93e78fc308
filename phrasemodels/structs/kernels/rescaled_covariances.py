# mypy: disallow-untyped-defs=False
"""Gradients to the marginals of `rescaled_chain`, whose symbols and shapes these are.

Gradients to marginals are covariances. With g centred at each position, a = f E[Σ_v≤t g_v | z_t] and r = b E[Σ_v>t g_v | z_t],

    a_t = f_t g_t + x_t / c_t Σ_j a_t-1(j) w_t-1(j, ·)         u_t = x_t / c_t (r_t + b_t g_t),  r_t-1 = Σ_k w_t-1(·, k) u_t(k)
    gradient to unary_t(k): a_t b_t + f_t r_t                  to pairwise_t-1(j, k): w_t-1(j, k) (a_t-1(j) y_t(k) + f_t-1(j) u_t(k))
"""

import numpy as np
from numba import njit

from phrasemodels.structs.kernels import over_batch
from phrasemodels.structs.kernels.rescaled_chain import forward, pairs_of, product, weights
from phrasemodels.structs.kernels.simd import COMPILE, LANES, load, spread, store


@njit(**COMPILE)
def _centre(n, stride, C, width, turned, x, f, c, b, u, grad, a):
    """Write g (T, width) to a: grad (T, C) without its mean at each position, so that Σ_k p g is 0. x becomes x / c; b is filled,
    and u is workspace."""
    for t in range(n - 1, -1, -1):
        row, share, mean = t * width, 1.0 / c[t], 0.0
        for k in range(C):
            x[row + k] *= share
            if t == n - 1:
                b[row + k] = 1.0
            mean += f[row + k] * b[row + k] * grad[t, k]
        for k in range(width):
            a[row + k] = (grad[t, k] - mean) if k < C else 0.0
            u[row + k] = x[row + k] * b[row + k]
        if t > 0:
            product(u, row, turned, (t - 1) * stride, C, width, b, row - width)


@njit(**COMPILE)
def _sums_before(n, stride, C, width, w, x, f, b, a, u, r):
    """Replace g in a by a, and write b g to u; r (width,) is workspace."""
    for t in range(n):
        row = t * width
        if t > 0:
            product(a, row - width, w, (t - 1) * stride, C, width, r, 0)
        for k in range(0, width, LANES):
            g, before = load(a, row + k), load(r, k) * load(x, row + k) if t > 0 else spread(0.0)
            store(u, row + k, load(b, row + k) * g)
            store(a, row + k, load(f, row + k) * g + before)


@njit(**COMPILE)
def _pair_covariances(t, stride, C, width, w, a, y, f, u, shared, pairs):
    """Add the gradients to the pairwise scores between t-1 and t to `pairs`, as `pairs_of` takes them."""
    row = t * width
    for j in range(C):
        one, other = a[row - width + j], f[row - width + j]
        if shared:
            for k in range(0, width, LANES):
                at = j * width + k
                store(pairs, at, load(pairs, at) + load(y, row + k) * one + load(u, row + k) * other)
        else:
            before = (t - 1) * stride + j * width
            for k in range(C):
                pairs[((t - 1) * C + j) * C + k] = w[before + k] * (one * y[row + k] + other * u[row + k])


@njit(**COMPILE)
def _covariance(n, stride, C, width, w, turned, x, f, b, a, u, r, shared, out, pairs):
    """Write Cov[Σ_t g_t(z_t), z_t = k] to out (T, C), and those of pairs to `pairs`, after `_centre` and `_sums_before`. y takes the
    place of b."""
    for k in range(width):
        r[k] = 0.0
    for t in range(n - 1, -1, -1):
        row = t * width
        for k in range(C):
            out[t, k] = a[row + k] * b[row + k] + f[row + k] * r[k]
        for k in range(0, width, LANES):
            share = load(x, row + k)
            store(u, row + k, share * (load(r, k) + load(u, row + k)))
            store(b, row + k, share * load(b, row + k))
        if t > 0:
            _pair_covariances(t, stride, C, width, w, a, b, f, u, shared, pairs)
            product(u, row, turned, (t - 1) * stride, C, width, r, 0)


@njit(**COMPILE)
def _covariances(first, step, unary, pairwise, shared, lengths, grad, out, pairs):
    """Compute the gradients to unary, out (B, T, C), and to pairwise scores: pairs, see `_run`. Both were 0 before."""
    B, T, C = unary.shape
    S, width = max(1, pairwise.shape[1]), -(-C // LANES) * LANES
    stride = C * width if S > 1 else 0
    x, f, a, u = np.empty(T * width), np.empty(T * width), np.empty(T * width), np.empty(T * width)
    b = np.zeros(T * width)
    c, r = np.empty(T), np.empty(width)
    w, turned = np.empty(S * C * width), np.empty(S * C * width)
    for block in range(first * LANES, B, step * LANES):
        for s in range(block, min(block + LANES, B)):
            n = lengths[s]
            if not shared:
                weights(pairwise[s, : n - 1], C, width, w, turned)
            elif s == first * LANES:
                weights(pairwise[0], C, width, w, turned)
            forward(unary[s], n, stride, C, width, w, x, f, c)
            _centre(n, stride, C, width, turned, x, f, c, b, u, grad[s], a)
            _sums_before(n, stride, C, width, w, x, f, b, a, u, r)
            own = pairs[block // LANES if shared else s]
            _covariance(n, stride, C, width, w, turned, x, f, b, a, u, r, shared, out[s], own)


def covariances(
    scores: tuple[np.ndarray, np.ndarray, np.ndarray], shared: bool, grad: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients to the unary scores (B, T, C), in their type, and to the pairwise scores as in `marginals`, with the gradient
    to the marginals grad (B, T, C)."""
    unary, pairwise, lengths = scores
    B, T, C = unary.shape
    width, blocks = -(-C // LANES) * LANES, -(-B // LANES)
    out, pairs = np.zeros_like(unary), np.zeros((blocks, C * width) if shared else (B, (T - 1) * C * C))
    over_batch(_covariances, blocks, unary, pairwise, shared, lengths, grad, out, pairs)
    return out, pairs_of(pairs, scores, shared)
