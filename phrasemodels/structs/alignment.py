"""Monotone alignments: paths through a grid of n rows and m columns, from its first cell to its last, by given moves.

    warping  moves down, right, and both at once: with −cost / γ as scores, −γ log Z is soft-DTW (Cuturi and Blondel 2017)
    frames   each row moves on by one, with or without the column: a hidden Markov model from left to right
    ctc      as `frames`, or skips a column; begins and ends at either of the two outer columns (Graves et al. 2006)

Shapes: B grids. Arguments of every function:
    cells    (B, n, m) scores of the cells of a path
    steps    (B, m, moves) or (B, n, m, moves), optional: scores of the moves of `Alignment.moves` into each column, or each cell;
             of `ctc`: stay, next, skip
    lengths  (B, 2) numbers of rows and columns, a tensor or a list; None: all are n and m

A structure is rows (i, j) of cells in order: (B, n + m − 1, 2), -1 after the last. An empty grid, without rows or columns, has
one path, the empty one, with the score 0. A score of -inf forbids a cell or a move; NaN and +inf make results NaN or
undefined. Cells in the padding are not read. Time is O(B·n·m).
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs import dispatch
from phrasemodels.structs.dispatch import Lengths
from phrasemodels.structs.kernels.engine import FIRST, NONE, add_node, add_run
from phrasemodels.structs.kernels.simd import COMPILE
from phrasemodels.structs.structure import Integers, ScoreLayout, Scores, Structure, TableSizes

Moves = tuple[tuple[int, int], ...]


@njit(**COMPILE)
def _rule(n: Any, m: Any, ways: Any, begins: Any, cells: Any, steps: Any, by_row: Any, moves: Any, nodes: Any, runs: Any,
          ends: Any) -> Any:  # fmt: skip
    """Node 1 + i · m + j: the paths to a cell; steps: the first score of a move or NONE; by_row: from one row of them to the next."""
    v = r = 0
    for i in range(n):
        for j in range(m):
            v = add_node(nodes, v, 1 + i * m + j, cells + i * m + j, r)
            if i == 0 and j < begins:
                r = add_run(runs, r, 0, 0, 0, 0, NONE, 0, 1)
            for way in range(len(ways)):  # moves from adjacent columns of one row are one run
                move, to_move, count, down, right = ways[way]
                if i >= down and j >= right:
                    part = steps + i * by_row + j * moves + move if steps >= 0 else NONE
                    count = min(count, j - right + 1)
                    r = add_run(runs, r, 1 + (i - down) * m + j - right, -1, 0, 0, part, to_move, count)
        ends[i + 1] = v
    nodes[v, FIRST] = r
    return v


class Alignment(Structure):
    """The functions over the paths by some moves (rows, columns); ends: how many outer columns a path may begin and end at."""

    rule, names, optional = _rule, ("cells", "steps"), ("steps",)
    shared_dims, length_axes = (0, 0), 2

    def __init__(self, moves: Moves, ends: int = 1):
        self.moves, self.ends, self.dims = moves, ends, (3, 4)
        self._ways = np.array(_ways(moves), np.int64)

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        if len(scores) not in (1, 2) or scores[0].dim() != 3:
            raise ValueError(f"cells must be (B, n, m), then steps, not {[tuple(s.shape) for s in scores]}")
        (B, n, m), k = scores[0].shape, len(self.moves)
        if len(scores) == 2 and scores[1].shape not in ((B, m, k), (B, n, m, k)):
            raise ValueError(f"steps must be {(B, m, k)} or {(B, n, m, k)}, not {tuple(scores[1].shape)}")
        if lengths is None:
            return torch.tensor((n, m), device=scores[0].device).expand(B, 2)
        sizes = dispatch.as_numbers(lengths)
        if B and (not dispatch.is_integer(sizes) or sizes.shape != (B, 2)):
            raise ValueError(f"lengths must be integers {(B, 2)}, not {tuple(sizes.shape)} of {sizes.dtype}")
        sizes = sizes.to(scores[0].device, torch.int64).view(B, 2)
        if B and ((sizes < 0) | (sizes > torch.tensor([n, m], device=sizes.device))).any():
            raise ValueError(
                f"lengths must be in 0..{n} and 0..{m}, not {sizes.amin(0).tolist()}..{sizes.amax(0).tolist()}"
            )
        return sizes

    def sizes(self, numbered: ScoreLayout) -> TableSizes:
        (_, n, m), stepped, moves = numbered.shapes[0], len(numbered.shapes) > 1, len(self.moves)
        by_row = m * moves if stepped and numbered.by_position[1] else 0
        arguments = (n, m, self._ways, self.ends, 0, numbered.offsets[1] if stepped else NONE, by_row, moves)
        return TableSizes(arguments, 1 + n * m, n * m, (len(self._ways) + 1) * n * m, n, max(n + m - 1, 0), n + m)

    def goals(self, sizes: TableSizes, numbered: ScoreLayout, lengths: Integers) -> Integers:
        (n, m), columns = lengths.T, sizes.arguments[1]
        there, goals = (n > 0) & (m > 0), np.zeros((len(lengths), 7), np.int64)
        goals[:, 0], goals[:, 1], goals[:, 4] = np.where(there, (n - 1) * columns + m, 0), np.where(there, -1, 0), NONE
        goals[:, 6] = np.where(there, np.minimum(self.ends, m), 1)
        return goals

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        n, m = (
            torch.arange(size, device=lengths.device) < lengths[:, i, None]
            for i, size in enumerate(scores[0].shape[1:])
        )
        both = n[:, :, None] & m[:, None]
        return both, *((both if s.dim() == 4 else m)[..., None] for s in scores[1:])

    def rows(self, scores: Scores, parts: Tensor, lengths: Tensor) -> Tensor:
        m, none = scores[0].shape[2], scores[0].shape[1] * scores[0].shape[2]
        parts = torch.where(parts >= 0, parts, none).sort(-1).values
        return torch.where(parts[..., None] < none, torch.stack([parts // max(m, 1), parts % max(m, 1)], -1), NONE)

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        (i, j), (n, m) = rows.unbind(-1), lengths.T
        there, some = (rows >= 0).any(-1), (lengths > 0).all(-1)
        if not rows.shape[-2]:
            return (~some).expand(i.shape[:-1])
        follows = there[..., 1:] & there[..., :-1]
        moved = (rows[..., 1:, None, :] - rows[..., :-1, None, :]) == torch.tensor(self.moves, device=rows.device)
        right = (moved.all(-1).any(-1) | ~there[..., 1:]).all(-1) & (follows | ~there[..., 1:]).all(-1)
        right = right & (i[..., 0] == 0) & (j[..., 0] >= 0) & (j[..., 0] < self.ends)
        last = (there.sum(-1) - 1).clamp(min=0)[..., None]
        bottom, edge = i.gather(-1, last)[..., 0], j.gather(-1, last)[..., 0]
        right = right & (bottom == n - 1) & (edge >= m - self.ends) & (edge < m)
        return torch.where(some, right, ~there.any(-1))

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        cells, steps = scores[0], scores[1] if len(scores) > 1 else None
        sentence = torch.arange(len(cells), device=cells.device)[:, None]
        i, j = rows.clamp(min=0).unbind(-1)
        total = torch.where(rows[..., 0] >= 0, cells[sentence, i, j], 0).sum(-1)
        at_end = (rows[..., 0] == lengths[:, :1] - 1) & (rows[..., 1] >= lengths[:, 1:] - self.ends)
        total = total.masked_fill(~at_end.any(-1) & (lengths > 0).all(-1), -torch.inf)
        if steps is None:
            return total
        moved = (rows[..., 1:, :] - rows[..., :-1, :])[..., None, :] == torch.tensor(self.moves, device=rows.device)
        chosen = moved.all(-1) & (rows[..., 1:, :1] >= 0)
        into = steps[sentence, j[..., 1:]] if steps.dim() == 3 else steps[sentence, i[..., 1:], j[..., 1:]]
        return total + torch.where(chosen, into, 0).sum((-1, -2))


def _ways(moves: Moves) -> list[tuple[int, int, int, int, int]]:
    """Return moves as runs: the number of the first, the step to the next, their count, rows, and columns of the first."""
    ways: list[tuple[int, int, int, int, int]] = []
    for number, (down, right) in enumerate(moves):
        for at, (first, step, count, rows, columns) in enumerate(ways):
            near = number - first - step * (count - 1)
            if rows == down and columns + count == right and (count == 1 or near == step):
                ways[at] = first, near, count + 1, rows, columns
                break
        else:
            ways.append((number, 0, 1, down, right))
    return ways


warping = Alignment(((1, 0), (0, 1), (1, 1)))
frames = Alignment(((1, 0), (1, 1)))
ctc = Alignment(((1, 0), (1, 1), (1, 2)), ends=2)


def ctc_scores(
    log_probs: Tensor, targets: Tensor, frame_lengths: Lengths = None, target_lengths: Lengths = None, blank: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return cells (B, T, 2U+1), steps (B, 2U+1, 3) and lengths (B, 2) of `ctc`, whose −log Z is the CTC loss.

    log_probs (B, T, V), targets (B, U) without blanks. A label follows a blank, or a different label.
    """
    (B, T, _), U = log_probs.shape, targets.shape[1]
    states = torch.full((B, 2 * U + 1), blank, dtype=torch.int64, device=targets.device)
    states[:, 1::2] = targets
    cells = log_probs.gather(2, states[:, None].expand(B, T, -1))
    before = torch.nn.functional.pad(states, (2, 0), value=blank)[:, :-2]
    skips = torch.where((states != blank) & (states != before), 0.0, -torch.inf).to(log_probs)
    free = torch.zeros_like(skips)
    sizes = [T if frame_lengths is None else frame_lengths, U if target_lengths is None else target_lengths]
    rows, labels = (torch.as_tensor(x, device=targets.device).expand(B) for x in sizes)
    return cells, torch.stack([free, free, skips], -1), torch.stack([rows, 2 * labels + 1], 1)


dispatch.register("alignment", ctc.first_calls(), (1, 2, 2), (1, 2, 3))
