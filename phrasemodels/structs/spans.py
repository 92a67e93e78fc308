"""Labelled spans: binary trees over n words, whose 2n-1 spans each have one of L labels (CKY; Stern et al. 2017).

Shapes: B sentences, n words, L labels. Arguments of every function:
    labels   (B, n, n, L): score of words i..j, both included, as a constituent with the label; only i ≤ j is read
    lengths  (B,) integers in 0..n, a tensor or a list, or a mask (B, n); None: all are n

A structure is cells (i, j, label) in pre-order, (B, 2n-1, 3), -1 after the last; its score is the sum over its labelled spans. A
label whose scores are all 0 is an empty label: its spans can be left out, so that trees are n-ary. A score of -inf forbids a labelled
span. If a score of a sentence is NaN or +inf, its log Z is NaN, and so are its marginals and gradients, all or some; its trees are
undefined. A sentence without words has one tree, the empty one, with the score 0. Scores in the padding are not read. Time is
O(B·(n³ + n²L)), and so is the memory of the torch path. ValueError: wrong shapes or lengths.

`margin` is the structured hinge loss (Taskar et al. 2004; Stern et al. 2017), whose gradient costs no pass over memory.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs import calls, inference, kernels
from phrasemodels.structs.inference import Lengths
from phrasemodels.structs.kernels import NONE
from phrasemodels.structs.semiring import Chart, Log
from phrasemodels.structs.structure import ENGINE, AtFirstUse, Integers, Numbered, Scores, Sizes, Structure


class Spans(Structure):
    """The functions over labelled binary trees."""

    kernels = AtFirstUse(
        lambda: (kernels.decode.BestSpans(), kernels.labels.SpanLabels(), kernels.gpu.SpanPrograms(), ENGINE)
    )
    rule, names, dims, common = AtFirstUse(lambda: kernels.rules.spans), ("labels",), (4,), (0,)

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        labels = scores[0]
        if len(scores) != 1 or labels.dim() != 4 or labels.shape[1] != labels.shape[2]:
            raise ValueError(f"labels must be (B, n, n, L), not {tuple(labels.shape)}")
        return inference.check_lengths(lengths, labels.shape[0], labels.shape[1], labels.device)

    def sizes(self, numbered: Numbered) -> Sizes:
        _, n, _, L = numbered.shapes[0]
        return Sizes((n, L, 0), 1 + 2 * n * n, n * n, n * n, n, max(2 * n - 1, 0), 3 * n)

    def goals(self, sizes: Sizes, numbered: Numbered, lengths: Integers) -> Integers:
        n, goals = lengths[:, 0], np.zeros((len(lengths), 7), np.int64)
        goals[:, 0], goals[:, 4], goals[:, 6] = np.where(n > 0, 2 * n, 0), NONE, 1
        return goals

    def read(self, scores: Scores, lengths: Tensor) -> Scores:
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


TREES = Spans()


log_partition, marginals, entropy, total = TREES.log_partition, TREES.marginals, TREES.entropy, TREES.total
argmax, topk, sample, minimum_risk = TREES.argmax, TREES.topk, TREES.sample, TREES.minimum_risk


def score_cells(labels: Tensor, cells: Tensor) -> Tensor:
    """Return the sum of the scores of cells (..., B, m, 3), (..., B); a cell of -1 adds 0."""
    B, n, _, L = labels.shape
    there = cells[..., 0] >= 0
    i, j, label = torch.where(there[..., None], cells, 0).unbind(-1)
    sentence = torch.arange(B, device=labels.device)[:, None]
    chosen = labels.reshape(-1)[((sentence * n + i) * n + j) * L + label]
    return torch.where(there, chosen, 0).sum(-1)


@calls.not_traced
def margin(labels: Tensor, gold: Tensor, lengths: Lengths = None, cost: float = 1.0) -> Tensor:
    """Return the structured hinge loss (B,): the most of a tree's score + cost · its wrong cells, minus the score of `gold`.

    labels (B, n, n, L), and gold: the cells (B, R, 3) of the right trees, one label for a span at most. The gradient is memory that the
    system gives as 0, of which only the cells of two trees are written.
    """
    sizes = gold.new_tensor(labels.shape[1:])
    if gold.dim() != 3 or gold.shape[::2] != (len(labels), 3) or ((gold < -1) | (gold >= sizes)).any():
        raise ValueError(f"gold must be cells (B, R, 3): spans and labels inside {tuple(labels.shape[1:])}, or -1")
    calls.refuse_tracing()
    checked = TREES.check(labels, lengths=lengths)
    return calls.run(partial(_margin, gold=gold, cost=cost), (labels,), checked)


def _margin(scores: Scores, lengths: Tensor, gold: Tensor, cost: float) -> Tensor:
    (labels,), right = scores, _positions(scores[0], gold)
    if kernels.can_run_kernel(labels):
        best = _positions(labels, kernels.decode.best_spans(labels, lengths[:, 0], gold, cost)[1])
    else:
        lowered = labels.detach() - cost * _indicators(labels, right)
        best = _positions(labels, TREES.argmax(lowered, lengths=lengths[:, 0])[1])
    return _Difference.apply(labels, best, right) + cost * _wrong(best, right).to(labels.dtype)


def _positions(labels: Tensor, cells: Tensor) -> Tensor:
    """Return the positions (B, 2n-1) of cells in the memory of the labels, -1 for none."""
    B, n, _, L = labels.shape
    i, j, label = cells.unbind(-1)
    sentence = torch.arange(B, device=cells.device)[:, None]
    return torch.where(i >= 0, ((sentence * n + i) * n + j) * L + label, -1)


def _scores(labels: Tensor, at: Tensor) -> Tensor:
    """Return the sums (B,) of the labels at positions (B, 2n-1)."""
    return torch.where(at >= 0, labels.reshape(-1)[at.clamp(min=0)], 0).sum(1)


def _indicators(labels: Tensor, at: Tensor) -> Tensor:
    flat = labels.new_zeros(labels.numel())
    flat[at[at >= 0]] = 1
    return flat.view(labels.shape)


def _wrong(found: Tensor, right: Tensor) -> Tensor:
    """Return the numbers (B,) of positions that are not among the right ones."""
    same = (found[:, :, None] == right[:, None]).any(2)
    return ((found >= 0) & ~same).sum(1)


class _Difference(torch.autograd.Function):
    """(labels, best positions, right positions) → the score of the best minus the score of the right ones, (B,)."""

    @staticmethod
    def forward(ctx: Any, labels: Tensor, best: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(labels, best, right)
        return _scores(labels, best) - _scores(labels, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        labels, best, right = ctx.saved_tensors
        if torch.is_grad_enabled():
            both = lambda x: _scores(x, best) - _scores(x, right)  # noqa: E731
            return kernels.reference_vjp(both, [labels], grad)[0], None, None
        # np.zeros, unlike torch.zeros, leaves pages of zeros to the system until they are written
        out = torch.from_numpy(np.zeros(labels.numel(), kernels.numbers(labels[:0]).dtype))
        for at, sign in ((best, 1), (right, -1)):
            out.index_add_(0, at.clamp(min=0).flatten(), torch.where(at >= 0, sign * grad[:, None], 0).flatten())
        return out.view(labels.shape), None, None


calls.register("spans", TREES, (1, 2, 2, 2))
calls.register("spans", lambda labels: margin(labels, torch.zeros(1, 1, 3, dtype=torch.int64)), (1, 2, 2, 2))
