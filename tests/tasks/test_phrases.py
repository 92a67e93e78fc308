"""Phrases and levels from trees, against enumeration and plain loops over parsed trees."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.formats.conllu import flaw
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.store import Step, Store
from phrasemodels.inference.inputs import adjacent, no_phrases, spaces, subtrees
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, between_marks, enumerated, parents, phrases
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.prepare.tokenise import Tokenise, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary


@st.composite
def heads(draw: st.DrawFn) -> list[int]:
    """Heads of a tree over up to 7 tokens, counted from 1; or none."""
    n = draw(st.integers(0, 7))
    found = [draw(st.integers(0, n)) for _ in range(n)]
    return found if found and not flaw(found) else [] if draw(st.booleans()) else [0, *range(1, n)][:n]


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
    counts, members = enumerated(Phrases(subtrees, longest), lengths, flat)
    made = [tuple(x for x in row if x >= 0) for row in members.tolist()]
    ends = np.cumsum(counts)
    for tree, end, count in zip(trees, ends, counts, strict=True):
        head = [h - 1 for h in tree]
        sizes = range(2, longest + 1) if tree else ()
        expected = [p for k in sizes for p in combinations(range(len(tree)), k) if connected(p, head)]
        assert sorted(made[end - count : end]) == sorted(expected)


def test_subtrees_refuse_wrong_sizes_and_heads() -> None:
    with pytest.raises(ValueError, match="up to 4 words"):
        enumerated(Phrases(subtrees, 4), np.array([2]), np.array([-1, 0]))
    with pytest.raises(ValueError, match="give the phrases step an input `trees`"):
        enumerated(Phrases(subtrees, 2), np.array([2]), None)
    with pytest.raises(ValueError, match="row 1: 2 heads for 3 tokens"):
        parents(pa.chunked_array([[[0], [0, 1]]], pa.list_(pa.int32())), np.array([1, 3]))
    with pytest.raises(ValueError, match="lies outside of its sentence"):
        parents(pa.chunked_array([[[0], [0, 3]]], pa.list_(pa.int32())), np.array([1, 2]))


def test_sentence_marks_have_no_head() -> None:
    found = between_marks(pa.chunked_array([[[2, 0], [], [0]]], pa.list_(pa.int32())), np.array([4, 3, 3]))
    assert found.tolist() == [-1, 2, -1, -1, -1, -1, -1, -1, -1, -1]


def test_subtrees_of_the_sample_treebank(store: Store) -> None:
    trees = SampleCorpus(train=200, dev=20, test=20, records=Treebank()).split("train")
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
    none = np.zeros(0, np.int64)
    for enumerate_ in (adjacent, no_phrases, subtrees):
        counts, members = enumerated(Phrases(enumerate_, 3), none, none)
        assert counts.shape == (0,) and members.shape == (0, 3)
