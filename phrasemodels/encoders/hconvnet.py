"""Hierarchical ConvNet (Conneau et al. 2017, section 3.2.4), whose scores paper 001 prints as AdaSent's.

Shapes: B sentences, n tokens, d width of a word.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.layers import checks
from phrasemodels.layers.blocks import token_mask
from phrasemodels.layers.pooling import max_over_tokens


@dataclass(frozen=True)
class HConvNetConfig:
    """channels: filters of each convolution. layers: number of convolutions, each over 3 tokens."""

    d: int = 300
    channels: int = 1024
    layers: int = 4

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "d", "channels", "layers")

    def build(self) -> "HConvNet":
        return HConvNet(self)


class HConvNet(nn.Module):
    """Stacked convolutions; the sentence vector joins the maximum of each channel after every convolution."""

    def __init__(self, config: HConvNetConfig) -> None:
        super().__init__()
        inputs = [config.d, *[config.channels] * (config.layers - 1)]
        self.convolutions = nn.ModuleList(nn.Conv1d(d, config.channels, 3, padding=1) for d in inputs)
        self.width = config.channels * config.layers

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, layers · channels). Phrases (`levels`) are not used."""
        valid = token_mask(lengths, words.shape[1])
        states, pooled = words, []
        for convolution in self.convolutions:
            # padding is set to 0 before every layer, so that a sentence does not depend on its batch
            states = convolution((states * valid.unsqueeze(-1)).transpose(1, 2)).transpose(1, 2).relu()
            pooled.append(max_over_tokens(states, valid))
        return torch.cat(pooled, -1)
