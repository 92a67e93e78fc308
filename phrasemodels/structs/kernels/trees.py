# mypy: disallow-untyped-defs=False
"""Inside, outside and covariance passes over the projective trees of one sentence.

Positions are 0..N-1 with the root at 0. A chart is (6, N, N) float64: complete right spans (head i) as [i, j] and as
[j, i], complete left spans (head j) likewise, incomplete right spans as [i, j], incomplete left ones as [j, i]. So both
factors of every sum over split points k are contiguous. `q` (3, splits) holds the posterior of each split point given
its cell, for what two complete spans meet in, complete left and complete right spans. All passes but the inside pass
work on q alone: sums of products of probabilities, which cannot overflow.

The inside pass multiplies probabilities where that is safe, and else adds logarithms. Guard and proof:

    Give every word m a distribution over heads, w_hm = exp(θ_hm − logsumexp_h θ_hm). That changes the score of every
    tree by the same constant, hence no posterior. The value of a cell is now a sum over different choices of heads
    for the words it covers (each but its head), of products of their probabilities: a part of a total of 1, so ≤ 1.
    The same holds for the outside value of a cell, which chooses heads for other words. Nothing overflows.
    Let δ = 1e-300. A product that underflows, a cell below δ whose posteriors are set to 0, each removes at most δ
    from a cell, and so at most δ · outside ≤ δ from Z. There are less than 3 N³ products and cells. If the computed
    Z ≥ 1e-280, all removed trees together have probability < 3 N³ δ / Z ≤ 3 N³ · 1e-20: below 1e-11 up to N = 600.

So marginals are within 1e-11 of exact besides rounding, and gradients within 1e-11 of the range of E[G]. From a
standard deviation of about 5 at n = 80 the guard fails, and logarithms take over.
"""

import numpy as np
from numba import njit

from phrasemodels.structs.kernels.vector import COMPILE, exp32, exp64

REDUCE = COMPILE | {"fastmath": {"contract", "reassoc", "nsz"}}
LARGEST = COMPILE | {"fastmath": {"nnan", "nsz"}}

SAFE_Z = 1e-280
SMALLEST = 1e-300
RIGHT, RIGHT_T, LEFT, LEFT_T, OPEN_RIGHT, OPEN_LEFT_T = range(6)


@njit(**COMPILE)
def number_of_splits(N):
    """How many split points all cells of one kind have, N (N² − 1) / 6."""
    return N * (N * N - 1) // 6


@njit(**COMPILE)
def _first_split(N, d):
    return N * d * (d - 1) // 2 - (d - 1) * d * (2 * d - 1) // 6


@njit(**REDUCE)
def _multiply(left, right, products, q):
    total = 0.0
    for k in range(len(q)):
        x = left[k] * right[k]
        products[k] = x
        total += x
    scale = 1.0 / total if total >= SMALLEST else 0.0
    for k in range(len(q)):
        q[k] = products[k] * scale
    return total


@njit(**LARGEST)
def _add(left, right, sums, n):
    top = -np.inf
    for k in range(n):
        x = left[k] + right[k]
        sums[k] = x
        top = x if x > top else top
    return top


@njit(**REDUCE)
def _exponentiate32(sums, top, q):
    total = np.float32(0.0)
    for k in range(len(q)):
        x = exp32(np.float32(sums[k] - top))
        q[k] = x
        total += x
    return np.float64(total)


@njit(**REDUCE)
def _exponentiate64(sums, top, q):
    total = 0.0
    for k in range(len(q)):
        x = exp64(sums[k] - top)
        q[k] = x
        total += x
    return total


@njit(**COMPILE)
def _sum(left, right, sums, q, logs):
    """Σ_k left_k · right_k, or its logarithm from theirs, and the posteriors q."""
    if not logs:
        return _multiply(left, right, sums, q)
    top = _add(left, right, sums, len(q))
    if top == -np.inf:
        q[:] = 0.0
        return top
    total = _exponentiate32(sums, top, q) if q.itemsize == 4 else _exponentiate64(sums, top, q)
    scale = 1.0 / total
    for k in range(len(q)):
        q[k] *= scale
    return top + np.log(total)


@njit(**COMPILE)
def inside(w, one_root, logs, c, q):
    """Fill the chart c and q from arc scores w (logarithms or probabilities); the value of the sentence."""
    N = len(w)
    right, right_t, left, left_t, open_right, open_left_t = c[0], c[1], c[2], c[3], c[4], c[5]
    zero, one = (-np.inf, 0.0) if logs else (0.0, 1.0)
    c[:] = zero
    for i in range(N):
        right[i, i] = right_t[i, i] = left[i, i] = left_t[i, i] = one
    sums, at = np.empty(N), 0
    for d in range(1, N):
        for i in range(N - d):
            j, end = i + d, at + d
            meet = _sum(right[i, i:j], left_t[j, i + 1 : j + 1], sums, q[0, at:end], logs)
            open_right[i, j] = meet + w[i, j] if logs else meet * w[i, j]
            open_left_t[j, i] = meet + w[j, i] if logs else meet * w[j, i]
            left[i, j] = left_t[j, i] = _sum(left[i, i:j], open_left_t[j, i:j], sums, q[1, at:end], logs)
            if one_root and i == 0 and j < N - 1:
                q[2, at:end] = 0.0  # the root's arc must be its only one
            else:
                x = _sum(open_right[i, i + 1 : j + 1], right_t[j, i + 1 : j + 1], sums, q[2, at:end], logs)
                right[i, j] = right_t[j, i] = x
            at = end
    return right[0, N - 1]


