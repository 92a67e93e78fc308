"""Labelled spans: binary trees over n words, whose 2n-1 spans each have one of L labels (CKY; Stern et al. 2017).

Shapes: B sentences, n words, L labels. Arguments of every function:
    labels   (B, n, n, L): score of words i..j, both included, as a constituent with the label; only i ≤ j is read
    lengths  (B,) integers in 0..n, a tensor or a list; None: all are n

The score of a tree is the sum over its labelled spans. A label whose scores are all 0 is an empty label: its spans can be
left out, so that trees are n-ary. A score of -inf forbids a labelled span. If a score of a sentence is NaN or +inf, its log
Z is NaN, and so are its marginals and gradients, all or some; its trees are undefined.
A sentence without words has one tree, the empty one, with the score 0.
Scores in the padding are not read. Time and memory of the
reference are O(B·(n³ + n²L)). ValueError: wrong shapes or lengths.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.calls import registers_kernels, with_kernel_fallback
from phrasemodels.structs.charts import Chart
from phrasemodels.structs.derivations import Problem
from phrasemodels.structs.graphs import NONE, Edges, Graph, grid
from phrasemodels.structs.inference import Lengths
from phrasemodels.structs.kernels import decode
from phrasemodels.structs.kernels import labels as label_kernels
from phrasemodels.structs.semiring import Log


@with_kernel_fallback
def log_partition(labels: Tensor, lengths: Lengths = None) -> Tensor:
    """Return log Z, (B,)."""
    lengths = _check(labels, lengths)
    if not kernels.usable(lengths, labels):
        return inference.log_partition(_InsidePass(lengths), labels)
    reference = partial(log_partition, lengths=lengths)
    return label_kernels.LogPartition.apply(reference, labels, lengths)


@with_kernel_fallback
def marginals(labels: Tensor, lengths: Lengths = None) -> Tensor:
    """Return p(words i..j are a constituent with the label), (B, n, n, L)."""
    lengths = _check(labels, lengths)
    if not kernels.usable(lengths, labels):
        return inference.marginals(_InsidePass(lengths), labels)[0]
    return label_kernels.Marginals.apply(partial(marginals, lengths=lengths), labels, lengths)


@with_kernel_fallback
def argmax(labels: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Return the score (B,), differentiable, and the cells (B, 2n-1, 3) of a best tree.

    A cell is (i, j, label). Cells are in pre-order, and -1 after the last cell of a sentence. A model that scores only
    the chosen cells again trains with O(n) instead of O(n²) label scores.
    """
    lengths = _check(labels, lengths)
    if kernels.usable(lengths, labels):
        best, cells = decode.spans(labels, lengths)
    else:
        best, (parts,) = inference.argmax(_InsidePass(lengths), labels)
        cells = preorder(parts)
    return torch.where(best > -torch.inf, score_cells(labels, cells), best.to(labels)), cells


