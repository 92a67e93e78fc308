"""Predicted answers, and the facts that a model takes as their support."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import nn

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.answering.objective import AnsweringObjective, MemoryConfig, StoryExamples
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import load_tensors, load_trained

ANSWERS = pa.schema(
    [
        pa.field("restart", pa.int32(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("predicted", pa.string(), nullable=False),
        pa.field("support", pa.list_(pa.int32()), nullable=False),
        pa.field("facts", pa.list_(pa.int32()), nullable=False),
    ]
)


@dataclass(frozen=True)
class AnswerSettings:
    """A model's configuration. batch_tokens bounds memory and does not change the result."""

    objective: AnsweringObjective
    model: MemoryConfig
    batch_tokens: int = 8192


def answer(job: Job, settings: AnswerSettings) -> dict[str, Any]:
    """Answer the numbered stories job.inputs["stories"] with each start of ["model"]; also reads ["vocabulary"].

    Writes predictions.arrow, start by start: the gold and predicted answer, and the supporting facts and the best facts of
    the model, in order.
    """
    model = load_trained(settings.objective, settings.model, job.inputs)
    words = read_words(job.inputs["vocabulary"], "words")
    files = [shard.path for shard in shards(job.inputs["stories"])]
    data, table = settings.objective.examples(files), pa.concat_tables([read_shard(path) for path in files])
    made = []
    for restart in range(len(job.inputs["model"].meta["restarts"])):
        load_tensors(model, load_file(job.inputs["model"].file(f"restart-{restart}.safetensors")))
        predicted, facts = _answers(model, data, settings.batch_tokens)
        columns = [
            pa.array(np.full(len(data), restart, np.int32)),
            table["id"],
            table["group"],
            pa.array([words[i] for i in table["answer"].combine_chunks().flatten().to_pylist()]),
            pa.array([words[i] for i in predicted]),
            table["support"].cast(pa.list_(pa.int32())),
            pa.array(facts, pa.list_(pa.int32())),
        ]
        made.append(pa.Table.from_arrays(columns, schema=ANSWERS))
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.concat_tables(made))}


@torch.inference_mode()
def _answers(model: nn.Module, data: StoryExamples, budget: int) -> tuple[NDArray[np.int64], list[list[int]]]:
    """Return the ids of the answers (rows), and the places of each row's best facts."""
    predicted, facts = np.zeros(len(data), np.int64), [[0]] * len(data)
    for rows in in_order(data, budget):
        batch = data.batch(rows)
        predicted[rows] = model(batch.facts, batch.question).argmax(-1).numpy()
        in_front = batch.facts.shape[1] - torch.from_numpy(data.lengths[rows, :1])
        best = model.evidence(batch.facts, batch.question) - in_front  # type: ignore[operator]
        for row, places in zip(rows, best.tolist(), strict=True):
            facts[row] = places
    return predicted, facts
