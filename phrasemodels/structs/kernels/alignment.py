# mypy: disallow-untyped-defs=False
"""Monotone alignments on the CPU: log Z and marginals, line by line of a grid. Vectors hold columns.

Line t has the cells (i, j) with i + slope · j = t: a row, or if a move stays within one, an antidiagonal. So each move comes from
an earlier line, and the cells of a line are independent. Weights are those of `scaled`. The forward pass leaves the posteriors q of
the moves into each cell; then p(move) = p(cell) q, and p(cell) is the sum over the moves that start there.

Scores and results are pairs of arrays (B, ·), float32 and float64, one of which is empty. Those of a sentence are copied to and from
lines of `width` places, K lines for its K moves. A path can use columns `first` to `end` of a line, see `_columns`; vectors begin and
stop around them, and `pad` places on both sides are 0, since moves lead there.
"""

from functools import lru_cache

import numpy as np
import torch
from numba import njit

from phrasemodels.structs.kernels import can_run_kernel, factors, numbers, over_batch, scratch, tensor
from phrasemodels.structs.kernels.engine import NEGLIGIBLE, NOTHING
from phrasemodels.structs.kernels.scaled import FORBIDDEN, exponential, logarithm, normal, possible, power_of_two, ratio
from phrasemodels.structs.kernels.simd import (
    COMPILE,
    INLINE,
    INNER,
    LANES,
    above,
    added,
    load,
    maximum,
    spread,
    store,
    unknown,
)


@njit(**INLINE)
def _columns(t, lines, m, ends, reach):
    """Return the first column of a line that a path can use and the one after the last; where vectors around them begin and stop."""
    first = max(0, m - ends - reach * (lines - 1 - t))
    end = max(first, min(m, ends + reach * t))
    return first, end, first // LANES * LANES, -(-end // LANES) * LANES


@njit(**INNER)
def _read(scores, b, lines, m, ends, reach, K, row, slope, width, to):
    """Copy scores, K for each column of a row, to lines of places, and -inf to the others."""
    _fill(to, 0, lines * K * width, -np.inf)
    for line in range(lines * K):
        t, k = line // K, line % K
        first, end, _, _ = _columns(t, lines, m, ends, reach)
        at, step = t * row + k, K - slope * row
        if scores[0].size > 0:
            for j in range(first, end):
                to[line * width + j] = scores[0][b, at + j * step]
        else:
            for j in range(first, end):
                to[line * width + j] = scores[1][min(b, len(scores[1]) - 1), at + j * step]


@njit(**INNER)
def _write(x, factor, lines, m, ends, reach, K, row, slope, width, results, b):
    """Copy lines of places, times a factor, to results."""
    for line in range(lines * K):
        t, k = line // K, line % K
        first, end, _, _ = _columns(t, lines, m, ends, reach)
        at, step = t * row + k, K - slope * row
        if results[0].size > 0:
            for j in range(first, end):
                results[0][b, at + j * step] = factor * x[line * width + j]
        elif results[1].size > 0:
            for j in range(first, end):
                results[1][b, at + j * step] = factor * x[line * width + j]


@njit(**INLINE)
def _fill(x, begin, end, value):
    for j in range(begin, end, LANES):
        store(x, j, spread(value))


@njit(**INNER)
def _weights(scores, at, size, m, e):
    """Write the weights of scores; return 0, or NaN if one is NaN or +inf."""
    wrong = spread(0.0)
    for j in range(0, size, LANES):
        x = load(scores, at + j)
        wrong += unknown(x)
        x, power = exponential(x)
        store(m, j, x)
        store(e, j, power)
    return added(wrong)


