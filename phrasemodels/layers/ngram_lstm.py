"""A bidirectional LSTM over all windows of s words at once (paper 002, Eq 9).

Each word is projected once, not once per window that holds it, and the first step, from a state of zeros, has no
recurrent product. Shapes: n words, R rows, w width, s window size, states (L, R, w) with L = n + s − 1.
"""

import torch
from torch import Tensor

from phrasemodels.layers.ngram_lstm_kernel import BiLSTMOverWindows
from phrasemodels.structs.kernels import usable


def bilstm_over_windows(
    states: Tensor, size: int, input_weights: Tensor, recurrent: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the final hidden states and cells of both directions, each (2, n, R, w).

    states (L, R, w); size s; input_weights, recurrent (2, 4w, w); bias (2, 4w); gates i, f, g, o. The first direction
    reads from left to right.
    """
    if states.dtype == torch.float32 and usable(None, states, input_weights, recurrent, bias):
        return BiLSTMOverWindows.apply(states, size, input_weights, recurrent, bias)
    return reference(states, size, input_weights, recurrent, bias)


def reference(
    states: Tensor, size: int, input_weights: Tensor, recurrent: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `bilstm_over_windows` in torch, on any device."""
    n, rows = len(states) - size + 1, states.shape[1]
    projected = torch.baddbmm(
        bias.unsqueeze(1), states.flatten(0, 1).expand(2, -1, -1), input_weights.transpose(1, 2)
    ).unflatten(1, (-1, rows))
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
