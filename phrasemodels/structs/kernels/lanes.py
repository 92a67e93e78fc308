"""Recursions over linear chains with shared pairwise scores, one block of sequences at a time.

Sequences lie side by side in lanes, arrays are (C, T, lanes), and every inner loop runs over lanes, so it vectorises
for any number of states.

A log-space step log Σ_j exp(α_j + A_jk) costs C exponentials instead of C², by a product:

    s_k = Σ_j a_j E_jk,    a_j = exp(α_j − max α),    E_jk = exp(A_jk − max_j A_jk)

Why that is safe for any scores: every factor lies in [0, 1], and `exp64` makes those under 2^-1021 into 0. So each
of the C products loses at most 2^-1021 < 1e-307, and s_k at most C · 1e-307 besides rounding. Where s_k ≥ TINY = 1e-250
the relative loss is below C · 1e-57. Where s_k < TINY the cell is computed anew from logarithms alone, and s_k = 0
marks it for the later passes, which do the same. No path depends on what scores usually are.

Backpropagation through marginals is a covariance: with g the gradient to the marginals and G = Σ_t g_t(z_t),
∂ / ∂unary_t(c) = p_t(c) (E[G | z_t = c] − E[G]). The conditional expectation is a sum of one forward and one backward
recursion of convex combinations, so it neither overflows nor cancels.
"""

import numpy as np
from numba import njit

from phrasemodels.structs.kernels.vector import COMPILE, exp64, log64

TINY = 1e-250


@njit(**COMPILE)
def _mix(weights, x, t, out, v):
    """out[k, v] = Σ_j weights[j, k] x[j, t], for every lane."""
    C, _, L = x.shape
    for k in range(C):
        target = out[k, v]
        target[:] = 0.0
        j = 0
        while j + 4 <= C:
            w0, w1, w2, w3 = weights[j, k], weights[j + 1, k], weights[j + 2, k], weights[j + 3, k]
            x0, x1, x2, x3 = x[j, t], x[j + 1, t], x[j + 2, t], x[j + 3, t]
            for lane in range(L):
                target[lane] += (w0 * x0[lane] + w1 * x1[lane]) + (w2 * x2[lane] + w3 * x3[lane])
            j += 4
        while j < C:
            w0, x0 = weights[j, k], x[j, t]
            for lane in range(L):
                target[lane] += w0 * x0[lane]
            j += 1


@njit(**COMPILE)
def _exact(x, t, lane, column):
    """logsumexp_j x[j, t, lane] + column[j]."""
    top = -np.inf
    for j in range(len(column)):
        top = max(top, x[j, t, lane] + column[j])
    if top == -np.inf:
        return -np.inf
    total = 0.0
    for j in range(len(column)):
        total += np.exp(x[j, t, lane] + column[j] - top)
    return top + np.log(total)


@njit(**COMPILE)
def _exact_mean(x, t, lane, column, y, v):
    """Σ_j q_j y[j, v, lane] with q = softmax_j of x[j, t, lane] + column[j]; 0 where that is impossible."""
    total = _exact(x, t, lane, column)
    mean = 0.0
    if total > -np.inf:
        for j in range(len(column)):
            mean += np.exp(x[j, t, lane] + column[j] - total) * y[j, v, lane]
    return mean


@njit(**COMPILE)
def _log_step(s, t, scale, out, source, source_t, columns):
    """out[k, t] = log s[k, t] + scale[k]; cells with s < TINY from logarithms, and marked by s = 0."""
    C, _, L = s.shape
    for k in range(C):
        row, target, low = s[k, t], out[k, t], 0
        for lane in range(L):
            low += row[lane] < TINY
            target[lane] = log64(row[lane]) + scale[k]
        if low > 0:
            for lane in range(L):
                if row[lane] < TINY:
                    target[lane] = _exact(source, source_t, lane, columns[k])
                    row[lane] = 0.0


