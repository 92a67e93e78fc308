"""A chart of spans that grows by one width at a time, without writing in place, so that autograd can follow it."""

import torch
from torch import Tensor


class Chart:
    """Cells of spans [i, i+d], d = first, first+1, ...; a diagonal is (S, B, n-d, ...) with one cell for every i."""

    def __init__(self, diagonal: Tensor):
        self.from_left = diagonal.unsqueeze(3)  # (S, B, i, d, ...)
        self.from_right = diagonal.unsqueeze(3)  # (S, B, j, d, ...); j counts from the first cell's right end

    def append(self, diagonal: Tensor) -> None:
        """Add the cells one wider."""
        m = diagonal.shape[2]
        self.from_left = torch.cat([self.from_left[:, :, :m], diagonal.unsqueeze(3)], 3)
        self.from_right = torch.cat([self.from_right[:, :, 1:], diagonal.unsqueeze(3)], 3)

    def prefixes(self, m: int) -> Tensor:
        """For the first m left ends: their cells by growing width, (S, B, m, widths, ...)."""
        return self.from_left[:, :, :m]

    def suffixes(self, m: int) -> Tensor:
        """For the last m right ends: their cells by shrinking width, (S, B, m, widths, ...)."""
        return self.from_right[:, :, -m:].flip(3)
