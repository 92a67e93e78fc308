# mypy: disallow-untyped-defs=False
"""Best trees on the CPU. Charts hold best scores only; splits and labels are found again where the best tree goes."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import over_batch
from phrasemodels.structs.kernels.vector import COMPILE

LARGEST = COMPILE | {"fastmath": {"nnan", "nsz"}}


@njit(**LARGEST)
def _largest(x):
    top = x[0]
    for k in range(1, len(x)):
        top = x[k] if x[k] > top else top
    return top


@njit(**LARGEST)
def _largest_sum(left, right):
    top = left[0] + right[0]
    for k in range(1, len(left)):
        x = left[k] + right[k]
        top = x if x > top else top
    return top


@njit(**COMPILE)
def _fill_spans(labels, n, best, best_t):
    """best[i, j] = best_t[j, i] = score of the best labelled tree over words i..j."""
    for i in range(n):
        for j in range(i, n):
            best[i, j] = _largest(labels[i, j])  # in the order of memory: reading labels is most of the time
        best_t[i, i] = best[i, i]
    for d in range(1, n):
        for i in range(n - d):
            j = i + d
            best[i, j] += _largest_sum(best[i, i:j], best_t[j, i + 1 : j + 1])
            best_t[j, i] = best[i, j]


@njit(**COMPILE)
def _spans(first, step, labels, lengths, score, cells):
    for b in range(first, len(lengths), step):
        n = lengths[b]
        best, best_t = np.empty((n, n)), np.empty((n, n))
        _fill_spans(labels[b], n, best, best_t)
        score[b] = best[0, n - 1]
        todo, size = np.empty((n + 1, 2), np.int64), 1
        todo[0] = 0, n - 1
        for row in range(2 * n - 1):
            size -= 1
            i, j = todo[size]
            cells[b, row] = i, j, np.argmax(labels[b, i, j])
            if i < j:
                k = i + np.argmax(best[i, i:j] + best_t[j, i + 1 : j + 1])
                todo[size] = k + 1, j
                todo[size + 1] = i, k
                size += 2


def spans(labels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Score (B,) and cells (B, 2n-1, 3) as `spans.argmax` gives them."""
    B, n, _, _ = labels.shape
    score, cells = np.empty(B), np.full((B, 2 * n - 1, 3), -1)
    over_batch(_spans, B, labels.detach().numpy(), lengths.numpy(), score, cells)
    return torch.from_numpy(score), torch.from_numpy(cells)


@njit(**COMPILE)
def _merge(winner, add, hook, best):
    """best[h] = max(best[h], winner[h] + add + hook[h])"""
    for h in range(len(best)):
        x = winner[h] + hook[h] + add
        best[h] = x if x > best[h] else best[h]


@njit(**COMPILE)
def _hook(body, add, arcs_t, hook):
    """hook[h] = max_m body[m] + add + arcs_t[m, h]"""
    hook[:] = -np.inf
    m = 0
    while m + 4 <= len(body):
        v0, v1, v2, v3 = body[m] + add, body[m + 1] + add, body[m + 2] + add, body[m + 3] + add
        t0, t1, t2, t3 = arcs_t[m], arcs_t[m + 1], arcs_t[m + 2], arcs_t[m + 3]
        for h in range(len(hook)):
            x, y = v0 + t0[h], v1 + t1[h]
            z, w = v2 + t2[h], v3 + t3[h]
            x, z = x if x > y else y, z if z > w else w
            x = x if x > z else z
            hook[h] = x if x > hook[h] else hook[h]
        m += 4
    while m < len(body):
        v0, t0 = body[m] + add, arcs_t[m]
        for h in range(len(hook)):
            x = v0 + t0[h]
            hook[h] = x if x > hook[h] else hook[h]
        m += 1


