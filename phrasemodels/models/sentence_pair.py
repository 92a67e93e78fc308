"""Classifiers of sentence pairs: word vectors, any encoder of sentences, and a classifier of their vectors.

Shapes: B sentences or pairs, n tokens, k integers of structure per token, d width of a word, D width of a sentence vector,
C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders import check_output
from phrasemodels.layers import checks
from phrasemodels.layers.dense import Dense

BUCKETS = 128  # vectors that words outside the vocabulary share, by a hash of their letters
RANGE = 0.05  # vectors of buckets start in U(-RANGE, RANGE)
SPREAD = 0.4  # learned vectors start in N(0, SPREAD²), about the spread of GloVe; smaller ones learn slowly


class SentenceEncoderConfig(Protocol):
    """A configuration that builds an encoder: words (B, n, d), lengths (B), structure (B, k, n) -> (B, width)."""

    @property
    def d(self) -> int: ...
    def build(self) -> nn.Module: ...


class WordVectors(nn.Module):
    """Vectors of width d for the words of the vocabulary, then for BUCKETS: read from a file and, if they are not tuned,
    frozen; or learned."""

    def __init__(self, words: int, d: int, file: str, tuned: bool = False) -> None:
        super().__init__()
        if file:
            table = load_file(Path(file))["vectors"]
            if table.shape != (words + BUCKETS, d):
                raise ValueError(f"{file}: holds {tuple(table.shape)} numbers, not {(words + BUCKETS, d)}")
            if tuned:
                self.weight = nn.Parameter(table)
            else:
                self.register_buffer("weight", table, persistent=False)
        else:
            self.weight = nn.Parameter(torch.empty(words + BUCKETS, d).normal_(std=SPREAD))
            with torch.no_grad():
                self.weight[words:].uniform_(-RANGE, RANGE)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (B, n) -> (B, n, d)."""
        return F.embedding(ids, self.weight)


class MixedClassifier(nn.Sequential):
    """Linear-ELU-Linear, (B, inputs) -> (B, C) (paper 001, section 3.4)."""

    def __init__(self, inputs: int, classes: int, hidden: int = 300, dropout: float = 0.5) -> None:
        super().__init__(Dense(inputs, hidden, dropout), nn.ELU(), Dense(hidden, classes, dropout))


class LinearClassifier(nn.Sequential):
    """Three linear maps without activations, as in the training of BiLSTM-Max: (B, inputs) -> (B, C)."""

    def __init__(self, inputs: int, classes: int, hidden: int = 512, dropout: float = 0.0) -> None:
        super().__init__(
            Dense(inputs, hidden, dropout), Dense(hidden, hidden, dropout), Dense(hidden, classes, dropout)
        )


def absolute_difference(p: Tensor, h: Tensor) -> Tensor:
    """Return |p − h|."""
    return (p - h).abs()


def signed_difference(p: Tensor, h: Tensor) -> Tensor:
    """Return p − h, as the authors of DiSAN do."""
    return p - h


def as_built(model: nn.Module) -> None:
    """Leave the start to the layers: Glorot's normal distribution in linear maps (paper 001, section 3.1)."""


def glorot_uniform(model: nn.Module) -> None:
    """Start linear maps from Glorot's uniform distribution, TensorFlow's default (the released program of DiSAN)."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)


def torch_default(model: nn.Module) -> None:
    """Start linear maps as PyTorch does (InferSent)."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()


@dataclass(frozen=True)
class SentencePairConfig:
    """A siamese classifier of [p; h; compare(p, h); p ∘ h] for the vectors p, h of premise and hypothesis.

    words, vectors: the size of the vocabulary, and a safetensors file of word vectors ("": they are learned); set from
    the data. classes: number of classes. hidden, dropout: those of the classifier, MixedClassifier or LinearClassifier.
    compare: absolute_difference or signed_difference. tuned: whether word vectors of a file are trained, too. start: how linear
    maps begin: as_built, glorot_uniform or torch_default.
    """

    encoder: SentenceEncoderConfig
    words: int = 0
    vectors: str = ""
    classes: int = 3
    hidden: int = 300
    dropout: float = 0.5
    classifier: Callable[[int, int, int, float], nn.Module] = MixedClassifier
    compare: Callable[[Tensor, Tensor], Tensor] = absolute_difference
    tuned: bool = False
    start: Callable[[nn.Module], None] = as_built

    def __post_init__(self) -> None:
        checks.at_least(self, 0, "words")
        checks.at_least(self, 1, "classes", "hidden")
        checks.share(self, "dropout")

    def build(self) -> "SentencePairClassifier":
        return SentencePairClassifier(self)


class SentencePairClassifier(nn.Module):
    """Two sentences, read by the same encoder, to scores of their relation."""

    def __init__(self, config: SentencePairConfig) -> None:
        super().__init__()
        self.embed = WordVectors(config.words, config.encoder.d, config.vectors, config.tuned)
        self.encoder = config.encoder.build()
        self.compare = config.compare
        self.width = cast(int, self.encoder.width)
        self.classify = config.classifier(4 * self.width, config.classes, config.hidden, config.dropout)
        config.start(self)

    def encode(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """tokens (B, n), lengths (B), structure (B, k, n) -> sentence vectors (B, D)."""
        vectors = self.encoder(self.embed(tokens), lengths, structure)
        return check_output(vectors, self.encoder, "B, width", len(tokens), self.width)

    def forward(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """Score B pairs, passed as 2B sentences, all premises first: tokens (2B, n), ... -> (B, C)."""
        p, h = self.encode(tokens, lengths, structure).chunk(2)
        return self.classify(torch.cat([p, h, self.compare(p, h), p * h], -1))
