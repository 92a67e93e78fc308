"""Hypernodes: nodes that stand for phrases (paper 000).

A phrase is given by the positions of its words: members (B, m, k), filled up with -1. So adjacent words, dependency
edges and subtrees are all the same to a model; which phrases there are is decided where the data is made.
Shapes: B batch, n tokens, m hypernodes, N = n + m nodes (words first), d model width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.blocks import within


class PhraseGraph(NamedTuple):
    """Which nodes there are, and which lie within one another."""

    valid: Tensor  # (B, N) booleans: a real node, not padding
    related: Tensor  # (B, N, N) booleans: Eq 6; symmetric, the diagonal is true, padding is related to itself alone
    incidence: Tensor  # (B, m, n) numbers: 1 where a phrase holds a word


def phrase_graph(members: Tensor, lengths: Tensor, n: int) -> PhraseGraph:
    """Nodes and their containment (paper 000, Eq 4 and 6), over positions, not word types.

    members (B, m, k) integers with -1 for none; lengths (B); n the padded number of words. Two nodes are related if
    the words of one are a subset of the words of the other.
    """
    words = within(lengths, n)
    phrases = F.one_hot(members + 1, n + 1)[..., 1:].sum(2).float()
    incidence = torch.cat([torch.diag_embed(words.float()), phrases], 1)
    size = incidence.sum(-1)
    valid = size > 0
    common = incidence @ incidence.transpose(1, 2)
    contained = common == size.unsqueeze(2)
    both = valid.unsqueeze(2) & valid.unsqueeze(1)
    diagonal = torch.eye(size.shape[1], dtype=torch.bool, device=size.device)
    return PhraseGraph(valid, (contained | contained.transpose(1, 2)) & both | diagonal, phrases)


class ZeroInit(nn.Module):
    """Hypernodes start as zeros (paper 000, Algorithm 1), so before the first layer all are the same."""

    def __init__(self, d: int, longest: int) -> None:
        super().__init__()

    def forward(self, words: Tensor, graph: PhraseGraph) -> Tensor:
        return words.new_zeros(*graph.incidence.shape[:2], words.shape[-1])


class MeanInit(nn.Module):
    """Hypernodes start as the mean of their words."""

    def __init__(self, d: int, longest: int) -> None:
        super().__init__()

    def forward(self, words: Tensor, graph: PhraseGraph) -> Tensor:
        holds = graph.incidence.to(words.dtype)
        return holds @ words / holds.sum(-1, keepdim=True).clamp(min=1)


class LengthEmbedding(nn.Module):
    """Hypernodes start as a learned vector of their number of words, 2 to `longest`."""

    def __init__(self, d: int, longest: int) -> None:
        super().__init__()
        self.table = nn.Embedding(longest - 1, d)

    def forward(self, words: Tensor, graph: PhraseGraph) -> Tensor:
        size = graph.incidence.sum(-1).long()
        longest = self.table.num_embeddings + 1
        if size.numel() and int(size.max()) > longest:
            raise ValueError(
                f"a phrase has {int(size.max())} words, the encoder knows up to {longest}: raise `longest`"
            )
        return self.table((size - 2).clamp(min=0)) * (size > 0).unsqueeze(-1)
