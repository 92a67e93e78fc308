"""Scores of parses against a treebank."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics import parseval as tree_scores
from phrasemodels.tasks.metrics.bleu import Score
from phrasemodels.tasks.metrics.parseval import Arcs, Breakdown
from phrasemodels.tasks.prepare.sharded import read_shards


@dataclass(frozen=True)
class ParseScoring:
    """Which words UAS and LAS leave out."""

    punctuation: tree_scores.Punctuation = tree_scores.penn


def score_parses(job: Job, settings: ParseScoring) -> dict[str, Any]:
    """scores.json, breakdown.json and sentences.arrow of job.inputs["predictions"] against TREES of ["rows"].

    EVALB leaves words out by their tags, so both trees get the gold ones; tags are scored by themselves.
    """
    gold = read_shards(job.inputs["rows"]).to_pylist()
    found = read_shard(job.inputs["predictions"].file("predictions.arrow")).to_pylist()
    breakdown, counts = Breakdown(), []
    for own, guess in zip(gold, found, strict=True):
        counts.append(_sentence(own, guess, settings.punctuation, breakdown))
    names = ("brackets", "failed", "exact", "heads", "arcs", "heads_unicode", "arcs_unicode", "tags")
    columns = {name: [row[place] for row in counts] for place, name in enumerate(names)}
    ids = {name: [row[name] for row in gold] for name in ("id", "group")}
    write_shard(job.out / "sentences.arrow", pa.table(ids | columns))
    scores = {name: asdict(score) for name, score in _scores(columns, settings).items()}
    write_durably(job.out / "scores.json", json.dumps(scores, indent=1))
    write_durably(job.out / "breakdown.json", json.dumps(breakdown.rates(), indent=1))
    return {"scores": scores, "test_set": job.inputs["rows"].meta["shards"]}


def _sentence(
    own: dict[str, Any], guess: dict[str, Any], rule: tree_scores.Punctuation, breakdown: Breakdown
) -> tuple[list[int], ...]:
    """What adds up over sentences: (matched, found, gold) brackets, (failed, all) trees, and (right, all) of the rest."""
    words = list(zip(own["tokens"], own["tags"], strict=True))
    skipped = [rule(*word) for word in words]
    arcs, guessed = Arcs(own["heads"], own["relations"]), Arcs(guess["heads"], guess["relations"])
    phrases, exact, attached = [0, 0, 0], [0, 0], [[0, 0]] * 4
    failed = [int(not guess["tree"]), 1] if own["tree"] else [0, 0]
    if own["tree"] and guess["tree"]:
        trees = [parse(tree)._replace(tags=tuple(own["tags"])) for tree in (own["tree"], guess["tree"])]
        result = tree_scores.compare(*trees)
        assert result.status != tree_scores.WRONG_WORDS, f"row {own['id']}: the parse has other words"
        phrases, exact = [result.matched, result.found, result.gold], [int(result.exact), 1]
        breakdown.add_tree(*trees)
    if arcs.heads and guessed.heads:
        attached = []
        for skip in (skipped, [tree_scores.unicode(*word) for word in words]):
            total, heads, labelled = tree_scores.attachments(arcs, guessed, skip)
            attached += [[heads, total], [labelled, total]]
        breakdown.add_arcs(arcs, guessed, skipped)
    right = sum(tag == other for tag, other in zip(own["tags"], guess["tags"], strict=True))
    return phrases, failed, exact, *attached, [right, len(words)]


def _scores(columns: dict[str, list[list[int]]], settings: ParseScoring) -> dict[str, Score]:
    sums = {name: tree_scores.total(map(tuple, rows)) for name, rows in columns.items()}
    matched, guessed, gold = sums["brackets"]
    sentences = sums["exact"][1]
    rates = tree_scores.rates(matched, gold, guessed)
    evalb = "EVALB COLLINS+S1?!, gold tags"
    found = {name: Score(value, evalb, sentences) for name, value in rates._asdict().items()}
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
        found[name] = Score(100 * right / total if total else 0.0, signature, len(columns["tags"]))
    return found
