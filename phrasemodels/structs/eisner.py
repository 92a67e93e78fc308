"""Projective dependency trees (Eisner 1996), with any number of root arcs (`multi_root`) or one (`single_root`).

Shapes: B sentences, n words. Arguments of every function:
    arcs     (B, n+1, n+1): arcs[b, h, m] is the score of word h as the head of word m; position 0 is the root.
             The diagonal and arcs into the root are not read.
    lengths  (B,) numbers of words, without the root, in 0..n, a tensor or a list, or a mask (B, n); None: all are n

A structure is the heads (B, n+1) of words, -1 at the root and in the padding. A score of -inf forbids an arc. If a score of a sentence
is NaN or +inf, its log Z, marginals and gradients are NaN, and its trees are undefined. A sentence without words has one tree, the empty
one, with the score 0. Scores in the padding are not read. Time is O(B·n³), and so is the memory of the torch path. ValueError: wrong
shapes or lengths.
"""

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs import dispatch, kernels
from phrasemodels.structs.dispatch import Lengths
from phrasemodels.structs.kernels import NONE
from phrasemodels.structs.semiring import Chart, Log
from phrasemodels.structs.structure import ENGINE, AtFirstUse, Integers, ScoreLayout, Scores, Structure, TableSizes


def arcs_read(arcs: Tensor, lengths: Tensor) -> Tensor:
    """Return which arcs (B, n+1, n+1) a tree can have, by lengths (B, 1)."""
    at = torch.arange(arcs.shape[1], device=lengths.device)
    word = at <= lengths
    return word[:, :, None] & (word & (at > 0))[:, None] & (at[:, None] != at)


class DependencyTrees(Structure):
    """Operations of projective and other dependency trees alike."""

    names, dims, shared_dims, event_dims = ("arcs",), (3,), (0,), 1

    def __init__(self, one_root: bool):
        self.one_root = one_root

    def __repr__(self) -> str:
        return f"{self.module}.{'single' if self.one_root else 'multi'}_root"

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        arcs = scores[0]
        if len(scores) != 1 or arcs.dim() != 3 or arcs.shape[1] != arcs.shape[2] or arcs.shape[1] < 1:
            raise ValueError(f"arcs must be (B, n+1, n+1) with the root at 0, not {tuple(arcs.shape)}")
        return dispatch.check_lengths(lengths, arcs.shape[0], arcs.shape[1] - 1, arcs.device)

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        return (arcs_read(scores[0], lengths),)

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        at = torch.arange(rows.shape[-1], device=rows.device)
        word = (at > 0) & (at <= lengths)
        right = ((rows >= 0) & (rows <= lengths) & (rows != at) | ~word).all(-1)
        above = torch.where(word & (rows >= 0) & (rows <= lengths), rows, 0)
        for _ in range(
            rows.shape[-1].bit_length()
        ):  # each turn doubles the steps towards the root, which a cycle never reaches
            above = above.gather(-1, above)
        if self.one_root:
            right = right & (((rows == 0) & word).sum(-1) == (lengths[:, 0] > 0))
        return right & (above == 0).all(-1)

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        at = torch.arange(rows.shape[-1], device=rows.device)
        word = (at > 0) & (at <= lengths)
        heads = torch.where(word, rows, NONE)
        return score_heads(scores[0], heads).masked_fill((word & (heads < 0)).any(-1), -torch.inf)


