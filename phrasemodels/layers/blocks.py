"""Parts of encoders besides attention: ids of every vocabulary, dropout, dense layers, residual styles, feed-forward, positions,
embeddings, pooling, and packed rows.

Dropout takes half of torch's time on a CPU: it draws 16 random bits for each value, where torch draws a number of 32. The
pooled vector of a sentence without tokens is 0; batches have n ≥ 1.

Packed rows are the real tokens of a padded batch one after another, so that layers compute nothing for padding. Products, norms, dropout,
feed-forward layers and losses run over packed rows (T, d). Attention alone needs sentences side by side: it pads them, on a processor in a
few groups of adjacent sentences, each to its own longest one, since the cost of a sentence grows with the square of its length.

Shapes: B sentences, n tokens, d model width or features, T real tokens of all sentences; valid (B, n) is true for tokens, false for
padding.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import _has_any_global_hook

from phrasemodels.structs.dispatch import Lengths, check_lengths, forward_mode, is_integer, transformed

PAD, UNKNOWN, BEGIN, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # the entries of a vocabulary with these ids


def padded(rows: Sequence[Any], fill: int = PAD) -> Tensor:
    """Return rows of numbers (n) or (n, k) as one tensor (B, longest) or (B, longest, k)."""
    arrays = [np.asarray(row) for row in rows]
    out = np.full((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), fill, np.int64)
    for whole, array in zip(out, arrays, strict=True):
        whole[: len(array)] = array
    return torch.from_numpy(out)


def on_device(device: torch.device, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors of the CPU on a device; a GPU copies them without being waited for."""
    if device.type != "cuda" or any(x.is_cuda for x in tensors):
        return tuple(x.to(device) for x in tensors)
    return tuple(x.pin_memory().to(device, non_blocking=True) for x in tensors)


_fixed = ContextVar("fixed", default=False)


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """Let no step depend on the data while the block runs, as a CUDA graph needs it: padding is computed and masked."""
    before = _fixed.set(True)
    try:
        yield
    finally:
        _fixed.reset(before)


def shapes_are_fixed() -> bool:
    """Return whether no step may depend on the data: in a graph of `torch.compile`, in `fixed_shapes`, or under `torch.func`."""
    return torch.compiler.is_compiling() or _fixed.get() or transformed()


def untouched(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Return whether a call of a module runs the forward of one of these classes and nothing else, so that faster code may replace it.

    A subclass, a hook, a replaced `forward` or a compiled module is code of its own: it is called.
    """
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    changed = any(hooks) or "forward" in module.__dict__ or module._compiled_call_impl is not None
    return type(module) in kinds and not changed and not _has_any_global_hook()


STATES = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Return `torch.nn.functional.dropout(x, p, training)`; on a CPU in half of its time, with p rounded to a multiple of 2⁻¹⁶.

    It draws 16 random bits for each value, and saves one byte of each for the backward pass.
    """
    kept = STATES - round(p * STATES)
    # vmap draws for each example in torch's dropout alone
    by_torch = x.device.type != "cpu" or torch.compiler.is_compiling() or transformed()
    if not training or by_torch or kept in (0, STATES):
        return F.dropout(x, p, training)
    # all bits of a 64-bit number are random, so one has the bits of four values
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    # uniform from -STATES / 2 on, so `kept` of STATES values are below the bound
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits < kept - STATES // 2) * (STATES / kept)


class Dropout(nn.Dropout):
    """A module of `dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        """x (...) -> (...)."""
        return dropout(x, self.p, self.training)


class Dense(nn.Linear):
    """W Drop(x) + b: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias)
        self.dropout = dropout
        nn.init.xavier_normal_(self.weight)
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(dropout(x, self.dropout, self.training))


def masked_softmax(logits: Tensor, valid: Tensor, dim: int) -> Tensor:
    """Return the softmax over the valid entries; all 0, not NaN, if none is valid."""
    # not -inf: the softmax of a row of -inf is NaN, and NaN times False is, too
    least = torch.finfo(logits.dtype).min
    return logits.masked_fill(~valid, least).softmax(dim) * valid


