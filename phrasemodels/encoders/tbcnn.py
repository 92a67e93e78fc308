"""Tree-based convolution over dependency trees (Mou et al. 2015, 2016): a baseline of paper 001.

Shapes: B sentences, n tokens, N tokens of all sentences packed, d features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.layers.blocks import within
from phrasemodels.layers.dense import Dense
from phrasemodels.layers.pooling import max_over_tokens


@dataclass(frozen=True)
class TbcnnConfig:
    """relations: how many have a matrix of their own; rare ones share the last. 34 give the size that is printed."""

    d: int = 300
    relations: int = 34
    dropout: float = 0.0

    def build(self) -> "Tbcnn":
        return Tbcnn(self)


class Tbcnn(nn.Module):
    """y = ReLU(W_p p + Σ_c W_r(c) c + b) over each word p and its dependents c, then the maximum over words."""

    def __init__(self, config: TbcnnConfig) -> None:
        super().__init__()
        self.width = config.d
        self.parent = Dense(config.d, config.d, config.dropout)
        self.dependents = nn.ModuleList(
            Dense(config.d, config.d, config.dropout, bias=False) for _ in range(config.relations)
        )

    def forward(self, words: Tensor, lengths: Tensor, edges: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), edges (B, 2, n): heads from 1 with 0 for the root, relations -> (B, d)."""
        B, n, _ = words.shape
        valid = within(lengths, n)
        heads, relations = edges[:, 0], edges[:, 1]
        inner = valid & (heads > 0)
        places = torch.arange(B, device=words.device).unsqueeze(1) * n + heads - 1
        states = self.parent(words).flatten(0, 1)
        for relation, dependent in enumerate(self.dependents):
            chosen = inner & (relations == relation)
            states = states.index_add(0, places[chosen], dependent(words[chosen]))
        return max_over_tokens(states.relu().view(B, n, -1), valid)
