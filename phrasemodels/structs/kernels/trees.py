# mypy: disallow-untyped-defs=False
"""Trees of spans on the CPU: inside, outside and covariance passes over LANES sentences, with weights as in `scaled`.

A span of positions i..j is split at k, and its weight is a sum over k of products of two cells of a chart. All arrays are parts of one
flat workspace w. Each cell is stored at [i, j] and at [j, i], so that both factors of every sum are contiguous. All passes but the inside
pass use q(k) = left_k right_k / Σ_k left_k right_k, the posterior of a split given its cell, which is cheaper to recompute than to store.
They are sums of products of probabilities, which cannot overflow:

    marginals       p(left_k) and p(right_k) each gain p(cell) q(k)
    expectations    e(cell) = Σ_k q(k) (e(left_k) + e(right_k)) = E[Σ g over the arcs inside a cell | the cell]
    covariance      d(cell) = p(cell) E[Σ g over the arcs outside a cell | the cell]:
                    d(left_k) gains q(k) (d(cell) + p(cell) e(right_k)), d(right_k) the same with e(left_k)

With g the gradient to the marginals and G = Σ g over a tree's arcs, the gradient to the score of an arc is the covariance
p (E[G | arc] − E[G]).

Projective trees have cells of six kinds: complete right spans (head i) at [i, j] and at [j, i], complete left spans (head j) likewise,
incomplete right spans at [i, j], incomplete left spans at [j, i]; MEET [i, j] is the factor that both incomplete spans of i, j share. The
root is at 0. Binary trees have SPAN and SPAN_T, the same at [j, i]; SPLITS is the sum over splits, OWN the weight of the span itself:
SPAN = OWN · SPLITS.

Shapes: B sentences, N positions, with the root if there is one.
"""

from typing import NamedTuple

import numpy as np
import torch
from numba import njit

from phrasemodels.structs.kernels import can_run_kernel, doubles, numbers, over_batch, possible_scores, scratch, tensor
from phrasemodels.structs.kernels.scaled import FORBIDDEN, WEIGHT, exponentials, logarithm, normal, possible, ratio
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, INNER, LANES, above, load, maximum, spread, store

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
def _part_of(kind, N, i, j):
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
def _sum_of(w, left, right, n):
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
def _put(w, cell, m, e):
    """Write the weight m · 2^e to a cell."""
    store(w, cell * WEIGHT, m)
    store(w, cell * WEIGHT + LANES, e)


@njit(**INLINE)
def _posterior(w, left, right, e):
    """Return the posterior of one split times m, for a cell with the weight m · 2^e."""
    scale = ratio(load(w, left * WEIGHT + LANES) + load(w, right * WEIGHT + LANES) - e)
    return load(w, left * WEIGHT) * load(w, right * WEIGHT) * scale


@njit(**INNER)
def _inside(w, at, one_root, log_z):
    """Fill the chart of weights from the weights of arcs, and log Z. The length of a sentence becomes 0 if all trees are forbidden."""
    N = at.N
    log_z[:] = 0.0  # of empty sentences
    M = N * N
    for i in range(N):
        for kind in range(4):
            _put(w, kind * M + i * N + i, spread(1.0), spread(0.0))
    for j in range(1, N):
        for i in range(j - 1, -1, -1):
            cell, right, left, first, second = _part_of(MEET, N, i, j)
            m, e = _sum_of(w, first, second, j - i)
            _put(w, cell, m, e)
            for kind, to in ((OPEN_RIGHT, right), (OPEN_LEFT_T, left)):
                arc = (to + (ARC - kind) * M) * WEIGHT
                x, y = normal(m * load(w, arc), e + load(w, arc + LANES))
                _put(w, to, x, y)
            for kind in (LEFT, RIGHT):
                _, one, other, first, second = _part_of(kind, N, i, j)
                m, e = _sum_of(w, first, second, j - i)
                _put(w, one, m, e)
                _put(w, other, m, e)
            if i == 0:
                _end(w, at, j, one_root, log_z)


@njit(**INNER)
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


@njit(**INNER)
def _begin(w, at, p):
    """Fill a chart of p with 1 for the cells of whole sentences, and 0 for all others."""
    for i in range(p, p + CELL_KINDS * at.N * at.N * LANES):
        w[i] = 0.0
    for lane in range(LANES):
        if w[at.lengths + lane] > 0.0:
            w[p + int(w[at.lengths + lane]) * LANES + lane] = 1.0


