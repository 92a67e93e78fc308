# mypy: disallow-untyped-defs=False
"""Inside, outside and covariance passes over the derivations of any graph, with weights as in `scaled`.

A graph is that of `graphs`: the edges of node v are first[v]..first[v+1], and an edge has two tails, of which node 0 is the
empty one. LANES sentences are one vector; arrays of nodes and edges are parts of one flat workspace. q is the posterior of an
edge given its node:

    p(edge) = p(v) q,   p(tail) gains p(edge)
    e(v) = Σ q (g + e(left) + e(right)),   the expectation of Σ g below v
    d(v) = p(v) E[Σ g outside v | v]: d(left) gains q d(v) + p(edge) (g + e(right)), d(right) likewise
    gradient of an edge = q d(v) + p(edge) (g + e(left) + e(right) − E[Σ g]), a covariance

Shapes: B sentences, V nodes, E edges, P scores, A axes of length.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from phrasemodels.structs.kernels import numbers, over_batch, scratch
from phrasemodels.structs.kernels.scaled import exponential, logarithm, normal, possible, ratio
from phrasemodels.structs.kernels.sequences import WEIGHT
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, LANES, above, load, maximum, spread, store
from phrasemodels.structs.kernels.trees import NEGLIGIBLE


class Edges(NamedTuple):
    """The arrays of a graph: first (V+1,); left, right, part (E,), the score of an edge or -1; size (E, A), the lengths from
    which on an edge exists."""

    first: np.ndarray
    left: np.ndarray
    right: np.ndarray
    part: np.ndarray
    size: np.ndarray


@njit(**INLINE)
def exists(size, edge, lengths, b):
    """Return whether the edge is one of sentence b."""
    there = size[edge, 0] <= lengths[b, 0]
    for axis in range(1, size.shape[1]):
        there &= size[edge, axis] <= lengths[b, axis]
    return there


@njit(**COMPILE)
def open_block(w, at, block, order, graph, scores, lengths, goals, unknown):
    """Copy the weights of edges to w, from `at` on, with 1 where an edge has no score or does not exist; return the nodes."""
    count, nodes = min(LANES, len(order) - block), 0
    for lane in range(count):
        nodes = max(nodes, goals[order[block + lane]] + 1)
    for edge in range(graph.first[nodes]):
        part, here = graph.part[edge], at + edge * WEIGHT
        if part < 0:
            store(w, here, spread(0.0))
            continue
        for lane in range(LANES):
            b, x = order[block + min(lane, count - 1)], 0.0
            if exists(graph.size, edge, lengths, b):
                x = np.float64(scores[b, part])
                if not x < np.inf:
                    unknown[b], x = True, 0.0
            w[here + lane] = x
    for edge in range(graph.first[nodes]):
        m, e = exponential(load(w, at + edge * WEIGHT))
        store(w, at + edge * WEIGHT, m)
        store(w, at + edge * WEIGHT + LANES, e)
    return nodes


@njit(**INLINE)
def _power(w, at, edge, graph):
    """Return the exponent of the weight of an edge times those of its tails."""
    tails = load(w, graph.left[edge] * WEIGHT + LANES) + load(w, graph.right[edge] * WEIGHT + LANES)
    return tails + load(w, at + edge * WEIGHT + LANES)


@njit(**INLINE)
def _mass(w, at, edge, graph, e):
    """Return the weight of an edge times those of its tails, divided by 2^e."""
    m = load(w, graph.left[edge] * WEIGHT) * load(w, graph.right[edge] * WEIGHT) * load(w, at + edge * WEIGHT)
    return m * ratio(_power(w, at, edge, graph) - e)


@njit(**COMPILE)
def inside(w, at, nodes, graph):
    """Fill the weights of all nodes, which begin at 0."""
    store(w, 0, spread(1.0))
    store(w, LANES, spread(0.0))
    for v in range(1, nodes):
        begin, end = graph.first[v], graph.first[v + 1]
        top = _power(w, at, begin, graph)
        for edge in range(begin + 1, end):
            top = maximum(top, _power(w, at, edge, graph))
        total = spread(0.0)
        for edge in range(begin, end):
            total += _mass(w, at, edge, graph, top)
        m, e = normal(total, top)
        store(w, v * WEIGHT, m)
        store(w, v * WEIGHT + LANES, e)


@njit(**COMPILE)
def _expectations(w, at, nodes, graph, e, g):
    """Fill e of all nodes from g of all edges."""
    store(w, e, spread(0.0))
    for v in range(1, nodes):
        total, power = spread(0.0), load(w, v * WEIGHT + LANES)
        for edge in range(graph.first[v], graph.first[v + 1]):
            tails = load(w, e + graph.left[edge] * LANES) + load(w, e + graph.right[edge] * LANES)
            total += _mass(w, at, edge, graph, power) * (tails + load(w, g + edge * LANES))
        store(w, e + v * LANES, total / load(w, v * WEIGHT))


@njit(**COMPILE)
def _outside(w, at, nodes, graph, p, g):
    """Write p of all edges over g; p of nodes is that of goals before."""
    for v in range(nodes - 1, 0, -1):
        share, power = above(load(w, p + v * LANES), NEGLIGIBLE) / load(w, v * WEIGHT), load(w, v * WEIGHT + LANES)
        for edge in range(graph.first[v], graph.first[v + 1]):
            x = share * _mass(w, at, edge, graph, power)
            store(w, g + edge * LANES, x)
            left, right = p + graph.left[edge] * LANES, p + graph.right[edge] * LANES
            store(w, left, load(w, left) + x)
            store(w, right, load(w, right) + x)


@njit(**COMPILE)
def _covariances(w, at, nodes, graph, p, d, e, g, mean):
    """Write the gradients of all edges over g; p of nodes is that of goals before, d is 0."""
    for v in range(nodes - 1, 0, -1):
        share, power = 1.0 / load(w, v * WEIGHT), load(w, v * WEIGHT + LANES)
        one, other = above(load(w, p + v * LANES), NEGLIGIBLE) * share, load(w, d + v * LANES) * share
        for edge in range(graph.first[v], graph.first[v + 1]):
            mass = _mass(w, at, edge, graph, power)
            x, y, own = one * mass, other * mass, load(w, g + edge * LANES)
            left, right = graph.left[edge] * LANES, graph.right[edge] * LANES
            a, b = load(w, e + left), load(w, e + right)
            store(w, p + left, load(w, p + left) + x)
            store(w, p + right, load(w, p + right) + x)
            store(w, d + left, load(w, d + left) + (y + x * (own + b)))
            store(w, d + right, load(w, d + right) + (y + x * (own + a)))
            store(w, g + edge * LANES, y + x * (own + a + b - load(w, mean)))


@njit(**COMPILE)
def _passes(first, step, work, order, graph, scores, lengths, goals, grad, log_z, out, unknown):
    """Compute log Z (B,); and, unless `out` (B, P) is empty, p of all scores, or with `grad` (B, P) the gradient of the p."""
    w, V, E = work[first], len(graph.first) - 1, len(graph.left)
    at, p = V * WEIGHT, V * WEIGHT + E * WEIGHT
    d, e, g = p + V * LANES, p + 2 * V * LANES, p + 3 * V * LANES
    mean = g + E * LANES
    for block in range(first * LANES, len(order), step * LANES):
        nodes = open_block(w, at, block, order, graph, scores, lengths, goals, unknown)
        inside(w, at, nodes, graph)
        w[p:e] = 0.0
        for lane in range(min(LANES, len(order) - block)):
            b = order[block + lane]
            top = goals[b] * WEIGHT + lane
            log_z[b] = logarithm(w[top], w[top + LANES])
            w[p + goals[b] * LANES + lane] = 1.0 if possible(w[top + LANES]) else 0.0
        if out.size == 0:
            continue
        if grad.size == 0:
            _outside(w, at, nodes, graph, p, g)
        else:
            _read(w, g, block, order, graph, lengths, nodes, grad)
            _expectations(w, at, nodes, graph, e, g)
            for lane in range(LANES):
                w[mean + lane] = w[e + goals[order[min(block + lane, len(order) - 1)]] * LANES + lane]
            _covariances(w, at, nodes, graph, p, d, e, g, mean)
        _add(w, g, block, order, graph, lengths, nodes, out)


@njit(**COMPILE)
def _read(w, g, block, order, graph, lengths, nodes, grad):
    """Copy grad (B, P) to g of the edges of a block."""
    for edge in range(graph.first[nodes]):
        for lane in range(LANES):
            b, part = order[min(block + lane, len(order) - 1)], graph.part[edge]
            there = part >= 0 and exists(graph.size, edge, lengths, b)
            w[g + edge * LANES + lane] = grad[b, part] if there else 0.0


@njit(**COMPILE)
def _add(w, g, block, order, graph, lengths, nodes, out):
    """Add g of the edges of a block to their scores in out (B, P)."""
    for edge in range(graph.first[nodes]):
        part = graph.part[edge]
        for lane in range(min(LANES, len(order) - block) if part >= 0 else 0):
            b = order[block + lane]
            if exists(graph.size, edge, lengths, b):
                out[b, part] += w[g + edge * LANES + lane]


def passes(graph, scores, lengths, goals, wanted, grad=None):
    """Return log Z (B,), p or its gradient (B, P), which is empty unless `wanted`, and which sentences (B,) have a score that is
    NaN or +inf; float64."""
    B, V, E = len(scores), len(graph.first) - 1, len(graph.left)
    log_z, out, unknown = np.empty(B), np.zeros(scores.shape if wanted else (0, 0)), np.zeros(B, np.bool_)
    blocks, order = -(-B // LANES), np.argsort(goals, kind="stable")
    work = scratch(blocks, V * (WEIGHT + 3 * LANES) + E * (WEIGHT + LANES) + LANES)
    given = np.empty((0, 0)) if grad is None else numbers(grad)
    over_batch(_passes, blocks, work, order, graph, scores, lengths, goals, given, log_z, out, unknown)
    return log_z, out, unknown
