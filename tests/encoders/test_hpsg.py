"""Joint trees: what is wrapped, what is collapsed, that nothing is lost, and that merges build them."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from built import APART, NOT_A_HEAD, SEVERAL_HEADS, misfits
from conftest import CORPORA
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemodels.data.corpora.readers import read
from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.download.fetch import obtain
from phrasemodels.data.download.manifest import Sources, load
from phrasemodels.data.formats.trees import (
    GROUP,
    Span,
    Tree,
    depths,
    joint,
    parse,
    plain,
    restore,
)
from phrasemodels.structs import joint as merges


def labels(tree: Tree, heads: tuple[int, ...] = ()) -> list[tuple[str, int, int]]:
    return [tuple(span) for span in joint(tree, heads)]


def test_parts_that_hang_together_are_wrapped() -> None:
    # "more than ten small cats sleep": more and than hang on ten, which hangs on cats
    tree = parse("(ROOT (S (NP (JJR more) (IN than) (CD ten) (JJ small) (NNS cats)) (VP (VBP sleep))))")
    heads = (3, 1, 5, 5, 6, 0)
    assert labels(tree, heads) == [
        ("S", 0, 6),
        ("NP", 0, 5),
        (GROUP, 0, 3),
        (GROUP, 0, 2),
        ("VP", 5, 6),
    ]
    assert not misfits(joint(tree, heads), heads)
    assert best(joint(tree, heads), list(heads)) == (joint(tree, heads), list(heads))
    assert GROUP not in {label for label, _, _ in joint(tree)}


@pytest.mark.parametrize(
    ("brackets", "expected"),
    [
        ("(ROOT (S (NP (NN a)) (VP (VB b))))", [("S", 0, 2), ("NP", 0, 1), ("VP", 1, 2)]),
        ("(ROOT (S (VP (VB go) (NP (NN it)))))", [("S::VP", 0, 2), ("NP", 1, 2)]),
        ("(ROOT (NP (NN a)) (VP (VB b)))", [("ROOT", 0, 2), ("NP", 0, 1), ("VP", 1, 2)]),
        ("(ROOT (NN a))", [("ROOT", 0, 1)]),
        ("(ROOT (ROOT (NN a)))", [("ROOT::ROOT", 0, 1)]),
        ("(ROOT (S (ROOT (NN a) (NN b))))", [("S::ROOT", 0, 2)]),
    ],
)
def test_chains_are_one_span_and_come_back(brackets: str, expected: list[tuple[str, int, int]]) -> None:
    tree = parse(brackets)
    assert labels(tree) == expected
    assert restore(tree.tokens, tree.tags, joint(tree)) == tree


@pytest.mark.parametrize(
    ("brackets", "heads", "reason"),
    [
        ("(ROOT (NP (A a) (B b)) (C c))", (3, 3, 0), SEVERAL_HEADS),
        ("(ROOT (NP (A a) (B b)) (C c))", (0, 1, 2), NOT_A_HEAD),
        ("(ROOT (A a) (B b) (C c) (D d))", (3, 0, 2, 1), APART),
    ],
)
def test_what_no_merge_builds_is_named(brackets: str, heads: tuple[int, ...], reason: str) -> None:
    assert reason in {why for _, why in misfits(joint(parse(brackets), heads), heads)}


@pytest.mark.parametrize("label", ["<H>", "NP::VP"])
def test_labels_that_mean_something_else_are_refused(label: str) -> None:
    with pytest.raises(ValueError, match="has a meaning of its own"):
        joint(parse(f"(ROOT ({label} (A a)))"))


trees = st.recursive(
    st.just("(T w)"),
    lambda inner: st.builds(
        lambda label, parts: f"({label} {' '.join(parts)})",
        st.sampled_from(["A", "B", "ROOT"]),
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(trees, st.randoms(use_true_random=False))
def test_any_tree_with_any_heads_comes_back(brackets: str, random) -> None:
    tree = parse(f"(ROOT {brackets})")
    n = len(tree.tokens)
    order = random.sample(
        range(1, n + 1), n
    )  # every word below one that comes before it: a tree, mostly not projective
    heads = [0] * n
    for place, word in enumerate(order[1:], 1):
        heads[word - 1] = order[random.randrange(place)]
    spans = joint(tree, heads)
    assert restore(tree.tokens, tree.tags, spans) == tree
    assert len({span[1:] for span in spans}) == len(spans)
    assert spans == sorted(spans, key=lambda span: (span.start, -span.end))
    assert depths(heads)[order[0] - 1] == 1


def best(spans: list[Span], heads: list[int]) -> tuple[list[Span], list[int]]:
    """What the joint decoder makes of scores that ask for exactly these spans and arcs."""
    n, names = len(heads), ["", *sorted({span.label for span in spans})]
    scores, arcs = torch.full((1, n, n, len(names)), -1.0), torch.full((1, n + 1, n + 1), -1.0)
    scores[..., 0] = 0
    for label, start, end in spans:
        scores[0, start, end - 1, names.index(label)] = 1
    arcs[0, heads, range(1, n + 1)] = 1
    score, cells, found = merges.argmax(scores, arcs)
    assert score.item() == len(spans) + n
    return [Span(names[k], i, j + 1) for i, j, k in cells[0].tolist() if k > 0], found[0, 1:].tolist()


def test_merges_build_every_tree_of_the_sample_treebank() -> None:
    for row in Treebank().tables({"train": 300})["train"].to_pylist():
        tree, heads = plain(parse(row["tree"])), row["heads"]
        spans = joint(tree, heads)
        assert restore(tree.tokens, tree.tags, spans) == tree
        assert not misfits(spans, heads)
        assert best(spans, heads) == (spans, heads)


# GUM's phrases are those of a parser that did not know its dependencies, so a part of them cannot be built
@pytest.mark.slow
@pytest.mark.needs_mirror
@pytest.mark.parametrize(
    ("name", "trees", "unfit"),
    [("craft", 30818, {}), ("gum", 13249, {SEVERAL_HEADS: 6440, NOT_A_HEAD: 1378, APART: 63})],
)
def test_corpora_come_back_and_exceptions_are_the_known_ones(
    tmp_path: Path, name: str, trees: int, unfit: dict[str, int]
) -> None:
    manifest = load(name)
    obtain(manifest, tmp_path, Sources((CORPORA,), offline=True))
    count, found = 0, Counter[str]()
    for split in ("train", "dev", "test"):
        for row in read(manifest, split, tmp_path).select(["tree", "heads"]).to_pylist():
            if row["tree"]:
                tree = parse(row["tree"])
                spans = joint(tree, row["heads"])
                assert restore(tree.tokens, tree.tags, spans) == tree
                found.update(reason for _, reason in misfits(spans, row["heads"]))
                count += 1
    assert (count, found) == (trees, unfit)
