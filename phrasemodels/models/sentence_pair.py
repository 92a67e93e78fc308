"""Classifiers of sentences, and of sentence pairs by the vectors of both or by decomposable attention.

The vectors come from any encoder. Decomposable attention (Parikh et al. 2016) compares words. They may know their parents (paper
003).

Shapes: B sentences or pairs, n and m tokens (in decomposable attention positions of premise and hypothesis, with the root at
0), k integers of structure per token, d width of a word, w width of a word with its parent, D width of a sentence vector, C
classes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels import config
from phrasemodels.encoders import check_output
from phrasemodels.encoders.parents import NoParentsConfig, ParentsConfig
from phrasemodels.layers.blocks import Dense, Dropout, given_vectors, masked_softmax, token_mask

BUCKETS = 128  # vectors that words outside the vocabulary share, by a hash of their letters
RANGE = 0.05  # vectors of buckets start in U(-RANGE, RANGE)
SPREAD = 0.4  # learned vectors start in N(0, SPREAD²), about the spread of GloVe; smaller ones learn slowly


class SentenceEncoderConfig(Protocol):
    """A configuration of an encoder: words (B, n, d), lengths (B), structure (B, k, n) -> (B, width)."""

    @property
    def d(self) -> int: ...
    def build(self) -> nn.Module: ...


class WordVectors(nn.Module):
    """Vectors of width d for the words of the vocabulary, then for BUCKETS.

    They are learned, or read from a file. Vectors of a file are frozen unless they are tuned.
    """

    def __init__(self, words: int, d: int, file: str, tuned: bool = False) -> None:
        super().__init__()
        if file:
            table = given_vectors(file, words + BUCKETS, d)
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
class ClassifierConfig:
    """An encoder of sentences, and a classifier of their vectors.

    Args:
        encoder: The configuration of the encoder of one sentence.
        words, vectors: The size of the vocabulary, and a safetensors file of word vectors ("": they are learned); set from
            the data.
        classes: Number of classes, set from the data.
        hidden, dropout: Hidden units and dropout of the classifier.
        classifier: MixedClassifier or LinearClassifier.
        tuned: Whether word vectors of a file are trained, too.
    """

    encoder: SentenceEncoderConfig
    words: int = 0
    vectors: config.File = ""
    classes: int = 2
    hidden: int = 300
    dropout: float = 0.5
    classifier: Callable[[int, int, int, float], nn.Module] = MixedClassifier
    tuned: bool = False

    def __post_init__(self) -> None:
        config.at_least(self, 0, "words")
        config.at_least(self, 1, "classes", "hidden")
        config.share(self, "dropout")

    def build(self) -> "SentenceClassifier":
        return SentenceClassifier(self)


class SentenceClassifier(nn.Module):
    """Sentences to scores of classes."""

    vectors = 1  # of a sentence, which the classifier reads

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.embed = WordVectors(config.words, config.encoder.d, config.vectors, config.tuned)
        self.encoder = config.encoder.build()
        self.width = cast(int, self.encoder.width)
        self.classify = config.classifier(self.vectors * self.width, config.classes, config.hidden, config.dropout)

    def encode(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """tokens (B, n), lengths (B), structure (B, k, n) -> sentence vectors (B, D)."""
        vectors = self.encoder(self.embed(tokens), lengths, structure)
        return check_output(vectors, self.encoder, "B, width", len(tokens), self.width)

    def forward(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """tokens (B, n), lengths (B), structure (B, k, n) -> scores (B, C)."""
        return self.classify(self.encode(tokens, lengths, structure))


@dataclass(frozen=True)
class SentencePairConfig(ClassifierConfig):
    """A siamese classifier of [p; h; compare(p, h); p ∘ h] for the vectors p, h of premise and hypothesis.

    Args:
        compare: absolute_difference or signed_difference.
        start: How linear maps begin: as_built, glorot_uniform or torch_default.
    """

    classes: int = 3
    compare: Callable[[Tensor, Tensor], Tensor] = absolute_difference
    start: Callable[[nn.Module], None] = as_built

    def build(self) -> "SentencePairClassifier":
        return SentencePairClassifier(self)


class SentencePairClassifier(SentenceClassifier):
    """Two sentences, read by the same encoder, to scores of their relation."""

    vectors = 4

    def __init__(self, config: SentencePairConfig) -> None:
        super().__init__(config)
        self.compare = config.compare
        config.start(self)

    def forward(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """Score B pairs, passed as 2B sentences, all premises first: tokens (2B, n), ... -> (B, C)."""
        p, h = self.encode(tokens, lengths, structure).chunk(2)
        return self.classify(torch.cat([p, h, self.compare(p, h), p * h], -1))


class LearnedEmbedding(nn.Embedding):
    """Trained word vectors. They start random with norm 1."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)
        with torch.no_grad():
            self.weight /= self.weight.norm(dim=1, keepdim=True)


