# mypy: disallow-untyped-defs=False
"""Elimination of words from a graph of arcs, which gives log Z and the marginals of all its trees.

Words are eliminated as `nonprojective` describes, in log space. What is kept of the elimination of a word v are the log weights
before it and its sum s_v. Backward, the derivative A' of log Z in w' becomes that in w, by a(h, m) = w(h, v) w(v, m) / s_v
/ w'(h, m), the probability that an arc h → m of the smaller graph is a path over v:

    A(h, m) = A'(h, m) (1 − a(h, m))        A(v, m) = Σ_h A'(h, m) a(h, m)
    A(h, v) = Σ_m A'(h, m) a(h, m) + (1 − Σ_hm A'(h, m) a(h, m)) w(h, v) / s_v

log Z and marginals are computed with plain numbers instead of logarithms if weights are within e^300 of each other.

Shapes: N positions, the root at 0. A history is (N, N, N): the graphs before each elimination.
"""

import numpy as np
from numba import njit

from phrasemodels.structs.kernels.simd import COMPILE


@njit(**COMPILE)
def _log_add(x, y):
    if x < y:
        x, y = y, x
    return x if y == -np.inf else x + np.log1p(np.exp(y - x))


@njit(**COMPILE)
def read_graph(scores, N, w):
    """Copy the log weights of arcs to w (N, N), -inf for those of no tree; return whether none is NaN or +inf."""
    known = True
    for h in range(N):
        for m in range(N):
            w[h, m] = scores[h, m] if m > 0 and h != m else -np.inf
            known &= w[h, m] < np.inf
    return known


@njit(**COMPILE)
def _head_sum(w, left, v, least):
    """Return log Σ_h w(h, v) over the positions ≥ least that are left."""
    top, total = -np.inf, 0.0
    for h in range(least, len(left)):
        if left[h]:
            top = max(top, w[h, v])
    if top == -np.inf:
        return top
    for h in range(least, len(left)):
        if left[h]:
            total += np.exp(w[h, v] - top)
    return np.log(total) + top


@njit(**COMPILE)
def eliminate(N, one_root, graphs, order, sums):
    """Eliminate all words but one from graphs[0]; fill the graphs after each, the order (N-1,) of words and their sums; return
    log Z. The last of `order` is the word that is left, with the sum of its root arc."""
    least, total = 1 if one_root else 0, 0.0
    left = np.ones(N, np.bool_)
    for step in range(N - 2):
        w, v, s = graphs[step], 0, -np.inf
        for m in range(1, N):
            if left[m]:
                v, s = m, _head_sum(w, left, m, least)
                if s > -np.inf:
                    break
        if s == -np.inf:
            return s
        order[step], sums[step] = v, s
        total += s
        left[v] = False
        after = graphs[step + 1]
        for h in range(N):
            for m in range(1, N):
                if left[h] and left[m]:
                    after[h, m] = _log_add(w[h, m], w[h, v] + w[v, m] - s) if h != m else -np.inf
    for m in range(1, N):
        if left[m]:
            order[N - 2], sums[N - 2] = m, graphs[N - 2, 0, m]
    return total + sums[N - 2]


@njit(**COMPILE)
def marginals_of(N, one_root, graphs, order, sums, p):
    """Write p(arc) to p (≥ N, ≥ N), which is 0 before."""
    left = np.zeros(N, np.bool_)
    left[0] = left[order[N - 2]] = True
    p[0, order[N - 2]] = 1.0
    for step in range(N - 3, -1, -1):
        w, after, v, s = graphs[step], graphs[step + 1], order[step], sums[step]
        over = 0.0
        for h in range(N):
            for m in range(1, N):
                if left[h] and left[m] and p[h, m] > 0.0:
                    x = p[h, m] * np.exp(w[h, v] + w[v, m] - s - after[h, m])
                    p[h, m] *= np.exp(w[h, m] - after[h, m])
                    p[h, v] += x
                    p[v, m] += x
                    over += x
        for h in range(1 if one_root else 0, N):
            if left[h]:
                p[h, v] = max(p[h, v] + (1.0 - over) * np.exp(w[h, v] - s), 0.0)
        left[v] = True


@njit(**COMPILE)
def make_plain(N, graph, tops):
    """Replace log weights (N, N) by weights divided by the largest of their column, whose logs go to tops; return whether all
    weights are above e^-300 or 0. Then no product of two can vanish, as elimination never makes a weight smaller."""
    low = 0.0
    for m in range(1, N):
        tops[m] = graph[:N, m].max()
        if tops[m] == -np.inf:
            return False
        for h in range(N):
            if graph[h, m] > -np.inf:
                low = min(low, graph[h, m] - tops[m])
    if low < -300.0:
        return False
    for h in range(N):
        for m in range(1, N):
            graph[h, m] = np.exp(graph[h, m] - tops[m])
        graph[h, 0] = 0.0
    return True


@njit(**COMPILE)
def eliminate_plain(N, one_root, graphs, sums):
    """Eliminate the words N-1, N-2, ..., 2 as `eliminate` does, in plain numbers; return log Z, or NaN if a sum is 0."""
    total = 0.0
    for v in range(N - 1, 1, -1):
        w, after, s = graphs[N - 1 - v], graphs[N - v], 0.0
        for h in range(1 if one_root else 0, v):
            s += w[h, v]
        if s < 1e-290:
            return np.nan
        sums[v] = s
        total += np.log(s)
        for h in range(v):
            share = w[h, v] / s
            for m in range(v):
                after[h, m] = w[h, m] + share * w[v, m]
            after[h, h] = 0.0
    return total + np.log(graphs[N - 2, 0, 1])


@njit(**COMPILE)
def marginals_plain(N, one_root, graphs, sums, p):
    """Write p(arc) to p (≥ N, ≥ N), which is 0 before, after `eliminate_plain`."""
    p[0, 1] = 1.0
    for v in range(2, N):
        w, after, over = graphs[N - 1 - v], graphs[N - v], 0.0
        for h in range(v):
            share, x = w[h, v] / sums[v], 0.0
            for m in range(1, v):
                if p[h, m] > 0.0:
                    each = p[h, m] / after[h, m]
                    part = each * share * w[v, m]
                    p[h, m] = each * w[h, m]
                    p[v, m] += part
                    x += part
            p[h, v] = x
            over += x
        for h in range(1 if one_root else 0, v):
            p[h, v] = max(p[h, v] + (1.0 - over) * w[h, v] / sums[v], 0.0)
