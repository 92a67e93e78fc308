"""The graph of joint span–head trees, whose inside pass is that of `joint`: O(n⁴) edges.

Rows are (i, j, label, -1, -1) for a cell, and (-1, -1, -1, h, m) for an arc. Nodes: the labels of a span with and without the
empty one, and for each head of a span, its body, the body with any label (U) and with a full one (V), and its hook (W).
"""

from functools import lru_cache

import numpy as np

from phrasemodels.structs.graphs import NONE, Edges, Graph, grid

ANY, FULL, BODY, U, V, W, WHOLE = range(7)
NO_CELL = (NONE, NONE, NONE)


@lru_cache(maxsize=4)
def graph(n: int, L: int) -> Graph:
    """Return the graph for n words and L labels."""
    arcs = n * n * L  # the position of the first score of an arc
    families = [*_labels(n, L), *_heads(n), _hooks(n, arcs), *_merges(n), _wholes(n, arcs)]
    goals = np.append([NONE], _node(n, WHOLE, np.zeros(n, int), np.arange(n)))
    return Graph.of(families, goals, arcs + (n + 1) ** 2, max(3 * n - 1, 0), 8 * n, (1, -1, 1, 1, 1))


def _node(n: int, kind: int, i: np.ndarray, j: np.ndarray, h: np.ndarray | int = 0) -> np.ndarray:
    """Return the number of a node: by its last position, which is h for the hook of a head behind it, then by width."""
    last = np.maximum(j, h)
    return (((last * n + j - i) * 7 + kind) * n + i) * n + h


def _labels(n: int, L: int) -> list[Edges]:
    families = []
    for kind in (ANY, FULL):
        i, j, label = grid(n, n, L, where=lambda i, j, label, least=kind == FULL: (i <= j) & (label >= least))
        part, row = (i * n + j) * L + label, (i, j, label, NONE, NONE)
        families.append(Edges(_node(n, kind, i, j), part=part, size=j + 1, row=row))
    return families


def _heads(n: int) -> list[Edges]:
    """U and V of single words, which may have the empty label, and of longer spans."""
    word = np.arange(n)
    single = [Edges(_node(n, kind, word, word, word), _node(n, ANY, word, word)) for kind in (U, V)]
    i, j, h = grid(n, n, n, where=lambda i, j, h: (i < j) & (i <= h) & (h <= j))
    body = _node(n, BODY, i, j, h)
    return [
        *single,
        *(Edges(_node(n, to, i, j, h), body, _node(n, label, i, j)) for to, label in ((U, ANY), (V, FULL))),
    ]


def _hooks(n: int, arcs: int) -> Edges:
    i, j, h, m = grid(n, n, n, n, where=lambda i, j, h, m: (i <= m) & (m <= j) & ((h < i) | (j < h)))
    part, size = arcs + (h + 1) * (n + 1) + m + 1, np.maximum(j, h) + 1
    return Edges(_node(n, W, i, j, h), _node(n, V, i, j, m), NONE, part, size, (*NO_CELL, h + 1, m + 1))


def _merges(n: int) -> list[Edges]:
    """A body from the half of its head and the hooked other half."""
    i, j, k, h = grid(n, n, n, n, where=lambda i, j, k, h: (i <= k) & (k < j) & (i <= h) & (h <= k))
    left = Edges(_node(n, BODY, i, j, h), _node(n, U, i, k, h), _node(n, W, k + 1, j, h))
    i, j, k, h = grid(n, n, n, n, where=lambda i, j, k, h: (i <= k) & (k < j) & (k < h) & (h <= j))
    return [left, Edges(_node(n, BODY, i, j, h), _node(n, W, i, k, h), _node(n, U, k + 1, j, h))]


def _wholes(n: int, arcs: int) -> Edges:
    last, h = grid(n, n, where=lambda last, h: h <= last)
    row = (*NO_CELL, 0 * h, h + 1)
    return Edges(_node(n, WHOLE, 0 * h, last), _node(n, V, 0 * h, last, h), NONE, arcs + h + 1, last + 1, row)
