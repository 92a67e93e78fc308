"""The problem of semantic parsing: questions to logical forms, as translation whose answers are right or wrong."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import PAD
from phrasemodels.tasks.metrics.bleu import Score
from phrasemodels.tasks.metrics.logic_match import MATCHES
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.translation.objective import Model, PhraseBatch, Translation
from phrasemodels.tasks.train.loop import HISTORY

SIGNATURES = {
    "exact": "exact match, %",
    "logic": "logic match of Dong and Lapata (2018), %",
    "structure": "equal but for names of bound variables and order of arguments that commute, %",
}


@dataclass(frozen=True)
class SemanticParsing(Translation):
    """Questions to logical forms. The best weights have the fewest wrong words on dev, as the paper stops."""

    def criterion(self, model: Model, batch: PhraseBatch) -> Tensor:
        """Words that are not the likeliest, given the gold ones before them."""
        gold = batch.target[:, 1:]
        likeliest = model(batch.source, batch.lengths, batch.members, batch.target[:, :-1]).argmax(-1)
        return ((likeliest != gold) & (gold != PAD)).sum()


@dataclass(frozen=True)
class FormScoreSettings:
    """text: tokens of the model to the form that is compared."""

    text: Callable[[list[str]], str]


def score_forms(job: Job, settings: FormScoreSettings) -> dict[str, Any]:
    """scores.json and sentences.arrow of job.inputs["predictions"], whose raw pairs are ["rows"]; ["train"] raw pairs.

    Each metric is given for all, for those that do not stand verbatim in train (`exact/new`), and by group; and for
    ["dev_predictions"], if there are any (`dev/exact`). `parameters` are millions, `speed` thousands of words a second.
    """
    new = ~_seen(job.inputs["rows"], job.inputs["train"])
    right, table = matches(job.inputs["predictions"], settings)
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
        dev, _ = matches(job.inputs["dev_predictions"], settings)
        scores |= {f"dev/{name}": _percent(name, found) for name, found in dev.items()}
    scores |= _of_training(job.inputs["model"], len(new))
    statistics = {name: pa.array(np.stack([found, np.ones_like(found)], 1).tolist()) for name, found in right.items()}
    write_shard(job.out / "sentences.arrow", pa.table({"id": table["id"], "group": pa.array(groups), **statistics}))
    found = {name: asdict(score) for name, score in scores.items()}
    write_durably(job.out / "scores.json", json.dumps(found, indent=1))
    return {"scores": found, "test_set": job.inputs["rows"].meta["shards"]}


def matches(predictions: Artifact, settings: FormScoreSettings) -> tuple[dict[str, Any], pa.Table]:
    """For every metric which predictions are right, as 0 and 1; and the predictions."""
    table = read_shard(predictions.file("predictions.arrow"))
    hypotheses, references = (
        [settings.text(tokens) for tokens in table[side].to_pylist()] for side in ("hypothesis", "reference")
    )
    right = {
        name: np.array([match(h, r) for h, r in zip(hypotheses, references, strict=True)], np.int64)
        for name, match in MATCHES.items()
    }
    return right, table


def _percent(name: str, right: Any) -> Score:
    return Score(100 * float(right.mean()), SIGNATURES[name], len(right))


def _of_training(model: Artifact, sentences: int) -> dict[str, Score]:
    history = json.loads(model.file(HISTORY).read_text(encoding="utf-8"))
    speed = float(np.median([row["tokens_per_second"] for row in history])) / 1000
    return {
        "parameters": Score(model.meta["parameters"] / 1e6, "parameters, M", sentences),
        "speed": Score(speed, "target words of training a second, evaluation counted, K", sentences),
    }


def _seen(rows: Artifact, train: Artifact) -> Any:
    """Which pairs stand verbatim in train."""
    known = set(_pairs(train))
    return np.array([pair in known for pair in _pairs(rows)], bool)


def _pairs(rows: Artifact) -> list[tuple[str, str]]:
    table = read_shards(rows)
    return list(zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True))
