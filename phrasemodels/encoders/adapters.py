"""Adapters: sentence vectors from token encoders, and token states from PSAN.

Shapes: B sentences, n tokens, d features, m spans, L levels.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from phrasemodels.encoders import EncoderConfig, check_output
from phrasemodels.encoders.psan import Psan, PsanConfig, as_numbered
from phrasemodels.layers import checks
from phrasemodels.layers.blocks import AddNorm, feed_forward, sinusoids, token_mask
from phrasemodels.layers.pooling import SourceToToken


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
    """Any encoder of token states (papers 000, 002) as an encoder of sentences. longest: number of words of the longest
    span that it gets as a phrase; 1: it gets none."""

    states: EncoderConfig
    longest: int = 1
    dropout: float = 0.5

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "longest")
        checks.share(self, "dropout")

    @property
    def d(self) -> int:
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
        n, d = words.shape[1:]
        known = lengths.clamp(min=1)  # a sentence without words attends to its padding, which the pooling leaves out
        x = words + sinusoids(torch.arange(n, device=words.device), d).to(words.dtype)
        states = self.states(x, known, adjacent_spans(known, n, self.longest))
        return self.summary(check_output(states, self.states, "B, n, d", *words.shape), token_mask(lengths, n))


@dataclass(frozen=True)
class PsanTokenEncoderConfig(EncoderConfig):
    """The levels of PSAN as an encoder of token states. heads, layers: those of the decoder that reads the states.

    sizes: number of words of the phrases of each level, in the order of attention; 0: the whole sentence. Phrases of two
    words are of little use, as each word can only attend to the other.
    """

    sizes: tuple[int, ...] = (3, 6, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least(self, 0, "sizes")

    def build(self) -> "PsanTokenEncoder":
        return PsanTokenEncoder(self)


class PsanTokenEncoder(nn.Module):
    """Gated attention inside phrases of fixed sizes, level by level (paper 001, Eq 1-4), and a feed-forward layer."""

    def __init__(self, config: PsanTokenEncoderConfig) -> None:
        super().__init__()
        self.sizes = config.sizes
        self.psan = Psan(PsanConfig(config.d, len(config.sizes), config.dropout, order=as_numbered))
        del self.psan.summary
        self.residual = AddNorm(config.d, config.dropout)
        self.feed_forward = feed_forward(config.d, config.d_ff)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        """x (B, n, d), lengths (B) -> states (B, n, d); phrases (`members`) are not used."""
        b, n = x.shape[:2]
        place = torch.arange(n, device=x.device)
        levels = torch.stack([place // (size or max(1, n)) for size in self.sizes])
        states = self.psan.states(x, lengths, levels.expand(b, -1, -1))
        return cast(Tensor, self.residual(states, self.feed_forward))
