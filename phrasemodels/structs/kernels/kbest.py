# mypy: disallow-untyped-defs=False
"""The k best sequences of linear chains and projective trees on the CPU (Huang and Chiang 2005).

A cell has a list of at most k scores, best first, in float64. A list is filled from pairs of lists: an element is inserted if
it is better than the last one, and a pair of lists is left as soon as its next sum is not. Forbidden parts are in no list,
so a list may be short; it ends with -inf.

Shapes: B sentences, T positions, C tags, N tree positions.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import numbers, over_batch
from phrasemodels.structs.kernels.simd import COMPILE, INLINE

RIGHT, LEFT, OPEN_RIGHT, OPEN_LEFT = range(4)


@njit(**INLINE)
def insert(scores, origins, x, origin):
    """Insert x before the first smaller score; the last one is dropped. x is larger than the last one."""
    at = len(scores) - 1
    while at > 0 and scores[at - 1] < x:
        scores[at], origins[at] = scores[at - 1], origins[at - 1]
        at -= 1
    scores[at], origins[at] = x, origin


@njit(**COMPILE)
def _best_tags(unary, pairwise, n, best, origins):
    """Fill best and origins (T, C, k); an origin is the tag before times k, plus its rank."""
    C, k = best.shape[1:]
    best[:n] = -np.inf
    for t in range(n):
        pairs = pairwise[t - 1 if len(pairwise) > 1 else 0]
        for c in range(C):
            if t == 0:
                best[0, c, 0], origins[0, c, 0] = unary[0, c], 0
                continue
            for j in range(C):
                for r in range(k):
                    x = best[t - 1, j, r] + pairs[j, c] + unary[t, c]
                    if not x > best[t, c, k - 1]:
                        break
                    insert(best[t, c], origins[t, c], x, j * k + r)


@njit(**COMPILE)
def _chains(first, step, unary, pairwise, lengths, score, tags):
    k, (B, T, C) = len(score), unary.shape
    best, origins = np.empty((T, C, k)), np.empty((T, C, k), np.int64)
    top, last = np.empty(k), np.empty(k, np.int64)
    for b in range(first, B, step):
        n = lengths[b]
        _best_tags(unary[b], pairwise[b if len(pairwise) > 1 else 0], n, best, origins)
        top[:] = -np.inf
        if n == 0:
            top[0] = 0.0
        for c in range(C if n > 0 else 0):
            for r in range(k):
                if best[n - 1, c, r] > top[k - 1]:
                    insert(top, last, best[n - 1, c, r], c * k + r)
        for r in range(k):
            score[r, b] = top[r]
            for t in range(n - 1 if top[r] > -np.inf else -1, -1, -1):
                tag = last[r] // k
                tags[r, b, t], last[r] = tag, origins[t, tag, last[r] % k]


def chains(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the scores (k, B), float64, and tags (k, B, T) of `chain.topk`."""
    (B, T, _), pairs = unary.shape, pairwise[None, None] if pairwise.dim() == 2 else pairwise
    score, tags = np.empty((k, B)), np.full((k, B, T), -1)
    over_batch(_chains, B, numbers(unary), numbers(pairs), lengths.numpy(), score, tags)
    return torch.from_numpy(score), torch.from_numpy(tags)


@njit(**COMPILE)
def _merge(left, right, split, best, origins):
    """Insert the sums of two lists; an origin is (split · k + rank on the left) · k + rank on the right."""
    k = len(best)
    for a in range(k):
        if not left[a] + right[0] > best[k - 1]:
            break
        for b in range(k // (a + 1)):  # (a + 1) (b + 1) - 1 sums are better
            x = left[a] + right[b]
            if not x > best[k - 1]:
                break
            insert(best, origins, x, (split * k + a) * k + b)


@njit(**COMPILE)
def _best_trees(arcs, N, one_root, best, origins):
    """Fill best and origins (4, N, N, k) for the spans i..j of each kind."""
    best[:, :N, :N] = -np.inf
    for i in range(N):
        best[RIGHT, i, i, 0] = best[LEFT, i, i, 0] = 0.0
    for j in range(1, N):
        for i in range(j - 1, -1, -1):
            meet, split = best[OPEN_RIGHT, i, j], origins[OPEN_RIGHT, i, j]
            for m in range(i, j):
                _merge(best[RIGHT, i, m], best[LEFT, m + 1, j], m, meet, split)
            if i > 0:
                best[OPEN_LEFT, i, j] = meet + arcs[j, i]
                origins[OPEN_LEFT, i, j] = split
            meet += arcs[i, j]
            for m in range(i + 1, j + 1):
                if not (one_root and i == 0 and m < j and j < N - 1):
                    _merge(best[OPEN_RIGHT, i, m], best[RIGHT, m, j], m, best[RIGHT, i, j], origins[RIGHT, i, j])
            if one_root and i == 0 and j < N - 1:
                best[RIGHT, i, j] = -np.inf  # the root would need a second arc
            for m in range(i, j if i > 0 else i):
                _merge(best[LEFT, i, m], best[OPEN_LEFT, m, j], m, best[LEFT, i, j], origins[LEFT, i, j])


@njit(**COMPILE)
def _follow(origins, N, rank, todo, heads):
    """Write the heads of the tree of a rank; todo (≥ 2N, 4) holds cells: kind, i, j, rank."""
    k, size = origins.shape[3], 1
    todo[0] = RIGHT, 0, N - 1, rank
    while size > 0:
        size -= 1
        kind, i, j, r = todo[size]
        if i == j:
            continue
        if kind == OPEN_RIGHT:
            heads[j] = i
        elif kind == OPEN_LEFT:
            heads[i] = j
        origin = origins[kind, i, j, r]
        m, a, b = origin // (k * k), origin // k % k, origin % k
        if kind == RIGHT:
            todo[size], todo[size + 1] = (OPEN_RIGHT, i, m, a), (RIGHT, m, j, b)
        elif kind == LEFT:
            todo[size], todo[size + 1] = (LEFT, i, m, a), (OPEN_LEFT, m, j, b)
        else:
            todo[size], todo[size + 1] = (RIGHT, i, m, a), (LEFT, m + 1, j, b)
        size += 2


@njit(**COMPILE)
def _trees(first, step, arcs, lengths, one_root, score, heads):
    k, (B, N) = len(score), arcs.shape[:2]
    best, origins = np.empty((4, N, N, k)), np.empty((4, N, N, k), np.int64)
    todo = np.empty((2 * N + 2, 4), np.int64)
    for b in range(first, B, step):
        n = lengths[b]
        _best_trees(arcs[b], n + 1, one_root, best, origins)
        for r in range(k):
            score[r, b] = best[RIGHT, 0, n, r]
            if score[r, b] > -np.inf:
                _follow(origins, n + 1, r, todo, heads[r, b])


def trees(arcs: Tensor, lengths: Tensor, one_root: bool, k: int) -> tuple[Tensor, Tensor]:
    """Return the scores (k, B), float64, and heads (k, B, N) of `eisner.topk`."""
    B, N, _ = arcs.shape
    score, heads = np.empty((k, B)), np.full((k, B, N), -1)
    over_batch(_trees, B, numbers(arcs), lengths.numpy(), one_root, score, heads)
    return torch.from_numpy(score), torch.from_numpy(heads)