@njit(**COMPILE)
def _fill_joint(real, free, arcs_t, body, hooks):
    """body[i, j, h]: best score of words i..j headed by h, without the label of i..j, for h inside.

    hooks[i, j, h]: best score of words i..j with a real label under a head h outside, with the arc. real, free: best
    score of any real label, and of any label (n, n). arcs_t[m, h]: score of h → m.
    """
    n = len(real)
    for i in range(n):
        body[i, i, i] = 0.0
        _hook(body[i, i, i : i + 1], real[i, i], arcs_t[i : i + 1], hooks[i, i])
    for d in range(1, n):
        for i in range(n - d):
            j = i + d
            best = body[i, j]
            best[i : j + 1] = -np.inf
            for k in range(i, j):
                _merge(body[i, k, i : k + 1], free[i, k], hooks[k + 1, j, i : k + 1], best[i : k + 1])
                _merge(body[k + 1, j, k + 1 : j + 1], free[k + 1, j], hooks[i, k, k + 1 : j + 1], best[k + 1 : j + 1])
            _hook(best[i : j + 1], real[i, j], arcs_t[i : j + 1], hooks[i, j])


@njit(**COMPILE)
def _best_merge(i, j, h, free, body, hooks):
    """The split of body[i, j, h]."""
    top, best = -np.inf, i if h > i else h
    for k in range(i, j):
        from_left = body[i, k, h] + hooks[k + 1, j, h] + free[i, k]
        x = from_left if h <= k else body[k + 1, j, h] + hooks[i, k, h] + free[k + 1, j]
        if x > top:
            top, best = x, k
    return best


@njit(**COMPILE)
def _label_scores(labels, real, free):
    n = len(real)
    for i in range(n):
        for j in range(i, n):
            real[i, j] = _largest(labels[i, j, 1:])
            free[i, j] = max(real[i, j], labels[i, j, 0])
        real[i, i] = free[i, i]


@njit(**COMPILE)
def _follow(labels, arcs_t, free, body, hooks, todo, cells, heads):
    """Cells in pre-order and heads of the best tree; todo holds (i, j, head, whether the label must be real)."""
    size, row = 1, 0
    while size > 0:
        size -= 1
        i, j, h, must = todo[size]
        first = 1 if must and i < j else 0
        cells[row] = i, j, first + np.argmax(labels[i, j, first:])
        row += 1
        if i < j:
            k = _best_merge(i, j, h, free, body, hooks)
            a, b = (k + 1, j) if h <= k else (i, k)
            m = a + np.argmax(body[a, b, a : b + 1] + arcs_t[a : b + 1, h])
            heads[m + 1] = h + 1
            todo[size] = (k + 1, j, m, 1) if h <= k else (k + 1, j, h, 0)
            todo[size + 1] = (i, k, h, 0) if h <= k else (i, k, m, 1)
            size += 2


@njit(**COMPILE)
def _joint(first, step, labels, arcs, lengths, score, cells, heads):
    for b in range(first, len(lengths), step):
        n = lengths[b]
        real, free = np.empty((n, n), labels.dtype), np.empty((n, n), labels.dtype)
        _label_scores(labels[b], real, free)
        arcs_t = arcs[b, 1 : n + 1, 1 : n + 1].T.copy()
        body, hooks = np.empty((n, n, n), labels.dtype), np.empty((n, n, n), labels.dtype)
        _fill_joint(real, free, arcs_t, body, hooks)
        top = body[0, n - 1] + arcs[b, 0, 1 : n + 1]
        h = np.argmax(top)
        score[b] = top[h] + real[0, n - 1]
        heads[b, h + 1] = 0
        todo = np.empty((n + 1, 4), np.int64)
        todo[0] = 0, n - 1, h, 1
        _follow(labels[b], arcs_t, free, body, hooks, todo, cells[b], heads[b])


def joint(labels: Tensor, arcs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Score (B,), cells (B, 2n-1, 3) and heads (B, n+1) as `joint.argmax` gives them."""
    B, n, _, _ = labels.shape
    score, cells, heads = np.empty(B), np.full((B, 2 * n - 1, 3), -1), np.full((B, n + 1), -1)
    scores = labels.detach().numpy(), arcs.detach().numpy()
    over_batch(_joint, B, *scores, lengths.numpy(), score, cells, heads)
    return torch.from_numpy(score), torch.from_numpy(cells), torch.from_numpy(heads)
