"""Linear maps as papers on sentence encoders have them: Glorot normal, dropout on the input."""

import torch
from torch import Tensor, nn


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Each number is 0 with probability p, to the nearest 1/65536, and else divided by 1 − p.

    What torch does, but half of its time on a CPU and a quarter of what it keeps: 16 random bits and one byte a number.
    """
    if not training or not p:
        return x
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= round(p * 65536) - 32768) * (1 / (1 - p))


class Dense(nn.Linear):
    """W drop(x) + b: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias)
        self.dropout = dropout
        nn.init.xavier_normal_(self.weight)
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(dropout(x, self.dropout, self.training))
