"""Translation: any encoder of token states, and the Transformer decoder.

Shapes: B batch, n source tokens, t target tokens, V target vocabulary, d model width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from phrasemodels.encoders import EncoderConfig, check_output
from phrasemodels.layers import checks
from phrasemodels.layers.attention import MultiHeadAttention, softmax_with_dropout
from phrasemodels.layers.blocks import (
    AddNorm,
    Residual,
    Start,
    TokenEmbedding,
    feed_forward,
    normal_by_width,
    token_mask,
)

Extend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # new keys and values -> all keys and values


@dataclass(frozen=True)
class TranslationConfig:
    """An encoder, and a Transformer decoder of its width, heads and dropout.

    source_vocabulary, target_vocabulary: numbers of words, 0 until they are set from the data. decoder_layers,
    decoder_d_ff: those of the decoder. tied: the target embedding is the output projection. shared: one embedding for both
    sides, which then need one vocabulary. output_bias: the output projection has a bias. residual: the residual style of
    the decoder. inner_dropout: of the attention weights of the decoder, and inside its feed-forward part. start: how
    embeddings are drawn.
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
    inner_dropout: float = 0.0
    start: Start = normal_by_width

    def __post_init__(self) -> None:
        checks.at_least(self, 0, "source_vocabulary", "target_vocabulary", "decoder_d_ff")
        checks.at_least(self, 1, "decoder_layers")
        checks.share(self, "inner_dropout")
        if self.shared and self.source_vocabulary != self.target_vocabulary:
            sizes = f"{self.source_vocabulary} source and {self.target_vocabulary} target words"
            raise ValueError(f"shared=True: there are {sizes}; make one vocabulary of both sides")

    def build(self) -> "Translator":
        return Translator(self)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward."""

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        d, heads = config.encoder.d, config.encoder.heads
        self.itself, self.source = (
            MultiHeadAttention(d, heads, softmax_with_dropout(config.inner_dropout)) for _ in range(2)
        )
        self.feed_forward = feed_forward(d, config.decoder_d_ff, config.inner_dropout)
        self.residuals = nn.ModuleList(config.residual(d, config.encoder.dropout) for _ in range(3))

    def forward(self, x: Tensor, extend: Extend, allowed: Tensor, cross: tuple[Tensor, ...]) -> Tensor:
        """x (B, t, d) -> (B, t, d).

        extend: returns the keys and values of all target tokens so far; allowed (t, all tokens): which of them are attended
        to; cross: keys, values (B, h, n, dk) and mask of the source, of which x may have several hypotheses (DecoderCache).
        """
        x = self.residuals[0](x, lambda y: self.itself.attend_to(y, *extend(*self.itself.keys_values(y)), allowed))
        x = self.residuals[1](x, lambda y: self._from_source(y, *cross))
        return self.residuals[2](x, self.feed_forward)

    def _from_source(self, x: Tensor, keys: Tensor, values: Tensor, valid: Tensor) -> Tensor:
        """Attend from x (B·w, t, d), w hypotheses of each sentence, to the source, keys and values (B, h, n, dk); return
        (B·w, t, d)."""
        queries = x.reshape(keys.shape[0], -1, x.shape[-1])
        return self.source.attend_to(queries, keys, values, valid).reshape(x.shape)


class Translator(nn.Module):
    """Token ids to scores of target tokens; PAD, UNKNOWN, BEGIN and END are the first ids of both vocabularies."""

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        d = config.encoder.d
        embedding = partial(TokenEmbedding, d=d, dropout=config.encoder.dropout, start=config.start)
        self.embed_source = embedding(config.source_vocabulary)
        self.embed_target = self.embed_source if config.shared else embedding(config.target_vocabulary)
        self.encoder = config.encoder.build()
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.last = config.residual.final_norm(d)
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
        return check_output(self.encoder(x, lengths, members), self.encoder, "B, n, d", *x.shape)

    def start(self, memory: Tensor, lengths: Tensor) -> "DecoderCache":
        """Return the cache before the first target token: memory (B, n, d), lengths (B)."""
        cross = [layer.source.keys_values(memory) for layer in self.decoder_layers]
        return DecoderCache(cross, token_mask(lengths, memory.shape[1])[:, None, None, :])

    def forward(self, source: Tensor, lengths: Tensor, members: Tensor, target: Tensor) -> Tensor:
        """Return the scores (B, t, V) of the token after each token of target (B, t), which begins with BEGIN."""
        return self.project(self.advance(target, self.start(self.encode(source, lengths, members), lengths)))

    def advance(self, target: Tensor, cache: "DecoderCache") -> Tensor:
        """Return the states (B, t, d) of the next t target tokens (B, t), and extend the cache by them."""
        x = self.embed_target(target, cache.length)
        t, past = target.shape[1], cache.length
        allowed = torch.ones(t, past + t, dtype=torch.bool, device=target.device).tril(past)
        for index, layer in enumerate(self.decoder_layers):
            x = layer(x, partial(cache.extend, index), allowed, (*cache.cross[index], cache.valid))
        return self.last(x)


class DecoderCache:
    """The keys and values, layer by layer, of the source and of the target tokens so far.

    The hypotheses of a sentence share those of the source: row r of the target belongs to row r // width of the source.
    """

    def __init__(self, cross: list[tuple[Tensor, Tensor]], valid: Tensor) -> None:
        self.cross = cross
        self.valid = valid
        self.width = 1
        self.past: list[tuple[Tensor, Tensor]] = []

    @property
    def length(self) -> int:
        """The number of target tokens so far."""
        return self.past[-1][0].shape[2] if self.past else 0

    def extend(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, h, t, dk) of t new tokens to layer `index`; return those of all tokens."""
        if index == len(self.past):
            self.past.append((keys, values))
        else:
            old_keys, old_values = self.past[index]
            self.past[index] = (torch.cat([old_keys, keys], 2), torch.cat([old_values, values], 2))
        return self.past[index]

    def select(self, rows: Tensor) -> None:
        """Replace the batch by some of its rows, which repeats, reorders or drops hypotheses."""
        sentences, counts = (rows // self.width).unique_consecutive(return_counts=True)
        size = self.valid.shape[0]
        if self.past and not _is_range(rows, size * self.width):
            self.past = [(keys[rows], values[rows]) for keys, values in self.past]
        widths = set(counts.tolist())
        if len(widths) > 1:  # sentences with different numbers of hypotheses: each hypothesis gets its own copy
            sentences, widths = rows // self.width, {1}
        (self.width,) = widths
        if not _is_range(sentences, size):
            self.cross = [(keys[sentences], values[sentences]) for keys, values in self.cross]
            self.valid = self.valid[sentences]


def _is_range(rows: Tensor, size: int) -> bool:
    """Whether rows (k) are all of `size` rows in their order."""
    return len(rows) == size and torch.equal(rows, torch.arange(size, device=rows.device))
