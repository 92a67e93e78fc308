# mypy: disallow-untyped-defs=False
"""Linear chains whose scores spread little, on the CPU: forward-backward over single sequences, with vectors of tags.

Weights are plain numbers, and each forward row is divided by its sum c_t (Rabiner 1989). With w = exp pairwise and x = exp unary,
both up to factors whose logarithms are added to log Z,

    f_t(k) = x_t(k) Σ_j f_t-1(j) w_t-1(j, k) / c_t             y_t(k) = x_t(k) b_t(k) / c_t
    b_t-1(j) = Σ_k w_t-1(j, k) y_t(k),  b of the last is 1     log Z = Σ_t log c_t
    p(z_t = k) = f_t(k) b_t(k)                                 p(z_t-1 = j, z_t = k) = f_t-1(j) w_t-1(j, k) y_t(k)

Two numbers of a row of f or b differ by a factor of exp(range of unary + range of pairwise scores) at most, however long a
sequence is. Where that is ≤ exp WIDEST, nothing overflows or vanishes, and all is exact up to the rounding of float64; the
kernels of `sequences` are for the rest. The batch decides, with its padding; the two agree to the last digits.

Shapes: B sequences, T positions, C tags; S pairwise scores of each of P sequences, or 1. Rows have `width` places, C rounded up to
vectors; `stride` is from the w of one position to that of the next, 0 if all share it.
"""

import numpy as np
from numba import njit

from phrasemodels.structs.kernels import over_batch
from phrasemodels.structs.kernels.scaled import exponential, ratio
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, LANES, added, load, number, spread, store

WIDEST = 200.0


@njit(**INLINE)
def _exponentials(scores, rows, C, width, to):
    """Write exp(score − top), with the top of each row, of scores (rows, C) to `to` (rows, width), and 0 behind them; return the sum
    of the tops."""
    tops = 0.0
    for row in range(rows):
        top = number(scores, row * C)
        for c in range(1, C):
            top = max(top, number(scores, row * C + c))
        tops += top
        for c in range(C):
            to[row * width + c] = np.float64(number(scores, row * C + c)) - top
        for c in range(C, width):
            to[row * width + c] = -np.inf
    for at in range(0, rows * width, LANES):
        m, e = exponential(load(to, at))
        store(to, at, m * ratio(e))
    return tops


@njit(**INLINE)
def product(x, at, matrix, begin, C, width, out, to):
    """Write Σ_j x(j) matrix(j, ·) to `width` places of `out` from `to` on: x (C,) from `at` on, matrix (C, width) from `begin` on."""
    for k in range(0, width, LANES):
        one, other = spread(0.0), spread(0.0)
        for j in range(0, C - 1, 2):
            one += load(matrix, begin + j * width + k) * number(x, at + j)
            other += load(matrix, begin + (j + 1) * width + k) * number(x, at + j + 1)
        if C % 2:
            one += load(matrix, begin + (C - 1) * width + k) * number(x, at + C - 1)
        store(out, to + k, one + other)


@njit(**COMPILE)
def weights(pairwise, C, width, w, turned):
    """Write exp(pairwise − top), with the top of each position, of pairwise scores (S, C, C) to w and, with tags exchanged, to
    `turned`; return the sum of the tops."""
    tops = 0.0
    for s in range(len(pairwise)):
        top = pairwise[s].max()
        tops += top
        for j in range(C):
            for k in range(width):
                w[(s * C + j) * width + k] = np.float64(pairwise[s, j, k]) - top if k < C else -np.inf
    for at in range(0, len(pairwise) * C * width, LANES):
        m, e = exponential(load(w, at))
        store(w, at, m * ratio(e))
    for s in range(len(pairwise)):
        for k in range(C):
            for j in range(width):
                turned[(s * C + k) * width + j] = w[(s * C + j) * width + k] if j < C else 0.0
    return tops


@njit(**COMPILE)
def forward(unary, n, stride, C, width, w, x, f, c):
    """Compute x and f (T, width) and c (T,) of a sequence of n positions; return log Z without the tops of pairwise scores."""
    z, factor = _exponentials(unary, n, C, width, x), 1.0
    for t in range(n):
        row = t * width
        if t > 0:
            product(f, row - width, w, (t - 1) * stride, C, width, f, row)
        total = spread(0.0)
        for k in range(row, row + width, LANES):
            each = load(x, k) * load(f, k) if t > 0 else load(x, k)
            total += each
            store(f, k, each)
        c[t] = added(total)
        share = 1.0 / c[t]
        for k in range(row, row + width, LANES):
            store(f, k, load(f, k) * share)
        factor *= c[t]
        if not 1e-100 < factor < 1e100:  # one logarithm for many positions; c is above exp(−2 WIDEST), 1e-174
            z, factor = z + np.log(factor), 1.0
    return z + np.log(factor)


