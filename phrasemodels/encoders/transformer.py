"""The Transformer encoder, baseline of papers 000 and 002; the PhraseTransformer encoder of paper 002, whose heads see n-grams in
place of words; and adapters: sentence vectors from token encoders, and token states from PSAN.

Shapes: B sentences, n tokens, d features, m spans, L levels.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.encoders import EncoderConfig, check_output
from phrasemodels.encoders.psan import Psan, PsanConfig, as_numbered
from phrasemodels.layers.attention import MultiHeadAttention, self_attention, softmax_with_dropout
from phrasemodels.layers.blocks import (
    AddNorm,
    Packing,
    Residual,
    SourceToToken,
    as_lengths,
    feed_forward,
    sinusoids,
    token_mask,
    without_padding,
)
from phrasemodels.layers.ngrams import (
    Gate,
    GramEncoder,
    NgramBiLSTM,
    PhraseAttention,
    Readout,
    final_states,
    grams_alone,
)


@dataclass(frozen=True)
class TransformerEncoderConfig(EncoderConfig):
    """The encoder of Vaswani et al. (2017).

    Args:
        residual: AddNorm, or another style in `layers.blocks`.
        inner_dropout: Dropout of attention weights, and inside the feed-forward part. Vaswani et al. (2017) have none there,
            OpenNMT as much as elsewhere.
        attention_dropout: Dropout of attention weights alone.
    """

    residual: type[Residual] = AddNorm
    inner_dropout: float = 0.0
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        config.share(self, "inner_dropout")
        config.share(self, "attention_dropout")

    def attention(self, layer: int) -> MultiHeadAttention:
        """Return the self-attention of a layer: the same kind in all layers."""
        attend = softmax_with_dropout(self.attention_dropout or self.inner_dropout)
        return MultiHeadAttention(self.d, self.heads, attend)

    def build(self) -> "TransformerEncoder":
        return TransformerEncoder(self)


class TransformerEncoderLayer(nn.Module):
    """U = LN(H + Drop(MultiHead(H))); H' = LN(U + Drop(FFN(U))), or the same with another style of residual."""

    def __init__(self, config: "TransformerEncoderConfig | NgramEncoderConfig", layer: int) -> None:
        super().__init__()
        self.attention = config.attention(layer)
        self.feed_forward = feed_forward(config.d, config.d_ff, config.inner_dropout)
        self.residuals = nn.ModuleList(config.residual(config.d, config.dropout) for _ in range(2))

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Packed tokens x (T, d) -> (T, d)."""
        x = self.residuals[0](x, lambda y: self_attention(self.attention, y, packing, PhraseAttention))
        return self.residuals[1](x, self.feed_forward)


class TransformerEncoder(nn.Module):
    """A stack of Transformer layers over embedded tokens."""

    has_fixed_shapes = True  # as of models.translation.Translator

    def __init__(self, config: "TransformerEncoderConfig | NgramEncoderConfig") -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerEncoderLayer(config, layer) for layer in range(1, config.layers + 1))
        self.last = config.residual.final_norm(config.d)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        """x (B, n, d), lengths (B) -> states (B, n, d). Phrases (`members`) are not used."""
        lengths = as_lengths(lengths, x)
        packing = Packing.of(lengths, x.shape[1])
        x = packing.pack(x)
        for layer in self.layers:
            x = layer(x, packing)
        return packing.pad(self.last(x))


@dataclass(frozen=True)
class NgramEncoderConfig(EncoderConfig):
    """The switches of paper 002. Each is a function or class for one reading of the text.

    Args:
        gram_sizes: Number of words in the n-grams of each head, 0 for the word itself.
        phrase_layers: The layers with n-grams, numbered from 1 (Table 4).
        gram_encoder: NgramBiLSTM, NgramBiRNN, NgramSum or NgramMean.
        gram_readout: final_states or states_and_cells.
        gate: grams_alone or residual_gate (the Res. model).
        residual: AddNorm (Eq 4-5) or PreNorm (the released code).
        inner_dropout: Dropout of attention weights, and inside the feed-forward part. The released code has as much as
            elsewhere.
    """

    gram_sizes: tuple[int, ...] = (0, 0, 2, 2, 3, 3, 4, 4)
    phrase_layers: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    gram_encoder: GramEncoder = NgramBiLSTM
    gram_readout: Readout = final_states
    gate: Gate = grams_alone
    residual: type[Residual] = AddNorm
    inner_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        config.share(self, "inner_dropout")
        config.at_least(self, 0, "gram_sizes")
        config.at_least(self, 1, "phrase_layers")
        if len(self.gram_sizes) != self.heads:
            raise ValueError(
                f"gram_sizes={self.gram_sizes}: must be {self.heads} sizes, one per head; 0 is the word itself"
            )
        if max(self.phrase_layers) > self.layers:
            raise ValueError(f"phrase_layers={self.phrase_layers}: must be numbers of layers, 1 to {self.layers}")

    def attention(self, layer: int) -> MultiHeadAttention:
        """Return the self-attention of a layer, numbered from 1: with n-grams, or plain."""
        attend = softmax_with_dropout(self.inner_dropout)
        if layer in self.phrase_layers:
            return PhraseAttention(self.d, self.gram_sizes, self.gram_encoder, self.gram_readout, self.gate, attend)
        return MultiHeadAttention(self.d, self.heads, attend)

    def build(self) -> TransformerEncoder:
        return TransformerEncoder(self)


def adjacent_spans(lengths: Tensor, n: int, longest: int) -> Tensor:
    """Return the spans of 2 to `longest` words inside each sentence as positions of words, (B, m, longest); -1 for none.

    lengths (B); n: the padded number of words.
    """
    spans = [torch.full((len(lengths), 0, longest), -1, device=lengths.device)]
    for k in range(2, longest + 1):
        first = torch.arange(max(0, n - k + 1), device=lengths.device)
        place = torch.arange(longest, device=lengths.device)
        members = torch.where(place < k, first[:, None] + place, -1)
        inside = (first + k <= lengths[:, None])[..., None]
        spans.append(torch.where(inside, members, -1))
    return torch.cat(spans, 1)


@dataclass(frozen=True)
class PooledEncoderConfig:
    """Any encoder of token states (papers 000, 002) as an encoder of sentences.

    Args:
        states: Configuration of the encoder of tokens.
        longest: Words of its longest phrase, a span. 1: no phrases.
        dropout: Dropout of features of the pooled layers.
    """

    states: EncoderConfig
    longest: int = 1
    dropout: float = 0.5

    def __post_init__(self) -> None:
        config.at_least(self, 1, "longest")
        config.share(self, "dropout")

    @property
    def d(self) -> int:
        """Features of a word, and of the sentence vector."""
        return self.states.d

    def build(self) -> "PooledEncoder":
        return PooledEncoder(self)


class PooledEncoder(nn.Module):
    """States of words with sinusoidal positions, pooled by multi-dimensional attention."""

    def __init__(self, config: PooledEncoderConfig) -> None:
        super().__init__()
        self.width, self.longest = config.d, config.longest
        self.states = config.states.build()
        self.summary = SourceToToken(config.d, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, structure: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, d); `structure` is not used, as phrases are adjacent spans."""
        lengths = as_lengths(lengths, words)
        n, d = words.shape[1:]
        known = lengths.clamp(min=1)  # a sentence without words attends to its padding, which the pooling leaves out
        x = without_padding(words, lengths) + sinusoids(torch.arange(n, device=words.device), d).to(words.dtype)
        states = self.states(x, known, adjacent_spans(known, n, self.longest))
        return self.summary(check_output(states, self.states, "B, n, d", *words.shape), token_mask(lengths, n))


