# mypy: disallow-untyped-defs=False
"""All dependency trees: log Z, marginals and their gradients by elimination, samples, the best and the k best trees.

Words are eliminated as `nonprojective` describes. If weights are within e^300 of each other, log Z is computed with plain numbers in place
of logarithms, and its derivatives D in the weights backward; only row and column of the eliminated word are needed. p(arc) = w D, with

    D(v, m) = Σ_h D(h, m) w(h, v) / s_v        D(h, v) = (x_h + 1 − Σ_k x_k w(k, v) / s_v) / s_v,  x_h = Σ_m D(h, m) w(v, m)

The gradient of Σ g p in the scores is the derivative of the marginals if the log weights change as g: covariances are symmetric. It is
taken forward through both passes, with g less its value at the best arc of each word, which changes nothing but rounding. Other sentences
are eliminated in log space by torch, which differentiates that.

For samples, the log weights w before the elimination of each word v are kept, and its sum s_v. An arc h → m of the smaller graph w' is a
path over v with the probability a(h, m) = w(h, v) w(v, m) / s_v / w'(h, m).

A sample goes backward through the eliminations: each arc of the tree over the smaller graph is a path over v with the
probability a. The children of v are then known; its head is one of those words that still hang on the root, or the root, by
the weights w(h, v). Nothing depends on the spread of scores, unlike the time of the random walks of Wilson (1996).

Best trees are found by contraction (Chu and Liu 1965; Edmonds 1967) in O(n³) time and float64; the k best by dividing the set of all
trees but the best ones (Murty 1968; Camerini et al. 1980). A forbidden arc costs more than all allowed arcs can differ, and so does each
root arc if there may be only one, so that the tree has as few of them as possible.

On a GPU all sentences are factorised at once. With the weights w(h, m) of arcs, divided by the largest of each word, and the sums of
their columns on the diagonal, Z is the determinant of L = diag(Σ_h w(h, m)) − w over the words (Koo et al. 2007). With one root arc, the
first row is that of the root instead, and the diagonal leaves the root out. By G = L⁻¹, where a term of a replaced row is left out:

    p(h → m) = w(h, m) (G(m, m) − G(m, h))        dG = −G dL G

The digits that are lost are known afterwards. With the residual R = L G − I, and the rounding of L G, G is wrong by at most |G| |R|, so a
bound on the errors of all marginals is known. Sentences with a larger bound than LARGEST_ERROR are computed on the CPU.

Shapes: B sentences, N positions, the root at 0. A history of one sentence is (N, N, N): graphs before each elimination.
"""

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.dispatch import transformed
from phrasemodels.structs.kernels import Kernel, Scores, allowed, column, doubles, over_batch, tensor
from phrasemodels.structs.kernels.simd import COMPILE, INNER, LANES, added, exponential, load, ratio, spread, store
from phrasemodels.structs.semiring import Log


@njit(**INNER)
def _log_add(x, y):
    if x < y:
        x, y = y, x
    return x if y == -np.inf else x + np.log1p(np.exp(y - x))


@njit(**INNER)
def read_graph(scores, N, w):
    """Copy the log weights of arcs to w (N, N), -inf for arcs of no tree; return whether none is NaN or +inf."""
    known = True
    for h in range(N):
        for m in range(N):
            w[h, m] = scores[h, m] if m > 0 and h != m else -np.inf
            known &= w[h, m] < np.inf
    return known


@njit(**INNER)
def _head_sum(w, left, v, least):
    """Return log Σ_h w(h, v) over the positions ≥ least that are left."""
    top, total = -np.inf, 0.0
    for h in range(least, len(left)):
        if left[h]:
            top = max(top, w[h, v])
    if top == -np.inf:
        return top
    for h in range(least, len(left)):
        if left[h]:
            total += np.exp(w[h, v] - top)
    return np.log(total) + top


@njit(**INNER)
def eliminate(N, one_root, graphs, order, sums):
    """Eliminate all words but one from graphs[0]; fill the graphs after each, the order (N-1,) of words and their sums; return
    log Z. The last of `order` is the word that is left, with the sum of its root arc."""
    least, total = 1 if one_root else 0, 0.0
    left = np.ones(N, np.bool_)
    for step in range(N - 2):
        w, v, s = graphs[step], 0, -np.inf
        for m in range(1, N):
            if left[m]:  # the largest: what is far below it, as a mask, keeps no digit of others
                each = _head_sum(w, left, m, least)
                if each > s:
                    v, s = m, each
        if s == -np.inf:
            return s
        order[step], sums[step] = v, s
        total += s
        left[v] = False
        after = graphs[step + 1]
        for h in range(N):
            for m in range(1, N):
                if left[h] and left[m]:
                    after[h, m] = _log_add(w[h, m], w[h, v] + w[v, m] - s) if h != m else -np.inf
    for m in range(1, N):
        if left[m]:
            order[N - 2], sums[N - 2] = m, graphs[N - 2, 0, m]
    return total + sums[N - 2]