class FrozenEmbedding(LearnedEmbedding):
    """Untrained word vectors of norm 1."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.weight.requires_grad_(False)


@dataclass(frozen=True)
class DecomposableConfig:
    """Decomposable attention (Parikh et al. 2016), over words and their parents.

    Args:
        parents: An encoder of `encoders.parents`. Its d is the width of word vectors and of all layers.
        vocabulary, vectors: Number of words, and a safetensors file of their frozen vectors. Set from the data.
        labels: Number of classes.
        dropout: Dropout of the inputs of each linear map.
        embed: FrozenEmbedding or LearnedEmbedding, if there is no file.
        initial: All parameters but the word vectors start in N(0, initial²).
    """

    parents: ParentsConfig = field(default_factory=NoParentsConfig)
    vocabulary: int = 0
    labels: int = 3
    dropout: float = 0.2
    embed: Callable[[int, int], nn.Embedding] = FrozenEmbedding
    initial: float = 0.01
    vectors: config.File = ""

    def __post_init__(self) -> None:
        config.at_least(self, 0, "vocabulary")
        config.at_least(self, 1, "labels")
        config.share(self, "dropout")
        config.positive(self, "initial")

    def build(self) -> "Decomposable":
        return Decomposable(self)


def perceptron(d_in: int, d: int, dropout: float) -> nn.Sequential:
    """Return Dropout-Linear-ReLU-Dropout-Linear-ReLU, (..., d_in) -> (..., d)."""
    first, second = nn.Linear(d_in, d), nn.Linear(d, d)
    return nn.Sequential(Dropout(dropout), first, nn.ReLU(), Dropout(dropout), second, nn.ReLU())


class Decomposable(nn.Module):
    """Attend, compare, aggregate. Both sentences share all parameters."""

    def __init__(self, config: DecomposableConfig) -> None:
        super().__init__()
        d, width = config.parents.d, config.parents.width
        self.width = width
        self.project = nn.Linear(d, d, bias=False)
        self.parents = config.parents.build()
        self.attend = perceptron(width, d, config.dropout)
        self.compare = perceptron(2 * width, d, config.dropout)
        self.aggregate = nn.Sequential(*perceptron(2 * d, d, config.dropout), nn.Linear(d, config.labels))
        # before there is an embedding, which has a start of its own
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=config.initial)
        self.embed = FrozenEmbedding(config.vocabulary, d) if config.vectors else config.embed(config.vocabulary, d)
        if config.vectors:
            self.embed.weight.copy_(given_vectors(config.vectors, config.vocabulary, d))

    def forward(self, premise: tuple[Tensor, Tensor, Tensor], hypothesis: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """premise, hypothesis = ids (B, n), lengths (B), heads (B, n) with -1 for none -> scores (B, labels)."""
        p, h = self.encode(*premise), self.encode(*hypothesis)
        real_p, real_h = token_mask(premise[1], p.shape[1]), token_mask(hypothesis[1], h.shape[1])
        e = self.attend(p) @ self.attend(h).transpose(1, 2)
        aligned_h = masked_softmax(e, real_h.unsqueeze(1), 2) @ h
        aligned_p = masked_softmax(e, real_p.unsqueeze(2), 1).transpose(1, 2) @ p
        v_p = self.compare(torch.cat([p, aligned_h], -1)).masked_fill(~real_p.unsqueeze(-1), 0).sum(1)
        v_h = self.compare(torch.cat([h, aligned_p], -1)).masked_fill(~real_h.unsqueeze(-1), 0).sum(1)
        return self.aggregate(torch.cat([v_p, v_h], -1))

    def encode(self, ids: Tensor, lengths: Tensor, heads: Tensor) -> Tensor:
        """ids (B, n), lengths (B), heads (B, n) -> words with their parents, (B, n, w)."""
        embedded = self.embed(ids)
        states = self.parents(self.project(embedded), lengths, heads, embedded)
        return check_output(states, self.parents, "B, n, width", *ids.shape, self.width)
