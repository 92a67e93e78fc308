"""Monotone alignments: paths through a grid of n rows and m columns, from its first cell to its last, by given moves.

    warping  moves right, down, and both at once: with −cost / γ as scores, −γ log Z is soft-DTW (Cuturi and Blondel 2017)
    frames   each row moves on by one, with or without the column: a hidden Markov model from left to right
    ctc      as `frames`, or skips a column; begins and ends at either of the two outer columns (Graves et al. 2006)

Shapes: B grids. Arguments of every function:
    cells    (B, n, m) scores of the cells of a path
    steps    (B, m, moves), optional: scores of the moves of `Alignment.moves` into each column; of `ctc`: stay, next, skip
    lengths  (B, 2) numbers of rows and columns, a tensor or a list; None: all are n and m

A structure is rows (i, j) of cells in order: (B, n + m − 1, 2), -1 after the last. An empty grid, without rows or columns, has
one path, the empty one, with the score 0. A score of -inf forbids a cell or a move; NaN and +inf make results NaN or
undefined. Cells in the padding are not read. Time is O(B·n·m).
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs.derivations import Derivations, Problem
from phrasemodels.structs.graphs import NONE, Edges, Graph
from phrasemodels.structs.inference import Lengths

Moves = tuple[tuple[int, int], ...]


@lru_cache(maxsize=32)
def _graph(n: int, m: int, moves: Moves, ends: int, stepped: bool) -> Graph:
    """Nodes: the steps, then for each row its cells and the whole paths that end in it."""
    base = m * len(moves)
    i, j = np.meshgrid(range(n), range(m), indexing="ij")
    cell = base + 2 * m * i + j

    def edges(at: np.ndarray, left: object, right: object = NONE) -> Edges:
        size = (i[at] + 1, j[at] + 1)
        return Edges(cell[at], left, right, (i * m + j)[at], size, (i[at], j[at]))

    families = [edges((i == 0) & (j < ends), NONE)]
    for number, (down, right) in enumerate(moves):
        at = (i >= down) & (j >= right)
        step = (j * len(moves) + number)[at] if stepped else NONE
        families.append(edges(at, (cell - 2 * m * down - right)[at], step))
    if stepped:
        columns, which = np.meshgrid(range(m), range(len(moves)), indexing="ij")
        one = columns * len(moves) + which
        families.append(Edges(one, part=n * m + one, size=(0, columns + 1)))
    for back in range(ends):
        at = j >= back
        families.append(Edges((cell + m)[at], (cell - back)[at]))
    goals = np.full((n + 1, m + 1), NONE)
    goals[1:, 1:] = cell + m
    longest = n + m - 1
    scores = n * m + stepped * m * len(moves)
    return Graph.of(families, goals, scores, longest, 2 * longest + 1, (1, 1))


class Alignment(Derivations):
    """The functions over the paths by some moves (rows, columns); ends: how many outer columns a path may begin and end at."""

    def __init__(self, moves: Moves, ends: int = 1):
        self.moves, self.ends = moves, ends

    def problem(self, cells: Tensor, steps: Tensor | None = None, *, lengths: Lengths = None) -> Problem:  # type: ignore[override]
        if cells.dim() != 3:
            raise ValueError(f"cells must be (B, n, m), not {tuple(cells.shape)}")
        B, n, m = cells.shape
        if steps is not None and steps.shape != (B, m, len(self.moves)):
            raise ValueError(f"steps must be {(B, m, len(self.moves))}, not {tuple(steps.shape)}")
        scores = (cells,) if steps is None else (cells, steps)
        return Problem(_graph(n, m, self.moves, self.ends, steps is not None), scores, _sizes(cells, lengths))

    def score(  # type: ignore[override]
        self, cells: Tensor, steps: Tensor | None = None, *, rows: Tensor, lengths: Lengths = None
    ) -> Tensor:
        """Return the scores (..., B) of paths (..., B, n + m − 1, 2)."""
        sentence = torch.arange(len(cells), device=cells.device)[:, None]
        i, j = rows.clamp(min=0).unbind(-1)
        total = torch.where(rows[..., 0] >= 0, cells[sentence, i, j], 0).sum(-1)
        sizes = _sizes(cells, lengths)
        at_end = (rows[..., 0] == sizes[:, :1] - 1) & (rows[..., 1] >= sizes[:, 1:] - self.ends)
        total = total.masked_fill(~at_end.any(-1) & (sizes > 0).all(-1), -torch.inf)
        if steps is None:
            return total
        moved = (rows[..., 1:, :] - rows[..., :-1, :])[..., None, :] == torch.tensor(self.moves, device=rows.device)
        chosen = moved.all(-1) & (rows[..., 1:, :1] >= 0)
        return total + torch.where(chosen, steps[sentence, j[..., 1:]], 0).sum((-1, -2))


def _sizes(cells: Tensor, lengths: Lengths) -> Tensor:
    """Return the numbers (B, 2) of rows and columns. ValueError: they are no integers, or out of range."""
    B, n, m = cells.shape
    sizes = torch.as_tensor((n, m) if lengths is None else lengths, device=cells.device)
    if B and (sizes.is_floating_point() or sizes.dtype == torch.bool):
        raise ValueError(f"lengths must be integers, not {sizes.dtype}")
    sizes = sizes.long().expand(B, 2)
    if B and ((sizes < 0) | (sizes > torch.tensor([n, m], device=cells.device))).any():
        raise ValueError(
            f"lengths must be in 0..{n} and 0..{m}, not {sizes.amin(0).tolist()}..{sizes.amax(0).tolist()}"
        )
    return sizes


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
