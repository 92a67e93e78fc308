"""The parser for use computes what the trained parser computes."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from test_parser import LENGTHS, SMALL, SWITCHES, build, gold, sentences

from phrasemodels.layers.scorers import from_head, from_itself
from phrasemodels.models.fused_parser import FEWEST_ROWS, POSITIONS, ROWS, FusedLinear, fused
from phrasemodels.models.parser import JointParser, LearnedPositions

OTHERS = {
    "learned positions": dataclasses.replace(SMALL, positions=LearnedPositions),
    "relations without heads": dataclasses.replace(SMALL, look=from_itself),
    "no tags": dataclasses.replace(SMALL, tag_weight=0.0),
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


@torch.no_grad()
def test_the_fused_parser_has_the_same_scores_for_more_words_than_its_tables_and_pieces() -> None:
    parser = build()
    for lengths in ((ROWS - 1, 3), (POSITIONS + 20,)):
        batch = sentences(lengths)
        (_, posts), (_, own) = parser.encode(batch), fused(parser).encode(batch)
        torch.testing.assert_close(own, posts, rtol=1e-6, atol=1e-6)
        heads = torch.zeros(posts.shape[:2], dtype=torch.int64)
        relations = [p.relation_scores(posts, heads, from_head) for p in (parser, fused(parser))]
        torch.testing.assert_close(relations[1], relations[0], rtol=1e-6, atol=1e-6)


@torch.inference_mode()
@pytest.mark.parametrize("shape", [(1,), (0, 7), (3, 0, 7), (FEWEST_ROWS - 1,), (FEWEST_ROWS,), (5, 61), (2, 3, 117)])
def test_products_are_of_full_precision_and_leave_settings_as_they_are(shape: tuple[int, ...]) -> None:
    layer, x = torch.nn.Linear(1248, 97), torch.randn(*shape, 1248)
    before, product = torch.get_float32_matmul_precision(), FusedLinear(layer.weight, layer.bias)
    expected = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double()).float()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: in_inference(product, x), range(40)))
    assert torch.get_float32_matmul_precision() == before
    for own in found:
        torch.testing.assert_close(own, expected, rtol=0, atol=2e-5)  # in bfloat16 it would be off by 2e-2


def in_inference(function: FusedLinear, x: torch.Tensor) -> torch.Tensor:
    """Return function(x) in inference mode, which each thread has of its own."""
    with torch.inference_mode():
        return function(x)


@torch.no_grad()
def test_relations_of_no_heads_are_0() -> None:
    parser = build()
    batch = sentences(LENGTHS)
    heads = torch.full((len(LENGTHS), max(LENGTHS) + 1), -1)
    assert not fused(parser).relation_scores(parser.encode(batch)[1], heads, from_head).any()