@with_kernel_fallback
def topk(labels: Tensor, k: int, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Return the scores (k, B), differentiable, and the cells (k, B, 2n-1, 3) of the k best trees, best first.

    Where there are fewer trees that are not forbidden, the other scores are -inf and their cells -1. Scores on a GPU are
    copied to the CPU.
    """
    return _problem(labels, lengths).topk(k)


@with_kernel_fallback
def sample(labels: Tensor, k: int, lengths: Lengths = None, generator: torch.Generator | None = None) -> Tensor:
    """Return the cells of k independent samples, (k, B, 2n-1, 3), as in `argmax`. Scores on a GPU are copied to the CPU."""
    return _problem(labels, lengths).sample(k, generator)


@with_kernel_fallback
def entropy(labels: Tensor, lengths: Lengths = None) -> Tensor:
    """Return −Σ p log p over all trees, in nats, (B,)."""
    lengths = _check(labels, lengths)
    if not kernels.usable(lengths, labels):
        return inference.entropy(_InsidePass(lengths), labels)
    return label_kernels.Entropy.apply(partial(entropy, lengths=lengths), labels, lengths)


def minimum_risk(labels: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Return the expected number (B,) of right cells, and the cells (B, 2n-1, 3) of the tree with most of them."""
    return argmax(torch.where(labels == -torch.inf, labels, marginals(labels, lengths)), lengths)


def total(semiring: Log, labels: Tensor, lengths: Lengths = None) -> Tensor:
    """Return ⊕ over all trees of the products ⊗ of their scores in any semiring, lowered; see `semiring`."""
    return semiring.lower(_InsidePass(_check(labels, lengths))(semiring, labels))


def score_cells(labels: Tensor, cells: Tensor) -> Tensor:
    """Return the sum of the scores of cells (..., B, m, 3), (..., B); a cell of -1 adds 0."""
    B, n, _, L = labels.shape
    i, j, label = cells.clamp(min=0).unbind(-1)
    sentence = torch.arange(B, device=labels.device)[:, None]
    chosen = labels.reshape(-1)[((sentence * n + i) * n + j) * L + label]
    return torch.where(cells[..., 0] >= 0, chosen, 0).sum(-1)


def preorder(parts: Tensor) -> Tensor:
    """Return the cells (B, 2n-1, 3), in pre-order and padded with -1, of trees given as parts (B, n, n, L) of 0 or 1."""
    B, n = parts.shape[:2]
    chosen, at = parts.sum(-1) > 0, torch.arange(n, device=parts.device)
    place = (at[:, None] * n + (n - 1 - at)).expand(B, n, n)  # by left end, then the widest span first
    first = torch.where(chosen, place, n * n).flatten(1).sort(1)
    row, cell = first.values[:, : 2 * n - 1] < n * n, first.indices[:, : 2 * n - 1]
    label = parts.argmax(-1).flatten(1).gather(1, cell)
    return torch.where(row[..., None], torch.stack([cell // max(n, 1), cell % max(n, 1), label], -1), -1)


class _InsidePass:
    """The inside pass β(i, j) = scores(i, j) ⊗ ⊕_k β(i, k) ⊗ β(k+1, j), with scores(i, j) = ⊕_label labels(i, j)."""

    def __init__(self, lengths: Tensor):
        self.lengths = lengths

    def __call__(self, semiring: Log, labels: Tensor) -> Tensor:
        n = labels.shape[1]
        word = torch.arange(n, device=labels.device) < self.lengths[:, None]
        read = word[:, None, :] & torch.ones(n, n, dtype=torch.bool, device=labels.device).triu()
        spans = semiring.sum(semiring.lift(torch.where(read[..., None], labels, 0)), -1)
        if n == 0:
            return spans.sum((2, 3))  # one tree, the empty one
        chart = Chart(spans.diagonal(0, 2, 3))
        for d in range(1, n):
            split = semiring.sum(chart.prefixes(n - d) + chart.suffixes(n - d), -1)
            chart.append(split + spans.diagonal(d, 2, 3))
        sentence = torch.arange(spans.shape[1], device=spans.device)
        total = chart.from_left[:, sentence, 0, (self.lengths - 1).clamp(min=0)]
        return torch.where(self.lengths == 0, semiring.one_like(total), total)


@lru_cache(maxsize=32)
def _graph(n: int, L: int) -> Graph:
    """Nodes by right end j and width: the halves of a span, and the labelled span."""
    i, k, j = grid(n, n, n, where=lambda i, k, j: (i <= k) & (k < j))
    halves = Edges(_node(n, i, j), _node(n, i, k) + 1, _node(n, k + 1, j) + 1)
    i, j, label = grid(n, n, L, where=lambda i, j, label: (i <= j) & (label >= 0))
    inside = np.where(i < j, _node(n, i, j), NONE)
    labelled = Edges(_node(n, i, j) + 1, inside, part=(i * n + j) * L + label, size=j + 1, row=(i, j, label))
    goals = np.append([NONE], _node(n, np.zeros(n, int), np.arange(n)) + 1)
    return Graph.of([halves, labelled], goals, n * n * L, max(2 * n - 1, 0), 3 * n, (1, -1, 1))


def _node(n: int, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    return 2 * (j * n + j - i)


def _problem(labels: Tensor, lengths: Lengths) -> Problem:
    lengths = _check(labels, lengths)
    return Problem(_graph(*labels.shape[2:]), (labels,), lengths[:, None])


def _check(labels: Tensor, lengths: Lengths) -> Tensor:
    if labels.dim() != 4 or labels.shape[1] != labels.shape[2]:
        raise ValueError(f"labels must be (B, n, n, L), not {tuple(labels.shape)}")
    return inference.check_lengths(lengths, labels.shape[0], labels.shape[1], labels.device)


@registers_kernels
def _first_calls(dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    labels = torch.zeros(1, 2, 2, 2, dtype=dtype).requires_grad_()
    calls = {function.__name__: partial(function, labels) for function in (log_partition, marginals, argmax)}
    return calls | {function.__name__: partial(function, labels, k=1) for function in (topk, sample)}
