"""The parser of paper 004 for use: the same function in fewer and larger operations, equal up to rounding.

Its layers have neither dropout nor gradient, and copies of the weights, so you can train the original layers further. Shapes:
B batch, n words, N = n + 2 positions, D width of a fencepost, L labels, d model width, h heads, dk width of a head, Q query
rows.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders.inputs import CharacterInput, ParserInput
from phrasemodels.layers.blocks import Dropout, Sublayer, untouched
from phrasemodels.layers.labels import LabelMatrices, LearnedQueries, PerLabel, Weigh, own_query
from phrasemodels.layers.partitioned import (
    PartitionedAttention,
    PartitionedLinear,
    SharedAddNorm,
    SharedDropout,
    StandardNorm,
)
from phrasemodels.layers.scorers import HeadDependentMLP, Look, RelationScorer, SpanScorer, from_head


class Fused(nn.Module):
    """A module with tensors computed from a trained module."""

    def keep(self, **tensors: Tensor | None) -> None:
        """Register tensors without gradient. No file of weights has them."""
        for name, tensor in tensors.items():
            self.register_buffer(name, None if tensor is None else tensor.detach().contiguous(), persistent=False)


class FusedLinear(Fused):
    """x Wᵀ + b."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.keep(weight=weight, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def linear(layer: nn.Linear) -> FusedLinear:
    """Return a linear layer fused."""
    return FusedLinear(layer.weight, layer.bias)


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


class FusedAttention(Fused):
    """PartitionedAttention with two products, of content and of position, for the queries, keys and values of all heads."""

    def __init__(self, layer: PartitionedAttention) -> None:
        super().__init__()
        self.heads, self.scale, self.output = layer.heads, layer.scale, fused(layer.output)
        sides = [
            [getattr(part, side) for part in (layer.query, layer.key, layer.value)] for side in ("content", "position")
        ]
        self.inner = nn.ModuleList(FusedLinear(torch.cat([part.weight for part in side])) for side in sides)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x (B, N, d), valid (B, 1, 1, N) true for real positions -> (B, N, d)."""
        parts = zip(self.inner, x.chunk(2, -1), strict=True)
        inner = torch.cat([product(part).unflatten(-1, (3, self.heads, -1)) for product, part in parts], -1)
        q, k, v = inner.permute(2, 0, 3, 1, 4)  # (3, B, h, N, [content; position])
        found = F.scaled_dot_product_attention(q, k, v, valid, scale=self.scale)
        content, position = found.transpose(1, 2).chunk(2, -1)
        joined: Tensor = self.output(torch.cat([content.flatten(2), position.flatten(2)], -1))
        return joined


class FusedQueries(Fused):
    """LearnedQueries with the same queries in every sentence. Each label's product with its matrix of keys is kept."""

    queries: Tensor
    content: Tensor
    position: Tensor

    def __init__(self, layer: LearnedQueries) -> None:
        super().__init__()
        value = layer.value
        self.keep(queries=layer.key.transposed(layer.query[None])[0], content=value.content, position=value.position)

    def forward(self, x: Tensor, weigh: Weigh) -> Tensor:
        """x (B, N, d) -> contexts (B, L, 1, dk)."""
        return self.contexts(weigh(self.scores(x)), x)

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
    """PerLabel with its output in the order of words. Its projection and reduction of contexts are one map."""

    def __init__(self, layer: PerLabel) -> None:
        super().__init__()
        self.width, self.groups = layer.width, layer.groups
        self.norm = FusedNorm(layer.norm)
        project = torch.block_diag(layer.project.content.weight, layer.project.position.weight)
        self.reduce, self.project = FusedLinear(layer.reduce.weight), FusedLinear(layer.reduce.weight @ project)

    def forward(self, contexts: Tensor, x: Tensor) -> Tensor:
        """contexts (B, L, Q, dk), x (B, N, d) -> (B, N, width)."""
        o = self.project(contexts).transpose(1, 2)
        return self.norm(o + self.reduce(x)[:, :, None]).flatten(2)


Module = TypeVar("Module", bound=nn.Module)
ROWS = 64  # heads whose relations are scored together: what lies between two products then fits the cache
SPANS = 1024  # spans that are scored together


class FusedCharacters(Fused):
    """CharacterInput by a table: a filter's sum over a window has one row for each place and character."""

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


