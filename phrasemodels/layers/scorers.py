"""Scores of labelled spans, of arcs and of their relations (paper 004, section 2.4; Stern et al. 2017; Dozat and
Manning 2017).

A fencepost stands between two words: fencepost t of n words, 0 to n, after the first t. As a word, fencepost t is word
t, and 0 is the root. Shapes: B batch, n words, D width of a fencepost, L labels, the empty one first.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.partitioned import StandardNorm

Look = Callable[[Tensor, Tensor], Tensor]


def fenceposts(states: Tensor, groups: int) -> Tensor:
    """States (B, n+2, D) of START, words, STOP -> (B, n+1, D).

    The first half of each group of features looks forward, the other half backward: fencepost t is what looks forward
    at position t and backward at t + 1.
    """
    forward, backward = (half.flatten(2) for half in states.unflatten(-1, (groups, -1)).chunk(2, -1))
    return torch.cat([forward[:, :-1], backward[:, 1:]], -1)


def contributions(posts: Tensor, groups: int, spans: Tensor) -> Tensor:
    """What each label adds to each span: the mean of its features, forward and backward, of the span's vector.

    posts (B, n+1, D) as of `fenceposts`, spans (B, m, 2) = words i..j, both included -> (B, m, groups).
    """
    means = posts.unflatten(-1, (2, groups, -1)).mean((-3, -1))
    sentence = torch.arange(len(posts), device=posts.device)[:, None]
    return means[sentence, spans[..., 1] + 1] - means[sentence, spans[..., 0]]


def shares(contributed: Tensor) -> Tensor:
    """Contributions (..., L) scaled to 0..1 over labels, then softmax: how the released code of paper 004 shows them."""
    low, high = contributed.amin(-1, keepdim=True), contributed.amax(-1, keepdim=True)
    return ((contributed - low) / (high - low).clamp(min=1e-12)).softmax(-1)


class SpanScorer(nn.Module):
    """W2 ReLU(LN(W1 (F_j − F_i) + b1)) + b2 for each label but the empty one, whose score is 0 (Eq 5 and 6).

    W1 is applied to fenceposts, of which there are fewer than differences.
    """

    def __init__(self, d: int, hidden: int, labels: int) -> None:
        super().__init__()
        self.project = nn.Linear(d, hidden, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.norm = StandardNorm(hidden)
        self.output = nn.Linear(hidden, labels - 1)

    def forward(self, posts: Tensor) -> Tensor:
        """posts (B, n+1, D) -> scores (B, n, n, L) of words i..j, both included; 0 where i > j."""
        projected = self.project(posts)
        n = posts.shape[1] - 1
        i, j = torch.triu_indices(n, n, device=posts.device)
        scores = posts.new_zeros(len(posts), n, n, self.output.out_features + 1)
        for row, sentence in enumerate(projected):  # a sentence at a time: hidden units of all spans are many
            scores[row, i, j, 1:] = self._score(sentence[j + 1] - sentence[i]).to(scores.dtype)
        return scores

    def cells(self, posts: Tensor, cells: Tensor) -> Tensor:
        """Scores (B, m) of cells (B, m, 3) = (i, j, label), of which those with i < 0 have none: 0."""
        i, j, label = cells.clamp(min=0).unbind(-1)
        sentence = torch.arange(len(cells), device=cells.device)[:, None]
        projected = self.project(posts)
        scores = F.pad(self._score(projected[sentence, j + 1] - projected[sentence, i]), (1, 0))
        return scores.gather(-1, label[..., None])[..., 0] * (cells[..., 0] >= 0)

    def _score(self, spans: Tensor) -> Tensor:
        scores: Tensor = self.output(self.norm(spans + self.bias).relu())
        return scores


class Pairs(nn.Module):
    """Drop(ReLU(W x + b)) of every word as a head and as a dependent."""

    def __init__(self, d: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.head, self.dependent = nn.Linear(d, hidden), nn.Linear(d, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N, D) -> two of (B, N, hidden)."""
        return self.dropout(self.head(x).relu()), self.dropout(self.dependent(x).relu())


class ArcScorer(nn.Module):
    """r_hᵀ U [r_m; 1]: how well word h is the head of word m, and a head at all (Eq 10)."""

    def __init__(self, d: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.pairs = Pairs(d, hidden, dropout)
        self.weight = nn.Parameter(torch.zeros(hidden, hidden + 1))

    def forward(self, posts: Tensor) -> Tensor:
        """posts (B, n+1, D) -> (B, n+1, n+1), [head, dependent]."""
        head, dependent = self.pairs(posts)
        return head @ self.weight @ F.pad(dependent, (0, 1), value=1.0).transpose(1, 2)


def from_head(own: Tensor, heads: Tensor) -> Tensor:
    """The representation (B, n+1, hidden) of each word's head: P(relation | dependent, head) (Eq 11)."""
    return own.gather(1, heads.clamp(min=0)[..., None].expand_as(own))


def from_itself(own: Tensor, heads: Tensor) -> Tensor:
    """That of the word itself: the released code, where relations do not know the head."""
    return own


class RelationScorer(nn.Module):
    """[r_h; 1]ᵀ U_k [r_m; 1] for each relation k of word m to the head h that it has (Eq 11)."""

    def __init__(self, d: int, hidden: int, relations: int, dropout: float) -> None:
        super().__init__()
        self.pairs = Pairs(d, hidden, dropout)
        self.weight = nn.Parameter(torch.zeros(relations, hidden + 1, hidden + 1))

    def forward(self, posts: Tensor, heads: Tensor, look: Look) -> Tensor:
        """posts (B, n+1, D), heads (B, n+1) -> (B, n+1, relations)."""
        head, dependent = self.pairs(posts)
        head, dependent = (F.pad(x, (0, 1), value=1.0) for x in (look(head, heads), dependent))
        return torch.einsum("bnh,khd,bnd->bnk", head, self.weight, dependent)