@njit(**COMPILE)
def _pairs(t, stride, C, width, w, x, f, scale, shared, pairs):
    """Add scale · p(z_t-1 = j, z_t = k) at [t-1, j, k] of pairs (T-1, C, C); or scale · f_t-1(j) y_t(k), with y in place of x, at
    [j, k] of pairs (C, width) if all positions share the scores."""
    row = t * width
    for j in range(C):
        share = scale * f[row - width + j]
        if shared:
            for k in range(0, width, LANES):
                at = j * width + k
                store(pairs, at, load(pairs, at) + load(x, row + k) * share)
        else:
            before = (t - 1) * stride + j * width
            for k in range(C):
                pairs[((t - 1) * C + j) * C + k] = share * w[before + k] * x[row + k]


@njit(**COMPILE)
def _backward(n, stride, C, width, w, turned, x, f, c, scale, shared, out, pairs):
    """Write scale · p(z_t = k) to out (T, C), and see `_pairs` unless pairs is empty. y takes the place of x, p that of f."""
    last, b = (n - 1) * width, np.empty(width)
    for k in range(last, last + width, LANES):
        store(x, k, load(x, k) / c[n - 1])
    for t in range(n - 1, 0, -1):
        if pairs.size > 0:
            _pairs(t, stride, C, width, w, x, f, scale, shared, pairs)
        product(x, t * width, turned, (t - 1) * stride, C, width, b, 0)
        row, share = (t - 1) * width, 1.0 / c[t - 1]
        for j in range(0, width, LANES):
            each = load(b, j)
            store(x, row + j, load(x, row + j) * each * share)
            store(f, row + j, load(f, row + j) * each)
    for t in range(n):
        for k in range(C):
            out[t, k] = scale * f[t * width + k]


@njit(**COMPILE)
def _run(first, step, unary, pairwise, shared, lengths, scale, log_z, out, pairs):
    """Compute log Z (B,), and unless `out` (B, T, C) is empty, which was 0 before, the marginals times `scale` (B,); and unless it
    is empty, pairs, one row for each of the B sequences, or for each block of LANES if all share their scores: see `_pairs`."""
    B, T, C = unary.shape
    S, width = max(1, pairwise.shape[1]), -(-C // LANES) * LANES
    stride = C * width if S > 1 else 0
    x, f, c = np.empty(T * width), np.empty(T * width), np.empty(T)
    w, turned = np.empty(S * C * width), np.empty(S * C * width)
    tops, none = 0.0, np.empty(0)
    for block in range(first * LANES, B, step * LANES):
        for b in range(block, min(block + LANES, B)):
            n = lengths[b]
            if not shared:
                tops = weights(pairwise[b, : n - 1], C, width, w, turned)
            elif b == first * LANES:
                tops = weights(pairwise[0], C, width, w, turned)
            log_z[b] = forward(unary[b], n, stride, C, width, w, x, f, c) + tops * (n - 1 if shared else 1)
            if out.size > 0:
                row = block // LANES if shared else b
                own = pairs[row] if pairs.size > 0 else none
                _backward(n, stride, C, width, w, turned, x, f, c, scale[b], shared, out[b], own)


def applies(unary: np.ndarray, pairwise: np.ndarray) -> bool:
    """Return whether the kernels take these scores and are faster than those of `sequences`, whose vectors are of sequences in place
    of tags: unary (B, T, C), pairwise (P, S, C, C)."""
    if unary.shape[2] < LANES < 2 * len(unary):
        return False
    ranges = sum(float(x.max()) - float(x.min()) for x in (unary, pairwise) if x.size)
    return ranges <= WIDEST  # false if a score is NaN or infinite


def marginals(
    scores: tuple[np.ndarray, np.ndarray, np.ndarray], shared: bool, scale: np.ndarray, wanted: bool, paired: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log Z (B,), float64; the marginals (B, T, C) times scale (B,), in the type of the scores, if they are wanted; and those
    of pairs in float64 if `paired`, too: (C, C), summed over all, if they share their scores, else (B, T-1, C, C).

    scores: unary (B, T, C), pairwise (P, S, C, C) and lengths (B,).
    """
    unary, pairwise, lengths = scores
    B, T, C = unary.shape
    width, blocks = -(-C // LANES) * LANES, -(-B // LANES)
    out = np.zeros((B, T, C) if wanted else (0, 0, 0), unary.dtype)
    shape = (blocks, C * width) if shared else (B, (T - 1) * C * C)
    log_z, pairs = np.empty(B), np.zeros(shape if paired else (0, 0))
    over_batch(_run, blocks, unary, pairwise, shared, lengths, scale, log_z, out, pairs)
    return log_z, out, pairs_of(pairs, scores, shared) if paired else pairs


def pairs_of(pairs: np.ndarray, scores: tuple[np.ndarray, np.ndarray, np.ndarray], shared: bool) -> np.ndarray:
    """Return what `_pairs` computed, (C, C) or (B, T-1, C, C)."""
    unary, pairwise, _ = scores
    B, T, C = unary.shape
    if not shared:
        return pairs.reshape(B, T - 1, C, C)
    weights = np.exp(pairwise[0, 0].astype(np.float64) - pairwise.max())
    return pairs.sum(0).reshape(C, -1)[:, :C] * weights
