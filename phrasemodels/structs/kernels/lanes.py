# mypy: disallow-untyped-defs=False
"""Recursions over linear chains with shared pairwise scores, LANES sequences at a time.

Arrays are (T, C, LANES), and every inner loop runs over lanes, so it vectorises for any number of states.

A log-space step log Σ_j exp(α_j + A_jk) costs C exponentials instead of C², by a product:

    s_k = Σ_j a_j E_jk,    a_j = exp(α_j − max α),    E_jk = exp(A_jk − max_j A_jk)

Why that is safe for any scores: every factor lies in [0, 1], and `exp64` makes those under 2^-1021 into 0. So each
of the C products loses at most 2^-1021 < 1e-307, and s_k at most C · 1e-307 besides rounding. Where s_k ≥ TINY = 1e-250
the relative loss is below C · 1e-57. Where s_k < TINY the cell is computed anew from logarithms alone, and s_k = 0
marks it for the later passes. No path depends on what scores usually are.

All later passes use only q_t(j | k) = a_t(j) E_jk / s_t+1(k), the posterior of a state given the next one:

    marginals      p_t(j) = Σ_k p_t+1(k) q_t(j | k)
    up to t        e_t(k) = g_t(k) + Σ_j q_t-1(j | k) e_t-1(j)             = E[Σ_{v ≤ t} g_v(z_v) | z_t = k]
    after t        d_t(j) = Σ_k q_t(j | k) (d_t+1(k) + p_t+1(k) g_t+1(k))  = p_t(j) E[Σ_{v > t} g_v(z_v) | z_t = j]

With g the gradient to the marginals and G = Σ_t g_t(z_t), backpropagation is a covariance: the gradient to unary_t(c)
is p_t(c) (E[G | z_t = c] − E[G]) = p_t(c) (e_t(c) − E[G]) + d_t(c). These are convex combinations: nothing overflows.
A marked cell with p < NEGLIGIBLE counts as never taken, which changes p by less than 1e-60 · C · T.
"""

import numpy as np
from numba import njit

from phrasemodels.structs.kernels.vector import COMPILE, exp64, log64

LANES = 16  # float64: 4 vectors, enough to hide the cost of a loop, few enough that a step stays in the L1 cache
TINY = 1e-250
NEGLIGIBLE = 1e-60
LOG_NEGLIGIBLE = -140.0
STEPS = 16  # what `pairs` keeps in cache; even


@njit(**COMPILE)
def scaled(rows):
    """max over each row, 0 where -inf, and exp(rows − max)."""
    C = len(rows)
    scale, E = np.zeros(C), np.empty((C, C))
    for j in range(C):
        top = rows[j].max()
        scale[j] = 0.0 if top == -np.inf else top
        for k in range(C):
            E[j, k] = exp64(rows[j, k] - scale[j])
    return scale, E


@njit(**COMPILE)
def _mix(weights, x, t, out, v):
    """out[v, k] = Σ_j weights[k, j] x[t, j], for every lane."""
    C = x.shape[1]
    for k in range(C):
        target, row = out[v, k], weights[k]
        w0, x0 = row[0], x[t, 0]
        for lane in range(LANES):
            target[lane] = w0 * x0[lane]
        j = 1
        while j + 4 <= C:
            w0, w1, w2, w3 = row[j], row[j + 1], row[j + 2], row[j + 3]
            x0, x1, x2, x3 = x[t, j], x[t, j + 1], x[t, j + 2], x[t, j + 3]
            for lane in range(LANES):
                target[lane] += (w0 * x0[lane] + w1 * x1[lane]) + (w2 * x2[lane] + w3 * x3[lane])
            j += 4
        while j < C:
            w0, x0 = row[j], x[t, j]
            for lane in range(LANES):
                target[lane] += w0 * x0[lane]
            j += 1


@njit(**COMPILE)
def _exact(alpha, t, lane, column):
    """logsumexp_j alpha[t, j, lane] + column[j]."""
    top = -np.inf
    for j in range(len(column)):
        top = max(top, alpha[t, j, lane] + column[j])
    if top == -np.inf:
        return -np.inf
    total = 0.0
    for j in range(len(column)):
        x = alpha[t, j, lane] + column[j] - top
        if x > -50.0:  # the rest together are less than C · 2e-22 of the sum
            total += np.exp(x)
    return top + np.log(total)


@njit(**COMPILE)
def _posterior(alpha, t, lane, column, j, log_s):
    """q_t(j | k) of a marked cell, 0 where it is negligible."""
    x = alpha[t, j, lane] + column[j] - log_s
    return np.exp(x) if x > LOG_NEGLIGIBLE else 0.0


