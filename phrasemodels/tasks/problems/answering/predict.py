"""Predicted answers with the facts that a model takes as their support, and their scores."""

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
from phrasemodels.layers.checks import at_least
from phrasemodels.layers.ids import SPECIAL, UNKNOWN
from phrasemodels.layers.weights import finite
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.sharded import required, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.answering.objective import StoryExamples
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, load_tensors, load_trained

_PLACES = pa.list_(pa.int32())
ANSWERS = required(
    restart=pa.int32(), id=pa.int64(), group=pa.string(), answer=pa.string(), predicted=pa.string(), support=_PLACES,
    facts=_PLACES,
)  # fmt: skip


def answer(job: Job, settings: PredictSettings) -> dict[str, Any]:
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
        load_tensors(model, finite(load_file(job.inputs["model"].file(f"restart-{restart}.safetensors"))))
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


@dataclass(frozen=True)
class AnswerScoring:
    """The number of best starts over which the accuracy of facts is averaged (paper 003: 10 of 20)."""

    averaged: int = 10

    def __post_init__(self) -> None:
        at_least(self, 1, "averaged")


def score_answers(job: Job, settings: AnswerScoring) -> dict[str, Any]:
    """Score job.inputs["predictions"], whose starts are ordered by held-out answers; ["stories"] are the test set.

    `answer`: right answers (%) of the best start. `fact`: questions (%) whose facts are all right and in order, mean of the
    best starts. `answer/mean`: right answers, mean of all starts, which no choice of a start makes look better. An answer that
    train lacks is never right.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    starts = int(table["restart"][-1].as_py()) + 1
    pairs = [("answer", "predicted"), ("support", "facts")]
    right, sound = (
        np.array([a == b for a, b in zip(table[x].to_pylist(), table[y].to_pylist(), strict=True)]).reshape(starts, -1)
        for x, y in pairs
    )
    right &= np.array([answer != SPECIAL[UNKNOWN] for answer in table["answer"].to_pylist()]).reshape(starts, -1)
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
