# mypy: disallow-untyped-defs=False
"""Recursions over LANES linear chains, with weights m · 2^e as in `scaled`.

All arrays are parts of one flat workspace w; `Layout` has the position where each begins. An element of an array is LANES
numbers, one per chain; a weight is two elements, m before e. States are j at t and k at t+1.

    unary     (T, C) weights: exp of the unary scores
    pairwise  (S, C, C) weights: exp of the pairwise scores at [j, k], S = 1 if all positions share them
    a         (T, C) weights of all beginnings up to a state: a_t+1(k) = s_t+1(k) unary_t+1(k)
    s         (T, C) weights: s_t+1(k) = Σ_j a_t(j) pairwise_t(j, k), stored with 1/m in place of m

All other passes use only q_t(j | k) = a_t(j) pairwise_t(j, k) / s_t+1(k), the posterior of a state given the next one:

    marginals    p_t(j) = Σ_k q_t(j | k) p_t+1(k)
    up to t      e_t(k) = g_t(k) + Σ_j q_t-1(j | k) e_t-1(j)              = E[Σ_{v ≤ t} g_v(z_v) | z_t = k]
    after t      d_t(j) = Σ_k q_t(j | k) (d_t+1(k) + p_t+1(k) g_t+1(k))   = p_t(j) E[Σ_{v > t} g_v(z_v) | z_t = j]

With g the gradient to the marginals and G = Σ_t g_t(z_t), backpropagation is a covariance: the gradient to unary_t(c)
is p_t(c) (E[G | z_t = c] − E[G]) = p_t(c) (e_t(c) − E[G]) + d_t(c). These are convex combinations: nothing overflows.
"""

from typing import NamedTuple

from numba import njit

from phrasemodels.structs.kernels.scaled import exponential, logarithm, normal, possible, ratio
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, LANES, load, maximum, spread, store

WEIGHT = 2 * LANES


class Layout(NamedTuple):
    """Sizes and positions of the arrays of a block: those above, the temporary x and y (C), the lengths and E[G].

    `pairwise` and `pair_grads` come first, so that their positions do not depend on T.
    """

    T: int
    C: int
    S: int
    pairwise: int
    pair_grads: int
    unary: int
    a: int
    s: int
    p: int
    d: int
    e: int
    g: int
    x: int
    y: int
    lengths: int
    mean: int
    size: int


@njit(**COMPILE)
def layout(T, C, S):
    """Return the layout for chains of T positions, C states, and pairwise scores of S positions."""
    n, m = T * C * LANES, S * C * C * LANES
    unary, row = 3 * m, C * LANES
    p = unary + 6 * n
    x = p + 4 * n
    end = x + 2 * row
    return Layout(T, C, S, 0, 2 * m, unary, unary + 2 * n, unary + 4 * n, p, p + n, p + 2 * n, p + 3 * n,
                  x, x + row, end, end + LANES, end + WEIGHT)  # fmt: skip


@njit(**COMPILE)
def exponentials(w, begin, end):
    """Replace scores, stored in place of m, by their weights."""
    for at in range(begin, end, WEIGHT):
        m, e = exponential(load(w, at))
        store(w, at, m)
        store(w, at + LANES, e)


@njit(**COMPILE)
def _total(w, a, C):
    """Return Σ_c a(c) as m, e, where m may be 2 or more."""
    top, total = load(w, a + LANES), spread(0.0)
    for c in range(1, C):
        top = maximum(top, load(w, a + c * WEIGHT + LANES))
    for c in range(C):
        total += load(w, a + c * WEIGHT) * ratio(load(w, a + c * WEIGHT + LANES) - top)
    return total, top


@njit(**COMPILE)
def some_end(w, at, t):
    """Return whether a sequence ends at t."""
    ends = False
    for lane in range(LANES):
        ends |= w[at.lengths + lane] == t + 1
    return ends


@njit(**INLINE)
def pairs_of(at, t):
    """Return the position of the scores between t and t+1 in `pairwise`, counted in weights."""
    return t * at.C * at.C if at.S > 1 else 0


