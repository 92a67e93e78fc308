# mypy: disallow-untyped-defs=False
"""Inside, outside and covariance passes over the projective trees of LANES sentences, with weights as in `scaled`.

Positions are 0..N-1 with the root at 0. All arrays are parts of one flat workspace w (see `sequences`). A chart has cells of
six kinds: complete right spans (head i) at [i, j] and at [j, i], complete left spans (head j) likewise, incomplete right
spans at [i, j], incomplete left spans at [j, i]. So both factors of every sum over split points k are contiguous. The
inside pass fills a chart of weights; MEET [i, j] is the factor that both incomplete spans of i, j share.

All other passes use q(k) = left_k right_k / Σ_k left_k right_k, the posterior of a split point given its cell, which is
cheaper to recompute than to store. They are sums of products of probabilities, which cannot overflow:

    marginals       p(left_k) and p(right_k) each gain p(cell) q(k)
    expectations    e(cell) = Σ_k q(k) (e(left_k) + e(right_k)) = E[Σ g over the arcs inside a cell | the cell]
    covariance      d(cell) = p(cell) E[Σ g over the arcs outside a cell | the cell]:
                    d(left_k) gains q(k) (d(cell) + p(cell) e(right_k)), d(right_k) the same with e(left_k)

With g the gradient to the marginals and G = Σ g over a tree's arcs, the gradient to the score of an arc is the covariance
p (E[G | arc] − E[G]).
"""

from typing import NamedTuple

from numba import njit

from phrasemodels.structs.kernels.scaled import FORBIDDEN, logarithm, normal, possible, ratio
from phrasemodels.structs.kernels.sequences import WEIGHT
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, LANES, above, load, maximum, spread, store

RIGHT, RIGHT_T, LEFT, LEFT_T, OPEN_RIGHT, OPEN_LEFT_T, MEET, ARC = range(8)
NEGLIGIBLE = 1e-120  # a probability; products of smaller ones would be subnormal, for which processors are slow
CELL_KINDS = 6  # in a chart of p, e or d


class Layout(NamedTuple):
    """N, and the positions of p, e, d (6, N, N), g (N, N), lengths and E[G]; the weights (8, N, N) begin at 0."""

    N: int
    p: int
    e: int
    d: int
    g: int
    lengths: int
    mean: int
    size: int


@njit(**COMPILE)
def layout(N):
    """Return the layout for sentences of N-1 words."""
    n = N * N * LANES
    p = 16 * n
    lengths = p + (3 * CELL_KINDS + 1) * n
    return Layout(
        N,
        p,
        p + CELL_KINDS * n,
        p + 2 * CELL_KINDS * n,
        p + 3 * CELL_KINDS * n,
        lengths,
        lengths + LANES,
        lengths + WEIGHT,
    )


@njit(**INLINE)
def part_of(kind, N, i, j):
    """Describe the sum over split points of words i..j: the cell of its weight, the two cells that contain it as a factor,
    and the left and right cell of its first term."""
    M, row, column = N * N, i * N, j * N
    if kind == MEET:
        return (MEET * M + row + j, OPEN_RIGHT * M + row + j, OPEN_LEFT_T * M + column + i,
                RIGHT * M + row + i, LEFT_T * M + column + i + 1)  # fmt: skip
    if kind == LEFT:
        return (LEFT * M + row + j, LEFT * M + row + j, LEFT_T * M + column + i,
                LEFT * M + row + i, OPEN_LEFT_T * M + column + i)  # fmt: skip
    # the weight is read from RIGHT_T, as `_end` may forbid RIGHT
    return (RIGHT_T * M + column + i, RIGHT * M + row + j, RIGHT_T * M + column + i,
            OPEN_RIGHT * M + row + i + 1, RIGHT_T * M + column + i + 1)  # fmt: skip


@njit(**INLINE)
def sum_of(w, left, right, n):
    """Return Σ_k left_k right_k over n cells, as m, e."""
    left, right = left * WEIGHT, right * WEIGHT
    top = load(w, left + LANES) + load(w, right + LANES)
    for k in range(WEIGHT, n * WEIGHT, WEIGHT):
        top = maximum(top, load(w, left + k + LANES) + load(w, right + k + LANES))
    total = spread(0.0)
    for k in range(0, n * WEIGHT, WEIGHT):
        scale = ratio(load(w, left + k + LANES) + load(w, right + k + LANES) - top)
        total += load(w, left + k) * load(w, right + k) * scale
    return normal(total, top)


@njit(**INLINE)
def put(w, cell, m, e):
    """Write the weight m · 2^e to a cell."""
    store(w, cell * WEIGHT, m)
    store(w, cell * WEIGHT + LANES, e)


@njit(**INLINE)
def posterior(w, left, right, e):
    """Return the posterior of one split times m, for a cell with the weight m · 2^e."""
    scale = ratio(load(w, left * WEIGHT + LANES) + load(w, right * WEIGHT + LANES) - e)
    return load(w, left * WEIGHT) * load(w, right * WEIGHT) * scale


@njit(**COMPILE)
def inside(w, at, one_root, log_z):
    """Fill the chart of weights from those of arcs, and log Z. The length of a sentence becomes 0 if all trees are forbidden."""
    N = at.N
    M = N * N
    for i in range(N):
        for kind in range(4):
            put(w, kind * M + i * N + i, spread(1.0), spread(0.0))
    for j in range(1, N):
        for i in range(j - 1, -1, -1):
            cell, right, left, first, second = part_of(MEET, N, i, j)
            m, e = sum_of(w, first, second, j - i)
            put(w, cell, m, e)
            for kind, to in ((OPEN_RIGHT, right), (OPEN_LEFT_T, left)):
                arc = (to + (ARC - kind) * M) * WEIGHT
                x, y = normal(m * load(w, arc), e + load(w, arc + LANES))
                put(w, to, x, y)
            for kind in (LEFT, RIGHT):
                _, one, other, first, second = part_of(kind, N, i, j)
                m, e = sum_of(w, first, second, j - i)
                put(w, one, m, e)
                put(w, other, m, e)
            if i == 0:
                _end(w, at, j, one_root, log_z)


