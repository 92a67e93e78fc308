"""Joint span–head trees: labelled spans, each with a head word, and the arcs between the heads (Zhou and Zhao 2019;
paper 004).

Shapes: B sentences, n words, L labels. Arguments of every function:
    labels   (B, n, n, L): score of words i..j, both included, with the label; only i ≤ j is read; label 0 is empty
    arcs     (B, n+1, n+1): arcs[b, h, m] is the score of position h as the head of m; 0 is the root, words are 1..n
    lengths  (B,) integers in 0..n, a tensor or a list; None: all are n

A merge joins a span headed by h and an adjacent span headed by m by the arc h → m; h heads the merged span. The span of h
and single words may have the empty label, the span of m and the whole sentence may not. The root's arc goes to the head of
the sentence. The score of a tree is the sum over its labelled spans and arcs; multiply the scores to weigh one against the
other. A score of -inf forbids a label or an arc. If a score of a sentence is NaN or +inf, its log Z is NaN, and so are
its marginals and gradients, all or some; its trees are undefined.
A sentence without words has one tree, the empty one, with the score 0.
Scores in the padding are not read. ValueError: wrong shapes or lengths.

Merging through W(span, h) = ⊕_m V(span, m) ⊗ arcs(h, m), the hook of Eisner and Satta (1999), takes O(n⁴) time, not O(n⁵).
The reference takes O(n⁴) memory too.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.calls import registers_kernels, with_kernel_fallback
from phrasemodels.structs.charts import Chart
from phrasemodels.structs.derivations import Derivations, Problem
from phrasemodels.structs.eisner import score_heads
from phrasemodels.structs.inference import Lengths
from phrasemodels.structs.joint_graph import graph
from phrasemodels.structs.kernels import decode
from phrasemodels.structs.semiring import Log
from phrasemodels.structs.spans import preorder, score_cells


@with_kernel_fallback
def log_partition(labels: Tensor, arcs: Tensor, lengths: Lengths = None) -> Tensor:
    """Return log Z, (B,)."""
    lengths = _check(labels, arcs, lengths)
    if kernels.usable(lengths, labels, arcs):
        return _problem(labels, arcs, lengths).log_partition()
    return inference.log_partition(_InsidePass(lengths), labels, arcs)


@with_kernel_fallback
def marginals(labels: Tensor, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Return p(labelled span), (B, n, n, L), and p(arc), (B, n+1, n+1)."""
    lengths = _check(labels, arcs, lengths)
    if kernels.usable(lengths, labels, arcs):
        spans, heads = _problem(labels, arcs, lengths).marginals()
    else:
        spans, heads = inference.marginals(_InsidePass(lengths), labels, arcs)
    return spans, heads


