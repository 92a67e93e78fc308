"""Sentence pairs and single sentences: word vectors, any encoder of sentences, a classifier over what it says.

Shapes: B sentences, n tokens, k rows of integers a token, D width of a sentence vector, C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders import promised
from phrasemodels.layers.dense import Dense

BUCKETS = 128  # vectors that all words outside of the vocabulary share, by a hash of their letters
RANGE = 0.05
SPREAD = 0.4  # of learned vectors at first, about GloVe's: products of small ones say nothing, so they learn slowly


class SentenceEncoderConfig(Protocol):
    """A configuration that builds an encoder: (words (B, n, d), lengths (B), structure (B, k, n)) -> (B, width)."""

    @property
    def d(self) -> int: ...
    def build(self) -> nn.Module: ...


class WordVectors(nn.Module):
    """Ids to vectors of width d: words of the vocabulary, then BUCKETS for all others. Learned, or read and frozen."""

    def __init__(self, words: int, d: int, given: str) -> None:
        super().__init__()
        if given:
            table = load_file(Path(given))["vectors"]
            if table.shape != (words + BUCKETS, d):
                raise ValueError(f"{given}: {tuple(table.shape)} vectors for {words} words of width {d}")
            self.register_buffer("weight", table, persistent=False)
        else:
            self.weight = nn.Parameter(torch.empty(words + BUCKETS, d).normal_(std=SPREAD))
            with torch.no_grad():
                self.weight[words:].uniform_(-RANGE, RANGE)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, n) -> (B, n, d)."""
        return F.embedding(ids, self.weight)


class MixedClassifier(nn.Sequential):
    """inputs -> hidden -> C with an ELU between (paper 001, section 3.4)."""

    def __init__(self, inputs: int, classes: int, hidden: int = 300, dropout: float = 0.5) -> None:
        super().__init__(Dense(inputs, hidden, dropout), nn.ELU(), Dense(hidden, classes, dropout))


class LinearClassifier(nn.Sequential):
    """Three linear maps with nothing between, as BiLSTM-Max was trained."""

    def __init__(self, inputs: int, classes: int, hidden: int = 512, dropout: float = 0.0) -> None:
        super().__init__(
            Dense(inputs, hidden, dropout), Dense(hidden, hidden, dropout), Dense(hidden, classes, dropout)
        )


def distance(p: Tensor, h: Tensor) -> Tensor:
    """|p − h|."""
    return (p - h).abs()


def difference(p: Tensor, h: Tensor) -> Tensor:
    """p − h, as DiSAN's authors have it."""
    return p - h


@dataclass(frozen=True)
class SentencePairConfig:
    """A siamese classifier of [p; h; compare(p, h); p ∘ h]. words and vectors come from the data: the size of the
    vocabulary, and a file of vectors or nothing. hidden and dropout are of the classifier."""

    encoder: SentenceEncoderConfig
    words: int = 0
    vectors: str = ""
    classes: int = 3
    hidden: int = 300
    dropout: float = 0.5
    classifier: Callable[[int, int, int, float], nn.Module] = MixedClassifier
    compare: Callable[[Tensor, Tensor], Tensor] = distance

    def build(self) -> "SentencePair":
        return SentencePair(self)


class SentencePair(nn.Module):
    """Two sentences to scores of how they are related; one encoder reads both."""

    def __init__(self, config: SentencePairConfig) -> None:
        super().__init__()
        self.embed = WordVectors(config.words, config.encoder.d, config.vectors)
        self.encoder = config.encoder.build()
        self.compare = config.compare
        self.width = cast(int, self.encoder.width)
        self.classify = config.classifier(4 * self.width, config.classes, config.hidden, config.dropout)

    def encode(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """tokens (B, n), lengths (B), structure (B, k, n) -> sentence vectors (B, D)."""
        found = self.encoder(self.embed(tokens), lengths, structure)
        return promised(found, self.encoder, "B, width", len(tokens), self.width)

    def forward(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """Pairs as 2B sentences, all premises first -> scores (B, C)."""
        p, h = self.encode(tokens, lengths, structure).chunk(2)
        return self.classify(torch.cat([p, h, self.compare(p, h), p * h], -1))