def dot_product_attention(*given: Any, **options: Any) -> Tensor:
    """Return `torch.nn.functional.scaled_dot_product_attention`; in forward mode, which fused kernels lack, by torch's plain one."""
    with sdpa_kernel(SDPBackend.MATH) if forward_mode() else nullcontext():
        return F.scaled_dot_product_attention(*given, **options)


def max_over_tokens(states: Tensor, valid: Tensor) -> Tensor:
    """Return the maximum of each feature over the tokens: (B, n, d) -> (B, d)."""
    if not states.shape[1]:
        return states.sum(1)
    least = torch.finfo(states.dtype).min
    highest = states.masked_fill(~valid.unsqueeze(-1), least).amax(1)
    return highest * valid.any(1, keepdim=True)


def max_with_padding(states: Tensor, valid: Tensor) -> Tensor:
    """Return the maximum with padding as 0, as the first version of InferSent does; a vector depends on its batch."""
    return states.masked_fill(~valid.unsqueeze(-1), 0).amax(1)


class SourceToToken(nn.Module):
    """v = Σ_i softmax_i(e_i) ∘ m_i with e_i = W2 ELU(W1 m_i + b1) + b2, feature by feature.

    Multi-dimensional attention from the sentence to its tokens (paper 001, Eq 5; Shen et al. 2018, section 3.2).
    """

    def __init__(self, d: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner, self.outer = Dense(d, d, dropout), Dense(d, d, dropout)

    def weights(self, states: Tensor, valid: Tensor) -> Tensor:
        """Return the weights (B, n, d), which sum to 1 over the tokens for each feature."""
        return masked_softmax(self.outer(F.elu(self.inner(states))), valid.unsqueeze(-1), 1)

    def forward(self, states: Tensor, valid: Tensor) -> Tensor:
        """states (B, n, d) -> (B, d)."""
        states = states.masked_fill(~valid.unsqueeze(-1), 0)
        return (self.weights(states, valid) * states).sum(1)


Sublayer = Callable[[Tensor], Tensor]
Start = Callable[[Tensor], Tensor]  # draws the weights of a table in place


class Residual(nn.Module):
    """A way to add a sublayer f to its input: (x, f) -> x, both (B, n, d)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__()

    @staticmethod
    def final_norm(d: int) -> nn.Module:
        """Return the module that follows the last layer."""
        return nn.Identity()


class AddNorm(Residual):
    """LN(x + Drop(f(x))): the post-norm residual of Vaswani et al. (2017, section 3.1)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__(d, dropout)
        self.norm = nn.LayerNorm(d)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(Residual):
    """x + Drop(f(LN(x))), and a norm after the last layer, as in OpenNMT (ε = 1e-6)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__(d, dropout)
        self.norm = nn.LayerNorm(d, eps=1e-6)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))

    @staticmethod
    def final_norm(d: int) -> nn.Module:
        return nn.LayerNorm(d, eps=1e-6)


class Replace(Residual):
    """f(x), without residual and norm: Algorithm 1 of paper 000 as printed."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return sublayer(x)


class FeedForward(nn.Sequential):
    """d -> d_ff -> d with a ReLU between (Vaswani et al. 2017, Eq 2), and dropout after the ReLU, as in OpenNMT."""

    def __init__(self, d: int, d_ff: int, dropout: float = 0.0) -> None:
        widen, narrow = nn.Linear(d, d_ff), nn.Linear(d_ff, d)
        super().__init__(widen, nn.Sequential(nn.ReLU(), Dropout(dropout)), narrow)
        for layer in (widen, narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def feed_forward(d: int, d_ff: int, dropout: float = 0.0) -> nn.Module:
    """Return a feed-forward sublayer with dropout inside, or the identity if d_ff is 0."""
    return FeedForward(d, d_ff, dropout) if d_ff else nn.Identity()


def sinusoids(positions: Tensor, d: int) -> Tensor:
    """Return the sinusoidal encodings (Vaswani et al. 2017, section 3.5) of positions (...): (..., d), float32.

    They are computed, not read from a table, so sentences may have any length.
    """
    rates = torch.exp(torch.arange(0, d, 2, device=positions.device) * (-torch.log(torch.tensor(10000.0)) / d))
    angles = positions.unsqueeze(-1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :d]


def normal_by_width(weight: Tensor) -> Tensor:
    """Draw the weights (V, d) of an embedding from N(0, 1/d)."""
    return nn.init.normal_(weight, std=weight.shape[1] ** -0.5)


def standard_normal(weight: Tensor) -> Tensor:
    """Draw the weights (V, d) of an embedding from N(0, 1), as torch does."""
    return nn.init.normal_(weight)


def given_vectors(file: str, words: int, d: int) -> Tensor:
    """Return the word vectors of a safetensors file, (words, d). ValueError: it holds others."""
    table = load_file(file)["vectors"]
    if table.shape != (words, d):
        raise ValueError(
            f"{file}: holds {tuple(table.shape)} numbers, not {(words, d)}: is the width that of the vectors?"
        )
    return table


class TokenEmbedding(nn.Module):
    """Embeddings plus sinusoidal positions, with dropout.

    start: how the table is drawn. scaled: embeddings are the table times √d, so that a table from N(0, 1/d), of embeddings of
    variance 1, can also be the output projection (Vaswani et al. 2017, section 3.4); else they are the table.
    """

    def __init__(
        self, vocabulary: int, d: int, dropout: float, start: Start = normal_by_width, scaled: bool = True
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, d)
        start(self.table.weight)
        self.scale = d**0.5 if scaled else 1.0
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, first: int = 0) -> Tensor:
        """tokens (B, n), the leftmost at position `first` -> (B, n, d)."""
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        vectors = self.table(tokens) * self.scale
        return self.dropout(vectors + sinusoids(positions, vectors.shape[-1]).to(vectors.dtype))


class ScaledLinear(nn.Linear):
    """W(scale · x) + b: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, outputs: int, bias: bool, scale: float) -> None:
        super().__init__(inputs, outputs, bias)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if self.scale == 1 else x * self.scale)


def as_lengths(lengths: Lengths, x: Tensor, axis: int = 1) -> Tensor:
    """Return the lengths (B) of x (B, ...) along an axis, given as to functions of `structs`: a tensor, a list, a mask (B, n), or None."""
    if isinstance(lengths, Tensor) and lengths.dim() == 1 and lengths.shape[0] == x.shape[0] and is_integer(lengths):
        if lengths.is_cpu and not shapes_are_fixed() and len(lengths):  # else a GPU is waited for, or a graph breaks
            least, most = (int(n) for n in lengths.aminmax())
            if least < 0 or most > max(1, x.shape[axis]):
                raise ValueError(f"lengths: {least} to {most} words, but there are {x.shape[axis]} positions")
        return lengths
    return check_lengths(lengths, x.shape[0], x.shape[axis], x.device)[:, 0]


def token_mask(lengths: Tensor, n: int) -> Tensor:
    """lengths (B) -> (B, n) booleans: true for tokens, false for padding."""
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(1)


def without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """Return x (B, n, d) with 0 in the padding, lengths (B): a NaN or inf there reaches words even through weights of 0."""
    return x.masked_fill(~token_mask(lengths, x.shape[1]).unsqueeze(-1), 0)


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


class _Padded:
    """Sentences side by side, whose real tokens are at the places `cells` of those of `shape`; None: all are real."""

    shape: tuple[int, int]
    cells: Tensor | None

    def pack(self, x: Tensor) -> Tensor:
        """x (B, n, ...) -> the rows of real tokens (T, ...)."""
        flat = x.flatten(0, 1)
        return flat if self.cells is None else _Pack.apply(flat, self.cells)

    def pad(self, x: Tensor) -> Tensor:
        """x (T, ...) -> (B, n, ...), 0 for padding."""
        whole = x if self.cells is None else _Pad.apply(x, self.cells, self.shape[0] * self.shape[1])
        return whole.unflatten(0, self.shape)


@dataclass(frozen=True)
class Group(_Padded):
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


class Packing(_Padded):
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
