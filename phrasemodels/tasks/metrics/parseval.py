"""Labelled brackets of parses (PARSEVAL), counted as EVALB counts them.

EVALB is the program of Sekine and Collins (1997), here with the parameters of `COLLINS.prm` as extended for later
treebanks. Counts of sentences add up: the score of a corpus is a function of their sums.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from phrasemodels.data.formats.trees import Span, Tree
from phrasemodels.verdicts.significance import Array

DELETED = frozenset(["TOP", "ROOT", "S1", "-NONE-", ",", ":", "``", "''", ".", "?", "!"])  # labels, and tags of words
EQUAL = {"PRT": "ADVP"}

SCORED, WRONG_WORDS, NO_PARSE = "scored", "the parse has other words", "no parse"


class Brackets(NamedTuple):
    """Counts of one sentence: brackets in both trees, in the gold tree, in the parse; crossing brackets of the parse.

    status: whether EVALB scores the sentence. The counts of a sentence that it does not score are 0.
    """

    matched: int
    gold: int
    predicted: int
    crossing: int
    status: str

    @property
    def exact(self) -> bool:
        """Whether the sentence is a complete match."""
        return self.status == SCORED and self.matched == self.gold == self.predicted


def brackets(tree: Tree) -> tuple[list[str], Counter[Span]]:
    """Return the words of a tree that count, and the brackets over them.

    Words are left out by their tags (punctuation, traces); a bracket without words is none. Labels end at the first `-`
    or `=`; ADVP and PRT are one label.
    """
    before, words = [0], []
    for token, tag in zip(tree.tokens, tree.tags, strict=True):
        if tag not in DELETED:
            words.append(token)
        before.append(len(words))
    spans = (Span(_bare(label), before[start], before[end]) for label, start, end in tree.spans)
    return words, Counter(span for span in spans if span.start < span.end and span.label not in DELETED)


def _bare(label: str) -> str:
    """Return a label without function tags."""
    if label in DELETED:
        return label
    bare = label.split("-")[0].split("=")[0]
    return EQUAL.get(bare, bare)


def match_brackets(gold: Tree, predicted: Tree) -> Brackets:
    """Return EVALB's counts of one sentence."""
    gold_words, gold_spans = brackets(gold)
    words, spans = brackets(predicted)
    if gold_words and not words:
        return Brackets(0, 0, 0, 0, NO_PARSE)
    if gold_words != words:
        return Brackets(0, 0, 0, 0, WRONG_WORDS)
    crossing = sum(count for span, count in spans.items() if any(_cross(other, span) for other in gold_spans))
    return Brackets((gold_spans & spans).total(), gold_spans.total(), spans.total(), crossing, SCORED)


def _cross(one: Span, other: Span) -> bool:
    return one.start < other.start < one.end < other.end or other.start < one.start < other.end < one.end


class Rates(NamedTuple):
    """Precision, recall and F1, in percent."""

    precision: float
    recall: float
    f1: float


def rates(matched: int, predicted: int, gold: int) -> Rates:
    """Return precision, recall and F1 of counts; a rate of nothing is 0."""
    precision, recall = (100 * matched / total if total else 0.0 for total in (predicted, gold))
    both = precision + recall
    return Rates(precision, recall, 2 * precision * recall / both if both else 0.0)


def f1_of(sums: Array) -> Array:
    """Return the F1, in percent, of summed (matched, predicted, gold) counts (..., 3); it is 0 where there is no bracket."""
    return 200 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1)
