"""Transfer: what vectors of a frozen encoder are good for, by the protocol of SentEval (Conneau and Kiela 2018).

Vectors of every task are computed once and kept. Every part of a protocol that can run by itself, such as an outer fold,
is one item of `places.map`. Shapes: n rows, D width of a sentence vector.
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
from phrasemodels.tasks.metrics.bleu import Score
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.problems.entailment.logistic import (
    STRENGTHS,
    Fitted,
    Setting,
    fit,
    held_out,
    stratified,
    without,
)
from phrasemodels.tasks.problems.entailment.objective import RelateSettings, SentenceExamples, trained
from phrasemodels.tasks.problems.entailment.relatedness import relatedness, similarity
from phrasemodels.tasks.train.batches import in_order

Found = dict[str, float]


@dataclass(frozen=True)
class VectorSettings:
    """The model, and the sides of each input."""

    model: RelateSettings
    sides: Mapping[str, tuple[str, ...]]


@torch.inference_mode()
def sentence_vectors(job: Job, settings: VectorSettings) -> dict[str, Any]:
    """INPUT.safetensors of every numbered input: the vectors (n, D) of each side."""
    model, device = trained(job, settings.model)
    counted = {}
    for name, sides in settings.sides.items():
        data = SentenceExamples([shard.path for shard in shards(job.inputs[name])], sides)
        found = torch.zeros(len(sides), len(data), model.width)
        for rows in in_order(data, settings.model.batch_tokens):
            batch = data.batch(rows).to(device)
            vectors = model.encode(batch.tokens, batch.lengths, batch.structure)
            found[:, rows] = vectors.float().cpu().unflatten(0, (len(sides), -1))
        save_file(
            {side: vectors.contiguous() for side, vectors in zip(sides, found, strict=True)}, job.out / _file(name)
        )
        counted[name] = len(data) * len(sides)
    return {"sentences": counted}


def _file(name: str) -> str:
    return f"{name}.safetensors"


@dataclass(frozen=True)
class Split:
    """What a protocol is given of one split: features (n, D or 2 D), labels (n) or scores (n), groups (n)."""

    features: Tensor
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    groups: NDArray[np.str_]
    sides: tuple[Tensor, ...]


@dataclass(frozen=True)
class Place:
    """Where a split lies: its vectors and its numbered shards."""

    vectors: Path
    shards: tuple[Path, ...]

    def read(self, classes: Sequence[str]) -> Split:
        """Features of pairs are [|u − v|; u ∘ v]."""
        sides = tuple(load_file(self.vectors).values())
        table = pa.concat_tables([read_shard(path).select(["label", "score", "group"]) for path in self.shards])
        known = {label: number for number, label in enumerate(classes)}
        labels = np.array([known[label] for label in table["label"].to_pylist()]) if classes else np.zeros(0, np.int64)
        groups = np.array(table["group"].to_pylist())
        return Split(pair_features(sides), labels, table["score"].to_numpy(), groups, sides)

    def classes(self) -> list[str]:
        return sorted({label for path in self.shards for label in read_shard(path)["label"].to_pylist()})


def pair_features(sides: tuple[Tensor, ...]) -> Tensor:
    """A vector as it is; of two, [|u − v|; u ∘ v]."""
    return sides[0] if len(sides) == 1 else torch.cat([(sides[0] - sides[1]).abs(), sides[0] * sides[1]], 1)


@dataclass(frozen=True)
class Piece:
    """One item of work: a protocol's part on the splits of a task."""

    places: tuple[Place, ...]
    setting: Setting
    seed: int
    part: int


def _labelled(piece: Piece) -> list[Split]:
    classes = piece.places[0].classes()
    return [place.read(classes) for place in piece.places]


def _best(fitted: Fitted) -> tuple[int, float]:
    """The strength that is best on dev over all folds, and its accuracy (%)."""
    mean = fitted.accuracy.mean(0)
    return int(mean.argmax()), 100 * float(mean.max())


