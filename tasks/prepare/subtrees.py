# mypy: disallow-untyped-defs=False
"""Phrases from a dependency tree: its edges, and its connected parts of three words (paper 000, Eq 8)."""

import numpy as np
from numba import njit

from phrasemodels.tasks.prepare.phrases import Ints, LengthsAndHeads, Members


def subtrees(sentences: LengthsAndHeads, longest: int) -> tuple[Ints, Members]:
    """Connected parts of a tree with 2 to `longest` words (2 or 3); an arc to the root is no edge.

    Edges come first, by dependent. Then, for each word, come it with its head and its head's head, and it with its head
    and each later dependent of that head. Positions of a phrase ascend. ValueError: another `longest`, or no trees.
    """
    if longest not in (2, 3):
        raise ValueError(f"subtrees of up to {longest} words: paper 000 has edges (2) and three connected words (3)")
    if sentences.heads is None:
        raise ValueError("subtrees need trees: give the phrases step an input `trees`, from a treebank or a parser")
    counts = _count(sentences.lengths, sentences.heads, longest)
    members = np.full((int(counts.sum()), longest), -1, np.int32)
    _fill(sentences.lengths, sentences.heads, members)
    return counts, members


@njit(cache=True, nogil=True)
def _count(lengths, heads, longest):
    counts = np.zeros(len(lengths), np.int64)
    first = 0
    for row, n in enumerate(lengths):
        head = heads[first : first + n]
        dependents = np.zeros(n, np.int64)
        for word in range(n):
            if head[word] >= 0:
                counts[row] += 1
                dependents[head[word]] += 1
        if longest > 2:
            for word in range(n):
                counts[row] += dependents[word] * (dependents[word] - 1) // 2
                if head[word] >= 0:
                    counts[row] += dependents[word]  # chains: its head, the word, a dependent
        first += n
    return counts


@njit(cache=True, nogil=True)
def _fill(lengths, heads, members):
    first = at = 0
    for n in lengths:
        head = heads[first : first + n]
        for word in range(n):
            if head[word] >= 0:
                members[at, 0], members[at, 1] = min(word, head[word]), max(word, head[word])
                at += 1
        if members.shape[1] > 2:
            for word in range(n):
                if head[word] < 0:
                    continue
                if head[head[word]] >= 0:
                    _three(members[at], word, head[word], head[head[word]])
                    at += 1
                for other in range(word + 1, n):
                    if head[other] == head[word]:
                        _three(members[at], word, head[word], other)
                        at += 1
        first += n


@njit(cache=True, nogil=True)
def _three(phrase, a, b, c):
    """Write three positions in ascending order."""
    phrase[0], phrase[2] = min(a, b, c), max(a, b, c)
    phrase[1] = a + b + c - phrase[0] - phrase[2]
