# mypy: disallow-untyped-defs=False
"""Attention heads over n-grams (paper 002, section 3): the n-gram that ends at a word takes the place of the word.

The window of a word is its n-gram: the word and the s − 1 words before it, zeros before the sentence (Eq 10). A bidirectional
LSTM reads all windows at once (Eq 9): each word is projected once, not once per window that holds it, and the first step,
from a state of zeros, has no recurrent product. On a CPU in float32 torch computes the matrix products and a compiled kernel
everything between them. It saves the inputs and the activated gates of every step for the backward pass, which recomputes
cells and hidden states from them.

Shapes: n words, R rows (one per sentence, head, and q, k or v), w head width, s gram size, L = n + s − 1 padded words, states
(L, R, w). Words are the first dimension, so that the k-th words of all windows are one slice. In the kernel M = n · R windows;
arrays are (2, M, ...) for the two directions, `projected` is (2, L · R, 4w), and `offsets` (2) are its rows that the first
window reads in this step.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from phrasemodels.layers.attention import Attend, MultiHeadAttention, softmax_attention
from phrasemodels.layers.blocks import Packing
from phrasemodels.structs.dispatch import COMPILE, each_gradient
from phrasemodels.structs.kernels import can_run_kernel, over_batch
from phrasemodels.structs.kernels.simd import exp32

# e^MOST is finite in float32, and 1 / (1 + e^MOST) is 4e-18
ONE, TWO, MOST = np.float32(1), np.float32(2), np.float32(40)
WINDOWS = 512  # that are processed at a time: their gates take 1 MiB per step at w = 64


@njit(**COMPILE)
def _sigmoid(x):
    return ONE / (ONE + exp32(min(-x, MOST)))


@njit(**COMPILE)
def _tanh(x):
    return ONE - TWO / (ONE + exp32(min(x + x, MOST)))


@njit(**COMPILE)
def _first(first, step, projected, offsets, gates, cells, hidden):
    """Run step 1, from a state of zeros, which gate f does not change; write gates i, g, o (2, M, 3w)."""
    w = cells.shape[2]
    for d in range(2):
        for m in range(first, cells.shape[1], step):
            p, a, c, h = projected[d, offsets[d] + m], gates[d, m], cells[d, m], hidden[d, m]
            for x in range(w):
                i, g, o = _sigmoid(p[x]), _tanh(p[2 * w + x]), _sigmoid(p[3 * w + x])
                a[x], a[w + x], a[2 * w + x] = i, g, o
                c[x] = i * g
                h[x] = o * _tanh(i * g)


@njit(**COMPILE)
def _next(first, step, projected, offsets, before, gates, cells, hidden):
    """Run a later step from the cells before it; gates (2, M, 4w) hold the recurrent product and become i, f, g, o."""
    w = cells.shape[2]
    for d in range(2):
        for m in range(first, cells.shape[1], step):
            p, a, b, c, h = projected[d, offsets[d] + m], gates[d, m], before[d, m], cells[d, m], hidden[d, m]
            for x in range(w):
                i, f = _sigmoid(p[x] + a[x]), _sigmoid(p[w + x] + a[w + x])
                g, o = _tanh(p[2 * w + x] + a[2 * w + x]), _sigmoid(p[3 * w + x] + a[3 * w + x])
                a[x], a[w + x], a[2 * w + x], a[3 * w + x] = i, f, g, o
                cell = f * b[x] + i * g
                c[x] = cell
                h[x] = o * _tanh(cell)


@njit(**COMPILE)
def _first_again(first, step, gates, cells, hidden):
    """Recompute the cells and hidden states of step 1 from its gates."""
    w = cells.shape[2]
    for d in range(2):
        for m in range(first, cells.shape[1], step):
            a, c, h = gates[d, m], cells[d, m], hidden[d, m]
            for x in range(w):
                cell = a[x] * a[w + x]
                c[x] = cell
                h[x] = a[2 * w + x] * _tanh(cell)


@njit(**COMPILE)
def _next_again(first, step, gates, before, cells, hidden):
    """Recompute the cells and hidden states of a later step from its gates and the cells before it."""
    w = cells.shape[2]
    for d in range(2):
        for m in range(first, cells.shape[1], step):
            a, b, c, h = gates[d, m], before[d, m], cells[d, m], hidden[d, m]
            for x in range(w):
                cell = a[w + x] * b[x] + a[x] * a[2 * w + x]
                c[x] = cell
                h[x] = a[3 * w + x] * _tanh(cell)


@njit(**COMPILE)
def _next_back(first, step, gates, before, grad_hidden, grad_cells, offsets, grad_gates, grad_projected):
    """Compute the gradients to the gates of a later step, and add them to grad_projected; grad_cells become the gradients of
    the step before."""
    w = before.shape[2]
    for d in range(2):
        for m in range(first, before.shape[1], step):
            a, b, dh, dc = gates[d, m], before[d, m], grad_hidden[d, m], grad_cells[d, m]
            da, dp = grad_gates[d, m], grad_projected[d, offsets[d] + m]
            for x in range(w):
                i, f, g, o = a[x], a[w + x], a[2 * w + x], a[3 * w + x]
                t = _tanh(f * b[x] + i * g)
                cell = dc[x] + dh[x] * o * (ONE - t * t)
                dc[x] = cell * f
                di, df = cell * g * i * (ONE - i), cell * b[x] * f * (ONE - f)
                dg, do = cell * i * (ONE - g * g), dh[x] * t * o * (ONE - o)
                da[x], da[w + x], da[2 * w + x], da[3 * w + x] = di, df, dg, do
                dp[x] += di
                dp[w + x] += df
                dp[2 * w + x] += dg
                dp[3 * w + x] += do


@njit(**COMPILE)
def _first_back(first, step, gates, grad_hidden, grad_cells, offsets, grad_projected):
    """Add the gradients to the gates of step 1 to grad_projected."""
    w = grad_cells.shape[2]
    for d in range(2):
        for m in range(first, grad_cells.shape[1], step):
            a, dh, dc, dp = gates[d, m], grad_hidden[d, m], grad_cells[d, m], grad_projected[d, offsets[d] + m]
            for x in range(w):
                i, g, o = a[x], a[w + x], a[2 * w + x]
                t = _tanh(i * g)
                cell = dc[x] + dh[x] * o * (ONE - t * t)
                dp[x] += cell * g * i * (ONE - i)
                dp[2 * w + x] += cell * i * (ONE - g * g)
                dp[3 * w + x] += dh[x] * t * o * (ONE - o)


class BiLSTMOverWindows(Function):
    """`ngram_lstm.reference`, compiled; a few rows at a time, which stay in the cache."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, size: int, weights: Tensor, recurrent: Tensor, bias: Tensor) -> Any:
        n, (rows, w) = len(states) - size + 1, states.shape[1:]
        hidden, cells = (states.new_empty(2, n, rows, w) for _ in range(2))
        few = max(1, WINDOWS // n)
        saved = states.new_empty((4 * size - 1) * hidden.numel())
        parts = (x.split(few, dim) for x, dim in ((states, 1), (hidden, 2), (cells, 2)))
        for own, h, c, gates in zip(*parts, _gates(saved, size, n, rows, w, few), strict=True):
            last = _forward(own, gates, weights, recurrent, bias)
            h.copy_(last[0].view_as(h))
            c.copy_(last[1].view_as(c))
        ctx.save_for_backward(states, weights, recurrent, saved)
        # `final_states` does not read the cells: their gradient is None then, not a tensor of zeros
        ctx.set_materialize_grads(False)
        ctx.few, ctx.size = few, size
        return hidden, cells

    @staticmethod
    @each_gradient
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor | None, grad_cells: Tensor | None) -> Any:
        states, weights, recurrent, saved = ctx.saved_tensors
        n, (rows, w) = len(states) - ctx.size + 1, states.shape[1:]
        grads = torch.empty_like(states), torch.zeros_like(weights), torch.zeros_like(recurrent)
        grad_bias = weights.new_zeros(weights.shape[:2])
        for index, gates in enumerate(_gates(saved, ctx.size, n, rows, w, ctx.few)):
            here = slice(index * ctx.few, (index + 1) * ctx.few)
            own = states[:, here]
            # copies: `_backward` writes to dc, and autograd may have given the same tensor to others
            dh, dc = (
                own.new_zeros(2, n, *own.shape[1:])
                if g is None
                else g[:, :, here].clone(memory_format=torch.contiguous_format)
                for g in (grad_hidden, grad_cells)
            )
            projected = _backward(own, gates, recurrent, dh.flatten(1, 2), dc.flatten(1, 2), grads[2])
            grads[0][:, here] = torch.addmm(projected[0] @ weights[0], projected[1], weights[1]).view_as(own)
            grads[1].baddbmm_(projected.transpose(1, 2), own.flatten(0, 1).expand(2, -1, -1))
            grad_bias += projected.sum(1)
        return grads[0], None, grads[1], grads[2], grad_bias


