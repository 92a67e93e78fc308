"""A chart of spans that grows by one width at a time. It is never written in place, so that autograd can follow it.

Shapes: S size of the semiring, B batch, n words.
"""

import torch
from torch import Tensor


class Chart:
    """The cells of spans [i, i+d] for d = d₀, d₀+1, ... A diagonal (S, B, n-d, ...) has the cells of one width, by i."""

    def __init__(self, diagonal: Tensor):
        self.from_left = diagonal.unsqueeze(3)  # (S, B, i, d, ...), by left end i
        self.from_right = diagonal.unsqueeze(
            3
        )  # (S, B, j, d, ...), by right end j, counted from that of the first cell

    def append(self, diagonal: Tensor) -> None:
        """Add the diagonal of the next width."""
        m = diagonal.shape[2]
        self.from_left = torch.cat([self.from_left[:, :, :m], diagonal.unsqueeze(3)], 3)
        self.from_right = torch.cat([self.from_right[:, :, 1:], diagonal.unsqueeze(3)], 3)

    def prefixes(self, m: int) -> Tensor:
        """Return the cells of the first m left ends, narrowest first, (S, B, m, widths, ...)."""
        return self.from_left[:, :, :m]

    def suffixes(self, m: int) -> Tensor:
        """Return the cells of the last m right ends, widest first, (S, B, m, widths, ...)."""
        return self.from_right[:, :, -m:].flip(3)
