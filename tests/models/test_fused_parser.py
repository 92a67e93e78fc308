"""The parser for use computes what the trained parser computes."""

import dataclasses

import pytest
import torch
from test_parser import LENGTHS, SMALL, SWITCHES, build, gold, one, sentences

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.scorers import from_head, from_itself
from phrasemodels.models.fused_parser import ROWS, fused
from phrasemodels.models.parser import Jointly, JointParser, LearnedPositions

OTHERS = {
    "learned positions": dataclasses.replace(SMALL, positions=LearnedPositions),
    "relations without heads": dataclasses.replace(SMALL, look=from_itself),
    "no tags": dataclasses.replace(SMALL, tag_weight=0.0),
    "an encoder of words": dataclasses.replace(SMALL, encoder=TransformerEncoderConfig(16, 2, 2, 10, 0.0)),
    "an encoder of phrases": dataclasses.replace(SMALL, encoder=HypernodeEncoderConfig(16, 2, 2, 10, 0.0)),
}


def scores(parser: JointParser, lengths: tuple[int, ...]) -> list[torch.Tensor]:
    """Return the scores of labels, arcs, relations (of words with heads) and tags of random sentences."""
    batch = sentences(lengths)
    states, posts = parser.encode(batch)
    heads = gold().heads if lengths == LENGTHS else torch.zeros(posts.shape[:2], dtype=torch.int64)
    found = [parser.labels(posts, batch.lengths), parser.arc_scores(posts)]
    found.append(parser.relation_scores(posts, heads, from_head)[heads >= 0])
    return found + ([parser.tag_scores(states)] if parser.tag_scores is not None else [])


@torch.no_grad()
@pytest.mark.parametrize("name", [*SWITCHES, *OTHERS])
def test_the_fused_parser_has_the_same_scores(name: str) -> None:
    parser = build((SWITCHES | OTHERS)[name])
    before = {key: value.clone() for key, value in parser.state_dict().items()}
    expected = scores(parser, LENGTHS)
    torch.testing.assert_close(scores(fused(parser), LENGTHS), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scores(parser, LENGTHS), expected, rtol=0, atol=0)
    assert all(torch.equal(before[key], value) for key, value in parser.state_dict().items())


@pytest.mark.parametrize("name", [name for name in OTHERS if "encoder" in name])
def test_any_encoder_learns_and_finds_trees_that_do_not_depend_on_the_batch(name: str) -> None:
    parser, batch = build(OTHERS[name]), sentences()
    parser.loss(batch, gold()).backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in parser.encoder.parameters())
    for row in range(len(LENGTHS)):
        for all_rows, alone in zip(
            parser.parse(batch, Jointly()), parser.parse(one(batch, row), Jointly()), strict=True
        ):
            assert torch.equal(all_rows[row, : alone.shape[1]], alone[0])


def test_an_encoder_without_two_halves_is_an_error() -> None:
    with pytest.raises(ValueError, match="d=15"):
        dataclasses.replace(SMALL, encoder=TransformerEncoderConfig(15, 3, 1))


@torch.no_grad()
def test_the_fused_parser_has_the_same_scores_for_more_words_than_its_pieces() -> None:
    parser = build()
    for lengths in ((ROWS - 1, 3), (ROWS + 20,)):
        batch = sentences(lengths)
        (_, posts), (_, own) = parser.encode(batch), fused(parser).encode(batch)
        torch.testing.assert_close(own, posts, rtol=1e-6, atol=1e-6)
        heads = torch.zeros(posts.shape[:2], dtype=torch.int64)
        relations = [p.relation_scores(posts, heads, from_head) for p in (parser, fused(parser))]
        torch.testing.assert_close(relations[1], relations[0], rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_relations_of_no_heads_are_0() -> None:
    parser = build()
    batch = sentences(LENGTHS)
    heads = torch.full((len(LENGTHS), max(LENGTHS) + 1), -1)
    assert not fused(parser).relation_scores(parser.encode(batch)[1], heads, from_head).any()
