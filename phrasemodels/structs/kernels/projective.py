# mypy: disallow-untyped-defs=False
"""Best projective trees on the CPU. Vectors hold the right ends of spans, so that one sentence fills them too.

Charts of a sentence of N positions, the root at 0, are rows (N, W) of best scores by left end i, one after the other in a
flat workspace w: complete spans with head i (RIGHT) or j (LEFT), and incomplete ones (OPEN_RIGHT, OPEN_LEFT). A row is
filled from those below it: as soon as a cell [i, k] is known, it is added to the whole row k, and the sums are kept where
they are larger. Splits are found again along the best tree. Sums have the type of the scores and the order of the
reference, and the first of equal splits is taken, so that the heads are those of the reference.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import numbers, over_batch, scratch
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, larger, load, spread, store

RIGHT, LEFT, OPEN_RIGHT, OPEN_LEFT, MEET = range(
    5
)  # MEET is one row: the part that both incomplete spans of i, j share


@njit(**COMPILE)
def _row(N):
    """Return N rounded up to a multiple of 8, so that a row has whole vectors."""
    return -(-N // 8) * 8


@njit(**INLINE)
def _push(w, x, other, to, first, N):
    """Set w[to + j] = max(w[to + j], x + w[other + j]) for j = first..N-1, and some j before, where w[other + j] is -inf."""
    width = 32 // w.itemsize
    add = spread(x)
    for j in range(first // width * width, N, width):
        store(w, to + j, larger(add + load(w, other + j), load(w, to + j)))


@njit(**COMPILE)
def _fill(w, arcs, N, one_root):
    """Fill the charts from arcs (≥ N, ≥ N); return whether none is NaN or +inf."""
    W, known = _row(N), True
    M = N * W
    for x in range((4 * N + 1) * W):
        w[x] = -np.inf
    meet = MEET * M
    for i in range(N - 1, -1, -1):
        right, left, left_open = i * W, LEFT * M + i * W, OPEN_LEFT * M + i * W
        w[right + i] = w[left + i] = 0.0
        for j in range(N):
            w[meet + j] = -np.inf
        for k in range(i, N):
            if k > i:
                known &= arcs[i, k] < np.inf
                w[OPEN_RIGHT * M + i * W + k] = w[meet + k] + arcs[i, k]
                _push(w, w[OPEN_RIGHT * M + i * W + k], k * W, right, k, N)
                if i > 0:
                    known &= arcs[k, i] < np.inf
                    w[left_open + k] = w[meet + k] + arcs[k, i]
                    w[left + k] = max(w[left + k], w[left_open + k])
                    _push(w, w[left + k], OPEN_LEFT * M + k * W, left, k + 1, N)
                elif one_root and k + 1 < N:
                    w[right + k] = -np.inf  # the root would need a second arc
            if k + 1 < N:
                _push(w, w[right + k], LEFT * M + (k + 1) * W, meet, k + 1, N)
    return known


@njit(**COMPILE)
def _split(w, left, right, n, W):
    """Return the first k of n with the largest w[left + k] + w[right + k · W]."""
    top, best = w[left] + w[right], 0
    for k in range(1, n):
        x = w[left + k] + w[right + k * W]
        if x > top:
            top, best = x, k
    return best


@njit(**COMPILE)
def _follow(w, N, todo, heads):
    """Write the heads of the best tree; todo (≥ 2N, 3) holds cells: kind, i, j."""
    W = _row(N)
    M = N * W
    todo[0, 0], todo[0, 1], todo[0, 2], size = RIGHT, 0, N - 1, 1
    while size > 0:
        size -= 1
        kind, i, j = todo[size]
        if i == j:
            continue
        row, n = i * W, j - i
        if kind == RIGHT:
            k = i + 1 + _split(w, OPEN_RIGHT * M + row + i + 1, (i + 1) * W + j, n, W)
            one, other, at = OPEN_RIGHT, RIGHT, k
        elif kind == LEFT:
            k = i + _split(w, LEFT * M + row + i, OPEN_LEFT * M + row + j, n, W)
            one, other, at = LEFT, OPEN_LEFT, k
        else:
            heads[j if kind == OPEN_RIGHT else i] = i if kind == OPEN_RIGHT else j
            k = i + _split(w, row + i, LEFT * M + row + W + j, n, W)
            one, other, at = RIGHT, LEFT, k + 1
        todo[size, 0], todo[size, 1], todo[size, 2] = one, i, k
        todo[size + 1, 0], todo[size + 1, 1], todo[size + 1, 2] = other, at, j
        size += 2


@njit(**COMPILE)
def _trees(first, step, work, arcs, lengths, one_root, score, heads, unknown):
    w = work[first]
    todo = np.empty((2 * arcs.shape[1] + 2, 3), np.int64)
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        if not _fill(w, arcs[b], N, one_root):
            unknown[0] = True
        total = 0.0
        _follow(w, N, todo, heads[b])
        for m in range(1, N):
            total += arcs[b, heads[b, m], m]
        score[b] = total
        if w[N - 1] == -np.inf:
            score[b], heads[b] = -np.inf, -1


def argmax(arcs: Tensor, lengths: Tensor, one_root: bool) -> tuple[Tensor, Tensor] | None:
    """Return the score (B,) and heads (B, N) of `eisner.argmax`, or None if a score is NaN or +inf: arcs (B, N, N),
    lengths (B,)."""
    B, N, _ = arcs.shape
    scores = numbers(arcs)
    score, heads, unknown = np.empty(B, scores.dtype), np.full((B, N), -1), np.zeros(1, np.bool_)
    work = scratch(B, (4 * N + 1) * _row.py_func(N)).view(scores.dtype)
    over_batch(_trees, B, work, scores, lengths.numpy(), one_root, score, heads, unknown)
    return None if unknown[0] else (torch.from_numpy(score), torch.from_numpy(heads))
