"""Hypernodes: nodes that stand for phrases (paper 000).

A phrase is a list of the positions of its words: members (B, m, k), filled up with -1. So adjacent words, dependency
edges and subtrees are the same to a model; the data decides which phrases there are.
Shapes: B batch, n words, m hypernodes, N = n + m nodes (words first), R query rows, d model width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.band import Band
from phrasemodels.layers.blocks import token_mask


class PhraseGraph(NamedTuple):
    """The nodes of a batch, and which of them contain one another; rows are the first R nodes, the queries."""

    valid: Tensor  # (B, N) booleans: a node, not padding
    related: Tensor  # (B, R, N) booleans: A of Eq 6; the diagonal is true, padding is related to itself alone
    incidence: Tensor  # (B, m, n) numbers: 1 where a phrase holds a word, else 0
    band: Band | None = None  # `related` as lists of neighbours, where these are faster (hypernode_fast)

    def first(self, rows: int) -> "PhraseGraph":
        """Return the graph of the first query rows."""
        return self._replace(related=self.related[:, :rows], band=self.band and self.band.first(rows))


def phrase_graph(members: Tensor, lengths: Tensor, n: int) -> PhraseGraph:
    """Return the nodes and their containment (paper 000, Eq 4 and 6), over positions, not word types.

    members (B, m, k) integers with -1 for none; lengths (B); n the padded number of words. Two nodes are related if
    the words of one are a subset of the words of the other.
    """
    (B, m, k), device = members.shape, members.device
    word = F.pad(torch.arange(n, device=device).view(1, n, 1), (0, k - 1), value=-1).expand(B, -1, -1)
    named = torch.cat([word, members], 1).long() + 1  # position + 1; 0, for none, counts as a word of every node
    holds = torch.zeros(B, n + m, n + 1, dtype=torch.bool, device=device).scatter_(2, named, True)
    holds[..., 0] = True
    valid = torch.cat([token_mask(lengths, n), (members >= 0).any(2)], 1)
    sentence, holders = torch.arange(B, device=device).unsqueeze(1), holds.transpose(1, 2).contiguous()
    contained = holders[sentence, named[..., 0]]
    for other in named[..., 1:].unbind(2):
        contained &= holders[sentence, other]
    related = (contained | contained.transpose(1, 2)) & valid.unsqueeze(2) & valid.unsqueeze(1)
    related |= torch.eye(n + m, dtype=torch.bool, device=device)
    return PhraseGraph(valid, related, holds[:, n:, 1:].float())


class ZeroInit(nn.Module):
    """Hypernodes start as zeros (paper 000, Algorithm 1), so all are equal before the first layer."""

    def __init__(self, d: int, longest: int) -> None:
        super().__init__()

    def forward(self, words: Tensor, graph: PhraseGraph) -> Tensor:
        """words (B, n, d) -> hypernodes (B, m, d)."""
        return words.new_zeros(*graph.incidence.shape[:2], words.shape[-1])


class MeanInit(nn.Module):
    """Hypernodes start as the mean of their words."""

    def __init__(self, d: int, longest: int) -> None:
        super().__init__()

    def forward(self, words: Tensor, graph: PhraseGraph) -> Tensor:
        """words (B, n, d) -> hypernodes (B, m, d)."""
        holds = graph.incidence.to(words.dtype)
        return holds @ words / holds.sum(-1, keepdim=True).clamp(min=1)


class LengthEmbedding(nn.Module):
    """Hypernodes start as a learned vector of their number of words, 2 to `longest`."""

    def __init__(self, d: int, longest: int) -> None:
        super().__init__()
        self.table = nn.Embedding(longest - 1, d)

    def forward(self, words: Tensor, graph: PhraseGraph) -> Tensor:
        """words (B, n, d) -> hypernodes (B, m, d). ValueError: a phrase of more than `longest` words."""
        size = graph.incidence.sum(-1).long()
        longest = self.table.num_embeddings + 1
        if size.numel() and int(size.max()) > longest:
            raise ValueError(f"longest={longest}: a phrase has {int(size.max())} words; raise `longest` of the encoder")
        return self.table((size - 2).clamp(min=0)) * (size > 0).unsqueeze(-1)
