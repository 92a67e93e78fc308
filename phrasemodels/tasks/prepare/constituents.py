# mypy: disallow-untyped-defs=False
"""Constituency trees as paper 001's levels of phrases.

A level is a partition of the sentence. Its phrases are numbered from 0 in each sentence, and each token has the number of
its phrase. So the first tokens of phrases say all.

Structures for sentence encoders, k integers for each token: levels of phrases for PSAN, heads and relations for TBCNN.

A structure is a function of S sentences: their tokens, trees in brackets (or empty strings), and lengths (S). Trees may
also be made from the words alone.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from phrasemodels.config import at_least, one_of
from phrasemodels.data.formats.shards import level_schema, read_shard, write_shard
from phrasemodels.data.store.store import Job
from phrasemodels.inference.inputs import heads_and_relations
from phrasemodels.structs.dispatch import CACHED
from phrasemodels.tasks.prepare.phrases import Ints, lists
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards

MOST_WORDS = 3  # a phrase of so many words or fewer is not divided further (paper 001, footnote 1)
NEVER = 1 << 20  # deeper than any tree


class Nodes(NamedTuple):
    """All brackets of S trees, each before those inside of it: tokens [start, end), and the index of its parent (-1: none).

    first (S+1): the nodes of sentence s are first[s] to first[s+1]; a sentence without a tree has none.
    """

    first: Ints
    start: Ints
    end: Ints
    parent: Ints


# (trees, lengths (S), levels) -> the number of each token's phrase on each level (tokens, levels)
Partition = Callable[[pa.ChunkedArray, Ints, tuple[int, ...]], NDArray[np.int32]]


def nodes(trees: pa.ChunkedArray, lengths: Ints) -> Nodes:
    """Read trees in brackets, one a row, with brackets in words escaped; an empty string is no tree.

    ValueError: a tree is malformed, or has another number of words than `lengths` (S) says.
    """
    text = trees.combine_chunks().cast(pa.large_string())
    offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
    letters = np.frombuffer(text.buffers()[2] or b"", np.uint8)
    first = np.zeros(len(text) + 1, np.int64)
    np.cumsum(pc.count_substring(text, "(").to_numpy(), out=first[1:])
    found = np.zeros((3, int(first[-1])), np.int64)
    row = _read(letters, offsets, lengths, first, found)
    if row < len(text):
        raise ValueError(f"row {row}: {text[row].as_py()[:60]!r} is no tree of {lengths[row]} words; parse its tokens")
    return Nodes(first, *found)


@njit(cache=CACHED, nogil=True)
def _read(letters, offsets, lengths, first, found):
    """Fill in the nodes; return the first wrong row, or the number of rows."""
    start, end, parent = found
    for row in range(len(lengths)):
        node, around, words = first[row] - 1, -1, 0
        for i in range(offsets[row], offsets[row + 1]):
            if letters[i] == 40:  # (
                if around < 0 and node >= first[row]:
                    return row
                node += 1
                start[node], end[node], parent[node] = words, -1, around
                around = node
            elif letters[i] == 41:  # )
                if around < 0:
                    return row
                words += around == node  # nothing was opened in it: a leaf
                end[around] = words
                around = parent[around]
        if around >= 0 or (node >= first[row] and words != lengths[row]):
            return row
    return len(lengths)


def nary(found: Nodes, lengths: Ints, most_words: int = MOST_WORDS) -> Ints:
    """Return for each token the first level with a phrase that begins there (tokens), or NEVER.

    Level 1 has the children of the first node that branches. Level t+1 has the children of the nodes of level t with more than
    `most_words` words. Nodes with one child are skipped.
    """
    return _nary(*found, lengths, most_words)


def binarised(found: Nodes, lengths: Ints, most_words: int = MOST_WORDS) -> Ints:
    """Return `nary` of binarised trees: the children of a node are its first child, and all others together."""
    return _binarised(*found, lengths, most_words)


@njit(cache=CACHED, nogil=True)
def _nary(first, start, end, parent, lengths, most_words):
    begins = np.full(lengths.sum(), NEVER, np.int64)
    level = np.zeros(len(start), np.int64)  # NEVER inside of a node that is not divided
    token = 0
    for row, n in enumerate(lengths):
        if n:
            begins[token] = 0
        for node in range(first[row], first[row + 1]):
            around = parent[node]
            if around < 0:
                continue
            size, outer = end[node] - start[node], end[around] - start[around]
            if size == outer:
                level[node] = level[around]
            elif level[around] < NEVER and (outer > most_words or outer == n):
                level[node] = level[around] + 1
                begins[token + start[node]] = min(begins[token + start[node]], level[node])
            else:
                level[node] = NEVER
        token += n
    return begins


@njit(cache=CACHED, nogil=True)
def _binarised(first, start, end, parent, lengths, most_words):
    begins = np.full(lengths.sum(), NEVER, np.int64)
    level = np.zeros(len(start), np.int64)
    rest = np.zeros(len(start), np.int64)  # the level of the remaining children of a node, taken together
    token = 0
    for row, n in enumerate(lengths):
        if n:
            begins[token] = 0
        for node in range(first[row], first[row + 1]):
            around = parent[node]
            if around < 0:
                continue
            left = end[around] - start[node]  # words of the children from this one on
            if end[node] - start[node] == end[around] - start[around]:
                level[node] = rest[node] = level[around]
                continue
            if rest[around] == NEVER or (left <= most_words and left < n and end[node] < end[around]):
                rest[around] = level[node] = rest[node] = NEVER
                continue
            last = end[node] == end[around]
            level[node] = rest[around] if last else rest[around] + 1
            begins[token + start[node]] = min(begins[token + start[node]], level[node])
            if not last:
                rest[around] += 1
                begins[token + end[node]] = min(begins[token + end[node]], rest[around])
            rest[node] = level[node]
        token += n
    return begins


def numbered(begins: Ints, lengths: Ints, levels: tuple[int, ...]) -> NDArray[np.int32]:
    """Return the number of each token's phrase on these levels (tokens, levels), from 0 in each sentence."""
    begun = np.cumsum(begins[:, None] <= np.array(levels), 0, dtype=np.int32)
    first = np.cumsum(lengths) - lengths
    return begun - np.repeat(begun[np.minimum(first, max(len(begun) - 1, 0))], lengths, 0) if len(begun) else begun


