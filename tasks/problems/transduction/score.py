"""Scores of formulas: average length to failure, and exact match."""

from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.accuracy import by_group
from phrasemodels.tasks.metrics.length_to_failure import length_to_failure
from phrasemodels.tasks.metrics.score import Score, write_scores


def score_prefixes(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: means of `failure` and `exact` over all rows and by group (`failure/depth2`).
    ["rows"] are the test set."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    pairs = list(zip(table["hypothesis"].to_pylist(), table["reference"].to_pylist(), strict=True))
    values = {
        "failure": np.array([length_to_failure(*pair) for pair in pairs]),
        "exact": np.array([100.0 * (hypothesis == reference) for hypothesis, reference in pairs]),
    }
    groups = by_group(table["group"].to_pylist())
    scores = {
        f"{name}{suffix}": Score(float(of[rows].mean()), "mean of rows, in %", int(rows.sum()))
        for name, of in values.items()
        for suffix, rows in groups.items()
    }
    statistics = {name: pa.array([[float(value) / 100, 1.0] for value in of]) for name, of in values.items()}
    sentences = pa.table({"id": table["id"], "group": table["group"], **statistics})
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])
