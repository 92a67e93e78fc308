"""A trained parser for use: the same function in fewer and larger operations, equal up to rounding.

A sentence costs 680 operations of torch as the parser is trained, most of which take longer to call than to compute, and 430
as `fused` returns it. Shapes: B batch, n words, N = n + 2 positions, D width of a fencepost, L labels.

Layers of the parser of paper 004 for use: the same functions in fewer and larger operations, equal up to rounding.

They have neither dropout nor gradient, and copies of the weights, so that the layer that each is made of can be trained further.
Shapes: B batch, N positions, d model width, h heads, dk width of a head, L labels, Q query rows.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders.inputs import CharacterInput, ParserInput
from phrasemodels.layers.blocks import Sublayer, sinusoids
from phrasemodels.layers.labels import LearnedQueries, PerLabel, own_query
from phrasemodels.layers.partitioned import (
    PartitionedAttention,
    PartitionedFeedForward,
    PartitionedLinear,
    SharedAddNorm,
    StandardNorm,
)
from phrasemodels.layers.scorers import HeadDependentMLP, Look, RelationScorer, SpanScorer, from_head
from phrasemodels.models.parser import Sinusoids


class Fused(nn.Module):
    """A module whose tensors are computed from a trained one's."""

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
        # normed = (x − mean) · rstd, and rstd · (s + 1e-3) = ratio + 1e-3 · rstd
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
    """Return the layer with halves of equal widths fused; the label layer has others."""
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


Module = TypeVar("Module", bound=nn.Module)
ROWS = 64  # heads whose relations are scored together: what lies between two products then fits the cache
POSITIONS = 512  # of the table of sinusoids; positions after it are computed


class FusedCharacters(Fused):
    """CharacterInput: a filter's sum over a window is one of rows that are looked up, one row for each place and character."""

    table: Tensor
    bias: Tensor
    places: Tensor

    def __init__(self, layer: CharacterInput) -> None:
        super().__init__()
        width, self.outside = layer.filters.kernel_size[0], len(layer.table.weight)
        self.reach, self.project = width // 2, layer.project
        letters = F.pad(layer.table.weight, (0, 0, 0, 1))  # the last is 0: what lies outside of the form
        rows = torch.einsum("sd,fdw->wsf", letters, layer.filters.weight).flatten(0, 1)
        places = torch.arange(width, device=rows.device) * len(letters)
        self.keep(table=rows, bias=layer.filters.bias, places=places)

    def forward(self, sentences: ParserInput) -> Tensor:
        letters = sentences.characters
        windows = (
            F.pad(letters, (self.reach, self.reach), value=self.outside).unfold(1, 2 * self.reach + 1, 1) + self.places
        )
        filtered = F.embedding_bag(windows.flatten(0, 1), self.table, mode="sum").add_(self.bias).relu_()
        filtered = filtered.unflatten(0, letters.shape).masked_fill_((letters == 0)[..., None], 0.0)
        found: Tensor = self.project(filtered.amax(1))[sentences.forms]
        return found


class FusedPositions(Fused):
    """Sinusoids, from a table."""

    table: Tensor

    def __init__(self, layer: Sinusoids) -> None:
        super().__init__()
        self.layer = layer
        self.keep(table=sinusoids(torch.arange(POSITIONS), layer.d))

    def forward(self, n: int, device: torch.device) -> Tensor:
        """Return the vectors of positions 0 to n − 1, (n, d)."""
        return self.table[:n].to(device) if n <= POSITIONS else self.layer(n, device)


