# mypy: disallow-untyped-defs=False
"""Best trees on the CPU: labelled spans, and spans with heads. Charts hold best scores only; splits and labels are found again along the
best tree. Sums have the type of the scores and the order of the torch path, and the first of equal splits is taken, so that the trees
equal the torch path's. The rules of spans, projective trees and joint trees for the engine are at the end: their structures can decode a
short sentence by torch, without numba.

Shapes: B sentences, n words of a sentence, N = max n, L labels. Arrays are read as flat memory, from a position on.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import Kernel, Scores, numbers, over_batch, scratch, tensor
from phrasemodels.structs.kernels.engine import FIRST, NONE, add_node, add_run
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, INNER, highest, larger, load, number, spread, store

if TYPE_CHECKING:
    from phrasemodels.structs.structure import Structure


@njit(**INLINE)
def _width(x):
    """Return the number of elements of x that `load` reads."""
    return 32 // x.itemsize


@njit(**INLINE)
def _largest(x, at, n):
    """Return the largest of the n numbers of x from `at` on."""
    width = _width(x)
    if n < width:
        few = number(x, at)
        for k in range(at + 1, at + n):
            few = max(few, number(x, k))
        return few
    top = load(x, at + n - width)  # may overlap with the last step of the loop
    for k in range(at, at + n - width, width):
        top = larger(top, load(x, k))
    return highest(top)


@njit(**INLINE)
def _largest_sum(x, at, y, to, n):
    """Return max_k x[at + k] + y[to + k] over n values of k."""
    width = _width(x)
    if n < width:
        few = number(x, at) + number(y, to)
        for k in range(1, n):
            few = max(few, number(x, at + k) + number(y, to + k))
        return few
    top = load(x, at + n - width) + load(y, to + n - width)
    for k in range(0, n - width, width):
        top = larger(top, load(x, at + k) + load(y, to + k))
    return highest(top)


@njit(**INNER)
def _argmax(x, at, n):
    """Return the first k with the largest x[at + k], of n."""
    top = _largest(x, at, n)
    for k in range(n):
        if number(x, at + k) == top:
            return k
    return 0


@njit(**INNER)
def _argmax_of_sum(x, at, y, to, n):
    """Return the first k with the largest x[at + k] + y[to + k], of n."""
    top = _largest_sum(x, at, y, to, n)
    for k in range(n):
        if number(x, at + k) + number(y, to + k) == top:
            return k
    return 0


@njit(**INNER)
def _fill_spans(labels, n, best, best_t):
    """Fill best[i, j] = best_t[j, i], the score of the best labelled tree over words i..j."""
    _, N, L = labels.shape
    for i in range(n):
        for j in range(i, n):  # in the order of memory, as reading labels takes most of the time
            best[i, j] = _largest(labels, (i * N + j) * L, L)
    for i in range(n):
        best_t[i, i] = best[i, i]
    for j in range(1, n):
        for i in range(j - 1, -1, -1):
            best[i, j] += _largest_sum(best, i * n + i, best_t, j * n + i + 1, j - i)
            best_t[j, i] = best[i, j]


@njit(**COMPILE)
def _spans(first, step, labels, lengths, score, cells):
    _, N, _, L = labels.shape
    for b in range(first, len(lengths), step):
        n = lengths[b]
        score[b] = 0.0
        if n == 0:
            continue
        best, best_t = np.empty((n, n)), np.empty((n, n))
        _fill_spans(labels[b], n, best, best_t)
        score[b] = best[0, n - 1]
        todo, size = np.empty((n + 1, 2), np.int64), 1
        todo[0, 0], todo[0, 1] = 0, n - 1
        for row in range(2 * n - 1 if score[b] > -np.inf else 0):
            size -= 1
            i, j = todo[size]
            cells[b, row, 0], cells[b, row, 1] = i, j
            cells[b, row, 2] = _argmax(labels, ((b * N + i) * N + j) * L, L)
            if i < j:
                k = i + _argmax_of_sum(best, i * n + i, best_t, j * n + i + 1, j - i)
                todo[size, 0], todo[size, 1] = k + 1, j
                todo[size + 1, 0], todo[size + 1, 1] = i, k
                size += 2


def best_spans(labels, lengths):
    """Return the score (B,) and cells (B, 2N-1, 3) of best trees: labels (B, N, N, L), lengths (B,)."""
    B, n, _, _ = labels.shape
    score, cells = np.empty(B), np.full((B, max(2 * n - 1, 0), 3), -1)
    over_batch(_spans, B, numbers(labels), lengths.numpy(), score, cells)
    return tensor(score, labels.dtype), torch.from_numpy(cells)


@njit(**INLINE)
def _merge(charts, body, add, hook, first, last, best):
    """Set best[h] = max(best[h], body[h] + add + hook[h]) for all h in the vectors that hold first..last."""
    width = _width(charts)
    more = spread(add)
    for h in range(first // width * width, last + 1, width):
        x = load(charts, body + h) + load(charts, hook + h) + more
        store(charts, best + h, larger(x, load(charts, best + h)))


@njit(**INLINE)
def _hook(charts, body, first, last, add, arcs_t, hook):
    """Set hook[h] = max_m body[m] + add + arcs_t[m, h] over m in first..last, for all h."""
    width, H = _width(charts), arcs_t.shape[1]
    for h in range(0, H, 2 * width):
        top = spread(number(charts, body + first) + add)
        one, other = top + load(arcs_t, first * H + h), top + load(arcs_t, first * H + h + width)
        for m in range(first + 1, last + 1):
            top = spread(number(charts, body + m) + add)
            one = larger(one, top + load(arcs_t, m * H + h))
            other = larger(other, top + load(arcs_t, m * H + h + width))
        store(charts, hook + h, one)
        store(charts, hook + h + width, other)


@njit(**INNER)
def _fill_joint(real, free, arcs_t, charts):
    """Fill the chart of bodies, charts[0], and the chart of hooks, charts[1].

    charts[0, i, j, h]: best score of words i..j headed by h, without the label of i..j; -inf for h outside i..j.
    charts[1, i, j, h]: best score of words i..j with a label that is not empty and the arc from a head h outside i..j.
    real, free (n, n): best score of a label that is not empty, and of any label. arcs_t[m, h]: score of h → m, -inf for
    h ≥ n.
    """
    n, H = len(real), arcs_t.shape[1]
    hooks, width = n * (n + 1) * H, _width(charts)
    lowest = real.dtype.type(-np.inf)
    for j in range(n):
        for i in range(j, -1, -1):
            best = (i * (n + 1) + j) * H
            for h in range(i // width * width, j + 1, width):
                store(charts, best + h, spread(lowest))
            if i == j:
                charts[0, i, i, i] = 0.0
            for k in range(i, j):
                one, other = (i * (n + 1) + k) * H, ((k + 1) * (n + 1) + j) * H
                _merge(charts, one, free[i, k], hooks + other, i, k, best)
                _merge(charts, other, free[k + 1, j], hooks + one, k + 1, j, best)
            _hook(charts, best, i, j, real[i, j], arcs_t, hooks + best)


@njit(**INNER)
def _best_merge(i, j, h, free, body, hooks):
    """Return the split k of the best tree over words i..j headed by h."""
    top, best = -np.inf, i if h > i else h
    for k in range(i, j):
        from_left = body[i, k, h] + hooks[k + 1, j, h] + free[i, k]
        x = from_left if h <= k else body[k + 1, j, h] + hooks[i, k, h] + free[k + 1, j]
        if x > top:
            top, best = x, k
    return best


@njit(**INNER)
def _label_scores(labels, real, free):
    """Fill real and free (n, n) as `_fill_joint` takes them; a single word may have the empty label."""
    n, N, L = len(real), labels.shape[1], labels.shape[2]
    for i in range(n):
        for j in range(i, n):
            real[i, j] = _largest(labels, (i * N + j) * L + 1, L - 1)
            free[i, j] = max(real[i, j], labels[i, j, 0])
        real[i, i] = free[i, i]


@njit(**INNER)
def _push_cell(todo, at, i, j, head, must):
    todo[at, 0], todo[at, 1], todo[at, 2], todo[at, 3] = i, j, head, must


@njit(**INNER)
def _follow(labels, arcs_t, free, body, hooks, todo, cells, heads):
    """Write the cells, in pre-order, and heads of the best tree. todo holds (i, j, head, 1 if the label must not be empty)."""
    _, N, L = labels.shape
    size, row = 1, 0
    while size > 0:
        size -= 1
        i, j, h, must = todo[size]
        first = 1 if must and i < j else 0
        cells[row, 0], cells[row, 1] = i, j
        cells[row, 2] = first + _argmax(labels, (i * N + j) * L + first, L - first)
        row += 1
        if i < j:
            k = _best_merge(i, j, h, free, body, hooks)
            a, b = (k + 1, j) if h <= k else (i, k)
            m, top = a, body[a, b, a] + arcs_t[a, h]
            for other in range(a + 1, b + 1):
                x = body[a, b, other] + arcs_t[other, h]
                if x > top:
                    m, top = other, x
            heads[m + 1] = h + 1
            one, other = (m, h) if h <= k else (h, m)
            _push_cell(todo, size, k + 1, j, one, h <= k)
            _push_cell(todo, size + 1, i, k, other, h > k)
            size += 2


@njit(**COMPILE)
def _joint(first, step, work, labels, arcs, lengths, score, cells, heads):
    for b in range(first, len(lengths), step):
        n = lengths[b]
        score[b] = 0.0
        if n == 0:
            continue
        H = _heads(n)
        real, free = np.empty((n, n), labels.dtype), np.empty((n, n), labels.dtype)
        _label_scores(labels[b], real, free)
        arcs_t = np.empty((n, H), labels.dtype)
        for m in range(n):
            for h in range(H):
                arcs_t[m, h] = arcs[b, h + 1, m + 1] if h < n else -np.inf
        # n + 1, not n, so that the cells of a column fall into different cache sets
        charts = work[first, : 2 * n * (n + 1) * H].reshape((2, n, n + 1, H))
        _fill_joint(real, free, arcs_t, charts)
        h, top = 0, charts[0, 0, n - 1, 0] + arcs[b, 0, 1]
        for other in range(1, n):
            x = charts[0, 0, n - 1, other] + arcs[b, 0, other + 1]
            if x > top or x != x:
                h, top = other, x
        score[b] = top + real[0, n - 1]
        if score[b] == -np.inf:
            continue
        heads[b, h + 1] = 0
        todo = np.empty((n + 1, 4), np.int64)
        _push_cell(todo, 0, 0, n - 1, h, True)
        _follow(labels[b], arcs_t, free, charts[0], charts[1], todo, cells[b], heads[b])


@njit(**INNER)
def _heads(n):
    """Return n rounded up to a multiple of 16, the most heads that one step of `_hook` takes."""
    return -(-n // 16) * 16


def best_joint(labels, arcs, lengths):
    """Return the score (B,), cells (B, 2N-1, 3) and heads (B, N+1) of best trees: labels (B, N, N, L), arcs (B, N+1, N+1), lengths (B,)."""
    B, n, _, _ = labels.shape
    score, cells, heads = np.empty(B), np.full((B, max(2 * n - 1, 0), 3), -1), np.full((B, n + 1), -1)
    x, y = numbers(labels), numbers(arcs)
    size = 2 * n * (n + 1) * _heads.py_func(n) * x.itemsize // 8  # in float64, of charts in the type of the scores
    work = scratch(B, size).view(x.dtype)
    over_batch(_joint, B, work, x, y, lengths.numpy(), score, cells, heads)
    return tensor(score, labels.dtype), torch.from_numpy(cells), torch.from_numpy(heads)


class BestSpans(Kernel):
    """Serves best labelled spans on the CPU; see `Kernel`."""

    def best(self, structure: "Structure", scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return best_spans(scores[0], lengths[:, 0])


@njit(**COMPILE)
def spans_rule(n: Any, L: Any, labels: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Nodes of the words i..j are 1 + 2 (i · n + j): its two halves, and 1 more: with a label."""
    v = r = 0
    for j in range(n):
        for i in range(j, -1, -1):
            here, below, own = 1 + 2 * (i * n + j), 1 + 2 * (i * n + i), 1 + 2 * ((i + 1) * n + j)
            if i < j:
                v = add_node(nodes, v, here, NONE, r)
                r = add_run(runs, r, below + 1, 2, own + 1, 2 * n, NONE, 0, j - i)
            v = add_node(nodes, v, here + 1, NONE, r)
            r = add_run(runs, r, here if i < j else 0, 0, 0, 0, labels + (i * n + j) * L, 1, L)
        ends[j + 1] = v
    nodes[v, FIRST] = r
    return v


