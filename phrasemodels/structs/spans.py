"""Labelled spans: binary trees over n words, each of the 2n-1 spans with one of L labels (CKY).

Arguments of every function:
    labels   (B, n, n, L): score of words i..j, both included, as a constituent with the label; only i ≤ j is read
    lengths  (B,) integers in 1..n, n where None

The score of a tree is the sum over its spans. An empty label is any label whose scores are 0: it makes the trees n-ary.
-inf forbids a labelled span. A sentence with a score that is NaN or +inf has NaN for log Z, marginals and gradients, and
trees of no meaning; in the padding scores may be anything. The reference takes O(n³ + n²L) time and memory.
"""

import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.charts import Chart
from phrasemodels.structs.kernels import decode
from phrasemodels.structs.semiring import Log


def log_partition(labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """log Z, (B,)."""
    return inference.log_partition(_Inside(_check(labels, lengths)), labels)


def marginals(labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """p(words i..j are a constituent with the label), (B, n, n, L)."""
    return inference.marginals(_Inside(_check(labels, lengths)), labels)[0]


def argmax(labels: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Score (B,), differentiable, and cells (B, 2n-1, 3) of a best tree.

    A cell is (i, j, label); cells are in pre-order, and -1 after a sentence's last. A model that scores only the
    chosen cells trains with O(n) instead of O(n²) label scores.
    """
    lengths = _check(labels, lengths)
    if kernels.usable(labels):
        best, cells = decode.spans(labels, lengths)
    else:
        best, (parts,) = inference.argmax(_Inside(lengths), labels)
        cells = preorder(parts)
    return score_cells(labels, cells).masked_fill(best == -torch.inf, -torch.inf), cells


def sample(labels: Tensor, k: int, lengths: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
    """Cells of k independent samples, (k, B, 2n-1, 3), as in `argmax`."""
    inside = _Inside(_check(labels, lengths).repeat(k))
    parts = inference.sample(inside, labels, k=k, generator=generator)[0]
    return preorder(parts.flatten(0, 1)).unflatten(0, parts.shape[:2])


def entropy(labels: Tensor, lengths: Tensor | None = None) -> Tensor:
    """−Σ p log p over trees, in nats, (B,)."""
    return inference.entropy(_Inside(_check(labels, lengths)), labels)


def score_cells(labels: Tensor, cells: Tensor) -> Tensor:
    """Sum of the scores of cells (..., B, m, 3); (..., B)."""
    B, n, _, L = labels.shape
    i, j, label = cells.clamp(min=0).unbind(-1)
    sentence = torch.arange(B, device=labels.device)[:, None]
    chosen = labels.reshape(-1)[((sentence * n + i) * n + j) * L + label]
    return torch.where(cells[..., 0] >= 0, chosen, 0).sum(-1)


def preorder(parts: Tensor) -> Tensor:
    """Indicators (B, n, n, L) of labelled spans that form trees → cells (B, 2n-1, 3) in pre-order, padded with -1."""
    B, n, _, _ = parts.shape
    cells = parts.new_full((B, 2 * n - 1, 3), -1, dtype=torch.int64)
    b, i, j, label = parts.nonzero(as_tuple=True)
    order = torch.argsort((b * n + i) * n + (n - 1 - j))  # a span's first child begins where it begins
    b, i, j, label = b[order], i[order], j[order], label[order]
    counts = torch.bincount(b, minlength=B)
    rank = torch.arange(len(b), device=b.device) - (counts.cumsum(0) - counts)[b]
    cells[b, rank] = torch.stack([i, j, label], -1)
    return cells


class _Inside:
    """β(i, j) = ⊕_label labels(i, j) ⊗ ⊕_k β(i, k) ⊗ β(k+1, j)."""

    def __init__(self, lengths: Tensor):
        self.lengths = lengths

    def __call__(self, semiring: Log, labels: Tensor) -> Tensor:
        n = labels.shape[1]
        word = torch.arange(n, device=labels.device) < self.lengths[:, None]
        read = word[:, None, :] & torch.ones(n, n, dtype=torch.bool, device=labels.device).triu()
        spans = semiring.sum(semiring.lift(torch.where(read[..., None], labels, 0)), -1)
        chart = Chart(spans.diagonal(0, 2, 3))
        for d in range(1, n):
            split = semiring.sum(chart.prefixes(n - d) + chart.suffixes(n - d), -1)
            chart.append(split + spans.diagonal(d, 2, 3))
        sentence = torch.arange(len(labels), device=labels.device)
        return chart.from_left[:, sentence, 0, self.lengths - 1]


def _check(labels: Tensor, lengths: Tensor | None) -> Tensor:
    if labels.dim() != 4 or labels.shape[1] != labels.shape[2]:
        raise ValueError(f"labels must be (B, n, n, L), not {tuple(labels.shape)}")
    return inference.check_lengths(lengths, labels.shape[0], labels.shape[1], labels.device)
