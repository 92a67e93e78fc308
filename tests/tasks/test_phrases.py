"""Phrases and levels from trees, against enumeration and plain loops over parsed trees."""

from itertools import combinations
from pathlib import Path

import numpy as np
import plain_001 as plain
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.formats.conllu import flaw
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.store import Step, Store
from phrasemodels.tasks.prepare.constituents import (
    equal_blocks,
    syntactic,
    syntactic_binarised,
)
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.phrases import (
    LengthsAndHeads,
    Phrases,
    adjacent,
    between_marks,
    no_phrases,
    parents,
    phrases,
    subtrees,
)
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.prepare.tokenise import Tokenise, spaces, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary

LEVELS = (1, 2, 3)
FIGURE_1 = (
    "(ROOT (S (NP (NP (DT A) (JJ little) (NN girl)) (VP (VBG wearing) (NP (DT a) (JJ green) (NN dress))"
    " (PP (IN with) (NP (JJ blue) (NNS dots))))) (VP (VBZ carries) (NP (DT a) (NN box)) (PP (IN by) (NP (PRP$ its)"
    " (NN handle))))))"
)


@st.composite
def heads(draw: st.DrawFn) -> list[int]:
    """Heads of a tree over up to 7 tokens, counted from 1; or none."""
    n = draw(st.integers(0, 7))
    found = [draw(st.integers(0, n)) for _ in range(n)]
    return found if found and not flaw(found) else [] if draw(st.booleans()) else [0, *range(1, n)][:n]


@st.composite
def brackets(draw: st.DrawFn, deepest: int = 5) -> str:
    """A tree in brackets, with unary chains and wide nodes."""

    def node(depth: int) -> str:
        if depth == 0 or draw(st.integers(0, 3)) == 0:
            return "(NN w)"
        return f"(X {' '.join(node(depth - 1) for _ in range(draw(st.integers(1, 4))))})"

    return f"(ROOT {node(deepest)})"


def connected(words: tuple[int, ...], head: list[int]) -> bool:
    """Whether words hang together by edges among themselves."""
    seen, front = {words[0]}, [words[0]]
    while front:
        word = front.pop()
        near = [w for w in words if head[w] == word or head[word] == w]
        front += [w for w in near if w not in seen]
        seen |= set(near)
    return len(seen) == len(words)


@given(st.lists(heads(), max_size=5), st.sampled_from([2, 3]))
def test_subtrees_are_all_connected_parts(trees: list[list[int]], longest: int) -> None:
    lengths = np.array([len(t) or 4 for t in trees], np.int64)
    flat = parents(pa.chunked_array([trees], pa.list_(pa.int32())), lengths)
    counts, members = subtrees(LengthsAndHeads(lengths, flat), longest)
    made = [tuple(x for x in row if x >= 0) for row in members.tolist()]
    ends = np.cumsum(counts)
    for tree, end, count in zip(trees, ends, counts, strict=True):
        head = [h - 1 for h in tree]
        sizes = range(2, longest + 1) if tree else ()
        expected = [p for k in sizes for p in combinations(range(len(tree)), k) if connected(p, head)]
        assert sorted(made[end - count : end]) == sorted(expected)


def test_subtrees_refuse_wrong_sizes_and_heads() -> None:
    with pytest.raises(ValueError, match="up to 4 words"):
        subtrees(LengthsAndHeads(np.array([2]), np.array([-1, 0])), 4)
    with pytest.raises(ValueError, match="give the phrases step an input `trees`"):
        subtrees(LengthsAndHeads(np.array([2])), 2)
    with pytest.raises(ValueError, match="row 1: 2 heads for 3 tokens"):
        parents(pa.chunked_array([[[0], [0, 1]]], pa.list_(pa.int32())), np.array([1, 3]))
    with pytest.raises(ValueError, match="lies outside of its sentence"):
        parents(pa.chunked_array([[[0], [0, 3]]], pa.list_(pa.int32())), np.array([1, 2]))


def test_sentence_marks_have_no_head() -> None:
    found = between_marks(pa.chunked_array([[[2, 0], [], [0]]], pa.list_(pa.int32())), np.array([4, 3, 3]))
    assert found.tolist() == [-1, 2, -1, -1, -1, -1, -1, -1, -1, -1]


@given(st.lists(brackets(), min_size=1, max_size=4))
def test_levels_equal_a_plain_loop(trees: list[str]) -> None:
    lengths = np.array([len(parse(tree).tokens) for tree in trees], np.int64)
    column = pa.chunked_array([pa.array(trees)])
    for partition, prepare in ((syntactic, plain.with_words), (syntactic_binarised, plain.halves)):
        numbers = partition(column, lengths, LEVELS)
        first = 0
        for tree, n in zip(trees, lengths.tolist(), strict=True):
            here = numbers[first : first + n]
            assert (here[0] == 0).all() and set(np.diff(here, axis=0).ravel()) <= {0, 1}, "a partition"
            begins = [[0, *(np.flatnonzero(np.diff(here[:, t])) + 1).tolist()] for t in range(len(LEVELS))]
            spans = prepare({(s.start, s.end) for s in parse(tree).spans}, n)
            assert begins == plain.span_levels(spans, n, len(LEVELS))
            first += n


