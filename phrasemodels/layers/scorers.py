"""Scores of labelled spans, arcs and relations (papers 003 and 004; Stern et al. 2017; Dozat and Manning 2017).

A fencepost is a place between two words: fencepost t, 0 ≤ t ≤ n, follows the first t words. Scorers of arcs and relations
read fencepost t as word t, and fencepost 0 as the root.
Shapes: B batch, n words, D width of a fencepost, L labels, the empty one first.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.blocks import Dropout
from phrasemodels.layers.partitioned import StandardNorm

Look = Callable[[Tensor, Tensor], Tensor]
Squash = Callable[[Tensor], Tensor]


def tanh_once(x: Tensor) -> Tensor:
    """Return tanh(x), as paper 003 prints it."""
    return x.tanh()


def tanh_twice(x: Tensor) -> Tensor:
    """Return tanh(tanh(x)), as the released code of paper 003 computes it on a GPU."""
    return x.tanh().tanh()


class AdditiveArcScorer(nn.Module):
    """θ_ij = tanh(sᵀ tanh(W₁h_i + W₂h_j + b)) for head i and dependent j (paper 003)."""

    def __init__(self, d: int, squash: Squash = tanh_once) -> None:
        super().__init__()
        self.head = nn.Linear(d, d)
        self.dependent = nn.Linear(d, d, bias=False)
        self.score = nn.Linear(d, 1, bias=False)
        self.squash = squash

    def forward(self, states: Tensor) -> Tensor:
        """states (B, N, d), the root at 0 -> scores (B, N, N), [dependent, head]."""
        pairs = self.head(states).unsqueeze(1) + self.dependent(states).unsqueeze(2)
        return self.squash(self.score(torch.tanh(pairs)).squeeze(-1))


def fenceposts(states: Tensor, groups: int) -> Tensor:
    """States (B, n+2, D) of START, words, STOP -> fenceposts (B, n+1, D).

    The first half of each group of features is the forward half, the other the backward half. Fencepost t joins the
    forward halves at position t and the backward halves at position t + 1.
    """
    forward, backward = (half.flatten(2) for half in states.unflatten(-1, (groups, -1)).chunk(2, -1))
    return torch.cat([forward[:, :-1], backward[:, 1:]], -1)


class SpanScorer(nn.Module):
    """W2 ReLU(LN(W1 (F_j − F_i) + b1)) + b2 for each label but the empty one, whose score is 0 (paper 004, Eq 5 and 6).

    W1 is applied to the n + 1 fenceposts, not to their n² differences.
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
        for row, sentence in enumerate(projected):  # one sentence at a time, to limit the memory of hidden units
            # by autocast, the scores of the cells are bfloat16, the chart is not
            scores[row, i, j, 1:] = self._score(sentence[j + 1] - sentence[i]).to(scores.dtype)
        return scores

    def cells(self, posts: Tensor, cells: Tensor) -> Tensor:
        """Return the scores (B, m) of cells (B, m, 3) = (i, j, label); 0 where i < 0."""
        i, j, label = cells.clamp(min=0).unbind(-1)
        sentence = torch.arange(len(cells), device=cells.device)[:, None]
        projected = self.project(posts)
        scores = F.pad(self._score(projected[sentence, j + 1] - projected[sentence, i]), (1, 0))
        return scores.gather(-1, label[..., None])[..., 0] * (cells[..., 0] >= 0)

    def _score(self, spans: Tensor) -> Tensor:
        scores: Tensor = self.output(self.norm(spans + self.bias).relu())
        return scores


class HeadDependentMLP(nn.Module):
    """Drop(ReLU(W x + b)) with one W, b for words as heads and one for words as dependents (Dozat and Manning 2017)."""

    def __init__(self, d: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.head, self.dependent = nn.Linear(d, hidden), nn.Linear(d, hidden)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, N, D) -> the words as heads and as dependents, each (B, N, hidden)."""
        return self.dropout(self.head(x).relu()), self.dropout(self.dependent(x).relu())


class BiaffineArcScorer(nn.Module):
    """r_hᵀ U [r_m; 1]: the score of word h as the head of word m (paper 004, Eq 10)."""

    def __init__(self, d: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.pairs = HeadDependentMLP(d, hidden, dropout)
        self.weight = nn.Parameter(torch.zeros(hidden, hidden + 1))

    def forward(self, posts: Tensor) -> Tensor:
        """posts (B, n+1, D) -> scores (B, n+1, n+1), [head, dependent]."""
        head, dependent = self.pairs(posts)
        return head @ self.weight @ F.pad(dependent, (0, 1), value=1.0).transpose(1, 2)


def from_head(own: Tensor, heads: Tensor) -> Tensor:
    """Return the representation (B, n+1, hidden) of the head of each word, for P(relation | dependent, head) (Eq 11).

    own (B, n+1, hidden), heads (B, n+1).
    """
    return own.gather(1, heads.clamp(min=0)[..., None].expand_as(own))


def from_itself(own: Tensor, heads: Tensor) -> Tensor:
    """Return the word's own representation: in the released code of paper 004 relations do not depend on the head."""
    return own


class RelationScorer(nn.Module):
    """[r_h; 1]ᵀ U_k [r_m; 1]: the score of relation k between word m and its head h (paper 004, Eq 11)."""

    def __init__(self, d: int, hidden: int, relations: int, dropout: float) -> None:
        super().__init__()
        self.pairs = HeadDependentMLP(d, hidden, dropout)
        self.weight = nn.Parameter(torch.zeros(relations, hidden + 1, hidden + 1))

    def forward(self, posts: Tensor, heads: Tensor, look: Look) -> Tensor:
        """posts (B, n+1, D), heads (B, n+1), look = from_head or from_itself -> scores (B, n+1, relations)."""
        head, dependent = self.pairs(posts)
        head, dependent = (F.pad(x, (0, 1), value=1.0) for x in (look(head, heads), dependent))
        ways = head.flatten(0, 1) @ self.weight.transpose(0, 1).flatten(1)  # one product; einsum takes twice as long
        scores = ways.unflatten(1, (len(self.weight), -1)) @ dependent.flatten(0, 1)[..., None]
        return scores[..., 0].unflatten(0, head.shape[:2])
