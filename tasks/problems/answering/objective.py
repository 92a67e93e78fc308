"""Answering questions about stories: the loss, training from several starts, answers with their facts, scores."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job, Step
from phrasemodels.models.memory import ChainConfig, HopsConfig
from phrasemodels.tasks.metrics.bleu import Score
from phrasemodels.tasks.prepare.sharded import run_step, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.train.batches import Batch, Columns, Rows, in_order
from phrasemodels.tasks.train.checkpoints import load_tensors
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import HISTORY, TrainSettings, train

MemoryConfig = HopsConfig | ChainConfig


@dataclass(frozen=True)
class StoryBatch(Batch):
    """Word ids of facts (B, n, w), the last one last, 0 for none, and of questions (B, v); answers (B)."""

    facts: Tensor
    question: Tensor
    answer: Tensor


class StoryExamples:
    """Rows of story shards."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.columns = Columns(paths, ("facts", "question", "answer", "support"))
        self.lengths = np.stack([self.columns.lengths(side) for side in ("facts", "question")], 1)

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> StoryBatch:
        """The given rows, with empty facts in front of those that have fewer; facts as wide as the longest."""
        facts = [self.columns.row("facts", row) for row in rows]
        width = max((int(told.any(0).sum()) for told in facts), default=0)
        padded = np.zeros((len(rows), max(1, *map(len, facts)), max(1, width)), np.int64)
        for out, told in zip(padded, facts, strict=True):
            out[len(out) - len(told) :] = told[:, :width]
        answer = self.columns.padded("answer", rows)[:, 0]
        return StoryBatch(torch.from_numpy(padded), self.columns.padded("question", rows), answer)


@dataclass(frozen=True)
class Answering:
    """Facts and a question to a word."""

    def configure(self, model: MemoryConfig, vocabulary: Artifact) -> MemoryConfig:
        """The model with the size of the vocabulary."""
        return replace(model, vocabulary=vocabulary.meta["words"])

    def examples(self, paths: Sequence[Path]) -> StoryExamples:
        """Rows of story shards."""
        return StoryExamples(paths)

    def loss(self, model: nn.Module, batch: StoryBatch, smoothing: float) -> Tensor:
        """Summed cross entropy of the answers."""
        scores = model(batch.facts, batch.question)
        return F.cross_entropy(scores, batch.answer, reduction="sum", label_smoothing=smoothing)

    def criterion(self, model: nn.Module, batch: StoryBatch) -> Tensor:
        """Wrong answers."""
        return (model(batch.facts, batch.question).argmax(-1) != batch.answer).sum()

    def count(self, data: StoryExamples, rows: Rows) -> int:
        """Questions."""
        return len(rows)


@dataclass(frozen=True)
class RestartSettings:
    """Trainings of one model from `restarts` starts: seeds seed · restarts, ..., seed · restarts + restarts - 1."""

    problem: Answering
    model: MemoryConfig
    config: TrainConfig
    seed: int
    restarts: int


def train_restarts(job: Job, settings: RestartSettings) -> dict[str, Any]:
    """Weights of all starts (restart-N.safetensors), N from the best on held-out questions on; model.safetensors is 0.

    Each start is a step of its own, kept in the store.
    """
    seeds = range(settings.seed * settings.restarts, (settings.seed + 1) * settings.restarts)
    steps = [
        Step(
            train,
            f"train restart {seed}",
            TrainSettings(settings.problem, settings.model, settings.config, seed),
            job.inputs,
        )
        for seed in seeds
    ]
    made = job.executor.map(run_step, [(job.store, step) for step in steps])
    ranked = sorted(made, key=lambda artifact: artifact.meta["dev_loss"])
    for place, artifact in enumerate(ranked):
        shutil.copyfile(artifact.file("model.safetensors"), job.out / f"restart-{place}.safetensors")
    for name in ("model.safetensors", "config.json", HISTORY):
        shutil.copyfile(ranked[0].file(name), job.out / name)
    told = ("parameters", "steps", "epochs", "best_step", "dev_loss", "seed", "peak_memory_mib", "workers")
    return {
        **{name: ranked[0].meta[name] for name in told},
        "train_seconds": sum(artifact.meta["train_seconds"] for artifact in made),
        "restarts": [{name: artifact.meta[name] for name in ("seed", "dev_loss")} for artifact in ranked],
    }


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
    """A model's configuration; batch_tokens bounds memory and does not change the result."""

    problem: Answering
    model: MemoryConfig
    batch_tokens: int = 8192