@njit(**INNER)
def _outside(w, at):
    """Compute p of all cells, from the sentence down; p of OPEN_RIGHT and OPEN_LEFT_T are the marginals of arcs."""
    _begin(w, at, at.p)
    for j in range(at.N - 1, 0, -1):
        for i in range(j):
            for kind in (RIGHT, LEFT, MEET):
                cell, one, other, left, right = _part_of(kind, at.N, i, j)
                p = above(load(w, at.p + one * LANES) + load(w, at.p + other * LANES), NEGLIGIBLE)
                share, e = p / load(w, cell * WEIGHT), load(w, cell * WEIGHT + LANES)
                for k in range(j - i):
                    x = share * _posterior(w, left + k, right + k, e)
                    a, b = at.p + (left + k) * LANES, at.p + (right + k) * LANES
                    store(w, a, load(w, a) + x)
                    store(w, b, load(w, b) + x)


@njit(**INNER)
def _expectations(w, at):
    """Compute e of all cells."""
    N = at.N
    for i in range(N):
        for kind in range(4):
            store(w, at.e + (kind * N * N + i * N + i) * LANES, spread(0.0))
    for j in range(1, N):
        for i in range(j - 1, -1, -1):
            for kind in (MEET, LEFT, RIGHT):
                cell, one, other, left, right = _part_of(kind, N, i, j)
                share, e, total = 1.0 / load(w, cell * WEIGHT), load(w, cell * WEIGHT + LANES), spread(0.0)
                for k in range(j - i):
                    both = load(w, at.e + (left + k) * LANES) + load(w, at.e + (right + k) * LANES)
                    total += _posterior(w, left + k, right + k, e) * both
                total = total * share
                x, y = spread(0.0), spread(0.0)
                if kind == MEET:
                    x, y = load(w, at.g + (i * N + j) * LANES), load(w, at.g + (j * N + i) * LANES)
                store(w, at.e + one * LANES, total + x)
                store(w, at.e + other * LANES, total + y)


@njit(**INNER)
def _covariances(w, at):
    """Write the gradient to the arc from i to j over g at [i, j], from E[G]; compute p and d of all cells for it."""
    N = at.N
    _begin(w, at, at.p)
    for i in range(at.d, at.g):
        w[i] = 0.0
    for j in range(N - 1, 0, -1):
        for i in range(j):
            for kind in (RIGHT, LEFT, MEET):
                cell, one, other, left, right = _part_of(kind, N, i, j)
                p = above(load(w, at.p + one * LANES), NEGLIGIBLE)
                x = above(load(w, at.p + other * LANES), NEGLIGIBLE)
                d = load(w, at.d + one * LANES) + load(w, at.d + other * LANES)
                if kind == MEET:
                    d += _arc(w, at, one, i * N + j, p) + _arc(w, at, other, j * N + i, x)
                share = 1.0 / load(w, cell * WEIGHT)
                _spread_both(w, at, load(w, cell * WEIGHT + LANES), (p + x) * share, d * share, left, right, j - i)


@njit(**INLINE)
def _arc(w, at, cell, arc, p):
    """Write the gradient of an arc over its g; return the term p g that the arc adds to d inside."""
    g = load(w, at.g + arc * LANES)
    covariance = load(w, at.d + cell * LANES) + p * (load(w, at.e + cell * LANES) - load(w, at.mean))
    store(w, at.g + arc * LANES, covariance)
    return p * g


@njit(**INLINE)
def _spread_both(w, at, e, p, d, left, right, n):
    """Add p and d of a cell to the cells of its n splits."""
    for k in range(n):
        a, b = (left + k) * LANES, (right + k) * LANES
        q = _posterior(w, left + k, right + k, e)
        x, y = q * p, q * d
        store(w, at.p + a, load(w, at.p + a) + x)
        store(w, at.p + b, load(w, at.p + b) + x)
        store(w, at.d + a, load(w, at.d + a) + (y + x * load(w, at.e + b)))
        store(w, at.d + b, load(w, at.d + b) + (y + x * load(w, at.e + a)))