@njit(**COMPILE)
def _normalise(x, t, top, out, v):
    """top = max_c x[c, t], 0 where -inf; x[c, t] −= top; out[c, v] = exp(x[c, t])."""
    C, _, L = x.shape
    top[:] = -np.inf
    for c in range(C):
        row = x[c, t]
        for lane in range(L):
            top[lane] = row[lane] if row[lane] > top[lane] else top[lane]
    for lane in range(L):
        top[lane] = 0.0 if top[lane] == -np.inf else top[lane]
    for c in range(C):
        row, target = x[c, t], out[c, v]
        for lane in range(L):
            row[lane] -= top[lane]
            target[lane] = exp64(row[lane])


@njit(**COMPILE)
def forward(u, A, alpha, a, s, lengths, log_z):
    """α up to a constant for each t, a = exp α with maximum 1, s as above, log Z."""
    C, T, L = u.shape
    top, offset = np.empty(L), np.zeros(L)
    columns = A.T.copy()
    scale, E = _scaled(columns)
    E = E.T.copy()
    for t in range(T):
        if t > 0:
            _mix(E, a, t - 1, s, t)
            _log_step(s, t, scale, alpha, alpha, t - 1, columns)
        for c in range(C):
            row, unary = alpha[c, t], u[c, t]
            for lane in range(L):
                row[lane] = unary[lane] + (row[lane] if t > 0 else 0.0)
        _normalise(alpha, t, top, a, t)
        for lane in range(L):
            offset[lane] += top[lane]
            if lengths[lane] == t + 1:
                total = 0.0
                for c in range(C):
                    total += a[c, t, lane]
                log_z[lane] = offset[lane] + np.log(total)


@njit(**COMPILE)
def _scaled(rows):
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
def backward(u, A, beta, b, s, lengths):
    """β up to a constant for each t; b[·, t] = exp(u + β) with maximum 1; s[·, t] = Σ_k E_jk b_k at t+1."""
    C, T, L = u.shape
    top, x = np.empty(L), np.empty((C, 1, L))
    scale, E = _scaled(A)
    E = E.T.copy()
    beta[:, T - 1] = 0.0
    for t in range(T - 1, 0, -1):
        for c in range(C):
            row, unary, after = x[c, 0], u[c, t], beta[c, t]
            for lane in range(L):
                row[lane] = unary[lane] + after[lane]
        _normalise(x, 0, top, b, t)
        _mix(E, b, t, s, t - 1)
        _log_step(s, t - 1, scale, beta, x, 0, A)
        for c in range(C):
            row = beta[c, t - 1]
            for lane in range(L):
                row[lane] = 0.0 if t >= lengths[lane] else row[lane]


@njit(**COMPILE)
def posterior(alpha, beta, lengths, log_z, p):
    """p[c, t] ∝ exp(α + β); 0 in the padding and where log Z is -inf."""
    C, T, L = alpha.shape
    top, total, x = np.empty(L), np.empty(L), np.empty((C, 1, L))
    for t in range(T):
        for c in range(C):
            row, before, after = x[c, 0], alpha[c, t], beta[c, t]
            for lane in range(L):
                row[lane] = before[lane] + after[lane]
        _normalise(x, 0, top, p, t)
        total[:] = 0.0
        for c in range(C):
            row = p[c, t]
            for lane in range(L):
                total[lane] += row[lane]
        for lane in range(L):
            live = t < lengths[lane] and log_z[lane] > -np.inf
            total[lane] = 1.0 / total[lane] if live else 0.0
        for c in range(C):
            row = p[c, t]
            for lane in range(L):
                row[lane] *= total[lane]


@njit(**COMPILE)
def expectation_before(a, s, alpha, A, g, E):
    """E[c, t] = E[Σ_{v ≤ t} g_v(z_v) | z_t = c]."""
    C, T, L = g.shape
    columns = A.T.copy()
    weights = _scaled(columns)[1].T.copy()
    x = np.empty((C, 1, L))
    E[:, 0] = g[:, 0]
    for t in range(1, T):
        _product(a, t - 1, E, t - 1, x)
        _mix(weights, x, 0, E, t)
        _finish_mean(E, t, s, t, alpha, t - 1, columns, E, t - 1)
        for c in range(C):
            row, own = E[c, t], g[c, t]
            for lane in range(L):
                row[lane] += own[lane]


