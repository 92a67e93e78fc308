"""Labelled spans: binary trees over n words, whose 2n-1 spans each have one of L labels (CKY; Stern et al. 2017).

Shapes: B sentences, n words, L labels. Arguments of every function:
    labels   (B, n, n, L): score of words i..j, both included, as a constituent with the label; only i ≤ j is read
    lengths  (B,) integers in 0..n, a tensor or a list, or a mask (B, n); None: all are n

A structure is cells (i, j, label) in pre-order, (B, 2n-1, 3), -1 after the last; its score is the sum over its labelled spans. A
label whose scores are all 0 is an empty label: its spans can be left out, so that trees are n-ary. A score of -inf forbids a labelled
span. If a score of a sentence is NaN or +inf, its log Z is NaN, and so are its marginals and gradients, all or some; its trees are
undefined. A sentence without words has one tree, the empty one, with the score 0. Scores in the padding are not read. Time is
O(B·(n³ + n²L)), and so is the memory of the torch path. ValueError: wrong shapes or lengths.

`margin` is the structured hinge loss (Taskar et al. 2004; Stern et al. 2017).
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs import dispatch, kernels
from phrasemodels.structs.dispatch import Lengths
from phrasemodels.structs.kernels import NONE
from phrasemodels.structs.semiring import Chart, Log
from phrasemodels.structs.structure import ENGINE, AtFirstUse, Integers, ScoreLayout, Scores, Structure, TableSizes


class Spans(Structure):
    """The functions over labelled binary trees."""

    kernels = AtFirstUse(
        lambda: (kernels.decode.BestSpans(), kernels.labels.SpanLabels(), kernels.gpu.SpanPrograms(), ENGINE)
    )
    rule, names, dims, shared_dims = AtFirstUse(lambda: kernels.decode.spans_rule), ("labels",), (4,), (0,)

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        labels = scores[0]
        if len(scores) != 1 or labels.dim() != 4 or labels.shape[1] != labels.shape[2]:
            raise ValueError(f"labels must be (B, n, n, L), not {tuple(labels.shape)}")
        return dispatch.check_lengths(lengths, labels.shape[0], labels.shape[1], labels.device)

    def sizes(self, numbered: ScoreLayout) -> TableSizes:
        _, n, _, L = numbered.shapes[0]
        return TableSizes((n, L, 0), 1 + 2 * n * n, n * n, n * n, n, max(2 * n - 1, 0), 3 * n)

    def goals(self, sizes: TableSizes, numbered: ScoreLayout, lengths: Integers) -> Integers:
        n, goals = lengths[:, 0], np.zeros((len(lengths), 7), np.int64)
        goals[:, 0], goals[:, 4], goals[:, 6] = np.where(n > 0, 2 * n, 0), NONE, 1
        return goals

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        return (spans_read(scores[0].shape[1], lengths)[..., None],)

    def rows(self, scores: Scores, parts: Tensor, lengths: Tensor) -> Tensor:
        return cells_of(scores[0], parts)

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        return are_trees(rows, lengths, (rows[..., 2] >= 0) & (rows[..., 2] < scores[0].shape[3]))

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        missing = (rows[..., 0] >= 0).sum(-1) < 2 * lengths[:, 0] - 1
        return score_cells(scores[0], rows).masked_fill(missing, -torch.inf)

    def inside(self, semiring: Log, scores: Scores, lengths: Tensor) -> Tensor:
        """β(i, j) = scores(i, j) ⊗ ⊕_k β(i, k) ⊗ β(k+1, j), with scores(i, j) = ⊕_label labels(i, j)."""
        n = scores[0].shape[1]
        read = spans_read(n, lengths)[..., None]
        spans = semiring.sum(semiring.lift(torch.where(read, scores[0], 0)), -1)
        if n == 0:
            return spans.sum((2, 3))  # one tree, the empty one
        chart = Chart(spans.diagonal(0, 2, 3))
        for d in range(1, n):
            split = semiring.sum(chart.prefixes(n - d) + chart.suffixes(n - d), -1)
            chart.append(split + spans.diagonal(d, 2, 3))
        sentence = torch.arange(spans.shape[1], device=spans.device)
        total = chart.from_left[:, sentence, 0, (lengths[:, 0] - 1).clamp(min=0)]
        return torch.where(lengths[:, 0] == 0, semiring.one_like(total), total)


def spans_read(n: int, lengths: Tensor) -> Tensor:
    """Return which spans (B, n, n) a tree can have, by lengths (B, 1)."""
    word = torch.arange(n, device=lengths.device) < lengths
    return word[:, None] & torch.ones(n, n, dtype=torch.bool, device=lengths.device).triu()


def cells_of(labels: Tensor, parts: Tensor) -> Tensor:
    """Return the cells (k, B, R, 3), in pre-order, of the numbers (k, B, R) of labelled spans; -1 after the last."""
    n, L = labels.shape[1], labels.shape[3]
    cells = torch.stack([parts // (n * L) if n else parts, parts // L % max(n, 1), parts % L], -1)
    return in_pre_order(torch.where(parts[..., None] >= 0, cells, NONE), n)


def in_pre_order(cells: Tensor, n: int) -> Tensor:
    """Return cells (..., R, 3) of n words in pre-order, those of -1 after the last."""
    i, j = cells[..., 0], cells[..., 1]
    order = torch.where(i >= 0, i * n + n - 1 - j, n * n).sort(stable=True, dim=-1).indices
    return cells.gather(-2, order[..., None].expand(cells.shape))


def are_trees(cells: Tensor, lengths: Tensor, labelled: Tensor) -> Tensor:
    """Return which cells (..., B, R, 3), in any order, are binary trees of their sentences, (..., B); labelled: which labels exist.

    2n-1 different spans of n words, no two of which cross, are a binary tree: no set of more has this property.
    """
    i, j, n = cells[..., 0], cells[..., 1], lengths[:, 0, None]
    there = (cells[..., :2] >= 0).any(-1)
    inside = (i >= 0) & (i <= j) & (j < n) & labelled
    right = (inside | ~there).all(-1) & (there.sum(-1) == (2 * n[:, 0] - 1).clamp(min=0))
    i, j = (torch.where(there, x, NONE) for x in (i, j))
    (a, b), (c, d) = ((x[..., :, None] for x in (i, j)), (x[..., None, :] for x in (i, j)))
    one = torch.ones(cells.shape[-2], cells.shape[-2], dtype=torch.bool, device=cells.device).tril(-1)
    twice = (a == c) & (b == d) & there[..., None] & one
    return right & ~(((a < c) & (c <= b) & (b < d)) | twice).any((-1, -2))


labelled_spans = Spans()


log_partition, marginals, entropy, total = (
    labelled_spans.log_partition,
    labelled_spans.marginals,
    labelled_spans.entropy,
    labelled_spans.total,
)
argmax, topk, sample, minimum_risk = (
    labelled_spans.argmax,
    labelled_spans.topk,
    labelled_spans.sample,
    labelled_spans.minimum_risk,
)


def score_cells(labels: Tensor, cells: Tensor) -> Tensor:
    """Return the sum of the scores of cells (..., B, m, 3), (..., B); a cell of -1 adds 0."""
    B, n, _, L = labels.shape
    there = cells[..., 0] >= 0
    i, j, label = torch.where(there[..., None], cells, 0).unbind(-1)
    sentence = torch.arange(B, device=labels.device)[:, None]
    chosen = labels.reshape(-1)[((sentence * n + i) * n + j) * L + label]
    return torch.where(there, chosen, 0).sum(-1)


def right_labels(gold: Tensor, n: int, missing: int = NONE) -> Tensor:
    """Return the labels (B, n, n) of the spans of cells (B, R, 3), `missing` for all other spans."""
    found = gold.new_full((len(gold), n, n), missing)
    cells = (gold[..., 0] >= 0).flatten().nonzero().squeeze(1)
    i, j, label = gold.flatten(0, 1)[cells].unbind(-1)
    found[cells // max(gold.shape[1], 1), i, j] = label
    return found


@torch.no_grad()
def most_violating(labels: Tensor, right: Tensor, lengths: Lengths = None, cost: float = 1.0) -> tuple[Tensor, Tensor]:
    """Find the tree with the most of score − cost · right cells, as all binary trees of a sentence have as many cells.

    The scores are changed in place.

    Args:
        labels: Scores (B, n, n, L).
        right: Labels (B, n, n) that cost nothing, as `right_labels` has them; -1: there is none.

    Returns:
        The cells (B, 2n-1, 3), and the numbers (B,) of wrong ones.
    """
    less = torch.where(right >= 0, -cost, 0.0).to(labels.dtype)
    labels.scatter_add_(3, right.clamp(min=0)[..., None], less[..., None])
    best = labelled_spans.argmax(labels, lengths)[1]
    i, j, label = best.clamp(min=0).unbind(-1)
    own = right[torch.arange(len(best), device=best.device)[:, None], i, j]
    return best, ((own != label) & (best[..., 0] >= 0)).sum(1)


@dispatch.not_traced
def margin(labels: Tensor, gold: Tensor, lengths: Lengths = None, cost: float = 1.0) -> Tensor:
    """Return the structured hinge loss (B,): the most of a tree's score + cost · its wrong cells, minus the score of `gold`.

    Args:
        labels: Scores (B, n, n, L).
        gold: The cells (B, R, 3) of the right trees, one label for a span at most.
    """
    sizes = gold.new_tensor(labels.shape[1:])
    if gold.dim() != 3 or gold.shape[::2] != (len(labels), 3) or ((gold < -1) | (gold >= sizes)).any():
        raise ValueError(f"gold must be cells (B, R, 3): spans and labels inside {tuple(labels.shape[1:])}, or -1")
    dispatch.refuse_tracing()
    checked = labelled_spans.check(labels, lengths=lengths)
    return dispatch.run(partial(_margin, gold=gold, cost=cost), (labels,), checked)


def _margin(scores: Scores, lengths: Tensor, gold: Tensor, cost: float) -> Tensor:
    (labels,) = scores
    best, wrong = most_violating(labels.detach().clone(), right_labels(gold, labels.shape[1]), lengths[:, 0], cost)
    most = max(best.shape[1], gold.shape[1])
    cells = [torch.nn.functional.pad(x, (0, 0, 0, most - x.shape[1]), value=NONE) for x in (best, gold)]
    found, right = score_cells(labels, torch.stack(cells))  # both at once, as each has a gradient to all labels
    return found - right + cost * wrong.to(labels.dtype)


dispatch.register("spans", labelled_spans.first_calls(), (1, 2, 2, 2))
