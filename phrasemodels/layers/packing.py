"""Packed rows: the real tokens of a padded batch one after another, so that layers compute nothing for padding.

Products, norms, dropout, feed-forward layers and losses run over packed rows (T, d). Attention alone needs sentences side by
side: it pads them, on a processor in a few groups of adjacent sentences, each to its own longest one, since the cost of a
sentence grows with the square of its length.

Shapes: B sentences, n padded tokens of a sentence, T real tokens of all sentences, F features.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from phrasemodels.layers.blocks import shapes_are_fixed, token_mask

GROUPS = 4  # of sentences, in which attention is padded on a processor
LEAST_SAVED = 1 << 14  # pairs of tokens that the groups must save: each group costs some hundred microseconds


class _Pack(Function):
    """Rows of x (cells, ...) -> rows of some cells; each is the gradient of the other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cells: Tensor) -> Tensor:
        ctx.count, ctx.cells = len(x), cells
        return x.index_select(0, cells)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Pad.apply(grad, ctx.cells, ctx.count), None


class _Pad(Function):
    """Rows x (T, ...) -> (count, ...) with x at some cells, each named once, and 0 elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cells: Tensor, count: int) -> Tensor:
        ctx.cells = cells
        return x.new_zeros(count, *x.shape[1:]).index_copy_(0, cells, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Pack.apply(grad, ctx.cells), None, None


def pack_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows (r), each named once, of x (T, ...)."""
    packed: Tensor = _Pack.apply(x, rows)
    return packed


@dataclass(frozen=True)
class Group:
    """Some adjacent sentences of a batch, padded to the longest of them: b sentences of at most n tokens, t in all."""

    tokens: int  # t
    shape: tuple[int, int]  # b, n
    cells: Tensor | None  # the places of the tokens among b · n; None: all are real
    mask: Tensor | None  # (b, 1, 1, n) added to the scores of keys: -inf for padding; None: 0 for all
    device: torch.device

    @cached_property
    def causal(self) -> Tensor:
        """The mask (n, n) by which each token sees itself and the tokens before it, hence no padding."""
        return torch.full(self.shape[1:] * 2, -torch.inf, device=self.device).triu(1)

    def pad(self, x: Tensor) -> Tensor:
        """x (t, ...) -> (b, n, ...), 0 for padding."""
        whole = x if self.cells is None else _Pad.apply(x, self.cells, self.shape[0] * self.shape[1])
        return whole.unflatten(0, self.shape)

    def pack(self, x: Tensor) -> Tensor:
        """x (b, n, ...) -> (t, ...)."""
        flat = x.flatten(0, 1)
        return flat if self.cells is None else _Pack.apply(flat, self.cells)


