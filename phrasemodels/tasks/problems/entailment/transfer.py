"""Transfer: how useful the vectors of a frozen encoder are on other tasks, by the protocols of SentEval (Conneau and Kiela
2018).

The vectors of each task are computed once. Each part of a protocol that can run by itself, such as an outer fold, is one item
of `Executor.map`. Shapes: n rows, D width of a sentence vector.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.score import Score
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.problems.entailment.logistic import (
    STRENGTHS,
    Fitted,
    LogisticConfig,
    fit,
    held_out,
    stratified,
    without,
)
from phrasemodels.tasks.problems.entailment.objective import SentenceExamples
from phrasemodels.tasks.problems.entailment.relatedness import relatedness, similarity
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained

Metrics = dict[str, float]


@dataclass(frozen=True)
class VectorSettings:
    """A model's configuration, and the sides of each input."""

    model: PredictSettings
    sides: Mapping[str, tuple[str, ...]]


@torch.inference_mode()
def sentence_vectors(job: Job, settings: VectorSettings) -> dict[str, Any]:
    """Write INPUT.safetensors for each numbered input: the vectors (n, D) of each side. Also reads job.inputs["model"] and
    ["vocabulary"]."""
    device = best_device()
    model = load_trained(settings.model.objective, settings.model.model, job.inputs, device)
    counts = {}
    for name, sides in settings.sides.items():
        data = SentenceExamples([shard.path for shard in shards(job.inputs[name])], sides)
        vectors = torch.zeros(len(sides), len(data), model.width)
        for rows in in_order(data, settings.model.batch_tokens):
            batch = data.batch(rows).to(device)
            encoded = model.encode(batch.tokens, batch.lengths, batch.structure)
            vectors[:, rows] = encoded.float().cpu().unflatten(0, (len(sides), -1))
        by_side = {side: own.contiguous() for side, own in zip(sides, vectors, strict=True)}
        save_file(by_side, job.out / f"{name}.safetensors")
        counts[name] = len(data) * len(sides)
    return {"sentences": counts}


