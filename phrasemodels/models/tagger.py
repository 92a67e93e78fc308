"""Tagging: any encoder of token states, and a classifier of each state (paper 000, section 4.3)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.encoders import EncoderConfig, check_output
from phrasemodels.layers.blocks import Dropout, TokenEmbedding, given_vectors, sinusoids


@dataclass(frozen=True)
class TaggerConfig:
    """An encoder, and a classifier with one hidden layer.

    Args:
        encoder: The configuration of the encoder.
        hidden: Hidden units of the classifier.
        vocabulary, tags: Numbers of ids, set from the data. Special ids count as tags, too.
        vectors: A safetensors file of untrained word vectors, set from the data. "": they are learned.
    """

    encoder: EncoderConfig
    vocabulary: int
    tags: int
    hidden: int = 200
    vectors: config.File = ""

    def __post_init__(self) -> None:
        config.at_least(self, 0, "vocabulary", "tags")
        config.at_least(self, 1, "hidden")

    def build(self) -> "Tagger":
        return Tagger(self)


class FixedEmbedding(nn.Module):
    """Untrained word vectors of a file plus sinusoidal positions, with dropout."""

    def __init__(self, config: TaggerConfig, dropout: float) -> None:
        super().__init__()
        table = given_vectors(config.vectors, config.vocabulary, config.encoder.d)
        self.table, self.dropout = nn.Embedding.from_pretrained(table), Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, n) -> (B, n, d)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        vectors: Tensor = self.table(tokens)
        return self.dropout(vectors + sinusoids(places, self.table.embedding_dim).to(vectors.dtype))


class Tagger(nn.Module):
    """Token ids to scores of tags."""

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        d, dropout = config.encoder.d, config.encoder.dropout
        self.embed = (
            FixedEmbedding(config, dropout) if config.vectors else TokenEmbedding(config.vocabulary, d, dropout)
        )
        self.encoder = config.encoder.build()
        self.classify = nn.Sequential(
            nn.Linear(d, config.hidden), nn.ReLU(), Dropout(dropout), nn.Linear(config.hidden, config.tags)
        )

    def forward(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """source (B, n) ids, lengths (B), members (B, m, k) -> scores (B, n, tags), undefined for padding."""
        x = self.embed(source)
        return self.classify(check_output(self.encoder(x, lengths, members), self.encoder, "B, n, d", *x.shape))

    def tag(self, source: Tensor, lengths: Tensor, members: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best of the given tags for each token, and its log-probability among all tags: (B, n) each.

        tags (T): the ids to choose from.
        """
        scores = self(source, lengths, members).float().log_softmax(-1)
        best = scores[..., tags].argmax(-1)
        ids = tags[best]
        return ids, torch.gather(scores, -1, ids.unsqueeze(-1)).squeeze(-1)
