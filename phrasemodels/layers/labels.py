"""The label attention layer (paper 004, section 2.3): one attention head for each label of the treebank.

Two products are reordered, with the same result: q_l (W_l x) = (q_l W_l) x, and a (x W_l) = (a x) W_l. So the keys and
values of L heads are never computed for every word.

Shapes: B batch, N positions, d model width, L labels, dk width of queries, keys and values (half content, half
position), Q query rows: 1 if a label's query is learned, N if it is computed from the words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.layers.blocks import dropout, masked_softmax, untouched
from phrasemodels.layers.partitioned import (
    PartitionedFeedForward,
    PartitionedLinear,
    Scale,
    SharedAddNorm,
    SharedDropout,
    StandardNorm,
    by_head_width,
)

Align = Callable[[Tensor, int], Tensor]
Weigh = Callable[[Tensor], Tensor]  # scores (B, L, Q, N) -> weights


def own_query(queries: Tensor, batch: int) -> Tensor:
    """Give each label its own query in every sentence: queries (L, dk) -> (1, L, dk)."""
    return queries[None]


def released_query(queries: Tensor, batch: int) -> Tensor:
    """Align queries as the released code does, for comparisons: queries (L, dk) -> (B, L, dk).

    It repeats queries sentence by sentence, but keys label by label. So label l of sentence b gets the query of label
    (l·B + b) mod L, and results depend on the batch.
    """
    labels = len(queries)
    row = torch.arange(labels, device=queries.device) * batch
    return queries[(row + torch.arange(batch, device=queries.device)[:, None]) % labels]


class LabelMatrices(nn.Module):
    """[X_c W_l^c; X_p W_l^p]: a matrix for the content and one for the position of each label l."""

    def __init__(self, labels: int, d: int, dk: int) -> None:
        super().__init__()
        self.content, self.position = (nn.Parameter(torch.empty(labels, d // 2, dk // 2)) for _ in range(2))
        for weight in (self.content, self.position):
            for matrix in weight.data:
                nn.init.xavier_uniform_(matrix)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, d), the same for all labels, or (B, L, N, d) -> (B, L, N, dk)."""
        x = x[:, None] if x.dim() == 3 else x
        content, position = x.chunk(2, -1)
        return torch.cat([content @ self.content, position @ self.position], -1)

    def transposed(self, y: Tensor) -> Tensor:
        """Return W_l y_l: y (B, L, dk) -> (B, L, d)."""
        content, position = y.chunk(2, -1)
        products = zip((self.content, self.position), (content, position), strict=True)
        return torch.cat([torch.einsum("ldk,blk->bld", weight, part) for weight, part in products], -1)


class LearnedQueries(nn.Module):
    """a_l = softmax(q_l K_lᵀ · scale) with a learned vector q_l (Eq 1), c_l = a_l V_l (Eq 2)."""

    def __init__(self, labels: int, d: int, dk: int, align: Align = own_query) -> None:
        super().__init__()
        self.query = nn.Parameter(nn.init.xavier_uniform_(torch.empty(labels, dk)))
        self.key, self.value = LabelMatrices(labels, d, dk), LabelMatrices(labels, d, dk)
        self.align = align

    def forward(self, x: Tensor, weigh: Weigh) -> Tensor:
        """x (B, N, d) -> contexts (B, L, Q, dk)."""
        return self.contexts(weigh(self.scores(x)), x)

    def scores(self, x: Tensor) -> Tensor:
        """x (B, N, d) -> scores (B, L, 1, N)."""
        if not untouched(self.key, LabelMatrices):
            return self.align(self.query, len(x))[:, :, None] @ self.key(x).transpose(2, 3)
        # q_l W_l first: L vectors of width d, in place of L · N keys (Eq 1)
        queries = self.key.transposed(self.align(self.query, len(x)))
        return (queries @ x.transpose(1, 2))[:, :, None]

    def contexts(self, weights: Tensor, x: Tensor) -> Tensor:
        """weights (B, L, 1, N), x (B, N, d) -> (B, L, 1, dk)."""
        if not untouched(self.value, LabelMatrices):
            return weights @ self.value(x)
        # a_l X first, then W_l, as for the keys (Eq 2)
        return self.value((weights[:, :, 0] @ x)[:, :, None])


class Combine(nn.Module):
    """Contexts (B, L, Q, dk) and words x (B, N, d) -> states (B, N, width), in `groups` equal groups of features."""

    width: int
    groups: int


