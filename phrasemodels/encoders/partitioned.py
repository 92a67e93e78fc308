"""The encoder of paper 004: partitioned self-attention with the label attention layer on top.

Shapes: B batch, N positions (START, words, STOP), d model width.
"""

from dataclasses import dataclass, field

from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.encoders import EncoderConfig
from phrasemodels.layers.blocks import as_lengths, token_mask, without_padding
from phrasemodels.layers.labels import LabelAttention, LabelAttentionConfig
from phrasemodels.layers.partitioned import (
    PartitionedAttention,
    PartitionedFeedForward,
    Scale,
    SharedAddNorm,
    by_model_width,
)


@dataclass(frozen=True)
class PartitionedEncoderConfig(EncoderConfig):
    """Widths and depths of paper 004, section 4.2.

    Args:
        d: Features of a state, half content and half position.
        heads: Attention heads of a layer.
        layers: Number of layers below `top`.
        d_kv: Width of a head.
        dropout: Dropout of features.
        d_ff: Hidden units for the content, and as many for the position.
        scale: by_model_width as released, or by_head_width.
        top: The label attention layer, or None for the HPSG parser without it.
    """

    d: int = 1024
    heads: int = 8
    layers: int = 3
    d_ff: int = 1024
    dropout: float = 0.2
    d_kv: int = 64
    scale: Scale = by_model_width
    top: LabelAttentionConfig | None = field(default_factory=LabelAttentionConfig)

    def __post_init__(self) -> None:
        config.even(self, "d", "d_kv")  # half content, half position
        config.at_least(self, 1, "heads", "layers", "d_ff")
        config.share(self, "dropout")

    def build(self) -> "PartitionedEncoder":
        return PartitionedEncoder(self)


class PartitionedLayer(nn.Module):
    """U = LN(H + Drop(MultiHead(H))); H' = LN(U + Drop(FFN(U)))."""

    def __init__(self, config: PartitionedEncoderConfig) -> None:
        super().__init__()
        self.attention = PartitionedAttention(config.d, config.heads, config.d_kv, config.scale, config.dropout)
        self.feed_forward = PartitionedFeedForward(config.d, config.d // 2, config.d_ff, config.dropout)
        self.residuals = nn.ModuleList(SharedAddNorm(config.d, config.dropout) for _ in range(2))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x (B, N, d), valid (B, 1, 1, N) true for real positions -> (B, N, d)."""
        x = self.residuals[0](x, lambda y: self.attention(y, valid))
        return self.residuals[1](x, self.feed_forward)


class PartitionedEncoder(nn.Module):
    """Partitioned layers, then the label layer. States (B, N, width) consist of `groups` equal groups of features: one
    per label, or pairs of adjacent features without a label layer."""

    def __init__(self, config: PartitionedEncoderConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PartitionedLayer(config) for _ in range(config.layers))
        self.top: LabelAttention | None = config.top.build(config.d) if config.top else None
        self.width = self.top.width if self.top else config.d
        self.groups = self.top.groups if self.top else config.d // 2

    def below(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the label layer: states (B, N, d), and a mask (B, 1, 1, N), true for real positions."""
        lengths = as_lengths(lengths, x)
        x, valid = without_padding(x, lengths), token_mask(lengths, x.shape[1])[:, None, None, :]
        for layer in self.layers:
            x = layer(x, valid)
        return x, valid

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x = [content; position] (B, N, d), lengths (B) -> states (B, N, width)."""
        x, valid = self.below(x, lengths)
        return self.top(x, valid) if self.top is not None else x
