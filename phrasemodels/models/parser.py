"""The Label Attention Layer parser (paper 004). It predicts phrase structure and dependencies jointly.

Shapes: B batch, n words, N = n + 2 positions (START, words, STOP), D width of a fencepost, L labels, m cells. A cell (i, j,
label) is the words i..j, both included, with a label. A labelled span is a cell.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn import init

from phrasemodels import config
from phrasemodels.encoders import EncoderConfig, check_output
from phrasemodels.encoders.inputs import CharactersConfig, InputConfig, ParserInput, TagsConfig, WordsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoder, PartitionedEncoderConfig
from phrasemodels.layers.blocks import Dropout, on_device, sinusoids, token_mask
from phrasemodels.layers.labels import LabelMatrices, LearnedQueries, PerLabel
from phrasemodels.layers.partitioned import PartitionedAttention, PartitionedFeedForward, SharedDropout, StandardNorm
from phrasemodels.layers.scorers import BiaffineArcScorer, Look, RelationScorer, SpanScorer, fenceposts, from_head
from phrasemodels.structs import eisner, joint, spans

EMPTY_LABEL, GROUP_LABEL = 0, 1  # ids of the empty label, and of `<H>`, which groups words below a phrase


class Sinusoids(nn.Module):
    """Sinusoidal positions, for sentences of any length."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d

    def forward(self, n: int, device: torch.device) -> Tensor:
        """Return the vectors of positions 0 to n − 1, (n, d)."""
        return sinusoids(torch.arange(n, device=device), self.d)


