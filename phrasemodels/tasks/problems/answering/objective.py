"""The objective of question answering, cross entropy of answers, and training from several starts."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job, OutOfTimeError, Step
from phrasemodels.data.store.store import Store
from phrasemodels.models.memory import ChainConfig, HopsConfig
from phrasemodels.tasks.prepare.sharded import run_step
from phrasemodels.tasks.train.batches import Batch, Columns, Rows
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import HISTORY, PROGRESS, TrainSettings, train
from phrasemodels.tasks.train.objective import Objective

MemoryConfig = HopsConfig | ChainConfig


@dataclass(frozen=True)
class StoryBatch(Batch):
    """Ids of facts (B, n, w), the last one last, and of questions (B, v), padded; answers (B)."""

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
        """Return some rows; stories with fewer facts have empty ones in front, and w is the longest fact's length."""
        facts = [self.columns.row("facts", row) for row in rows]
        width = max((int(story.any(0).sum()) for story in facts), default=0)
        padded = np.zeros((len(rows), max(1, *map(len, facts)), max(1, width)), np.int64)
        for out, story in zip(padded, facts, strict=True):
            out[len(out) - len(story) :] = story[:, :width]
        answer = self.columns.padded("answer", rows)[:, 0]
        return StoryBatch(torch.from_numpy(padded), self.columns.padded("question", rows), answer)


@dataclass(frozen=True)
class AnsweringObjective(Objective):
    """Facts and a question to a word: mean loss a question; the best weights have the fewest wrong answers on dev."""

    curve: ClassVar = "wrong answers on dev (share of questions)"

    def configure(self, model: MemoryConfig, vocabulary: Artifact) -> MemoryConfig:
        return replace(model, vocabulary=vocabulary.meta["words"])

    def examples(self, paths: Sequence[Path]) -> StoryExamples:
        return StoryExamples(paths)

    def loss(self, model: nn.Module, batch: StoryBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the answers."""
        scores = model(batch.facts, batch.question)
        return F.cross_entropy(scores, batch.answer, reduction="sum", label_smoothing=smoothing)

    def criterion(self, model: nn.Module, batch: StoryBatch) -> Tensor:
        """Return the number of wrong answers."""
        return (model(batch.facts, batch.question).argmax(-1) != batch.answer).sum()


@dataclass(frozen=True)
class RestartSettings:
    """Trainings of one model from `restarts` starts, with the seeds seed · restarts, ..., seed · restarts + restarts - 1.

    trainer: the step that trains each, `train` or phrasemodels.tasks.problems.answering.compiled.train_compiled.
    """

    objective: AnsweringObjective
    model: MemoryConfig
    config: TrainConfig
    seed: int
    restarts: int
    trainer: Callable[[Job, Any], dict[str, Any]] = train


def train_restarts(job: Job, settings: RestartSettings) -> dict[str, Any]:
    """Train a model from several starts, each a step of its own. Inputs are those of `train`. OutOfTimeError: not all starts had
    begun at job.executor.until.

    Writes restart-N.safetensors, N = 0 for the start with the best dev criterion; model.safetensors is the same as 0. While it
    runs, progress.json says how far it is, in the updates of one start.
    """
    seeds = range(settings.seed * settings.restarts, (settings.seed + 1) * settings.restarts)
    steps = [
        Step(
            settings.trainer,
            f"train restart {seed}",
            TrainSettings(settings.objective, settings.model, settings.config, seed),
            job.inputs,
        )
        for seed in seeds
    ]

    def in_time() -> Iterator[tuple[Store, Step]]:
        for step in steps:
            if time.time() >= job.executor.until and not job.store.find(step, verify=False):
                raise OutOfTimeError("its time was up before its last start; those that ended are kept")
            yield job.store, step

    made: list[Artifact] = []
    for artifact in job.executor.map(run_step, in_time()):
        made.append(artifact)
        _tell(job, settings, made)
    ranked = sorted(made, key=lambda artifact: artifact.meta["dev_loss"])
    for place, artifact in enumerate(ranked):
        shutil.copyfile(artifact.file("model.safetensors"), job.out / f"restart-{place}.safetensors")
    for name in ("model.safetensors", "config.json", HISTORY):
        shutil.copyfile(ranked[0].file(name), job.out / name)
    of_best = ("parameters", "steps", "epochs", "best_step", "dev_loss", "seed", "peak_memory_mib", "workers")
    return {
        **{name: ranked[0].meta[name] for name in of_best},
        "train_seconds": sum(artifact.meta["train_seconds"] for artifact in made),
        "restarts": [{name: artifact.meta[name] for name in ("seed", "dev_loss")} for artifact in ranked],
    }


def _tell(job: Job, settings: RestartSettings, made: Sequence[Artifact]) -> None:
    """Write progress.json: the share of its starts that have ended, as updates of one start, and what these took."""
    state = {
        "step": settings.config.steps * len(made) // settings.restarts,
        "steps": settings.config.steps,
        "best": min(artifact.meta["dev_loss"] for artifact in made),
        "pid": os.getpid(),
        "seconds": sum(artifact.meta["train_seconds"] for artifact in made),
    }
    job.checkpoints.mkdir(parents=True, exist_ok=True)
    write_durably(job.checkpoints / PROGRESS, json.dumps(state))