@njit(**COMPILE)
def eisner_rule(N: Any, one_root: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Nodes of the positions i..j begin at 1 + 5 (i · N + j): complete spans with the head i or j, incomplete ones with the head i or j,
    and the part that both incomplete ones share."""
    v = r = 0
    row, column = 5 * N, 5
    for j in range(N):
        for kind in range(2):
            v = add_node(nodes, v, 1 + j * row + j * column + kind, NONE, r)
            r = add_run(runs, r, 0, 0, 0, 0, NONE, 0, 1)
        for i in range(j - 1, -1, -1):
            here, below, own = 1 + i * row + j * column, 1 + i * row + i * column, 1 + (i + 1) * row + j * column
            # with one root arc, the root has no complete span that another arc of it could follow
            splits = 1 if one_root and i == 0 else j - i
            v = add_node(nodes, v, here + 4, NONE, r)
            # ⊕_k C→(i,k) ⊗ C←(k+1,j), shared by both directions; the equations are those of `inside`
            r = add_run(runs, r, below, column, own + 1, row, NONE, 0, splits)
            # I→(i,j)
            v = add_node(nodes, v, here + 2, i * N + j, r)
            r = add_run(runs, r, here + 4, 0, 0, 0, NONE, 0, 1)
            if i > 0:
                # I←(i,j); the root, i = 0, has no head
                v = add_node(nodes, v, here + 3, j * N + i, r)
                r = add_run(runs, r, here + 4, 0, 0, 0, NONE, 0, 1)
                v = add_node(nodes, v, here + 1, NONE, r)
                # C←(i,j)
                r = add_run(runs, r, below + 1, column, here + 3, row, NONE, 0, j - i)
            v = add_node(nodes, v, here, NONE, r)
            # C→(i,j)
            r = add_run(runs, r, below + column + 2, column, own, row, NONE, 0, j - i)
        ends[j] = v
    nodes[v, FIRST] = r
    return v


@njit(**COMPILE)
def joint_rule(n: Any, L: Any, labels: Any, arcs: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Nodes of the words i..j begin at 1 + (i · n + j) (4n + 2): for each head h, the hook W, the body with any label U and with a full one
    V, and the body; then any label of the span, and any full one."""
    v = r = 0
    width = 4 * n + 2
    row, column = n * width, width
    for j in range(n):
        for k in range(j):  # the hooks of the head j, of spans before it
            for i in range(k + 1):
                here = 1 + i * row + k * column
                v = add_node(nodes, v, here + j, NONE, r)
                r = add_run(runs, r, here + 2 * n + i, 1, 0, 0, arcs + (j + 1) * (n + 1) + i + 1, 1, k - i + 1)
        for i in range(j, -1, -1):
            here, below, right = 1 + i * row + j * column, 1 + i * row + i * column, 1 + (i + 1) * row + j * column
            label = labels + (i * n + j) * L
            v = add_node(nodes, v, here + 4 * n, NONE, r)
            r = add_run(runs, r, 0, 0, 0, 0, label, 1, L)
            v = add_node(nodes, v, here + 4 * n + 1, NONE, r)
            r = add_run(runs, r, 0, 0, 0, 0, label + 1, 1, L - 1)
            for h in range(i, j + 1):
                v = add_node(nodes, v, here + 3 * n + h, NONE, r)
                if i == j:
                    r = add_run(runs, r, 0, 0, 0, 0, NONE, 0, 1)
                if h < j:  # the head is in the left half
                    r = add_run(
                        runs,
                        r,
                        below + (h - i) * column + n + h,
                        column,
                        right + (h - i) * row + h,
                        row,
                        NONE,
                        0,
                        j - h,
                    )
                if h > i:
                    r = add_run(runs, r, below + h, column, right + n + h, row, NONE, 0, h - i)
                v = add_node(nodes, v, here + n + h, NONE, r)
                r = add_run(runs, r, here + 3 * n + h, 0, here + 4 * n, 0, NONE, 0, 1)
                v = add_node(nodes, v, here + 2 * n + h, NONE, r)  # a single word may have the empty label
                r = add_run(runs, r, here + 3 * n + h, 0, here + 4 * n + (1 if i < j else 0), 0, NONE, 0, 1)
            for h in range(i):
                v = add_node(nodes, v, here + h, NONE, r)
                r = add_run(runs, r, here + 2 * n + i, 1, 0, 0, arcs + (h + 1) * (n + 1) + i + 1, 1, j - i + 1)
        ends[j + 1] = v
    nodes[v, FIRST] = r
    return v
