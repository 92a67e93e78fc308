"""Constituency trees as paper 001's levels of phrases.

A level is a partition of the sentence. Its phrases are numbered from 0 in each sentence, and each token has the number of
its phrase. `phrasemodels.inference.inputs` divides a sentence; here are columns of sentences.

Structures for sentence encoders, k integers for each token: levels of phrases for PSAN, heads and relations for TBCNN.

A structure is a function of S sentences: their tokens, trees in brackets (or empty strings) and lengths (S). Trees may
also be made from the words alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemodels.config import at_least, one_of
from phrasemodels.data.formats.trees import Span, Tree, brackets
from phrasemodels.inference import inputs
from phrasemodels.inference.inputs import heads_and_relations, random_spans
from phrasemodels.tasks.prepare.phrases import Ints

# (trees, lengths (S), levels) -> the number of each token's phrase on each level (tokens, levels)
Partition = Callable[[pa.ChunkedArray, Ints, tuple[int, ...]], NDArray[np.int32]]


def syntactic(trees: pa.ChunkedArray, lengths: Ints, levels: tuple[int, ...]) -> NDArray[np.int32]:
    """Phrases are constituents. A sentence without a tree is one phrase."""
    return _each(inputs.Levels("syntactic", levels), trees, lengths)


def syntactic_binarised(trees: pa.ChunkedArray, lengths: Ints, levels: tuple[int, ...]) -> NDArray[np.int32]:
    """Phrases are constituents of binarised trees."""
    return _each(inputs.Levels("syntactic_binarised", levels), trees, lengths)


def equal_blocks(trees: pa.ChunkedArray, lengths: Ints, levels: tuple[int, ...]) -> NDArray[np.int32]:
    """As many phrases as there are constituents, without regard to syntax: sizes differ by one word at most (Table 4, row 5)."""
    return _each(inputs.Levels("equal_blocks", levels), trees, lengths)


def _each(divided: inputs.Levels, trees: pa.ChunkedArray, lengths: Ints) -> NDArray[np.int32]:
    """Divide each sentence by its tree in brackets, or "". ValueError: a tree is malformed, or has other words."""
    found: list[NDArray[np.int32]] = [np.zeros((0, len(divided.levels)), np.int32)]
    for row, (tree, n) in enumerate(zip(trees.to_pylist(), lengths.tolist(), strict=True)):
        try:
            found += [divided([""] * n, tree)] if n else []
        except ValueError as error:
            raise ValueError(f"row {row}: {tree[:60]!r} is no tree of {n} words; parse its tokens") from error
    return np.concatenate(found)


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
    """No trees: on every level the sentence is one phrase (rows 4 and 7 of Table 4 in paper 001)."""
    return pa.chunked_array([[""] * len(tokens)], pa.string())


def right_branching(tokens: TokenLists, trees: pa.ChunkedArray) -> pa.ChunkedArray:
    """Right-branching trees: each phrase is a word and the rest."""
    return _in_brackets(tokens, ([(start, len(row)) for start in range(len(row) - 1)] for row in tokens))


@dataclass(frozen=True)
class AtRandom:
    """Random binary trees, functions of the words and the seed.

    Args:
        seed: Seed of the draws.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        at_least(self, 0, "seed")

    def __call__(self, tokens: TokenLists, trees: pa.ChunkedArray) -> pa.ChunkedArray:
        return _in_brackets(tokens, (random_spans(row, self.seed) for row in tokens))


def _in_brackets(tokens: TokenLists, spans: Iterable[Sequence[inputs.Span]]) -> pa.ChunkedArray:
    """Return trees of these phrases with outer ones first. All words are the same as only phrases are read."""
    made = [
        brackets(Tree(("x",) * len(row), ("X",) * len(row), tuple(Span("X", *span) for span in own or [(0, len(row))])))
        for row, own in zip(tokens, spans, strict=True)
    ]
    return pa.chunked_array([made], pa.string())


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

    Args:
        partition: The division of a phrase (syntactic, syntactic_binarised or equal_blocks).
        levels: The levels as numbers from 1.
        trees: The trees (given, none, right_branching or AtRandom).
        stop: Where full stops belong (apart or attached).
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


@dataclass(frozen=True)
class Dependencies:
    """Head (from 1, 0 for the root) and relation of each token, by head rules on constituency trees.

    The relation is the label of the token's largest phrase as head. Labels outside of RELATIONS share the last id. In a
    sentence without a tree the head of each word is the next word.

    Args:
        k: Numbers of a token. It is always 2.
        reads_trees: Whether the corpus has to give trees.
    """

    k: int = 2
    reads_trees: bool = True

    def __post_init__(self) -> None:
        one_of(self, "k", (2,))

    def __call__(self, tokens: TokenLists, trees: pa.ChunkedArray, lengths: Ints) -> Numbers:
        found = [heads_and_relations(row, tree) for row, tree in zip(tokens, trees.to_pylist(), strict=True)]
        return np.concatenate(found) if found else np.zeros((0, self.k), np.int32)


def described(structure: Structure) -> dict[str, Any] | None:
    """Return a structure as exported models name it (`phrasemodels.inference.inputs`).

    None: it is one of the user's own.
    """
    if isinstance(structure, Dependencies):
        return {"kind": "Dependencies"}
    parts = (syntactic, syntactic_binarised, equal_blocks, given, none, right_branching, apart, attached)
    if not isinstance(structure, Levels):
        return None
    own, seed = {structure.partition, structure.stop}, 0
    if isinstance(structure.trees, AtRandom):
        trees, seed = "AtRandom", structure.trees.seed
    else:
        trees, own = getattr(structure.trees, "__name__", ""), {*own, structure.trees}
    if not own <= {*parts}:
        return None
    partition, stop = structure.partition.__name__, structure.stop.__name__
    return {
        "kind": "Levels",
        "partition": partition,
        "levels": structure.levels,
        "trees": trees,
        "seed": seed,
        "stop": stop,
    }


@dataclass(frozen=True)
class OneSentence:
    """A structure of corpora for the tokens of one sentence and its tree in brackets (or an empty text)."""

    structure: Structure

    @property
    def reads_trees(self) -> bool:
        return self.structure.reads_trees

    def __call__(self, tokens: Sequence[str], tree: str) -> Numbers:
        return self.structure([list(tokens)], pa.chunked_array([[tree]]), np.array([len(tokens)]))