class Packing:
    """The real tokens of a padded batch, sentence by sentence.

    real (B, n): booleans; padding may be anywhere. scores (T): numbers that are added to the scores of tokens as keys. A GPU is
    waited for once, to know how many tokens each sentence has.
    """

    def __init__(self, real: Tensor, scores: Tensor | None = None) -> None:
        self.shape = (real.shape[0], real.shape[1])
        self.counts, self.scores = real.sum(1), scores
        self._lengths: list[int] = self.counts.tolist()
        self.tokens = sum(self._lengths)
        self.cells = None if self.tokens == real.numel() else true_places(real, self.tokens)
        self._groups: dict[int, list[Group]] = {}

    @classmethod
    def of(cls, lengths: Tensor, n: int) -> "Packing":
        """Return the packing of sentences of n padded tokens, whose first `lengths` (B) tokens are real; if shapes are fixed, as in a
        graph, which cannot know how many these are, all rows with masked padding."""
        return cls.of_real(token_mask(lengths, n))

    @classmethod
    def of_real(cls, real: Tensor) -> "Packing":
        """Return the packing of tokens (B, n), as `of`."""
        return AllRows(real) if shapes_are_fixed() else cls(real)

    def pack(self, x: Tensor) -> Tensor:
        """x (B, n, ...) -> the rows of real tokens (T, ...)."""
        flat = x.flatten(0, 1)
        return flat if self.cells is None else _Pack.apply(flat, self.cells)

    def pad(self, x: Tensor) -> Tensor:
        """x (T, ...) -> (B, n, ...), 0 for padding."""
        return (x if self.cells is None else _Pad.apply(x, self.cells, self.shape[0] * self.shape[1])).unflatten(
            0, self.shape
        )

    @cached_property
    def sentences(self) -> Tensor:
        """The sentence of each real token (T)."""
        each = torch.arange(len(self.counts), device=self.counts.device)
        return each.repeat_interleave(self.counts, output_size=self.tokens)

    @cached_property
    def best_groups(self) -> int:
        """Into how many groups attention over these tokens is divided."""
        counts = self.counts
        if counts.device.type != "cpu" or len(counts) < 2 * GROUPS:
            return 1
        # pairs of tokens, by which the cost of attention goes
        whole = len(counts) * int(counts.max()) ** 2
        divided = sum(len(part) * int(part.max()) ** 2 for part in counts.tensor_split(GROUPS))
        return GROUPS if whole - divided > max(LEAST_SAVED, whole // 8) else 1

    def groups(self, count: int) -> list[Group]:
        """Return the sentences in so many groups. Two packings of the same sentences have the same sentences in a group."""
        if count not in self._groups:
            parts = self.counts.tensor_split(count)
            # divided on the CPU, where they are known: to read `parts` would wait for the GPU
            lengths = [part.tolist() for part in torch.tensor(self._lengths).tensor_split(count)]
            scores = [None] * count if self.scores is None else self.scores.split([sum(part) for part in lengths])
            self._groups[count] = [_group(*each) for each in zip(parts, lengths, scores, strict=True)]
        return self._groups[count]


class AllRows(Packing):
    """The rows of all tokens of a padded batch, T = B · n: keys of padding are masked, and no step depends on the data."""

    def __init__(self, real: Tensor) -> None:
        self.shape, self.real, self.scores, self.cells = (real.shape[0], real.shape[1]), real, None, None
        self.tokens = real.shape[0] * real.shape[1]
        self.counts = torch.full(real.shape[:1], real.shape[1], device=real.device)  # rows of each sentence

    def pack(self, x: Tensor) -> Tensor:
        """x (B, n, ...) -> (T, ...), 0 for padding, whose NaN would reach other rows through weights of 0."""
        return self._masked(x).flatten(0, 1)

    def pad(self, x: Tensor) -> Tensor:
        """x (T, ...) -> (B, n, ...), 0 for padding."""
        return self._masked(x.unflatten(0, self.shape))

    def _masked(self, x: Tensor) -> Tensor:
        return x.masked_fill(~self.real.view(*self.shape, *(1 for _ in x.shape[2:])), 0)

    @property
    def best_groups(self) -> int:
        """Always 1: groups save padding, which is computed here."""
        return 1

    def groups(self, count: int) -> list[Group]:
        """Return the sentences in so many groups, all padded to n tokens."""
        return [_masked_group(part) for part in self.real.tensor_split(count)]


def _masked_group(real: Tensor) -> Group:
    """Return the group of padded sentences, real (b, n), whose rows are all there; one without tokens sees its padding, so that no
    row of scores is empty."""
    mask = torch.zeros(real.shape, device=real.device).masked_fill(~real & real.any(1, keepdim=True), -torch.inf)
    return Group(real.shape[0] * real.shape[1], (real.shape[0], real.shape[1]), None, mask[:, None, None], real.device)


def true_places(x: Tensor, count: int) -> Tensor:
    """Return the places (count) of the true ones among booleans of which `count` are true; a GPU is not waited for."""
    return torch.nonzero_static(x.flatten(), size=count).squeeze(1)


def _group(counts: Tensor, lengths: list[int], scores: Tensor | None) -> Group:
    """Return the group of sentences with so many tokens each, (b), also as numbers, whose scores as keys get others (t) added."""
    n, tokens = max(lengths, default=0), sum(lengths)
    real = token_mask(counts, n)
    full = tokens == real.numel()
    mask = None
    if not full or scores is not None:
        mask = torch.zeros(real.shape, dtype=None if scores is None else scores.dtype, device=real.device)
        if scores is not None:
            mask.masked_scatter_(real, scores)
        # a sentence without tokens sees its padding, so that no row is empty
        mask.masked_fill_(~token_mask(counts.clamp(min=1), n), -torch.inf)
        mask = mask[:, None, None]
    cells = None if full else true_places(real, tokens)
    return Group(tokens, (len(counts), n), cells, mask, counts.device)
