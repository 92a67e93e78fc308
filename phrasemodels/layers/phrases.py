"""Hypernodes, nodes that stand for phrases (paper 000), and attention to the few nodes that each is related to (phase 2).

A phrase is a list of the positions of its words: members (B, m, k), filled up with -1. So adjacent words, dependency
edges and subtrees are the same to a model; the data decides which phrases there are. A node is related to at most 3 (k=2) or 6
(k=3) of N nodes, so nearly all of N² scores are known to be -inf, and scores and sums run over lists of neighbours.

Shapes: B batch, h heads, n words, m hypernodes, N = n + m nodes (words first), R query rows, K key rows, c neighbours of a
node at most, d model width, dk width of a head.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from phrasemodels.layers.blocks import Packing, shapes_are_fixed, token_mask


class Edges(NamedTuple):
    """Neighbours of every head. Rows are numbered node · h + head: R·h rows of queries, K·h of keys."""

    keys: Tensor  # (R·h, c) the key rows of each query row
    start: Tensor  # (R·h) the number of edges before a query row
    row: Tensor  # (R·h·c) the query row of each edge
    queries: Tensor  # (K·h, c) the query rows of each key row, for the backward pass
    arriving: Tensor  # (K·h, c) the numbers of the edges from these query rows
    missing: Tensor  # (K·h, c) booleans: fewer than c edges arrive

    def by_key(self, weights: Tensor) -> Tensor:
        """Reorder weights of edges (R·h, c), by query, to (K·h, c), by key; 0 where an edge is missing."""
        return weights.flatten()[self.arriving].masked_fill_(self.missing, 0)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A relation of R queries and K keys, packed nodes of a batch, as lists. Edge number = query · c + slot."""

    keys: Tensor  # (R, c) the keys of each query, ascending; any key in an empty slot
    real: Tensor  # (R, c) booleans: the slot holds a key
    arriving: Tensor  # (K, c) the edges that arrive at each key, by query; R · c in an empty slot
    edges: dict[int, Edges] = field(default_factory=dict)  # by number of heads: all layers of an encoder share them

    def of_queries(self, chosen: Tensor) -> "Neighbours":
        """Return the lists of some queries (r)."""
        R, c = self.keys.shape
        place = self.keys.new_full((R + 1,), len(chosen))
        place[chosen] = torch.arange(len(chosen), device=chosen.device)
        query, slot = place[self.arriving // c], self.arriving % c
        arriving = torch.where(query < len(chosen), query * c + slot, len(chosen) * c)
        return Neighbours(self.keys[chosen], self.real[chosen], arriving)

    def of_heads(self, heads: int) -> Edges:
        """Return the lists for every head; they are computed once."""
        if heads not in self.edges:
            self.edges[heads] = _edges(self, heads)
        return self.edges[heads]


def neighbours(related: Tensor, packing: Packing, c: int) -> Neighbours:
    """Return the lists of a symmetric relation (B, N, N) of packed nodes, of which none has more than c neighbours."""
    N, device = related.shape[1], related.device
    total = packing.tokens
    cells = torch.arange(total, device=device) if packing.cells is None else packing.cells
    place = torch.zeros(related.shape[0] * N, dtype=torch.long, device=device).index_copy_(
        0, cells, torch.arange(total, device=device)
    )
    found = related.flatten(0, 1)[cells]
    row, key = found.nonzero(as_tuple=True)
    key = place[cells[row] // N * N + key]
    degree = found.sum(1)
    edge = row * c + torch.arange(len(row), device=device) - (degree.cumsum(0) - degree)[row]
    turned = edge[torch.argsort(key * total + row, stable=True)]  # for i → j, j → i: the relation is symmetric
    keys, arriving = edge.new_zeros(total * c), edge.new_full((total * c,), total * c)
    keys[edge], arriving[edge] = key, turned
    real = torch.arange(c, device=device) < degree.unsqueeze(1)
    return Neighbours(keys.view(-1, c), real, arriving.view(-1, c))


def _edges(lists: Neighbours, heads: int) -> Edges:
    (R, c), device = lists.keys.shape, lists.keys.device
    head = torch.arange(heads, device=device).unsqueeze(1)

    def rows(node: Tensor) -> Tensor:
        return (node.unsqueeze(1) * heads + head).flatten(0, 1).int()

    missing = lists.arriving == R * c
    arriving = lists.arriving.masked_fill(missing, 0)
    queries, row = rows(arriving // c), torch.arange(R * heads, dtype=torch.int32, device=device)
    slot, missing = (x.repeat_interleave(heads, 0) for x in (arriving % c, missing))
    edge = queries * c + slot.int()
    return Edges(rows(lists.keys), row * c, row.repeat_interleave(c), queries, edge, missing)


def _dots(edges: Edges, q: Tensor, k: Tensor) -> Tensor:
    """Return q_i · k_j for each edge i → j, (rows, c): torch's gradient of a weighted sum to its weights."""
    # torch up to 2.13 has no kernel for bfloat16 on CUDA (pytorch/pytorch#185808)
    exact = (x.float() if x.is_cuda and x.dtype == torch.bfloat16 else x for x in (q, k))
    # a private operation: torch has no public one for products along lists without a copy of the gathered rows
    found = torch.ops.aten._embedding_bag_per_sample_weights_backward(
        *exact, edges.keys.flatten(), edges.start, edges.row, 0
    )
    return found.to(q.dtype).view(edges.keys.shape)


def _mix(keys: Tensor, weights: Tensor, v: Tensor) -> Tensor:
    """Return Σ_s w_is v_keys(i, s), (rows, dk), without a copy of the gathered rows."""
    return F.embedding_bag(keys, v, per_sample_weights=weights.contiguous(), mode="sum")


# _Dots and _Mix are gradients of each other along the edges. Nothing is scattered, so results do not depend on threads.
class _Dots(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(q, k)
        ctx.edges = edges
        return _dots(edges, q, k)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (q, k), edges = ctx.saved_tensors, ctx.edges
        return _mix(edges.keys, grad, k), _mix(edges.queries, edges.by_key(grad), q), None


class _Mix(Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, v: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(weights, v)
        ctx.edges = edges
        return _mix(edges.keys, weights, v)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (weights, v), edges = ctx.saved_tensors, ctx.edges
        grad = grad.contiguous()
        return _dots(edges, grad, v), _mix(edges.queries, edges.by_key(weights), grad), None


def dots(q: Tensor, k: Tensor, edges: Edges) -> Tensor:
    """Return the scores of neighbours: q (R, h, dk), k (K, h, dk) -> (R, h, c)."""
    return _Dots.apply(q.flatten(0, 1), k.flatten(0, 1), edges).unflatten(0, q.shape[:2])


def mix(weights: Tensor, v: Tensor, edges: Edges) -> Tensor:
    """Return the weighted sums of neighbours: weights (R, h, c), v (K, h, dk) -> (R, h, dk)."""
    return _Mix.apply(weights.flatten(0, 1).to(v.dtype), v.flatten(0, 1), edges).unflatten(0, weights.shape[:2])


class PhraseGraph(NamedTuple):
    """The nodes of a batch, and which of them contain one another; rows are the first R nodes, the queries."""

    valid: Tensor  # (B, N) booleans: a node, not padding
    related: Tensor  # (B, R, N) booleans: A of Eq 6; the diagonal is true, padding is related to itself alone
    incidence: Tensor  # (B, m, n) numbers: 1 where a phrase holds a word, else 0

    def first(self, rows: int) -> "PhraseGraph":
        """Return the graph of the first query rows."""
        return self._replace(related=self.related[:, :rows])


def phrase_graph(members: Tensor, lengths: Tensor, n: int) -> PhraseGraph:
    """Return the nodes and their containment (paper 000, Eq 4 and 6), over positions, not word types.

    members (B, m, k) integers with -1 for none; lengths (B); n the padded number of words. Two nodes are related if the
    words of one are a subset of the words of the other.

    Raises:
        ValueError: A position has no word in its sentence.
    """
    check_members(members, lengths)
    members = F.pad(members.long(), (0, int(not members.shape[2])), value=-1)
    (B, m, k), device = members.shape, members.device
    word = F.pad(torch.arange(n, device=device).view(1, n, 1), (0, k - 1), value=-1).expand(B, -1, -1)
    named = torch.cat([word, members], 1) + 1  # position + 1; 0, for none, counts as a word of every node
    # Eq 4: the nodes are the words, then the phrases
    holds = torch.zeros(B, n + m, n + 1, dtype=torch.bool, device=device).scatter(2, named, True)
    holds = F.pad(holds[..., 1:], (1, 0), value=True)
    valid = torch.cat([token_mask(lengths, n), (members >= 0).any(2)], 1)
    sentence, holders = torch.arange(B, device=device).unsqueeze(1), holds.transpose(1, 2).contiguous()
    contained = holders[sentence, named[..., 0]]
    # a node contains another one if it holds each of its words; one word at a time, which takes a k-th of the memory
    for other in named[..., 1:].unbind(2):
        contained &= holders[sentence, other]
    # Eq 6
    related = (contained | contained.transpose(1, 2)) & valid.unsqueeze(2) & valid.unsqueeze(1)
    # without it, the row of scores of a node of padding would be -inf alone, and its softmax NaN
    related |= torch.eye(n + m, dtype=torch.bool, device=device)
    return PhraseGraph(valid, related, holds[:, n:, 1:].float())


def members_of(phrases: Sequence[Sequence[Iterable[int]]]) -> Tensor:
    """Return the phrases of B sentences as encoders read them: positions of words (B, m, k), filled up with -1.

    Args:
        phrases: Positions of the words of each phrase, such as `range(start, end)` of a span.
    """
    rows = [[list(phrase) for phrase in row] for row in phrases]
    longest = max((len(phrase) for row in rows for phrase in row), default=1)
    most = max(map(len, rows), default=0)
    filled = [
        [phrase + [-1] * (longest - len(phrase)) for phrase in row] + [[-1] * longest] * (most - len(row))
        for row in rows
    ]
    return torch.tensor(filled, dtype=torch.int64).view(len(rows), most, longest)


def check_members(members: Tensor, lengths: Tensor) -> None:
    """ValueError: members are no integers (B, m, k), or a position is neither -1 nor a word of its sentence."""
    if not isinstance(members, Tensor):
        raise ValueError(f"members must be an integer tensor (B, m, k), -1 for none, not a {type(members).__name__}")
    if members.dim() != 3 or members.is_floating_point() or members.dtype == torch.bool:
        raise ValueError(f"members must be integers (B, m, k), not {tuple(members.shape)} of {members.dtype}")
    if members.shape[0] != lengths.shape[0]:  # not len, which torch.export takes for a constant
        raise ValueError(f"members of {members.shape[0]} sentences, but lengths of {lengths.shape[0]}")
    members = members.long()
    wrong = (members < -1) | (members >= lengths.view(-1, 1, 1))
    if not shapes_are_fixed() and wrong.any():
        sentence, phrase, word = wrong.nonzero()[0].tolist()
        words = int(lengths[sentence])
        raise ValueError(
            f"members[{sentence}, {phrase}, {word}]={int(members[sentence, phrase, word])}: must be -1, for none, or in "
            f"0..{words - 1} of a sentence of {words} words"
        )


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
        """words (B, n, d) -> hypernodes (B, m, d). ValueError: a phrase of more than `longest` words; if shapes are fixed, torch's own
        error."""
        size = graph.incidence.sum(-1).long()
        longest = self.table.num_embeddings + 1
        if not shapes_are_fixed() and size.numel() and int(size.max()) > longest:
            raise ValueError(f"longest={longest}: a phrase has {int(size.max())} words; raise `longest` of the encoder")
        return self.table((size - 2).clamp(min=0)) * (size > 0).unsqueeze(-1)
