"""The parser of paper 004 equals a plain transcription of its equations, ignores padding, and learns."""

import dataclasses

import plain_004 as plain
import pytest
import torch

from phrasemodels.encoders.inputs import CharactersConfig, ParserInput, TagsConfig, WordsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
from phrasemodels.layers.labels import (
    LabelAttentionConfig,
    LearnedQueries,
    PerLabel,
    own_query,
    released_query,
)
from phrasemodels.layers.partitioned import SharedDropout, by_head_width, by_model_width
from phrasemodels.layers.scorers import from_head, from_itself
from phrasemodels.models.parser import (
    PLAIN_SUM,
    RELEASED_WEIGHT,
    GoldTrees,
    Jointly,
    JointParser,
    LearnedPositions,
    ParserConfig,
    Sinusoids,
    arcs_alone,
    phrases_alone,
    separately,
)

SIZES = {"words": 30, "characters": 12, "tags": 6, "labels": 5, "relations": 4}
TOP = LabelAttentionConfig(d_kv=6, d_out=8, d_ff=7, dropout=0.0)
SMALL = ParserConfig(
    PartitionedEncoderConfig(d=16, heads=2, layers=2, d_kv=4, d_ff=10, dropout=0.0, top=TOP),
    (WordsConfig(dropout=0.0), CharactersConfig(d=5, filters=6), TagsConfig()),
    hidden=9,
    arc_hidden=11,
    arc_dropout=0.0,
)
LENGTHS = (5, 3, 1)


def build(config: ParserConfig = SMALL, seed: int = 0) -> JointParser:
    torch.manual_seed(seed)
    parser = config.sized(SIZES).build()
    for parameter in parser.parameters():  # initial zeros and ones would hide missing terms
        torch.nn.init.normal_(parameter, std=0.5)
    return parser.double().eval()


def sentences(lengths: tuple[int, ...] = LENGTHS, seed: int = 1) -> ParserInput:
    """Return random sentences; a sentence depends on its length and the seed, not on the batch."""
    N, B = max(lengths) + 2, len(lengths)
    words, tags, forms = (torch.zeros(B, N, dtype=torch.int64) for _ in range(3))
    for row, n in enumerate(lengths):
        gen = torch.Generator().manual_seed(seed + n)
        words[row, : n + 2] = torch.randint(2, SIZES["words"], (n + 2,), generator=gen)
        tags[row, : n + 2] = torch.randint(2, SIZES["tags"], (n + 2,), generator=gen)
        forms[row, : n + 2] = torch.randint(0, 7, (n + 2,), generator=gen)
    characters = torch.randint(1, SIZES["characters"], (7, 4), generator=torch.Generator().manual_seed(seed))
    characters[::2, 2:] = 0
    no_pieces = torch.zeros(B, 0, dtype=torch.int64)
    return ParserInput(
        words, forms, characters, tags, torch.tensor(lengths), no_pieces, torch.zeros(B, dtype=torch.int64), no_pieces
    )


def one(batch: ParserInput, row: int) -> ParserInput:
    n = int(batch.lengths[row])
    cut = {f: getattr(batch, f)[row : row + 1, : n + 2] for f in ("words", "forms", "tags")}
    return dataclasses.replace(batch, **cut, lengths=batch.lengths[row : row + 1])


# for each sentence of LENGTHS its spans (first word, last word, label), words counted from 0, and heads, counted from 1
TREES = (
    ([(0, 4, 2), (0, 1, 3), (2, 4, 4), (3, 4, 1)], [2, 3, 0, 3, 4]),
    ([(0, 2, 3), (1, 2, 2), (1, 1, 4)], [0, 1, 2]),
    ([(0, 0, 2)], [0]),
)


def gold() -> GoldTrees:
    n, m = max(LENGTHS), max(len(cells) for cells, _ in TREES)
    cells = torch.full((len(TREES), m, 3), -1)
    heads, relations, tags = (torch.full((len(TREES), n + 1), -1) for _ in range(3))
    for row, (spans, own) in enumerate(TREES):
        cells[row, : len(spans)] = torch.tensor(spans)
        heads[row, 1 : len(own) + 1] = torch.tensor(own)
        relations[row, 1 : len(own) + 1] = torch.tensor(own) % SIZES["relations"]
        tags[row, 1 : len(own) + 1] = torch.tensor(own) % SIZES["tags"]
    return GoldTrees(cells, heads, relations, tags)


def config(**changes: object) -> ParserConfig:
    top = dataclasses.replace(TOP, **changes)
    return dataclasses.replace(SMALL, encoder=dataclasses.replace(SMALL.encoder, top=top))


SWITCHES = {
    "as printed": config(),
    "released": config(scale=by_model_width, align=released_query),
    "no feed-forward": config(d_ff=0),
    "no label layer": dataclasses.replace(SMALL, encoder=dataclasses.replace(SMALL.encoder, top=None)),
}