class PerLabel(Combine):
    """o_l = [c_l^c P; c_l^p P'], r_li = LN((Drop(o_l) + x_i) R) (Eq 3 to 5); a word is [r_1i; ...; r_Li].

    If queries are learned, o_l is the same for every word, so that words differ by it only through LN.
    """

    def __init__(self, labels: int, d: int, dk: int, out: int, dropout: float) -> None:
        super().__init__()
        self.project = PartitionedLinear((dk // 2, dk // 2), (d // 2, d // 2))
        self.reduce = nn.Linear(d, out, bias=False)
        nn.init.xavier_uniform_(self.reduce.weight)
        self.norm, self.dropout = StandardNorm(out), SharedDropout(dropout)
        self.width, self.groups = labels * out, labels

    def forward(self, contexts: Tensor, x: Tensor) -> Tensor:
        # Eq 3
        o = self.dropout(self.project(contexts))
        r = self.norm(self.reduce(o) + self.reduce(x)[:, None])  # (o + x) R, without (B, L, N, d) numbers o + x
        # one group of features for each label, side by side; `fenceposts` of layers.scorers divides each again
        return r.transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class LabelAttentionConfig:
    """The switches of paper 004. Each is a function or class for one reading of the text.

    Args:
        labels: Number of labels. 0: the treebank's.
        d_kv: Width of queries, keys and values.
        d_out: Features per label.
        d_ff: Hidden units of each part of the feed-forward layer. 0: no layer.
        scale: by_head_width (Eq 1), or by_model_width as released.
        align: own_query, or released_query.
        query: LearnedQueries, or a class of your own with its methods.
        combine: PerLabel, or a `Combine` of your own.
        dropout: Dropout of the attention weights, and of the features of labels.
        residual_dropout: Dropout of the output of the feed-forward layer.
    """

    labels: int = 0
    d_kv: int = 128
    d_out: int = 128
    d_ff: int = 1024
    dropout: float = 0.2
    residual_dropout: float = 0.0
    scale: Scale = by_head_width
    align: Align = own_query
    query: Callable[[int, int, int, Align], LearnedQueries] = LearnedQueries
    combine: Callable[[int, int, int, int, float], Combine] = PerLabel

    def __post_init__(self) -> None:
        config.at_least(self, 0, "labels", "d_ff")
        config.even(self, "d_kv")
        config.at_least(self, 2, "d_out")  # the norm over them divides by d_out - 1
        config.share(self, "dropout", "residual_dropout")

    def build(self, d: int) -> "LabelAttention":
        return LabelAttention(self, d)


class LabelAttention(nn.Module):
    """States (B, N, d) -> states (B, N, width), in `groups` equal groups of features: one per label (PerLabel)."""

    def __init__(self, config: LabelAttentionConfig, d: int) -> None:
        super().__init__()
        if config.labels < 1:
            raise ValueError("labels=0: a label attention layer needs the number of labels")
        sizes = (config.labels, d, config.d_kv)
        self.attend = config.query(*sizes, config.align)
        self.combine = config.combine(*sizes, config.d_out, config.residual_dropout)
        self.scale, self.dropout = config.scale(d, config.d_kv), config.dropout
        self.width, self.groups = self.combine.width, self.combine.groups
        self.feed_forward = self.residual = None
        if config.d_ff:
            # as in the released code, the last d/2 features have their own hidden units, as if they were position
            self.feed_forward = PartitionedFeedForward(self.width, d // 2, config.d_ff, config.dropout)
            self.residual = SharedAddNorm(self.width, config.dropout)

    def weights(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return the attention of each label, (B, L, Q, N), zeros in an empty sentence: x (B, N, d), valid (B, 1, 1, N) true for
        real positions."""
        return self._weights(self.attend.scores(_words(x, valid)), valid)

    def _weights(self, scores: Tensor, valid: Tensor) -> Tensor:
        return masked_softmax(scores * self.scale, valid, -1)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return the states: x (B, N, d), valid (B, 1, 1, N) true for real positions."""
        x = _words(x, valid)
        contexts = self.attend(x, lambda scores: dropout(self._weights(scores, valid), self.dropout, self.training))
        y = self.combine(contexts, x)
        return self.residual(y, self.feed_forward) if self.residual is not None else y


def _words(x: Tensor, valid: Any) -> Tensor:
    """Return x (B, N, d) with 0 in the padding, as `without_padding`. ValueError: valid is no mask (B, 1, 1, N)."""
    if not isinstance(valid, Tensor) or valid.dtype != torch.bool or valid.dim() != 4:
        given = f"{tuple(valid.shape)} of {valid.dtype}" if isinstance(valid, Tensor) else f"a {type(valid).__name__}"
        raise ValueError(f"valid must be a mask (B, 1, 1, N) of booleans, true for real positions, not {given}")
    return x.masked_fill(~valid[:, 0, 0, :, None], 0)