@njit(**INNER)
def _forward(lines, m, ends, reach, depth, moves, by_row, width, pad, x, s, q, keep, goal):
    """Fill q (lines, K, width) if `keep`, and the weights of whole paths by their last cells; return log Z, NaN if a score is NaN or
    +inf, and the factor that makes the weights posteriors."""
    K, place, wrong, wrong_step = len(moves), width + pad, spread(0.0), 0.0
    ring, three, two = (depth + 1) * place, K > 2, 2 * width
    w, powers, step, step_power = np.empty(ring), np.empty(ring), np.empty(K * width), np.empty(K * width)
    _fill(w, 0, ring, 1.0)
    _fill(powers, 0, ring, 4 * FORBIDDEN)
    here = pad
    for t in range(lines):
        _, _, begin, stop = _columns(t, lines, m, ends, reach)
        if by_row or t == 0:
            wrong_step += _weights(s, t * K * width if by_row else 0, K * width, step, step_power)
        from_a, from_b, from_c = here - moves[0, 0] * place, here - moves[1, 0] * place, here - moves[K - 1, 0] * place
        from_a += (ring if from_a < 0 else 0) - moves[0, 1]
        from_b += (ring if from_b < 0 else 0) - moves[1, 1]
        from_c += (ring if from_c < 0 else 0) - moves[K - 1, 1]
        to = t * K * width
        if keep:
            for k in range(to, to + K * width, width):
                _fill(q, k + max(begin - pad, 0), k + begin, 0.0)
                _fill(q, k + stop, k + min(stop + pad, width), 0.0)
        for j in range(begin, stop, LANES):
            e = load(powers, from_a + j) + load(step_power, j)
            f = load(powers, from_b + j) + load(step_power, width + j)
            g = f
            if three:
                g = load(powers, from_c + j) + load(step_power, two + j)
            top = maximum(maximum(e, f), g)
            a = load(w, from_a + j) * load(step, j) * ratio(e - top)
            b = load(w, from_b + j) * load(step, width + j) * ratio(f - top)
            c = spread(0.0)
            if three:
                c = load(w, from_c + j) * load(step, two + j) * ratio(g - top)
            total = a + b + c
            if t == 0:
                total, top = spread(1.0), spread(0.0)
            if keep:
                share = 1.0 / total if t > 0 else spread(0.0)
                store(q, to + j, above(a * share, NEGLIGIBLE))
                store(q, to + width + j, above(b * share, NEGLIGIBLE))
                if three:
                    store(q, to + two + j, above(c * share, NEGLIGIBLE))
            score = load(x, t * width + j)
            wrong += unknown(score)
            own, power = exponential(score)
            total, top = normal(total * own, top + power)
            store(w, here + j, total)
            store(powers, here + j, top)
        last, here = here, here + place if here + place < ring else pad
    top, total = 8 * FORBIDDEN, 0.0
    for j in range(max(m - ends, 0), m):
        top = max(top, powers[last + j])
    _fill(goal, 0, width, 0.0)
    for j in range(max(m - ends, 0), m):
        goal[j] = w[last + j] * power_of_two(powers[last + j] - top)
        total += goal[j]
    return logarithm(total, top) + added(wrong) + wrong_step, 1.0 / total if possible(top) else 0.0


@njit(**INLINE)
def _weigh(q, at, p, sums, to):
    """Multiply posteriors by the probability of their cells, and add them to the sums."""
    x = load(q, at) * p
    store(q, at, x)
    store(sums, to, load(sums, to) + x)


@njit(**INNER)
def _outside(lines, m, ends, reach, depth, moves, by_row, width, x, s, q, goal, share):
    """Write p of cells to x, and of moves to s, or their sums if rows share them; q becomes p of the moves."""
    K, size = len(moves), len(moves) * width
    _fill(q, lines * size, (lines + depth) * size, 0.0)
    _fill(s, 0, size * lines if by_row else size, 0.0)
    three = K > 2
    for t in range(lines - 1, -1, -1):
        _, _, begin, stop = _columns(t, lines, m, ends, reach)
        at, to = t * size, t * size if by_row else 0
        from_a = (t + moves[0, 0]) * size + moves[0, 1]
        from_b = (t + moves[1, 0]) * size + moves[1, 1] + width
        from_c = (t + moves[K - 1, 0]) * size + moves[K - 1, 1] + 2 * width
        for j in range(begin, stop, LANES):
            p = load(q, from_a + j) + load(q, from_b + j)
            if three:
                p += load(q, from_c + j)
            if t == lines - 1:
                p = load(goal, j) * share
            p = above(p, NEGLIGIBLE)
            store(x, t * width + j, p)
            _weigh(q, at + j, p, s, to + j)
            _weigh(q, at + width + j, p, s, to + width + j)
            if three:
                _weigh(q, at + 2 * width + j, p, s, to + 2 * width + j)


