"""The encoder of paper 004: partitioned self-attention, and the label attention layer on top of it.

Shapes: B batch, N positions (START and STOP are two of them), d model width.
"""

from dataclasses import dataclass, field

from torch import Tensor, nn

from phrasemodels.layers.blocks import within
from phrasemodels.layers.labels import LabelAttention, LabelAttentionConfig
from phrasemodels.layers.partitioned import (
    PartitionedAttention,
    PartitionedFeedForward,
    Scale,
    SharedAddNorm,
    by_model_width,
)


@dataclass(frozen=True)
class PartitionedEncoderConfig:
    """Widths and depths of paper 004, section 4.2; `d_ff` hidden units each for content and position.

    top: the label attention layer, or None for the HPSG parser without it.
    """

    d: int = 1024
    heads: int = 8
    layers: int = 3
    d_kv: int = 64
    d_ff: int = 1024
    dropout: float = 0.2
    scale: Scale = by_model_width
    top: LabelAttentionConfig | None = field(default_factory=LabelAttentionConfig)

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
        x = self.residuals[0](x, lambda y: self.attention(y, valid))
        return self.residuals[1](x, self.feed_forward)


class PartitionedEncoder(nn.Module):
    """[content; position] (B, N, d) and lengths (B) to states (B, N, width) of `groups` groups of features.

    Without a label layer each pair of neighbouring features is a group.
    """

    def __init__(self, config: PartitionedEncoderConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PartitionedLayer(config) for _ in range(config.layers))
        self.top: LabelAttention | None = config.top.build(config.d) if config.top else None
        self.width = self.top.width if self.top else config.d
        self.groups = self.top.groups if self.top else config.d // 2

    def below(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """What the label layer gets: states (B, N, d) and which of them are real, (B, 1, 1, N)."""
        valid = within(lengths, x.shape[1])[:, None, None, :]
        for layer in self.layers:
            x = layer(x, valid)
        return x, valid

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x, valid = self.below(x, lengths)
        return self.top(x, valid) if self.top is not None else x
