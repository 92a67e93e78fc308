"""Levels of phrases: Figure 1 of paper 001, an independent division, and what stands in for trees."""

import itertools
import random

import numpy as np
import plain_001 as plain
import pytest

from data.dependencies import flaw
from data.grammar import pairs
from data.trees import parse
from tasks.levels import (
    Dependencies,
    EqualBlocks,
    RandomTrees,
    RightBranching,
    TreeLevels,
    WholeSentence,
    attached,
    binarised,
    dependencies,
)

FIGURE_1 = (
    "(ROOT (S (NP (NP (DT A) (JJ little) (NN girl)) (VP (VBG wearing) (NP (DT a) (JJ green) (NN dress)) "
    "(PP (IN with) (NP (JJ blue) (NNS dots))))) (VP (VBZ carries) (NP (DT a) (NN box)) "
    "(PP (IN by) (NP (PRP$ its) (NN handle))))))"
)


def phrases(numbers: np.ndarray, tokens: list[str]) -> list[list[str]]:
    """The levels of an (n, k) array as texts."""
    found = []
    for column in numbers.T:
        cuts = [0, *(np.flatnonzero(np.diff(column)) + 1), len(tokens)]
        found.append([" ".join(tokens[a:b]) for a, b in itertools.pairwise(cuts)])
    return found


def test_figure_1():
    tokens = list(parse(FIGURE_1).tokens)
    assert phrases(TreeLevels()(tokens, FIGURE_1), tokens) == [
        ["A little girl wearing a green dress with blue dots", "carries a box by its handle"],
        ["A little girl", "wearing a green dress with blue dots", "carries", "a box", "by its handle"],
        ["A little girl", "wearing", "a green dress", "with blue dots", "carries", "a box", "by its handle"],
    ]


def random_tree(rng: random.Random, depth: int) -> list:
    return ["w" if depth == 0 or rng.random() < 0.4 else random_tree(rng, depth - 1) for _ in range(rng.randint(1, 4))]


def bracketed(node: list | str) -> str:
    return f"(X {node})" if isinstance(node, str) else f"(P {' '.join(map(bracketed, node))})"


def test_equals_an_independent_division():
    rng = random.Random(0)
    for _ in range(300):
        tree = random_tree(rng, 5)
        text = bracketed(tree)
        tokens = list(parse(text).tokens)
        expected = [[" ".join(words) for words in level] for level in plain.phrase_levels(tree, (1, 2, 3, 5))]
        assert phrases(TreeLevels((1, 2, 3, 5))(tokens, text), tokens) == expected


SOURCES = (
    TreeLevels(),
    TreeLevels(form=binarised),
    RightBranching(),
    RandomTrees(),
    EqualBlocks(TreeLevels()),
    WholeSentence(),
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
def test_every_level_divides_the_sentence_and_the_next_divides_it_further(source):
    for pair in pairs(0, {"test": 50})["test"]:
        for sentence in (pair.premise, pair.hypothesis):
            numbers = source(sentence.source, f"(ROOT {sentence.tree})")
            assert numbers.shape == (len(sentence.source), source.k)
            assert (numbers[0] == 0).all() and set(np.diff(numbers, axis=0).ravel()) <= {0, 1}
            assert (np.diff(numbers[-1]) >= 0).all()
            if isinstance(source, TreeLevels):
                cuts = [set(np.flatnonzero(np.diff(column))) for column in numbers.T]
                assert cuts[0] <= cuts[1] <= cuts[2]
            if source == TreeLevels(form=binarised):
                assert numbers[-1, 0] <= 1


def test_blocks_are_equal_and_as_many():
    sentence = pairs(0, {"test": 1})["test"][0].premise
    like = TreeLevels()(sentence.source, sentence.tree)
    blocks = EqualBlocks(TreeLevels())(sentence.source, sentence.tree)
    assert (blocks[-1] == like[-1]).all()
    for column in blocks.T:
        sizes = np.bincount(column)
        assert sizes.max() - sizes.min() <= 1


def test_one_word_no_tree_and_the_full_stop():
    for source in SOURCES:
        assert source(["yes"], "").shape == (1, 3)
    assert (TreeLevels()(["a", "b", "c"], "")[:, 0] == [0, 1, 2]).all()
    text = "(ROOT (S (NP (PRP we)) (VP (VBD slept)) (. .)))"
    tokens = ["we", "slept", "."]
    assert (TreeLevels(stop=attached)(tokens, text)[:, 0] == [0, 1, 1]).all()


def test_dependencies_by_head_rules():
    heads, labels = dependencies(parse(FIGURE_1))
    words = parse(FIGURE_1).tokens
    assert words[heads.index(0)] == "carries"
    found = {
        (word, words[head - 1] if head else ""): label for word, head, label in zip(words, heads, labels, strict=True)
    }
    assert found["girl", "carries"] == "NP" and found["dots", "with"] == "NP" and found["green", "dress"] == "JJ"
    for pair in pairs(0, {"test": 50})["test"]:
        tree = parse(f"(ROOT {pair.premise.tree})")
        assert flaw(dependencies(tree)[0]) == ""
        assert Dependencies()(tree.tokens, f"(ROOT {pair.premise.tree})").max() < 34 + len(tree.tokens)
    assert flaw(list(Dependencies()(["a", "b", "c"], "")[:, 0])) == ""
