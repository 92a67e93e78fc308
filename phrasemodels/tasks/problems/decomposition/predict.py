"""Predicted labels of pairs, and their accuracy."""

from typing import Any

import numpy as np
import pyarrow as pa
import torch

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.accuracy import accuracies
from phrasemodels.tasks.metrics.score import write_scores
from phrasemodels.tasks.prepare.sharded import required, shards
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, load_trained

LABELLED = required(id=pa.int64(), group=pa.string(), gold=pa.string(), label=pa.string())


@torch.inference_mode()
def label(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Label the numbered pairs job.inputs["pairs"]; also reads ["model"] and ["vocabulary"]. Writes predictions.arrow."""
    model = load_trained(settings.objective, settings.model, job.inputs)
    paths = [shard.path for shard in shards(job.inputs["pairs"])]
    data = settings.objective.examples(paths)
    found: dict[int, int] = {}
    for rows in in_order(data, settings.batch_tokens):
        best = model(*data.batch(rows).sides()).argmax(-1)
        found |= dict(zip(rows.tolist(), best.tolist(), strict=True))
    table = pa.concat_tables([read_shard(path).select(["id", "group", "label"]) for path in paths])
    gold = table["label"].combine_chunks().flatten().to_pylist()
    columns = [table["id"], table["group"], [LABELS[i] for i in gold], [LABELS[found[row]] for row in range(len(data))]]
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.table(columns, schema=LABELLED))}


def score_labels(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: accuracy (%), also by group. ["pairs"] are the test set."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    right = np.array(table["gold"].to_pylist()) == np.array(table["label"].to_pylist())
    scores = accuracies(right, table["group"].to_pylist(), "accuracy of three labels, %")
    statistics = pa.array([[int(hit), 1] for hit in right])
    sentences = pa.table({"id": table["id"], "group": table["group"], "right": statistics})
    return write_scores(job, scores, sentences, job.inputs["pairs"].meta["shards"])