@njit(**COMPILE)
def log_partition(theta, one_root, c, q):
    """log Z, and q, from arc scores theta (N, N) whose column 0 and diagonal are -inf."""
    N = len(theta)
    w, constant = np.zeros((N, N)), 0.0
    for m in range(1, N):
        top = theta[:, m].max()
        if top == -np.inf:
            q[:] = 0.0
            return top
        total = 0.0
        for h in range(N):
            w[h, m] = exp64(theta[h, m] - top)
            total += w[h, m]
        constant += top + np.log(total)
        for h in range(N):
            w[h, m] /= total
    z = inside(w, one_root, False, c, q)
    if z >= SAFE_Z:
        return np.log(z) + constant
    return inside(theta, one_root, True, c, q)


@njit(**COMPILE)
def _spread(m, q, left, right):
    for k in range(len(q)):
        x = m * q[k]
        left[k] += x
        right[k] += x


@njit(**COMPILE)
def marginals(q, c, complete, arcs):
    """Marginals of complete spans ([i, j] right, [j, i] left) and of arcs, from the sentence down; c is overwritten."""
    N = len(arcs)
    right, right_t, left, left_t, open_right, open_left_t = c[0], c[1], c[2], c[3], c[4], c[5]
    c[:] = 0.0
    right[0, N - 1] = 1.0
    for d in range(N - 1, 0, -1):
        at = _first_split(N, d)
        for i in range(N - d):
            j, end = i + d, at + d
            m = complete[i, j] = right[i, j] + right_t[j, i]
            if m > 0.0:
                _spread(m, q[2, at:end], open_right[i, i + 1 : j + 1], right_t[j, i + 1 : j + 1])
            m = complete[j, i] = left[i, j] + left_t[j, i]
            if m > 0.0:
                _spread(m, q[1, at:end], left[i, i:j], open_left_t[j, i:j])
            arcs[i, j], arcs[j, i] = open_right[i, j], open_left_t[j, i]
            m = arcs[i, j] + arcs[j, i]
            if m > 0.0:
                _spread(m, q[0, at:end], right[i, i:j], left_t[j, i + 1 : j + 1])
            at = end


@njit(**REDUCE)
def _mean(q, left, right):
    total = 0.0
    for k in range(len(q)):
        total += q[k] * (left[k] + right[k])
    return total


@njit(**COMPILE)
def expectations(q, g, complete, arcs, e):
    """E[Σ g over the arcs inside a cell | the cell], in the layout of a chart; 0 in cells of marginal 0."""
    N = len(g)
    right, right_t, left, left_t, open_right, open_left_t = e[0], e[1], e[2], e[3], e[4], e[5]
    e[:] = 0.0
    at = 0
    for d in range(1, N):
        for i in range(N - d):
            j, end = i + d, at + d
            if arcs[i, j] + arcs[j, i] > 0.0:
                meet = _mean(q[0, at:end], right[i, i:j], left_t[j, i + 1 : j + 1])
                open_right[i, j], open_left_t[j, i] = meet + g[i, j], meet + g[j, i]
            if complete[j, i] > 0.0:
                left[i, j] = left_t[j, i] = _mean(q[1, at:end], left[i, i:j], open_left_t[j, i:j])
            if complete[i, j] > 0.0:
                x = _mean(q[2, at:end], open_right[i, i + 1 : j + 1], right_t[j, i + 1 : j + 1])
                right[i, j] = right_t[j, i] = x
            at = end


@njit(**COMPILE)
def _spread_covariance(m, D, q, e_left, e_right, left, right):
    for k in range(len(q)):
        left[k] += q[k] * (D + m * e_right[k])
        right[k] += q[k] * (D + m * e_left[k])


@njit(**COMPILE)
def covariance(q, g, complete, arcs, e, c, grad):
    """Gradient to the arc scores, p (E[G | arc] − E[G]) with G = Σ g over a tree's arcs.

    The chart c gets p(cell) E[Σ g over the arcs outside a cell | the cell], from the sentence down.
    """
    N = len(g)
    c[:] = 0.0
    mean = e[RIGHT, 0, N - 1]
    for d in range(N - 1, 0, -1):
        at = _first_split(N, d)
        for i in range(N - d):
            j, end = i + d, at + d
            a, b = slice(i, j), slice(i + 1, j + 1)
            if complete[i, j] > 0.0:
                D = c[RIGHT, i, j] + c[RIGHT_T, j, i]
                _spread_covariance(complete[i, j], D, q[2, at:end], e[OPEN_RIGHT, i, b], e[RIGHT_T, j, b],
                                   c[OPEN_RIGHT, i, b], c[RIGHT_T, j, b])  # fmt: skip
            if complete[j, i] > 0.0:
                D = c[LEFT, i, j] + c[LEFT_T, j, i]
                _spread_covariance(complete[j, i], D, q[1, at:end], e[LEFT, i, a], e[OPEN_LEFT_T, j, a],
                                   c[LEFT, i, a], c[OPEN_LEFT_T, j, a])  # fmt: skip
            m, D = arcs[i, j] + arcs[j, i], c[OPEN_RIGHT, i, j] + c[OPEN_LEFT_T, j, i]
            grad[i, j] = c[OPEN_RIGHT, i, j] + arcs[i, j] * (e[OPEN_RIGHT, i, j] - mean)
            grad[j, i] = c[OPEN_LEFT_T, j, i] + arcs[j, i] * (e[OPEN_LEFT_T, j, i] - mean)
            if m > 0.0:
                D += arcs[i, j] * g[i, j] + arcs[j, i] * g[j, i]
                _spread_covariance(m, D, q[0, at:end], e[RIGHT, i, a], e[LEFT_T, j, b],
                                   c[RIGHT, i, a], c[LEFT_T, j, b])  # fmt: skip
            at = end
