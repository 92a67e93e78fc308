# mypy: disallow-untyped-defs=False
"""The rules of labelled spans, projective dependencies and joint trees: nodes and runs, as `engine` reads them.

They are apart from their structures, which decode a short sentence by torch without numba.
"""

from typing import Any

from numba import njit

from phrasemodels.structs.kernels.engine import FIRST, NONE, add_node, add_run
from phrasemodels.structs.kernels.simd import COMPILE


@njit(**COMPILE)
def spans(n: Any, L: Any, labels: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Nodes of the words i..j are 1 + 2 (i · n + j): its two halves, and 1 more: with a label."""
    v = r = 0
    for j in range(n):
        for i in range(j, -1, -1):
            here, below, own = 1 + 2 * (i * n + j), 1 + 2 * (i * n + i), 1 + 2 * ((i + 1) * n + j)
            if i < j:
                v = add_node(nodes, v, here, NONE, r)
                r = add_run(runs, r, below + 1, 2, own + 1, 2 * n, NONE, 0, j - i)
            v = add_node(nodes, v, here + 1, NONE, r)
            r = add_run(runs, r, here if i < j else 0, 0, 0, 0, labels + (i * n + j) * L, 1, L)
        ends[j + 1] = v
    nodes[v, FIRST] = r
    return v


@njit(**COMPILE)
def eisner(N: Any, one_root: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Nodes of the positions i..j begin at 1 + 5 (i · N + j): complete spans with the head i or j, incomplete ones with the head i or j,
    and the part that both incomplete ones share."""
    v = r = 0
    row, column = 5 * N, 5
    for j in range(N):
        for kind in range(2):
            v = add_node(nodes, v, 1 + j * row + j * column + kind, NONE, r)
            r = add_run(runs, r, 0, 0, 0, 0, NONE, 0, 1)
        for i in range(j - 1, -1, -1):
            here, below, own = 1 + i * row + j * column, 1 + i * row + i * column, 1 + (i + 1) * row + j * column
            # with one root arc, the root has no complete span that another arc of it could follow
            splits = 1 if one_root and i == 0 else j - i
            v = add_node(nodes, v, here + 4, NONE, r)
            # ⊕_k C→(i,k) ⊗ C←(k+1,j), shared by both directions; the equations are those of `inside`
            r = add_run(runs, r, below, column, own + 1, row, NONE, 0, splits)
            # I→(i,j)
            v = add_node(nodes, v, here + 2, i * N + j, r)
            r = add_run(runs, r, here + 4, 0, 0, 0, NONE, 0, 1)
            if i > 0:
                # I←(i,j); the root, i = 0, has no head
                v = add_node(nodes, v, here + 3, j * N + i, r)
                r = add_run(runs, r, here + 4, 0, 0, 0, NONE, 0, 1)
                v = add_node(nodes, v, here + 1, NONE, r)
                # C←(i,j)
                r = add_run(runs, r, below + 1, column, here + 3, row, NONE, 0, j - i)
            v = add_node(nodes, v, here, NONE, r)
            # C→(i,j)
            r = add_run(runs, r, below + column + 2, column, own, row, NONE, 0, j - i)
        ends[j] = v
    nodes[v, FIRST] = r
    return v


@njit(**COMPILE)
def joint(n: Any, L: Any, labels: Any, arcs: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Nodes of the words i..j begin at 1 + (i · n + j) (4n + 2): for each head h, the hook W, the body with any label U and with a full one
    V, and the body; then any label of the span, and any full one."""
    v = r = 0
    width = 4 * n + 2
    row, column = n * width, width
    for j in range(n):
        for k in range(j):  # the hooks of the head j, of spans before it
            for i in range(k + 1):
                here = 1 + i * row + k * column
                v = add_node(nodes, v, here + j, NONE, r)
                r = add_run(runs, r, here + 2 * n + i, 1, 0, 0, arcs + (j + 1) * (n + 1) + i + 1, 1, k - i + 1)
        for i in range(j, -1, -1):
            here, below, right = 1 + i * row + j * column, 1 + i * row + i * column, 1 + (i + 1) * row + j * column
            label = labels + (i * n + j) * L
            v = add_node(nodes, v, here + 4 * n, NONE, r)
            r = add_run(runs, r, 0, 0, 0, 0, label, 1, L)
            v = add_node(nodes, v, here + 4 * n + 1, NONE, r)
            r = add_run(runs, r, 0, 0, 0, 0, label + 1, 1, L - 1)
            for h in range(i, j + 1):
                v = add_node(nodes, v, here + 3 * n + h, NONE, r)
                if i == j:
                    r = add_run(runs, r, 0, 0, 0, 0, NONE, 0, 1)
                if h < j:  # the head is in the left half
                    r = add_run(
                        runs,
                        r,
                        below + (h - i) * column + n + h,
                        column,
                        right + (h - i) * row + h,
                        row,
                        NONE,
                        0,
                        j - h,
                    )
                if h > i:
                    r = add_run(runs, r, below + h, column, right + n + h, row, NONE, 0, h - i)
                v = add_node(nodes, v, here + n + h, NONE, r)
                r = add_run(runs, r, here + 3 * n + h, 0, here + 4 * n, 0, NONE, 0, 1)
                v = add_node(nodes, v, here + 2 * n + h, NONE, r)  # a single word may have the empty label
                r = add_run(runs, r, here + 3 * n + h, 0, here + 4 * n + (1 if i < j else 0), 0, NONE, 0, 1)
            for h in range(i):
                v = add_node(nodes, v, here + h, NONE, r)
                r = add_run(runs, r, here + 2 * n + i, 1, 0, 0, arcs + (h + 1) * (n + 1) + i + 1, 1, j - i + 1)
        ends[j + 1] = v
    nodes[v, FIRST] = r
    return v
