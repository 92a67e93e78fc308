"""Graphs whose derivations are structures.

A graph (Klein and Manning 2001; Huang 2008) has a node for each item of a dynamic program, and an edge for each way to make the
item from two, one or none that are smaller. An edge has at most one score, and says what it adds to the structure: a row of
integers, or nothing. A derivation chooses an edge for its goal, then for each tail. Its score is the sum of the scores of
its edges. So a new structure is a list of its edges, with the nodes as integers:

    Edges(head, left, right, part, size, row)   integers or arrays that broadcast to one (E,); row (E, w)

    head, left, right   nodes, in the order of their numbers: an edge's tails are before its head; NONE: no tail
    part                the position of the edge's score among all scores of a sentence; NONE: the score 0
    size                the least lengths (E, A) of a structure with the edge: scores of others are padding, which is not read
    row                 what the edge adds to the structure, NONE (-1) in all columns: nothing

`derivations` has all operations over a graph. Shapes: E edges, P scores, A axes of length, w integers in a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from phrasemodels.structs.kernels import derivations

NONE = -1


class Edges(NamedTuple):
    """Edges of one kind; see above."""

    head: Any
    left: Any = NONE
    right: Any = NONE
    part: Any = NONE
    size: Any = 0
    row: Any = NONE


def grid(*sizes: int, where: Callable[..., np.ndarray]) -> list[np.ndarray]:
    """Return the indices of all places of a grid where a condition on them is true, one array for each axis."""
    return [np.asarray(x) for x in np.nonzero(where(*np.ogrid[tuple(slice(size) for size in sizes)]))]


@dataclass(frozen=True, eq=False)
class Graph:
    """All edges, sorted by their heads, whose nodes are numbered from 1 on; node 0 is the empty derivation.

    goals: the node of the whole structure, for all lengths (n₁+1, ..., n_A+1). most_rows: R. most_edges: the most edges of a
    derivation. order: the place of an edge's row among those of a structure.
    """

    edges: derivations.Edges
    rows: np.ndarray
    order: np.ndarray
    goals: np.ndarray
    most_rows: int
    most_edges: int

    @staticmethod
    def of(
        families: Sequence[Edges], goals: Any, scores: int, most_rows: int, most_edges: int, down: Sequence[int]
    ) -> "Graph":
        """Return the graph with the edges of all families; those with a tail that no edge makes are left out.

        goals (n₁+1, ...): nodes, NONE: the empty structure; one that no edge makes is an impossible structure. scores: P.
        down (w,): 1 for the columns of rows that order them upwards, -1 for those that do it downwards.
        """
        goals = np.asarray(goals)
        columns = [_columns(family, goals.ndim, len(down)) for family in families]
        head, left, right, part, size, row = (np.concatenate(x) for x in zip(*columns, strict=True))
        while True:
            nodes = np.append(np.unique(head), NONE)
            made = np.isin(left, nodes) & np.isin(right, nodes)
            if made.all():
                break
            head, left, right, part, size, row = (x[made] for x in (head, left, right, part, size, row))
        never = head.max(initial=0) + 1  # a node whose edge has the score P, which is -inf
        goals = np.where(np.isin(goals, nodes), goals, never)
        head, left, right, part = (
            np.append(x, y) for x, y in zip((head, left, right, part), (never, NONE, NONE, scores), strict=True)
        )
        size, row = np.append(size, np.zeros((1, goals.ndim)), 0), np.append(row, np.full((1, len(down)), NONE), 0)
        by_head = np.argsort(head, kind="stable")
        nodes, first = np.unique(head[by_head], return_index=True)

        def number(x: np.ndarray) -> np.ndarray:
            return np.where(x == NONE, 0, np.searchsorted(nodes, x) + 1).astype(np.int32)

        edges = derivations.Edges(
            np.concatenate([[0], first, [len(head)]]),
            number(left[by_head]),
            number(right[by_head]),
            part[by_head].astype(np.int32),
            size[by_head].astype(np.int32),
        )
        rows = row[by_head].astype(np.int64)
        turned = rows * np.asarray(down)
        turned = turned - turned.min(0, initial=0)
        order = np.ravel_multi_index(tuple(turned.T), tuple(turned.max(0, initial=0) + 1))
        return Graph(edges, rows, order, number(goals), most_rows, most_edges)

    @cached_property
    def depths(self) -> np.ndarray:
        """The most edges between each node and the empty derivation."""
        edges, depth, before = self.edges, np.zeros(len(self.edges.first) - 1, int), None
        while before is None or (depth != before).any():
            before = depth.copy()
            depth[1:] = np.maximum.reduceat(np.maximum(depth[edges.left], depth[edges.right]), edges.first[1:-1]) + 1
        return depth

    @cached_property
    def places(self) -> np.ndarray:
        """The place of each node in the order of their depths."""
        return np.argsort(np.argsort(self.depths, kind="stable"), kind="stable")

    @cached_property
    def levels(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each depth: the places of left and right tails, and edges, (nodes, most edges of a node); an edge that is missing
        is the last one plus 1."""
        first, levels = self.edges.first, []
        for depth in range(1, self.depths.max() + 1):
            v = np.flatnonzero(self.depths == depth)
            each = first[v][:, None] + np.arange((first[v + 1] - first[v]).max())
            edge = np.where(each < first[v + 1][:, None], each, len(self.edges.left))
            left, right = (np.append(self.places[x], 0)[edge] for x in (self.edges.left, self.edges.right))
            levels.append((left, right, edge))
        return levels


def _columns(family: Edges, axes: int, width: int) -> list[np.ndarray]:
    """Return head, left, right, part (E,), size (E, A) and row (E, w) of the edges."""
    shape = np.broadcast_shapes(*(np.shape(x) for x in family[:4]))
    single = [np.broadcast_to(x, shape).ravel() for x in family[:4]]
    size = family.size if isinstance(family.size, tuple) else (family.size,) * axes
    row = family.row if isinstance(family.row, tuple) else (family.row,) * width
    return [*single, *(np.stack([np.broadcast_to(x, shape).ravel() for x in xs], 1) for xs in (size, row))]
