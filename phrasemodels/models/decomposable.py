"""Decomposable attention between two sentences (Parikh et al. 2016), its words with their parents (paper 003).

Shapes: B batch, n and m positions of premise and hypothesis with the root at 0, d width, w of words with parents.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from phrasemodels.encoders import promised
from phrasemodels.encoders.parents import NoParentsConfig, ParentsConfig
from phrasemodels.layers.blocks import within


class Learned(nn.Embedding):
    """Word vectors of length 1 at the start, trained with the rest: where there are none from elsewhere."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)
        with torch.no_grad():
            self.weight /= self.weight.norm(dim=1, keepdim=True)


class Frozen(Learned):
    """Word vectors of length 1 that stay as they are."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.weight.requires_grad_(False)


@dataclass(frozen=True)
class DecomposableConfig:
    """parents: none, hard or soft, see encoders.parents; its d is the width of word vectors and of all layers.

    All parameters but the word vectors begin in N(0, initial²).
    """

    parents: ParentsConfig = field(default_factory=NoParentsConfig)
    vocabulary: int = 0
    labels: int = 3
    dropout: float = 0.2
    embed: Callable[[int, int], nn.Embedding] = Frozen
    initial: float = 0.01

    def build(self) -> "Decomposable":
        return Decomposable(self)


def perceptron(d_in: int, d: int, dropout: float) -> nn.Sequential:
    """Drop-Linear-ReLU-Drop-Linear-ReLU."""
    first, second = nn.Linear(d_in, d), nn.Linear(d, d)
    return nn.Sequential(nn.Dropout(dropout), first, nn.ReLU(), nn.Dropout(dropout), second, nn.ReLU())


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
        self.embed = config.embed(config.vocabulary, d)

    def forward(self, premise: tuple[Tensor, Tensor, Tensor], hypothesis: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Scores (B, labels) of two sentences, each of ids (B, n), lengths (B) and heads (B, n), -1 for none."""
        p, h = self.encode(*premise), self.encode(*hypothesis)
        there_p, there_h = within(premise[1], p.shape[1]), within(hypothesis[1], h.shape[1])
        e = self.attend(p) @ self.attend(h).transpose(1, 2)
        aligned_h = e.masked_fill(~there_h.unsqueeze(1), -torch.inf).softmax(2) @ h
        aligned_p = e.masked_fill(~there_p.unsqueeze(2), -torch.inf).softmax(1).transpose(1, 2) @ p
        v_p = self.compare(torch.cat([p, aligned_h], -1)).masked_fill(~there_p.unsqueeze(-1), 0).sum(1)
        v_h = self.compare(torch.cat([h, aligned_p], -1)).masked_fill(~there_h.unsqueeze(-1), 0).sum(1)
        return self.aggregate(torch.cat([v_p, v_h], -1))

    def encode(self, ids: Tensor, lengths: Tensor, heads: Tensor) -> Tensor:
        """Words with their parents, (B, n, w)."""
        embedded = self.embed(ids)
        states = self.parents(self.project(embedded), lengths, heads, embedded)
        return promised(states, self.parents, "B, n, width", *ids.shape, self.width)
