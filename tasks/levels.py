"""Trees to integers a token: levels of phrases for PSAN, heads and relations for TBCNN, and what stands in for trees.

A structure is a function (tokens, tree) -> (n, k) integers, where the tree is Penn brackets with the n tokens as leaves,
or empty where there is none. In a level the neighbours of one number are one phrase.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from data.trees import Tree, parse

Ints = NDArray[np.int32]
Span = tuple[int, int]
Division = Mapping[Span, Sequence[Span]]  # phrases of several parts to their parts, in order
SMALL = 4  # words from which on a phrase of a level is divided in the next (paper 001, footnote 1)


class Structure(Protocol):
    """Integers a token; `k` of them, `reads_trees` where it has to be given a tree."""

    @property
    def k(self) -> int: ...
    @property
    def reads_trees(self) -> bool: ...
    def __call__(self, tokens: Sequence[str], tree: str) -> Ints: ...


def division(spans: Iterable[Span], n: int) -> Division:
    """Nested spans as phrases and their parts; chains of one child are one phrase, and without any span a sentence has
    its words as parts."""
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


def nary(phrases: Division) -> Division:
    """Phrases as the tree has them (Figure 1)."""
    return phrases


def binarised(phrases: Division) -> Division:
    """The first part of each phrase, and all others as one."""
    found = {}
    for node, parts in phrases.items():
        for index in range(len(parts) - 1):
            rest = (parts[index + 1][0], node[1])
            found[parts[index][0], node[1]] = [parts[index], rest]
    return found


def levels(phrases: Division, n: int, depths: Sequence[int]) -> list[list[Span]]:
    """The phrases of each depth: the parts of the sentence, then those of all that have SMALL words or more."""
    found = {1: list(phrases.get((0, n), [(0, n)]))}
    for depth in range(2, max(depths) + 1):
        found[depth] = [
            part
            for phrase in found[depth - 1]
            for part in (phrases.get(phrase, [phrase]) if phrase[1] - phrase[0] >= SMALL else [phrase])
        ]
    return [found[depth] for depth in depths]


def numbered(found: Sequence[Sequence[Span]]) -> Ints:
    """Levels of spans as (n, levels) numbers."""
    columns = [np.repeat(np.arange(len(level)), [end - start for start, end in level]) for level in found]
    return np.stack(columns, 1).astype(np.int32)


def apart(numbers: Ints, tokens: Sequence[str]) -> Ints:
    """The full stop is a phrase of its own, as the tree has it."""
    return numbers


def attached(numbers: Ints, tokens: Sequence[str]) -> Ints:
    """The full stop belongs to the phrase before it."""
    if len(tokens) > 1 and not any(letter.isalnum() for letter in tokens[-1]):
        numbers[-1] = numbers[-2]
    return numbers


@dataclass(frozen=True)
class TreeLevels:
    """Levels of a tree. form: nary or binarised. stop: apart or attached. spans: those of a tree by default, or other
    ones made for its tokens."""

    depths: tuple[int, ...] = (1, 2, 3)
    form: Callable[[Division], Division] = nary
    stop: Callable[[Ints, Sequence[str]], Ints] = apart

    @property
    def k(self) -> int:
        return len(self.depths)

    @property
    def reads_trees(self) -> bool:
        return True

    def spans(self, tokens: Sequence[str], tree: str) -> Iterable[Span]:
        """Spans of the tree; none where there is no tree."""
        return ((span.start, span.end) for span in parse(tree).spans) if tree else ()

    def __call__(self, tokens: Sequence[str], tree: str) -> Ints:
        n = len(tokens)
        phrases = self.form(division(self.spans(tokens, tree), n))
        return self.stop(numbered(levels(phrases, n, self.depths)), tokens)


@dataclass(frozen=True)
class RightBranching(TreeLevels):
    """Levels of the tree in which every phrase is a word and the rest."""

    @property
    def reads_trees(self) -> bool:
        return False

    def spans(self, tokens: Sequence[str], tree: str) -> Iterable[Span]:
        return ((start, len(tokens)) for start in range(len(tokens) - 1))


@dataclass(frozen=True)
class RandomTrees(TreeLevels):
    """Levels of a random binary tree, the same for the same sentence and seed."""

    seed: int = 0

    @property
    def reads_trees(self) -> bool:
        return False

    def spans(self, tokens: Sequence[str], tree: str) -> Iterable[Span]:
        rng, found, open_ = random.Random(f"{self.seed} {' '.join(tokens)}"), [], [(0, len(tokens))]
        while open_:
            start, end = open_.pop()
            if end - start > 1:
                found.append((start, end))
                middle = rng.randrange(start + 1, end)
                open_ += [(start, middle), (middle, end)]
        return found


@dataclass(frozen=True)
class EqualBlocks:
    """As many phrases as a level has, all of one length but for one word (paper 001, Table 4, row 5)."""

    like: TreeLevels

    @property
    def k(self) -> int:
        return self.like.k

    @property
    def reads_trees(self) -> bool:
        return self.like.reads_trees

    def __call__(self, tokens: Sequence[str], tree: str) -> Ints:
        counts = self.like(tokens, tree)[-1] + 1
        return np.stack([np.arange(len(tokens)) * count // len(tokens) for count in counts], 1).astype(np.int32)


@dataclass(frozen=True)
class WholeSentence:
    """Every level is the sentence as one phrase (Table 4, rows 4 and 7)."""

    k: int = 3
    reads_trees: bool = False

    def __call__(self, tokens: Sequence[str], tree: str) -> Ints:
        return np.zeros((len(tokens), self.k), np.int32)


# Where a phrase has its head, by its label: from which end, and which labels come first.
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
    """Head (from 1, 0 for the root) and relation of each token, by head rules: the relation is the label of the largest
    phrase that the token heads, rare ones together last. Without a tree each word hangs on the next."""

    k: int = 2
    reads_trees: bool = True

    def __call__(self, tokens: Sequence[str], tree: str) -> Ints:
        n, rare = len(tokens), len(RELATIONS)
        if not tree:
            return np.stack([np.r_[np.arange(2, n + 1), 0], np.full(n, rare)], 1).astype(np.int32)
        heads, labels = dependencies(parse(tree))
        known = {label: number for number, label in enumerate(RELATIONS)}
        return np.array([(head, known.get(label, rare)) for head, label in zip(heads, labels, strict=True)], np.int32)


def dependencies(tree: Tree) -> tuple[list[int], list[str]]:
    """Heads (from 1, 0 for the root) and labels (n) of a tree, by HEADS; else the last part is the head."""
    n = len(tree.tokens)
    label_of: dict[Span, str] = {(i, i + 1): tag for i, tag in enumerate(tree.tags)}
    for label, start, end in reversed(tree.spans):  # the outermost label of a chain is set last
        label_of[start, end] = label
    inner = {(start, end): label for label, start, end in tree.spans}  # the innermost one says where the head is
    parts = division(((start, end) for _, start, end in tree.spans), n)
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