@njit(**COMPILE)
def expectation_after(b, s, beta, u, A, g, F, lengths):
    """F[c, t] = E[Σ_{v > t} g_v(z_v) | z_t = c], and in g[c, t] what follows z_t = c with itself: g + F."""
    C, T, L = g.shape
    weights = _scaled(A)[1].T.copy()
    x, after = np.empty((C, 1, L)), np.empty((C, 1, L))
    F[:, T - 1] = 0.0
    for t in range(T - 2, -1, -1):
        for c in range(C):
            row, later, unary, rest = g[c, t + 1], F[c, t + 1], u[c, t + 1], beta[c, t + 1]
            for lane in range(L):
                row[lane] += later[lane]
                after[c, 0, lane] = unary[lane] + rest[lane]
        _product(b, t + 1, g, t + 1, x)
        _mix(weights, x, 0, F, t)
        _finish_mean(F, t, s, t, after, 0, A, g, t + 1)
        for c in range(C):
            row = F[c, t]
            for lane in range(L):
                row[lane] = 0.0 if t + 1 >= lengths[lane] else row[lane]


@njit(**COMPILE)
def _product(x, t, y, v, out):
    C, _, L = x.shape
    for c in range(C):
        left, right, row = x[c, t], y[c, v], out[c, 0]
        for lane in range(L):
            row[lane] = left[lane] * right[lane]


@njit(**COMPILE)
def _finish_mean(mean, t, s, v, source, source_t, columns, y, y_t):
    """Divide the sums mean[k, t] by s[k, v]; marked cells from logarithms."""
    C, _, L = mean.shape
    for k in range(C):
        row, total, marked = mean[k, t], s[k, v], 0
        for lane in range(L):
            marked += total[lane] == 0.0
            row[lane] = row[lane] / total[lane]
        if marked > 0:
            for lane in range(L):
                if total[lane] == 0.0:
                    row[lane] = _exact_mean(source, source_t, lane, columns[k], y, y_t)


@njit(**COMPILE)
def center(p, E, F):
    """E −= E[G]."""
    C, T, L = p.shape
    mean = np.zeros(L)
    for c in range(C):
        for lane in range(L):
            mean[lane] += p[c, 0, lane] * (E[c, 0, lane] + F[c, 0, lane])
    for c in range(C):
        for t in range(T):
            row = E[c, t]
            for lane in range(L):
                row[lane] -= mean[lane]


@njit(**COMPILE)
def pair_factors(p, s, b, lengths, left, right, x, y):
    """Factors of Σ_t p_t(j, k) (left_t(j) + right_t+1(k)) = E'_jk Σ_t x_t(j) b_t+1(k) + y_t(j) (b · right)_t+1(k).

    p_t(j, k) = p_t(j) E'_jk b_t+1(k) / s_t(j). `right` becomes b · right; x and y are 0 for marked cells and padding.
    """
    C, T, L = p.shape
    for c in range(C):
        for t in range(T):
            mine, total, factor, extra = p[c, t], s[c, t], x[c, t], y[c, t]
            value, scale, after = left[c, t], b[c, t], right[c, t]
            for lane in range(L):
                live = t + 1 < lengths[lane] and total[lane] > 0.0
                w = mine[lane] / total[lane] if live else 0.0
                extra[lane] = w
                factor[lane] = w * value[lane]
                after[lane] *= scale[lane]


@njit(**COMPILE)
def marked_pairs(p, s, u, beta, A, lengths, left, right, out):
    """out[j, k] += the same sum over the marked cells, from logarithms. Before `pair_factors` changes `right`."""
    C, T, L = p.shape
    source = np.empty((C, 1, 1))
    for lane in range(L):
        for t in range(lengths[lane] - 1):
            for j in range(C):
                if s[j, t, lane] != 0.0 or p[j, t, lane] == 0.0:
                    continue
                for k in range(C):
                    source[k, 0, 0] = u[k, t + 1, lane] + beta[k, t + 1, lane]
                total = _exact(source, 0, 0, A[j])
                for k in range(C):
                    q = p[j, t, lane] * np.exp(source[k, 0, 0] + A[j, k] - total)
                    out[j, k] += q * (left[j, t, lane] + right[k, t + 1, lane])
