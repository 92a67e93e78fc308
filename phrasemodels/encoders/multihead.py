"""Multi-head self-attention over the words of a sentence, pooled: a baseline of paper 001, Table 5.

Shapes: B sentences, n tokens, d features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import AddNorm, sinusoids, within
from phrasemodels.layers.pooling import SourceToToken


@dataclass(frozen=True)
class MultiHeadConfig:
    """The paper gives neither heads nor pooling: one layer of 6 heads, multi-dimensional pooling."""

    d: int = 300
    heads: int = 6
    dropout: float = 0.5

    def build(self) -> "MultiHead":
        return MultiHead(self)


class MultiHead(nn.Module):
    """LN(x + Drop(MultiHead(x))) of words with their positions, then a weight for every feature of every word."""

    def __init__(self, config: MultiHeadConfig) -> None:
        super().__init__()
        self.width = config.d
        self.attention = MultiHeadAttention(config.d, config.heads)
        self.residual = AddNorm(config.d, config.dropout)
        self.summary = SourceToToken(config.d, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, d)."""
        n, d = words.shape[1:]
        # a sentence without words attends to its padding, which the summary leaves out again
        valid = within(lengths.clamp(min=1), n)[:, None, None, :]
        x = words + sinusoids(torch.arange(n, device=words.device), d)
        return self.summary(self.residual(x, lambda y: self.attention(y, y, valid)), within(lengths, n))