def _gates(saved: Tensor, size: int, n: int, rows: int, w: int, few: int) -> Iterator[list[Tensor]]:
    """Yield, for `few` rows at a time, views of `saved` for the gates of each step: (2, M, 3w), then (2, M, 4w)."""
    begin = 0
    for first in range(0, rows, few):
        M = n * min(few, rows - first)
        own = []
        for step in range(size):
            width = (4 if step else 3) * w
            own.append(saved[begin : begin + 2 * M * width].view(2, M, width))
            begin += 2 * M * width
        yield own


def _forward(states: Tensor, gates: list[Tensor], weights: Tensor, recurrent: Tensor, bias: Tensor) -> Any:
    """Return the final hidden states and cells, each (2, M, w), and write the gates of every step."""
    (rows, w), size = states.shape[1:], len(gates)
    M = gates[0].shape[1]
    projected = torch.baddbmm(bias.unsqueeze(1), states.flatten(0, 1).expand(2, -1, -1), weights.transpose(1, 2))
    before, cells, hidden = states.new_empty(3, 2, M, w)
    _run(_first, projected, _offsets(0, size, rows), gates[0], cells, hidden)
    for t in range(1, size):
        before, cells = cells, before
        torch.bmm(hidden, recurrent.transpose(1, 2), out=gates[t])
        _run(_next, projected, _offsets(t, size, rows), before, gates[t], cells, hidden)
    return hidden, cells


