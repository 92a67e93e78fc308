"""Joint span–head trees: labelled spans, each with a head word, and the arcs between the heads (Zhou and Zhao 2019;
paper 004).

Shapes: B sentences, n words, L labels. Arguments of every function:
    labels   (B, n, n, L): score of words i..j, both included, with the label; only i ≤ j is read; label 0 is empty
    arcs     (B, n+1, n+1): arcs[b, h, m] is the score of position h as the head of m; 0 is the root, words are 1..n
    lengths  (B,) integers in 0..n, a tensor or a list, or a mask (B, n); None: all are n

A merge joins a span headed by h and an adjacent span headed by m by the arc h → m; h heads the merged span. Single words may have
the empty label, also as the span of m or the whole sentence. Of longer spans, only that of h may. The root's arc goes to the head of
the sentence. The score of a tree is the sum over its labelled spans and arcs; multiply the scores to weigh one against the other.
A score of -inf forbids a label or an arc. If a score of a sentence is NaN or +inf, its log Z is NaN, and so are its marginals
and gradients, all or some; its trees are undefined. A sentence without words has one tree, the empty one, with the score 0.
Scores in the padding are not read. ValueError: wrong shapes or lengths.

Merging through W(span, h) = ⊕_m V(span, m) ⊗ arcs(h, m), the hook of Eisner and Satta (1999), takes O(n⁴) time, not O(n⁵).
The torch path takes O(n⁴) memory too.

The functions return cells and heads; the methods of `joint_trees` return both as rows (B, 3n-1, 5): (i, j, label, -1, -1) for a
cell, (-1, -1, -1, h, m) for an arc.
"""

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs import dispatch, kernels
from phrasemodels.structs.dispatch import Lengths
from phrasemodels.structs.eisner import arcs_read, score_heads, single_root
from phrasemodels.structs.kernels import NONE
from phrasemodels.structs.semiring import Chart, Log
from phrasemodels.structs.spans import are_trees, cells_of, score_cells, spans_read
from phrasemodels.structs.structure import AtFirstUse, Integers, ScoreLayout, Scores, Structure, TableSizes