@njit(**INLINE)
def _step(w, a, pair, C):
    """Return Σ_j a(j) pairwise(j, k) as m, e, where m may be 2 or more; a, pair: positions of the terms of j = 0."""
    row = C * WEIGHT
    top = load(w, a + LANES) + load(w, pair + LANES)
    for j in range(1, C):
        top = maximum(top, load(w, a + j * WEIGHT + LANES) + load(w, pair + j * row + LANES))
    total = spread(0.0)
    for j in range(C):
        left, right = a + j * WEIGHT, pair + j * row
        scale = ratio(load(w, left + LANES) + load(w, right + LANES) - top)
        total += load(w, left) * load(w, right) * scale
    return total, top


@njit(**INLINE)
def _step_with_mean(w, a, pair, y, C):
    """Return the result of `_step`, and Σ_j y(j) pairwise(j, k), scaled by the same 2^e; y is scaled as a."""
    row = C * WEIGHT
    top = load(w, a + LANES) + load(w, pair + LANES)
    for j in range(1, C):
        top = maximum(top, load(w, a + j * WEIGHT + LANES) + load(w, pair + j * row + LANES))
    total, mean = spread(0.0), spread(0.0)
    for j in range(C):
        left, right = a + j * WEIGHT, pair + j * row
        x = load(w, right) * ratio(load(w, left + LANES) + load(w, right + LANES) - top)
        total += load(w, left) * x
        mean += load(w, y + j * LANES) * x
    return total, top, mean


