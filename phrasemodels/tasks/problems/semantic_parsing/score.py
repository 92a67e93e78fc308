"""Scores of logical forms: exact match, logic match and structure match."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.logic_match import MATCHES
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.train.loop import history

SIGNATURES = {
    "exact": "exact match, %",
    "logic": "logic match of Dong and Lapata (2018), %",
    "structure": "equal but for names of bound variables and order of arguments that commute, %",
}
AsText = Callable[[list[str]], str]  # tokens of a model -> the form that is compared


@dataclass(frozen=True)
class FormScoring:
    """How the tokens of a model become the form that is compared."""

    text: AsText


def score_forms(job: Job, settings: FormScoring) -> dict[str, object]:
    """Score job.inputs["predictions"], whose raw pairs are ["rows"]; ["train"] are the raw pairs of train.

    Each kind of match is given for all pairs, for pairs that are not in train (`exact/new`), by group, and, if there are
    ["dev_predictions"], on dev (`dev/exact`). `parameters`: millions; `speed`: thousands of target words a second of the
    training ["model"].
    """
    new = ~_in_train(job.inputs["rows"], job.inputs["train"])
    right, table = matches(job.inputs["predictions"], settings.text)
    groups = np.array(
        [group or ("new" if fresh else "seen") for group, fresh in zip(table["group"].to_pylist(), new, strict=True)]
    )
    chosen = {"": np.ones(len(new), bool), "/new": new, **{f"/{g}": groups == g for g in sorted(set(groups))}}
    scores = {
        f"{name}{suffix}": _percent(name, found[rows])
        for name, found in right.items()
        for suffix, rows in chosen.items()
        if rows.any()
    }
    if "dev_predictions" in job.inputs:
        dev, _ = matches(job.inputs["dev_predictions"], settings.text)
        scores |= {f"dev/{name}": _percent(name, found) for name, found in dev.items()}
    scores |= _of_training(job.inputs["model"], len(new))
    statistics = {name: pa.array(np.stack([found, np.ones_like(found)], 1).tolist()) for name, found in right.items()}
    sentences = pa.table({"id": table["id"], "group": pa.array(groups), **statistics})
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])


def matches(predictions: Artifact, text: AsText) -> tuple[dict[str, NDArray[np.int64]], pa.Table]:
    """Return for each kind of match which predictions are right, as 0 and 1 (rows), and the table of predictions."""
    table = read_shard(predictions.file("predictions.arrow"))
    hypotheses, references = (
        [text(tokens) for tokens in table[side].to_pylist()] for side in ("hypothesis", "reference")
    )
    right = {
        name: np.array([match(h, r) for h, r in zip(hypotheses, references, strict=True)], np.int64)
        for name, match in MATCHES.items()
    }
    return right, table


def _percent(name: str, right: NDArray[np.int64]) -> Score:
    return Score(100 * float(right.mean()), SIGNATURES[name], len(right))


def _of_training(model: Artifact, sentences: int) -> dict[str, Score]:
    """Return the size of a model and the speed of its training."""
    speed = float(np.median([row["items_per_second"] for row in history(model)])) / 1000
    return {
        "parameters": Score(model.meta["parameters"] / 1e6, "parameters, M", sentences),
        "speed": Score(speed, "target words of training a second, evaluation counted, K", sentences),
    }


def _in_train(rows: Artifact, train: Artifact) -> NDArray[np.bool_]:
    """Return which pairs of `rows` are also in train, word for word."""
    known = set(_pairs(train))
    return np.array([pair in known for pair in _pairs(rows)], bool)


def _pairs(rows: Artifact) -> list[tuple[str, str]]:
    table = read_shards(rows)
    return list(zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True))
