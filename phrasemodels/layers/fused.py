"""Layers of the parser of paper 004 for use: the same functions in fewer and larger operations, equal up to rounding.

They have neither dropout nor gradient, and copies of the weights, so that the layer that each is made of can be trained further.
Shapes: B batch, N positions, d model width, h heads, dk width of a head, L labels, Q query rows.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.blocks import Sublayer
from phrasemodels.layers.labels import LearnedQueries, PerLabel, own_query
from phrasemodels.layers.partitioned import (
    PartitionedAttention,
    PartitionedFeedForward,
    PartitionedLinear,
    SharedAddNorm,
    StandardNorm,
)


class Fused(nn.Module):
    """A module whose tensors are computed from those of a trained one."""

    def keep(self, **tensors: Tensor | None) -> None:
        """Register tensors without gradient, which no file of weights has."""
        for name, tensor in tensors.items():
            self.register_buffer(name, None if tensor is None else tensor.detach().contiguous(), persistent=False)


class FusedNorm(Fused):
    """StandardNorm by torch's kernel of layer norms: a (x − mean) / (s + 1e-3) + b with s = √(d/(d−1)) / rstd."""

    weight: Tensor
    bias: Tensor

    def __init__(self, norm: StandardNorm) -> None:
        super().__init__()
        d = len(norm.weight)
        self.shape, self.ratio = [d], (d / (d - 1)) ** 0.5
        self.keep(weight=norm.weight, bias=norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        normed, _, rstd = torch.native_layer_norm(x, self.shape, None, None, 1e-20)
        return torch.addcmul(self.bias, normed.div_(rstd.mul_(1e-3).add_(self.ratio)), self.weight)


class FusedAddNorm(Fused):
    """LN(x + f(x))."""

    def __init__(self, residual: SharedAddNorm) -> None:
        super().__init__()
        self.norm = FusedNorm(residual.norm)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(x + sublayer(x))


class FusedHalves(Fused):
    """PartitionedLinear with halves of equal widths, as one product of a batch of two."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, linear: PartitionedLinear) -> None:
        super().__init__()
        parts = (linear.content, linear.position)
        bias = None if parts[0].bias is None else torch.stack([part.bias for part in parts])[:, None]
        self.keep(weight=torch.stack([part.weight.T for part in parts]), bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """The halves of x, (2, M, inputs) -> (2, M, outputs)."""
        return x @ self.weight if self.bias is None else torch.baddbmm(self.bias, x, self.weight)


def halves(x: Tensor) -> Tensor:
    """x (B, N, d) -> (2, B·N, d/2)."""
    return x.reshape(-1, 2, x.shape[-1] // 2).transpose(0, 1)


def whole(parts: Tensor, like: Tensor) -> Tensor:
    """parts (2, B·N, d/2) -> (B, N, d) like another tensor."""
    return parts.transpose(0, 1).reshape(like.shape)


class FusedFeedForward(Fused):
    """PartitionedFeedForward with halves of equal widths, without dropout."""

    def __init__(self, layer: PartitionedFeedForward) -> None:
        super().__init__()
        self.widen, self.narrow = map(FusedHalves, maps(layer))

    def forward(self, x: Tensor) -> Tensor:
        return whole(self.narrow(self.widen(halves(x)).relu_()), x)


class FusedAttention(Fused):
    """PartitionedAttention with one product for the queries, keys and values of all heads."""

    inner: Tensor

    def __init__(self, layer: PartitionedAttention) -> None:
        super().__init__()
        self.heads, self.scale, self.output = layer.heads, layer.scale, FusedHalves(layer.output)
        self.keep(inner=torch.cat([FusedHalves(part).weight for part in (layer.query, layer.key, layer.value)], 2))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x (B, N, d), valid (B, 1, 1, N) true for real positions -> (B, N, d)."""
        B, N, _ = x.shape
        inner = (halves(x) @ self.inner).view(2, B, N, 3, self.heads, -1)
        q, k, v = inner.permute(3, 1, 4, 2, 0, 5).flatten(4)  # (3, B, h, N, [content; position])
        found = F.scaled_dot_product_attention(q, k, v, valid, scale=self.scale)
        parts = found.unflatten(3, (2, -1)).permute(3, 0, 2, 1, 4).reshape(2, B * N, -1)
        return whole(self.output(parts), x)


def feed_forward(layer: PartitionedFeedForward) -> nn.Module:
    """Return the layer with halves of equal widths fused; that of the label layer has others."""
    widths = maps(layer)[0].widths
    return FusedFeedForward(layer) if widths[0] == widths[1] else layer


def maps(layer: PartitionedFeedForward) -> list[PartitionedLinear]:
    """Return the layer's first and last map."""
    return [part for part in layer if isinstance(part, PartitionedLinear)]


class FusedQueries(Fused):
    """LearnedQueries with queries that are the same in every sentence: each label's product with its matrix of keys is kept."""

    queries: Tensor
    content: Tensor
    position: Tensor

    def __init__(self, layer: LearnedQueries) -> None:
        super().__init__()
        value = layer.value
        self.keep(queries=layer.key.transposed(layer.query[None])[0], content=value.content, position=value.position)

    def scores(self, x: Tensor) -> Tensor:
        """x (B, N, d) -> scores (B, L, 1, N)."""
        return (self.queries @ x.transpose(1, 2))[:, :, None]

    def contexts(self, weights: Tensor, x: Tensor) -> Tensor:
        """weights (B, L, 1, N), x (B, N, d) -> (B, L, 1, dk)."""
        content, position = (weights[:, :, 0] @ x).transpose(0, 1).chunk(2, -1)
        return torch.cat([content @ self.content, position @ self.position], -1).transpose(0, 1)[:, :, None]


def learned_queries(layer: LearnedQueries) -> nn.Module:
    """Return the queries fused, unless they depend on the batch, as in the released code."""
    return FusedQueries(layer) if layer.align is own_query else layer


class FusedPerLabel(Fused):
    """PerLabel, whose output is computed in the order of words. Its projection and reduction of contexts are one map."""

    reduce: Tensor
    project: Tensor

    def __init__(self, layer: PerLabel) -> None:
        super().__init__()
        self.width, self.groups = layer.width, layer.groups
        self.norm = FusedNorm(layer.norm)
        self.keep(
            reduce=layer.reduce.weight,
            project=layer.reduce.weight @ torch.block_diag(layer.project.content.weight, layer.project.position.weight),
        )

    def forward(self, contexts: Tensor, x: Tensor) -> Tensor:
        """contexts (B, L, Q, dk), x (B, N, d) -> (B, N, width)."""
        o = F.linear(contexts, self.project).transpose(1, 2)
        return self.norm(o + F.linear(x, self.reduce)[:, :, None]).flatten(2)
