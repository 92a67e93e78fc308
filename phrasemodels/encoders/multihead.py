"""Multi-head self-attention over the words of a sentence, pooled: a baseline of paper 001, Table 5.

Shapes: B sentences, n tokens, d features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.layers import checks
from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import AddNorm, sinusoids, token_mask
from phrasemodels.layers.pooling import SourceToToken


@dataclass(frozen=True)
class MultiHeadConfig:
    """Paper 001 prints neither heads nor pooling: here one layer of 6 heads, and multi-dimensional pooling."""

    d: int = 300
    heads: int = 6
    dropout: float = 0.5

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "d", "heads")
        checks.share(self, "dropout")
        checks.divides(self, "heads", "d")

    def build(self) -> "MultiHead":
        return MultiHead(self)


class MultiHead(nn.Module):
    """LN(x + Drop(MultiHead(x))) of words with sinusoidal positions, then multi-dimensional pooling."""

    def __init__(self, config: MultiHeadConfig) -> None:
        super().__init__()
        self.width = config.d
        self.attention = MultiHeadAttention(config.d, config.heads)
        self.residual = AddNorm(config.d, config.dropout)
        self.summary = SourceToToken(config.d, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, d). Phrases (`levels`) are not used."""
        n, d = words.shape[1:]
        # a sentence without words attends to its padding, which the pooling leaves out
        valid = token_mask(lengths.clamp(min=1), n)[:, None, None, :]
        x = words + sinusoids(torch.arange(n, device=words.device), d).to(words.dtype)
        return self.summary(self.residual(x, lambda y: self.attention(y, y, valid)), token_mask(lengths, n))
