"""Words with their parents: the encoders of paper 003's syntactic attention, from none to a tree's marginals.

An encoder takes x (B, n, d) with the root at position 0, lengths (B) that count it, heads (B, n) of a parser (-1 for
none) and the embeddings that its own parser reads, x where there are no others. It gives [x_j; c_j], c_j = Σ_i p_ij x_i.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.encoders.recurrent import BiLSTM
from phrasemodels.layers.arcs import ArcScorer, Squash, once
from phrasemodels.layers.weights import Hard, Trees, indicated


@dataclass(frozen=True)
class NoParentsConfig:
    """Words alone."""

    d: int = 300

    @property
    def width(self) -> int:
        """Of the states that come out."""
        return self.d

    def build(self) -> "NoParents":
        return NoParents()


@dataclass(frozen=True)
class HardParentsConfig:
    """Parents from a parser."""

    d: int = 300

    @property
    def width(self) -> int:
        """Of the states that come out."""
        return 2 * self.d

    def build(self) -> "HardParents":
        return HardParents()


@dataclass(frozen=True)
class SoftParentsConfig:
    """Parents by weights: layers.weights.Softmax for simple, Trees for structured attention; h per direction."""

    d: int = 300
    h: int = 100
    weights: Callable[[], nn.Module] = Trees
    squash: Squash = once

    @property
    def width(self) -> int:
        """Of the states that come out."""
        return 2 * self.d

    def build(self) -> "SoftParents":
        return SoftParents(self)


ParentsConfig = NoParentsConfig | HardParentsConfig | SoftParentsConfig


class NoParents(nn.Module):
    """x_j."""

    def forward(self, x: Tensor, lengths: Tensor, heads: Tensor, embedded: Tensor | None = None) -> Tensor:
        return x


class HardParents(nn.Module):
    """[x_j; x of its head], zero for words without one."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = Hard()

    def forward(self, x: Tensor, lengths: Tensor, heads: Tensor, embedded: Tensor | None = None) -> Tensor:
        return torch.cat([x, self.weights(indicated(heads).to(x), lengths) @ x], -1)


class SoftParents(nn.Module):
    """[x_j; Σ_i p_ij x_i] with p from a parser that is trained with the rest."""

    def __init__(self, config: SoftParentsConfig) -> None:
        super().__init__()
        self.states = BiLSTM(config.d, config.h)
        self.arcs = ArcScorer(2 * config.h, config.squash)
        self.weights = config.weights()

    def scores(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """θ (B, n, n), a row of heads for each word of embedded (B, n, d)."""
        return self.arcs(self.states(embedded, lengths))

    def forward(self, x: Tensor, lengths: Tensor, heads: Tensor, embedded: Tensor | None = None) -> Tensor:
        p = self.weights(self.scores(x if embedded is None else embedded, lengths), lengths)
        return torch.cat([x, p @ x], -1)
