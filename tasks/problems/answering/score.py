"""Scores of answers, and of the facts behind them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.step import Job
from phrasemodels.layers.checks import at_least
from phrasemodels.tasks.metrics.score import Score, write_scores


@dataclass(frozen=True)
class AnswerScoring:
    """The number of best starts over which the accuracy of facts is averaged (paper 003: 10 of 20)."""

    averaged: int = 10

    def __post_init__(self) -> None:
        at_least(self, 1, "averaged")


def score_answers(job: Job, settings: AnswerScoring) -> dict[str, Any]:
    """Score job.inputs["predictions"], whose starts are ordered by held-out answers; ["stories"] are the test set.

    `answer`: right answers (%) of the best start. `fact`: questions (%) whose facts are all right and in order, mean of the
    best starts. `answer/mean`: right answers, mean of all starts, which no choice of a start makes look better.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    starts = int(table["restart"][-1].as_py()) + 1
    pairs = [("answer", "predicted"), ("support", "facts")]
    right, sound = (
        np.array([a == b for a, b in zip(table[x].to_pylist(), table[y].to_pylist(), strict=True)]).reshape(starts, -1)
        for x, y in pairs
    )
    averaged = min(settings.averaged, starts)
    parts = {
        "answer": (right[0], f"of the best of {starts} starts on held-out questions"),
        "fact": (sound[:averaged], f"mean of the best {averaged} of {starts} starts; all facts, in order"),
        "answer/mean": (right, f"mean of {starts} starts"),
    }
    n = right.shape[1]
    scores = {name: Score(100 * float(hits.mean()), signature, n) for name, (hits, signature) in parts.items()}
    statistics = {"answer_right": right[0], "facts_right": sound[:averaged].mean(0)}
    columns = {"id": table["id"][:n], "group": table["group"][:n]}
    columns |= {name: pa.array([[float(v), 1.0] for v in values]) for name, values in statistics.items()}
    return write_scores(job, scores, pa.table(columns), job.inputs["stories"].meta["shards"])