@njit(**COMPILE)
def _passes(first, step, work, form, moves, cells, steps, lengths, scale, log_z, out, step_out):
    """Compute log Z (B,), and unless `scale` (B,) is empty scale · p."""
    columns, ends, slope, reach, depth, by_row, width, pad = form
    goal, K, one = np.empty(width), len(moves), np.int64(1)  # a literal 1 would be compiled for itself
    for b in range(first, len(lengths), step):
        n, m = lengths[b]
        log_z[b] = 0.0
        if n == 0 or m == 0:
            continue
        lines = n + slope * (m - 1)
        # steps that all rows share are one line of their own
        rows, across, row, most = (lines, slope, columns * K, ends) if by_row else (1, 0, 0, m)
        x, s, q = work[first], work[first, lines * width :], work[first, lines * width + rows * K * width :]
        _read(cells, b, lines, m, ends, reach, one, columns, slope, width, x)
        _read(steps, b, rows, m, most, reach, K, row, across, width, s)
        log_z[b], share = _forward(
            lines, m, ends, reach, depth, moves, by_row, width, pad, x, s, q, len(scale) > 0, goal
        )
        if len(scale) > 0:
            _outside(lines, m, ends, reach, depth, moves, by_row, width, x, s, q, goal, share)
            # a score that is NaN makes all NaN, also where no path leads
            factor, known = (scale[b], ends) if log_z[b] < np.inf else (np.nan, ends if slope else m)
            _write(x, factor, lines, m, known, reach, one, columns, slope, width, out, b)
            _write(s, factor, rows, m, max(known, most), reach, K, row, across, width, step_out, b)


@lru_cache(maxsize=64)
def _moves(structure):
    """Return moves as lines and columns to go on by, slope, reach, the most lines of a move, and `pad`; None: it is for the engine."""
    slope = int(any(not down for down, _ in structure.moves))
    moves = np.array([(down + slope * right, right) for down, right in structure.moves])
    if len(moves) not in (2, 3) or (slope and structure.ends > 1):
        return None
    (depth, most), reach = moves.max(0).tolist(), max(-(-right // lines) for lines, right in moves.tolist())
    return moves, slope, reach, depth, -(-max(most, reach * depth) // LANES) * LANES


_NONE = np.empty((0, 0), np.float32), np.empty((0, 0))


def _pair(x):
    """Return an array (B, ...) as the kernels take it."""
    x = x.reshape(len(x), -1)
    return (x, _NONE[1]) if x.dtype == np.float32 else (_NONE[0], x)


class Lines:
    """Serves log Z and marginals of alignments by two or three moves; see `structure.Implementation`."""

    def takes(self, structure, scores):
        return can_run_kernel(*scores) and _moves(structure) is not None

    def passes(self, structure, scores, lengths, scale, which, each):
        (B, n, m), given = scores[0].shape, [numbers(s) for s in scores]
        moves, slope, reach, depth, pad = _moves(structure)
        K, lines, width = len(moves), n + slope * (m - 1), -(-m // LANES) * LANES + pad
        steps = given[1] if len(given) > 1 else np.zeros((1, m, K))
        by_row = steps.ndim == 4
        form = m, structure.ends, slope, reach, depth, by_row, width, pad
        work = scratch(B, (lines + K * (lines + depth + (lines if by_row else 1))) * width)
        found = {i: np.zeros(given[i].shape, given[i].dtype) for i in which if scale is not None}
        out, step_out = (_pair(found[i]) if i in found else _NONE for i in (0, 1))
        log_z, by = np.empty(B), NOTHING if scale is None else factors(scale, B)
        sizes = np.ascontiguousarray(lengths.numpy())
        over_batch(_passes, B, work, form, moves, _pair(given[0]), _pair(steps), sizes, by, log_z, out, step_out)
        return tensor(log_z, scores[0].dtype), tuple(map(torch.from_numpy, found.values()))