def answer(job: Job, settings: AnswerSettings) -> dict[str, Any]:
    """predictions.arrow: every start's answer to every row of job.inputs["stories"], and its best facts in order."""
    model = settings.problem.configure(settings.model, job.inputs["vocabulary"]).build().eval()
    words = read_words(job.inputs["vocabulary"], "words")
    files = [shard.path for shard in shards(job.inputs["stories"])]
    data, table = settings.problem.examples(files), pa.concat_tables([read_shard(path) for path in files])
    made = []
    for restart in range(len(job.inputs["model"].meta["restarts"])):
        load_tensors(model, load_file(job.inputs["model"].file(f"restart-{restart}.safetensors")))
        found, facts = _answers(model, data, settings.batch_tokens)
        columns = [
            pa.array(np.full(len(data), restart, np.int32)),
            table["id"],
            table["group"],
            pa.array([words[i] for i in table["answer"].combine_chunks().flatten().to_pylist()]),
            pa.array([words[i] for i in found]),
            table["support"].cast(pa.list_(pa.int32())),
            pa.array(facts, pa.list_(pa.int32())),
        ]
        made.append(pa.Table.from_arrays(columns, schema=ANSWERS))
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.concat_tables(made))}


@torch.inference_mode()
def _answers(model: nn.Module, data: StoryExamples, budget: int) -> tuple[NDArray[np.int64], list[list[int]]]:
    """Ids of the answers (rows), and the places of each row's best facts."""
    found, facts = np.zeros(len(data), np.int64), [[0]] * len(data)
    for rows in in_order(data, budget):
        batch = data.batch(rows)
        found[rows] = model(batch.facts, batch.question).argmax(-1).numpy()
        in_front = batch.facts.shape[1] - torch.from_numpy(data.lengths[rows, :1])
        best = model.evidence(batch.facts, batch.question) - in_front  # type: ignore[operator]
        for row, places in zip(rows, best.tolist(), strict=True):
            facts[row] = places
    return found, facts


@dataclass(frozen=True)
class AnswerScoring:
    """Over how many of the best starts the accuracy of facts is averaged (paper 003: 10 of 20)."""

    averaged: int = 10


def score_answers(job: Job, settings: AnswerScoring) -> dict[str, Any]:
    """scores.json and sentences.arrow of job.inputs["predictions"], in which starts are ordered by held-out answers.

    `answer`: share of right answers of the best start, in %; `fact`: share of questions whose facts are all right and
    in order, averaged over the best starts. `answer/mean`: over all starts, which no choice has made look better.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    starts = int(table["restart"][-1].as_py()) + 1
    pairs = [("answer", "predicted"), ("support", "facts")]
    right, sound = (
        np.array([a == b for a, b in zip(table[x].to_pylist(), table[y].to_pylist(), strict=True)]).reshape(starts, -1)
        for x, y in pairs
    )
    averaged = min(settings.averaged, starts)
    share = {"answer": right[0], "fact": sound[:averaged], "answer/mean": right}
    told = {
        "answer": f"of the best of {starts} starts on held-out questions",
        "fact": f"mean of the best {averaged} of {starts} starts; all facts, in order",
        "answer/mean": f"mean of {starts} starts",
    }
    scores = {name: asdict(Score(100 * float(v.mean()), told[name], right.shape[1])) for name, v in share.items()}
    statistics = {"answer_right": right[0], "facts_right": sound[:averaged].mean(0)}
    n = right.shape[1]
    columns = {"id": table["id"][:n], "group": table["group"][:n]}
    columns |= {name: pa.array([[float(v), 1.0] for v in values]) for name, values in statistics.items()}
    write_shard(job.out / "sentences.arrow", pa.table(columns))
    write_durably(job.out / "scores.json", json.dumps(scores, indent=1))
    return {"scores": scores, "test_set": job.inputs["stories"].meta["shards"]}