class Projective(DependencyTrees):
    """The functions over projective trees, for any number of root arcs or one."""

    kernels = AtFirstUse(lambda: (kernels.gpu.EisnerPrograms(), ENGINE))
    rule = AtFirstUse(lambda: kernels.decode.eisner_rule)

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        at = torch.arange(rows.shape[-1], device=rows.device)
        heads = torch.where((at > 0) & (at <= lengths), rows, at)
        (a, b), (c, d) = (
            (f(heads, at)[..., :, None], f(heads, at)[..., None, :]) for f in (torch.minimum, torch.maximum)
        )
        crossing = (a < b) & (b < c) & (c < d)
        return super().is_structure(scores, rows, lengths) & ~crossing.any((-1, -2))

    def sizes(self, numbered: ScoreLayout) -> TableSizes:
        N = numbered.shapes[0][1]
        rows = 5 * N * (N - 1) // 2 + 2 * N
        return TableSizes((N, self.one_root), 1 + 5 * N * N, rows, rows, N - 1, N - 1, 3 * N)

    def goals(self, sizes: TableSizes, numbered: ScoreLayout, lengths: Integers) -> Integers:
        goals = np.zeros((len(lengths), 7), np.int64)
        goals[:, 0], goals[:, 4], goals[:, 6] = 1 + 5 * lengths[:, 0], NONE, 1
        return goals

    def rows(self, scores: Scores, parts: Tensor, lengths: Tensor) -> Tensor:
        N = scores[0].shape[1]
        heads = parts.new_full((*parts.shape[:2], N + 1), NONE)  # the last takes what is none
        return heads.scatter(2, torch.where(parts >= 0, parts % N, N), parts // N)[..., :N]

    def inside(self, semiring: Log, scores: Scores, lengths: Tensor) -> Tensor:
        """The inside pass over complete spans C and incomplete spans I, to the right (head i) and to the left (head j).

        I→(i,j) = arcs(i,j) ⊗ ⊕_k C→(i,k) ⊗ C←(k+1,j)      C→(i,j) = ⊕_k I→(i,k) ⊗ C→(k,j)
        I←(i,j) = arcs(j,i) ⊗ ⊕_k C→(i,k) ⊗ C←(k+1,j)      C←(i,j) = ⊕_k C←(i,k) ⊗ I←(k,j)
        """
        N = scores[0].shape[1]
        arcs = semiring.lift(torch.where(arcs_read(scores[0], lengths), scores[0], 0))
        if N == 1:
            return arcs.sum((2, 3))  # one tree, the empty one; no arc is read
        one = torch.zeros_like(arcs[:, :, :, 0])
        right, left = Chart(one), Chart(one)  # complete
        for d in range(1, N):
            m = N - d
            meet = semiring.sum(right.prefixes(m) + left.suffixes(m), -1)
            to_right = meet + arcs.diagonal(d, 2, 3)
            to_left = meet + arcs.diagonal(-d, 2, 3)
            if d == 1:
                open_right, open_left = Chart(to_right), Chart(to_left)
            else:
                open_right.append(to_right)
                open_left.append(to_left)
            new_right = semiring.sum(open_right.prefixes(m) + right.suffixes(m), -1)
            left.append(semiring.sum(left.prefixes(m) + open_left.suffixes(m), -1))
            if self.one_root:  # with words left after d, the root would need a second arc
                ended = (lengths != d) & (torch.arange(m, device=arcs.device) == 0)
                new_right = torch.where(ended, semiring.zero_like(new_right), new_right)
            right.append(new_right)
        sentence = torch.arange(len(lengths), device=arcs.device)
        return right.from_left[:, sentence, 0, lengths[:, 0]]


multi_root = Projective(one_root=False)
"""DependencyTrees with any number of arcs from the root."""
single_root = Projective(one_root=True)
"""DependencyTrees with one arc from the root."""


def score_heads(arcs: Tensor, heads: Tensor) -> Tensor:
    """Return the sum of the scores of the arcs from heads (..., B, n+1), (..., B); a head of -1 adds 0."""
    B, N, _ = arcs.shape
    sentence = torch.arange(B, device=arcs.device)[:, None]
    chosen = arcs[sentence, heads.clamp(min=0), torch.arange(N, device=arcs.device)]
    return torch.where(heads >= 0, chosen, 0).sum(-1)


dispatch.register("eisner", multi_root.first_calls(), (1, 3, 3))