class FusedPairs(Fused):
    """HeadDependentMLP as one map."""

    weight: Tensor
    bias: Tensor

    def __init__(self, layer: HeadDependentMLP) -> None:
        super().__init__()
        pair = (layer.head, layer.dependent)
        self.keep(weight=torch.cat([part.weight for part in pair]), bias=torch.cat([part.bias for part in pair]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, N, D) -> the words as heads and as dependents, each (B, N, hidden)."""
        head, dependent = F.linear(x, self.weight, self.bias).relu_().chunk(2, -1)
        return head, dependent


class FusedSpans(Fused):
    """SpanScorer; the last map has a row of zeros for the empty label, so that its rows are the chart's."""

    weight: Tensor
    bias: Tensor
    labels: Tensor
    label_bias: Tensor

    def __init__(self, layer: SpanScorer) -> None:
        super().__init__()
        self.norm = FusedNorm(layer.norm)
        last = (F.pad(layer.output.weight, (0, 0, 1, 0)), F.pad(layer.output.bias, (1, 0)))
        self.keep(weight=layer.project.weight, bias=layer.bias, labels=last[0], label_bias=last[1])

    def forward(self, posts: Tensor) -> Tensor:
        """posts (B, n+1, D) -> scores (B, n, n, L) of words i..j, both included; 0 where i > j."""
        starts = F.linear(posts, self.weight)
        ends = starts + self.bias
        B, n = len(posts), posts.shape[1] - 1
        i, j = torch.triu_indices(n, n, device=posts.device)
        places, j = i * n + j, j + 1
        scores = posts.new_zeros(B, n * n, len(self.labels))
        for row in range(B):  # one sentence at a time, to limit the memory of hidden units
            hidden = self.norm(ends[row, j].sub_(starts[row, i])).relu_()
            scores[row].index_copy_(0, places, torch.addmm(self.label_bias, hidden, self.labels.T))
        return scores.view(B, n, n, -1)


class FusedRelations(Fused):
    """RelationScorer with its weights in the order in which they are read; their transposition takes as long as the product.
    The product with a head is made once for all of its dependents, which is half of the time; positions without a head score 0.
    """

    ways: Tensor

    def __init__(self, layer: RelationScorer) -> None:
        super().__init__()
        self.pairs, self.relations = FusedPairs(layer.pairs), len(layer.weight)
        self.keep(ways=layer.weight.transpose(0, 1).flatten(1))

    def forward(self, posts: Tensor, heads: Tensor, look: Look) -> Tensor:
        """posts (B, n+1, D), heads (B, n+1), look = from_head or from_itself -> scores (B, n+1, relations)."""
        head, dependent = (F.pad(x, (0, 1), value=1.0).flatten(0, 1) for x in self.pairs(posts))
        sentence = torch.arange(len(heads), device=heads.device)[:, None] * heads.shape[1]
        words = (heads >= 0).flatten().nonzero()[:, 0]
        position = torch.arange(heads.shape[1], device=heads.device).expand_as(heads)
        above, order = ((heads if look is from_head else position) + sentence).flatten()[words].sort()
        words, (heads_once, counts) = words[order], torch.unique_consecutive(above, return_counts=True)
        found = posts.new_empty(len(words), self.relations)
        parts = (x.split(ROWS) for x in (heads_once, counts))
        first = 0
        for some, own in zip(*parts, strict=True):
            ways = (head[some] @ self.ways).unflatten(1, (self.relations, -1)).repeat_interleave(own, 0)
            last = first + len(ways)
            torch.bmm(ways, dependent[words[first:last], :, None], out=found[first:last, :, None])
            first = last
        scores = posts.new_zeros(len(head), self.relations)
        return scores.index_copy_(0, words, found).unflatten(0, heads.shape)


FORMS: Mapping[type[nn.Module], Callable[[Any], nn.Module]] = {
    StandardNorm: FusedNorm,
    SharedAddNorm: FusedAddNorm,
    PartitionedFeedForward: feed_forward,
    PartitionedAttention: FusedAttention,
    PerLabel: FusedPerLabel,
    CharacterInput: FusedCharacters,
    Sinusoids: FusedPositions,
    HeadDependentMLP: FusedPairs,
    RelationScorer: FusedRelations,
    SpanScorer: FusedSpans,
    LearnedQueries: learned_queries,
}


@torch.no_grad()
def fused(module: Module) -> Module:
    """Return a module with the parts that FORMS knows replaced; all others are shared with the module that was given,
    which has to be in evaluation mode."""
    made: Any = FORMS.get(type(module))
    if made is not None:
        replaced: Module = made(module)
        return replaced.eval()
    parts = {name: None if part is None else fused(part) for name, part in module._modules.items()}
    if all(part is module._modules[name] for name, part in parts.items()):
        return module
    # shallow, with a dict of parts of its own: the weights are shared, the module that was given stays as it is
    copied = copy.copy(module)
    copied._modules = parts
    copied.training = False
    return copied
