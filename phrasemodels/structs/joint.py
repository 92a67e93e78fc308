"""Joint span–head trees: labelled spans, each with a head word, and the arcs between the heads (Zhou and Zhao 2019;
paper 004).

Shapes: B sentences, n words, L labels. Arguments of every function:
    labels   (B, n, n, L): score of words i..j, both included, with the label; only i ≤ j is read; label 0 is empty
    arcs     (B, n+1, n+1): arcs[b, h, m] is the score of position h as the head of m; 0 is the root, words are 1..n
    lengths  (B,) integers in 1..n; None: all are n

A merge joins a span headed by h and an adjacent span headed by m by the arc h → m; h heads the merged span. The span of h
and single words may have the empty label, the span of m and the whole sentence may not. The root's arc goes to the head of
the sentence. The score of a tree is the sum over its labelled spans and arcs; multiply the scores to weigh one against the
other. A score of -inf forbids a label or an arc. If a score of a sentence is NaN or +inf, its log Z, marginals and
gradients are NaN, and its trees are undefined. Scores in the padding are not read. ValueError: wrong shapes or lengths.

Merging through W(span, h) = ⊕_m V(span, m) ⊗ arcs(h, m), the hook of Eisner and Satta (1999), takes O(n⁴) time, not O(n⁵).
The reference takes O(n⁴) memory too.
"""

import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.charts import Chart
from phrasemodels.structs.eisner import score_heads
from phrasemodels.structs.kernels import decode
from phrasemodels.structs.semiring import Log
from phrasemodels.structs.spans import preorder, score_cells


def log_partition(labels: Tensor, arcs: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return log Z, (B,)."""
    return inference.log_partition(_InsidePass(_check(labels, arcs, lengths)), labels, arcs)


def marginals(labels: Tensor, arcs: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return p(labelled span), (B, n, n, L), and p(arc), (B, n+1, n+1)."""
    spans, heads = inference.marginals(_InsidePass(_check(labels, arcs, lengths)), labels, arcs)
    return spans, heads


def argmax(labels: Tensor, arcs: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the score (B,), differentiable, of a best tree, its cells (B, 2n-1, 3) as in `spans.argmax`, and its heads
    (B, n+1) as in `eisner`."""
    lengths = _check(labels, arcs, lengths)
    if kernels.usable(labels, arcs):
        best, cells, heads = decode.joint(labels, arcs, lengths)
    else:
        best, parts = inference.argmax(_InsidePass(lengths), labels, arcs)
        cells, heads = _trees(*parts)
    score = score_cells(labels, cells) + score_heads(arcs, heads)
    return score.masked_fill(best == -torch.inf, -torch.inf), cells, heads


def sample(
    labels: Tensor, arcs: Tensor, k: int, lengths: Tensor | None = None, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return the cells (k, B, 2n-1, 3) and heads (k, B, n+1) of k independent samples."""
    inside = _InsidePass(_check(labels, arcs, lengths).repeat(k))
    parts = inference.sample(inside, labels, arcs, k=k, generator=generator)
    cells, heads = _trees(*(p.flatten(0, 1) for p in parts))
    return cells.unflatten(0, (k, -1)), heads.unflatten(0, (k, -1))


def entropy(labels: Tensor, arcs: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return −Σ p log p over all trees, in nats, (B,)."""
    return inference.entropy(_InsidePass(_check(labels, arcs, lengths)), labels, arcs)


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
        both = word[:, :, None] & word[:, None, :]
        between = semiring.lift(torch.where(both, arcs[:, 1:, 1:], 0))
        root = semiring.lift(torch.where(word, arcs[:, 0, 1:], 0))

        own = torch.eye(n, dtype=torch.bool, device=labels.device)
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
        top = torch.stack(tops, 2)[:, sentence, self.lengths - 1]
        return semiring.sum(top + root, -1)


def _hook(semiring: Log, V: Tensor, between: Tensor) -> Tensor:
    return semiring.sum(V[..., None, :] + between[:, :, None], -1)


def _trees(spans: Tensor, arcs: Tensor) -> tuple[Tensor, Tensor]:
    return preorder(spans), torch.where(arcs.sum(-2) > 0, arcs.argmax(-2), -1)


def _check(labels: Tensor, arcs: Tensor, lengths: Tensor | None) -> Tensor:
    if labels.dim() != 4 or labels.shape[1] != labels.shape[2] or labels.shape[3] < 2:
        raise ValueError(f"labels must be (B, n, n, L) with the empty label and L > 1, not {tuple(labels.shape)}")
    B, n = labels.shape[:2]
    if arcs.shape != (B, n + 1, n + 1):
        raise ValueError(f"arcs must be {(B, n + 1, n + 1)} with the root at 0, not {tuple(arcs.shape)}")
    return inference.check_lengths(lengths, B, n, labels.device)
