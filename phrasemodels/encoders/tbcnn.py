"""Tree-based convolution over dependency trees (Mou et al. 2015, 2016): a baseline of paper 001.

Shapes: B sentences, n tokens, N tokens of all sentences packed, d features.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phrasemodels.layers import checks
from phrasemodels.layers.blocks import token_mask
from phrasemodels.layers.dense import Dense
from phrasemodels.layers.pooling import max_over_tokens


@dataclass(frozen=True)
class TbcnnConfig:
    """relations: number of relations with a matrix of their own; all rarer ones share the last. 34 give the printed size."""

    d: int = 300
    relations: int = 34
    dropout: float = 0.0

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "d", "relations")
        checks.share(self, "dropout")

    def build(self) -> "Tbcnn":
        return Tbcnn(self)


class Tbcnn(nn.Module):
    """y = ReLU(W_p p + Σ_c W_r(c) c + b) for each word p with dependents c of relation r(c), then the maximum over words."""

    def __init__(self, config: TbcnnConfig) -> None:
        super().__init__()
        self.width = config.d
        self.parent = Dense(config.d, config.d, config.dropout)
        self.dependents = nn.ModuleList(
            Dense(config.d, config.d, config.dropout, bias=False) for _ in range(config.relations)
        )

    def forward(self, words: Tensor, lengths: Tensor, edges: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), edges (B, 2, n) = heads (counted from 1, 0 is the root), relations -> (B, d)."""
        B, n, _ = words.shape
        valid = token_mask(lengths, n)
        heads, relations = edges[:, 0], edges[:, 1]
        inner = valid & (heads > 0)
        places = torch.arange(B, device=words.device).unsqueeze(1) * n + heads - 1
        states = self.parent(words).flatten(0, 1)
        for relation, dependent in enumerate(self.dependents):
            chosen = inner & (relations == relation)
            states = states.index_add(0, places[chosen], dependent(words[chosen]))
        return max_over_tokens(states.relu().view(B, n, -1), valid)