class LearnedPositions(nn.Module):
    """Learned vectors of 300 positions, from N(0, 1); position 300 has the vector of position 0, as released."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(300, d))

    def forward(self, n: int, device: torch.device) -> Tensor:
        """Return the vectors of positions 0 to n − 1, (n, d)."""
        return self.table[torch.arange(n, device=device) % len(self.table)]


PLAIN_SUM, RELEASED_WEIGHT = 1.0, 0.5  # of the losses of arcs and relations: Eq 12 of paper 004, and its released code


@dataclass(frozen=True)
class ParserConfig:
    """The parser of paper 004, or with `encoder.top` None the HPSG parser for comparison.

    Args:
        encoder: The configuration of the encoder. Another than the paper's has no label layer and gets no phrases.
        inputs: Vectors of a word. They are added.
        positions: Sinusoids or LearnedPositions.
        look: from_head (Eq 11), or from_itself as released.
        hidden: Hidden units of spans, relations and tags.
        arc_hidden, arc_dropout: Of arcs.
        dependency_weight: Weight of the losses of arcs and relations, RELEASED_WEIGHT or PLAIN_SUM (Eq 12).
        tag_weight: Weight of the loss of tags. Predicted tags let the parser read untagged text. 0: no tagger.
        labels, relations, tags: Numbers of ids, 0 until they are set from the treebank.
        shared_dropout: Words' vectors are dropped with one mask for a sentence.
        start: Draws the weights of a new parser again, for example `as_released`. None: they start as their layers do.
    """

    encoder: EncoderConfig = field(default_factory=PartitionedEncoderConfig)
    inputs: tuple[InputConfig, ...] = (WordsConfig(), CharactersConfig(), TagsConfig())
    positions: Callable[[int], nn.Module] = Sinusoids
    look: Look = from_head
    hidden: int = 250
    arc_hidden: int = 1024
    arc_dropout: float = 0.33
    dependency_weight: float = RELEASED_WEIGHT
    tag_weight: float = 0.5
    labels: int = 0
    relations: int = 0
    tags: int = 0
    shared_dropout: bool = False
    start: Callable[[nn.Module], None] | None = None

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ValueError("inputs=(): must not be empty")
        config.even(self.encoder, "d")  # half content, half position
        config.at_least(self, 2, "hidden")  # the norm over hidden units divides by hidden - 1
        config.at_least(self, 1, "arc_hidden")
        config.share(self, "arc_dropout")
        config.not_negative(self, "dependency_weight", "tag_weight")
        config.at_least(self, 0, "labels", "relations", "tags")

    def sized(self, sizes: dict[str, int]) -> "ParserConfig":
        """Return the configuration with the sizes of a vocabulary: words, characters, tags, labels, relations."""
        encoder = self.encoder
        if isinstance(encoder, PartitionedEncoderConfig) and encoder.top is not None and not encoder.top.labels:
            encoder = replace(encoder, top=replace(encoder.top, labels=sizes["labels"]))
        inputs = tuple(part.sized(sizes) for part in self.inputs)
        labels, relations, tags = (sizes[name] for name in ("labels", "relations", "tags"))
        return replace(self, encoder=encoder, inputs=inputs, labels=labels, relations=relations, tags=tags)

    def build(self) -> "JointParser":
        return JointParser(self)


class GoldTrees(NamedTuple):
    """Trees to learn. -1 stands for the root, for padding, and for missing annotation."""

    cells: Tensor  # (B, m, 3) labelled spans
    heads: Tensor  # (B, n+1)
    relations: Tensor  # (B, n+1)
    tags: Tensor  # (B, n+1)

    def to(self, device: torch.device) -> "GoldTrees":
        """Return the trees on a device."""
        return GoldTrees(*on_device(device, *self))


class ParsedTrees(NamedTuple):
    """Predicted trees, in the layout of GoldTrees, with cells of the empty label."""

    cells: Tensor
    heads: Tensor
    relations: Tensor
    tags: Tensor

    def cpu(self) -> "ParsedTrees":
        """Return them on the CPU."""
        return ParsedTrees(*(x.cpu() for x in self))


LazyScores = Callable[[], Tensor]
Decode = Callable[[LazyScores, LazyScores, Tensor], tuple[Tensor, Tensor]]
"""Functions that return the scores of labelled spans (B, n, n, L) and of arcs (B, n+1, n+1), and lengths (B) -> cells
(B, 2n-1, 3) and heads (B, n+1). Only the function that a decoder calls is computed; what it does not predict is -1."""


@dataclass(frozen=True)
class Jointly:
    """Finds the joint tree with the best weight · labels + (1 − weight) · arcs (Eq 13).

    Args:
        weight: Weight of the scores of labels, from 0 to 1.
    """

    weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight={self.weight}: must be from 0 to 1")

    def __call__(self, labels: LazyScores, arcs: LazyScores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        _, cells, heads = joint.argmax(self.weight * labels(), (1 - self.weight) * arcs(), lengths)
        # Eq 13
        return cells, heads


def phrases_alone(labels: LazyScores, arcs: LazyScores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Find the best phrase structure (CKY), without heads."""
    cells = spans.argmax(labels(), lengths)[1]
    return cells, cells.new_full((len(cells), (cells.shape[1] + 3) // 2), -1)


def arcs_alone(labels: LazyScores, arcs: LazyScores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Find the best projective dependency tree with one root (Eisner), without phrases."""
    heads = eisner.single_root.argmax(arcs(), lengths)[1]
    return heads.new_full((len(heads), 2 * heads.shape[1] - 3, 3), -1), heads


def separately(labels: LazyScores, arcs: LazyScores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Find the best phrase structure and the best dependency tree. They may contradict each other."""
    return phrases_alone(labels, arcs, lengths)[0], arcs_alone(labels, arcs, lengths)[1]


DECODES: dict[str, Decode] = {"phrases": phrases_alone, "arcs": arcs_alone, "apart": separately}


class PlainEncoder(nn.Module):
    """Any encoder in place of the paper's. It reads START, words and STOP, and no phrases."""

    top = None

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = config.build()
        self.width, self.groups = config.d, config.d // 2

    def below(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return states (B, N, d), and a mask (B, 1, 1, N), true for real positions."""
        states = self.inner(x, lengths, lengths.new_zeros(len(x), 0, 2))
        valid = token_mask(lengths, x.shape[1])[:, None, None, :]
        return check_output(states, self.inner, "B, N, d", *x.shape), valid


class JointParser(nn.Module):
    """Sentences to scores of labelled spans, arcs, relations and tags, and to trees.

    `loss(sentences, gold)` reads a `ParserInput` of B sentences and their `GoldTrees`. `parse(sentences, decode)` returns
    `ParsedTrees`: spans (B, m, 3), and heads, relations and tags (B, n+1).
    """

    def __init__(self, config: ParserConfig) -> None:
        super().__init__()
        half = config.encoder.d // 2
        self.inputs = nn.ModuleList(part.build(half) for part in config.inputs)
        self.positions = config.positions(half)
        kind = SharedDropout if config.shared_dropout else nn.Dropout
        self.norm, self.dropout = StandardNorm(config.encoder.d), kind(config.encoder.dropout)
        given = config.encoder
        self.encoder: PartitionedEncoder | PlainEncoder
        self.encoder = given.build() if isinstance(given, PartitionedEncoderConfig) else PlainEncoder(given)
        d = self.encoder.width
        self.span_scores = SpanScorer(d, config.hidden, config.labels)
        self.post_dropout = Dropout(config.arc_dropout)
        self.arc_scores = BiaffineArcScorer(d, config.arc_hidden, config.arc_dropout)
        self.relation_scores = RelationScorer(d, config.hidden, config.relations, config.arc_dropout)
        self.tag_scores = None
        if config.tag_weight:
            hidden = nn.Linear(config.encoder.d, config.hidden)
            self.tag_scores = nn.Sequential(hidden, nn.ReLU(), nn.Linear(config.hidden, config.tags))
        self.look, self.named_arcs = config.look, config.relations > 0  # treebanks may have no relations, or no arcs
        self.dependency_weight, self.tag_weight = config.dependency_weight, config.tag_weight
        if config.start is not None:
            config.start(self)

    def embed(self, sentences: ParserInput) -> Tensor:
        """Return [content; position] of START, words and STOP, (B, N, d)."""
        content = torch.stack([part(sentences) for part in self.inputs]).sum(0)
        position = self.positions(content.shape[1], content.device).to(content.dtype).expand_as(content)
        return self.norm(self.dropout(torch.cat([content, position], -1)))

    def encode(self, sentences: ParserInput) -> tuple[Tensor, Tensor]:
        """Return the states below the label layer (B, N, d), the input of the tagger, and fenceposts (B, n+1, D)."""
        states, valid = self.encoder.below(self.embed(sentences), sentences.lengths + 2)
        top = self.encoder.top(states, valid) if self.encoder.top is not None else states
        return states, fenceposts(top, self.encoder.groups)

    def labels(self, posts: Tensor, lengths: Tensor) -> Tensor:
        """Return the scores (B, n, n, L) of labelled spans from fenceposts (B, n+1, D).

        -inf forbids `<H>` for words and for the sentence, and the empty label for the sentence.
        """
        scores = self.span_scores(posts)
        scores.diagonal(0, 1, 2)[:, GROUP_LABEL] = -torch.inf
        sentence = torch.arange(len(scores), device=scores.device)
        scores[sentence, 0, lengths - 1, : GROUP_LABEL + 1] = -torch.inf
        return scores

    def loss(self, sentences: ParserInput, gold: GoldTrees) -> Tensor:
        """Return Σ over sentences of margin + dependency_weight (arcs + relations) + tag_weight tags, in nats (Eq 12)."""
        states, posts = self.encode(sentences)
        loss = self.margin(posts, sentences.lengths, gold.cells).sum()
        dropped = self.post_dropout(posts)
        arcs = self.arc_scores(dropped).transpose(1, 2)  # [dependent, head]
        arcs = arcs.masked_fill(
            (torch.arange(arcs.shape[2], device=arcs.device) > sentences.lengths[:, None])[:, None], -torch.inf
        )
        nats = _nats(arcs, gold.heads)
        if self.named_arcs:
            nats = nats + _nats(self.relation_scores(dropped, gold.heads, self.look), gold.relations)
        loss = loss + self.dependency_weight * nats
        if self.tag_scores is not None:
            loss = loss + self.tag_weight * _nats(self.tag_scores(states[:, :-1]), gold.tags)
        return loss

    def margin(self, posts: Tensor, lengths: Tensor, gold: Tensor) -> Tensor:
        """Return max(0, max_T [s(T) + Δ(T)] − s(T*)), (B,), where Δ is the number of spans with another than the gold label.

        posts (B, n+1, D), lengths (B), gold cells (B, m, 3). All spans are scored to find the best tree, but only its spans
        and the gold spans get a gradient. A sentence without gold cells has no tree to learn: its margin is 0.
        """
        has_tree = (gold[..., 0] >= 0).any(1)
        chosen = has_tree.nonzero().squeeze(1)
        if len(chosen) == len(posts) > 0:
            return self._margin(posts, lengths, gold).to(posts.dtype)
        margins = posts.new_zeros(len(posts))
        if len(chosen):
            margins = margins.masked_scatter(
                has_tree, self._margin(posts[chosen], lengths[chosen], gold[chosen]).to(margins.dtype)
            )
        return margins

    def _margin(self, posts: Tensor, lengths: Tensor, gold: Tensor) -> Tensor:
        with torch.no_grad():
            labels = self.labels(posts, lengths).float()
            right = spans.right_labels(gold.cpu(), labels.shape[1], missing=0)
            best, wrong = on_device(gold.device, *spans.most_violating(labels.cpu().add_(1), right, lengths.cpu()))
        # scored again, now with gradients: only the cells of two trees, not n² L of them
        scores = self.span_scores.cells(posts, torch.cat([best, gold], 1)).split([best.shape[1], gold.shape[1]], 1)
        return (scores[0].sum(1) + wrong - scores[1].sum(1)).relu()

    @torch.no_grad()
    def parse(self, sentences: ParserInput, decode: Decode) -> ParsedTrees:
        """Return the best trees. The search is compiled for the CPU and runs there."""
        states, posts = self.encode(sentences)
        cells, heads = decode(
            lambda: self.labels(posts, sentences.lengths).float().cpu(),
            lambda: self.arc_scores(posts).float().cpu(),
            sentences.lengths.cpu(),
        )
        cells, heads = cells.to(posts.device), heads.to(posts.device)
        unnamed = not self.named_arcs or bool((heads < 0).all())
        relations = (
            heads.new_full(heads.shape, -1) if unnamed else self.relation_scores(posts, heads, self.look).argmax(-1)
        )
        tags = sentences.tags[:, :-1] if self.tag_scores is None else self.tag_scores(states[:, :-1]).argmax(-1)
        headless = heads < 0
        word = torch.arange(tags.shape[1], device=tags.device)
        outside = (word == 0) | (word > sentences.lengths[:, None])
        return ParsedTrees(cells, heads, relations.masked_fill(headless, -1), tags.masked_fill(outside, -1))


def _nats(scores: Tensor, gold: Tensor) -> Tensor:
    """Return the summed cross entropy of scores (B, N, K) at gold (B, N), except where gold is -1."""
    return F.cross_entropy(scores.flatten(0, 1), gold.flatten(), ignore_index=-1, reduction="sum")


@torch.no_grad()
def as_released(parser: nn.Module) -> None:
    """Draw the weights of attention, label layer, feed-forward layers and scorers again, as in the released code.

    The release keeps the matrices of all heads or labels in one tensor (heads, inputs, outputs) and draws it by Xavier's
    rule. The rule takes the first size for the number of outputs and the last one for the size of a filter. So weights start
    smaller than in separate matrices: the label layer's have a standard deviation of 0.0071 in place of 0.059.
    """
    for module in parser.modules():
        if isinstance(module, PartitionedAttention):
            for part in (module.query, module.key, module.value):
                for linear in (part.content, part.position):
                    _as_heads(linear, module.heads)
            _plainly(module.output)
        elif isinstance(module, PartitionedFeedForward | PerLabel):
            _plainly(module)
        elif isinstance(module, LabelMatrices):
            init.xavier_normal_(module.content)
            init.xavier_normal_(module.position)
        elif isinstance(module, LearnedQueries) and "query" in dict(module.named_parameters()):
            for half in module.query.chunk(2, -1):  # content and position are two matrices there
                half.copy_(init.xavier_normal_(torch.empty_like(half)))
        elif isinstance(module, BiaffineArcScorer | RelationScorer | SpanScorer):
            _scorer(module)


def _as_heads(linear: nn.Linear, heads: int) -> None:
    """Draw the matrices (d, width) of all heads inside of one linear map (heads · width, d)."""
    drawn = init.xavier_normal_(linear.weight.new_empty(heads, linear.in_features, linear.out_features // heads))
    linear.weight.copy_(drawn.transpose(1, 2).flatten(0, 1))


def _plainly(module: nn.Module) -> None:
    """Draw the weights of linear maps by PyTorch's default."""
    for linear in module.modules():
        if isinstance(linear, nn.Linear):
            linear.reset_parameters()


def _scorer(module: BiaffineArcScorer | RelationScorer | SpanScorer) -> None:
    if isinstance(module, SpanScorer):
        bound = module.project.in_features**-0.5
        module.bias.uniform_(-bound, bound)
    elif isinstance(module, BiaffineArcScorer):
        init.xavier_uniform_(module.weight)
    else:  # a tensor of pairs, two matrices of single words, and a bias
        weight = module.weight
        for part in (weight[:, :-1, :-1], weight[:, :-1, -1], weight[:, -1, :-1]):
            part.copy_(init.xavier_uniform_(torch.empty_like(part)))
        weight[:, -1, -1] = 0.0
