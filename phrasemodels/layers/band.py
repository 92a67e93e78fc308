"""Attention to few: sums over the related nodes alone, as gathered lists (paper 000, phase 2).

A node of paper 000 is related to at most 3 (k=2) or 6 (k=3) of N, so that of N² scores nearly all are known beforehand.
Shapes: B batch, h heads, R query rows, K key rows, c most neighbours of a node, dk width of a head.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F


class Edges(NamedTuple):
    """A band over rows of one head each, as they lie in memory: (B·R·h) of queries, (B·K·h) of keys."""

    to: Tensor  # (B·R·h, c) rows of keys
    first: Tensor  # (B·R·h) edges before those of a row
    row: Tensor  # (B·R·h·c) the row of each edge
    of: Tensor  # (B·K·h, c) rows of queries, for the way back
    edge: Tensor  # (B·K·h, c) where the weights of these stand among all
    none: Tensor  # (B·K·h, c) booleans: there is none

    def reverse(self, weights: Tensor) -> Tensor:
        """Numbers of edges (B·R·h, c) in order of arrival (B·K·h, c)."""
        return weights.flatten()[self.edge].masked_fill_(self.none, 0)


@dataclass(frozen=True, eq=False)
class Band:
    """Who is related to whom, as lists. An edge is numbered query · c + slot."""

    to: Tensor  # (B, R, c) the keys of a query, ascending; any key where there is none
    real: Tensor  # (B, R, c) booleans: there is one
    back: Tensor  # (B, K, c) the edges that arrive at a key, by query; R · c where there is none
    made: dict[int, Edges] = field(default_factory=dict)  # by number of heads: the same in every layer

    def first(self, rows: int) -> "Band":
        """The same for the first query rows only."""
        return Band(self.to[:, :rows], self.real[:, :rows], self.back.clamp(max=rows * self.to.shape[2]))

    def over(self, heads: int) -> Edges:
        """The lists of every head."""
        if heads not in self.made:
            self.made[heads] = _edges(self, heads)
        return self.made[heads]


def band(related: Tensor, c: int) -> Band:
    """Lists of a symmetric relation (B, N, N) in which nobody has more than c neighbours."""
    B, N, _ = related.shape
    degree = related.sum(-1).flatten()
    row, key = related.flatten(0, 1).nonzero(as_tuple=True)
    edge = row * c + torch.arange(len(row), device=row.device) - (degree.cumsum(0) - degree)[row]
    turned = edge[torch.argsort(row // N * N + key, stable=True)]  # of i, j the edge of j, i: the relation is symmetric
    to, back = edge.new_zeros(B * N * c), edge.new_full((B * N * c,), N * c)
    to[edge], back[edge] = key, turned - row // N * (N * c)
    real = torch.arange(c, device=row.device) < degree.unsqueeze(-1)
    return Band(to.view(B, N, c), real.view(B, N, c), back.view(B, N, c))


def _edges(lists: Band, heads: int) -> Edges:
    (B, R, c), K, device = lists.to.shape, lists.back.shape[1], lists.to.device
    sentence, head = torch.arange(B, device=device).view(B, 1, 1, 1), torch.arange(heads, device=device).unsqueeze(1)

    def rows(node: Tensor, count: int) -> Tensor:
        return ((sentence * count + node.unsqueeze(2)) * heads + head).view(-1, c).int()

    none = lists.back == R * c
    back = lists.back.masked_fill(none, 0)
    of, row = rows(back // c, R), torch.arange(B * R * heads, dtype=torch.int32, device=device)
    slot, none = (x.unsqueeze(2).expand(-1, -1, heads, -1).reshape(-1, c) for x in (back % c, none))
    edge = of * c + slot.int()
    return Edges(rows(lists.to, K), row * c, row.repeat_interleave(c), of, edge, none)


def _dots(along: Edges, q: Tensor, k: Tensor) -> Tensor:
    """q_i · k_to(i, s): what torch computes as the gradient of a weighted sum to its weights. (rows, c)."""
    return torch.ops.aten._embedding_bag_per_sample_weights_backward(
        q, k, along.to.flatten(), along.first, along.row, 0
    ).view(along.to.shape)


def _mix(to: Tensor, weights: Tensor, v: Tensor) -> Tensor:
    """Σ_s w_is v_to(i, s), without a copy of the gathered rows. (rows, dk)."""
    return F.embedding_bag(to, v, per_sample_weights=weights.contiguous(), mode="sum")


class _Dots(Function):
    """Each is the gradient of the other, forwards and backwards along the edges; no sum depends on an order of threads."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, along: Edges) -> Tensor:
        ctx.save_for_backward(q, k)
        ctx.along = along
        return _dots(along, q, k)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (q, k), along = ctx.saved_tensors, ctx.along
        return _mix(along.to, grad, k), _mix(along.of, along.reverse(grad), q), None


class _Mix(Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, v: Tensor, along: Edges) -> Tensor:
        ctx.save_for_backward(weights, v)
        ctx.along = along
        return _mix(along.to, weights, v)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (weights, v), along = ctx.saved_tensors, ctx.along
        grad = grad.contiguous()
        return _dots(along, grad, v), _mix(along.of, along.reverse(weights), grad), None


def flat(x: Tensor) -> Tensor:
    """(B, h, n, dk) -> (B·n·h, dk)."""
    return x.transpose(1, 2).reshape(-1, x.shape[-1])


def dots(q: Tensor, k: Tensor, along: Edges) -> Tensor:
    """Scores of related nodes: q (B, h, R, dk), k (B, h, K, dk) -> (B, R, h, c)."""
    B, h, R, _ = q.shape
    return _Dots.apply(flat(q), flat(k), along).view(B, R, h, -1)


def mix(weights: Tensor, v: Tensor, along: Edges) -> Tensor:
    """Sums of related nodes: weights (B, R, h, c), v (B, h, K, dk) -> (B, R, h, dk)."""
    B, R, h, c = weights.shape
    return _Mix.apply(weights.reshape(-1, c).to(v.dtype), flat(v), along).view(B, R, h, -1)