@dataclass(frozen=True)
class PsanTokenEncoderConfig(EncoderConfig):
    """The levels of PSAN as an encoder of token states.

    Args:
        heads, layers: Of the decoder behind the states.
        sizes: Words of the phrases of each level, in the order of attention. 0: the whole sentence. Phrases of two words
            are of little use: each word can only attend to the other.
    """

    sizes: tuple[int, ...] = (3, 6, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        config.at_least(self, 0, "sizes")

    def build(self) -> "PsanTokenEncoder":
        return PsanTokenEncoder(self)


class PsanTokenEncoder(nn.Module):
    """Gated attention inside phrases of fixed sizes, level by level (paper 001, Eq 1-4), and a feed-forward layer."""

    def __init__(self, config: PsanTokenEncoderConfig) -> None:
        super().__init__()
        self.sizes = config.sizes
        self.psan = Psan(PsanConfig(config.d, len(config.sizes), config.dropout, order=as_numbered))
        # token states are not pooled; these weights would be trained by nothing, and saved
        del self.psan.summary
        self.residual = AddNorm(config.d, config.dropout)
        self.feed_forward = feed_forward(config.d, config.d_ff)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        """x (B, n, d), lengths (B) -> states (B, n, d); phrases (`members`) are not used."""
        lengths = as_lengths(lengths, x)
        b, n = x.shape[:2]
        place = torch.arange(n, device=x.device)
        levels = torch.stack([place // (size or max(1, n)) for size in self.sizes])
        states = self.psan.states(x, lengths, levels.expand(b, -1, -1))
        return cast(Tensor, self.residual(states, self.feed_forward))
