"""Semi-Markov chains (Sarawagi and Cohen 2004): a sequence is cut into labelled segments of at most K positions.

Shapes: B sequences, T positions, K the longest segment, C labels. Arguments of every function of `segmentations`:
    segments  (B, T, K, C): score of the segment of k+1 positions from t on with the label c at [t, k, c]
    pairwise  (C, C) scores of transitions [from, to] between segments, or (B, T-1, C, C), by the last position of the first
    lengths   (B,) integers in 0..T, a tensor or a list, or a mask (B, T); None: all are T

A structure is rows (t, t + k, label) of segments from left to right, both ends included: (B, T, 3), -1 after the last. A score
of -inf forbids a segment or a transition. If a score of a sequence is NaN or +inf, its results are NaN or undefined. Segments
that would end in the padding are not read. Time is O(B·T·(K·C + C²)).
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


@njit(**COMPILE)
def _rule(T: Any, K: Any, C: Any, segments: Any, pairwise: Any, step: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Nodes 1 + 2 C t + c: a segment with the label c may begin at t; 1 + 2 C t + C + c: one has ended there."""
    v = r = 0
    for t in range(T + 1):
        here = 1 + 2 * C * t
        for c in range(C if t > 0 else 0):  # over the lengths of the last segment
            v = add_node(nodes, v, here + C + c, NONE, r)
            part = segments + (t - 1) * K * C + c
            r = add_run(runs, r, here - 2 * C + c, -2 * C, 0, 0, part, (1 - K) * C, min(K, t))
        ends[t] = v
        for c in range(C if t < T else 0):  # over the label before
            v = add_node(nodes, v, here + c, NONE, r)
            if t == 0:
                r = add_run(runs, r, 0, 0, 0, 0, NONE, 0, 1)
            else:
                r = add_run(runs, r, here + C, 1, 0, 0, pairwise + (t - 1) * step + c, C, C)
    nodes[v, FIRST] = r
    return v


class SemiMarkov(Structure):
    """The functions over segmentations."""

    rule, names, dims, shared_dims = _rule, ("segments", "pairwise"), (4, 4), (0, 2)

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        if len(scores) != 2 or scores[0].dim() != 4:
            raise ValueError(f"segments must be (B, T, K, C), then pairwise, not {[tuple(s.shape) for s in scores]}")
        (B, T, _, C), pairwise = scores[0].shape, scores[1]
        if pairwise.shape not in ((C, C), (B, max(T - 1, 0), C, C)):
            raise ValueError(f"pairwise must be {(C, C)} or {(B, max(T - 1, 0), C, C)}, not {tuple(pairwise.shape)}")
        return dispatch.check_lengths(lengths, B, T, scores[0].device)

    def sizes(self, numbered: ScoreLayout) -> TableSizes:
        _, T, K, C = numbered.shapes[0]
        step = C * C if numbered.by_position[1] else 0
        rows = 2 * C * (T + 1)
        return TableSizes((T, K, C, *numbered.offsets, step), 1 + rows, rows, rows, T, T, 2 * T + 1)

    def goals(self, sizes: TableSizes, numbered: ScoreLayout, lengths: Integers) -> Integers:
        n, C, goals = lengths[:, 0], sizes.arguments[2], np.zeros((len(lengths), 7), np.int64)
        goals[:, 0], goals[:, 1] = np.where(n > 0, 1 + 2 * C * n + C, 0), n > 0
        goals[:, 4], goals[:, 6] = NONE, np.where(n > 0, C, 1)
        return goals

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        _, T, K, _ = scores[0].shape
        t, k = torch.arange(T, device=lengths.device), torch.arange(K, device=lengths.device)
        inside = t[:, None] + k < lengths[..., None]
        pairs = (t < lengths)[:, 1:, None, None] if scores[1].dim() == 4 else inside.new_ones(())
        return inside[..., None], pairs

    def rows(self, scores: Scores, parts: Tensor, lengths: Tensor) -> Tensor:
        K, C = scores[0].shape[2:]
        parts = torch.where(parts >= 0, parts, scores[0][0].numel() if len(scores[0]) else 0).sort(-1).values
        begin, length, label = parts // (K * C), parts // C % K, parts % C
        inside = begin < scores[0].shape[1]
        return torch.where(inside[..., None], torch.stack([begin, begin + length, label], -1), NONE)

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        K, C = scores[0].shape[2:]
        begin, end, label = rows.unbind(-1)
        there = (rows[..., :2] >= 0).any(-1)
        before = torch.nn.functional.pad(torch.where(there, end, begin.new_tensor(-2)), (1, 0), value=-1)[..., :-1]
        right = (begin == before + 1) & (begin >= 0) & (end >= begin) & (end < begin + K) & (label >= 0) & (label < C)
        return (right | ~there).all(-1) & (
            torch.where(there, end + 1, 0).amax(-1) == lengths[:, 0] if rows.shape[-2] else True
        )

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        segments, pairwise = scores
        sentence = torch.arange(len(segments), device=segments.device)[:, None]
        there = rows[..., 0] >= 0
        begin, end, label = torch.where(there[..., None], rows, 0).unbind(-1)
        single = torch.where(there, segments[sentence, begin, end - begin, label], 0).sum(-1)
        pair = label[..., :-1], label[..., 1:]
        last = end[..., :-1].clamp(max=max(pairwise.shape[1] - 1, 0))
        chosen = pairwise[pair] if pairwise.dim() == 2 else pairwise[(sentence, last, *pair)]
        missing = torch.where(there, end + 1 - begin, 0).sum(-1) < lengths[:, 0]
        return (single + torch.where(there[..., 1:], chosen, 0).sum(-1)).masked_fill(missing, -torch.inf)


segmentations = SemiMarkov()


dispatch.register("semimarkov", segmentations.first_calls(), (1, 2, 2, 2), (2, 2))
