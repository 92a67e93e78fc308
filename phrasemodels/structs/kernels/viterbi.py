# mypy: disallow-untyped-defs=False
"""Best sequences of linear chains on the CPU (Viterbi 1967). Vectors hold states, so that one sequence fills them too.

Only best scores are kept; the best predecessor is found again along the best sequence. Sums have the type of the scores and
the order of the reference, and the first of equal states is taken, so that the tags are those of the reference.

Shapes: B sequences, T positions, C tags; S = T − 1 pairwise scores per sequence, or 1 if all positions share them.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import numbers, over_batch, scratch
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, larger, load, number, spread, store


@njit(**INLINE)
def _width(x):
    """Return the number of elements of x that `load` reads."""
    return 32 // x.itemsize


@njit(**COMPILE)
def _row(C):
    """Return C rounded up to a multiple of 16, so that a row of states has whole vectors."""
    return -(-C // 16) * 16


@njit(**COMPILE)
def _copy(pairwise, w, C):
    """Copy pairwise scores (C, C) to w as rows of whole vectors; return whether none is NaN or +inf.

    What is between the rows is never read as a state.
    """
    W, known = _row(C), True
    for j in range(C):
        for k in range(C):
            known &= pairwise[j, k] < np.inf
            w[j * W + k] = pairwise[j, k]
    return known


@njit(**INLINE)
def _step(w, before, here, C):
    """Add max_j best(j) + pairwise(j, k) to the unary scores from `here` on, for all k; before: position of the best."""
    W, width = _row(C), _width(w)
    for k in range(0, C, width):
        top = spread(number(w, before)) + load(w, k)
        for j in range(1, C):
            top = larger(spread(number(w, before + j)) + load(w, j * W + k), top)
        store(w, here + k, top + load(w, here + k))


@njit(**COMPILE)
def _fill(w, unary, pairwise, n, C):
    """Write the best score of a beginning that ends in a state to w (n, row), which follows the pairwise scores;
    return whether no score is NaN or +inf."""
    W, known = _row(C), True
    best = C * W
    for t in range(n):
        here = best + t * W
        for c in range(C):
            known &= unary[t, c] < np.inf
            w[here + c] = unary[t, c]
        if t > 0:
            if len(pairwise) > 1:
                known &= _copy(pairwise[t - 1], w, C)
            _step(w, here - W, here, C)
    return known


@njit(**COMPILE)
def _follow(w, unary, pairwise, n, C, tags):
    """Write the tags of the best sequence from its last to its first; return its score."""
    W = _row(C)
    best = C * W
    last = best + (n - 1) * W
    state = 0
    for c in range(1, C):
        if w[last + c] > w[last + state]:
            state = c
    tags[n - 1] = state
    score = np.float64(unary[n - 1, state])
    for t in range(n - 2, -1, -1):
        here, pairs = best + t * W, pairwise[t if len(pairwise) > 1 else 0]
        top, before = w[here] + pairs[0, state], 0
        for c in range(1, C):
            x = w[here + c] + pairs[c, state]
            if x > top:
                top, before = x, c
        score += np.float64(pairs[before, state]) + np.float64(unary[t, before])
        state = before
        tags[t] = state
    return score


@njit(**COMPILE)
def _viterbi(first, step, work, unary, pairwise, lengths, score, tags, unknown):
    B, _, C = unary.shape
    w, shared = work[first], True
    for b in range(first, B, step):
        n, pairs = lengths[b], pairwise[b if len(pairwise) > 1 else 0]
        if len(pairs) == 1 and (len(pairwise) > 1 or b == first):
            shared = _copy(pairs[0], w, C)
        if not _fill(w, unary[b], pairs, n, C) or not (shared or n == 1):
            unknown[0] = True
        score[b] = _follow(w, unary[b], pairs, n, C, tags[b])
        if score[b] == -np.inf:
            tags[b] = -1


def argmax(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the score (B,) and tags (B, T) of `chain.argmax`, or None if a score is NaN or +inf: unary (B, T, C), pairwise (C, C) or
    (B, T-1, C, C), lengths (B,)."""
    B, T, C = unary.shape
    scores, pairs = numbers(unary), numbers(pairwise[None, None] if pairwise.dim() == 2 else pairwise)
    score, tags, unknown = np.empty(B, scores.dtype), np.full((B, T), -1), np.zeros(1, np.bool_)
    work = scratch(B, (C + T) * _row.py_func(C)).view(scores.dtype)
    over_batch(_viterbi, B, work, scores, pairs, lengths.numpy(), score, tags, unknown)
    return None if unknown[0] else (torch.from_numpy(score), torch.from_numpy(tags))
