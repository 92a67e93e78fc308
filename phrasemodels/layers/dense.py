"""Linear maps of sentence encoders: Glorot normal initialisation, dropout on the input."""

import torch
from torch import Tensor, nn


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set each number to 0 with probability p, rounded to 1/65536, and divide the others by 1 − p.

    On a CPU this takes half the time of torch's dropout, and a quarter of the memory for the backward pass: it draws 16
    random bits and saves one byte per number.
    """
    if not training or not p:
        return x
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return x * (bits >= round(p * 65536) - 32768) * (1 / (1 - p))


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
