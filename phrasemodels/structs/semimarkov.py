"""Semi-Markov chains (Sarawagi and Cohen 2004): a sequence is cut into labelled segments of at most K positions.

Shapes: B sequences, T positions, K the longest segment, C labels. Arguments of every function of `segmentations`:
    segments  (B, T, K, C): score of the segment of k+1 positions from t on with the label c at [t, k, c]
    pairwise  (C, C) scores of transitions [from, to] between segments, or (B, T-1, C, C), by the last position of the first
    lengths   (B,) integers in 0..T, a tensor or a list; None: all are T

A structure is rows (t, t + k, label) of segments from left to right, both ends included: (B, T, 3), -1 after the last. A score
of -inf forbids a segment or a transition. If a score of a sequence is NaN or +inf, its results are NaN or undefined. Segments
that would end in the padding are not read. Time is O(B·T·(K·C + C²)).
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs import inference
from phrasemodels.structs.derivations import Derivations, Problem
from phrasemodels.structs.graphs import Edges, Graph, grid
from phrasemodels.structs.inference import Lengths


@lru_cache(maxsize=32)
def _graph(T: int, K: int, C: int, shared: bool) -> Graph:
    """Nodes at position t: a last label c (2C+1)·t + c, the whole (2C+1)·t + C, a next label d (2C+1)·t + C + 1 + d."""
    width = 2 * C + 1
    t, k, c = grid(T, K, C, where=lambda t, k, c: (t + k < T) & (c >= 0))
    end = t + k + 1
    before = np.where(t > 0, width * t + C + 1 + c, -1)
    segments = Edges(width * end + c, before, part=(t * K + k) * C + c, size=end, row=(t, end - 1, c))
    at, one, other = np.meshgrid(range(1, T), range(C), range(C), indexing="ij")
    place = 0 if shared else at - 1
    pairs = T * K * C + (place * C + one) * C + other
    transitions = Edges(width * at + C + 1 + other, width * at + one, part=pairs, size=at + 1)
    last, label = np.meshgrid(range(1, T + 1), range(C), indexing="ij")
    whole = Edges(width * last + C, width * last + label)
    goals = np.append([-1], width * np.arange(1, T + 1) + C)
    scores = T * K * C + (1 if shared else max(T - 1, 0)) * C * C
    return Graph.of([segments, transitions, whole], goals, scores, T, 2 * T + 1, (1, 1, 1))


class SemiMarkov(Derivations):
    """The functions over segmentations."""

    def problem(self, segments: Tensor, pairwise: Tensor, *, lengths: Lengths = None) -> Problem:  # type: ignore[override]
        if segments.dim() != 4:
            raise ValueError(f"segments must be (B, T, K, C), not {tuple(segments.shape)}")
        B, T, K, C = segments.shape
        pairs = max(T - 1, 0)
        if pairwise.shape not in ((C, C), (B, pairs, C, C)):
            raise ValueError(f"pairwise must be {(C, C)} or {(B, pairs, C, C)}, not {tuple(pairwise.shape)}")
        each = pairwise.expand(B, C, C) if pairwise.dim() == 2 else pairwise
        lengths = inference.check_lengths(lengths, B, T, segments.device)
        return Problem(_graph(T, K, C, pairwise.dim() == 2), (segments, each), lengths[:, None])

    def score(  # type: ignore[override]
        self, segments: Tensor, pairwise: Tensor, *, rows: Tensor, lengths: Lengths = None
    ) -> Tensor:
        """Return the scores (..., B) of segmentations (..., B, T, 3)."""
        sentence = torch.arange(len(segments), device=segments.device)[:, None]
        begin, end, label = rows.clamp(min=0).unbind(-1)
        single = torch.where(rows[..., 0] >= 0, segments[sentence, begin, end - begin, label], 0).sum(-1)
        pair = label[..., :-1], label[..., 1:]
        chosen = (
            pairwise[pair]
            if pairwise.dim() == 2
            else pairwise[(sentence, end[..., :-1].clamp(max=pairwise.shape[1] - 1), *pair)]
        )
        words = inference.check_lengths(lengths, segments.shape[0], segments.shape[1], segments.device)
        missing = torch.where(rows[..., 0] >= 0, end + 1 - begin, 0).sum(-1) < words
        total = single + torch.where(rows[..., 1:, 0] >= 0, chosen, 0).sum(-1)
        return total.masked_fill(missing, -torch.inf)


segmentations = SemiMarkov()
