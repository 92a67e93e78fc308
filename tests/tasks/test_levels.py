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
from phrasemodels.inference.inputs import Dependencies, Levels, dependencies
from phrasemodels.tasks.problems.sentence_data import structures

FIGURE_1 = (
    "(ROOT (S (NP (NP (DT A) (JJ little) (NN girl)) (VP (VBG wearing) (NP (DT a) (JJ green) (NN dress)) "
    "(PP (IN with) (NP (JJ blue) (NNS dots))))) (VP (VBZ carries) (NP (DT a) (NN box)) "
    "(PP (IN by) (NP (PRP$ its) (NN handle))))))"
)


def applied(structure, *sentences: tuple[list[str], str]) -> np.ndarray:
    tokens = [words for words, _ in sentences]
    trees = pa.chunked_array([[tree for _, tree in sentences]], pa.string())
    return structures(structure, tokens, trees)


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
    Levels("syntactic_binarised"),
    Levels(trees="right_branching"),
    Levels(trees="AtRandom"),
    Levels(trees="none"),
    Levels("equal_blocks", trees="AtRandom"),
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: f"{s.partition}-{s.trees}")
def test_every_level_is_a_partition_that_refines_the_previous_one(source):
    pairs = Entailment().tables({"test": 50})["test"].to_pylist()
    sentences = [(pair[side].split(), pair[f"{side}_tree"]) for pair in pairs for side in ("premise", "hypothesis")]
    together = applied(source, *sentences)
    for words, tree in sentences:
        numbers, together = np.split(together, [len(words)])
        assert (numbers == applied(source, (words, tree))).all()
        assert numbers.shape == (len(words), 3)
        assert (numbers[0] == 0).all() and set(np.diff(numbers, axis=0).ravel()) <= {0, 1}
        cuts = [set(np.flatnonzero(np.diff(column))) for column in numbers.T]
        assert source.partition == "equal_blocks" or cuts[0] <= cuts[1] <= cuts[2]
        if source.trees == "right_branching":
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
    assert applied(Levels(stop="attached"), sentence, sentence)[:, 0].tolist() == [0, 1, 1, 0, 1, 1]


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
        assert Dependencies()(tree.tokens, pair["premise_tree"]).max() < 34 + len(tree.tokens)
    assert flaw(list(Dependencies()(["a", "b", "c"], "")[:, 0])) == ""


@pytest.mark.parametrize("partition", ["syntactic", "syntactic_binarised", "equal_blocks"])
def test_blocks_are_as_many_as_constituents_and_of_equal_sizes(partition: str):
    rng = random.Random(1)
    for _ in range(100):
        text = bracketed(random_tree(rng, 4))
        tokens = list(parse(text).tokens)
        wanted, got = (applied(Levels(how), (tokens, text)) for how in (partition, "equal_blocks"))
        for level in range(3):
            sizes = np.bincount(got[:, level])
            assert partition == "syntactic_binarised" or len(np.bincount(wanted[:, level])) == len(sizes)
            assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(
    ("tree", "words"),
    [("(ROOT (X (NN a)", 1), ("(ROOT (NN a))) (", 1), ("(X (NN a)) (X (NN b))", 2), ("(X (NN a))", 2)],
)
@pytest.mark.parametrize("structure", [Levels(), Dependencies()], ids=["levels", "dependencies"])
def test_malformed_trees_are_refused_by_row(structure, tree: str, words: int):
    with pytest.raises(ValueError, match=rf"row 1: .* is no tree of {words} words; parse its tokens"):
        applied(structure, (["a"], "(X (NN a))"), (["a"] * words, tree))


def test_a_sentence_without_a_tree_is_one_phrase():
    numbers = applied(Levels(), (["a"] * 3, ""), ([], ""), (["a", "b"], "(X (A a) (B b))"))
    assert numbers.tolist() == [[0, 0, 0]] * 4 + [[1, 1, 1]]
    assert applied(Levels()).shape == (0, 3) and applied(Dependencies()).shape == (0, 2)