@with_kernel_fallback
def argmax(labels: Tensor, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the score (B,), differentiable, of a best tree, its cells (B, 2n-1, 3) as in `spans.argmax`, and its heads
    (B, n+1) as in `eisner`."""
    lengths = _check(labels, arcs, lengths)
    if kernels.usable(lengths, labels, arcs):
        best, cells, heads = decode.joint(labels, arcs, lengths)
    else:
        best, parts = inference.argmax(_InsidePass(lengths), labels, arcs)
        cells, heads = _trees(*parts)
    score = score_cells(labels, cells) + score_heads(arcs, heads)
    return torch.where(best > -torch.inf, score, best.to(score)), cells, heads


@with_kernel_fallback
def topk(labels: Tensor, arcs: Tensor, k: int, lengths: Lengths = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores (k, B), differentiable, the cells (k, B, 2n-1, 3) and the heads (k, B, n+1) of the k best trees.

    The best is first. Where there are fewer trees that are not forbidden, the other scores are -inf, their cells and heads
    -1. Scores on a GPU are copied to the CPU.
    """
    scores, rows = _problem(labels, arcs, lengths).topk(k)
    return scores, *_read(rows)


@with_kernel_fallback
def sample(
    labels: Tensor, arcs: Tensor, k: int, lengths: Lengths = None, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return the cells (k, B, 2n-1, 3) and heads (k, B, n+1) of k independent samples. Scores on a GPU are copied to the CPU."""
    return _read(_problem(labels, arcs, lengths).sample(k, generator))


@with_kernel_fallback
def entropy(labels: Tensor, arcs: Tensor, lengths: Lengths = None) -> Tensor:
    """Return −Σ p log p over all trees, in nats, (B,)."""
    lengths = _check(labels, arcs, lengths)
    if kernels.usable(lengths, labels, arcs):
        return _problem(labels, arcs, lengths).entropy()
    return inference.entropy(_InsidePass(lengths), labels, arcs)


def _problem(labels: Tensor, arcs: Tensor, lengths: Lengths) -> Problem:
    lengths = _check(labels, arcs, lengths)
    return Problem(graph(*labels.shape[2:]), (labels, arcs), lengths[:, None])


class JointTrees(Derivations):
    """The functions over joint trees as rows (B, 3n-1, 5): (i, j, label, -1, -1) for a cell, (-1, -1, -1, h, m) for an arc."""

    def problem(self, labels: Tensor, arcs: Tensor, *, lengths: Lengths = None) -> Problem:  # type: ignore[override]
        return _problem(labels, arcs, lengths)


trees = JointTrees()


def _read(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return cells (k, B, 2n-1, 3) and heads (k, B, n+1) from rows (k, B, 3n-1, 5)."""
    n = (rows.shape[2] + 1) // 3
    place = (rows[..., 2] < 0).long().argsort(stable=True, dim=-1)[..., : max(2 * n - 1, 0), None]
    heads = rows.new_full((*rows.shape[:2], n + 2), -1)  # the last takes the rows of cells
    at = torch.where(rows[..., 4] >= 0, rows[..., 4], n + 1)
    return rows[..., :3].gather(2, place.expand(*place.shape[:3], 3)), heads.scatter_(2, at, rows[..., 3])[..., :-1]


@with_kernel_fallback
def minimum_risk(labels: Tensor, arcs: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the expected number (B,) of right cells and arcs, and the cells (B, 2n-1, 3) and heads (B, n+1) of the tree with
    most of them."""
    expected, rows = _problem(labels, arcs, lengths).minimum_risk()
    cells, heads = _read(rows[None])
    return expected, cells[0], heads[0]


def total(semiring: Log, labels: Tensor, arcs: Tensor, lengths: Lengths = None) -> Tensor:
    """Return ⊕ over all trees of the products ⊗ of their scores in any semiring, lowered; see `semiring`."""
    return semiring.lower(_InsidePass(_check(labels, arcs, lengths))(semiring, labels, arcs))


class _InsidePass:
    """The inside pass B(i,j,h) = ⊕_k U(i,k,h) ⊗ W(k+1,j,h) ⊕ W(i,k,h) ⊗ U(k+1,j,h) over words i..j headed by h.

    U = B ⊗ any label, V = B ⊗ any label but the empty one, W is the hook.
    """

    def __init__(self, lengths: Tensor):
        self.lengths = lengths

    def __call__(self, semiring: Log, labels: Tensor, arcs: Tensor) -> Tensor:
        n = labels.shape[1]
        word = torch.arange(n, device=labels.device) < self.lengths[:, None]
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
        sentence = torch.arange(len(self.lengths), device=labels.device)
        top = torch.stack(tops, 2)[:, sentence, (self.lengths - 1).clamp(min=0)]
        total = semiring.sum(top + root, -1)
        return torch.where(self.lengths == 0, semiring.one_like(total), total)


def _hook(semiring: Log, V: Tensor, between: Tensor) -> Tensor:
    return semiring.sum(V[..., None, :] + between[:, :, None], -1)


def _trees(spans: Tensor, arcs: Tensor) -> tuple[Tensor, Tensor]:
    return preorder(spans), torch.where(arcs.sum(-2) > 0, arcs.argmax(-2), -1)


def _check(labels: Tensor, arcs: Tensor, lengths: Lengths) -> Tensor:
    if labels.dim() != 4 or labels.shape[1] != labels.shape[2] or labels.shape[3] < 2:
        raise ValueError(f"labels must be (B, n, n, L) with the empty label and L > 1, not {tuple(labels.shape)}")
    B, n = labels.shape[:2]
    if arcs.shape != (B, n + 1, n + 1):
        raise ValueError(f"arcs must be {(B, n + 1, n + 1)} with the root at 0, not {tuple(arcs.shape)}")
    return inference.check_lengths(lengths, B, n, labels.device)


@registers_kernels
def _first_calls(dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    scores = torch.zeros(1, 2, 2, 2, dtype=dtype).requires_grad_(), torch.zeros(1, 3, 3, dtype=dtype).requires_grad_()
    calls = {function.__name__: partial(function, *scores) for function in (argmax, marginals)}
    return calls | {function.__name__: partial(function, *scores, k=1) for function in (topk, sample)}
