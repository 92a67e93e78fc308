# mypy: disallow-untyped-defs=False
"""The BiLSTM over windows on the CPU in float32: products by torch, everything between them compiled.

Kept for the backward pass are the inputs, the activated gates of every step and the cells; hidden states and tanh of
the cells are made again. Shapes: M = n · R windows, w width; arrays are (2, M, ...) for the two directions, `projected`
is (2, L · R, 4w), and `offsets` say which of its rows the first window reads in this step.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from phrasemodels.structs.kernels import over_batch
from phrasemodels.structs.kernels.vector import COMPILE, exp32

ONE, TWO, MOST = np.float32(1), np.float32(2), np.float32(40)


@njit(**COMPILE)
def _sigmoid(x):
    return ONE / (ONE + exp32(min(-x, MOST)))


@njit(**COMPILE)
def _tanh(x):
    return ONE - TWO / (ONE + exp32(min(x + x, MOST)))


@njit(**COMPILE)
def _first(first, step, projected, offsets, gates, cells, hidden):
    """Step 1, from a state of zeros: gate f is not needed. Writes gates i, g, o (2, M, 3w)."""
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
    """A later step from the cells before it; gates hold the recurrent product and become i, f, g, o (2, M, 4w)."""
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
def _hidden(first, step, gates, cells, hidden):
    """Hidden states of a step whose gate o stands last."""
    w = cells.shape[2]
    last = gates.shape[2] - w
    for d in range(2):
        for m in range(first, cells.shape[1], step):
            a, c, h = gates[d, m], cells[d, m], hidden[d, m]
            for x in range(w):
                h[x] = a[last + x] * _tanh(c[x])


@njit(**COMPILE)
def _next_back(first, step, gates, before, cells, grad_hidden, grad_cells, offsets, grad_gates, grad_projected):
    """Gradients of a later step: to its gates, added to those of the projections; grad_cells become the step before's."""
    w = cells.shape[2]
    for d in range(2):
        for m in range(first, cells.shape[1], step):
            a, b, c, dh, dc = gates[d, m], before[d, m], cells[d, m], grad_hidden[d, m], grad_cells[d, m]
            da, dp = grad_gates[d, m], grad_projected[d, offsets[d] + m]
            for x in range(w):
                i, f, g, o = a[x], a[w + x], a[2 * w + x], a[3 * w + x]
                t = _tanh(c[x])
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
def _first_back(first, step, gates, cells, grad_hidden, grad_cells, offsets, grad_projected):
    """Gradients of step 1, added to those of the projections."""
    w = cells.shape[2]
    for d in range(2):
        for m in range(first, cells.shape[1], step):
            a, dh, dc, dp = gates[d, m], grad_hidden[d, m], grad_cells[d, m], grad_projected[d, offsets[d] + m]
            c = cells[d, m]
            for x in range(w):
                i, g, o = a[x], a[w + x], a[2 * w + x]
                t = _tanh(c[x])
                cell = dc[x] + dh[x] * o * (ONE - t * t)
                dp[x] += cell * g * i * (ONE - i)
                dp[2 * w + x] += cell * i * (ONE - g * g)
                dp[3 * w + x] += dh[x] * t * o * (ONE - o)


class GramLSTM(Function):
    """`gram_lstm.reference`, compiled."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, size: int, weights: Tensor, recurrent: Tensor, bias: Tensor) -> Any:
        rows, w = states.shape[1:]
        M = (len(states) - size + 1) * rows
        flat = states.flatten(0, 1)
        projected = torch.baddbmm(bias.unsqueeze(1), flat.expand(2, -1, -1), weights.transpose(1, 2))
        cells, hidden = states.new_empty(size, 2, M, w), states.new_empty(2, M, w)
        kept = [states.new_empty(2, M, 3 * w)]
        _run(_first, projected, _offsets(0, size, rows), kept[0], cells[0], hidden)
        for t in range(1, size):
            kept.append(torch.bmm(hidden, recurrent.transpose(1, 2)))
            _run(_next, projected, _offsets(t, size, rows), cells[t - 1], kept[t], cells[t], hidden)
        ctx.save_for_backward(flat, weights, recurrent, cells, *kept)
        ctx.set_materialize_grads(False)
        ctx.shape = states.shape
        return hidden.view(2, -1, rows, w), cells[-1].clone().view(2, -1, rows, w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor | None, grad_cells: Tensor | None) -> Any:
        flat, weights, recurrent, cells, *kept = ctx.saved_tensors
        (size, _, M, w), rows = cells.shape, ctx.shape[1]
        dh = torch.zeros_like(cells[0]) if grad_hidden is None else grad_hidden.reshape(2, M, w).contiguous()
        dc = torch.zeros_like(cells[0]) if grad_cells is None else grad_cells.reshape(2, M, w).clone()
        projected = flat.new_zeros(2, len(flat), 4 * w)
        grad_recurrent = torch.zeros_like(recurrent)
        gates, hidden = (flat.new_empty(2, M, k * w) for k in (4, 1))
        for t in range(size - 1, 0, -1):
            _run(_next_back, kept[t], cells[t - 1], cells[t], dh, dc, _offsets(t, size, rows), gates, projected)
            _run(_hidden, kept[t - 1], cells[t - 1], hidden)
            grad_recurrent.baddbmm_(gates.transpose(1, 2), hidden)
            dh = torch.bmm(gates, recurrent)
        _run(_first_back, kept[0], cells[0], dh, dc, _offsets(0, size, rows), projected)
        grad_weights = torch.bmm(projected.transpose(1, 2), flat.expand(2, -1, -1))
        grad_states = torch.addmm(projected[0] @ weights[0], projected[1], weights[1]).view(ctx.shape)
        return grad_states, None, grad_weights, grad_recurrent, projected.sum(1)


def _offsets(step: int, size: int, rows: int) -> "np.ndarray[Any, Any]":
    """The words of a window are read to the right by the first direction, to the left by the second."""
    return np.array([step * rows, (size - 1 - step) * rows])


def _run(kernel: Any, *arguments: Any) -> None:
    """On all threads, each with its share of the rows; there are at least as many as the first direction has."""
    arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in arguments]
    over_batch(kernel, arrays[0].shape[1], *arrays)