@njit(**COMPILE)
def forward(w, at, log_z, means):
    """Compute a, s and log Z, and with `means` e. The length of a sequence becomes 0 if all its tags are forbidden."""
    C = at.C
    row = C * WEIGHT
    for t in range(at.T):
        before, pairs = at.a + (t - 1) * row, at.pairwise + pairs_of(at, t - 1) * WEIGHT
        if means and t > 0:
            for j in range(C):
                mean = load(w, at.e + (t - 1) * C * LANES + j * LANES)
                store(w, at.y + j * LANES, mean * load(w, before + j * WEIGHT))
        for k in range(C):
            here = t * row + k * WEIGHT
            m, e = load(w, at.unary + here), load(w, at.unary + here + LANES)
            g = at.g + here // 2
            if t > 0:
                if means:
                    x, top, mean = _step_with_mean(w, before, pairs + k * WEIGHT, at.y, C)
                    share = 1.0 / x
                    store(w, at.e + here // 2, load(w, g) + mean * share)
                else:
                    x, top = _step(w, before, pairs + k * WEIGHT, C)
                    share = 1.0 / x
                store(w, at.s + here, share)
                store(w, at.s + here + LANES, top)
                m, e = m * x, e + top
            elif means:
                store(w, at.e + here // 2, load(w, g))
            m, e = normal(m, e)
            store(w, at.a + here, m)
            store(w, at.a + here + LANES, e)
        if some_end(w, at, t):
            m, e = _total(w, at.a + t * row, C)
            store(w, at.x, m)
            store(w, at.y, e)
            for lane in range(LANES):
                if w[at.lengths + lane] == t + 1:
                    log_z[lane] = logarithm(w[at.x + lane], w[at.y + lane])
                    if not possible(w[at.y + lane]):
                        w[at.lengths + lane] = 0.0


@njit(**COMPILE)
def add_end(w, at, t):
    """Add p_t for the sequences that end at t."""
    row = at.C * WEIGHT
    m, e = _total(w, at.a + t * row, at.C)
    for lane in range(LANES):
        w[at.x + lane] = 1.0 if w[at.lengths + lane] == t + 1 else 0.0
    share = load(w, at.x) / m
    for c in range(at.C):
        here = t * row + c * WEIGHT
        p = at.p + here // 2
        store(w, p, load(w, p) + load(w, at.a + here) * ratio(load(w, at.a + here + LANES) - e) * share)


@njit(**COMPILE)
def marginals(w, at):
    """Compute p, after `forward`."""
    C = at.C
    row = C * WEIGHT
    for t in range(at.T - 1, -1, -1):
        here, pairs, last = t * row, at.pairwise + pairs_of(at, t) * WEIGHT, t + 1 == at.T
        if not last:
            for k in range(C):
                after = here + row + k * WEIGHT
                store(w, at.x + k * LANES, load(w, at.p + after // 2) * load(w, at.s + after))
        for j in range(C):
            a, total = at.a + here + j * WEIGHT, spread(0.0)
            if not last:
                e, s, pair = load(w, a + LANES), at.s + here + row, pairs + j * row
                for k in range(C):
                    right = pair + k * WEIGHT
                    scale = ratio(e + load(w, right + LANES) - load(w, s + k * WEIGHT + LANES))
                    total += load(w, at.x + k * LANES) * load(w, right) * scale
            store(w, at.p + here // 2 + j * LANES, total * load(w, a))
        if some_end(w, at, t):
            add_end(w, at, t)


@njit(**INLINE)
def _share_out(w, at, t, j, sums):
    """Return p_t(j) and d_t(j), and add the gradients to pairwise_t(j, ·) to `sums`.

    x and y hold p and d + p g at t+1, divided by s.
    """
    row = at.C * WEIGHT
    a, s = at.a + t * row + j * WEIGHT, at.s + (t + 1) * row
    pair = at.pairwise + pairs_of(at, t) * WEIGHT + j * row
    m, e = load(w, a), load(w, a + LANES)
    left = load(w, at.e + (t * at.C + j) * LANES) - load(w, at.mean)
    p, d = spread(0.0), spread(0.0)
    for k in range(at.C):
        right = pair + k * WEIGHT
        scale = ratio(e + load(w, right + LANES) - load(w, s + k * WEIGHT + LANES))
        q = m * load(w, right) * scale
        one, other = q * load(w, at.x + k * LANES), q * load(w, at.y + k * LANES)
        p += one
        d += other
        total = sums + k * LANES
        store(w, total, load(w, total) + (one * left + other))
    return p, d


@njit(**COMPILE)
def covariance(w, at, centre):
    """Write the gradients to unary over e, and add the gradients to pairwise to pair_grads; compute p and d for them.

    Without `centre`, E[G] is taken as 0; then e = 1 and g = 0 give marginals as gradients.
    """
    C = at.C
    store(w, at.mean, spread(0.0))
    for t in range(at.T - 1, -1, -1):
        here, sums = t * C * LANES, at.pair_grads + pairs_of(at, t) * LANES
        if t + 1 < at.T:
            for k in range(C):
                after = here + (C + k) * LANES
                p, share = load(w, at.p + after), load(w, at.s + 2 * after)
                store(w, at.x + k * LANES, p * share)
                store(w, at.y + k * LANES, (load(w, at.d + after) + p * load(w, at.g + after)) * share)
        for j in range(C):
            p, d = spread(0.0), spread(0.0)
            if t + 1 < at.T:
                p, d = _share_out(w, at, t, j, sums + j * C * LANES)
            store(w, at.p + here + j * LANES, p)
            store(w, at.d + here + j * LANES, d)
        if some_end(w, at, t):
            add_end(w, at, t)
            if centre:
                add_mean(w, at, t)
        middle = load(w, at.mean)
        for c in range(here, here + C * LANES, LANES):
            store(w, at.e + c, load(w, at.p + c) * (load(w, at.e + c) - middle) + load(w, at.d + c))


@njit(**COMPILE)
def add_mean(w, at, t):
    """Add E[G] for the sequences that end at t."""
    for lane in range(LANES):
        if w[at.lengths + lane] == t + 1:
            for c in range(t * at.C * LANES + lane, (t + 1) * at.C * LANES, LANES):
                w[at.mean + lane] += w[at.p + c] * w[at.e + c]
