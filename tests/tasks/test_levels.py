"""Levels of phrases: paper 001's Figure 1, an independent division, trees made from the words, and dependencies."""

import itertools
import random

import numpy as np
import plain_001 as plain
import pyarrow as pa
import pytest

from phrasemodels.data.corpora.samples import Entailment
from phrasemodels.data.formats.conllu import flaw
from phrasemodels.data.formats.trees import parse
from phrasemodels.inference.inputs import dependencies, heads_and_relations
from phrasemodels.tasks.prepare.constituents import (
    AtRandom,
    Levels,
    attached,
    equal_blocks,
    none,
    right_branching,
    syntactic_binarised,
)

FIGURE_1 = (
    "(ROOT (S (NP (NP (DT A) (JJ little) (NN girl)) (VP (VBG wearing) (NP (DT a) (JJ green) (NN dress)) "
    "(PP (IN with) (NP (JJ blue) (NNS dots))))) (VP (VBZ carries) (NP (DT a) (NN box)) "
    "(PP (IN by) (NP (PRP$ its) (NN handle))))))"
)


def applied(structure, *sentences: tuple[list[str], str]) -> np.ndarray:
    tokens = [words for words, _ in sentences]
    trees = pa.chunked_array([[tree for _, tree in sentences]], pa.string())
    return structure(tokens, trees, np.array([len(words) for words in tokens]))


def phrases(numbers: np.ndarray, tokens: list[str]) -> list[list[str]]:
    """The levels of an (n, k) array as texts."""
    found = []
    for column in numbers.T:
        cuts = [0, *(np.flatnonzero(np.diff(column)) + 1), len(tokens)]
        found.append([" ".join(tokens[a:b]) for a, b in itertools.pairwise(cuts)])
    return found


def test_levels_are_those_of_figure_1():
    tokens = list(parse(FIGURE_1).tokens)
    assert phrases(applied(Levels(), (tokens, FIGURE_1)), tokens) == [
        ["A little girl wearing a green dress with blue dots", "carries a box by its handle"],
        ["A little girl", "wearing a green dress with blue dots", "carries", "a box", "by its handle"],
        ["A little girl", "wearing", "a green dress", "with blue dots", "carries", "a box", "by its handle"],
    ]


def random_tree(rng: random.Random, depth: int) -> list:
    return ["w" if depth == 0 or rng.random() < 0.4 else random_tree(rng, depth - 1) for _ in range(rng.randint(1, 4))]


def bracketed(node: list | str) -> str:
    return f"(X {node})" if isinstance(node, str) else f"(P {' '.join(map(bracketed, node))})"


def test_levels_equal_an_independent_division():
    rng = random.Random(0)
    for _ in range(300):
        tree = random_tree(rng, 5)
        text = bracketed(tree)
        tokens = list(parse(text).tokens)
        expected = [[" ".join(words) for words in level] for level in plain.phrase_levels(tree, (1, 2, 3, 5))]
        assert phrases(applied(Levels(levels=(1, 2, 3, 5)), (tokens, text)), tokens) == expected


SOURCES = (
    Levels(),
    Levels(syntactic_binarised),
    Levels(trees=right_branching),
    Levels(trees=AtRandom()),
    Levels(trees=none),
    Levels(equal_blocks, trees=AtRandom()),
)


@pytest.mark.parametrize(
    "source", SOURCES, ids=lambda s: f"{s.partition.__name__}-{getattr(s.trees, '__name__', s.trees)}"
)
def test_every_level_is_a_partition_that_refines_the_previous_one(source):
    pairs = Entailment().tables({"test": 50})["test"].to_pylist()
    sentences = [(pair[side].split(), pair[f"{side}_tree"]) for pair in pairs for side in ("premise", "hypothesis")]
    together = applied(source, *sentences)
    for words, tree in sentences:
        numbers, together = np.split(together, [len(words)])
        assert (numbers == applied(source, (words, tree))).all()
        assert numbers.shape == (len(words), source.k)
        assert (numbers[0] == 0).all() and set(np.diff(numbers, axis=0).ravel()) <= {0, 1}
        cuts = [set(np.flatnonzero(np.diff(column))) for column in numbers.T]
        assert source.partition is equal_blocks or cuts[0] <= cuts[1] <= cuts[2]
        if source.trees is right_branching:
            n = len(words)
            assert [len(cut) for cut in cuts] == [
                min(1, n - 1),
                min(2, n - 1) if n > 4 else 1,
                min(3, n - 1) if n > 5 else len(cuts[1]),
            ]
    assert not len(together)


def test_sentences_of_one_word_and_full_stops():
    for source in SOURCES:
        assert applied(source, (["yes"], "(ROOT (UH yes))")).tolist() == [[0, 0, 0]]
    sentence = ["we", "slept", "."], "(ROOT (S (NP (PRP we)) (VP (VBD slept)) (. .)))"
    assert applied(Levels(), sentence)[:, 0].tolist() == [0, 1, 2]
    assert applied(Levels(stop=attached), sentence, sentence)[:, 0].tolist() == [0, 1, 1, 0, 1, 1]


def test_dependencies_by_head_rules():
    heads, labels = dependencies(parse(FIGURE_1))
    words = parse(FIGURE_1).tokens
    assert words[heads.index(0)] == "carries"
    found = {
        (word, words[head - 1] if head else ""): label for word, head, label in zip(words, heads, labels, strict=True)
    }
    assert found["girl", "carries"] == "NP" and found["dots", "with"] == "NP" and found["green", "dress"] == "JJ"
    for pair in Entailment().tables({"test": 50})["test"].to_pylist():
        tree = parse(pair["premise_tree"])
        assert flaw(dependencies(tree)[0]) == ""
        assert heads_and_relations(tree.tokens, pair["premise_tree"]).max() < 34 + len(tree.tokens)
    assert flaw(list(heads_and_relations(["a", "b", "c"], "")[:, 0])) == ""
