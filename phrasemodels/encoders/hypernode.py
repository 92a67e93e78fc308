"""The PhraseTransformer encoder of paper 000: attention over words and phrases in two phases.

`HypernodeEncoder.plain` follows the equations of the paper. `forward` computes the same result with less work. Eq 4 and 6,
the nodes and their relation A, are in `layers.phrases`.

Four things are saved. Nothing is computed for padding (`layers.blocks`). In the first layer, hypernodes that start as zeros
share one row until phase 2 (or dropout) makes them differ. In the last layer, phase 2 has only the words as queries. And for
nodes with few neighbours, phase 2 runs over lists of neighbours in place of all N² scores.

Shapes: B batch, n words, m hypernodes, N = n + m nodes (words first), R query rows, T packed nodes, d model width, h heads, dk =
d/h.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels import config
from phrasemodels.encoders import EncoderConfig, check_input
from phrasemodels.layers.attention import (
    SHORT,
    Activation,
    Attend,
    Drop,
    DroppedAttention,
    MultiHeadAttention,
    at_least_float32,
    identity,
    no_autocast_on_cpu,
    sigma_on_heads,
    softmax_attention,
    softmax_with_dropout,
)
from phrasemodels.layers.blocks import (
    AddNorm,
    Dropout,
    Packing,
    Replace,
    feed_forward,
    masked_softmax,
    pack_rows,
    shapes_are_fixed,
    true_places,
    untouched,
    without_padding,
)
from phrasemodels.layers.phrases import Neighbours, PhraseGraph, ZeroInit, dots, mix, neighbours, phrase_graph


def softmax_within(q: Tensor, k: Tensor, v: Tensor, graph: PhraseGraph, drop: Drop | None = None) -> Tensor:
    """Attend to related nodes alone: all other scores are -inf (one interpretation of Eq 5).

    q (B, h, R, dk); k, v (B, h, N, dk).
    """
    return softmax_attention(q, k, v, graph.related.unsqueeze(1), drop)


def softmax_hadamard(q: Tensor, k: Tensor, v: Tensor, graph: PhraseGraph, drop: Drop | None = None) -> Tensor:
    """Return softmax((QKᵀ/√dk) ∘ A)V as Eq 5 is printed. Shapes as in `softmax_within`.

    An unrelated node has the score 0, hence a weight in proportion to e⁰ = 1. Only padding is left out.
    """
    with no_autocast_on_cpu(q):
        q, k, v = at_least_float32(q, k, v)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 * graph.related.unsqueeze(1)
        weights = masked_softmax(scores, graph.valid[:, None, None], -1)
        return (weights if drop is None else drop(weights)) @ v


@dataclass(frozen=True)
class HypernodeEncoderConfig(EncoderConfig):
    """The encoder of paper 000. Where you can read the paper in several ways, a field chooses one.

    Args:
        longest: Words of the longest phrase. Only LengthEmbedding reads it.
        attend: softmax_within or softmax_hadamard.
        sigma: Activation after the second attention: torch.sigmoid, or identity (the Linear variant).
        readout: Place of the activation: sigma_on_heads, or sigma_on_projection (their output projection).
        residual: AddNorm, or Replace with d_ff=0 as the equations are printed.
        initialise: The first states of hypernodes, ZeroInit, MeanInit or LengthEmbedding.
        attention_dropout: Dropout of the weights of both attentions.
    """

    longest: int = 2
    attend: Attend = softmax_within
    sigma: Activation = torch.sigmoid
    readout: Callable[..., Tensor] = sigma_on_heads
    residual: Callable[[int, float], nn.Module] = AddNorm
    initialise: Callable[[int, int], nn.Module] = ZeroInit
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        config.at_least(self, 2, "longest")
        config.share(self, "attention_dropout")

    def build(self) -> "HypernodeEncoder":
        return HypernodeEncoder(self)


class RelatedAttention(MultiHeadAttention):
    """Attention to related nodes (phase 2, Eq 5), with σ."""

    def __init__(self, config: HypernodeEncoderConfig) -> None:
        super().__init__(config.d, config.heads, config.attend, config.sigma, config.readout)
        drop = Dropout(config.attention_dropout)
        self.drop = nn.ModuleList([drop] if config.attention_dropout else [])

    def attend_heads(self, queries: Tensor, keys: Tensor, values: Tensor, *masks: Any) -> Tensor:
        return super().attend_heads(queries, keys, values, *masks, *self.drop)

    def over_nodes(self, x: Tensor, nodes: "Nodes", rows: "NodeRows", words_only: bool) -> Tensor:
        """Attend from all nodes, or from the words alone: x (rows, d), rows for all nodes -> (queries, d)."""
        if words_only:
            (q,) = self.projected(rows.words_of(x), self.query).unbind(1)
            k, v = rows.spread(self.projected(x, self.key, self.value)).unbind(1)
            queries, graph = nodes.words, nodes.graph.first(nodes.n)
        else:
            q, k, v = rows.spread(self.projected(x, self.query, self.key, self.value)).unbind(1)
            queries, graph = nodes.packing, nodes.graph
        over_lists = LISTS.get(self.attend)  # a probe replaces `attend`, and gets all scores
        if nodes.lists is not None and over_lists is not None:
            lists = nodes.lists_of_words if words_only else nodes.lists
            q, k, v = (x.float() if x.dtype in SHORT else x for x in (q, k, v))  # products along lists need it
            with no_autocast_on_cpu(q):
                heads = over_lists(q, k, v, lists, nodes.packing, *self.drop)
            return self.read(heads.flatten(1))
        q, k, v = (side.pad(x).transpose(1, 2) for side, x in ((queries, q), (nodes.packing, k), (nodes.packing, v)))
        return queries.pack(self.attend_heads(q, k, v, graph))


class HypernodeLayer(nn.Module):
    """One layer: U = LN(H + Drop(across(H))); V = LN(U + Drop(inside(U, A))); result LN(V + Drop(FFN(V))).

    `across` is attention over all nodes (phase 1), `inside` attention to related nodes (phase 2, Eq 5).
    """

    def __init__(self, config: HypernodeEncoderConfig) -> None:
        super().__init__()
        self.across = MultiHeadAttention(config.d, config.heads, softmax_with_dropout(config.attention_dropout))
        self.inside = RelatedAttention(config)
        self.feed_forward = feed_forward(config.d, config.d_ff)
        self.residuals = nn.ModuleList(config.residual(config.d, config.dropout) for _ in range(3))

    def forward(self, nodes: Tensor, graph: PhraseGraph) -> Tensor:
        """nodes (B, N, d) -> (B, N, d)."""
        valid = graph.valid[:, None, None, :]
        nodes = self.residuals[0](nodes, lambda x: self.across(x, x, valid))  # phase 1, all pairs of nodes: Eq 2, 3
        nodes = self.residuals[1](nodes, lambda x: self.inside(x, x, graph))  # phase 2, related nodes: Eq 5, 7
        return self.residuals[2](nodes, self.feed_forward)

    def packed(self, x: Tensor, nodes: "Nodes", rows: "NodeRows", words_only: bool) -> Tensor:
        """Compute `forward` from rows x (rows, d) for all packed nodes; return the nodes, or the words alone."""
        first, second, third = self.residuals
        # phase 1: Eq 2 and 3
        x = first(x, lambda y: self.across.packed(y, rows.packing))
        own = rows.words_of(x) if words_only else rows.spread(x)
        # phase 2: Eq 5 and 7; queries are the nodes of `own`
        return third(second(own, lambda _: self.inside.over_nodes(x, nodes, rows, words_only)), self.feed_forward)

    @property
    def is_known(self) -> bool:
        """Whether `packed` computes what calls of the modules of this layer do: no residual changes the input of a sublayer."""
        parts = untouched(self.across, MultiHeadAttention) and untouched(self.inside, RelatedAttention)
        known = parts and untouched(self, HypernodeLayer)
        return known and all(untouched(residual, AddNorm, Replace) for residual in self.residuals)

    @property
    def keeps_rows_equal(self) -> bool:
        """Whether equal hypernodes are so until phase 2: each row is computed alone, by known modules, and nothing drops out."""
        inside, attend = self.inside, self.across.attend
        parts = [*self.across.modules(), *self.residuals[0].modules(), inside.query, inside.key, inside.value]
        kinds = MultiHeadAttention, DroppedAttention, AddNorm, Replace, nn.Linear, nn.LayerNorm
        return (attend is softmax_attention or isinstance(attend, DroppedAttention)) and all(
            untouched(part, *kinds) or (untouched(part, Dropout, nn.Dropout) and not (part.training and part.p))
            for part in parts
        )


class HypernodeEncoder(nn.Module):
    """Algorithm 1: words and hypernodes, layer upon layer. The rows of the words are the output."""

    has_fixed_shapes = True  # as of models.translation.Translator

    def __init__(self, config: HypernodeEncoderConfig) -> None:
        super().__init__()
        self.width = config.d
        self.initialise = config.initialise(config.d, config.longest)
        self.layers = nn.ModuleList(HypernodeLayer(config) for _ in range(config.layers))

    def plain(self, words: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """Run Algorithm 1 as printed. Arguments and result as in `forward`."""
        lengths = check_input(words, lengths, self.width)
        words, graph = without_padding(words, lengths), phrase_graph(members, lengths, words.shape[1])
        nodes = torch.cat([words, self.initialise(words, graph)], 1)
        for layer in self.layers:
            nodes = layer(nodes, graph)
        return nodes[:, : words.shape[1]]

    def forward(self, words: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """Return the states of the words, equal to `plain` up to rounding, but faster.

        With fixed shapes it is `plain`: then no step depends on the data. So it is if a layer was replaced or has a hook.

        Shape:
            words (B, n, d), lengths (B), members (B, m, k) with -1 for none -> (B, n, d).
        """
        lengths = check_input(words, lengths, self.width)
        layers = [*self.layers]
        if shapes_are_fixed() or not all(isinstance(layer, HypernodeLayer) and layer.is_known for layer in layers):
            return without_padding(self.plain(words, lengths, members), lengths)
        nodes = Nodes(phrase_graph(members, lengths, words.shape[1]))
        if untouched(self.initialise, ZeroInit) and members.shape[1] and layers[0].keeps_rows_equal:
            rows = nodes.shared()
            x = rows.packing.pack(F.pad(words, (0, 0, 0, 1)))
        else:
            rows = nodes.each
            # MeanInit multiplies by 0, which leaves a NaN of the padding
            initial = self.initialise(without_padding(words, lengths), nodes.graph)
            x = rows.packing.pack(torch.cat([words, initial.to(words.dtype)], 1))
        for layer in layers:
            x, rows = layer.packed(x, nodes, rows, layer is layers[-1]), nodes.each
        return nodes.words.pad(x)


# with fewer nodes per neighbour, all scores take less time than lists (benchmarks/layers.py)
NODES_PER_NEIGHBOUR = 6


class NodeRows(NamedTuple):
    """The packed rows for the T packed nodes: one row per node, or the words and one row for all hypernodes.

    The second is exact while the hypernodes are equal. m equal keys weigh as much as one key with log m added to its score,
    and equal queries get equal answers.
    """

    packing: Packing
    spread: Callable[[Tensor], Tensor]  # (rows, ...) -> (T, ...)
    words: Tensor  # the rows of the words

    def words_of(self, x: Tensor) -> Tensor:
        """x (rows, d) -> the rows of the words."""
        return pack_rows(x, self.words)


class Nodes:
    """The packed nodes of a batch: words and hypernodes, sentence by sentence, and how they are related."""

    def __init__(self, graph: PhraseGraph) -> None:
        self.graph, self.n = graph, graph.incidence.shape[2]
        self.packing, self.words = Packing(graph.valid), Packing(graph.valid[:, : self.n])
        is_word = torch.arange(graph.valid.shape[1], device=graph.valid.device) < self.n
        self.word_rows = true_places(self.packing.pack(is_word.expand_as(graph.valid)), self.words.tokens)
        self.each = NodeRows(self.packing, identity, self.word_rows)
        N = graph.related.shape[1]
        # waits for the GPU, once a batch: whether lists are made depends on it
        most = int(graph.related.sum(2).max()) if graph.related.numel() else N
        short = most > 0 and most * NODES_PER_NEIGHBOUR <= N
        self.lists = neighbours(graph.related, self.packing, most) if short else None

    @cached_property
    def lists_of_words(self) -> Neighbours:
        """The neighbours of the words alone."""
        assert self.lists is not None
        return self.lists.of_queries(self.word_rows)

    def shared(self) -> NodeRows:
        """Return one row per word, and one for all hypernodes of a sentence."""
        valid, n = self.graph.valid, self.n
        count = valid[:, n:].sum(1, keepdim=True)
        real = torch.cat([valid[:, :n], count > 0], 1)
        packing = Packing(real)
        # 0 for a word, log m for the row that stands for m hypernodes
        packing.scores = packing.pack(torch.cat([valid[:, :n].double(), count.double()], 1)).log()
        place = real.flatten().cumsum(0).view_as(real) - 1
        of_node = self.packing.pack(torch.cat([place[:, :n], place[:, n:].expand(-1, valid.shape[1] - n)], 1))
        is_word = torch.arange(n + 1, device=valid.device) < n
        words = true_places(packing.pack(is_word.expand_as(real)), self.words.tokens)
        return NodeRows(packing, lambda x: x.index_select(0, of_node), words)


def softmax_over_lists(
    q: Tensor, k: Tensor, v: Tensor, lists: Neighbours, packing: Packing, drop: Drop | None = None
) -> Tensor:
    """Compute `softmax_within` over lists of neighbours: q (R, h, dk); k, v (T, h, dk) -> (R, h, dk)."""
    edges = lists.of_heads(q.shape[1])
    scores = dots(q, k, edges) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~lists.real.unsqueeze(1), float("-inf")).softmax(-1)
    return mix(weights if drop is None else drop(weights), v, edges)


def hadamard_over_lists(
    q: Tensor, k: Tensor, v: Tensor, lists: Neighbours, packing: Packing, drop: Drop | None = None
) -> Tensor:
    """Compute `softmax_hadamard` over lists of neighbours. Shapes as in `softmax_over_lists`.

    An unrelated node has the weight 1. So the sum over all nodes is Σ (eˢ - 1) v over the neighbours and Σ v over all nodes.
    If all nodes are neighbours, it is Σ eˢ v.
    """
    edges, known = lists.of_heads(q.shape[1]), lists.real.unsqueeze(1)
    scores = (dots(q, k, edges) / q.shape[-1] ** 0.5).masked_fill(~known, float("-inf"))
    sentence = packing.sentences[lists.keys[:, 0]]
    unrelated = packing.counts.to(v.dtype)[sentence][:, None, None] - known.sum(-1, keepdim=True)
    highest = scores.detach().amax(-1, keepdim=True)
    # the scores of unrelated nodes, 0, take part in the maximum that keeps exp from overflowing
    highest = torch.where(unrelated > 0, highest.clamp(min=0), highest)
    one, near = torch.where(unrelated > 0, (-highest).exp(), 0), (scores - highest).exp()
    more = mix((near - one).masked_fill(~known, 0), v, edges)
    total = packing.pad(v).sum(1).index_select(0, sentence)  # a sum in pairs, which a matrix product does not promise
    return (more + one * total) / (near.sum(-1, keepdim=True) + one * unrelated)


LISTS: Mapping[Attend, Callable[..., Tensor]] = {
    softmax_within: softmax_over_lists,
    softmax_hadamard: hadamard_over_lists,
}
