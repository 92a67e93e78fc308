"""Dropout in half of torch's time on a CPU: it draws 16 random bits for each value, where torch draws a number of 32."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STATES = 2**16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Return `torch.nn.functional.dropout(x, p, training)`; on a CPU in half of its time, with p rounded to a multiple of 2⁻¹⁶.

    It draws 16 random bits for each value, and saves one byte of each for the backward pass.
    """
    kept = STATES - round(p * STATES)
    if not training or x.device.type != "cpu" or kept in (0, STATES):
        return F.dropout(x, p, training)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits < kept - STATES // 2) * (STATES / kept)


class Dropout(nn.Dropout):
    """A module of `dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        """x (...) -> (...)."""
        return dropout(x, self.p, self.training)
