"""AdaSent (Zhao et al. 2015): a pyramid of phrases of 1 to n adjacent words, and a gate over its levels.

Shapes: B sentences, n tokens, d width of a word, D units.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.layers import checks
from phrasemodels.layers.blocks import token_mask
from phrasemodels.layers.dense import Dense
from phrasemodels.layers.pooling import masked_softmax, max_over_tokens


@dataclass(frozen=True)
class AdaSentConfig:
    """hidden: units of a node, and the width of the sentence vector."""

    d: int = 300
    hidden: int = 4096
    dropout: float = 0.0

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "d", "hidden")
        checks.share(self, "dropout")

    def build(self) -> "AdaSent":
        return AdaSent(self)


class AdaSent(nn.Module):
    """Node j of level t is a gated sum of nodes j and j+1 below it and of a candidate tanh(W_L h_l + W_R h_r + b).

    Each level is pooled to its maximum; the sentence vector is a softmax-weighted sum of the levels.
    """

    def __init__(self, config: AdaSentConfig) -> None:
        super().__init__()
        D, dropout = config.hidden, config.dropout
        self.width = D
        self.project = Dense(config.d, D, dropout)
        self.left, self.right = Dense(D, D, dropout), Dense(D, D, dropout, bias=False)
        self.gate_left, self.gate_right = Dense(D, 3, dropout), Dense(D, 3, dropout, bias=False)
        self.belief = Dense(D, 1, dropout)

    def climb(self, nodes: Tensor) -> Tensor:
        """Nodes (B, k, D) of one level -> nodes (B, k - 1, D) of the next level."""
        left, right = nodes[:, :-1], nodes[:, 1:]
        candidate = (self.left(left) + self.right(right)).tanh()
        gate = (self.gate_left(left) + self.gate_right(right)).softmax(-1).unsqueeze(-1)
        return (gate * torch.stack([left, right, candidate], -2)).sum(-2)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, D). Phrases (`levels`) are not used."""
        valid = token_mask(lengths, words.shape[1])
        nodes, pooled = self.project(words), []
        for level in range(words.shape[1]):
            nodes = self.climb(nodes) if level else nodes
            pooled.append(max_over_tokens(nodes, valid[:, level:]))
        heights = torch.stack(pooled, 1)
        return (masked_softmax(self.belief(heights), valid.unsqueeze(-1), 1) * heights).sum(1)