@njit(**INNER)
def _open(w, block, order, scores, lengths):
    """Copy the scores of the arcs of a block to the workspace w; return its layout.

    Arcs in the padding get 0; arcs into the root and from a word to itself are forbidden.
    """
    count = min(LANES, len(order) - block)
    N = lengths[order[block + count - 1]] + 1
    at = layout(N)
    arcs = ARC * N * N
    for lane in range(LANES):
        b = order[block + min(lane, count - 1)]
        n = lengths[b] if lane < count else 0
        w[at.lengths + lane] = n
        for h in range(N):
            for m in range(N):
                x = scores[b, h, m] if max(h, m) <= n else 0.0
                w[(arcs + h * N + m) * WEIGHT + lane] = -np.inf if h == m or m == 0 else x
    exponentials(w, arcs * WEIGHT, at.p)
    return at


@njit(**COMPILE)
def _marginals(first, step, work, order, scores, lengths, one_root, log_z, out):
    """Compute log Z (B,), and marginals (B, N, N) unless `out` is empty."""
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = _open(w, block, order, scores, lengths)
        _inside(w, at, one_root, z)
        for lane in range(min(LANES, len(order) - block)):
            log_z[order[block + lane]] = z[lane]
        if out.size > 0:
            _outside(w, at)
            N = at.N
            for lane in range(min(LANES, len(order) - block)):
                p = out[order[block + lane]]
                p[:] = 0.0
                for h in range(N):
                    for m in range(1, N):
                        kind = OPEN_RIGHT if h < m else OPEN_LEFT_T
                        if h != m:
                            p[h, m] = w[at.p + ((kind * N + h) * N + m) * LANES + lane]


@njit(**INNER)
def _expect(w, block, order, scores, lengths, one_root, grad, log_z):
    """Compute log Z of a block, and E[G] for the gradient `grad` (B, N, N) to the marginals; return the layout."""
    at = _open(w, block, order, scores, lengths)
    _inside(w, at, one_root, log_z)
    N = at.N
    for lane in range(LANES):
        b = order[min(block + lane, len(order) - 1)]
        n = w[at.lengths + lane]
        for h in range(N):
            for m in range(N):
                w[at.g + (h * N + m) * LANES + lane] = grad[b, h, m] if 0 < m <= n and h <= n else 0.0
    _expectations(w, at)
    for lane in range(LANES):
        n = int(w[at.lengths + lane])
        w[at.mean + lane] = w[at.e + n * LANES + lane]
    return at


@njit(**INNER)
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
def _covariance(first, step, work, order, scores, lengths, one_root, grad, entropy, out):
    """Compute log Z − E[G] (B,), at least 0, and unless it is empty, the gradient `out` (B, N, N) to the scores from the gradient
    `grad` (B, N, N) to the marginals."""
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = _expect(w, block, order, scores, lengths, one_root, grad, z)
        for lane in range(min(LANES, len(order) - block)):
            # the difference of almost equal numbers may be below 0; all trees are forbidden if log Z is -inf
            entropy[order[block + lane]] = max(z[lane] - w[at.mean + lane], 0.0)
        if out.size > 0:
            _covariances(w, at)
            _close(w, block, at, order, out)


class ProjectiveTrees:
    """Serves log Z, marginals, their gradients and entropies of projective trees; see `structure.Implementation`."""

    def takes(self, structure, scores):
        return can_run_kernel(*scores)

    def passes(self, structure, scores, lengths, scale, which, each):
        arcs = doubles(scores[0])
        log_z, out = np.empty(len(arcs)), np.empty(arcs.shape if scale is not None else (0, 0, 0))
        _over_sentences(_marginals, structure, arcs, lengths, log_z, out)
        unknown = _unknown(structure, scores, lengths)
        if unknown is not None:
            log_z[unknown.any((1, 2))] = np.nan
            out[unknown if scale is not None else ()] = np.nan
        found = tensor(log_z, scores[0].dtype)
        return found, () if scale is None else (_scaled(tensor(out, scores[0].dtype), scale),)

    def covariances(self, structure, scores, lengths, grads, scale=None):
        arcs = doubles(scores[0])
        out = np.empty_like(arcs)
        _over_sentences(_covariance, structure, arcs, lengths, doubles(grads[0]), np.empty(len(arcs)), out)
        unknown = _unknown(structure, scores, lengths)
        if unknown is not None:
            out[unknown] = np.nan
        return (_scaled(tensor(out, scores[0].dtype), scale),)

    def entropy(self, structure, scores, lengths):
        value, arcs, finite = np.empty(len(scores[0])), doubles(scores[0]), doubles(possible_scores(scores[0]))
        _over_sentences(_covariance, structure, arcs, lengths, finite, value, np.empty((0, 0, 0)))
        unknown = _unknown(structure, scores, lengths)
        if unknown is not None:
            value[unknown.any((1, 2))] = np.nan
        return tensor(value, scores[0].dtype)