@njit(**INNER)
def _weights(scores, N, W, w, tops):
    """Write the weights of arcs to w as rows (N, W), divided by the largest of their column, whose logarithms go to tops, 0 for arcs of no
    tree; return whether all are above e^-300 or 0. Then no product of two can vanish, as elimination never makes a weight smaller.

    A weight is also 0 if all trees with it together have no digit beside one tree without it, as with a mask of -1e9."""
    tops[:N] = -np.inf
    for h in range(N):
        for m in range(1, N):
            if h != m:
                tops[m] = max(tops[m], scores[h, m])
    low, masked = 0.0, -np.inf
    for h in range(N):
        row = h * W
        for m in range(1, N):
            x = scores[h, m] - tops[m] if h != m else -np.inf
            if x > -300.0:
                low = min(low, x)
            else:
                masked, x = max(masked, x), -np.inf
            w[row + m] = x
        w[row] = -np.inf
        for m in range(N, W):
            w[row + m] = -np.inf
    for m in range(1, N):
        if tops[m] == -np.inf:
            return False
    for at in range(0, N * W, LANES):
        m, e = exponential(load(w, at))
        store(w, at, m * ratio(e))
    return masked < (low - np.log(N)) * N - 40.0


@njit(**INNER)
def _eliminate_weights(N, W, one_root, w, shares, sums):
    """Eliminate the words N-1, N-2, ..., 2 as `eliminate` does, in place; return log Z, or NaN if a sum is 0. Row v of w is as before the
    elimination of v, shares (N, W) are w(h, v) / s_v at [v, h]."""
    total = 0.0
    for v in range(N - 1, 1, -1):
        row, s = v * W, 0.0
        for h in range(1 if one_root else 0, v):
            s += w[h * W + v]
        if s < 1e-290:
            return np.nan
        sums[v] = s
        total += np.log(s)
        for h in range(v):
            share = w[h * W + v] / s
            shares[row + h] = share
            for k in range(0, v, LANES):
                store(w, h * W + k, load(w, h * W + k) + load(w, row + k) * share)
            w[h * W + h] = 0.0
    return total + np.log(w[1])


@njit(**INNER)
def _derivatives(N, W, one_root, w, shares, sums, out):
    """Write the derivatives of log Z in the weights to out (N, W): those in the weights before an elimination are those after it, plus
    what row and column of the word have a part in."""
    out[: N * W] = 0.0
    x = np.empty(N)
    out[1] = 1.0 / w[1]
    for v in range(2, N):
        row, over, s = v * W, 0.0, sums[v]
        for h in range(v):
            share, total = shares[row + h], spread(0.0)
            for k in range(0, v, LANES):
                each = load(out, h * W + k)
                total += each * load(w, row + k)
                store(out, row + k, load(out, row + k) + each * share)
            x[h] = added(total)
            over += share * x[h]
        for k in range(v, W):
            out[row + k] = 0.0
        for h in range(v):
            rest = 1.0 - over if h > 0 or not one_root else 0.0
            out[h * W + v] = max(x[h] + rest, 0.0) / s


