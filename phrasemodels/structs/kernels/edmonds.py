# mypy: disallow-untyped-defs=False
"""Best dependency trees whose arcs may cross, on the CPU (Chu and Liu 1965; Edmonds 1967), in O(n³) time and float64; and the k
best, by dividing the set of all trees but the best ones (Murty 1968; Camerini et al. 1980).

A forbidden arc costs more than all allowed arcs can differ, and so does each root arc if there may be only one, so that the
tree has as few of them as possible. Shapes: B sentences, N positions, the root at 0.
"""

import heapq

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import numbers, over_batch
from phrasemodels.structs.kernels.simd import COMPILE


@njit(**COMPILE)
def _costs(scores, N, one_root, s):
    """Copy the scores to s (N, N), where forbidden arcs and, with `one_root`, root arcs are lowered; return whether no score
    is NaN or +inf. Arcs of no tree are -inf."""
    low, high = np.inf, -np.inf
    for h in range(N):
        for m in range(1, N):
            x = scores[h, m]
            if h != m and not x < np.inf:
                return False
            if h != m and x > -np.inf:
                low, high = min(low, x), max(high, x)
    spread = N * (max(high - low, 0.0) + 1.0)
    floor = low - 2.0 * N * spread if high > -np.inf else 0.0
    for h in range(N):
        for m in range(N):
            x = np.float64(scores[h, m])
            s[h, m] = -np.inf if m == 0 or h == m else (max(x, floor) - (spread if one_root and h == 0 else 0.0))
    return True


@njit(**COMPILE)
def _cycle(N, active, best, seen):
    """Return a node of a cycle of best heads, or -1."""
    seen[:N] = 0
    for start in range(1, N):
        v, mark = start, start + 1
        while active[start] and v > 0 and seen[v] == 0:
            seen[v] = mark
            v = best[v]
        if active[start] and v > 0 and seen[v] == mark:
            return v
    return -1


@njit(**COMPILE)
def _contract(N, c, s, best, active, inside, heads_of, words_of):
    """Contract the cycle of c into the node c: heads_of, words_of (N, N) are the arcs of words that each arc stands for."""
    for u in range(N):
        if not active[u] or inside[u]:
            continue
        from_u, to_u, x, y = c, c, -np.inf, -np.inf
        for v in range(1, N):
            if inside[v]:
                gain = s[u, v] - s[best[v], v]
                if gain > x or (from_u == c and v == c):
                    x, from_u = gain, v
                if s[v, u] > y or (to_u == c and v == c):
                    y, to_u = s[v, u], v
        heads_of[u, c], words_of[u, c] = heads_of[u, from_u], words_of[u, from_u]
        heads_of[c, u], words_of[c, u] = heads_of[to_u, u], words_of[to_u, u]
        s[u, c], s[c, u] = x, y


@njit(**COMPILE)
def _tree(N, s, heads):
    """Write the heads of a best tree by s (N, N), which is overwritten."""
    active, inside, best = np.ones(N, np.bool_), np.zeros(N, np.bool_), np.zeros(N, np.int64)
    seen, node = np.zeros(N, np.int64), np.arange(N)  # node: the contracted node that holds a word
    heads_of, words_of = np.empty((N, N), np.int64), np.empty((N, N), np.int64)
    nodes, arcs, tops, levels = np.empty((N, N), np.int64), np.full((N, N, 2), -1), np.empty(N, np.int64), 0
    for u in range(N):
        heads_of[u], words_of[:, u] = u, u
    while True:
        for m in range(1, N):
            if active[m]:
                best[m] = -1
                for h in range(N):
                    if active[h] and h != m and (best[m] < 0 or s[h, m] > s[best[m], m]):
                        best[m] = h
        c = _cycle(N, active, best, seen)
        if c < 0:
            break
        nodes[levels], tops[levels], inside[:], v = node, c, False, c
        while not inside[v]:
            inside[v] = True
            arcs[levels, v, 0], arcs[levels, v, 1] = heads_of[best[v], v], words_of[best[v], v]
            v = best[v]
        _contract(N, c, s, best, active, inside, heads_of, words_of)
        for v in range(N):
            active[v] &= v == c or not inside[v]
            if inside[node[v]]:
                node[v] = c
        levels += 1
    entered = np.zeros(N, np.int64)  # the word of a node that its arc goes to
    for m in range(1, N):
        if active[m]:
            entered[m] = words_of[best[m], m]
            heads[entered[m]] = heads_of[best[m], m]
    for level in range(levels - 1, -1, -1):
        word = entered[tops[level]]
        for v in range(1, N):
            if arcs[level, v, 0] >= 0:
                entered[v] = arcs[level, v, 1]
                if v != nodes[level, word]:
                    heads[entered[v]] = arcs[level, v, 0]
        entered[nodes[level, word]] = word


