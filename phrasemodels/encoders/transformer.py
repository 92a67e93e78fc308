"""The Transformer encoder: the baseline of papers 000 and 002."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from phrasemodels.encoders import EncoderConfig
from phrasemodels.layers import checks
from phrasemodels.layers.attention import MultiHeadAttention, softmax_with_dropout
from phrasemodels.layers.blocks import AddNorm, Residual, feed_forward, token_mask


@dataclass(frozen=True)
class TransformerEncoderConfig(EncoderConfig):
    """residual: AddNorm, or another style in `layers.blocks`. inner_dropout: of attention weights, and inside the
    feed-forward part; Vaswani et al. (2017) have none there, OpenNMT has as much as elsewhere."""

    residual: type[Residual] = AddNorm
    inner_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "inner_dropout")

    def attention(self, layer: int) -> MultiHeadAttention:
        """Return the self-attention of a layer: the same kind in all layers."""
        return MultiHeadAttention(self.d, self.heads, softmax_with_dropout(self.inner_dropout))

    def build(self) -> "TransformerEncoder":
        return TransformerEncoder(self)


class LayersConfig(Protocol):
    """The configuration of a stack of layers, whose self-attention may differ from layer to layer."""

    @property
    def d(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def inner_dropout(self) -> float: ...
    @property
    def residual(self) -> type[Residual]: ...
    def attention(self, layer: int) -> MultiHeadAttention: ...


class TransformerEncoderLayer(nn.Module):
    """U = LN(H + Drop(MultiHead(H))); H' = LN(U + Drop(FFN(U))), or the same with another style of residual."""

    def __init__(self, config: LayersConfig, layer: int) -> None:
        super().__init__()
        self.attention = config.attention(layer)
        self.feed_forward = feed_forward(config.d, config.d_ff, config.inner_dropout)
        self.residuals = nn.ModuleList(config.residual(config.d, config.dropout) for _ in range(2))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x (B, n, d), valid (B, 1, 1, n) true for tokens -> (B, n, d)."""
        x = self.residuals[0](x, lambda y: self.attention(y, y, valid))
        return self.residuals[1](x, self.feed_forward)


class TransformerEncoder(nn.Module):
    """A stack of Transformer layers over embedded tokens."""

    def __init__(self, config: LayersConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerEncoderLayer(config, layer) for layer in range(1, config.layers + 1))
        self.last = config.residual.final_norm(config.d)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        """x (B, n, d), lengths (B) -> states (B, n, d). Phrases (`members`) are not used."""
        valid = token_mask(lengths, x.shape[1])[:, None, None, :]
        for layer in self.layers:
            x = layer(x, valid)
        return self.last(x)
