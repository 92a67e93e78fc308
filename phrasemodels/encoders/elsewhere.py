"""Encoders at problems of other papers: states of tokens as a sentence vector, levels of phrases as states of tokens.

Shapes: B sentences, n tokens, d features, m spans of up to k words, L levels.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from phrasemodels.encoders import EncoderConfig, promised
from phrasemodels.encoders.psan import Psan, PsanConfig, as_numbered
from phrasemodels.layers.blocks import AddNorm, feed_forward, sinusoids, within
from phrasemodels.layers.pooling import SourceToToken


def adjacent_spans(lengths: Tensor, n: int, longest: int) -> Tensor:
    """Spans of 2 to `longest` words inside each sentence (B, m, longest): positions of their words, -1 for none."""
    found = [torch.full((len(lengths), 0, longest), -1, device=lengths.device)]
    for k in range(2, longest + 1):
        first = torch.arange(max(0, n - k + 1), device=lengths.device)
        place = torch.arange(longest, device=lengths.device)
        members = torch.where(place < k, first[:, None] + place, -1)
        inside = (first + k <= lengths[:, None])[..., None]
        found.append(torch.where(inside, members, -1))
    return torch.cat(found, 1)


@dataclass(frozen=True)
class SummarisedConfig:
    """Any encoder of token states, of papers 000 and 002, as an encoder of sentences; longest: words of its longest
    span, 1 where it has none."""

    states: EncoderConfig
    longest: int = 1
    dropout: float = 0.5

    @property
    def d(self) -> int:
        return self.states.d

    def build(self) -> "Summarised":
        return Summarised(self)


class Summarised(nn.Module):
    """Words with their positions, states of them, then a weight for every feature of every state."""

    def __init__(self, config: SummarisedConfig) -> None:
        super().__init__()
        self.width, self.longest = config.d, config.longest
        self.states = config.states.build()
        self.summary = SourceToToken(config.d, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, structure: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, d)."""
        n, d = words.shape[1:]
        known = lengths.clamp(min=1)  # a sentence without words attends to its padding, which the summary leaves out
        x = words + sinusoids(torch.arange(n, device=words.device), d)
        states = self.states(x, known, adjacent_spans(known, n, self.longest))
        return self.summary(promised(states, self.states, "B, n, d", *words.shape), within(lengths, n))


@dataclass(frozen=True)
class LevelledConfig:
    """PSAN's levels as an encoder of token states; `heads` and `layers` are of the decoder that reads them.

    sizes: words of a phrase of each level, first the one attended to first, 0 for the whole sentence; of two words each
    can but attend to the other, so they are more than two.
    """

    d: int = 512
    heads: int = 8
    layers: int = 6
    d_ff: int = 2048
    dropout: float = 0.1
    sizes: tuple[int, ...] = (3, 6, 0)

    def build(self) -> "Levelled":
        return Levelled(self)


class Levelled(nn.Module):
    """Attention inside phrases level by level, gated (paper 001, Eq 1-4), then a feed-forward layer; no summary."""

    def __init__(self, config: LevelledConfig) -> None:
        super().__init__()
        self.sizes = config.sizes
        self.psan = Psan(PsanConfig(config.d, len(config.sizes), config.dropout, order=as_numbered))
        del self.psan.summary
        self.residual = AddNorm(config.d, config.dropout)
        self.feed_forward = feed_forward(config.d, config.d_ff)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        """x (B, n, d), lengths (B) -> (B, n, d)."""
        b, n = x.shape[:2]
        place = torch.arange(n, device=x.device)
        levels = torch.stack([place // (size or max(1, n)) for size in self.sizes])
        states = self.psan.states(x, lengths, levels.expand(b, -1, -1))
        return cast(Tensor, self.residual(states, self.feed_forward))
