# mypy: disallow-untyped-defs=False
"""Phrases of a dependency tree: its edges, and what hangs together of three words (paper 000, Eq 8)."""

import numpy as np
from numba import njit

from phrasemodels.tasks.prepare.heads import Ints
from phrasemodels.tasks.prepare.phrases import Members, Sentences


def subtrees(sentences: Sentences, longest: int) -> tuple[Ints, Members]:
    """Connected parts of a tree with 2 to `longest` words (2 or 3), as `phrasemodels.tasks.prepare.phrases.adjacent` gives them.

    Words of a phrase ascend. Edges come first, by dependent; then, for each word, it with its head and its head's
    head, and it with its head and each later dependent of that. The edge to the root is none.
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
                    counts[row] += dependents[word]  # chains through a word: its head, it, a dependent
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
    """Three words, ascending."""
    phrase[0], phrase[2] = min(a, b, c), max(a, b, c)
    phrase[1] = a + b + c - phrase[0] - phrase[2]