@njit(**INNER)
def _derivative_rates(N, W, one_root, w, rates, shares, sums, derivatives, out):
    """Write the rates of the derivatives to out (N, W) if the weights change by rates (N, W), after both passes; rates end as those
    of row and column of each word before its elimination."""
    share_rates, sum_rates, x = np.empty(N * W), np.zeros(N), np.empty(N)
    for v in range(N - 1, 1, -1):
        row = v * W
        for k in range(v, W):  # of words that are gone
            w[row + k] = rates[row + k] = 0.0
        for h in range(1 if one_root else 0, v):
            sum_rates[v] += rates[h * W + v] / sums[v]
        for h in range(v):
            share = shares[row + h]
            rate = rates[h * W + v] / sums[v] - share * sum_rates[v]
            share_rates[row + h] = rate
            for k in range(0, v, LANES):
                change = load(rates, row + k) * share + load(w, row + k) * rate
                store(rates, h * W + k, load(rates, h * W + k) + change)
            rates[h * W + h] = 0.0
    out[: N * W] = 0.0
    out[1] = -rates[1] / w[1] / w[1]
    for v in range(2, N):
        row, over = v * W, 0.0
        for h in range(v):
            share, share_rate, was, total = shares[row + h], share_rates[row + h], spread(0.0), spread(0.0)
            for k in range(0, v, LANES):
                each, rate, arcs = load(derivatives, h * W + k), load(out, h * W + k), load(w, row + k)
                was += each * arcs
                total += rate * arcs + each * load(rates, row + k)
                store(out, row + k, load(out, row + k) + rate * share + each * share_rate)
            x[h] = added(total)
            over += share * x[h] + share_rate * added(was)
        for k in range(v, W):
            out[row + k] = 0.0
        for h in range(v):
            rest = over if h > 0 or not one_root else 0.0
            out[h * W + v] = (x[h] - rest) / sums[v] - derivatives[h * W + v] * sum_rates[v]


@njit(**INNER)
def _centred(scores, given, N, out):
    """Write to out (N, N) what is `given` to each arc, less what is given to the best arc of the same word."""
    for m in range(1, N):
        best = 0
        for h in range(1, N):
            if h != m and scores[h, m] > scores[best, m]:
                best = h
        for h in range(N):
            out[h, m] = given[h, m] - given[best, m] if h != m else 0.0