def plain_posts(parser: JointParser, options: ParserConfig, batch: ParserInput, row: int) -> torch.Tensor:
    """Return the fenceposts of one sentence of a batch by the transcription, from the embedding on."""
    w, top = plain.f64(dict(parser.named_parameters())), options.encoder.top
    x = plain.encoder(parser.embed(one(batch, row))[0], w, options.encoder.heads, options.encoder.d**-0.5)
    if top is None:
        return plain.fenceposts(x, x.shape[1] // 2)
    L = SIZES["labels"]
    queries = [(k * len(batch.lengths) + row) % L if top.align is released_query else k for k in range(L)]
    scale = {by_head_width: top.d_kv, by_model_width: options.encoder.d}[top.scale] ** -0.5
    return plain.fenceposts(plain.label_attention(x, plain.below(w, "encoder.top."), scale, queries), L)


@pytest.mark.parametrize("name", SWITCHES)
def test_fenceposts_equal_the_transcription(name: str) -> None:
    parser, batch = build(SWITCHES[name]), sentences()
    posts = parser.encode(batch)[1]
    for row, n in enumerate(LENGTHS):
        torch.testing.assert_close(posts[row, : n + 1], plain_posts(parser, SWITCHES[name], batch, row))


@torch.no_grad()
@pytest.mark.parametrize(
    ("look", "weight", "tags"),
    [(from_head, PLAIN_SUM, 0.0), (from_itself, RELEASED_WEIGHT, 0.0), (from_head, 0.5, 0.5)],
)
def test_loss_equals_the_transcription(look, weight, tags) -> None:
    options = dataclasses.replace(SMALL, look=look, dependency_weight=weight, tag_weight=tags)
    parser, batch, truth = build(options), sentences(), gold()
    w = plain.f64(dict(parser.named_parameters()))
    expected = 0.0
    for row, (cells, heads) in enumerate(TREES):
        posts = plain_posts(parser, options, batch, row)
        expected += plain.margin(posts, plain.below(w, "span_scores."), {(i, j): k for i, j, k in cells})
        states = parser.encode(one(batch, row))[0][0]
        for m, h in enumerate(heads, 1):
            arcs = torch.stack([plain.arc_score(posts, plain.below(w, "arc_scores."), g, m) for g in range(len(posts))])
            whose = h if look is from_head else m
            relations = plain.relation_scores(posts, plain.below(w, "relation_scores."), whose, m)
            expected += weight * (plain.nats(arcs, h) + plain.nats(relations, h % SIZES["relations"]))
            if tags:
                expected += tags * plain.nats(parser.tag_scores(states[m]), h % SIZES["tags"])
    torch.testing.assert_close(parser.loss(batch, truth), torch.as_tensor(expected))


def test_a_gold_tree_with_a_large_margin_has_no_loss() -> None:
    parser, batch, truth = build(), sentences(), gold()
    posts = parser.encode(batch)[1]
    wanted = torch.zeros(len(LENGTHS), max(LENGTHS), max(LENGTHS), SIZES["labels"], dtype=posts.dtype)
    for row, (cells, _) in enumerate(TREES):
        for i, j, label in cells:
            wanted[row, i, j, label] = 100.0
    parser.span_scores = Fixed(wanted - 50 * (torch.arange(SIZES["labels"]) > 0))
    assert parser.margin(posts, batch.lengths, truth.cells).tolist() == [0, 0, 0]
    best = phrases_alone(lambda: parser.labels(posts, batch.lengths), pytest.fail, batch.lengths)[0]
    for row, (cells, _) in enumerate(TREES):
        assert sorted(map(tuple, best[row][best[row][:, 2] > 0].tolist())) == sorted(cells)


class Fixed(torch.nn.Module):
    """A span scorer with constant scores."""

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, posts: torch.Tensor) -> torch.Tensor:
        return self.scores.clone()

    def cells(self, posts: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        i, j, k = cells.clamp(min=0).unbind(-1)
        return self.scores[torch.arange(len(cells))[:, None], i, j, k] * (cells[..., 0] >= 0)


def test_scores_of_cells_equal_those_of_all_spans() -> None:
    parser, batch = build(), sentences()
    posts = parser.encode(batch)[1]
    dense, truth = parser.span_scores(posts), gold().cells
    i, j, k = truth.clamp(min=0).unbind(-1)
    chosen = dense[torch.arange(len(truth))[:, None], i, j, k] * (truth[..., 0] >= 0)
    torch.testing.assert_close(parser.span_scores.cells(posts, truth), chosen)


@pytest.mark.parametrize("weight", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_joint_decoding_finds_the_best_score_of_a_plain_program(n: int, weight: float) -> None:
    gen = torch.Generator().manual_seed(n)
    labels, arcs = torch.randn(1, n, n, 4, generator=gen), torch.randn(1, n + 1, n + 1, generator=gen)
    expected = plain.joint(labels[0], arcs[0], weight)
    labels.diagonal(0, 1, 2)[:, 1] = -torch.inf
    labels[0, 0, n - 1, :2] = -torch.inf
    cells, heads = Jointly(weight)(lambda: labels, lambda: arcs, torch.tensor([n]))
    score = sum(weight * labels[0, i, j, k] for i, j, k in cells[0].tolist())
    score += sum((1 - weight) * arcs[0, h, m] for m, h in enumerate(heads[0, 1:].tolist(), 1))
    assert float(score) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", [name for name in SWITCHES if name != "released"])
def test_padding_and_batch_do_not_change_a_parse(name: str) -> None:
    parser, batch, truth = build(SWITCHES[name]), sentences(), gold()
    alone = sum(
        parser.loss(
            one(batch, row),
            GoldTrees(*(x[row : row + 1, : n + 1] if x.dim() == 2 else x[row : row + 1] for x in truth)),
        )
        for row, n in enumerate(LENGTHS)
    )
    torch.testing.assert_close(parser.loss(batch, truth), alone)


def test_released_queries_depend_on_the_batch() -> None:
    """With one sentence all queries are right; with eight, 882 of 896 belong to another label."""
    own = torch.arange(112.0)[:, None]
    wrong = [(released_query(own, B) != own).sum().item() for B in (1, 8)]
    assert wrong == [0, 882]
    parser, batch = build(SWITCHES["released"]), sentences()
    together, alone = parser.encode(batch)[1], parser.encode(one(batch, 1))[1]
    assert not torch.allclose(together[1, :4], alone[0])


def test_numbers_of_parameters_are_those_of_the_paper() -> None:
    layer = LabelAttentionConfig(labels=112).build(1024)
    parameters = {name: p.numel() for name, p in layer.named_parameters()}
    forward = sum(v for name, v in parameters.items() if name.startswith(("feed_forward", "residual")))
    assert (sum(parameters.values()) - forward, forward) == (14_891_264, 29_405_184)
    assert layer.width == 14_336


@pytest.mark.parametrize(
    ("decode", "n"),
    [
        (Jointly(), 40),
        (phrases_alone, 350),
        (arcs_alone, 350),
        (separately, 30),
        pytest.param(Jointly(), 500, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("positions", [Sinusoids, LearnedPositions])
def test_every_decoder_parses_long_and_short_sentences(decode, n: int, positions) -> None:
    parser = build(dataclasses.replace(SMALL, positions=positions)).float()
    trees = parser.parse(sentences((n, 2)), decode)
    assert trees.cells.shape == (2, 2 * n - 1, 3)
    assert ((trees.heads[:, 0] == -1) & (trees.tags[:, 0] == -1)).all()
    if decode is not arcs_alone:
        assert (trees.cells[0, :, 0] >= 0).all() and not ((trees.cells[1] == 1)[:, 2]).any()
    if decode is not phrases_alone:
        assert (trees.heads[0, 1:] == 0).sum() == 1
        assert (trees.relations[0, 1:] >= 0).all()


def test_gradients_equal_finite_differences() -> None:
    parser, batch, truth = (
        build(),
        sentences((3,)),
        GoldTrees(*(x[1:2, :4] if x.dim() == 2 else x[1:2] for x in gold())),
    )
    parser.loss(batch, truth).backward()
    for name, parameter in parser.named_parameters():
        if "table" in name:
            continue
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        place = int(gradient.abs().argmax())
        before, step = float(flat[place]), 1e-5
        values = []
        for at in (before + step, before - step):
            flat[place] = at
            values.append(parser.loss(batch, truth).item())
        flat[place] = before
        assert float(gradient[place]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("name", ["as printed", "released", "no label layer"])
def test_three_sentences_can_be_memorised(name: str) -> None:
    torch.manual_seed(0)
    parser, batch, truth = SWITCHES[name].sized(SIZES).build(), sentences(), gold()
    optimiser = torch.optim.Adam(parser.parameters(), 5e-3)
    for _ in range(150):
        optimiser.zero_grad()
        loss = parser.loss(batch, truth)
        loss.backward()
        optimiser.step()
    trees = parser.eval().parse(batch, Jointly())
    assert loss.item() < 1
    assert torch.equal(trees.heads, truth.heads)
    assert torch.equal(trees.relations, truth.relations)
    assert torch.equal(trees.tags, truth.tags)
    for row, (cells, _) in enumerate(TREES):
        assert sorted(map(tuple, trees.cells[row][trees.cells[row][:, 2] > 0].tolist())) == sorted(cells)


def test_dropout_masks_are_shared_within_a_sentence() -> None:
    torch.manual_seed(0)
    dropped = SharedDropout(0.5)(torch.ones(2, 7, 40))
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 2.0} and not torch.equal(dropped[0], dropped[1])


def test_weights_of_the_label_layer_are_distributions_over_real_positions() -> None:
    x, valid = torch.randn(2, 6, 16), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])[:, None, None]
    layer = dataclasses.replace(TOP, labels=5, query=LearnedQueries, combine=PerLabel, align=own_query).build(16)
    weights = layer.weights(x, valid)
    assert weights.shape == (2, 5, 1, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5, 1))
    assert (weights[1, :, :, 4:] == 0).all()