def _backward(
    states: Tensor, gates: list[Tensor], recurrent: Tensor, dh: Tensor, dc: Tensor, grad_recurrent: Tensor
) -> Tensor:
    """Return the gradient to `projected` (2, L · rows, 4w), and add to grad_recurrent; dc is overwritten."""
    (M, w), rows, size = dh.shape[1:], states.shape[1], len(gates)
    cells, hidden = states.new_empty(2, max(1, size - 1), 2, M, w)
    for t in range(size - 1):
        before = cells[t - 1 : t]  # empty for the first step
        _run(_next_again if t else _first_again, gates[t], *before, cells[t], hidden[t])
    projected, grad_gates = states.new_zeros(2, len(states) * rows, 4 * w), states.new_empty(2, M, 4 * w)
    for t in range(size - 1, 0, -1):
        _run(_next_back, gates[t], cells[t - 1], dh, dc, _offsets(t, size, rows), grad_gates, projected)
        grad_recurrent.baddbmm_(grad_gates.transpose(1, 2), hidden[t - 1])
        dh = torch.bmm(grad_gates, recurrent)
    _run(_first_back, gates[0], dh, dc, _offsets(0, size, rows), projected)
    return projected


def _offsets(step: int, size: int, rows: int) -> "np.ndarray[Any, Any]":
    """Return the rows that the first window reads: the first direction reads to the right, the second to the left."""
    return np.array([step * rows, (size - 1 - step) * rows])


def _run(kernel: Any, *arguments: Any) -> None:
    """Run a kernel on all threads; each takes a share of the M windows (axis 1 of the first array has at least M rows)."""
    arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in arguments]
    over_batch(kernel, arrays[0].shape[1], *arrays)


