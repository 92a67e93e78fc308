"""Attachment scores of dependency parses: UAS (right heads) and LAS (right heads with right relations).

A rule decides which words are punctuation and are left out. Counts of sentences add up.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Punctuation = Callable[[str, str], bool]  # (token, gold tag) -> whether it is left out
PENN_PUNCTUATION = frozenset([".", "``", "''", ":", ","])


def penn(token: str, tag: str) -> bool:
    """Punctuation by its gold Penn tag, as in paper 004 and its predecessors."""
    return tag in PENN_PUNCTUATION


def unicode(token: str, tag: str) -> bool:
    """Punctuation by Unicode: every character has a category P, as in the tools of Universal Dependencies."""
    return all(unicodedata.category(character).startswith("P") for character in token)


def nothing(token: str, tag: str) -> bool:
    """No word is punctuation."""
    return False


@dataclass(frozen=True)
class Arcs:
    """Heads (n) of a sentence's words, counted from 1 with 0 for the root, and their relations (n)."""

    heads: Sequence[int]
    relations: Sequence[str]


class Attachments(NamedTuple):
    """Counts of one sentence: words that count, words with the right head, words with the right head and relation."""

    words: int
    heads: int
    labelled: int


def attachments(gold: Arcs, predicted: Arcs, skipped: Sequence[bool]) -> Attachments:
    """Return the counts of UAS and LAS over the words of a sentence that are not skipped."""
    words = heads = labelled = 0
    arcs = (gold.heads, predicted.heads, gold.relations, predicted.relations)
    for head, guess, relation, name, skip in zip(*arcs, skipped, strict=True):
        if not skip:
            words += 1
            heads += head == guess
            labelled += head == guess and relation == name
    return Attachments(words, heads, labelled)