def blocks(numbers: NDArray[np.int32], lengths: Ints) -> NDArray[np.int32]:
    """Return a partition with as many phrases in each sentence and level, of sizes that differ by one word at most (paper 001,
    Table 4, row 5).
    """
    position = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    last = numbers[np.cumsum(lengths)[lengths > 0] - 1]
    count = np.repeat(last + 1, lengths[lengths > 0], 0)
    return (position[:, None] * count // np.repeat(lengths, lengths)[:, None]).astype(np.int32)


def syntactic(trees: pa.ChunkedArray, lengths: Ints, levels: tuple[int, ...]) -> NDArray[np.int32]:
    """Phrases are constituents; a sentence without a tree is one phrase."""
    return numbered(nary(nodes(trees, lengths), lengths), lengths, levels)


def syntactic_binarised(trees: pa.ChunkedArray, lengths: Ints, levels: tuple[int, ...]) -> NDArray[np.int32]:
    """Phrases are constituents of binarised trees."""
    return numbered(binarised(nodes(trees, lengths), lengths), lengths, levels)


def equal_blocks(trees: pa.ChunkedArray, lengths: Ints, levels: tuple[int, ...]) -> NDArray[np.int32]:
    """As many phrases as there are constituents, of equal size, without regard to syntax."""
    return blocks(syntactic(trees, lengths, levels), lengths)


def bracketed(binary: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return binary trees of SNLI, `( ( A girl ) runs )` without brackets around words, as trees for `nodes`."""
    spaced = pc.replace_substring_regex(binary, r"([^ ()]+)", r"(X \1)")
    return pc.replace_substring(spaced, "( ", "(X ")


@dataclass(frozen=True)
class Divide:
    """The division of sentences, and the levels to write."""

    partition: Partition = syntactic
    levels: tuple[int, ...] = (1, 2, 3)


def divide(job: Job, settings: Divide) -> dict[str, Any]:
    """Write shards of the levels of the TREES job.inputs["rows"], in a step for each shard."""
    return map_shards(job, divide_shard, settings)


def divide_shard(job: Job, settings: Divide) -> dict[str, Any]:
    """Write the phrase numbers of one shard."""
    table = read_shard(job.inputs["shard"].path)
    lengths = pc.list_value_length(table["tokens"]).to_numpy().astype(np.int64)
    numbers = settings.partition(table["tree"], lengths, settings.levels)
    schema = level_schema(len(settings.levels))
    columns = [table["id"], lists(lengths, numbers), table["group"], table["reason"]]
    validate(numbers, lengths, str(job.inputs["shard"].path))
    return {"dropped": 0, **write_shard(job.out / SHARD, pa.Table.from_arrays(columns, schema=schema))}


def validate(numbers: NDArray[np.int32], lengths: Ints, where: str) -> None:
    """Check that each level is a partition: it begins with phrase 0, and a token continues its phrase or begins the next.

    ValueError: a row is no partition.
    """
    first = (np.cumsum(lengths) - lengths)[lengths > 0]
    steps = np.diff(numbers, axis=0, prepend=0)
    steps[first] = numbers[first]
    wrong = np.any((steps < 0) | (steps > 1), 1)
    wrong[first] |= numbers[first].any(1)
    if wrong.any():
        row = int(np.searchsorted(np.cumsum(lengths), np.flatnonzero(wrong)[0], "right"))
        raise ValueError(f"{where}: a level of row {row} is no partition of the sentence")


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
    """Random binary trees, functions of the words and the seed."""

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


@dataclass(frozen=True)
class Dependencies:
    """Head (from 1, 0 for the root) and relation of each token, by head rules on constituency trees.

    The relation is the label of the token's largest phrase as head; labels outside of RELATIONS share the last
    id. In a sentence without a tree the head of each word is the next word.
    """

    k: int = 2
    reads_trees: bool = True

    def __post_init__(self) -> None:
        one_of(self, "k", (2,))

    def __call__(self, tokens: TokenLists, trees: pa.ChunkedArray, lengths: Ints) -> Numbers:
        found = [heads_and_relations(row, tree) for row, tree in zip(tokens, trees.to_pylist(), strict=True)]
        return np.concatenate(found) if found else np.zeros((0, self.k), np.int32)


def described(structure: Structure) -> dict[str, Any] | None:
    """Return a structure as exported models name it (`phrasemodels.inference.inputs`); None: it is one of the user's own."""
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
    """A structure of corpora, called for the tokens of one sentence and its tree in brackets, or an empty text."""

    structure: Structure

    @property
    def reads_trees(self) -> bool:
        return self.structure.reads_trees

    def __call__(self, tokens: Sequence[str], tree: str) -> Numbers:
        return self.structure([list(tokens)], pa.chunked_array([[tree]]), np.array([len(tokens)]))
