# mypy: disallow-untyped-defs=False
"""Inside, outside and covariance passes, the k best and samples, over the derivations of any rule.

A rule is a table of nodes and runs (Klein and Manning 2001; Huang 2008). A node is an item of a dynamic program. A run is `count`
ways to make it, edges, from two smaller nodes each and a score, whose numbers go up by constant steps; so a table has O(1) rows for
a sum over split points. A derivation chooses an edge for its goal, then for each of the edge's tails. Its weight is the product of
the weights of its edges and of its nodes' own scores.

    nodes  (rows, 3)  the number of a node, its own score or NONE, its first run; tails come before heads. The last row: the end
    runs   (·, 7)     left tail and its step, right tail and its step, score and its step, count; tail 0 is the empty derivation
    goals  (B, 7)     the run of each sentence whose edges make whole structures
    rows   (B,)       the number of rows that a sentence needs

Scores of a sentence are numbered 0..P-1, those that all sentences share P..P+Q-1. LANES sentences are one vector, whose weights are
the ones of `simd`; all arrays are parts of one flat workspace w, w[0] is for node 0. q is the posterior of an edge given its node:

    p(edge) = p(v) q,   p(tail) gains p(edge)
    e(v) = g(own) + Σ q (g + e(left) + e(right)),   the expectation of Σ g inside v, with the gradient g to the marginals
    d(v) = p(v) E[Σ g outside v | v];  inside of v's own score d = d(v) + p(v) g(own):
    d(left) gains q d + p(edge) (g + e(right)), d(right) likewise
    gradient of an edge's score = q d + p(edge) (g + e(left) + e(right) − E[Σ g]), of an own score = d(v) + p(v) (e(v) − E[Σ g])

which are covariances: no pass takes a difference of large numbers.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from phrasemodels.structs.kernels import NONE as NONE
from phrasemodels.structs.kernels import over_batch, scratch
from phrasemodels.structs.kernels.simd import (
    COMPILE,
    FORBIDDEN,
    INLINE,
    INNER,
    LANES,
    WEIGHT,
    above,
    exponentials,
    highest,
    load,
    logarithm,
    maximum,
    normal,
    possible,
    power_of_two,
    ratio,
    spread,
    store,
)

NUMBER, OWN, FIRST = range(3)
LEFT, LEFT_STEP, RIGHT, RIGHT_STEP, PART, PART_STEP, COUNT = range(7)
NEGLIGIBLE = 1e-120  # a probability; products of smaller ones would be subnormal, for which processors are slow


class Table(NamedTuple):
    """A rule for the sizes of one batch: nodes and runs as above, the number of rows, and the largest number of a node plus 1."""

    nodes: np.ndarray
    runs: np.ndarray
    rows: int
    numbers: int


class Batch(NamedTuple):
    """Scores (B, P), float64 and below +inf, shared scores (Q,), goals (B, 7) and rows (B,)."""

    scores: np.ndarray
    shared: np.ndarray
    goals: np.ndarray
    rows: np.ndarray


@njit(**INLINE)
def add_node(nodes, row, number, own, run):
    """Write a row of `nodes`; return the next row."""
    nodes[row, NUMBER], nodes[row, OWN], nodes[row, FIRST] = number, own, run
    return row + 1


@njit(**INLINE)
def add_run(runs, row, left, left_step, right, right_step, part, part_step, count):
    """Write a row of `runs`; return the next row."""
    runs[row, LEFT], runs[row, LEFT_STEP], runs[row, RIGHT], runs[row, RIGHT_STEP] = left, left_step, right, right_step
    runs[row, PART], runs[row, PART_STEP], runs[row, COUNT] = part, part_step, count
    return row + 1


@njit(**INLINE)
def _fields(runs, run, at, size=WEIGHT):
    """Return the fields of a run as positions in the workspace, whose items have this size and whose scores begin at `at`; NONE for the
    score that is none."""
    part = runs[run, PART]
    return (
        runs[run, LEFT] * size, runs[run, LEFT_STEP] * size, runs[run, RIGHT] * size, runs[run, RIGHT_STEP] * size,
        at + part * size if part >= 0 else NONE, runs[run, PART_STEP] * size, runs[run, COUNT],
    )  # fmt: skip


@njit(**INLINE)
def _power(w, left, right, part):
    e = load(w, left + LANES) + load(w, right + LANES)
    return e + load(w, part + LANES) if part >= 0 else e


@njit(**INLINE)
def _mass(w, left, right, part, power):
    """Return the weight of an edge divided by 2^power."""
    m, e = load(w, left) * load(w, right), load(w, left + LANES) + load(w, right + LANES)
    return m * load(w, part) * ratio(e + load(w, part + LANES) - power) if part >= 0 else m * ratio(e - power)


@njit(**INLINE)
def _mass_of_one(w, left, part, power):
    """Return the weight of an edge with one tail and a score divided by 2^power."""
    return load(w, left) * load(w, part) * ratio(load(w, left + LANES) + load(w, part + LANES) - power)


@njit(**INLINE)
def _gain(w, at, x):
    store(w, at, load(w, at) + x)


@njit(**INNER)
def _open(w, at, block, order, batch):
    """Copy the weights of the scores of a block to the workspace; weights of shared scores with the first block of a workspace."""
    B, P = batch.scores.shape
    for lane in range(LANES):
        # the last block repeats its last sentence; nobody reads these lanes
        b = order[min(block + lane, B - 1)]
        for i in range(P):
            w[at + i * WEIGHT + lane] = batch.scores[b, i]
    exponentials(w, at, at + P * WEIGHT)


@njit(**INNER)
def _open_shared(w, at, shared):
    for i in range(len(shared)):
        store(w, at + i * WEIGHT, spread(shared[i]))
    exponentials(w, at, at + len(shared) * WEIGHT)


@njit(**INNER)
def _inside(w, at, rows, nodes, runs):
    """Fill the weights of the nodes of the first rows."""
    store(w, 0, spread(1.0))
    store(w, LANES, spread(0.0))
    for v in range(rows):
        begin, end, own = nodes[v, FIRST], nodes[v + 1, FIRST], nodes[v, OWN]
        m, top = spread(1.0), spread(FORBIDDEN)  # of a node that no edge makes
        # a single edge needs neither a maximum nor a power of two
        if end == begin + 1 and runs[begin, COUNT] == 1:
            left, _, right, _, part, _, _ = _fields(runs, begin, at)
            m, top = load(w, left) * load(w, right), _power(w, left, right, part)
            if part >= 0:
                m = m * load(w, part)
        elif end > begin:
            # below the power of any edge that is possible
            top = spread(8 * FORBIDDEN)
            for run in range(begin, end):
                left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at)
                if right == 0 and to_right == 0 and part >= 0:
                    for k in range(count):
                        top = maximum(top, load(w, left + k * to_left + LANES) + load(w, part + k * to_part + LANES))
                elif part >= 0:
                    for k in range(count):
                        top = maximum(top, _power(w, left + k * to_left, right + k * to_right, part + k * to_part))
                else:
                    for k in range(count):
                        top = maximum(top, _power(w, left + k * to_left, right + k * to_right, NONE))
            m = spread(0.0)
            for run in range(begin, end):
                left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at)
                if right == 0 and to_right == 0 and part >= 0:
                    for k in range(count):
                        m += _mass_of_one(w, left + k * to_left, part + k * to_part, top)
                elif part >= 0:
                    for k in range(count):
                        m += _mass(w, left + k * to_left, right + k * to_right, part + k * to_part, top)
                else:
                    for k in range(count):
                        m += _mass(w, left + k * to_left, right + k * to_right, NONE, top)
        if own >= 0:
            m, top = m * load(w, at + own * WEIGHT), top + load(w, at + own * WEIGHT + LANES)
        m, top = normal(m, top)
        here = nodes[v, NUMBER] * WEIGHT
        store(w, here, m)
        store(w, here + LANES, top)


@njit(**INNER)
def _goal(w, at, goal, lane):
    """Return the weight m · 2^e of all structures of one lane: the sum over a goal's run."""
    left, to_left, _, _, part, to_part, count = _fields(goal, 0, at)
    top, total = 8 * FORBIDDEN, 0.0
    for k in range(count):
        e = w[left + k * to_left + LANES + lane]
        top = max(top, e + w[part + k * to_part + LANES + lane] if part >= 0 else e)
    for k in range(count):
        total += _goal_mass(w, left + k * to_left, part + k * to_part if part >= 0 else NONE, lane, top)
    return total, top