class FusedSpans(Fused):
    """SpanScorer. The last map has a row of zeros for the empty label, so its rows are the chart's."""

    bias: Tensor

    def __init__(self, layer: SpanScorer) -> None:
        super().__init__()
        self.norm, self.project = FusedNorm(layer.norm), FusedLinear(layer.project.weight)
        self.keep(bias=layer.bias)
        self.labels = FusedLinear(F.pad(layer.output.weight, (0, 0, 1, 0)), F.pad(layer.output.bias, (1, 0)))

    def forward(self, posts: Tensor) -> Tensor:
        """posts (B, n+1, D) -> scores (B, n, n, L) of words i..j, both included; 0 where i > j."""
        starts = self.project(posts)
        ends = starts + self.bias
        B, n = len(posts), posts.shape[1] - 1
        i, j = torch.triu_indices(n, n, device=posts.device)
        places, j = i * n + j, j + 1
        scores = posts.new_zeros(B, n * n, len(self.labels.weight))
        together = max(1, SPANS // max(1, len(places)))  # sentences whose hidden units fit the cache
        for some in (slice(first, first + together) for first in range(0, B, together)):
            hidden = self.norm(ends[some, j].sub_(starts[some, i])).relu_()
            scores[some].index_copy_(1, places, self.labels(hidden))
        return scores.view(B, n, n, -1)


class FusedRelations(Fused):
    """RelationScorer with its weights in reading order. Their transposition takes as long as the product.

    The product with a head is made once for all of its dependents, half of the time. Positions without a head score 0.
    """

    def __init__(self, layer: RelationScorer) -> None:
        super().__init__()
        self.pairs, self.relations = fused(layer.pairs), len(layer.weight)
        self.ways = FusedLinear(layer.weight.transpose(0, 1).flatten(1).T)

    def forward(self, posts: Tensor, heads: Tensor, look: Look) -> Tensor:
        """posts (B, n+1, D), heads (B, n+1), look = from_head or from_itself -> scores (B, n+1, relations)."""
        head, dependent = (F.pad(x, (0, 1), value=1.0).flatten(0, 1) for x in self.pairs(posts))
        sentence = torch.arange(len(heads), device=heads.device)[:, None] * heads.shape[1]
        words = (heads >= 0).flatten().nonzero()[:, 0]
        if not len(words):
            return posts.new_zeros(*heads.shape, self.relations)
        position = torch.arange(heads.shape[1], device=heads.device).expand_as(heads)
        above, order = ((heads if look is from_head else position) + sentence).flatten()[words].sort()
        words, (heads_once, counts) = words[order], torch.unique_consecutive(above, return_counts=True)
        found = posts.new_empty(len(words), self.relations)
        parts = (x.split(ROWS) for x in (heads_once, counts))
        first = 0
        for some, own in zip(*parts, strict=True):
            ways = self.ways(head[some]).unflatten(1, (self.relations, -1))
            group = torch.arange(len(own), device=own.device).repeat_interleave(own)
            last = first + len(group)
            place = torch.arange(last - first, device=own.device) - (own.cumsum(0) - own)[group]
            children = dependent.new_zeros(len(own), int(own.max()), dependent.shape[1])
            children[group, place] = dependent[words[first:last]]
            found[first:last] = (children @ ways.transpose(1, 2))[group, place]
            first = last
        scores = posts.new_zeros(len(head), self.relations)
        return scores.index_copy_(0, words, found).unflatten(0, heads.shape)


FORMS: Mapping[type[nn.Module], Callable[[Any], nn.Module]] = {
    nn.Linear: linear,
    StandardNorm: FusedNorm,
    SharedAddNorm: FusedAddNorm,
    PartitionedAttention: FusedAttention,
    PerLabel: FusedPerLabel,
    CharacterInput: FusedCharacters,
    RelationScorer: FusedRelations,
    SpanScorer: FusedSpans,
    LearnedQueries: learned_queries,
}
PARTS = LabelMatrices, PartitionedLinear, SharedDropout, Dropout, HeadDependentMLP, nn.Embedding, nn.Conv1d


@torch.no_grad()
def fused(module: Module) -> Module:
    """Replace the untouched parts of a module known to FORMS, and share all others. The module must be in evaluation mode."""
    made: Any = FORMS.get(type(module))
    if made is not None and all(untouched(part, *FORMS, *PARTS) for part in module.modules()):
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
