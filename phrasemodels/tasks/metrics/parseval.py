"""Scores of parses: labelled brackets (PARSEVAL), attachment (UAS, LAS), agreement with a treebank.

Agreement is over the same tokens. Brackets are counted as EVALB does (Sekine and Collins 1997). It has the parameters
of `COLLINS.prm` as extended for later treebanks. For attachment a rule decides which words are punctuation and don't
count. Counts of sentences add up. The score of a corpus is a function of their sums.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from phrasemodels.data.formats.trees import Span, Tree, parse
from phrasemodels.verdicts.significance import Array

DELETED = frozenset(["TOP", "ROOT", "S1", "-NONE-", ",", ":", "``", "''", ".", "?", "!"])  # labels, and tags of words
EQUAL = {"PRT": "ADVP"}

SCORED, WRONG_WORDS, NO_PARSE = "scored", "the parse has other words", "no parse"


class Brackets(NamedTuple):
    """Counts of one sentence: brackets in both trees, in the gold tree and in the parse.

    status: whether EVALB scores the sentence. Otherwise its counts are 0.
    """

    matched: int
    gold: int
    predicted: int
    status: str

    @property
    def exact(self) -> bool:
        """Whether the sentence is a complete match."""
        return self.status == SCORED and self.matched == self.gold == self.predicted


def brackets(tree: Tree) -> tuple[list[str], Counter[Span]]:
    """Return the counted words of a tree, and the brackets over them.

    Words are left out by their tags (punctuation, traces). A bracket without words is none. Labels end at the first `-` or `=`. ADVP
    and PRT are one label.
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
        return Brackets(0, 0, 0, NO_PARSE)
    if gold_words != words:
        return Brackets(0, 0, 0, WRONG_WORDS)
    return Brackets((gold_spans & spans).total(), gold_spans.total(), spans.total(), SCORED)


class Rates(NamedTuple):
    """Precision, recall and F1 in percent."""

    precision: float
    recall: float
    f1: float


def rates(matched: int, predicted: int, gold: int) -> Rates:
    """Return precision, recall and F1 of counts. A rate of nothing is 0."""
    precision, recall = (100 * matched / total if total else 0.0 for total in (predicted, gold))
    both = precision + recall
    return Rates(precision, recall, 2 * precision * recall / both if both else 0.0)


def f1_of(sums: Array) -> Array:
    """Return the F1 (%) of summed (matched, predicted, gold) counts (..., 3). It is 0 without brackets."""
    return 200 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1)


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
    """Counts of one sentence: counted words, words with the right head, words with the right head and relation."""

    words: int
    heads: int
    labelled: int


def attachments(gold: Arcs, predicted: Arcs, skipped: Sequence[bool]) -> Attachments:
    """Return the counts of UAS and LAS over the unskipped words of a sentence."""
    words = heads = labelled = 0
    arcs = (gold.heads, predicted.heads, gold.relations, predicted.relations)
    for head, guess, relation, name, skip in zip(*arcs, skipped, strict=True):
        if not skip:
            words += 1
            heads += head == guess
            labelled += head == guess and relation == name
    return Attachments(words, heads, labelled)


TAGS = {"universal": "upos", "tags": "xpos"}


def treebank_scores(gold: pa.Table, predicted: pa.Table) -> dict[str, float]:
    """Return percentages of agreement of two tables of TREES: upos, xpos, uas, las and f1.

    las ignores subtypes of relations. f1 counts as EVALB does. A metric counts only rows with its annotation in the
    treebank. It is left out if there are none. An unparsed sentence counts as wrong. ValueError: the tables have
    different tokens.
    """
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for own, other in zip(gold.to_pylist(), predicted.to_pylist(), strict=True):
        if own["tokens"] != other["tokens"]:
            raise ValueError(f"row {own['id']}: other tokens were parsed than the treebank's; parse its tokens")
        for column, name in TAGS.items():
            total[name] += len(own[column])
            right[name] += sum(map(str.__eq__, own[column], other[column]))
        total["uas"] += len(own["heads"])
        right["uas"] += sum(head == guess for head, guess in zip(own["heads"], other["heads"], strict=False))
        total["las"] += len(own["relations"])
        arcs = zip(own["heads"], own["relations"], other["heads"], other["relations"], strict=False)
        right["las"] += sum(h == guess and _main(r) == _main(name) for h, r, guess, name in arcs)
        if own["tree"]:
            tree = parse(own["tree"])
            found = parse(other["tree"]) if other["tree"] else Tree(tree.tokens, tree.tags, ())
            counts = match_brackets(tree, found._replace(tags=tree.tags))  # the treebank's tags say what is punctuation
            right["f1"] += 2 * counts.matched
            total["f1"] += counts.gold + counts.predicted
    return {name: 100 * right[name] / count for name, count in total.items() if count}


def _main(relation: str) -> str:
    """Return a relation without its subtype."""
    return relation.partition(":")[0]
