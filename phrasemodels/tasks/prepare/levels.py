"""Structures for sentence encoders, k integers for each token: levels of phrases for PSAN, heads and relations for TBCNN.

A structure is a function of S sentences: their tokens, trees in brackets (or empty strings), and lengths (S). Trees may
also be made from the words alone.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemodels.data.formats.trees import Tree, parse
from phrasemodels.layers.checks import at_least, one_of
from phrasemodels.tasks.prepare.constituents import Partition, syntactic
from phrasemodels.tasks.prepare.phrases import Ints

Span = tuple[int, int]
Parts = Mapping[Span, Sequence[Span]]  # phrases with several parts -> their parts, in order
TokenLists = Sequence[Sequence[str]]
Numbers = NDArray[np.int32]


class Structure(Protocol):
    """A function of S sentences to `k` integers for each token. reads_trees: whether it needs the trees of the corpus."""

    @property
    def k(self) -> int: ...
    @property
    def reads_trees(self) -> bool: ...
    def __call__(self, tokens: TokenLists, trees: pa.ChunkedArray, lengths: Ints) -> Numbers: ...


# (tokens, trees of the corpus) -> the trees that are used
Trees = Callable[[TokenLists, pa.ChunkedArray], pa.ChunkedArray]


def given(tokens: TokenLists, trees: pa.ChunkedArray) -> pa.ChunkedArray:
    """The trees of the corpus."""
    return trees


def none(tokens: TokenLists, trees: pa.ChunkedArray) -> pa.ChunkedArray:
    """No trees: on every level the sentence is one phrase (paper 001, Table 4, rows 4 and 7)."""
    return pa.chunked_array([[""] * len(tokens)], pa.string())


def right_branching(tokens: TokenLists, trees: pa.ChunkedArray) -> pa.ChunkedArray:
    """Right-branching trees: each phrase is a word and the rest."""
    made = [f"(X {'(X)(X ' * (len(row) - 2)}{'(X)' * min(len(row), 2)}{')' * max(1, len(row) - 1)}" for row in tokens]
    return pa.chunked_array([made], pa.string())


@dataclass(frozen=True)
class AtRandom:
    """Random binary trees, which are functions of the words and the seed."""

    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, 0, "seed")

    def __call__(self, tokens: TokenLists, trees: pa.ChunkedArray) -> pa.ChunkedArray:
        return pa.chunked_array([[self.tree(row) for row in tokens]], pa.string())

    def tree(self, tokens: Sequence[str]) -> str:
        """Return a tree in brackets; a phrase is divided at each place with equal probability."""
        rng = random.Random(f"{self.seed} {' '.join(tokens)}")
        made, left = [], [len(tokens)]  # still to be written: a phrase of so many words, or 0 for a bracket
        while left:
            size = left.pop()
            made.append(")" if size == 0 else "(X)" if size == 1 else "(X ")
            if size > 1:
                first = rng.randrange(1, size)
                left += [0, size - first, first]
        return f"(X {''.join(made)})"


FullStop = Callable[[Numbers, TokenLists, Ints], Numbers]


def apart(numbers: Numbers, tokens: TokenLists, lengths: Ints) -> Numbers:
    """A full stop is a phrase of its own, as in the tree."""
    return numbers


def attached(numbers: Numbers, tokens: TokenLists, lengths: Ints) -> Numbers:
    """A full stop belongs to the previous phrase."""
    stops = [len(row) > 1 and not any(letter.isalnum() for letter in row[-1]) for row in tokens]
    last = (np.cumsum(lengths) - 1)[np.array(stops, bool)]
    numbers[last] = numbers[last - 1]
    return numbers


@dataclass(frozen=True)
class Levels:
    """The number of each token's phrase on some levels.

    partition: syntactic, syntactic_binarised or equal_blocks (constituents.py). trees: given, none, right_branching or
    AtRandom. stop: where full stops belong, apart or attached.
    """

    partition: Partition = syntactic
    levels: tuple[int, ...] = (1, 2, 3)
    trees: Trees = given
    stop: FullStop = apart

    def __post_init__(self) -> None:
        if not self.levels or not min(self.levels) >= 1:
            raise ValueError(f"levels={self.levels}: must be one or more levels, numbered from 1")

    @property
    def k(self) -> int:
        return len(self.levels)

    @property
    def reads_trees(self) -> bool:
        return self.trees is given

    def __call__(self, tokens: TokenLists, trees: pa.ChunkedArray, lengths: Ints) -> Numbers:
        numbers = self.partition(self.trees(tokens, trees), lengths, self.levels)
        return self.stop(numbers, tokens, lengths)


def parts_of(spans: Iterable[Span], n: int) -> Parts:
    """Return the phrases of nested spans over n words, with their parts. Spans of equal extent are one phrase; without
    spans the sentence is a phrase whose parts are its words."""
    nodes = sorted({span for span in spans if span[1] - span[0] > 1} | {(0, n)}, key=lambda span: (span[0], -span[1]))
    inside: dict[Span, list[Span]] = {node: [] for node in nodes}
    above: list[Span] = []
    for node in nodes:
        while above and above[-1][1] <= node[0]:
            above.pop()
        if above:
            inside[above[-1]].append(node)
        above.append(node)
    return {node: _with_words(node, parts) for node, parts in inside.items() if node[1] - node[0] > 1}


def _with_words(node: Span, parts: list[Span]) -> list[Span]:
    found, place = [], node[0]
    for start, end in [*parts, (node[1], node[1])]:
        found += [(word, word + 1) for word in range(place, start)]
        found += [(start, end)] if end > start else []
        place = end
    return found


# The head of a phrase, by its label: from which end it is looked for, and which labels are preferred.
HEADS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "S": (True, ("VP", "S")),
    "SQ": (True, ("VP", "VBZ", "VBD", "VBP", "MD")),
    "SBAR": (True, ("S", "SQ", "VP")),
    "VP": (True, ("VP", "VB", "VBD", "VBZ", "VBP", "VBN", "VBG", "MD")),
    "PP": (True, ("IN", "TO")),
    "NP": (False, ("NN", "NNS", "NNP", "NNPS", "NP", "PRP")),
}
RELATIONS = (
    *("ADJP", "ADVP", "NP", "PP", "S", "SBAR", "VP", "DT", "JJ", "NN", "NNS", "NNP", "RB", "VB", "VBD", "VBG", "VBN"),
    *("VBP", "VBZ", "MD", "PRP", "PRP$", "POS", "CC", "CD", "IN", "TO", "WDT", "WP", "WRB", ".", ",", "EX"),
)


@dataclass(frozen=True)
class Dependencies:
    """Head (from 1, 0 for the root) and relation of each token, by head rules on constituency trees.

    The relation is the label of the largest phrase that the token heads; labels that are not in RELATIONS share the last
    id. In a sentence without a tree the head of each word is the next word.
    """

    k: int = 2
    reads_trees: bool = True

    def __post_init__(self) -> None:
        one_of(self, "k", (2,))

    def __call__(self, tokens: TokenLists, trees: pa.ChunkedArray, lengths: Ints) -> Numbers:
        found = [self.sentence(row, tree) for row, tree in zip(tokens, trees.to_pylist(), strict=True)]
        return np.concatenate(found) if found else np.zeros((0, self.k), np.int32)

    def sentence(self, tokens: Sequence[str], tree: str) -> Numbers:
        """Return heads and relations (n, 2) of one sentence."""
        n, rare = len(tokens), len(RELATIONS)
        if not tree:
            return np.stack([np.r_[np.arange(2, n + 1), 0], np.full(n, rare)], 1).astype(np.int32)
        heads, labels = dependencies(parse(tree))
        known = {label: number for number, label in enumerate(RELATIONS)}
        return np.array([(head, known.get(label, rare)) for head, label in zip(heads, labels, strict=True)], np.int32)


def dependencies(tree: Tree) -> tuple[list[int], list[str]]:
    """Return heads (n), from 1 and 0 for the root, and labels (n) of a tree, by HEADS; by default the last part is the head."""
    n = len(tree.tokens)
    label_of: dict[Span, str] = {(i, i + 1): tag for i, tag in enumerate(tree.tags)}
    for label, start, end in reversed(tree.spans):  # the outermost label of a chain is set last
        label_of[start, end] = label
    inner = {(start, end): label for label, start, end in tree.spans}  # the innermost one decides the head
    parts = parts_of(((start, end) for _, start, end in tree.spans), n)
    heads, labels, head_of = [0] * n, ["ROOT"] * n, {(i, i + 1): i for i in range(n)}
    for node in sorted(parts, key=lambda span: span[1] - span[0]):
        first, wanted = HEADS.get(inner.get(node, ""), (False, ()))
        order = list(parts[node]) if first else list(parts[node])[::-1]
        chosen = next((part for label in wanted for part in order if label_of.get(part) == label), order[0])
        head_of[node] = head_of[chosen]
        for part in parts[node]:
            if part != chosen:
                heads[head_of[part]] = head_of[node] + 1
                labels[head_of[part]] = label_of[part]
    return heads, labels
