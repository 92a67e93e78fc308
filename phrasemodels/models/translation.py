"""Encoder-decoder translation: any encoder of token states, and the Transformer decoder.

Shapes: B batch, n source tokens, t target tokens, V target vocabulary, d model width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders import EncoderConfig, promised
from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import AddNorm, Residual, TokenEmbedding, feed_forward, within
from phrasemodels.layers.ids import PAD

Extend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # new keys and values to all keys and values


@dataclass(frozen=True)
class TranslationConfig:
    """An encoder, and a Transformer decoder of its width and dropout.

    decoder_d_ff serves encoders without a feed-forward layer. tied: the target embedding is the output projection.
    shared: one embedding for both sides, which then need one vocabulary. residual: the style of the decoder.
    """

    encoder: EncoderConfig
    source_vocabulary: int
    target_vocabulary: int
    decoder_layers: int = 6
    decoder_d_ff: int = 2048
    tied: bool = True
    shared: bool = False
    output_bias: bool = False
    residual: type[Residual] = AddNorm

    def __post_init__(self) -> None:
        if self.shared and self.source_vocabulary != self.target_vocabulary:
            raise ValueError(
                f"a shared embedding for {self.source_vocabulary} source and {self.target_vocabulary} target words: "
                "make one vocabulary of both sides"
            )

    def build(self) -> "Translator":
        return Translator(self)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward."""

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        d, heads = config.encoder.d, config.encoder.heads
        self.itself = MultiHeadAttention(d, heads)
        self.source = MultiHeadAttention(d, heads)
        self.feed_forward = feed_forward(d, config.decoder_d_ff)
        self.residuals = nn.ModuleList(config.residual(d, config.encoder.dropout) for _ in range(3))

    def forward(self, x: Tensor, extend: Extend, allowed: Tensor, cross: tuple[Tensor, ...]) -> Tensor:
        """x (B, t, d) over all of the target so far, which `extend` gives, and `cross` = keys, values, validity."""
        x = self.residuals[0](x, lambda y: self.itself.over(y, *extend(*self.itself.keys_values(y)), allowed))
        x = self.residuals[1](x, lambda y: self.source.over(y, *cross))
        return self.residuals[2](x, self.feed_forward)


class Translator(nn.Module):
    """Token ids in, scores of target tokens out. PAD, UNKNOWN, BEGIN and END are the first four of a vocabulary."""

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        d, dropout = config.encoder.d, config.encoder.dropout
        self.embed_source = TokenEmbedding(config.source_vocabulary, d, dropout)
        self.embed_target = self.embed_source if config.shared else TokenEmbedding(config.target_vocabulary, d, dropout)
        self.encoder = config.encoder.build()
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.last = config.residual.after(d)
        self.project = nn.Linear(d, config.target_vocabulary, bias=config.output_bias)
        if config.tied:
            self.project.weight = self.embed_target.table.weight

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers of the decoder, first to last."""
        return cast(list[DecoderLayer], list(self.decoder))

    def encode(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """source (B, n) ids, lengths (B), members (B, m, k) -> memory (B, n, d)."""
        x = self.embed_source(source)
        return promised(self.encoder(x, lengths, members), self.encoder, "B, n, d", *x.shape)

    def start(self, memory: Tensor, lengths: Tensor) -> "Cache":
        """Before the first target token; memory (B, n, d), lengths (B)."""
        cross = [layer.source.keys_values(memory) for layer in self.decoder_layers]
        return Cache(cross, within(lengths, memory.shape[1])[:, None, None, :])

    def forward(self, source: Tensor, lengths: Tensor, members: Tensor, target: Tensor) -> Tensor:
        """Scores (B, t, V) of the token after each of target (B, t), which begins with BEGIN."""
        return self.project(self.advance(target, self.start(self.encode(source, lengths, members), lengths)))

    def advance(self, target: Tensor, cache: "Cache") -> Tensor:
        """States (B, t, d) of the next t target tokens (B, t); the cache grows by them."""
        x = self.embed_target(target, cache.length)
        t, past = target.shape[1], cache.length
        allowed = torch.ones(t, past + t, dtype=torch.bool, device=target.device).tril(past)
        for index, layer in enumerate(self.decoder_layers):
            x = layer(x, partial(cache.extend, index), allowed, (*cache.cross[index], cache.valid))
        return self.last(x)

    def loss(self, scores: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        """Summed label-smoothed cross entropy (nats) of scores (B, t, V) at gold (B, t); PAD counts nothing."""
        return F.cross_entropy(
            scores.flatten(0, 1).float(), gold.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=smoothing
        )


class Cache:
    """Keys and values of a target that is being written, layer by layer, and those of its source."""

    def __init__(self, cross: list[tuple[Tensor, Tensor]], valid: Tensor) -> None:
        self.cross = cross
        self.valid = valid
        self.past: list[tuple[Tensor, Tensor]] = []

    @property
    def length(self) -> int:
        """Target tokens so far."""
        return self.past[-1][0].shape[2] if self.past else 0

    def extend(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, h, t, dk) of layer `index`, put behind those of the past; returns all of them."""
        if index == len(self.past):
            self.past.append((keys, values))
        else:
            old_keys, old_values = self.past[index]
            self.past[index] = (torch.cat([old_keys, keys], 2), torch.cat([old_values, values], 2))
        return self.past[index]

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch, in their order: repeat, reorder or drop hypotheses."""
        self.cross = [(keys[rows], values[rows]) for keys, values in self.cross]
        self.past = [(keys[rows], values[rows]) for keys, values in self.past]
        self.valid = self.valid[rows]