@njit(**INNER)
def _goal_mass(w, left, part, lane, top):
    m, e = w[left + lane], w[left + LANES + lane]
    if part >= 0:
        m, e = m * w[part + lane], e + w[part + LANES + lane]
    return m * power_of_two(e - top)


@njit(**INNER)
def _outside(w, at, rows, nodes, runs, p, parts):
    """Add the probabilities of scores to `parts`; p of the tails of goals is there before, p of all other nodes is 0."""
    for v in range(rows - 1, -1, -1):
        here, own = nodes[v, NUMBER] * WEIGHT, nodes[v, OWN]
        mine = above(load(w, p + here // 2), NEGLIGIBLE)
        if highest(mine) == 0.0:
            continue
        share, power = mine / load(w, here), load(w, here + LANES)
        if own >= 0:
            _gain(w, parts + own * LANES, mine)
            # the weight of a node includes its own score, the weights of its edges do not
            share, power = share * load(w, at + own * WEIGHT), power - load(w, at + own * WEIGHT + LANES)
        for run in range(nodes[v, FIRST], nodes[v + 1, FIRST]):
            left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at)
            first = parts + (part - at) // 2
            # the right tail is the empty derivation, whose probability nobody reads
            if right == 0 and to_right == 0 and part >= 0:
                for k in range(count):
                    x = share * _mass_of_one(w, left + k * to_left, part + k * to_part, power)
                    _gain(w, p + (left + k * to_left) // 2, x)
                    _gain(w, first + k * to_part // 2, x)
                continue
            for k in range(count):
                one, other = left + k * to_left, right + k * to_right
                if part >= 0:
                    x = share * _mass(w, one, other, part + k * to_part, power)
                    _gain(w, first + k * to_part // 2, x)
                else:
                    x = share * _mass(w, one, other, NONE, power)
                _gain(w, p + one // 2, x)
                _gain(w, p + other // 2, x)


@njit(**INNER)
def _expectations(w, at, rows, nodes, runs, e, g):
    """Fill e of the nodes of the first rows."""
    store(w, e, spread(0.0))
    for v in range(rows):
        here, own, total = nodes[v, NUMBER] * WEIGHT, nodes[v, OWN], spread(0.0)
        share, power = 1.0 / load(w, here), load(w, here + LANES)
        if own >= 0:
            share, power = share * load(w, at + own * WEIGHT), power - load(w, at + own * WEIGHT + LANES)
        for run in range(nodes[v, FIRST], nodes[v + 1, FIRST]):
            left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at)
            first = g + (part - at) // 2
            for k in range(count):
                one, other = left + k * to_left, right + k * to_right
                both = load(w, e + one // 2) + load(w, e + other // 2)
                if part >= 0:
                    both += load(w, first + k * to_part // 2)
                    total += _mass(w, one, other, part + k * to_part, power) * both
                else:
                    total += _mass(w, one, other, NONE, power) * both
        total = total * share
        if own >= 0:
            total += load(w, g + own * LANES)
        store(w, e + here // 2, total)


@njit(**INNER)
def _covariances(w, at, rows, nodes, runs, p, d, e, g, mean, parts):
    """Add the gradients to scores to `parts`, from e and E[Σ g]; p and d of the tails of goals are there before."""
    middle = load(w, mean)
    for v in range(rows - 1, -1, -1):
        here, own = nodes[v, NUMBER] * WEIGHT, nodes[v, OWN]
        mine, out = above(load(w, p + here // 2), NEGLIGIBLE), load(w, d + here // 2)
        if highest(mine) == 0.0:
            continue
        share, power = 1.0 / load(w, here), load(w, here + LANES)
        if own >= 0:
            _gain(w, parts + own * LANES, out + mine * (load(w, e + here // 2) - middle))
            out += mine * load(w, g + own * LANES)
            share, power = share * load(w, at + own * WEIGHT), power - load(w, at + own * WEIGHT + LANES)
        mine, out = mine * share, out * share
        for run in range(nodes[v, FIRST], nodes[v + 1, FIRST]):
            left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at)
            first = (part - at) // 2
            for k in range(count):
                one, other = left + k * to_left, right + k * to_right
                a, b, own_g = load(w, e + one // 2), load(w, e + other // 2), spread(0.0)
                if part >= 0:
                    q, own_g = _mass(w, one, other, part + k * to_part, power), load(w, g + first + k * to_part // 2)
                else:
                    q = _mass(w, one, other, NONE, power)
                # the formulas above: p(edge) and q d, then d of both tails, then the gradient of the edge's score
                x, y = mine * q, out * q
                _gain(w, p + one // 2, x)
                _gain(w, p + other // 2, x)
                _gain(w, d + one // 2, y + x * (own_g + b))
                _gain(w, d + other // 2, y + x * (own_g + a))
                if part >= 0:
                    _gain(w, parts + first + k * to_part // 2, y + x * (own_g + a + b - middle))


@njit(**INNER)
def _begin(w, at, goal, lane, p, d, e, g, mean, parts, covariance):
    """Begin the outside pass, or with `covariance` the pass of gradients, with the tails of a goal of one lane."""
    total, top = _goal(w, at, goal, lane)
    if not possible(top):
        return
    left, to_left, _, _, part, to_part, count = _fields(goal, 0, at)
    for turn in range(2 if covariance else 1):  # E[Σ g], then what needs it
        for k in range(count):
            score = part + k * to_part if part >= 0 else NONE
            q = _goal_mass(w, left + k * to_left, score, lane, top) / total
            tail, scored = (left + k * to_left) // 2 + lane, (score - at) // 2 + lane
            inner = w[e + tail] if covariance else 0.0
            own = w[g + scored] if covariance and part >= 0 else 0.0
            if covariance and turn == 0:
                w[mean + lane] += q * (inner + own)
                continue
            w[p + tail] += q
            if covariance:
                w[d + tail] += q * own
            if part >= 0:
                w[parts + scored] += q * (own + inner - w[mean + lane]) if covariance else q


@njit(**COMPILE)
def _passes(first, step, work, order, table, batch, scale, grad, shared_grad, each, entropy, log_z, out, shared_out):
    """Compute log Z (B,); unless `scale` (B,) is empty, scale · p of all scores, or with `grad` (B, P) and `shared_grad` (1 or B, Q)
    their gradient. Shared scores get their sums (threads, Q), or with `each` (B, Q). entropy: subtract E[Σ score] from log Z."""
    w, (B, P), Q, V = work[first], batch.scores.shape, len(batch.shared), table.numbers
    at, wanted, covariance = V * WEIGHT, len(scale) > 0, grad.size + shared_grad.size > 0
    p, S = at + (P + Q) * WEIGHT, (P + Q) * LANES
    parts = p + V * LANES
    d, e = parts + S, parts + S + V * LANES
    g = e + V * LANES
    middle = g + S
    _open_shared(w, at + P * WEIGHT, batch.shared)
    for block in range(first * LANES, B, step * LANES):
        count = min(LANES, B - block)
        rows = batch.rows[order[block + count - 1]]
        _open(w, at, block, order, batch)
        _inside(w, at, rows, table.nodes, table.runs)
        for lane in range(count):
            b = order[block + lane]
            total, top = _goal(w, at, batch.goals[b : b + 1], lane)
            log_z[b] = logarithm(total, top)
        if not wanted:
            continue
        w[parts : parts + S] = 0.0
        for v in range(rows + 1):
            here = table.nodes[v, NUMBER] * LANES if v < rows else 0
            store(w, p + here, spread(0.0))
            if covariance:
                store(w, d + here, spread(0.0))
        if covariance:
            store(w, middle, spread(0.0))
            for lane in range(LANES):
                b = order[min(block + lane, B - 1)]
                for i in range(P):
                    w[g + i * LANES + lane] = grad[b, i] if grad.size > 0 else 0.0
                for i in range(Q):
                    row = min(b, len(shared_grad) - 1)
                    w[g + (P + i) * LANES + lane] = shared_grad[row, i] if shared_grad.size > 0 else 0.0
            _expectations(w, at, rows, table.nodes, table.runs, e, g)
        for lane in range(count):
            b = order[block + lane]
            _begin(w, at, batch.goals[b : b + 1], lane, p, d, e, g, middle, parts, covariance)
        if covariance:
            _covariances(w, at, rows, table.nodes, table.runs, p, d, e, g, middle, parts)
        else:
            _outside(w, at, rows, table.nodes, table.runs, p, parts)
        for lane in range(count):
            b = order[block + lane]
            for i in range(P if out.size > 0 else 0):
                out[b, i] = scale[b] * w[parts + i * LANES + lane]
            for i in range(Q if shared_out.size > 0 else 0):
                # each thread adds to its own row, so that sums need no lock
                shared_out[b if each else first, i] += scale[b] * w[parts + (P + i) * LANES + lane]
            mean = 0.0
            for i in range(P + Q if entropy else 0):
                x = w[parts + i * LANES + lane]
                if x > 0.0:
                    mean += x * (batch.scores[b, i] if i < P else batch.shared[i - P])
            log_z[b] -= mean


NOTHING = np.empty(0)


def passes(table, batch, scale=NOTHING, grad=None, shared_grad=None, wanted=(True, True), each=False, entropy=False):
    """Return log Z (B,), and unless `scale` (B,) is empty, scale · p of the scores (B, P) and of the shared ones (Q,), or with `each`
    (B, Q); with the gradients `grad` (B, P) and `shared_grad` (1 or B, Q) to marginals, the gradients to the scores. wanted: which of both
    are computed; the other is empty. entropy: return log Z − E[score] in place of log Z."""
    (B, P), Q = batch.scores.shape, len(batch.shared)
    # sorted by length: a block takes the rows of its longest sentence
    blocks, order = -(-B // LANES), np.argsort(batch.rows, kind="stable")
    own, shared = (bool(len(scale)) and one for one in wanted)
    log_z, out = np.empty(B), np.empty((B, P) if own else (0, 0))
    size = table.numbers * (WEIGHT + LANES) + (P + Q) * (WEIGHT + LANES)
    if grad is not None or shared_grad is not None:
        size += 2 * table.numbers * LANES + (P + Q) * LANES + LANES
    work = scratch(blocks, size)
    shared_out = np.zeros((B if each else len(work), Q) if shared else (0, 0))
    none = np.empty((0, 0))
    given = (none if x is None else np.ascontiguousarray(x, np.float64) for x in (grad, shared_grad))
    over_batch(_passes, blocks, work, order, table, batch, scale, *given, each, entropy, log_z, out, shared_out)
    return log_z, out, shared_out if each else shared_out.sum(0)


@njit(**INNER)
def _rows_of(table):
    """Return the row of each number."""
    rows_of = np.empty(table.numbers, np.int64)
    for v in range(table.rows):
        rows_of[table.nodes[v, NUMBER]] = v
    return rows_of


@njit(**INNER)
def _highest(w, at, rows, nodes, runs):
    """Fill the best scores of the nodes of the first rows."""
    store(w, 0, spread(0.0))
    for v in range(rows):
        top, own = spread(-np.inf), nodes[v, OWN]
        for run in range(nodes[v, FIRST], nodes[v + 1, FIRST]):
            left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at, LANES)
            if part < 0:
                for k in range(count):
                    top = maximum(top, load(w, left + k * to_left) + load(w, right + k * to_right))
            elif right == 0 and to_right == 0:
                for k in range(count):
                    top = maximum(top, load(w, left + k * to_left) + load(w, part + k * to_part))
            else:
                for k in range(count):
                    both = load(w, left + k * to_left) + load(w, right + k * to_right)
                    top = maximum(top, both + load(w, part + k * to_part))
        store(w, nodes[v, NUMBER] * LANES, top + load(w, at + own * LANES) if own >= 0 else top)


@njit(**INNER)
def _highest_of_block(w, at, block, order, table, batch):
    """Fill the best scores of all nodes that a block of sentences needs."""
    B, P = batch.scores.shape
    for i in range(len(batch.shared)):
        store(w, at + (P + i) * LANES, spread(batch.shared[i]))
    for lane in range(LANES):
        b = order[min(block + lane, B - 1)]
        for i in range(P):
            w[at + i * LANES + lane] = batch.scores[b, i]
    _highest(w, at, batch.rows[order[min(block + LANES, B) - 1]], table.nodes, table.runs)


@njit(**INLINE)
def _best_of(w, at, runs, begin, end, lane):
    """Return the first run and edge with the best score of one lane, and that score."""
    top, best_run, best_edge = -np.inf, begin, 0
    for run in range(begin, end):
        left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at, LANES)
        for k in range(count):
            x = w[left + k * to_left + lane] + w[right + k * to_right + lane]
            if part >= 0:
                x += w[part + k * to_part + lane]
            if x > top:
                top, best_run, best_edge = x, run, k
    return best_run, best_edge, top


@njit(**COMPILE)
def _best(first, step, work, order, table, batch, visible, score, chosen):
    w, B, at = work[first], len(batch.rows), table.numbers * LANES
    nodes, runs, rows_of, todo = table.nodes, table.runs, _rows_of(table), np.empty(table.rows + 2, np.int64)
    for block in range(first * LANES, B, step * LANES):
        _highest_of_block(w, at, block, order, table, batch)
        for lane in range(min(LANES, B - block)):
            b = order[block + lane]
            # without back pointers: the best edge is looked for again at the few nodes of the best derivation
            _, edge, score[b] = _best_of(w, at, batch.goals[b : b + 1], 0, 1, lane)
            used = size = 0
            if score[b] > -np.inf:
                used = _choose(_part(batch.goals, b, edge), visible, chosen, 0, b, 0)
                todo[0], size = batch.goals[b, LEFT] + edge * batch.goals[b, LEFT_STEP], 1
            while size > 0:
                size -= 1
                if todo[size] == 0:
                    continue
                # a stack in place of recursion: derivations are as deep as sentences are long
                v = rows_of[todo[size]]
                run, edge, _ = _best_of(w, at, runs, nodes[v, FIRST], nodes[v + 1, FIRST], lane)
                used = _choose(nodes[v, OWN], visible, chosen, 0, b, used)
                used = _choose(_part(runs, run, edge), visible, chosen, 0, b, used)
                todo[size] = runs[run, RIGHT] + edge * runs[run, RIGHT_STEP]
                todo[size + 1] = runs[run, LEFT] + edge * runs[run, LEFT_STEP]
                size += 2


def best(table, batch, visible, most):
    """Return the scores (B,) of the best derivations, and the scores that they use as `topk`, (1, B, most)."""
    B = len(batch.rows)
    blocks, order = -(-B // LANES), np.argsort(batch.rows, kind="stable")
    work = scratch(blocks, (table.numbers + batch.scores.shape[1] + len(batch.shared)) * LANES)
    score, chosen = np.empty(B), np.full((1, B, most), NONE)
    over_batch(_best, blocks, work, order, table, batch, visible, score, chosen)
    return score, chosen


@njit(**INLINE)
def _insert(best, origins, begin, k, x, origin):
    """Insert x into the list of k from `begin` on, before the first smaller one; the last one, which is smaller, is dropped."""
    at = begin + k - 1
    while at > begin and best[at - 1] < x:
        best[at], origins[at] = best[at - 1], origins[at - 1]
        at -= 1
    best[at], origins[at] = x, origin


@njit(**INLINE)
def _part(runs, run, edge):
    """Return the score of an edge, NONE if it has none."""
    return runs[run, PART] + edge * runs[run, PART_STEP] if runs[run, PART] >= 0 else NONE


@njit(**INLINE)
def _choose(part, visible, chosen, r, b, used):
    """Write a score that a derivation uses, if it is one of the first `visible`; return how many are written."""
    if 0 <= part < visible and used < chosen.shape[2]:
        chosen[r, b, used] = part
        return used + 1
    return used


class Lists(NamedTuple):
    """Best derivations of the nodes that need more than one: best and origins have k places for each slot, best first.

    slot: of each number, -1 if it has none, the last one's of a goal; followed: how many of a list have been followed by the next ones
    to try; used[0]: the slots. An origin has, from its low bits on, the ranks of both tails, in `bits` each, the edge in `wide` bits, and
    the run.
    """

    best: np.ndarray
    origins: np.ndarray
    slot: np.ndarray
    followed: np.ndarray
    used: np.ndarray
    k: int
    bits: int
    wide: int


@njit(**INLINE)
def _tails(runs, origin, lists):
    """Return run, edge, tails and their ranks of an origin."""
    ranks, edges = (1 << lists.bits) - 1, (1 << lists.wide) - 1
    run, edge = origin >> (2 * lists.bits + lists.wide), origin >> (2 * lists.bits) & edges
    left, right = runs[run, LEFT] + edge * runs[run, LEFT_STEP], runs[run, RIGHT] + edge * runs[run, RIGHT_STEP]
    return run, edge, left, right, origin >> lists.bits & ranks, origin & ranks


@njit(**INLINE)
def _ranked(w, lane, lists, number, rank):
    """Return the score of a derivation of a node, -inf if there is none."""
    return w[number * LANES + lane] if rank == 0 else lists.best[lists.slot[number] * lists.k + rank]


@njit(**INNER)
def _open_list(w, at, lane, runs, begin, end, own, number, lists):
    """Give a node a list, of its edges with the best derivations of their tails."""
    k = lists.k
    lists.slot[number] = slot = lists.used[0]
    lists.used[0], lists.followed[slot] = slot + 1, 0
    for rank in range(slot * k, slot * k + k):
        lists.best[rank] = -np.inf
    for run in range(begin, end):
        left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at, LANES)
        for edge in range(count):
            x = w[left + edge * to_left + lane] + w[right + edge * to_right + lane]
            if part >= 0:
                x += w[part + edge * to_part + lane]
            if x > lists.best[slot * k + k - 1]:
                _insert(lists.best, lists.origins, slot * k, k, x, (run << lists.wide | edge) << 2 * lists.bits)
    for rank in range(slot * k, slot * k + k):  # after the first is chosen, which is that of `_best_of`
        lists.best[rank] += own


@njit(**INNER)
def _follow(w, at, lane, table, goal, rows_of, number, rank, lists, todo):
    """Find the derivation of this rank of a node (Huang and Chiang 2005, algorithm 3): all better ones are followed by those that have the
    next derivation of one tail. Tails come first, by a stack."""
    k = lists.k
    todo[0, 0], todo[0, 1], size = number, rank, 1
    while size > 0:
        number, rank = todo[size - 1]
        runs, begin, end, part = goal, 0, 1, NONE
        if number < table.numbers:
            v = rows_of[number]
            runs, begin, end, part = table.runs, table.nodes[v, FIRST], table.nodes[v + 1, FIRST], table.nodes[v, OWN]
        own = w[at + part * LANES + lane] if part >= 0 else 0.0
        if lists.slot[number] < 0:
            _open_list(w, at, lane, runs, begin, end, own, number, lists)
        first = lists.slot[number] * k
        done = lists.followed[lists.slot[number]]
        if done >= rank or lists.best[first + done] == -np.inf:
            size -= 1
            continue
        run, edge, left, right, i, j = _tails(runs, lists.origins[first + done], lists)
        by_right, by_left = right > 0 and j + 1 < k, left > 0 and j == 0 and i + 1 < k
        if by_right and not _is_found(lists, right, j + 1):
            todo[size, 0], todo[size, 1], size = right, j + 1, size + 1
            continue
        if by_left and not _is_found(lists, left, i + 1):
            todo[size, 0], todo[size, 1], size = left, i + 1, size + 1
            continue
        score, origin = _part(runs, run, edge), lists.origins[first + done]
        more = w[at + score * LANES + lane] if score >= 0 else 0.0
        last = first + k - 1  # sums have the order of `_highest`, so that none is above that of better tails
        if by_right:
            x = _ranked(w, lane, lists, left, i) + _ranked(w, lane, lists, right, j + 1) + more + own
            if x > lists.best[last]:
                _insert(lists.best, lists.origins, first, k, x, origin + 1)
        if by_left:
            x = _ranked(w, lane, lists, left, i + 1) + _ranked(w, lane, lists, right, 0) + more + own
            if x > lists.best[last]:
                _insert(lists.best, lists.origins, first, k, x, origin + (1 << lists.bits))
        lists.followed[lists.slot[number]] = done + 1


@njit(**INLINE)
def _is_found(lists, number, rank):
    """Return whether the derivation of this rank of a node is known, or known not to exist."""
    slot = lists.slot[number]
    return slot >= 0 and (lists.followed[slot] >= rank or lists.best[slot * lists.k + lists.followed[slot]] == -np.inf)


@njit(**COMPILE)
def _topk(first, step, work, order, table, batch, wide, visible, score, chosen):
    w, B, k, at, goals = work[first], len(batch.rows), len(score), table.numbers * LANES, table.numbers
    runs, nodes, rows_of = table.runs, table.nodes, _rows_of(table)
    places = (table.rows + 1) * k
    bits = 0
    while k > 1 << bits:
        bits += 1
    best, origins, slot = np.empty(places), np.empty(places, np.int64), np.empty(goals + 1, np.int64)
    lists = Lists(best, origins, slot, np.empty(table.rows + 1, np.int64), np.zeros(1, np.int64), k, bits, wide)
    todo = np.empty((2 * table.rows + 2, 2), np.int64)
    for block in range(first * LANES, B, step * LANES):
        _highest_of_block(w, at, block, order, table, batch)
        for lane in range(min(LANES, B - block)):
            b = order[block + lane]
            goal = batch.goals[b : b + 1]
            lists.slot[:] = NONE
            lists.used[0] = 0
            for r in range(k):
                _follow(w, at, lane, table, goal, rows_of, goals, r, lists, todo)
                score[r, b], used, size = lists.best[r], 0, 0
                if score[r, b] > -np.inf:
                    _, edge, left, _, i, _ = _tails(goal, lists.origins[r], lists)
                    used = _choose(_part(goal, 0, edge), visible, chosen, r, b, used)
                    todo[0, 0], todo[0, 1], size = left, i, 1
                while size > 0:
                    size -= 1
                    number, rank = todo[size]
                    if number == 0:
                        continue
                    v = rows_of[number]
                    if rank == 0:
                        run, edge, _ = _best_of(w, at, runs, nodes[v, FIRST], nodes[v + 1, FIRST], lane)
                        left = runs[run, LEFT] + edge * runs[run, LEFT_STEP]
                        right = runs[run, RIGHT] + edge * runs[run, RIGHT_STEP]
                        i, j = 0, 0
                    else:
                        run, edge, left, right, i, j = _tails(runs, lists.origins[lists.slot[number] * k + rank], lists)
                    used = _choose(nodes[v, OWN], visible, chosen, r, b, used)
                    used = _choose(_part(runs, run, edge), visible, chosen, r, b, used)
                    todo[size, 0], todo[size, 1] = right, j
                    todo[size + 1, 0], todo[size + 1, 1] = left, i
                    size += 2


def topk(table, batch, k, visible, most):
    """Return the scores (k, B) of the k best derivations, and which of the first `visible` scores each uses, in pre-order, (k, B,
    most); NONE after the last."""
    B = len(batch.rows)
    blocks, order = -(-B // LANES), np.argsort(batch.rows, kind="stable")
    work = scratch(blocks, (table.numbers + batch.scores.shape[1] + len(batch.shared)) * LANES)
    used = table.nodes[table.rows, FIRST]  # `runs` may be longer than that
    wide = max(int(x[:, COUNT].max(initial=0)) for x in (table.runs[:used], batch.goals)).bit_length()
    score, chosen = np.empty((k, B)), np.full((k, B, most), NONE)
    over_batch(_topk, blocks, work, order, table, batch, wide, visible, score, chosen)
    return score, chosen


@njit(**INNER)
def _draw(w, at, runs, begin, end, lane, power, least):
    """Return the run and the edge at which the sum of weights divided by 2^power exceeds `least`, else the last that is possible."""
    total, run_found, edge_found = 0.0, begin, 0
    for run in range(begin, end):
        left, to_left, right, to_right, part, to_part, count = _fields(runs, run, at)
        left, right, part, scored = left + lane, right + lane, part + lane, part >= 0
        for edge in range(count):
            m, e = w[left], w[left + LANES] - power
            if right > lane:
                m, e = m * w[right], e + w[right + LANES]
            if scored:
                m, e = m * w[part], e + w[part + LANES]
            x = m * power_of_two(e)
            total += x
            if x > 0.0:
                run_found, edge_found = run, edge
            if total > least:
                return run, edge
            left, right, part = left + to_left, right + to_right, part + to_part
    # by rounding, the sum of all weights may stay below the one that was drawn from
    return run_found, edge_found


@njit(**COMPILE)
def _samples(first, step, work, order, table, batch, draws, visible, chosen):
    w, B, P, V = work[first], len(batch.rows), batch.scores.shape[1], table.numbers
    nodes, runs, rows_of, at = table.nodes, table.runs, _rows_of(table), V * WEIGHT
    todo = np.empty(table.rows + 2, np.int64)
    _open_shared(w, at + P * WEIGHT, batch.shared)
    for block in range(first * LANES, B, step * LANES):
        rows = batch.rows[order[min(block + LANES, B) - 1]]
        _open(w, at, block, order, batch)
        _inside(w, at, rows, nodes, runs)
        for lane in range(min(LANES, B - block)):
            b = order[block + lane]
            goal = batch.goals[b : b + 1]
            total, top = _goal(w, at, goal, lane)
            for s in range(len(draws) if possible(top) else 0):
                # not literal numbers, for which numba would compile another kernel
                _, edge = _draw(w, at, goal, np.int64(0), np.int64(1), lane, top, draws[s, b, 0] * total)
                todo[0], size, drawn = goal[0, LEFT] + edge * goal[0, LEFT_STEP], 1, 1
                used = _choose(_part(goal, 0, edge), visible, chosen, s, b, 0)
                while size > 0:
                    size -= 1
                    number = todo[size]
                    if number == 0:
                        continue
                    v = rows_of[number]
                    begin, end, own = nodes[v, FIRST], nodes[v + 1, FIRST], nodes[v, OWN]
                    run, edge = begin, 0
                    if end > begin + 1 or runs[begin, COUNT] > 1:
                        m, e = w[number * WEIGHT + lane], w[number * WEIGHT + LANES + lane]
                        if own >= 0:
                            m, e = m / w[at + own * WEIGHT + lane], e - w[at + own * WEIGHT + LANES + lane]
                        run, edge = _draw(w, at, runs, begin, end, lane, e, m * draws[s, b, drawn])
                        drawn += 1
                    used = _choose(own, visible, chosen, s, b, used)
                    used = _choose(_part(runs, run, edge), visible, chosen, s, b, used)
                    todo[size] = runs[run, RIGHT] + edge * runs[run, RIGHT_STEP]
                    todo[size + 1] = runs[run, LEFT] + edge * runs[run, LEFT_STEP]
                    size += 2


def samples(table, batch, draws, visible, most):
    """Return the scores that samples use as `topk`, (k, B, most), from uniform numbers draws (k, B, choices of a derivation)."""
    B = len(batch.rows)
    blocks, chosen = -(-B // LANES), np.full((len(draws), B, most), NONE)
    work = scratch(blocks, (table.numbers + batch.scores.shape[1] + len(batch.shared)) * WEIGHT)
    order = np.argsort(batch.rows, kind="stable")
    over_batch(_samples, blocks, work, order, table, batch, draws, visible, chosen)
    return chosen