def bilstm_over_windows(
    states: Tensor, size: int, input_weights: Tensor, recurrent: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the final hidden states and cells of both directions, each (2, n, R, w).

    states (L, R, w); size s; input_weights, recurrent (2, 4w, w); bias (2, 4w); gates i, f, g, o. The first direction
    reads from left to right.
    """
    if states.dtype == torch.float32 and can_run_kernel(states, input_weights, recurrent, bias):
        return BiLSTMOverWindows.apply(states, size, input_weights, recurrent, bias)
    return reference(states, size, input_weights, recurrent, bias)


def reference(
    states: Tensor, size: int, input_weights: Tensor, recurrent: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `bilstm_over_windows` in torch, on any device."""
    n, rows = len(states) - size + 1, states.shape[1]
    projected = torch.baddbmm(
        bias.unsqueeze(1), states.flatten(0, 1).expand(2, -1, -1), input_weights.transpose(1, 2)
    ).unflatten(1, (len(states), rows))
    hidden = cells = None
    for step in range(size):
        gates = torch.stack([projected[0, step : step + n], projected[1, size - 1 - step :][:n]])
        if hidden is not None:
            gates = gates + (hidden.flatten(1, 2) @ recurrent.transpose(1, 2)).view_as(gates)
        i, f, g, o = gates.chunk(4, -1)
        new = i.sigmoid() * g.tanh()
        cells = new if cells is None else f.sigmoid() * cells + new
        hidden = o.sigmoid() * cells.tanh()
    assert hidden is not None and cells is not None
    return hidden, cells


Readout = Callable[[Tensor, Tensor], Tensor]
Gate = Callable[[Tensor, Tensor], Tensor]


class GramEncoder(Protocol):
    """Builds, for head width w, a module: padded states (L, R, w) and s -> one vector per window, (n, R, w)."""

    def __call__(self, width: int, readout: Readout) -> nn.Module: ...


def final_states(hidden: Tensor, cells: Tensor) -> Tensor:
    """Add the final hidden states of both directions (paper 002, Eq 9): hidden, cells (2, n, R, w) -> (n, R, w)."""
    return hidden.sum(0)


def states_and_cells(hidden: Tensor, cells: Tensor) -> Tensor:
    """Add final hidden states and cells of both directions, as the released fairseq code does. Cells of an RNN are 0."""
    return hidden.sum(0) + cells.sum(0)


class NgramRecurrent(nn.Module):
    """The weights of a bidirectional recurrent layer, w -> w per direction: two biases as in torch, Xavier (section 4.2)."""

    gates: int

    def __init__(self, width: int, readout: Readout) -> None:
        super().__init__()
        self.readout = readout
        self.input, self.recurrent = (nn.Parameter(torch.empty(2, self.gates * width, width)) for _ in range(2))
        self.input_bias, self.recurrent_bias = (nn.Parameter(torch.zeros(2, self.gates * width)) for _ in range(2))
        for weights in (*self.input, *self.recurrent):
            nn.init.xavier_uniform_(weights)

    @property
    def bias(self) -> Tensor:
        """The sum of both biases, (2, gates · w)."""
        return self.input_bias + self.recurrent_bias


class NgramBiLSTM(NgramRecurrent):
    """A bidirectional LSTM over each window (Eq 9); gates in torch's order i, f, g, o."""

    gates = 4

    def forward(self, states: Tensor, size: int) -> Tensor:
        """states (L, R, w), size s -> (n, R, w)."""
        return self.readout(*bilstm_over_windows(states, size, self.input, self.recurrent, self.bias))


class NgramBiRNN(NgramRecurrent):
    """A bidirectional tanh RNN over each window, as in the released OpenNMT code."""

    gates = 1

    def forward(self, states: Tensor, size: int) -> Tensor:
        """states (L, R, w), size s -> (n, R, w)."""
        n, rows, width = len(states) - size + 1, states.shape[1], states.shape[2]
        projected = torch.einsum("lrw,dgw->dlrg", states, self.input) + self.bias[:, None, None]
        hidden = None
        for step in range(size):
            total = torch.stack([projected[0, step : step + n], projected[1, size - 1 - step : size - 1 - step + n]])
            if hidden is not None:
                total = total + (hidden.flatten(1, 2) @ self.recurrent.transpose(1, 2)).view(2, n, rows, width)
            hidden = total.tanh()
        assert hidden is not None
        return self.readout(hidden, torch.zeros_like(hidden))


class NgramSum(nn.Module):
    """The sum of the words of each window (Eq 15); it has no weights, and `readout` is not used."""

    def __init__(self, width: int, readout: Readout) -> None:
        super().__init__()

    def forward(self, states: Tensor, size: int) -> Tensor:
        """states (L, R, w), size s -> (n, R, w)."""
        n = len(states) - size + 1
        total = states[:n]
        for first in range(1, size):
            total = total + states[first : first + n]
        return total


class NgramMean(NgramSum):
    """The sum of a window divided by s, even where it has zeros; the released code calls this sum."""

    def forward(self, states: Tensor, size: int) -> Tensor:
        """states (L, R, w), size s -> (n, R, w)."""
        return super().forward(states, size) / size


def grams_alone(grams: Tensor, states: Tensor) -> Tensor:
    """Return the n-grams in place of the words (Eq 8): grams, states (n, R, w) -> (n, R, w)."""
    return grams


def residual_gate(grams: Tensor, states: Tensor) -> Tensor:
    """Return σ(S) ∘ gram + (1 − σ(S)) ∘ S (Eq 13), shapes as in `grams_alone`; the gate has no weights."""
    return torch.lerp(states, grams.to(states), states.sigmoid())  # by autocast, sums stay float32


def _slice(places: list[int]) -> slice | list[int]:
    """Return adjacent places as a slice, which avoids a copy."""
    first, last = places[0], places[-1]
    return slice(first, last + 1) if places == list(range(first, last + 1)) else places


class PhraseHeads(nn.Module):
    """Phrase(·) of Eq 7: each head by the encoder of its gram size; heads of size 0 stay words (Eq 7 prints the reverse).

    sizes: the gram size of each head. Heads of one size share an encoder, and so do q, k and v.
    """

    def __init__(self, sizes: Sequence[int], width: int, encoder: GramEncoder, readout: Readout, gate: Gate) -> None:
        super().__init__()
        self.gate = gate
        by_size = sorted(range(len(sizes)), key=lambda head: sizes[head])
        self.groups = {s: _slice([head for head in by_size if sizes[head] == s]) for s in sorted(set(sizes))}
        self.order = _slice([by_size.index(head) for head in range(len(sizes))])
        self.encoders = nn.ModuleDict({str(s): encoder(width, readout) for s in sorted(set(sizes)) if s})

    def forward(self, *heads: Tensor) -> list[Tensor]:
        """q, k, v, or any number of tensors (B, n, h, w) -> tensors of the same shape, heads in the same order.

        Padding must follow the words; then no n-gram of a word holds padding.
        """
        parts = [[x[..., self.groups[0], :]] for x in heads] if 0 in self.groups else [[] for _ in heads]
        for name, encoder in self.encoders.items():
            size = int(name)
            words = torch.stack([x[..., self.groups[size], :].transpose(0, 1) for x in heads], 1)  # (n, 3, B, own, w)
            padded = F.pad(words.flatten(1, -2), (0, 0, 0, 0, size - 1, 0))
            grams = self.gate(encoder(padded, size), padded[size - 1 :]).view(words.shape)
            for part, gram in zip(parts, grams.transpose(0, 2).unbind(1), strict=True):
                part.append(gram)
        return [torch.cat(part, -2)[..., self.order, :] for part in parts]


class PhraseAttention(MultiHeadAttention):
    """Self-attention over n-grams: head_i = softmax(q'_i k'_iᵀ/√w) v'_i (paper 002, Eq 11-12).

    Args:
        attend: Attention of all heads.
    """

    def __init__(
        self,
        d: int,
        sizes: Sequence[int],
        encoder: GramEncoder,
        readout: Readout,
        gate: Gate,
        attend: Attend = softmax_attention,
    ) -> None:
        super().__init__(d, len(sizes), attend)
        self.phrases = PhraseHeads(sizes, d // len(sizes), encoder, readout, gate)

    def queries_keys_values(self, x: Tensor, packing: Packing) -> Tensor:
        """Return the n-grams of the projections of packed tokens x (T, d), (T, 3, h, w)."""
        # padded, since the words before a word have to be its sentence's
        q, k, v = self.phrases(*packing.pad(super().queries_keys_values(x, packing)).unbind(2))
        return packing.pack(torch.stack([q, k, v], 2))

    def forward(self, queries: Tensor, memory: Tensor, *masks: Tensor) -> Tensor:
        """queries and memory, the same x (B, n, d), and masks of `attend`, of `softmax_attention` one: which words may be seen,
        (B, 1, 1, n) -> (B, n, d)."""
        assert memory is queries, "n-grams are defined for self-attention alone"
        layers = (self.query, self.key, self.value)
        q, k, v = self.phrases(*(layer(queries).unflatten(-1, (self.heads, -1)) for layer in layers))
        heads = self.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), *masks)
        return self.output(heads.transpose(1, 2).flatten(2))