@njit(**COMPILE)
def _end(w, at, j, one_root, log_z):
    """Write log Z of sentences of j words. In longer ones RIGHT [0, j] is forbidden if the root has one arc, since the root
    would need a second."""
    cell = (RIGHT * at.N * at.N + j) * WEIGHT
    for lane in range(LANES):
        m, e = w[cell + lane], w[cell + LANES + lane]
        if w[at.lengths + lane] == j:
            log_z[lane] = logarithm(m, e)
            if not possible(e):
                w[at.lengths + lane] = 0.0
        elif one_root:
            w[cell + LANES + lane] = FORBIDDEN


@njit(**COMPILE)
def _begin(w, at, p):
    """Fill a chart of p with 1 for the cells of whole sentences, and 0 for all others."""
    for i in range(p, p + CELL_KINDS * at.N * at.N * LANES):
        w[i] = 0.0
    for lane in range(LANES):
        if w[at.lengths + lane] > 0.0:
            w[p + int(w[at.lengths + lane]) * LANES + lane] = 1.0


@njit(**COMPILE)
def marginals(w, at):
    """Compute p of all cells, from the sentence down; p of OPEN_RIGHT and OPEN_LEFT_T are the marginals of arcs."""
    _begin(w, at, at.p)
    for j in range(at.N - 1, 0, -1):
        for i in range(j):
            for kind in (RIGHT, LEFT, MEET):
                cell, one, other, left, right = part_of(kind, at.N, i, j)
                p = above(load(w, at.p + one * LANES) + load(w, at.p + other * LANES), NEGLIGIBLE)
                share, e = p / load(w, cell * WEIGHT), load(w, cell * WEIGHT + LANES)
                for k in range(j - i):
                    x = share * posterior(w, left + k, right + k, e)
                    a, b = at.p + (left + k) * LANES, at.p + (right + k) * LANES
                    store(w, a, load(w, a) + x)
                    store(w, b, load(w, b) + x)


@njit(**COMPILE)
def expectations(w, at):
    """Compute e of all cells."""
    N = at.N
    for i in range(N):
        for kind in range(4):
            store(w, at.e + (kind * N * N + i * N + i) * LANES, spread(0.0))
    for j in range(1, N):
        for i in range(j - 1, -1, -1):
            for kind in (MEET, LEFT, RIGHT):
                cell, one, other, left, right = part_of(kind, N, i, j)
                share, e, total = 1.0 / load(w, cell * WEIGHT), load(w, cell * WEIGHT + LANES), spread(0.0)
                for k in range(j - i):
                    both = load(w, at.e + (left + k) * LANES) + load(w, at.e + (right + k) * LANES)
                    total += posterior(w, left + k, right + k, e) * both
                total = total * share
                x, y = spread(0.0), spread(0.0)
                if kind == MEET:
                    x, y = load(w, at.g + (i * N + j) * LANES), load(w, at.g + (j * N + i) * LANES)
                store(w, at.e + one * LANES, total + x)
                store(w, at.e + other * LANES, total + y)


@njit(**COMPILE)
def covariance(w, at):
    """Write the gradient to the arc from i to j over g at [i, j], from E[G]; compute p and d of all cells for it."""
    N = at.N
    _begin(w, at, at.p)
    for i in range(at.d, at.g):
        w[i] = 0.0
    for j in range(N - 1, 0, -1):
        for i in range(j):
            for kind in (RIGHT, LEFT, MEET):
                cell, one, other, left, right = part_of(kind, N, i, j)
                p = above(load(w, at.p + one * LANES), NEGLIGIBLE)
                x = above(load(w, at.p + other * LANES), NEGLIGIBLE)
                d = load(w, at.d + one * LANES) + load(w, at.d + other * LANES)
                if kind == MEET:
                    d += _arc(w, at, one, i * N + j, p) + _arc(w, at, other, j * N + i, x)
                share = 1.0 / load(w, cell * WEIGHT)
                spread_both(w, at, load(w, cell * WEIGHT + LANES), (p + x) * share, d * share, left, right, j - i)


@njit(**INLINE)
def _arc(w, at, cell, arc, p):
    """Write the gradient of an arc over its g; return the term p g that the arc adds to d inside."""
    g = load(w, at.g + arc * LANES)
    covariance = load(w, at.d + cell * LANES) + p * (load(w, at.e + cell * LANES) - load(w, at.mean))
    store(w, at.g + arc * LANES, covariance)
    return p * g


@njit(**INLINE)
def spread_both(w, at, e, p, d, left, right, n):
    """Add p and d of a cell to the cells of its n splits."""
    for k in range(n):
        a, b = (left + k) * LANES, (right + k) * LANES
        q = posterior(w, left + k, right + k, e)
        x, y = q * p, q * d
        store(w, at.p + a, load(w, at.p + a) + x)
        store(w, at.p + b, load(w, at.p + b) + x)
        store(w, at.d + a, load(w, at.d + a) + (y + x * load(w, at.e + b)))
        store(w, at.d + b, load(w, at.d + b) + (y + x * load(w, at.e + a)))
