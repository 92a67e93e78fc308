"""Scores of labels: accuracy, by group and by length; and those of the transfer tasks."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.formats.shards import content_digest, read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.accuracy import accuracies, accuracy
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.sharded import read_shards

LENGTHS = range(4, 21)  # bins of paper 001's Figure 2: mean words of the two sentences
SIGNATURE = "accuracy of three labels, %"


def score_labels(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: accuracy (%), also by group and by length; with ["transfer"], its scores are among
    them. ["rows"] are the test set."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    right = pc.equal(table["gold"], table["label"]).to_numpy()
    length = table["length"].to_numpy().round()
    scores = accuracies(right, table["group"].to_pylist(), SIGNATURE)
    scores |= {f"accuracy/length {n}": accuracy(right[length == n], SIGNATURE) for n in LENGTHS if (length == n).any()}
    if "transfer" in job.inputs:
        scores |= {name: Score(**score) for name, score in job.inputs["transfer"].meta["scores"].items()}
    statistics = pa.array(list(np.stack([right, np.ones_like(right)], 1).astype(np.int64)))
    sentences = pa.table({"id": table["id"], "group": table["group"], "right": statistics})
    return write_scores(job, scores, sentences, _test_set(job.inputs["rows"]))


def _test_set(rows: Artifact) -> list[dict[str, Any]]:
    """Return the identity of numbered pairs without their structures: encoders with others are tested on the same pairs."""
    numbered = read_shards(rows)
    table = numbered.select([name for name in numbered.column_names if not name.endswith("_structure")])
    return [{"rows": table.num_rows, "content": content_digest(table)}]
