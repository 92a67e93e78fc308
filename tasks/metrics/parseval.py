"""Scores of parses: labelled brackets as EVALB counts them, and attachments of dependents.

EVALB is the program of Sekine and Collins (1997), with the parameters of `COLLINS.prm` as extended for later treebanks.
Counts of sentences add up, so a corpus' score is a function of sums.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from phrasemodels.data.formats.trees import Span, Tree

# labels of phrases that are no brackets, and tags of words that are left out
DELETED = frozenset(["TOP", "ROOT", "S1", "-NONE-", ",", ":", "``", "''", ".", "?", "!"])
EQUAL = {"PRT": "ADVP"}
PENN_PUNCTUATION = frozenset([".", "``", "''", ":", ","])

SCORED, WRONG_WORDS, NO_PARSE = "scored", "the parse has other words", "no parse"


class Brackets(NamedTuple):
    """Of one sentence: brackets that are in both trees, in the gold one, in the parse; crossing brackets of the parse.

    status says whether EVALB scores it. What it does not score adds nothing: it is counted apart, never as an error.
    """

    matched: int
    gold: int
    found: int
    crossing: int
    status: str

    @property
    def exact(self) -> bool:
        """A complete match."""
        return self.status == SCORED and self.matched == self.gold == self.found


def brackets(tree: Tree) -> tuple[list[str], Counter[Span]]:
    """The words that count, and the brackets over them.

    Punctuation and traces are left out by their tags, so brackets may become empty, and then are none. Labels end at
    the first `-` or `=`; ADVP and PRT are one.
    """
    before, words = [0], []
    for token, tag in zip(tree.tokens, tree.tags, strict=True):
        if tag not in DELETED:
            words.append(token)
        before.append(len(words))
    spans = (Span(_bare(label), before[start], before[end]) for label, start, end in tree.spans)
    return words, Counter(span for span in spans if span.start < span.end and span.label not in DELETED)


def _bare(label: str) -> str:
    if label in DELETED:
        return label
    bare = label.split("-")[0].split("=")[0]
    return EQUAL.get(bare, bare)


def compare(gold: Tree, found: Tree) -> Brackets:
    """EVALB's counts of a sentence."""
    words, ours = brackets(gold)
    others, theirs = brackets(found)
    if words and not others:
        return Brackets(0, 0, 0, 0, NO_PARSE)
    if words != others:
        return Brackets(0, 0, 0, 0, WRONG_WORDS)
    crossing = sum(count for span, count in theirs.items() if any(_cross(own, span) for own in ours))
    return Brackets((ours & theirs).total(), ours.total(), theirs.total(), crossing, SCORED)


def _cross(one: Span, other: Span) -> bool:
    return one.start < other.start < one.end < other.end or other.start < one.start < other.end < one.end


class Rates(NamedTuple):
    """Shares in percent."""

    precision: float
    recall: float
    f1: float


def rates(matched: int, gold: int, found: int) -> Rates:
    """Precision, recall and their harmonic mean; 0 where there is nothing."""
    precision, recall = (100 * matched / total if total else 0.0 for total in (found, gold))
    both = precision + recall
    return Rates(precision, recall, 2 * precision * recall / both if both else 0.0)


Punctuation = Callable[[str, str], bool]


def penn(token: str, tag: str) -> bool:
    """Punctuation by its gold Penn tag: how paper 004 and its predecessors leave it out."""
    return tag in PENN_PUNCTUATION


def unicode(token: str, tag: str) -> bool:
    """Punctuation by Unicode: every character is of a category P (how Universal Dependencies' tools do)."""
    return all(unicodedata.category(character).startswith("P") for character in token)


def nothing(token: str, tag: str) -> bool:
    """No punctuation is left out."""
    return False


class Attachments(NamedTuple):
    """Of one sentence: words that count, those with the right head, those with the right head and relation."""

    words: int
    heads: int
    labelled: int


@dataclass(frozen=True)
class Arcs:
    """Heads (n), from 1 and 0 for the root, and relations (n) of a sentence."""

    heads: Sequence[int]
    relations: Sequence[str]


def attachments(gold: Arcs, found: Arcs, skipped: Sequence[bool]) -> Attachments:
    """UAS' and LAS' counts of a sentence over the words that are not skipped."""
    words = heads = labelled = 0
    arcs = (gold.heads, found.heads, gold.relations, found.relations)
    for head, guess, relation, name, skip in zip(*arcs, skipped, strict=True):
        if not skip:
            words += 1
            heads += head == guess
            labelled += head == guess and relation == name
    return Attachments(words, heads, labelled)


@dataclass
class Breakdown:
    """Brackets by label and by length of the sentence, arcs by relation: (matched, gold, found) each."""

    labels: dict[str, list[int]] = field(default_factory=dict)
    lengths: dict[str, list[int]] = field(default_factory=dict)
    relations: dict[str, list[int]] = field(default_factory=dict)

    def add_tree(self, gold: Tree, found: Tree) -> None:
        """Count the brackets of a sentence that EVALB scores."""
        (words, ours), (_, theirs) = brackets(gold), brackets(found)
        for place, counter in enumerate((ours & theirs, ours, theirs)):
            for span, count in counter.items():
                self.labels.setdefault(span.label, [0, 0, 0])[place] += count
                self.lengths.setdefault(_bucket(len(words)), [0, 0, 0])[place] += count

    def add_arcs(self, gold: Arcs, found: Arcs, skipped: Sequence[bool]) -> None:
        """Count the arcs to the words that are not skipped."""
        pairs = (zip(arcs.heads, arcs.relations, strict=True) for arcs in (gold, found))
        for (head, relation), (guess, name), skip in zip(*pairs, skipped, strict=True):
            if not skip:
                own = self.relations.setdefault(relation, [0, 0, 0])
                own[0] += (head, relation) == (guess, name)
                own[1] += 1
                self.relations.setdefault(name, [0, 0, 0])[2] += 1

    def rates(self) -> dict[str, dict[str, dict[str, float]]]:
        """Precision, recall and F1 of each, with how many there are in the gold trees."""
        parts = {"labels": self.labels, "lengths": self.lengths, "relations": self.relations}
        return {
            part: {name: {**rates(*counts)._asdict(), "gold": counts[1]} for name, counts in sorted(found.items())}
            for part, found in parts.items()
        }


def _bucket(words: int) -> str:
    first = (words - 1) // 10 * 10 + 1
    return f"{first:03d}-{first + 9:03d}" if words <= 60 else "061-"


def total(counts: Iterable[tuple[int, ...]]) -> list[int]:
    """Sums of the columns."""
    return [sum(column) for column in zip(*counts, strict=True)]