@njit(**COMPILE)
def _repair(alpha, t, column, s, out, first, second):
    """out = logsumexp_j alpha[t, j] + column[j] in the lanes where s < TINY, which are marked."""
    first[:], second[:] = -np.inf, -np.inf
    for j in range(len(column)):
        row, add = alpha[t, j], column[j]
        for lane in range(LANES):
            x = row[lane] + add
            less = x if x < first[lane] else first[lane]
            second[lane] = less if less > second[lane] else second[lane]
            first[lane] = x if x > first[lane] else first[lane]
    for lane in range(LANES):
        if s[lane] < TINY:
            s[lane] = 0.0
            far = first[lane] - second[lane] > 50.0 or first[lane] == -np.inf
            out[lane] = first[lane] if far else _exact(alpha, t, lane, column)


@njit(**COMPILE)
def forward(u, A, alpha, a, s, lengths, log_z):
    """α up to a constant for each t, a = exp α with maximum 1, s as above, log Z."""
    T, C, _ = u.shape
    rows, offset = np.empty((3, LANES)), np.zeros(LANES)
    top = rows[0]
    columns = A.T.copy()
    scale, E = scaled(columns)
    for t in range(T):
        if t > 0:
            _mix(E, a, t - 1, s, t)
            _log_step(u, t, scale, columns, alpha, s, rows)
        else:
            alpha[0, :] = u[0, :]
            top[:] = -np.inf
            for c in range(C):
                for lane in range(LANES):
                    top[lane] = max(top[lane], u[0, c, lane])
        for lane in range(LANES):
            top[lane] = 0.0 if top[lane] == -np.inf else top[lane]
            offset[lane] += top[lane]
        for c in range(C):
            row, target = alpha[t, c], a[t, c]
            for lane in range(LANES):
                x = row[lane] - top[lane]
                row[lane] = x
                target[lane] = exp64(x)
        for lane in range(LANES):
            if lengths[lane] == t + 1:
                log_z[lane] = offset[lane] + np.log(a[t, :, lane].sum())


@njit(**COMPILE)
def _log_step(u, t, scale, columns, alpha, s, rows):
    """α_t(k) = log s_k + scale_k + u_t(k), its maximum over k in rows[0]."""
    top, first, second = rows[0], rows[1], rows[2]
    top[:] = -np.inf
    for k in range(u.shape[1]):
        row, target, unary, low, add = s[t, k], alpha[t, k], u[t, k], 0, scale[k]
        for lane in range(LANES):
            low += row[lane] < TINY
            target[lane] = log64(row[lane]) + add
        if low > 0:
            _repair(alpha, t - 1, columns[k], row, target, first, second)
        for lane in range(LANES):
            x = target[lane] + unary[lane]
            target[lane] = x
            top[lane] = x if x > top[lane] else top[lane]


@njit(**COMPILE)
def marginals(alpha, a, s, A, lengths, p, r):
    """p as above, and r = p / s, 0 in marked cells; both are 0 in the padding and where log Z is -inf."""
    T, C, _ = p.shape
    columns = A.T.copy()
    weights = scaled(columns)[1].T.copy()
    for t in range(T - 1, -1, -1):
        if t + 1 < T:
            _backward_step(weights, columns, alpha, a, s, p, t, r, p)
        else:
            p[t, :] = 0.0
        for lane in range(LANES):
            if lengths[lane] == t + 1:
                total = a[t, :, lane].sum()
                for c in range(C):
                    p[t, c, lane] = a[t, c, lane] / total if total > 0.0 else 0.0


@njit(**COMPILE)
def _backward_step(weights, columns, alpha, a, s, x, t, r, out):
    """out_t(j) = Σ_k q_t(j | k) x_t+1(k), and r_t+1 = x / s."""
    C = a.shape[1]
    marked = 0
    for k in range(C):
        row, total, target = x[t + 1, k], s[t + 1, k], r[t + 1, k]
        for lane in range(LANES):
            marked += total[lane] == 0.0
            target[lane] = row[lane] / total[lane] if total[lane] > 0.0 else 0.0
    _mix(weights, r, t + 1, out, t)
    for j in range(C):
        row, factor = out[t, j], a[t, j]
        for lane in range(LANES):
            row[lane] *= factor[lane]
    if marked > 0:
        for k in range(C):
            for lane in range(LANES):
                if s[t + 1, k, lane] == 0.0 and abs(x[t + 1, k, lane]) > NEGLIGIBLE:
                    log_s = _exact(alpha, t, lane, columns[k])
                    for j in range(C):
                        q = _posterior(alpha, t, lane, columns[k], j, log_s)
                        out[t, j, lane] += q * x[t + 1, k, lane]