@njit(**COMPILE)
def _solve(scores, N, one_root, s, heads):
    """Write the heads of a best tree; return its score, NaN if a score is NaN or +inf, -inf if every tree is forbidden."""
    if not _costs(scores, N, one_root, s):
        return np.nan
    _tree(N, s, heads)
    score, roots = 0.0, 0
    for m in range(1, N):
        score += scores[heads[m], m]
        roots += heads[m] == 0
    return -np.inf if one_root and roots > 1 else score


@njit(**COMPILE)
def _best(first, step, scores, lengths, one_root, score, heads):
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        score[b] = _solve(scores[b], N, one_root, np.empty((N, N)), heads[b])
        if not score[b] > -np.inf:
            heads[b] = -1


@njit(**COMPILE)
def _allow(scores, N, given, m, banned, allowed):
    """Copy the scores to `allowed`, -inf for other heads of the words before m than the given ones, and for the banned ones of m."""
    allowed[:] = scores[:N, :N]
    for word in range(1, m):
        for h in range(N):
            if h != given[word]:
                allowed[h, word] = -np.inf
    for h in range(N):
        if banned[h]:
            allowed[h, m] = -np.inf


@njit(**COMPILE)
def _k_best(first, step, scores, lengths, one_root, k, score, heads):
    longest = scores.shape[1]
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        s, allowed = np.empty((N, N)), np.empty((N, N))
        found = np.full((1 + k * N, longest), -1, np.int64)  # best trees of sets of trees, which have no tree in common
        word, banned = np.ones(len(found), np.int64), np.zeros((len(found), N), np.bool_)  # the set: see `_allow`
        top = _solve(scores[b], N, one_root, s, found[0])
        if top != top:
            score[:, b] = np.nan
        size, waiting = 1, [(-top, 0)]
        for rank in range(k):
            if len(waiting) == 0 or not waiting[0][0] < np.inf:
                break
            lowest, one = heapq.heappop(waiting)
            score[rank, b], heads[rank, b] = -lowest, found[one]
            for m in range(word[one], N):  # the set without its best tree is split by the first word with another head
                if m == word[one]:
                    banned[size] = banned[one]
                banned[size, found[one, m]] = True
                _allow(scores[b], N, found[one], m, banned[size], allowed)
                value = _solve(allowed, N, one_root, s, found[size])
                if value > -np.inf:
                    word[size] = m
                    heapq.heappush(waiting, (-value, size))
                    size += 1
                else:
                    found[size], banned[size] = -1, False


def best(arcs: Tensor, lengths: Tensor, one_root: bool) -> tuple[Tensor, Tensor]:
    """Return the score (B,) and heads (B, N) of `nonprojective.argmax`: arcs (B, N, N), lengths (B,)."""
    score, heads = np.empty(len(arcs)), np.full(arcs.shape[:2], -1)
    over_batch(_best, len(arcs), numbers(arcs), lengths.numpy(), one_root, score, heads)
    return torch.from_numpy(score), torch.from_numpy(heads)


def k_best(arcs: Tensor, lengths: Tensor, one_root: bool, k: int) -> tuple[Tensor, Tensor]:
    """Return the scores (k, B) and heads (k, B, N) of `nonprojective.topk`: arcs (B, N, N), lengths (B,). Time is O(B·k·n⁴)."""
    B, N, _ = arcs.shape
    score, heads = np.full((k, B), -np.inf), np.full((k, B, N), -1)
    over_batch(_k_best, B, numbers(arcs), lengths.numpy(), one_root, k, score, heads)
    return torch.from_numpy(score), torch.from_numpy(heads)
