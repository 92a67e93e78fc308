"""The Transformer encoder: the baseline of papers 000 and 002."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import AddNorm, Residual, feed_forward, within


@dataclass(frozen=True)
class TransformerEncoderConfig:
    """Widths and depths as in Vaswani et al. (2017); residual is AddNorm or another style of layers.blocks."""

    d: int = 512
    heads: int = 8
    layers: int = 6
    d_ff: int = 2048
    dropout: float = 0.1
    residual: type[Residual] = AddNorm

    def attention(self, layer: int) -> MultiHeadAttention:
        """The self-attention of a layer, from 1: the same in all."""
        return MultiHeadAttention(self.d, self.heads)

    def build(self) -> "TransformerEncoder":
        return TransformerEncoder(self)


class LayersConfig(Protocol):
    """A stack of layers that may differ in their self-attention."""

    @property
    def d(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def residual(self) -> type[Residual]: ...
    def attention(self, layer: int) -> MultiHeadAttention: ...


class TransformerEncoderLayer(nn.Module):
    """U = LN(H + Drop(MultiHead(H))); H' = LN(U + Drop(FFN(U))), or another style of residual."""

    def __init__(self, config: LayersConfig, layer: int) -> None:
        super().__init__()
        self.attention = config.attention(layer)
        self.feed_forward = feed_forward(config.d, config.d_ff)
        self.residuals = nn.ModuleList(config.residual(config.d, config.dropout) for _ in range(2))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        x = self.residuals[0](x, lambda y: self.attention(y, y, valid))
        return self.residuals[1](x, self.feed_forward)


class TransformerEncoder(nn.Module):
    """Embedded tokens (B, n, d) and lengths (B) to states (B, n, d). Phrases, if given, are not looked at."""

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerEncoderLayer(config, layer) for layer in range(1, config.layers + 1))
        self.last = config.residual.after(config.d)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        valid = within(lengths, x.shape[1])[:, None, None, :]
        for layer in self.layers:
            x = layer(x, valid)
        return self.last(x)
