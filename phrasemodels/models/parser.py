"""The Label Attention Layer parser (paper 004): phrase structure and dependencies of a sentence at once.

Shapes: B batch, n words, N = n + 2 positions, L labels (0 is empty, 1 is `<H>`), m cells.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders.inputs import CharactersConfig, InputConfig, Sentences, TagsConfig, WordsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoder, PartitionedEncoderConfig
from phrasemodels.layers.blocks import sinusoids
from phrasemodels.layers.partitioned import StandardNorm
from phrasemodels.layers.scorers import ArcScorer, Look, RelationScorer, SpanScorer, fenceposts, from_head
from phrasemodels.structs import eisner, joint, spans

EMPTY, GROUP = 0, 1


class Sinusoids(nn.Module):
    """Sinusoidal positions: no sentence is too long."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d

    def forward(self, n: int, device: torch.device) -> Tensor:
        return sinusoids(torch.arange(n, device=device), self.d)


class LearnedPositions(nn.Module):
    """A vector from N(0, 1) for each of 300 positions, after which they begin again: as released."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(300, d))

    def forward(self, n: int, device: torch.device) -> Tensor:
        return self.table[torch.arange(n, device=device) % len(self.table)]


@dataclass(frozen=True)
class ParserConfig:
    """The parser of paper 004; `encoder.top` None is the HPSG parser that it is compared with.

    inputs: what is known of a word. positions: Sinusoids or LearnedPositions. look: from_head (Eq 11), or from_itself
    as released. dependency_weight: what arc and relation losses weigh beside the margin (as released; Eq 12 has 1).
    tag_weight: the same for tags, which are predicted so that text without tags can be read; 0 for none. Sizes that
    are 0 come from the treebank.
    """

    encoder: PartitionedEncoderConfig = field(default_factory=PartitionedEncoderConfig)
    inputs: tuple[InputConfig, ...] = (WordsConfig(), CharactersConfig(), TagsConfig())
    positions: Callable[[int], nn.Module] = Sinusoids
    look: Look = from_head
    hidden: int = 250
    arc_hidden: int = 1024
    arc_dropout: float = 0.33
    dependency_weight: float = 0.5
    tag_weight: float = 0.5
    labels: int = 0
    relations: int = 0
    tags: int = 0

    def sized(self, sizes: dict[str, int]) -> "ParserConfig":
        """The sizes of a vocabulary: words, characters, tags, labels, relations."""
        encoder = self.encoder
        if encoder.top is not None and not encoder.top.labels:
            encoder = replace(encoder, top=replace(encoder.top, labels=sizes["labels"]))
        inputs = tuple(part.sized(sizes) for part in self.inputs)
        labels, relations, tags = (sizes[name] for name in ("labels", "relations", "tags"))
        return replace(self, encoder=encoder, inputs=inputs, labels=labels, relations=relations, tags=tags)

    def build(self) -> "Parser":
        return Parser(self)


class Gold(NamedTuple):
    """The trees that a parser learns: cells (B, m, 3) = (i, j, label) of labelled spans, words i..j, both included,
    -1 after the last; heads, relations and tags (B, n+1), -1 at the root, in the padding, and where there are none."""

    cells: Tensor
    heads: Tensor
    relations: Tensor
    tags: Tensor

    def to(self, device: torch.device, non_blocking: bool = False) -> "Gold":
        return Gold(*(x.to(device, non_blocking=non_blocking) for x in self))


class Parses(NamedTuple):
    """What was found, in the layout of Gold; cells hold empty labels too."""

    cells: Tensor
    heads: Tensor
    relations: Tensor
    tags: Tensor


Scores = Callable[[], Tensor]
Decode = Callable[[Scores, Scores, Tensor], tuple[Tensor, Tensor]]
"""Scores of labelled spans (B, n, n, L) and of arcs (B, n+1, n+1), computed if asked for, and lengths (B), to cells
(B, 2n-1, 3) and heads (B, n+1); -1 for what is not looked for."""


@dataclass(frozen=True)
class Jointly:
    """The tree with the best weight · labels + (1 − weight) · arcs (Eq 13)."""

    weight: float = 0.5

    def __call__(self, labels: Scores, arcs: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        _, cells, heads = joint.argmax(self.weight * labels(), (1 - self.weight) * arcs(), lengths)
        return cells, heads


def phrases_alone(labels: Scores, arcs: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The best phrase structure (CKY); no heads."""
    cells = spans.argmax(labels(), lengths)[1]
    return cells, cells.new_full((len(cells), (cells.shape[1] + 3) // 2), -1)


def arcs_alone(labels: Scores, arcs: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The best projective dependency tree; no phrases."""
    heads = eisner.single_root.argmax(arcs(), lengths)[1]
    return heads.new_full((len(heads), 2 * heads.shape[1] - 3, 3), -1), heads


def apart(labels: Scores, arcs: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The best of each, which may contradict one another."""
    return phrases_alone(labels, arcs, lengths)[0], arcs_alone(labels, arcs, lengths)[1]


DECODES: dict[str, Decode] = {"phrases": phrases_alone, "arcs": arcs_alone, "apart": apart}


class Parser(nn.Module):
    """Sentences to scores of labelled spans and arcs."""

    def __init__(self, config: ParserConfig) -> None:
        super().__init__()
        half = config.encoder.d // 2
        self.inputs = nn.ModuleList(part.build(half) for part in config.inputs)
        self.positions = config.positions(half)
        self.norm, self.dropout = StandardNorm(config.encoder.d), nn.Dropout(config.encoder.dropout)
        self.encoder: PartitionedEncoder = config.encoder.build()
        d = self.encoder.width
        self.span_scores = SpanScorer(d, config.hidden, config.labels)
        self.post_dropout = nn.Dropout(config.arc_dropout)
        self.arc_scores = ArcScorer(d, config.arc_hidden, config.arc_dropout)
        self.relation_scores = RelationScorer(d, config.hidden, config.relations, config.arc_dropout)
        self.tag_scores = None
        if config.tag_weight:
            hidden = nn.Linear(config.encoder.d, config.hidden)
            self.tag_scores = nn.Sequential(hidden, nn.ReLU(), nn.Linear(config.hidden, config.tags))
        self.look = config.look
        self.dependency_weight, self.tag_weight = config.dependency_weight, config.tag_weight

    def embed(self, sentences: Sentences) -> Tensor:
        """[content; position] of START, words and STOP, (B, N, d)."""
        content = torch.stack([part(sentences) for part in self.inputs]).sum(0)
        position = self.positions(content.shape[1], content.device).to(content.dtype).expand_as(content)
        return self.norm(self.dropout(torch.cat([content, position], -1)))

    def encode(self, sentences: Sentences) -> tuple[Tensor, Tensor]:
        """States below the label layer (B, N, d), which tags are found by, and fenceposts (B, n+1, D)."""
        states, valid = self.encoder.below(self.embed(sentences), sentences.lengths + 2)
        top = self.encoder.top(states, valid) if self.encoder.top is not None else states
        return states, fenceposts(top, self.encoder.groups)

    def labels(self, posts: Tensor, lengths: Tensor) -> Tensor:
        """Scores (B, n, n, L) of labelled spans. `<H>` is no label of a word or a sentence, which has a label."""
        scores = self.span_scores(posts)
        scores.diagonal(0, 1, 2)[:, GROUP] = -torch.inf
        sentence = torch.arange(len(scores), device=scores.device)
        scores[sentence, 0, lengths - 1, : GROUP + 1] = -torch.inf
        return scores

    def loss(self, sentences: Sentences, gold: Gold) -> Tensor:
        """Σ over sentences of margin + dependency_weight (arcs + relations) + tag_weight tags, in nats (Eq 12)."""
        states, posts = self.encode(sentences)
        loss = self.margin(posts, sentences.lengths, gold.cells).sum()
        dropped = self.post_dropout(posts)
        arcs = self.arc_scores(dropped).transpose(1, 2)  # of each dependent, over heads
        arcs = arcs.masked_fill(
            (torch.arange(arcs.shape[2], device=arcs.device) > sentences.lengths[:, None])[:, None], -torch.inf
        )
        relations = self.relation_scores(dropped, gold.heads, self.look)
        loss = loss + self.dependency_weight * (_nats(arcs, gold.heads) + _nats(relations, gold.relations))
        if self.tag_scores is not None:
            loss = loss + self.tag_weight * _nats(self.tag_scores(states[:, :-1]), gold.tags)
        return loss

    def margin(self, posts: Tensor, lengths: Tensor, gold: Tensor) -> Tensor:
        """max(0, max_T [s(T) + Δ(T)] − s(T*)), (B,), Δ the number of spans whose label is not the gold one.

        All spans are scored to find the best tree, but only its spans and the gold ones need a gradient.
        """
        with torch.no_grad():
            labels = self.labels(posts, lengths).float()
            truth = torch.zeros(labels.shape[:3], dtype=torch.int64, device=labels.device)
            real = gold[..., 0] >= 0
            sentence = real.nonzero()[:, 0]
            i, j, label = gold[real].unbind(-1)
            truth[sentence, i, j] = label
            labels += 1
            labels.scatter_add_(3, truth[..., None], labels.new_full((1,), -1.0).expand(*truth.shape, 1))
            best = spans.argmax(labels.cpu(), lengths.cpu())[1].to(labels.device)
            i, j, label = best.clamp(min=0).unbind(-1)
            own = truth[torch.arange(len(best), device=best.device)[:, None], i, j]
            wrong = ((own != label) & (best[..., 0] >= 0)).sum(1)
        scores = self.span_scores.cells(posts, torch.cat([best, gold], 1)).split([best.shape[1], gold.shape[1]], 1)
        return (scores[0].sum(1) + wrong - scores[1].sum(1)).relu()

    @torch.no_grad()
    def parse(self, sentences: Sentences, decode: Decode) -> Parses:
        """The best trees; searched for on the CPU, where that is compiled."""
        states, posts = self.encode(sentences)
        cells, heads = decode(
            lambda: self.labels(posts, sentences.lengths).float().cpu(),
            lambda: self.arc_scores(posts).float().cpu(),
            sentences.lengths.cpu(),
        )
        cells, heads = cells.to(posts.device), heads.to(posts.device)
        relations = heads if (heads < 0).all() else self.relation_scores(posts, heads, self.look).argmax(-1)
        tags = sentences.tags[:, :-1] if self.tag_scores is None else self.tag_scores(states[:, :-1]).argmax(-1)
        none = heads < 0
        word = torch.arange(tags.shape[1], device=tags.device)
        outside = (word == 0) | (word > sentences.lengths[:, None])
        return Parses(cells, heads, relations.masked_fill(none, -1), tags.masked_fill(outside, -1))


def _nats(scores: Tensor, gold: Tensor) -> Tensor:
    """Summed cross entropy of scores (B, N, K) at gold (B, N), but where gold is -1."""
    return F.cross_entropy(scores.flatten(0, 1), gold.flatten(), ignore_index=-1, reduction="sum")
