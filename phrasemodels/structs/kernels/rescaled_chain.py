# mypy: disallow-untyped-defs=False
"""Linear chains whose scores spread little, on the CPU: forward-backward over single sequences, with vectors of tags.

Weights are plain numbers, and each forward row is divided by its sum c_t (Rabiner 1989). With w = exp pairwise and x = exp unary,
both up to factors whose logarithms are added to log Z,

    f_t(k) = x_t(k) Σ_j f_t-1(j) w_t-1(j, k) / c_t             y_t(k) = x_t(k) b_t(k) / c_t
    b_t-1(j) = Σ_k w_t-1(j, k) y_t(k),  b of the last is 1     log Z = Σ_t log c_t
    p(z_t = k) = f_t(k) b_t(k)                                 p(z_t-1 = j, z_t = k) = f_t-1(j) w_t-1(j, k) y_t(k)

Two numbers of a row of f or b differ by a factor of exp(range of unary + range of pairwise scores) at most, however long a
sequence is. Where that is ≤ exp WIDEST, nothing overflows or vanishes, and all is exact up to the rounding of float64; the
kernels of `sequences` are for the rest. Shapes: B sequences, T positions, C tags; S pairwise scores of each of P sequences, or 1.
"""

import numpy as np
from numba import njit

from phrasemodels.structs.kernels import over_batch
from phrasemodels.structs.kernels.scaled import exponential, ratio
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, LANES, added, load, number, spread, store

WIDEST = 200.0


@njit(**INLINE)
def _exponentials(scores, begin, C, top, to, at, width):
    """Write exp(score − top) of C scores from `begin` on to to[at], and 0 behind them up to `width`."""
    for c in range(C):
        to[at + c] = np.float64(number(scores, begin + c)) - top
    for c in range(C, width):
        to[at + c] = -np.inf
    for c in range(at, at + width, LANES):
        m, e = exponential(load(to, c))
        store(to, c, m * ratio(e))


@njit(**INLINE)
def _product(x, at, matrix, begin, C, width, k):
    """Return the vector of tags k.. of Σ_j x(j) matrix(j, ·): x (C,) from `at` on, matrix (C, width) from `begin` on."""
    one, other = spread(0.0), spread(0.0)
    for j in range(0, C - 1, 2):
        one += load(matrix, begin + j * width + k) * number(x, at + j)
        other += load(matrix, begin + (j + 1) * width + k) * number(x, at + j + 1)
    if C % 2:
        one += load(matrix, begin + (C - 1) * width + k) * number(x, at + C - 1)
    return one + other


@njit(**COMPILE)
def _weights(pairwise, C, width, w, turned):
    """Write exp(pairwise − top) of pairwise scores (S, C, C) to w and, with tags exchanged, to `turned`; return the sum of the tops."""
    tops = 0.0
    for s in range(len(pairwise)):
        top = pairwise[s].max()
        tops += top
        for j in range(C):
            row = (s * C + j) * width
            _exponentials(pairwise, (s * C + j) * C, C, top, w, row, width)
            for k in range(C):
                turned[(s * C + k) * width + j] = w[row + k]
            for k in range(C, width):
                turned[(s * C + j) * width + k] = 0.0
    return tops


@njit(**COMPILE)
def _forward(unary, n, S, C, width, w, x, f, c):
    """Compute x and f (T, width) and c (T,) of a sequence of n positions; return log Z without the tops of pairwise scores."""
    z = 0.0
    for t in range(n):
        row, top = t * width, unary[t].max()
        _exponentials(unary, t * C, C, top, x, row, width)
        total, before = spread(0.0), (t - 1) * C * width if S > 1 else 0
        for k in range(0, width, LANES):
            each = load(x, row + k)
            if t > 0:
                each = each * _product(f, row - width, w, before, C, width, k)
            total += each
            store(f, row + k, each)
        c[t] = added(total)
        for k in range(row, row + width, LANES):
            store(f, k, load(f, k) / c[t])
        z += top + np.log(c[t])
    return z


@njit(**COMPILE)
def _pairs(t, S, C, width, w, x, f, scale, shared, pairs):
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
            before = ((t - 1 if S > 1 else 0) * C + j) * width
            for k in range(C):
                pairs[((t - 1) * C + j) * C + k] = share * w[before + k] * x[row + k]


@njit(**COMPILE)
def _backward(n, S, C, width, w, turned, x, f, c, scale, shared, out, pairs):
    """Write scale · p(z_t = k) to out (T, C), and see `_pairs` unless pairs is empty. y takes the place of x, p that of f."""
    last = (n - 1) * width
    for k in range(last, last + width, LANES):
        store(x, k, load(x, k) / c[n - 1])
    for t in range(n - 1, 0, -1):
        if pairs.size > 0:
            _pairs(t, S, C, width, w, x, f, scale, shared, pairs)
        for j in range((t - 1) * width, t * width, LANES):
            b = _product(x, t * width, turned, (t - 1) * C * width if S > 1 else 0, C, width, j - (t - 1) * width)
            store(x, j, load(x, j) * b / c[t - 1])
            store(f, j, load(f, j) * b)
    for t in range(n):
        for k in range(C):
            out[t, k] = scale * f[t * width + k]


@njit(**COMPILE)
def _run(first, step, unary, pairwise, shared, lengths, scale, log_z, out, pairs):
    """Compute log Z (B,), and unless `out` (B, T, C) is empty, which was 0 before, the marginals times `scale` (B,); and unless it
    is empty, pairs, one row for each of the B sequences, or for each block of LANES if all share their scores: see `_pairs`."""
    B, T, C = unary.shape
    S, width = pairwise.shape[1], -(-C // LANES) * LANES
    x, f, c = np.empty(T * width), np.empty(T * width), np.empty(T)
    w, turned = np.empty(max(S, 1) * C * width), np.empty(max(S, 1) * C * width)
    tops, none = 0.0, np.empty(0)
    for block in range(first * LANES, B, step * LANES):
        for b in range(block, min(block + LANES, B)):
            n = lengths[b]
            if not shared:
                tops = _weights(pairwise[b, : n - 1], C, width, w, turned)
            elif b == first * LANES:
                tops = _weights(pairwise[0], C, width, w, turned)
            log_z[b] = _forward(unary[b], n, S, C, width, w, x, f, c) + tops * (n - 1 if shared else 1)
            if out.size > 0:
                row = block // LANES if shared else b
                own = pairs[row] if pairs.size > 0 else none
                _backward(n, S, C, width, w, turned, x, f, c, scale[b], shared, out[b], own)


def applies(unary: np.ndarray, pairwise: np.ndarray) -> bool:
    """Return whether the kernels take these scores and are faster than those of `sequences`, which compute LANES sequences in the
    time of one: unary (B, T, C), pairwise (P, S, C, C)."""
    if 2 * len(unary) > LANES:
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
    if not paired:
        return log_z, out, pairs
    if shared:
        weights = np.exp(pairwise[0, 0].astype(np.float64) - pairwise.max())
        return log_z, out, pairs.sum(0).reshape(C, width)[:, :C] * weights
    return log_z, out, pairs.reshape(B, T - 1, C, C)
