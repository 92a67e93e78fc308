"""Scores of dependency arcs. Shapes: B batch, n positions with the root at 0, d width of their states."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Squash = Callable[[Tensor], Tensor]


def once(x: Tensor) -> Tensor:
    """tanh(x), as paper 003 has it."""
    return x.tanh()


def twice(x: Tensor) -> Tensor:
    """tanh(tanh(x)): what the released code does on a GPU."""
    return x.tanh().tanh()


class ArcScorer(nn.Module):
    """θ_ij = tanh(sᵀ tanh(W₁h_i + W₂h_j + b)), i the head and j the dependent (paper 003)."""

    def __init__(self, d: int, squash: Squash = once) -> None:
        super().__init__()
        self.head = nn.Linear(d, d)
        self.dependent = nn.Linear(d, d, bias=False)
        self.score = nn.Linear(d, 1, bias=False)
        self.squash = squash

    def forward(self, states: Tensor) -> Tensor:
        """states (B, n, d) -> scores (B, n, n), a row of heads for each dependent."""
        pairs = self.head(states).unsqueeze(1) + self.dependent(states).unsqueeze(2)
        return self.squash(self.score(torch.tanh(pairs)).squeeze(-1))