@dataclass(frozen=True)
class SplitFeatures:
    """One split of a task: features (n, D or 2 D), labels (n), scores (n), groups (n), and the vectors of each side."""

    features: Tensor
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    groups: NDArray[np.str_]
    sides: tuple[Tensor, ...]


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split: its vectors and its numbered shards."""

    vectors: Path
    shards: tuple[Path, ...]

    def read(self, classes: Sequence[str]) -> SplitFeatures:
        """Return the split, with labels as indices of `classes`; without classes there are no labels."""
        sides = tuple(load_file(self.vectors).values())
        table = pa.concat_tables([read_shard(path).select(["label", "score", "group"]) for path in self.shards])
        known = {label: number for number, label in enumerate(classes)}
        labels = np.array([known[label] for label in table["label"].to_pylist()]) if classes else np.zeros(0, np.int64)
        groups = np.array(table["group"].to_pylist())
        return SplitFeatures(pair_features(sides), labels, table["score"].to_numpy(), groups, sides)

    def classes(self) -> list[str]:
        """Return the labels of the split, each once, in alphabetical order."""
        return sorted({label for path in self.shards for label in read_shard(path)["label"].to_pylist()})


def pair_features(sides: tuple[Tensor, ...]) -> Tensor:
    """Return the features of one side, its vectors; of two sides, [|u − v|; u ∘ v]."""
    return sides[0] if len(sides) == 1 else torch.cat([(sides[0] - sides[1]).abs(), sides[0] * sides[1]], 1)


@dataclass(frozen=True)
class WorkItem:
    """One part of a protocol on the splits of a task."""

    splits: tuple[SplitFiles, ...]
    setting: LogisticConfig
    seed: int
    part: int

    def read(self) -> list[SplitFeatures]:
        """Return the splits with their labels; classes are those of the first split."""
        classes = self.splits[0].classes()
        return [split.read(classes) for split in self.splits]


def _best(fitted: Fitted) -> tuple[int, float]:
    """Return the penalty that is best on dev over all folds, and its accuracy (%)."""
    mean = fitted.accuracy.mean(0)
    return int(mean.argmax()), 100 * float(mean.max())


def nested_fold(item: WorkItem) -> Metrics:
    """Score one outer fold: choose the penalty by cross-validation on the rest, train on 95 % of it, stop by 5 %."""
    (split,) = item.read()
    labels = torch.from_numpy(split.labels)
    test = stratified(split.labels, item.setting.folds, item.seed)[item.part]
    train = without(np.arange(len(labels)), test)
    strength, dev = _cross_validated(split, train, item)
    folds = [held_out(train, 0.05, item.seed)]
    final = fit(split.features, labels, folds, [STRENGTHS[strength]], item.setting, item.seed)
    right = final.predict(split.features[test], 0, 0).numpy() == split.labels[test]
    return {"accuracy": 100 * float(right.mean()), "dev": dev, "rows": len(labels)}


def _cross_validated(split: SplitFeatures, train: NDArray[np.int64], item: WorkItem) -> tuple[int, float]:
    """Return the best penalty by cross-validation on rows of a split, and its accuracy (%)."""
    parts = [train[rows] for rows in stratified(split.labels[train], item.setting.folds, item.seed)]
    folds = [(without(train, part), part) for part in parts]
    return _best(fit(split.features, torch.from_numpy(split.labels), folds, STRENGTHS, item.setting, item.seed))


def folds_and_test(item: WorkItem) -> Metrics:
    """Score the official test set: choose the penalty by cross-validation on train, train on 95 % of it, stop by 5 %."""
    split, test = item.read()
    train = np.arange(len(split.labels))
    strength, dev = _cross_validated(split, train, item)
    folds = [held_out(train, 0.05, item.seed)]
    final = fit(split.features, torch.from_numpy(split.labels), folds, [STRENGTHS[strength]], item.setting, item.seed)
    return {**_tested(final, test), "dev": dev, "rows": len(train)}


def dev_and_test(item: WorkItem) -> Metrics:
    """Score the official test set: choose the penalty, and stop, by the official dev set."""
    train, dev, test = item.read()
    features, labels = torch.cat([train.features, dev.features]), np.concatenate([train.labels, dev.labels])
    rows = np.arange(len(labels))
    folds = [(rows[: len(train.labels)], rows[len(train.labels) :])]
    tried = fit(features, torch.from_numpy(labels), folds, STRENGTHS, item.setting, item.seed)
    strength, accuracy = _best(tried)
    final = Fitted(tried.weights[:, strength : strength + 1], tried.accuracy[:, strength : strength + 1])
    return {**_tested(final, test), "dev": accuracy, "rows": len(dev.labels)}


def _tested(final: Fitted, test: SplitFeatures) -> Metrics:
    """Return the accuracy on test and, with two classes, the F1 of the last one (`paraphrase`, not `other`)."""
    found = final.predict(test.features, 0, 0).numpy()
    metrics = {"accuracy": 100 * float((found == test.labels).mean())}
    if set(test.labels) == {0, 1}:
        both = float((found & test.labels).sum())
        metrics["F1"] = 200 * both / max(1.0, float(found.sum() + test.labels.sum()))
    return metrics


def score_relatedness(item: WorkItem) -> Metrics:
    """SICK-R: correlations of expected with gold scores, from 1 to 5."""
    train, dev, test = ((split.features, split.scores) for split in (files.read(()) for files in item.splits))
    return relatedness(train, dev, test, item.seed, item.setting.counter)


def score_similarity(item: WorkItem) -> Metrics:
    """STS14: correlations of cosines with gold scores, by group; nothing is trained."""
    (split,) = (files.read(()) for files in item.splits)
    u, v = split.sides
    return similarity(u, v, split.scores, split.groups)


def one_part(setting: LogisticConfig) -> int:
    """The whole task is one item of work."""
    return 1


def a_part_a_fold(setting: LogisticConfig) -> int:
    """Each outer fold is an item of work."""
    return setting.folds


@dataclass(frozen=True)
class TransferProtocol:
    """How a task is scored: the score of an item, the splits, the number of items, and whether the task has classes."""

    score: Callable[[WorkItem], Metrics]
    splits: tuple[str, ...]
    parts: Callable[[LogisticConfig], int] = one_part
    classes: bool = True


NESTED = TransferProtocol(nested_fold, ("all",), a_part_a_fold)
FOLDS = TransferProtocol(folds_and_test, ("train", "test"))
OFFICIAL = TransferProtocol(dev_and_test, ("train", "dev", "test"))
RELATEDNESS = TransferProtocol(score_relatedness, ("train", "dev", "test"), classes=False)
SIMILARITY = TransferProtocol(score_similarity, ("test",), classes=False)


@dataclass(frozen=True)
class TransferSettings:
    """The protocol and the inputs (splits) of each task by name, and how classifiers are trained.

    apart: tasks that are scored, but stand in no average.
    """

    tasks: Mapping[str, tuple[TransferProtocol, tuple[str, ...]]]
    setting: LogisticConfig
    seed: int = 1111
    apart: tuple[str, ...] = ()


def transfer(job: Job, settings: TransferSettings) -> dict[str, Any]:
    """Score all tasks, from job.inputs["vectors"] and the numbered splits. Writes transfer.json."""
    files = {
        name: SplitFiles(
            job.inputs["vectors"].file(f"{name}.safetensors"), tuple(s.path for s in shards(job.inputs[name]))
        )
        for _, names in settings.tasks.values()
        for name in names
    }
    items: list[tuple[Callable[[WorkItem], Metrics], WorkItem]] = []
    owners: list[str] = []
    for task, (protocol, names) in settings.tasks.items():
        for part in range(protocol.parts(settings.setting)):
            item = WorkItem(tuple(files[name] for name in names), settings.setting, settings.seed, part)
            items.append((protocol.score, item))
            owners.append(task)
    parts: dict[str, list[Metrics]] = {task: [] for task in settings.tasks}
    for task, metrics in zip(owners, job.executor.map(_score, items), strict=True):
        parts[task].append(metrics)
    scores = {name: asdict(score) for name, score in summary(parts, settings).items()}
    write_durably(job.out / "transfer.json", json.dumps({"scores": scores, "parts": parts}, indent=1))
    return {"scores": scores}


def _score(score: Callable[[WorkItem], Metrics], item: WorkItem) -> Metrics:
    torch.set_num_threads(1)  # items run side by side
    return score(item)


def summary(parts: Mapping[str, Sequence[Metrics]], settings: TransferSettings) -> dict[str, Score]:
    """Return TASK, TASK/F1 and so on, means over the parts of each task; dev/TASK; micro and macro as Conneau et al. (2017)
    define them: means of dev accuracies over the tasks with classes, weighted by their rows and not weighted; tasks that stand
    apart are left out."""
    scores: dict[str, Score] = {}
    accuracy, rows = [], []
    for task, of_task in parts.items():
        protocol, _ = settings.tasks[task]
        means = {name: float(np.mean([part[name] for part in of_task])) for name in of_task[0]}
        count = int(means.pop("rows"))
        if protocol.classes:
            if task not in settings.apart:
                accuracy.append(means["dev"])
                rows.append(count)
            scores[task] = Score(means.pop("accuracy"), f"{protocol.score.__name__}, {settings.setting}", count)
            scores[f"dev/{task}"] = Score(means.pop("dev"), f"{protocol.score.__name__}, {settings.setting}", count)
        for name, value in means.items():
            scores[f"{task}/{name}"] = Score(value, protocol.score.__name__, count)
    if accuracy:
        scores["micro"] = Score(float(np.average(accuracy, weights=rows)), "dev accuracies by rows", sum(rows))
        scores["macro"] = Score(float(np.mean(accuracy)), "mean of dev accuracies", sum(rows))
    return scores
