"""A tag for every word: any encoder of token states, and a classifier of each (paper 000, section 4.3)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.encoders import EncoderConfig, promised
from phrasemodels.layers.blocks import TokenEmbedding


@dataclass(frozen=True)
class TaggerConfig:
    """An encoder, and a classifier with one hidden layer; tags counts their ids, with those that stand for no tag."""

    encoder: EncoderConfig
    vocabulary: int
    tags: int
    hidden: int = 200

    def build(self) -> "Tagger":
        return Tagger(self)


class Tagger(nn.Module):
    """Token ids in, scores of tags out."""

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        d, dropout = config.encoder.d, config.encoder.dropout
        self.embed = TokenEmbedding(config.vocabulary, d, dropout)
        self.encoder = config.encoder.build()
        self.classify = nn.Sequential(
            nn.Linear(d, config.hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(config.hidden, config.tags)
        )

    def forward(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """source (B, n) ids, lengths (B), members (B, m, k) -> scores (B, n, tags); rows beyond a length mean nothing."""
        x = self.embed(source)
        return self.classify(promised(self.encoder(x, lengths, members), self.encoder, "B, n, d", *x.shape))

    def tag(self, source: Tensor, lengths: Tensor, members: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
        """The best of some tags (ids) for each token, and its log-probability among all: (B, n) each."""
        scores = self(source, lengths, members).float().log_softmax(-1)
        best = scores[..., tags].argmax(-1)
        ids = tags[best]
        return ids, torch.gather(scores, -1, ids.unsqueeze(-1)).squeeze(-1)
