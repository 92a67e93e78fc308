"""A classifier of sentences by their vectors, from any encoder of sentences.

Shapes: B sentences, n tokens, k integers of structure per token, D width of a sentence vector, C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.encoders import check_output
from phrasemodels.models.sentence_pair import MixedClassifier, SentenceEncoderConfig, WordVectors


@dataclass(frozen=True)
class ClassifierConfig:
    """An encoder of sentences, and a classifier of their vectors.

    Args:
        encoder: The configuration of the encoder.
        words, vectors: The size of the vocabulary, and a safetensors file of word vectors ("": they are learned); set from
            the data.
        classes: Number of classes, set from the data.
        hidden, dropout: Hidden units and dropout of the classifier.
        classifier: MixedClassifier or LinearClassifier.
        tuned: Whether word vectors of a file are trained.
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

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.embed = WordVectors(config.words, config.encoder.d, config.vectors, config.tuned)
        self.encoder = config.encoder.build()
        self.width = cast(int, self.encoder.width)
        self.classify = config.classifier(self.width, config.classes, config.hidden, config.dropout)

    def encode(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """tokens (B, n), lengths (B), structure (B, k, n) -> sentence vectors (B, D)."""
        vectors = self.encoder(self.embed(tokens), lengths, structure)
        return check_output(vectors, self.encoder, "B, width", len(tokens), self.width)

    def forward(self, tokens: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """tokens (B, n), lengths (B), structure (B, k, n) -> scores (B, C)."""
        return self.classify(self.encode(tokens, lengths, structure))