def _right(fitted: Fitted, split: Split, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    return fitted.predict(split.features[rows], 0, 0).numpy() == split.labels[rows]


def nested_fold(piece: Piece) -> Found:
    """One outer fold: the penalty by cross-validation inside of it, then again on all of it but 5 % to stop by."""
    (split,) = _labelled(piece)
    labels = torch.from_numpy(split.labels)
    test = stratified(split.labels, piece.setting.folds, piece.seed)[piece.part]
    train = without(np.arange(len(labels)), test)
    strength, dev = _inner(split, train, piece)
    folds = [held_out(train, 0.05, piece.seed)]
    final = fit(split.features, labels, folds, [STRENGTHS[strength]], piece.setting, piece.seed)
    return {"accuracy": 100 * float(_right(final, split, test).mean()), "dev": dev, "rows": len(train)}


def _inner(split: Split, train: NDArray[np.int64], piece: Piece) -> tuple[int, float]:
    parts = [train[rows] for rows in stratified(split.labels[train], piece.setting.folds, piece.seed)]
    folds = [(without(train, part), part) for part in parts]
    return _best(fit(split.features, torch.from_numpy(split.labels), folds, STRENGTHS, piece.setting, piece.seed))


def folds_and_test(piece: Piece) -> Found:
    """The penalty by cross-validation on train, then all of train but 5 % to stop by; the official test set."""
    split, test = _labelled(piece)
    train = np.arange(len(split.labels))
    strength, dev = _inner(split, train, piece)
    folds = [held_out(train, 0.05, piece.seed)]
    final = fit(split.features, torch.from_numpy(split.labels), folds, [STRENGTHS[strength]], piece.setting, piece.seed)
    return {**_tested(final, test), "dev": dev, "rows": len(train)}


def dev_and_test(piece: Piece) -> Found:
    """The penalty, and when to stop, by the official dev set; the official test set."""
    train, dev, test = _labelled(piece)
    features, labels = torch.cat([train.features, dev.features]), np.concatenate([train.labels, dev.labels])
    rows = np.arange(len(labels))
    folds = [(rows[: len(train.labels)], rows[len(train.labels) :])]
    tried = fit(features, torch.from_numpy(labels), folds, STRENGTHS, piece.setting, piece.seed)
    strength, accuracy = _best(tried)
    final = Fitted(tried.weights[:, strength : strength + 1], tried.accuracy[:, strength : strength + 1])
    return {**_tested(final, test), "dev": accuracy, "rows": len(dev.labels)}


def _tested(final: Fitted, test: Split) -> Found:
    """Accuracy, and F1 of the last class where there are two: `paraphrase` against `other`."""
    found = final.predict(test.features, 0, 0).numpy()
    scores = {"accuracy": 100 * float((found == test.labels).mean())}
    if set(test.labels) == {0, 1}:
        both = float((found & test.labels).sum())
        scores["F1"] = 200 * both / max(1.0, float(found.sum() + test.labels.sum()))
    return scores


def score_relatedness(piece: Piece) -> Found:
    """SICK-R: Pearson's r of expected and given scores, from 1 to 5."""
    train, dev, test = ((split.features, split.scores) for split in (place.read(()) for place in piece.places))
    return relatedness(train, dev, test, piece.seed)


def score_similarity(piece: Piece) -> Found:
    """STS14: Pearson's r and Spearman's ρ of cosines and scores, by group; nothing is trained."""
    (split,) = (place.read(()) for place in piece.places)
    u, v = split.sides
    return similarity(u, v, split.scores, split.groups)


def one_part(setting: Setting) -> int:
    """The whole task at once."""
    return 1


def a_part_a_fold(setting: Setting) -> int:
    """Every outer fold by itself."""
    return setting.folds


@dataclass(frozen=True)
class Protocol:
    """How a task is scored. parts: how many items of work, of a setting."""

    score: Callable[[Piece], Found]
    splits: tuple[str, ...]
    parts: Callable[[Setting], int] = one_part
    classes: bool = True


NESTED = Protocol(nested_fold, ("all",), a_part_a_fold)
FOLDS = Protocol(folds_and_test, ("train", "test"))
OFFICIAL = Protocol(dev_and_test, ("train", "dev", "test"))
RELATEDNESS = Protocol(score_relatedness, ("train", "dev", "test"), classes=False)
SIMILARITY = Protocol(score_similarity, ("test",), classes=False)


@dataclass(frozen=True)
class Transfer:
    """The tasks by name, each with its protocol and the inputs that are its splits; and how classifiers are trained."""

    tasks: Mapping[str, tuple[Protocol, tuple[str, ...]]]
    setting: Setting
    seed: int = 1111


def transfer(job: Job, settings: Transfer) -> dict[str, Any]:
    """transfer.json: scores of every task, from job.inputs["vectors"] and the numbered splits."""
    places = {
        name: Place(job.inputs["vectors"].file(_file(name)), tuple(s.path for s in shards(job.inputs[name])))
        for _, names in settings.tasks.values()
        for name in names
    }
    items: list[tuple[Callable[[Piece], Found], Piece]] = []
    owners: list[str] = []
    for task, (protocol, names) in settings.tasks.items():
        for part in range(protocol.parts(settings.setting)):
            piece = Piece(tuple(places[name] for name in names), settings.setting, settings.seed, part)
            items.append((protocol.score, piece))
            owners.append(task)
    found: dict[str, list[Found]] = {task: [] for task in settings.tasks}
    for task, result in zip(owners, job.executor.map(_call, items), strict=True):
        found[task].append(result)
    scores = {name: asdict(score) for name, score in summary(found, settings).items()}
    write_durably(job.out / "transfer.json", json.dumps({"scores": scores, "parts": found}, indent=1))
    return {"scores": scores}


def _call(score: Callable[[Piece], Found], piece: Piece) -> Found:
    torch.set_num_threads(1)  # parts run side by side
    return score(piece)


def summary(found: Mapping[str, Sequence[Found]], settings: Transfer) -> dict[str, Score]:
    """TASK, TASK/F1 and so on: means over the parts of each task; dev/TASK; micro and macro as Conneau et al. (2017)
    define them: means of dev accuracies over the tasks with classes, weighted by their rows and not."""
    scores: dict[str, Score] = {}
    accuracy, rows = [], []
    for task, parts in found.items():
        protocol, _ = settings.tasks[task]
        means = {name: float(np.mean([part[name] for part in parts])) for name in parts[0]}
        count = int(means.pop("rows"))
        if protocol.classes:
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