def _over_sentences(kernel, structure, arcs, lengths, *results):
    """Run a kernel over blocks of sentences, sorted by length, because a block takes as many steps as its longest one."""
    blocks, words = -(-len(arcs) // LANES), lengths.numpy()[:, 0]
    work = scratch(blocks, layout(arcs.shape[1]).size)
    over_batch(kernel, blocks, work, np.argsort(words, kind="stable"), arcs, words, structure.one_root, *results)


def _unknown(structure, scores, lengths):
    """Return the arcs (B, N, N) of sentences with a score that is NaN or +inf, for which kernels give finite numbers; None if there
    are none."""
    arcs = numbers(scores[0])
    if arcs.max() < np.inf:  # false if a score is NaN
        return None
    read = structure.read(scores, lengths)[0].numpy()
    return read & (read & ~(arcs < np.inf)).any((1, 2), keepdims=True)


def _scaled(x, scale):
    """Return x (B, N, N) times scale (B,), if it is a tensor."""
    return x * scale.to(x.dtype)[:, None, None] if isinstance(scale, torch.Tensor) else x


SPAN, SPAN_T, SPLITS, OWN = range(4)


@njit(**COMPILE)
def span_layout(N):
    """Return the span_layout for sentences of N words: as in `trees`, but p, e and d are (2, N, N), and the weights (4, N, N)."""
    n = N * N * LANES
    p = 8 * n
    end = p + 7 * n
    return Layout(N, p, p + 2 * n, p + 4 * n, p + 6 * n, end, end + LANES, end + 2 * LANES)


@njit(**INNER)
def _open_spans(w, block, order, scores, factors, lengths):
    """Write factor · exp(score) of the spans of a block to the workspace w, 1 in the padding; return its span_layout."""
    count = min(LANES, len(order) - block)
    N = lengths[order[block + count - 1]]
    at = span_layout(N)
    for lane in range(LANES):
        b = order[block + min(lane, count - 1)]
        n = lengths[b] if lane < count else 0
        w[at.lengths + lane] = n
        for i in range(N):
            for j in range(N):
                w[(OWN * N * N + i * N + j) * WEIGHT + lane] = scores[b, i, j] if i <= j < n else 0.0
    exponentials(w, OWN * N * N * WEIGHT, at.p)
    for lane in range(count):
        b = order[block + lane]
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                w[(OWN * N * N + i * N + j) * WEIGHT + lane] *= factors[b, i, j]
    return at


@njit(**INNER)
def _inside_spans(w, at, log_z):
    """Fill the chart and log Z. The length of a sentence becomes 0 if all its trees are forbidden."""
    N = at.N
    log_z[:] = 0.0  # of empty sentences
    M = N * N
    for j in range(N):
        for i in range(j, -1, -1):
            own = (OWN * M + i * N + j) * WEIGHT
            m, e = load(w, own), load(w, own + LANES)
            if i < j:
                x, y = _sum_of(w, i * N + i, SPAN_T * M + j * N + i + 1, j - i)
                _put(w, SPLITS * M + i * N + j, x, y)
                m, e = normal(m * x, e + y)
            else:
                m, e = normal(m, e)
            _put(w, i * N + j, m, e)
            _put(w, SPAN_T * M + j * N + i, m, e)
        for lane in range(LANES):
            if w[at.lengths + lane] == j + 1:
                e_top = w[j * WEIGHT + LANES + lane]
                log_z[lane] = logarithm(w[j * WEIGHT + lane], e_top)
                if not possible(e_top):
                    w[at.lengths + lane] = 0.0


@njit(**INNER)
def _outside_spans(w, at):
    """Compute p of all spans at SPAN, and d of all but themselves at SPAN too; d is 0 unless e and g are given."""
    N = at.N
    M = N * N
    for x in range(2 * M * LANES):
        w[at.p + x] = w[at.d + x] = 0.0
    for lane in range(LANES):
        if w[at.lengths + lane] > 0.0:
            w[at.p + (int(w[at.lengths + lane]) - 1) * LANES + lane] = 1.0
    for j in range(N - 1, -1, -1):
        for i in range(j + 1):
            cell, other = (i * N + j) * LANES, (SPAN_T * M + j * N + i) * LANES
            p = above(load(w, at.p + cell) + load(w, at.p + other), NEGLIGIBLE)
            d = load(w, at.d + cell) + load(w, at.d + other)
            store(w, at.p + cell, p)
            store(w, at.d + cell, d)
            if i < j:
                splits = (SPLITS * M + i * N + j) * WEIGHT
                share, e = 1.0 / load(w, splits), load(w, splits + LANES)
                d += p * load(w, at.g + cell)
                _spread_both(w, at, e, p * share, d * share, i * N + i, SPAN_T * M + j * N + i + 1, j - i)


@njit(**INNER)
def _expect_spans(w, at):
    """Compute e of all spans, E[Σ g over a span and those inside | the span]."""
    N = at.N
    M = N * N
    for j in range(N):
        for i in range(j, -1, -1):
            total = spread(0.0)
            if i < j:
                splits, left, right = (SPLITS * M + i * N + j) * WEIGHT, i * N + i, SPAN_T * M + j * N + i + 1
                e = load(w, splits + LANES)
                for k in range(j - i):
                    both = load(w, at.e + (left + k) * LANES) + load(w, at.e + (right + k) * LANES)
                    total += _posterior(w, left + k, right + k, e) * both
                total = total / load(w, splits)
            total += load(w, at.g + (i * N + j) * LANES)
            store(w, at.e + (i * N + j) * LANES, total)
            store(w, at.e + (SPAN_T * M + j * N + i) * LANES, total)


@njit(**COMPILE)
def _span_passes(first, step, work, order, scores, factors, lengths, grad, log_z, out):
    """Compute log Z (B,); and, unless `out` (B, N, N) is empty, marginals, or with `grad` (B, N, N) their gradient."""
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = _open_spans(w, block, order, scores, factors, lengths)
        N = at.N
        _inside_spans(w, at, z)
        count = min(LANES, len(order) - block)
        for lane in range(count):
            log_z[order[block + lane]] = z[lane]
        if out.size == 0:
            continue
        for i in range(at.e, at.lengths):
            w[i] = 0.0
        if grad.size > 0:
            for lane in range(count):
                n = int(w[at.lengths + lane])
                for i in range(n):
                    for j in range(i, n):
                        w[at.g + (i * N + j) * LANES + lane] = grad[order[block + lane], i, j]
            _expect_spans(w, at)
        _outside_spans(w, at)
        _close_spans(w, block, at, order, grad.size > 0, out)


@njit(**INNER)
def _close_spans(w, block, at, order, gradient, out):
    """Copy marginals, or their gradients p (e − E[G]) + d, to the rows of the block, with 0 in the padding."""
    N = at.N
    for lane in range(min(LANES, len(order) - block)):
        x, n = out[order[block + lane]], int(w[at.lengths + lane])
        x[:] = 0.0
        mean = w[at.e + max(n - 1, 0) * LANES + lane]
        for i in range(n):
            for j in range(i, n):
                cell = (i * N + j) * LANES + lane
                p = w[at.p + cell]
                x[i, j] = p * (w[at.e + cell] - mean) + w[at.d + cell] if gradient else p


def span_passes(scores, factors, words, wanted, grad=None):
    """Return log Z (B,), and the marginals of spans (B, N, N), which are empty unless `wanted`; with `grad` (B, N, N), the
    gradient to the marginals, the gradient to the scores instead. The weight of a span is factor · exp(score), both (B, N, N) and
    float64, with 0 in the padding of scores, and factors > 0; a score that is NaN makes its sentence NaN. words (B,)."""
    B, N, _ = scores.shape
    order = np.argsort(words, kind="stable")  # a block takes as many steps as its longest sentence
    log_z, out = np.empty(B), np.empty((B, N, N) if wanted else (0, 0, 0))
    given = np.empty((0, 0, 0)) if grad is None else grad
    blocks = -(-B // LANES)
    work = scratch(blocks, span_layout(N).size)
    over_batch(_span_passes, blocks, work, order, scores, factors, words, given, log_z, out)
    if not scores.max(initial=0) < np.inf:  # a score is NaN or +inf; the padding is 0
        read = np.triu(np.ones((N, N), bool)) & (np.arange(N) < words[:, None, None])
        lost = (read & ~(scores < np.inf)).any((1, 2))
        log_z[lost] = np.nan
        if wanted:
            out[read & lost[:, None, None]] = np.nan
    return log_z, out
