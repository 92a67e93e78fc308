"""The Transformer encoder: the baseline of papers 000 and 002."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import AddNorm, feed_forward, within


@dataclass(frozen=True)
class TransformerEncoderConfig:
    """Widths and depths as in Vaswani et al. (2017); residual is AddNorm or another style of layers.blocks."""

    d: int = 512
    heads: int = 8
    layers: int = 6
    d_ff: int = 2048
    dropout: float = 0.1
    residual: Callable[[int, float], nn.Module] = AddNorm

    def build(self) -> "TransformerEncoder":
        return TransformerEncoder(self)


class TransformerEncoderLayer(nn.Module):
    """U = LN(H + Drop(MultiHead(H))); H' = LN(U + Drop(FFN(U)))."""

    def __init__(self, config: TransformerEncoderConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.d, config.heads)
        self.feed_forward = feed_forward(config.d, config.d_ff)
        self.residuals = nn.ModuleList(config.residual(config.d, config.dropout) for _ in range(2))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        x = self.residuals[0](x, lambda y: self.attention(y, y, valid))
        return self.residuals[1](x, self.feed_forward)


class TransformerEncoder(nn.Module):
    """Embedded tokens (B, n, d) and lengths (B) to states (B, n, d). Phrases, if given, are not looked at."""

    def __init__(self, config: TransformerEncoderConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerEncoderLayer(config) for _ in range(config.layers))

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        valid = within(lengths, x.shape[1])[:, None, None, :]
        for layer in self.layers:
            x = layer(x, valid)
        return x
