"""Decomposable attention between two sentences (Parikh et al. 2016), whose words may know their parents (paper 003).

Shapes: B batch, n and m positions of premise and hypothesis with the root at 0, d width, w width of a word with parent.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from phrasemodels.encoders import check_output
from phrasemodels.encoders.parents import NoParentsConfig, ParentsConfig
from phrasemodels.layers import checks
from phrasemodels.layers.blocks import token_mask
from phrasemodels.layers.dropout import Dropout


class LearnedEmbedding(nn.Embedding):
    """Word vectors that start random with norm 1, and are trained with the model."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)
        with torch.no_grad():
            self.weight /= self.weight.norm(dim=1, keepdim=True)


class FrozenEmbedding(LearnedEmbedding):
    """Word vectors of norm 1 that are not trained."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.weight.requires_grad_(False)


def given_vectors(file: str, words: int, d: int) -> Tensor:
    """Return the word vectors of a file, (words, d). ValueError: it holds others."""
    table = load_file(Path(file))["vectors"]
    if table.shape != (words, d):
        raise ValueError(
            f"{file}: holds {tuple(table.shape)} numbers, not {(words, d)}: model.parents.d is the vectors' width"
        )
    return table


@dataclass(frozen=True)
class DecomposableConfig:
    """parents: an encoder of `encoders.parents`, whose d is the width of word vectors and of all layers.

    vocabulary, vectors: number of words, and a safetensors file of their vectors, which are then frozen; set from the data.
    labels: number of classes. embed: FrozenEmbedding or LearnedEmbedding, where there is no such file.
    initial: all parameters but the word vectors start in N(0, initial²).
    """

    parents: ParentsConfig = field(default_factory=NoParentsConfig)
    vocabulary: int = 0
    labels: int = 3
    dropout: float = 0.2
    embed: Callable[[int, int], nn.Embedding] = FrozenEmbedding
    initial: float = 0.01
    vectors: str = ""

    def __post_init__(self) -> None:
        checks.at_least(self, 0, "vocabulary")
        checks.at_least(self, 1, "labels")
        checks.share(self, "dropout")
        checks.positive(self, "initial")

    def build(self) -> "Decomposable":
        return Decomposable(self)


def perceptron(d_in: int, d: int, dropout: float) -> nn.Sequential:
    """Return Dropout-Linear-ReLU-Dropout-Linear-ReLU, (..., d_in) -> (..., d)."""
    first, second = nn.Linear(d_in, d), nn.Linear(d, d)
    return nn.Sequential(Dropout(dropout), first, nn.ReLU(), Dropout(dropout), second, nn.ReLU())


class Decomposable(nn.Module):
    """Attend, compare, aggregate; both sentences share all parameters."""

    def __init__(self, config: DecomposableConfig) -> None:
        super().__init__()
        d, width = config.parents.d, config.parents.width
        self.width = width
        self.project = nn.Linear(d, d, bias=False)
        self.parents = config.parents.build()
        self.attend = perceptron(width, d, config.dropout)
        self.compare = perceptron(2 * width, d, config.dropout)
        self.aggregate = nn.Sequential(*perceptron(2 * d, d, config.dropout), nn.Linear(d, config.labels))
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
        aligned_h = e.masked_fill(~real_h.unsqueeze(1), -torch.inf).softmax(2) @ h
        aligned_p = e.masked_fill(~real_p.unsqueeze(2), -torch.inf).softmax(1).transpose(1, 2) @ p
        v_p = self.compare(torch.cat([p, aligned_h], -1)).masked_fill(~real_p.unsqueeze(-1), 0).sum(1)
        v_h = self.compare(torch.cat([h, aligned_p], -1)).masked_fill(~real_h.unsqueeze(-1), 0).sum(1)
        return self.aggregate(torch.cat([v_p, v_h], -1))

    def encode(self, ids: Tensor, lengths: Tensor, heads: Tensor) -> Tensor:
        """ids (B, n), lengths (B), heads (B, n) -> words with their parents, (B, n, w)."""
        embedded = self.embed(ids)
        states = self.parents(self.project(embedded), lengths, heads, embedded)
        return check_output(states, self.parents, "B, n, width", *ids.shape, self.width)
