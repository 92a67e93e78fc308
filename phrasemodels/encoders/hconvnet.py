"""Hierarchical ConvNet (Conneau et al. 2017, section 3.2.4), whose scores paper 001 prints as AdaSent's.

Shapes: B sentences, n tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.layers.blocks import within
from phrasemodels.layers.pooling import max_over_tokens


@dataclass(frozen=True)
class HConvNetConfig:
    """Convolutions over 3 tokens, one upon another."""

    d: int = 300
    channels: int = 1024
    layers: int = 4

    def build(self) -> "HConvNet":
        return HConvNet(self)


class HConvNet(nn.Module):
    """The largest value of each channel after every convolution, all of them together."""

    def __init__(self, config: HConvNetConfig) -> None:
        super().__init__()
        inputs = [config.d, *[config.channels] * (config.layers - 1)]
        self.convolutions = nn.ModuleList(nn.Conv1d(d, config.channels, 3, padding=1) for d in inputs)
        self.width = config.channels * config.layers

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, layers · channels)."""
        valid = within(lengths, words.shape[1])
        states, pooled = words, []
        for convolution in self.convolutions:
            # padding is zero at every layer, so that a sentence sees nothing beyond its end, whatever its batch
            states = convolution((states * valid.unsqueeze(-1)).transpose(1, 2)).transpose(1, 2).relu()
            pooled.append(max_over_tokens(states, valid))
        return torch.cat(pooled, -1)