class JointTrees(Structure):
    """The functions over joint trees as rows (B, 3n-1, 5)."""

    rule, names = AtFirstUse(lambda: kernels.decode.joint_rule), ("labels", "arcs")
    dims, shared_dims, event_scores = (4, 3), (0, 0), 2

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        labels = scores[0]
        if labels.dim() != 4 or labels.shape[1] != labels.shape[2] or labels.shape[3] < 2:
            raise ValueError(f"labels must be (B, n, n, L) with the empty label and L > 1, not {tuple(labels.shape)}")
        B, n = labels.shape[:2]
        if len(scores) != 2 or scores[1].shape != (B, n + 1, n + 1):
            raise ValueError(
                f"arcs must be {(B, n + 1, n + 1)} with the root at 0, not {[tuple(s.shape) for s in scores[1:]]}"
            )
        return dispatch.check_lengths(lengths, B, n, labels.device)

    def sizes(self, numbered: ScoreLayout) -> TableSizes:
        _, n, _, L = numbered.shapes[0]
        spans, heads = n * (n + 1) // 2, n * (n + 1) * (n + 2) // 6
        nodes = 2 * spans + 3 * heads + n * spans
        return TableSizes(
            (n, L, *numbered.offsets), 1 + n * n * (4 * n + 2), nodes, nodes + heads, n, max(3 * n - 1, 0), 8 * n
        )

    def goals(self, sizes: TableSizes, numbered: ScoreLayout, lengths: Integers) -> Integers:
        n, m, goals = sizes.arguments[0], lengths[:, 0], np.zeros((len(lengths), 7), np.int64)
        there = m > 0  # over the heads of the sentence
        goals[:, 0] = np.where(there, 1 + (m - 1) * (4 * n + 2) + 2 * n, 0)
        goals[:, 1] = goals[:, 5] = there
        goals[:, 4], goals[:, 6] = np.where(there, sizes.arguments[3] + 1, NONE), np.where(there, m, 1)
        return goals

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        return spans_read(scores[0].shape[1], lengths)[..., None], arcs_read(scores[1], lengths)

    def rows(self, scores: Scores, parts: Tensor, lengths: Tensor) -> Tensor:
        labels, N = scores[0], scores[1].shape[1]
        first = labels.shape[1] ** 2 * labels.shape[3]
        cells = torch.nn.functional.pad(cells_of(labels, torch.where(parts < first, parts, NONE)), (0, 2), value=NONE)
        arcs = torch.where(parts >= first, parts - first, N * N).sort(-1).values[..., None]
        rows = torch.where(arcs < N * N, torch.cat([arcs // N, arcs % N], -1), NONE)
        rows = torch.nn.functional.pad(rows, (3, 0), value=NONE)
        both = torch.cat([cells, rows], 2)
        order = (both < 0).all(-1).long().sort(stable=True, dim=2).indices[..., : parts.shape[2]]
        return both.gather(2, order[..., None].expand(*order.shape, 5))

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        (h, m), n = rows[..., 3:].unbind(-1), lengths
        cell, arc = (rows[..., :3] >= 0).any(-1), (rows[..., 3:] >= 0).any(-1)
        fine = torch.where(
            arc, (h >= 0) & (h <= n) & (m > 0) & (m <= n) & ~cell, ~cell | (rows[..., :3] >= 0).all(-1)
        ).all(-1)
        fine = fine & (arc.sum(-1) == n[:, 0])
        cells, heads = split(rows.masked_fill(~fine[..., None, None], NONE))
        label, at = cells[..., 2], torch.arange(1, heads.shape[-1], device=rows.device)
        right = are_trees(cells, lengths, (label >= 0) & (label < scores[0].shape[3]))
        right = right & fine & single_root.is_structure((scores[1],), heads, lengths)
        there, (i, j) = cells[..., 0] >= 0, (x[..., None] for x in cells[..., :2].unbind(-1))
        if not cells.shape[-2]:
            return right
        # the head of a cell is the one word in it whose own head is outside
        above = heads[..., None, 1:] - 1
        enters = (at - 1 >= i) & (at - 1 <= j) & ((above < i) | (above > j)) & there[..., None]
        head = enters.int().argmax(-1) + 1
        # the smallest cell that holds a cell, itself excluded
        begin, end, size = i.mT, j.mT, (j - i).mT
        holds = (begin <= i) & (end >= j) & (size > j - i) & there[..., None, :]
        parent = torch.where(holds, size, heads.shape[-1]).argmin(-1)
        above_head, inner = head.gather(-1, parent), holds.any(-1)
        joins = inner & (
            head != above_head
        )  # by an arc from the head of its parent; then, or at the top, it has a label
        arcs = ~joins | (heads.gather(-1, head) == above_head)
        full = ~(joins | ~inner) | (label != 0) | (cells[..., 0] == cells[..., 1])
        return right & (((enters.sum(-1) == 1) & arcs & full) | ~there).all(-1)

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        return self.score_trees(scores, *split(rows), lengths)

    def score_trees(self, scores: Scores, cells: Tensor, heads: Tensor, lengths: Tensor) -> Tensor:
        """Return the sums (..., B) of the scores of cells (..., B, 2n-1, 3) and heads (..., B, n+1); -inf where one is missing."""
        missing = ((cells[..., 0] >= 0).sum(-1) < 2 * lengths[:, 0] - 1) | ((heads >= 0).sum(-1) < lengths[:, 0])
        return (score_cells(scores[0], cells) + score_heads(scores[1], heads)).masked_fill(missing, -torch.inf)

    def _argmax_trees(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the score (B,), differentiable, the cells (B, 2n-1, 3) and the heads (B, n+1) of a best tree."""
        if not kernels.can_run_kernel(*scores):  # also under a transform
            best, rows = self._argmax(scores, lengths)
            return best, *split(rows)
        best, cells, heads = kernels.decode.best_joint(scores[0], scores[1], lengths[:, 0])
        return (
            kernels.with_gradient(best, lambda *some: self.score_trees(some, cells, heads, lengths), *scores),
            cells,
            heads,
        )

    def _minimum_risk_trees(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p = self._expected_parts(scores, lengths)
        return self._argmax_trees(
            tuple(torch.where(s == -torch.inf, s, x) for s, x in zip(scores, p, strict=True)), lengths
        )

    @property
    def has_levels(self) -> bool:
        return True  # for a GPU; the pass below needs no numba, which the parser's first sentences would wait for

    def inside(self, semiring: Log, scores: Scores, lengths: Tensor) -> Tensor:
        """B(i,j,h) = ⊕_k U(i,k,h) ⊗ W(k+1,j,h) ⊕ W(i,k,h) ⊗ U(k+1,j,h) over words i..j headed by h.

        U = B ⊗ any label, V = B ⊗ any label but the empty one, W is the hook.
        """
        (labels, arcs), lengths = scores, lengths[:, 0]
        n = labels.shape[1]
        word = torch.arange(n, device=labels.device) < lengths[:, None]
        read = word[:, None, :] & torch.ones(n, n, dtype=torch.bool, device=labels.device).triu()
        labels = semiring.lift(torch.where(read[..., None], labels, 0))
        real, any_label = semiring.sum(labels[..., 1:], -1), semiring.sum(labels, -1)
        own = torch.eye(n, dtype=torch.bool, device=labels.device)
        both = word[:, :, None] & word[:, None, :] & ~own  # no word is its own head
        between = semiring.lift(torch.where(both, arcs[:, 1:, 1:], 0))
        root = semiring.lift(torch.where(word, arcs[:, 0, 1:], 0))

        if n == 0:
            return labels.sum((2, 3, 4)) + arcs.sum((1, 2)) * 0  # one tree, the empty one
        single = any_label.diagonal(0, 2, 3)[..., None].expand(*any_label.shape[:3], n)
        head = torch.where(own, single, semiring.zero_like(single))  # (S, B, i, h)
        tops = [head[:, :, 0]]
        U, W = Chart(head), Chart(_hook(semiring, head, between))
        for d in range(1, n):
            m = n - d
            body = torch.cat([U.prefixes(m) + W.suffixes(m), W.prefixes(m) + U.suffixes(m)], 3)
            body = semiring.sum(body, -2)
            V = body + real.diagonal(d, 2, 3)[..., None]
            U.append(body + any_label.diagonal(d, 2, 3)[..., None])
            W.append(_hook(semiring, V, between))
            tops.append(V[:, :, 0])
        sentence = torch.arange(len(lengths), device=labels.device)
        top = torch.stack(tops, 2)[:, sentence, (lengths - 1).clamp(min=0)]
        total = semiring.sum(top + root, -1)
        return torch.where(lengths == 0, semiring.one_like(total), total)


def _hook(semiring: Log, V: Tensor, between: Tensor) -> Tensor:
    return semiring.sum(V[..., None, :] + between[:, :, None], -1)


def split(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return cells (..., 2n-1, 3) and heads (..., n+1) from rows (..., 3n-1, 5)."""
    n = (rows.shape[-2] + 1) // 3
    place = (rows[..., 2] < 0).long().sort(stable=True, dim=-1).indices[..., : max(2 * n - 1, 0), None]
    heads = rows.new_full((*rows.shape[:-2], n + 2), NONE)  # the last takes the rows of cells
    at = torch.where(rows[..., 4] >= 0, rows[..., 4], n + 1)
    cells = rows[..., :3].gather(-2, place.expand(*place.shape[:-1], 3))
    return cells, heads.scatter(-1, at, rows[..., 3])[..., :-1]


joint_trees = JointTrees()


log_partition, marginals, entropy, total = (
    joint_trees.log_partition,
    joint_trees.marginals,
    joint_trees.entropy,
    joint_trees.total,
)


@dispatch.not_traced
def argmax(labels: Tensor, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the score (B,), differentiable, of a best tree, its cells (B, 2n-1, 3) as in `spans.argmax`, and its heads
    (B, n+1) as in `eisner`."""
    return joint_trees._call(joint_trees._argmax_trees, (labels, arcs), lengths)


@dispatch.not_traced
def topk(labels: Tensor, arcs: Tensor, k: int, lengths: Lengths = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores (k, B), differentiable, the cells (k, B, 2n-1, 3) and the heads (k, B, n+1) of the k best trees.

    The best is first. Where there are fewer trees that are not forbidden, the other scores are -inf, their cells and heads -1.
    """
    scores, rows = joint_trees.topk(labels, arcs, k=k, lengths=lengths)
    return scores, *split(rows)


@dispatch.not_traced
def sample(
    labels: Tensor, arcs: Tensor, k: int, lengths: Lengths = None, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return the cells (k, B, 2n-1, 3) and heads (k, B, n+1) of k independent samples."""
    return split(joint_trees.sample(labels, arcs, k=k, lengths=lengths, generator=generator))


@dispatch.not_traced
def minimum_risk(labels: Tensor, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the expected number (B,) of right cells and arcs, and the cells (B, 2n-1, 3) and heads (B, n+1) of the tree with
    most of them."""
    return joint_trees._call(joint_trees._minimum_risk_trees, (labels, arcs), lengths)


dispatch.register("joint", joint_trees.first_calls(), (1, 2, 2, 2), (1, 3, 3))
dispatch.register("joint", [argmax], (1, 2, 2, 2), (1, 3, 3))
