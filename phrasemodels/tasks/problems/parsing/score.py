"""Scores of parses against a treebank: labelled brackets, attachments, tags."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.formats.trees import Tree, parse
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.attachment import Arcs, Punctuation, attachments, penn, unicode
from phrasemodels.tasks.metrics.parseval import WRONG_WORDS, brackets, match_brackets, rates
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.sharded import read_shards

COUNTS = ("brackets", "failed", "exact", "heads", "arcs", "heads_unicode", "arcs_unicode", "tags")


@dataclass(frozen=True)
class ParseScoring:
    """The rule for punctuation, which UAS and LAS leave out."""

    punctuation: Punctuation = penn


def score_parses(job: Job, settings: ParseScoring) -> dict[str, Any]:
    """Score job.inputs["predictions"] against the TREES ["rows"]. Also writes breakdown.json.

    EVALB leaves words out by their tags, so both trees get the gold tags; predicted tags have a score of their own.
    """
    gold = read_shards(job.inputs["rows"]).to_pylist()
    predicted = read_shard(job.inputs["predictions"].file("predictions.arrow")).to_pylist()
    breakdown = Breakdown()
    counts = [_counts(*pair, settings.punctuation, breakdown) for pair in zip(gold, predicted, strict=True)]
    columns = {name: [row[place] for row in counts] for place, name in enumerate(COUNTS)}
    ids = {name: [row[name] for row in gold] for name in ("id", "group")}
    write_durably(job.out / "breakdown.json", json.dumps(breakdown.rates(), indent=1))
    return write_scores(job, _scores(columns, settings), pa.table(ids | columns), job.inputs["rows"].meta["shards"])


def _counts(
    gold: dict[str, Any], predicted: dict[str, Any], punctuation: Punctuation, breakdown: "Breakdown"
) -> tuple[list[int], ...]:
    """Return the COUNTS of one sentence: (matched, predicted, gold) brackets; (failed, all) trees; then, for exact trees,
    heads, arcs and tags, (right, all)."""
    tags = gold["tags"] or gold["universal"] or [""] * len(gold["tokens"])
    words = list(zip(gold["tokens"], tags, strict=True))
    skipped = [punctuation(*word) for word in words]
    arcs, guessed = _arcs(gold), _arcs(predicted)
    if not gold["relations"]:  # a treebank of unlabelled arcs: LAS is UAS
        guessed = Arcs(guessed.heads, [""] * len(guessed.heads))
    phrases, exact, attached = [0, 0, 0], [0, 0], [[0, 0]] * 4
    failed = [int(not predicted["tree"]), 1] if gold["tree"] else [0, 0]
    if gold["tree"] and predicted["tree"]:
        trees = [parse(row["tree"])._replace(tags=tuple(tags)) for row in (gold, predicted)]
        result = match_brackets(*trees)
        assert result.status != WRONG_WORDS, f"row {gold['id']}: the parse has other words"
        phrases, exact = [result.matched, result.predicted, result.gold], [int(result.exact), 1]
        breakdown.add_tree(*trees)
    if arcs.heads and guessed.heads:
        attached = []
        for skip in (skipped, [unicode(*word) for word in words]):
            total, heads, labelled = attachments(arcs, guessed, skip)
            attached += [[heads, total], [labelled, total]]
        breakdown.add_arcs(arcs, guessed, skipped)
    right = sum(tag == other for tag, other in zip(gold["tags"], predicted["tags"], strict=bool(gold["tags"])))
    return phrases, failed, exact, *attached, [right, len(gold["tags"])]


def _arcs(row: dict[str, Any]) -> Arcs:
    return Arcs(row["heads"], row["relations"] or [""] * len(row["heads"]))


def _scores(columns: dict[str, list[list[int]]], settings: ParseScoring) -> dict[str, Score]:
    sums = {name: [sum(column) for column in zip(*rows, strict=True)] for name, rows in columns.items()}
    matched, guessed, gold = sums["brackets"]
    sentences = sums["exact"][1]
    evalb = "EVALB COLLINS+S1?!, gold tags"
    scores = {name: Score(v, evalb, sentences) for name, v in rates(matched, guessed, gold)._asdict().items()}
    rule = getattr(settings.punctuation, "__name__", "")
    shares = {
        "failed": ("failed", "trees that were not found, which EVALB leaves out"),
        "exact": ("exact", evalb),
        "uas": ("heads", f"without punctuation: {rule}"),
        "las": ("arcs", f"without punctuation: {rule}"),
        "uas_unicode": ("heads_unicode", "without punctuation: unicode"),
        "las_unicode": ("arcs_unicode", "without punctuation: unicode"),
        "tags": ("tags", "all words"),
    }
    for name, (column, signature) in shares.items():
        right, total = sums[column]
        scores[name] = Score(100 * right / total if total else 0.0, signature, len(columns["tags"]))
    return scores


@dataclass
class Breakdown:
    """(matched, predicted, gold) counts: of brackets by label and by length of the sentence, of arcs by relation."""

    labels: dict[str, list[int]] = field(default_factory=dict)
    lengths: dict[str, list[int]] = field(default_factory=dict)
    relations: dict[str, list[int]] = field(default_factory=dict)

    def add_tree(self, gold: Tree, predicted: Tree) -> None:
        """Count the brackets of a sentence that EVALB scores."""
        (words, expected), (_, found) = brackets(gold), brackets(predicted)
        for place, counter in enumerate((expected & found, found, expected)):
            for span, count in counter.items():
                self.labels.setdefault(span.label, [0, 0, 0])[place] += count
                self.lengths.setdefault(_bucket(len(words)), [0, 0, 0])[place] += count

    def add_arcs(self, gold: Arcs, predicted: Arcs, skipped: Sequence[bool]) -> None:
        """Count the arcs to the words of a sentence that are not skipped."""
        pairs = (zip(arcs.heads, arcs.relations, strict=True) for arcs in (gold, predicted))
        for (head, relation), (guess, name), skip in zip(*pairs, skipped, strict=True):
            if not skip:
                own = self.relations.setdefault(relation, [0, 0, 0])
                own[0] += (head, relation) == (guess, name)
                own[2] += 1
                self.relations.setdefault(name, [0, 0, 0])[1] += 1

    def rates(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return precision, recall and F1 of each label, length and relation, with its count in the gold trees."""
        parts = {"labels": self.labels, "lengths": self.lengths, "relations": self.relations}
        return {
            part: {name: {**rates(*counts)._asdict(), "gold": counts[2]} for name, counts in sorted(of_part.items())}
            for part, of_part in parts.items()
        }


def _bucket(words: int) -> str:
    first = (words - 1) // 10 * 10 + 1
    return f"{first:03d}-{first + 9:03d}" if words <= 60 else "061-"