def test_levels_are_those_of_figure_1() -> None:
    """The figure of paper 001: two, five and seven phrases."""
    words = parse(FIGURE_1).tokens
    numbers = syntactic(pa.chunked_array([[FIGURE_1]]), np.array([len(words)]), LEVELS)
    phrases_ = [
        [" ".join(np.array(words)[numbers[:, t] == p]) for p in range(numbers[:, t].max() + 1)] for t in range(3)
    ]
    assert phrases_[0] == ["A little girl wearing a green dress with blue dots", "carries a box by its handle"]
    assert phrases_[1][0] == "A little girl" and phrases_[1][2:] == ["carries", "a box", "by its handle"]
    assert phrases_[2] == [
        "A little girl", "wearing", "a green dress", "with blue dots", "carries", "a box", "by its handle",
    ]  # fmt: skip
    halved = syntactic_binarised(pa.chunked_array([[FIGURE_1]]), np.array([len(words)]), LEVELS)
    assert (halved.max(0) + 1).tolist() == [2, 4, 6]


@given(st.lists(brackets(), min_size=1, max_size=4))
def test_sizes_of_equal_blocks_differ_by_one_word_at_most(trees: list[str]) -> None:
    lengths = np.array([len(parse(tree).tokens) for tree in trees], np.int64)
    column = pa.chunked_array([pa.array(trees)])
    numbers, equal = (partition(column, lengths, LEVELS) for partition in (syntactic, equal_blocks))
    first = 0
    for n in lengths.tolist():
        for t in range(len(LEVELS)):
            wanted, got = (np.bincount(x[first : first + n, t]) for x in (numbers, equal))
            assert len(wanted) == len(got) and got.max() - got.min() <= 1
            assert {0, *np.diff(equal[first : first + n, t]).tolist()} <= {0, 1}, "a partition of the sentence"
        first += n


@pytest.mark.parametrize(
    ("tree", "words"),
    [("(ROOT (X (NN a)", 1), ("(ROOT (NN a))) (", 1), ("(X (NN a)) (X (NN b))", 2), ("(X (NN a))", 2)],
)
def test_malformed_trees_are_refused_by_row(tree: str, words: int) -> None:
    with pytest.raises(ValueError, match=rf"row 1: .* is no tree of {words} words; parse its tokens"):
        syntactic(pa.chunked_array([["(X (NN a))", tree]]), np.array([1, words]), LEVELS)


def test_a_sentence_without_a_tree_is_one_phrase() -> None:
    lengths = np.array([3, 0, 2])
    numbers = syntactic(pa.chunked_array([["", "", "(X (A a) (B b))"]]), lengths, LEVELS)
    assert numbers.tolist() == [[0, 0, 0]] * 4 + [[1, 1, 1]]


def test_levels_and_subtrees_of_the_sample_treebank(store: Store) -> None:
    trees = SampleCorpus(train=200, dev=20, test=20, records=Treebank()).split("train")
    rows = read_shards(store.run(trees))
    lengths = np.array([len(tokens) for tokens in rows["tokens"].to_pylist()])
    ends = np.cumsum(lengths) - 1  # the last word of a sentence is in its last phrase
    most = [x[ends, t] for x in (syntactic(rows["tree"], lengths, LEVELS), equal_blocks(rows["tree"], lengths, LEVELS))
            for t in range(3)]  # fmt: skip
    assert all((a == b).all() for a, b in zip(most[:3], most[3:], strict=True))
    assert (most[0] <= most[1]).all() and (most[1] <= most[2]).all() and most[0].mean() > 1

    tokens = Step(tokenise, "t", Tokenise(spaces, "en", "de"), {"rows": SampleCorpus(200, 20, 20).split("train")})
    words = Step(vocabulary, "v", VocabularySettings(), {"rows": tokens})
    made = Step(phrases, "p", Phrases(subtrees, 3), {"rows": tokens, "vocabulary": words, "trees": trees})
    table = read_shard(shards(store.run(made))[0].path)
    for row, tree in zip(table.to_pylist(), read_shards(store.run(trees)).to_pylist(), strict=True):
        head = [-1, *(h for h in tree["heads"]), -1]
        head = [-1 if h <= 0 else h for h in head]
        n = len(row["source"])
        assert {tuple(p[:2]) for p in row["phrases"] if p[2] < 0} == {
            tuple(sorted((i, head[i]))) for i in range(n) if head[i] > 0
        }
    other = Step(phrases, "p", Phrases(subtrees, 3), {
        "rows": tokens, "vocabulary": words,
        "trees": SampleCorpus(20, 20, 200, records=Treebank()).split("test")})  # fmt: skip
    with pytest.raises(ValueError, match="the trees differ from the sources"):
        store.run(other)


def test_no_sentences_have_no_phrases(tmp_path: Path) -> None:
    none = LengthsAndHeads(np.zeros(0, np.int64), np.zeros(0, np.int64))
    for enumerate_ in (adjacent, no_phrases, subtrees):
        counts, members = enumerate_(none, 3)
        assert counts.shape == (0,) and members.shape == (0, 3)
    assert syntactic(pa.chunked_array([pa.array([], pa.string())]), none.lengths, LEVELS).shape == (0, 3)
