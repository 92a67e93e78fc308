"""Syntactic attention (paper 003): the states of a word and of its parent, by no, hard or soft heads.

Every encoder maps x (B, n, d) with the root at position 0, lengths (B) that count the root, heads (B, n) from a parser (-1
for none), and `embedded` (B, n, d), the input of a parser that is trained with the encoder (x if None), to states
[x_j; c_j] with c_j = Σ_i p_ij x_i, where p_ij is the weight of i as the head of j.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.encoders.recurrent import BiLSTM
from phrasemodels.layers.attention_weights import HardWeights, TreeWeights, scores_of_heads
from phrasemodels.layers.blocks import as_lengths, without_padding
from phrasemodels.layers.scorers import AdditiveArcScorer, Squash, tanh_once


@dataclass(frozen=True)
class NoParentsConfig:
    """Words without parents.

    Args:
        d: Features of a word.
    """

    d: int = 300

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d")

    @property
    def width(self) -> int:
        """Width of the states."""
        return self.d

    def build(self) -> nn.Module:
        """Build the module: x (B, n, d), lengths (B), heads (B, n) -> (B, n, d)."""
        return NoParents()


@dataclass(frozen=True)
class HardParentsConfig(NoParentsConfig):
    """Parents from a parser's heads."""

    @property
    def width(self) -> int:
        return 2 * self.d

    def build(self) -> nn.Module:
        """Build the module: x (B, n, d), lengths (B), heads (B, n) -> (B, n, 2d)."""
        return HardParents()


@dataclass(frozen=True)
class SoftParentsConfig(HardParentsConfig):
    """Parents by attention.

    Args:
        h: Units per direction of the parser's LSTM.
        weights: SoftmaxWeights for simple attention, TreeWeights for structured attention.
        squash: tanh_once or tanh_twice.
    """

    h: int = 100
    weights: Callable[[], nn.Module] = TreeWeights
    squash: Squash = tanh_once

    def __post_init__(self) -> None:
        super().__post_init__()
        config.at_least(self, 1, "h")

    def build(self) -> nn.Module:
        """Build the module: x (B, n, d), lengths (B), heads (B, n) -> (B, n, 2d)."""
        return SoftParents(self)


ParentsConfig = NoParentsConfig | HardParentsConfig | SoftParentsConfig


class NoParents(nn.Module):
    """x_j alone."""

    def forward(self, x: Tensor, lengths: Tensor, heads: Tensor, embedded: Tensor | None = None) -> Tensor:
        return x


class HardParents(nn.Module):
    """[x_j; x of the head of j], 0 for a word without a head."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = HardWeights()

    def forward(self, x: Tensor, lengths: Tensor, heads: Tensor, embedded: Tensor | None = None) -> Tensor:
        lengths = as_lengths(lengths, x)
        x = without_padding(x, lengths)
        return torch.cat([x, self.weights(scores_of_heads(heads).to(x), lengths) @ x], -1)


class SoftParents(nn.Module):
    """[x_j; Σ_i p_ij x_i] with p from a parser that is trained with the encoder."""

    def __init__(self, config: SoftParentsConfig) -> None:
        super().__init__()
        self.states = BiLSTM(config.d, config.h)
        self.arcs = AdditiveArcScorer(2 * config.h, config.squash)
        self.weights = config.weights()

    def scores(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """embedded (B, n, d), lengths (B) -> scores θ of arcs (B, n, n), [dependent, head]."""
        return self.arcs(self.states(embedded, lengths))

    def forward(self, x: Tensor, lengths: Tensor, heads: Tensor, embedded: Tensor | None = None) -> Tensor:
        lengths = as_lengths(lengths, x)
        x = without_padding(x, lengths)
        p = self.weights(self.scores(x if embedded is None else embedded, lengths), lengths)
        return torch.cat([x, p @ x], -1)
