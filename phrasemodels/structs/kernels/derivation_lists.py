# mypy: disallow-untyped-defs=False
"""The k best derivations of a graph (Huang and Chiang 2005), and exact samples, as lists of their edges.

Graphs and shapes are those of `derivations`; lists of the k best are those of `kbest`.
"""

import numpy as np
from numba import njit

from phrasemodels.structs.kernels import over_batch, scratch
from phrasemodels.structs.kernels.derivations import exists, inside, open_block
from phrasemodels.structs.kernels.kbest import insert
from phrasemodels.structs.kernels.sampling import choose, power_of_two
from phrasemodels.structs.kernels.scaled import possible
from phrasemodels.structs.kernels.sequences import WEIGHT
from phrasemodels.structs.kernels.simd import COMPILE, LANES


@njit(**COMPILE)
def _best_lists(graph, scores, lengths, b, nodes, best, origins):
    """Fill best and origins (V, k); an origin is (edge · k + rank on the left) · k + rank on the right."""
    k = best.shape[1]
    best[:nodes] = -np.inf
    best[0, 0] = 0.0
    for v in range(1, nodes):
        scored, origin = best[v], origins[v]
        for edge in range(graph.first[v], graph.first[v + 1]):
            part, left, right = graph.part[edge], best[graph.left[edge]], best[graph.right[edge]]
            own = np.float64(scores[b, part]) if part >= 0 and exists(graph.size, edge, lengths, b) else 0.0
            for i in range(k):
                if not left[i] + right[0] + own > scored[k - 1]:
                    break
                for j in range(k // (i + 1)):  # (i + 1) (j + 1) - 1 sums are better
                    x = left[i] + right[j] + own
                    if not x > scored[k - 1]:
                        break
                    insert(scored, origin, x, (edge * k + i) * k + j)


@njit(**COMPILE)
def _best(graph, scores, lengths, b, nodes, best, origins):
    """Do what `_best_lists` does for k = 1."""
    best[0, 0] = 0.0
    for v in range(1, nodes):
        top, origin = -np.inf, 0
        for edge in range(graph.first[v], graph.first[v + 1]):
            x, part = best[graph.left[edge], 0] + best[graph.right[edge], 0], graph.part[edge]
            if part >= 0 and exists(graph.size, edge, lengths, b):
                x += scores[b, part]
            if x > top:
                top, origin = x, edge
        best[v, 0], origins[v, 0] = top, origin


@njit(**COMPILE)
def _topk(first, step, graph, scores, lengths, goals, score, chosen):
    V, k = len(graph.first) - 1, len(score)
    best, origins = np.empty((V, k)), np.zeros((V, k), np.int64)
    todo = np.empty((chosen.shape[2] + 2, 2), np.int64)
    for b in range(first, len(goals), step):
        if k == 1:
            _best(graph, scores, lengths, b, goals[b] + 1, best, origins)
        else:
            _best_lists(graph, scores, lengths, b, goals[b] + 1, best, origins)
        for r in range(k):
            score[r, b] = best[goals[b], r]
            size, used = 0, 0
            if score[r, b] > -np.inf and goals[b] > 0:
                todo[0, 0], todo[0, 1], size = goals[b], r, 1
            while size > 0:
                size -= 1
                origin = origins[todo[size, 0], todo[size, 1]]
                edge = origin // (k * k)
                chosen[r, b, used] = edge
                used += 1
                for tail, rank in ((graph.right[edge], origin % k), (graph.left[edge], origin // k % k)):
                    if tail > 0:
                        todo[size, 0], todo[size, 1] = tail, rank
                        size += 1


def topk(graph, scores, lengths, goals, k, longest):
    """Return the scores (k, B), float64, and edges (k, B, longest), -1 after the last, of the k best derivations."""
    score, chosen = np.empty((k, len(scores))), np.full((k, len(scores), longest), -1)
    over_batch(_topk, len(scores), graph, scores, lengths, goals, score, chosen)
    return score, chosen


@njit(**COMPILE)
def _samples(first, step, work, order, graph, scores, lengths, goals, draws, chosen, unknown):
    w, V = work[first], len(graph.first) - 1
    at, widest = V * WEIGHT, 0
    for v in range(V):
        widest = max(widest, graph.first[v + 1] - graph.first[v])
    mass, todo = np.empty(widest), np.empty(chosen.shape[2] + 2, np.int64)
    for block in range(first * LANES, len(order), step * LANES):
        nodes = open_block(w, at, block, order, graph, scores, lengths, goals, unknown)
        inside(w, at, nodes, graph)
        for lane in range(min(LANES, len(order) - block)):
            b = order[block + lane]
            for s in range(len(draws) if possible(w[goals[b] * WEIGHT + LANES + lane]) and not unknown[b] else 0):
                todo[0], size, used = goals[b], min(goals[b], 1), 0
                while size > 0:
                    size -= 1
                    v = todo[size]
                    begin, count = graph.first[v], graph.first[v + 1] - graph.first[v]
                    for i in range(count):
                        m, e = 1.0, -w[v * WEIGHT + LANES + lane]
                        for x in (
                            graph.left[begin + i] * WEIGHT,
                            graph.right[begin + i] * WEIGHT,
                            at + (begin + i) * WEIGHT,
                        ):
                            m *= w[x + lane]
                            e += w[x + LANES + lane]
                        mass[i] = m * power_of_two(e)
                    edge = begin + choose(mass, count, draws[s, b, used])
                    chosen[s, b, used] = edge
                    used += 1
                    for tail in (graph.right[edge], graph.left[edge]):
                        if tail > 0:
                            todo[size] = tail
                            size += 1


def sample(graph, scores, lengths, goals, draws):
    """Return the edges (k, B, longest) of samples, -1 after the last, from uniform numbers draws (k, B, longest)."""
    B, V, E = len(scores), len(graph.first) - 1, len(graph.left)
    blocks, chosen = -(-B // LANES), np.full(draws.shape, -1)
    work = scratch(blocks, (V + E) * WEIGHT)
    order = np.argsort(goals, kind="stable")
    over_batch(_samples, blocks, work, order, graph, scores, lengths, goals, draws, chosen, np.zeros(B, np.bool_))
    return chosen