@njit(**COMPILE)
def _covariances(first, step, scores, lengths, one_root, given, out, served):
    """Compute the products of the covariances of arcs with `given` (B, N, N) to out (B, N, N), which is 0 before, as `_passes`."""
    longest = scores.shape[1]
    size, tops, sums = longest * (-(-longest // LANES) * LANES), np.empty(longest), np.empty(longest)
    w, rates, shares, first_order, second = (
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(size),
    )
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        if N == 1:
            continue
        if not _is_known(scores[b], N):
            _unknown(N, out[b])
            continue
        W, centred = -(-N // LANES) * LANES, np.zeros((N, N))
        _centred(scores[b], given[b], N, centred)
        if _weights(scores[b], N, W, w, tops):
            before = w[: N * W].copy()
            rates[: N * W] = 0.0
            for h in range(N):
                for m in range(1, N):
                    rates[h * W + m] = w[h * W + m] * centred[h, m]
            if _eliminate_weights(N, W, one_root, w, shares, sums) > -np.inf:
                _derivatives(N, W, one_root, w, shares, sums, first_order)
                _derivative_rates(N, W, one_root, w, rates, shares, sums, first_order, second)
                for h in range(N):
                    for m in range(1, N):
                        at = h * W + m
                        out[b, h, m] = before[at] * (centred[h, m] * first_order[at] + second[at])
                continue
        served[b] = False


@njit(**INNER)
def _is_known(scores, N):
    """Return whether no score of an arc is NaN or +inf."""
    known = True
    for h in range(N):
        for m in range(1, N):
            known &= scores[h, m] < np.inf or h == m
    return known


@njit(**INNER)
def _unknown(N, out):
    """Write NaN to out (≥ N, ≥ N) for each arc."""
    for h in range(N):
        for m in range(1, N):
            out[h, m] = np.nan if h != m else 0.0


@njit(**COMPILE)
def _passes(first, step, scores, lengths, one_root, log_z, p, served):
    """Compute log Z (B,), and marginals (B, N, N), which are 0 before, unless they are empty; set `served`, true before, to false where
    weights spread too widely."""
    longest = scores.shape[1]
    size, tops, sums = longest * (-(-longest // LANES) * LANES), np.empty(longest), np.empty(longest)
    w, before, shares, out = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        if N == 1:
            log_z[b] = 0.0
            continue
        if not _is_known(scores[b], N):
            log_z[b] = np.nan
            _unknown(N if p.size > 0 else 0, p[b])
            continue
        W = -(-N // LANES) * LANES
        if _weights(scores[b], N, W, w, tops):
            for x in range(N * W):
                before[x] = w[x]
            log_z[b] = _eliminate_weights(N, W, one_root, w, shares, sums) + tops[1:N].sum()
            if log_z[b] > -np.inf:
                if p.size > 0:
                    _derivatives(N, W, one_root, w, shares, sums, out)
                    for h in range(N):
                        for m in range(1, N):
                            p[b, h, m] = before[h * W + m] * out[h * W + m]
                continue
        served[b] = False


@njit(**INNER)
def _tree(N, one_root, graphs, order, draws, left, weight, heads):
    """Write the heads of one sample; draws (N, N) are uniform numbers: [m, v] for the path to m, [0, v] for the head of v."""
    left[:] = False
    last = order[N - 2]
    left[last], heads[last] = True, 0
    for step in range(N - 3, -1, -1):
        w, after, v = graphs[step], graphs[step + 1], order[step]
        heads[v] = -1  # detached: its words do not hang on the root until it has a head
        for m in range(1, N):
            h = heads[m]
            if left[m] and draws[m, v] >= np.exp(w[h, m] - after[h, m]):
                weight[m] = 1.0
            else:
                weight[m] = 0.0
        for m in range(1, N):
            if left[m] and weight[m] > 0.0:
                heads[m] = v
        top, total = -np.inf, 0.0
        for h in range(N):
            weight[h] = -np.inf
            if (h == 0 or left[h]) and _hangs_on_root(heads, h) and not (one_root and h == 0):
                weight[h] = w[h, v]
                top = max(top, weight[h])
        for h in range(N):
            weight[h] = np.exp(weight[h] - top) if top > -np.inf else 0.0
            total += weight[h]
        best, upto = 0, 0.0
        for h in range(N):
            upto += weight[h]
            if weight[h] > 0.0:
                best = h
                if upto > draws[0, v] * total:
                    break
        heads[v] = best
        left[v] = True


@njit(**INNER)
def _hangs_on_root(heads, h):
    """Return whether the heads from h on lead to the root, not to a word without a head."""
    while h > 0:
        h = heads[h]
    return h == 0


@njit(**COMPILE)
def _samples(first, step, scores, lengths, one_root, draws, heads):
    longest = scores.shape[1]
    graphs = np.empty((longest, longest, longest))
    order, sums = np.empty(longest, np.int64), np.empty(longest)
    left, weight = np.empty(longest, np.bool_), np.empty(longest)
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        if N == 1 or not read_graph(scores[b], N, graphs[0]):
            continue
        if eliminate(N, one_root, graphs, order, sums) > -np.inf:
            for k in range(len(draws)):
                _tree(N, one_root, graphs, order, draws[k, b], left, weight, heads[k, b])


@njit(**INNER)
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


@njit(**INNER)
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


@njit(**INNER)
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


@njit(**INNER)
def _best_tree(N, s, heads):
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
        for u in range(N):
            nodes[levels, u], inside[u] = node[u], False
        tops[levels], v = c, c
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


@njit(**INNER)
def _solve(scores, N, one_root, s, heads):
    """Write the heads of a best tree; return its score, NaN if a score is NaN or +inf, -inf if every tree is forbidden."""
    if not _costs(scores, N, one_root, s):
        return np.nan
    _best_tree(N, s, heads)
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


@njit(**INNER)
def _allow(scores, N, given, m, banned, allowed):
    """Copy the scores to `allowed`, -inf for other heads of the words before m than the given ones, and for the banned ones of m."""
    for h in range(N):
        for word in range(N):
            allowed[h, word] = scores[h, word]
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
            score[rank, b] = -lowest
            for m in range(N):
                heads[rank, b, m] = found[one, m]
            for m in range(word[one], N):  # the set without its best tree is split by the first word with another head
                for h in range(N if m == word[one] else 0):
                    banned[size, h] = banned[one, h]
                banned[size, found[one, m]] = True
                _allow(scores[b], N, found[one], m, banned[size], allowed)
                value = _solve(allowed, N, one_root, s, found[size])
                if value > -np.inf:
                    word[size] = m
                    heapq.heappush(waiting, (-value, size))
                    size += 1
                else:
                    found[size], banned[size] = -1, False


LARGEST = 2**22  # numbers of the histories of sentences that torch eliminates together


def _in_torch(structure, arcs, lengths, grads=None):
    """Return log Z and marginals, or with gradients to marginals the gradients to the scores, by elimination in log space."""
    all_z, found, size = [], [], max(1, LARGEST // arcs.shape[1] ** 3)
    with torch.inference_mode(False), torch.enable_grad():
        for some in torch.arange(len(arcs)).split(size):
            leaf = arcs[some].detach().double().requires_grad_()
            log_z = structure._total((leaf,), lengths[some], Log())
            (p,) = torch.autograd.grad(log_z.sum(), leaf, create_graph=grads is not None)
            all_z.append(log_z.detach())
            found.append(p.clamp(min=0) if grads is None else torch.autograd.grad(p, leaf, grads[some])[0])
    return torch.cat(all_z).numpy(), torch.cat(found).numpy()


class Arborescences(Kernel):
    """Serves trees whose arcs may cross; see `Kernel`."""

    def marginals(self, structure: Any, scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        (arcs,), wanted = scores, scale is not None
        log_z, p = np.empty(len(arcs)), np.zeros(arcs.shape if wanted else (0, 0, 0))
        served = np.ones(len(arcs), np.bool_)
        over_batch(_passes, len(arcs), doubles(arcs), lengths.numpy()[:, 0], structure.one_root, log_z, p, served)
        if not served.all():
            log_z[~served], each_p = _in_torch(structure, arcs[~served], lengths[~served])
            if wanted:
                p[~served] = each_p
        if isinstance(scale, torch.Tensor):
            p *= scale.numpy()[:, None, None]
        found = (tensor(p, arcs.dtype),) if which and wanted else ()
        return tensor(log_z, arcs.dtype), found

    def hessian_vector(self, structure: Any, scores: Scores, lengths: Tensor, grads: Sequence[Any]) -> Scores:
        (arcs,) = scores
        out, served, words = np.zeros(arcs.shape), np.ones(len(arcs), np.bool_), lengths.numpy()[:, 0]
        given = doubles(grads[0])
        over_batch(_covariances, len(arcs), doubles(arcs), words, structure.one_root, given, out, served)
        if not served.all():
            out[~served] = _in_torch(structure, arcs[~served], lengths[~served], torch.from_numpy(given[~served]))[1]
        return (tensor(out, arcs.dtype),)

    def best(self, structure: Any, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        (arcs,) = scores
        score, heads = np.empty(len(arcs)), np.full(arcs.shape[:2], -1)
        over_batch(_best, len(arcs), doubles(arcs), lengths.numpy()[:, 0], structure.one_root, score, heads)
        return tensor(score, arcs.dtype), torch.from_numpy(heads)

    def topk(self, structure: Any, scores: Scores, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
        (arcs,) = scores
        B, N, _ = arcs.shape
        score, heads = np.full((k, B), -np.inf), np.full((k, B, N), -1)
        over_batch(_k_best, B, doubles(arcs), lengths.numpy()[:, 0], structure.one_root, k, score, heads)
        return tensor(score, arcs.dtype), torch.from_numpy(heads)

    def draw(self, structure: Any, scores: Scores, lengths: Tensor, draws: Tensor) -> Tensor:
        """Return the heads (k, B, N) of samples from uniform numbers draws (k, B, N, N), float64."""
        (arcs,), heads = scores, np.full(draws.shape[:3], -1)
        over_batch(_samples, len(arcs), doubles(arcs), lengths.numpy()[:, 0], structure.one_root, draws.numpy(), heads)
        return torch.from_numpy(heads)


LARGEST_ERROR = 1e-9  # error of a marginal and of log Z
ROUNDING = 2.3e-16
LEAST = -700.0  # logarithm of a weight; smaller ones are 0
DIGITS = 36.0  # so much smaller sums change nothing


class Factorised(NamedTuple):
    """Weights (B, n+1, n), log Z (B,), the inverse G (B, n, n), and whether their digits are known (B,)."""

    weights: Tensor
    log_z: Tensor
    inverse: Tensor
    known: Tensor


class Determinants(Kernel):
    """Serves scores on a GPU, all float32 or all float64 and not empty; see `Kernel`."""

    waits = True
    otherwise = Arborescences()

    def supports(self, structure: Any, scores: Scores) -> bool:
        return (
            not torch.compiler.is_compiling()
            and scores[0].is_cuda
            and scores[0].dtype in (torch.float32, torch.float64)
            and scores[0].numel() > 0
            and scores[0].shape[1] > 1
            and allowed("numba", "triton")
            and not transformed()
        )

    def marginals(self, structure: Any, scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        arcs, wanted = scores[0].detach(), scale is not None and bool(which)
        found = factorised(structure, arcs, lengths)
        log_z = found.log_z
        p = (
            _with_root(found.weights * _differences(found.inverse, structure.one_root)).clamp_(min=0)
            if wanted
            else None
        )
        if not found.known.all():
            lost = ~found.known
            given = (arcs[lost].cpu(),), lengths[lost].cpu()
            other_z, other_p = self.otherwise.marginals(structure, *given, 1.0 if wanted else None, which, each)
            log_z[lost] = other_z.to(log_z)
            if p is not None:
                p[lost] = other_p[0].to(p)
        if p is not None and isinstance(scale, Tensor):
            p = p * column(scale.to(p), p)
        return log_z.to(arcs.dtype), () if p is None else (p.to(arcs.dtype),)

    def hessian_vector(self, structure: Any, scores: Scores, lengths: Tensor, grads: Sequence[Any]) -> Scores:
        arcs, one_root = scores[0].detach(), structure.one_root
        w, _, G, known = factorised(structure, arcs, lengths)
        g = grads[0].double()[:, :, 1:]
        g = g - g.gather(1, w.argmax(1, keepdim=True))  # changes nothing but rounding, as each word has one head
        moved = torch.where(w > 0, w * g, 0)
        of_g = -G @ _laplacian(moved, one_root) @ G
        out = _with_root(moved * _differences(G, one_root) + w * _differences(of_g, one_root))
        if not known.all():
            lost = ~known
            given = (arcs[lost].cpu(),), lengths[lost].cpu(), [grads[0][lost].cpu()]
            out[lost] = self.otherwise.hessian_vector(structure, *given)[0].to(out)
        return (out.to(arcs.dtype),)


def factorised(structure: Any, arcs: Tensor, lengths: Tensor) -> Factorised:
    """Return the sums over all trees of arcs (B, n+1, n+1), in float64."""
    real = torch.arange(1, arcs.shape[1], device=arcs.device) <= lengths  # (B, n)
    scores = torch.where(structure.valid((arcs,), lengths)[0], arcs, -torch.inf)[:, :, 1:].double()
    tops = torch.where(real, scores.amax(1), 0)
    relative, one = scores - tops[:, None], torch.eye(real.shape[1], dtype=scores.dtype, device=scores.device)
    w = torch.where(relative < LEAST, 0, relative.exp())
    padding = (~real).double()
    padding[:, 0] = (lengths[:, 0] == 0).double()
    L = _laplacian(w, structure.one_root) + torch.diag_embed(padding)
    factors, pivots, _ = torch.linalg.lu_factor_ex(L)
    G = torch.linalg.lu_solve(factors, pivots, one.expand_as(L))
    log_det = factors.diagonal(dim1=1, dim2=2).abs().log().sum(1)
    residual = (L @ G - one).abs() + ROUNDING * (L.abs() @ G.abs())
    error = G.abs() @ residual
    of_p = w[:, 1:] * (error.mT + error.diagonal(dim1=1, dim2=2)[:, None])
    # trees with a weight that was left out are at most so many
    left_out = LEAST + torch.where(real, w.sum(1), 1).log().sum(1)
    known = (
        (of_p.amax((1, 2)) < LARGEST_ERROR)
        & (residual.diagonal(dim1=1, dim2=2).sum(1) < LARGEST_ERROR)
        & (log_det > left_out + DIGITS)
    )
    return Factorised(w, log_det + tops.sum(1), G, known)


def _laplacian(w: Tensor, one_root: bool) -> Tensor:
    """Return L (B, n, n) of weights (B, n+1, n), whose row 0 is the root's. It is linear in them."""
    if not one_root:
        return torch.diag_embed(w.sum(1)) - w[:, 1:]
    words = torch.diag_embed(w[:, 1:].sum(1)) - w[:, 1:]
    return torch.cat([w[:, :1], words[:, 1:]], 1)


def _differences(G: Tensor, one_root: bool) -> Tensor:
    """Return what each weight (B, n+1, n) is multiplied with for its marginal."""
    own = G.diagonal(dim1=1, dim2=2)
    if not one_root:
        return own[:, None] - torch.nn.functional.pad(G.mT, (0, 0, 1, 0))
    others = own.clone()
    others[:, 0] = 0
    between = others[:, None] - torch.nn.functional.pad(G.mT[:, 1:], (0, 0, 1, 0))
    return torch.cat([G.mT[:, :1], between], 1)


def _with_root(x: Tensor) -> Tensor:
    """Return numbers of arcs (B, n+1, n) with a column of zeros for the root, which has no head."""
    return torch.nn.functional.pad(x, (1, 0))