@njit(**COMPILE)
def expectation(alpha, a, s, p, A, g, e):
    """e as above; 0 in marked cells that are never taken."""
    T, C, _ = g.shape
    columns = A.T.copy()
    E = scaled(columns)[1]
    x = np.empty((1, C, LANES))
    e[0, :] = g[0, :]
    for t in range(1, T):
        for j in range(C):
            left, right, row = a[t - 1, j], e[t - 1, j], x[0, j]
            for lane in range(LANES):
                row[lane] = left[lane] * right[lane]
        _mix(E, x, 0, e, t)
        for k in range(C):
            row, total, own, marked = e[t, k], s[t, k], g[t, k], 0
            for lane in range(LANES):
                marked += total[lane] == 0.0
                row[lane] = row[lane] / total[lane] if total[lane] > 0.0 else 0.0
            if marked > 0:
                _repair_mean(alpha, t, columns[k], total, p[t, k], e, row)
            for lane in range(LANES):
                row[lane] += own[lane]


@njit(**COMPILE)
def _repair_mean(alpha, t, column, s, p, e, out):
    for lane in range(LANES):
        if s[lane] == 0.0 and p[lane] > NEGLIGIBLE:
            log_s = _exact(alpha, t - 1, lane, column)
            for j in range(len(column)):
                out[lane] += _posterior(alpha, t - 1, lane, column, j, log_s) * e[t - 1, j, lane]


@njit(**COMPILE)
def covariance(alpha, a, s, p, A, g, e, d, h, grad):
    """d, h = (d + p g) / s with 0 in marked cells, and the gradient to the unary scores; e becomes e − E[G]."""
    T, C, _ = p.shape
    columns = A.T.copy()
    weights = scaled(columns)[1].T.copy()
    mean = np.zeros(LANES)
    d[T - 1, :] = 0.0
    for t in range(T - 1, -1, -1):
        for k in range(C):
            row, mine, own = d[t, k], p[t, k], g[t, k]
            for lane in range(LANES):
                row[lane] += mine[lane] * own[lane]
        if t > 0:
            _backward_step(weights, columns, alpha, a, s, d, t - 1, h, d)
    for c in range(C):
        for lane in range(LANES):
            # d holds p g too, which e counts already
            mean[lane] += p[0, c, lane] * (e[0, c, lane] - g[0, c, lane]) + d[0, c, lane]
    for c in range(C):
        for t in range(T):
            before, after, mine, own, target = e[t, c], d[t, c], p[t, c], g[t, c], grad[t, c]
            for lane in range(LANES):
                before[lane] -= mean[lane]
                target[lane] = mine[lane] * (before[lane] - own[lane]) + after[lane]


@njit(**COMPILE)
def marked_pairs(alpha, s, x, y, A, left, out):
    """out[j, k] += Σ_t q_t(j | k) (left_t(j) x_t+1(k) + y_t+1(k)) over the marked cells."""
    T, C, _ = x.shape
    columns = A.T.copy()
    for t in range(1, T):
        for k in range(C):
            total, marked = s[t, k], 0
            for lane in range(LANES):
                marked += total[lane] == 0.0
            if marked == 0:
                continue
            for lane in range(LANES):
                if total[lane] == 0.0 and abs(x[t, k, lane]) > NEGLIGIBLE:
                    log_s = _exact(alpha, t - 1, lane, columns[k])
                    for j in range(C):
                        q = _posterior(alpha, t - 1, lane, columns[k], j, log_s)
                        out[j, k] += q * (left[t - 1, j, lane] * x[t, k, lane] + y[t, k, lane])


@njit(**COMPILE)
def pairs(a, left, x, y, A, out):
    """out[j, k] += Σ_t q_t(j | k) (left_t(j) x_t+1(k) + y_t+1(k)), with x and y divided by s, so not in marked cells."""
    T, C, _ = a.shape
    E = scaled(A.T.copy())[1].T
    total = np.zeros((C, C, LANES))
    for begin in range(1, T, STEPS):
        for j in range(C):
            for t in range(begin, min(begin + STEPS, T) - 1, 2):
                _add_two_steps(a, left, x, y, t, j, total[j])
    if T % 2 == 0:  # STEPS is even, so only the very last can be left over
        last = a[T - 2].reshape((C, 1, LANES)) * (left[T - 2].reshape((C, 1, LANES)) * x[T - 1] + y[T - 1])
        total += last
    for j in range(C):
        for k in range(C):
            out[j, k] += E[j, k] * total[j, k].sum()


@njit(**COMPILE)
def _add_two_steps(a, left, x, y, t, j, total):
    a0, a1, left0, left1 = a[t - 1, j], a[t, j], left[t - 1, j], left[t, j]
    for k in range(len(total)):
        row, x0, x1, y0, y1 = total[k], x[t, k], x[t + 1, k], y[t, k], y[t + 1, k]
        for lane in range(LANES):
            one = a0[lane] * (left0[lane] * x0[lane] + y0[lane])
            row[lane] += one + a1[lane] * (left1[lane] * x1[lane] + y1[lane])
