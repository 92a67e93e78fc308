"""Parts of encoders besides attention: ids of every vocabulary, dropout, dense layers, residual styles, feed-forward, positions,
embeddings and pooling.

Dropout takes half of torch's time on a CPU: it draws 16 random bits for each value, where torch draws a number of 32. The
pooled vector of a sentence without tokens is 0; batches have n ≥ 1.

Shapes: B sentences, n tokens, d model width or features; valid (B, n) is true for tokens, false for padding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.structs.dispatch import transformed

PAD, UNKNOWN, BEGIN, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # the entries of a vocabulary with these ids


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


STATES = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Return `torch.nn.functional.dropout(x, p, training)`; on a CPU in half of its time, with p rounded to a multiple of 2⁻¹⁶.

    It draws 16 random bits for each value, and saves one byte of each for the backward pass.
    """
    kept = STATES - round(p * STATES)
    if not training or x.device.type != "cpu" or kept in (0, STATES) or torch.compiler.is_compiling():
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


def max_over_tokens(states: Tensor, valid: Tensor) -> Tensor:
    """Return the maximum of each feature over the tokens: (B, n, d) -> (B, d)."""
    if not states.shape[1]:
        return states.sum(1)
    least = torch.finfo(states.dtype).min
    highest = states.masked_fill(~valid.unsqueeze(-1), least).amax(1)
    return highest * valid.any(1, keepdim=True)


def max_with_padding(states: Tensor, valid: Tensor) -> Tensor:
    """Return the maximum with padding as 0, as the first version of InferSent does; a vector depends on its batch."""
    return (states * valid.unsqueeze(-1)).amax(1)


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


def token_mask(lengths: Tensor, n: int) -> Tensor:
    """lengths (B) -> (B, n) booleans: true for tokens, false for padding."""
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(1)


def without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """Return x (B, n, d) with 0 in the padding, lengths (B): a NaN or inf there reaches words even through weights of 0."""
    return x.masked_fill(~token_mask(lengths, x.shape[1]).unsqueeze(-1), 0)
