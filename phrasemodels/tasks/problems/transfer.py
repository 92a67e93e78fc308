"""Transfer: use of the vectors of a frozen encoder on other tasks by the protocols of SentEval.

SentEval is by Conneau and Kiela (2018). The vectors of each task are computed once. Each independent part of a protocol
(for example an outer fold) is one item of `Executor.map`. Classifiers are many logistic regressions at once with
gradients written by hand. All models of a call share the features. A fold is the rows to train a model on and the rows
to stop it by. It has a model for each strength of the L2 penalty. Relatedness is trained on scores from 1 to 5 (SICK-R)
or is the angle of two vectors (STS14).

Shapes: n or N rows, D or d width of a sentence vector, C classes, F folds, R strengths.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.store import Job
from phrasemodels.tasks.metrics.scores import Score, pearson, spearman
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.problems.sentence_data import SentenceExamples
from phrasemodels.tasks.train.batches import Rows, in_order, stream
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2)
Counter = Callable[[Tensor, Tensor], Tensor]  # (count so far, whether this check is better than the best) -> new count


class Adam:
    """Adam with PyTorch's constants and a rate of 0.001. The penalty is part of the gradient."""

    def __init__(self, parameters: Tensor) -> None:
        self.first, self.second, self.step = torch.zeros_like(parameters), torch.zeros_like(parameters), 0

    def update(self, parameters: Tensor, gradient: Tensor) -> None:
        self.step += 1
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = (self.second / (1 - 0.999**self.step)).sqrt_().add_(1e-8)
        parameters.addcdiv_(self.first, scale, value=-0.001 / (1 - 0.9**self.step))


class RmsProp:
    """RMSprop with PyTorch's constants and a rate of 0.01."""

    def __init__(self, parameters: Tensor) -> None:
        self.second = torch.zeros_like(parameters)

    def update(self, parameters: Tensor, gradient: Tensor) -> None:
        self.second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        parameters.addcdiv_(gradient, self.second.sqrt().add_(1e-8), value=-0.01)


def since_the_best(count: Tensor, better: Tensor) -> Tensor:
    """Count the checks since the best one."""
    return (count + 1) * ~better


def in_all(count: Tensor, better: Tensor) -> Tensor:
    """Count all checks without a new best: SentEval's counter, never reset."""
    return count + ~better


def summed(rows: int) -> float:
    """The loss of a batch is a sum, as in SentEval with the PyTorch of 2018. The penalty weighs less."""
    return 1.0


def averaged(rows: int) -> float:
    """The loss of a batch is a mean, as in SentEval's code with today's PyTorch."""
    return 1.0 / rows


@dataclass(frozen=True)
class LogisticConfig:
    """How SentEval trains classifiers.

    Args:
        folds: Of cross-validation.
        batch: Rows.
        passes: Over the data between two checks on the held-out rows.
        patience: Checks without improvement before a model stops.
        most_passes: In all.
        optimiser: Adam or RmsProp.
        counter: Count of checks that patience bounds.
        reduction: Factor of a batch's loss by its rows, averaged or summed.
    """

    folds: int = 10
    batch: int = 64
    passes: int = 4
    patience: int = 5
    most_passes: int = 200
    optimiser: type[Adam] | type[RmsProp] = Adam
    counter: Counter = since_the_best
    reduction: Callable[[int], float] = summed

    def __post_init__(self) -> None:
        at_least(self, 2, "folds")
        at_least(self, 1, "batch", "passes")
        at_least(self, 0, "patience", "most_passes")

    def __str__(self) -> str:
        return (
            f"{self.folds} folds, {self.optimiser.__name__}, batch {self.batch}, patience {self.patience} "
            f"{self.counter.__name__}, {self.passes} passes a check, loss {self.reduction.__name__}"
        )


PUBLISHED = LogisticConfig(counter=in_all)  # the published protocol: the counter is kept over the whole training
PROTOTYPING = LogisticConfig(folds=5, batch=128, passes=2, patience=3, optimiser=RmsProp)


@dataclass(frozen=True)
class Fitted:
    """Weights (F, R, d + 1, C) and the best accuracies on held-out rows (F, R). The last row is the bias."""

    weights: Tensor
    accuracy: Tensor

    def predict(self, features: Tensor, fold: int, strength: int) -> Tensor:
        """Return the classes (N) of features (N, d)."""
        weights = self.weights[fold, strength]
        return (features @ weights[:-1] + weights[-1]).argmax(-1)


def fit(
    features: Tensor,
    labels: Tensor,
    folds: Sequence[tuple[Rows, Rows]],
    strengths: Sequence[float],
    setting: LogisticConfig,
    seed: int,
) -> Fitted:
    """Train a model for each fold (rows to train on, rows to stop by) and penalty, until all have stopped.

    features (N, d), labels (N) from 0 to C - 1.
    """
    d, C, F, R = features.shape[1], int(labels.max()) + 1, len(folds), len(strengths)
    generator = torch.Generator().manual_seed(stream(seed, "logistic"))
    weights = (torch.rand(F, d + 1, R * C, generator=generator) * 2 - 1) / d**0.5
    penalty = torch.tensor(strengths).repeat_interleave(C)
    x = torch.cat([features, torch.ones(len(features), 1)], 1)
    optimiser = setting.optimiser(weights)
    best, best_weights = torch.full((F, R), -1.0), weights.clone()
    count, going = torch.zeros(F, R, dtype=torch.long), torch.ones(F, R, dtype=torch.bool)
    for _ in range(0, setting.most_passes + 1, setting.passes):
        for _ in range(setting.passes):
            for chosen in _batches([train for train, _ in folds], setting.batch, generator):
                optimiser.update(weights, _gradient(x, labels, chosen, weights, R, setting) + penalty * weights)
        accuracy = torch.stack([_accuracy(x[dev], labels[dev], weights[f], R) for f, (_, dev) in enumerate(folds)])
        better = (accuracy > best) & going
        best = torch.where(better, accuracy, best)
        kept = better.repeat_interleave(C, 1).unsqueeze(1)
        best_weights = torch.where(kept, weights, best_weights)
        count = setting.counter(count, better)
        going &= count <= setting.patience
        if not going.any():
            break
    return Fitted(best_weights.unflatten(-1, (R, C)).transpose(1, 2), best)


def _batches(rows: list[Rows], size: int, generator: torch.Generator) -> list[Tensor]:
    """Return batches (F, size) of one pass over each fold's rows in random order.

    It is -1 where a fold has no more rows.
    """
    longest = max(map(len, rows))
    order = torch.full((len(rows), -(-longest // size) * size), -1)
    for f, own in enumerate(rows):
        order[f, : len(own)] = torch.from_numpy(own)[torch.randperm(len(own), generator=generator)]
    return list(order.split(size, 1))


def _gradient(x: Tensor, labels: Tensor, chosen: Tensor, weights: Tensor, R: int, setting: LogisticConfig) -> Tensor:
    """Return the gradient of the cross entropy of a batch (F, d + 1, R C)."""
    rows = x[chosen]
    error = (rows @ weights).unflatten(-1, (R, -1)).softmax(-1)
    gold = labels[chosen][..., None, None].expand(-1, -1, R, 1)
    error.scatter_add_(-1, gold, torch.full(gold.shape, -1.0))
    error *= (chosen >= 0)[..., None, None] * setting.reduction(chosen.shape[1])
    return rows.transpose(1, 2) @ error.flatten(2)


def _accuracy(x: Tensor, labels: Tensor, weights: Tensor, R: int) -> Tensor:
    """Return the accuracy of each penalty (R)."""
    found = (x @ weights).unflatten(-1, (R, -1)).argmax(-1)
    return (found == labels.unsqueeze(1)).float().mean(0)


def stratified(labels: NDArray[np.int64], folds: int, seed: int) -> list[Rows]:
    """Divide rows into folds of about equal size, with about equal shares of each class."""
    rng = np.random.default_rng(stream(seed, "folds"))
    place = np.concatenate([rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)])
    fold = np.empty(len(labels), np.int64)
    fold[place] = np.arange(len(labels)) % folds
    return [np.flatnonzero(fold == f) for f in range(folds)]


def without(rows: Rows, some: Rows) -> Rows:
    """Return the rows outside of `some`."""
    return np.setdiff1d(rows, some, assume_unique=True)


def held_out(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Divide rows into 95 % for training and 5 % to stop by."""
    order = np.random.default_rng(stream(seed, "held out")).permutation(rows)
    count = max(1, int(0.05 * len(rows)))
    return order[count:], order[:count]


SCORES = torch.arange(1.0, 6.0)
Rated = tuple[Tensor, NDArray[np.float64]]  # features (n, d) of pairs, scores (n)
BATCH, PASSES, MOST_PASSES, PATIENCE = 64, 50, 1000, 3


def targets(scores: NDArray[np.float64]) -> Tensor:
    """Return scores as distributions over 1 to 5 with these means (n, 5) (Tai et al. 2015, Eq 15)."""
    given = torch.from_numpy(scores).float().unsqueeze(1)
    return (1 - (given - SCORES).abs()).clamp(min=0)


def relatedness(
    train: Rated, dev: Rated, test: Rated, seed: int, counter: Counter = since_the_best
) -> dict[str, float]:
    """Return Pearson's r, Spearman's ρ and the mean squared error of a softmax layer on test.

    r and ρ are from -1 to 1. The layer is trained by the squared error of distributions and stopped by Pearson's r on
    dev. counter: how checks without a better r are counted, as in LogisticConfig.
    """
    generator = torch.Generator().manual_seed(stream(seed, "relatedness"))
    layer = nn.Linear(train[0].shape[1], 5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) / train[0].shape[1] ** 0.5)
    optimiser = torch.optim.Adam(layer.parameters(), 1e-3, (0.9, 0.999), 1e-8)
    gold = targets(train[1])
    best, best_state, without = -1.0, layer.state_dict(), torch.tensor(0)
    for _ in range(0, MOST_PASSES + 1, PASSES):
        for _ in range(PASSES):
            for rows in torch.randperm(len(gold), generator=generator).split(BATCH):
                loss = (layer(train[0][rows]).softmax(-1) - gold[rows]).square().mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        found = pearson(_expected(layer, dev[0]), dev[1])
        without = counter(without, torch.tensor(found > best))
        if found > best:
            best, best_state = found, {name: value.clone() for name, value in layer.state_dict().items()}
        if without > PATIENCE:
            break
    layer.load_state_dict(best_state)
    answers = _expected(layer, test[0])
    error = float(np.square(answers - test[1]).mean())
    return {
        "pearson": pearson(answers, test[1]),
        "spearman": spearman(answers, test[1]),
        "mse": error,
        "rows": len(gold),
    }


@torch.no_grad()
def _expected(layer: nn.Linear, features: Tensor) -> NDArray[np.float64]:
    """Return the expected score of each row (n)."""
    return (layer(features).softmax(-1) @ SCORES).double().numpy()


def similarity(u: Tensor, v: Tensor, scores: NDArray[np.float64], groups: NDArray[np.str_]) -> dict[str, float]:
    """Return correlations of cosines with scores: means over groups and means weighted by rows.

    Papers print means over groups.
    """
    cosine = torch.cosine_similarity(u, v).double().numpy()
    names, counts = np.unique(groups, return_counts=True)
    found: dict[str, float] = {}
    for name, measure in (("pearson", pearson), ("spearman", spearman)):
        values = [measure(cosine[groups == group], scores[groups == group]) for group in names]
        found |= {name: float(np.mean(values)), f"{name} by rows": float(np.average(values, weights=counts))}
    return {**found, "rows": len(scores)}


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
        """Return the split with labels as indices of `classes`. Without classes there are no labels."""
        sides = tuple(load_file(self.vectors).values())
        table = pa.concat_tables([read_shard(path).select(["label", "score", "group"]) for path in self.shards])
        known = {label: number for number, label in enumerate(classes)}
        labels = np.array([known[label] for label in table["label"].to_pylist()]) if classes else np.zeros(0, np.int64)
        groups = np.array(table["group"].to_pylist())
        return SplitFeatures(pair_features(sides), labels, table["score"].to_numpy(), groups, sides)

    def classes(self) -> list[str]:
        """Return the different labels of the split in alphabetical order."""
        return sorted({label for path in self.shards for label in read_shard(path)["label"].to_pylist()})


def pair_features(sides: tuple[Tensor, ...]) -> Tensor:
    """Return the features of one side (its vectors) or of two sides ([|u − v|; u ∘ v])."""
    return sides[0] if len(sides) == 1 else torch.cat([(sides[0] - sides[1]).abs(), sides[0] * sides[1]], 1)


@dataclass(frozen=True)
class WorkItem:
    """One part of a protocol on the splits of a task."""

    splits: tuple[SplitFiles, ...]
    setting: LogisticConfig
    seed: int
    part: int

    def read(self) -> list[SplitFeatures]:
        """Return the splits with their labels. Classes are the first split's."""
        classes = self.splits[0].classes()
        return [split.read(classes) for split in self.splits]


def _best(fitted: Fitted) -> tuple[int, float]:
    """Return the best penalty on dev over all folds, and its accuracy (%)."""
    mean = fitted.accuracy.mean(0)
    return int(mean.argmax()), 100 * float(mean.max())


def nested_fold(item: WorkItem) -> Metrics:
    """Score one outer fold.

    Choose the penalty by cross-validation on the rest. Train on 95 % of the rest and stop by 5 %.
    """
    (split,) = item.read()
    rows = len(split.labels)
    test = stratified(split.labels, item.setting.folds, item.seed)[item.part]
    final, dev = _cross_validated(split, without(np.arange(rows), test), item)
    right = final.predict(split.features[test], 0, 0).numpy() == split.labels[test]
    return {"accuracy": 100 * float(right.mean()), "dev": dev, "rows": rows, "learned": rows}


def _cross_validated(split: SplitFeatures, train: NDArray[np.int64], item: WorkItem) -> tuple[Fitted, float]:
    """Return a model of rows of a split with the best penalty by cross-validation, and the accuracy of that (%)."""
    labels = torch.from_numpy(split.labels)
    parts = [train[rows] for rows in stratified(split.labels[train], item.setting.folds, item.seed)]
    folds = [(without(train, part), part) for part in parts]
    strength, dev = _best(fit(split.features, labels, folds, STRENGTHS, item.setting, item.seed))
    last = [held_out(train, item.seed)]
    return fit(split.features, labels, last, [STRENGTHS[strength]], item.setting, item.seed), dev


def folds_and_test(item: WorkItem) -> Metrics:
    """Score the official test set by cross-validation.

    Choose the penalty by cross-validation on train. Train on 95 % of train and stop by 5 %.
    """
    split, test = item.read()
    rows = len(split.labels)
    final, dev = _cross_validated(split, np.arange(rows), item)
    return {**_tested(final, test), "dev": dev, "rows": rows, "learned": rows}


def dev_and_test(item: WorkItem) -> Metrics:
    """Score the official test set. Choose the penalty and stop by the official dev set."""
    train, dev, test = item.read()
    features, labels = torch.cat([train.features, dev.features]), np.concatenate([train.labels, dev.labels])
    rows = np.arange(len(labels))
    folds = [(rows[: len(train.labels)], rows[len(train.labels) :])]
    tried = fit(features, torch.from_numpy(labels), folds, STRENGTHS, item.setting, item.seed)
    strength, accuracy = _best(tried)
    final = Fitted(tried.weights[:, strength : strength + 1], tried.accuracy[:, strength : strength + 1])
    return {**_tested(final, test), "dev": accuracy, "rows": len(dev.labels), "learned": len(train.labels)}


def _tested(final: Fitted, test: SplitFeatures) -> Metrics:
    """Return the accuracy on test and the F1 of the last of two classes (`paraphrase`, not `other`)."""
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
    """STS14: correlations of cosines with gold scores by group. Nothing is trained."""
    (split,) = (files.read(()) for files in item.splits)
    u, v = split.sides
    return similarity(u, v, split.scores, split.groups)


@dataclass(frozen=True)
class TransferProtocol:
    """How a task is scored.

    Args:
        score: The score of a work item.
        splits: Splits of the task.
        by_fold: Each outer fold is a work item. Else the whole task is one.
        classes: Whether the task has classes.
    """

    score: Callable[[WorkItem], Metrics]
    splits: tuple[str, ...]
    by_fold: bool = False
    classes: bool = True


NESTED = TransferProtocol(nested_fold, ("all",), by_fold=True)
FOLDS = TransferProtocol(folds_and_test, ("train", "test"))
OFFICIAL = TransferProtocol(dev_and_test, ("train", "dev", "test"))
RELATEDNESS = TransferProtocol(score_relatedness, ("train", "dev", "test"), classes=False)
SIMILARITY = TransferProtocol(score_similarity, ("test",), classes=False)


@dataclass(frozen=True)
class TransferSettings:
    """The protocol and the inputs (splits) of each task by name, and the training of classifiers.

    apart: tasks with a score that stand in no average.
    """

    tasks: Mapping[str, tuple[TransferProtocol, tuple[str, ...]]]
    setting: LogisticConfig
    seed: int = 1111
    apart: tuple[str, ...] = ()


def transfer(job: Job, settings: TransferSettings) -> dict[str, Any]:
    """Score all tasks, from job.inputs["vectors"] and the numbered splits."""
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
        for part in range(settings.setting.folds if protocol.by_fold else 1):
            item = WorkItem(tuple(files[name] for name in names), settings.setting, settings.seed, part)
            items.append((protocol.score, item))
            owners.append(task)
    parts: dict[str, list[Metrics]] = {task: [] for task in settings.tasks}
    for task, metrics in zip(owners, job.executor.map(_score, items), strict=True):
        parts[task].append(metrics)
    scores = {name: asdict(score) for name, score in summary(parts, settings).items()}
    return {"scores": scores}


def _score(score: Callable[[WorkItem], Metrics], item: WorkItem) -> Metrics:
    torch.set_num_threads(1)  # items run side by side
    return score(item)


def summary(parts: Mapping[str, Sequence[Metrics]], settings: TransferSettings) -> dict[str, Score]:
    """Return means over the parts of each task as TASK, TASK/F1 and so on. Add dev/TASK, micro and macro.

    Micro and macro are those of Conneau et al. (2017): means of dev accuracies over the tasks with classes. Micro alone
    is weighted by their rows. Tasks set apart are left out.
    """
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
            learned = int(means.pop("learned"))
            signature = f"{protocol.score.__name__} of {learned} rows, {settings.setting}"
            scores[task] = Score(means.pop("accuracy"), signature, count)
            scores[f"dev/{task}"] = Score(means.pop("dev"), signature, count)
        for name, value in means.items():
            scores[f"{task}/{name}"] = Score(value, protocol.score.__name__, count)
    if accuracy:
        scores["micro"] = Score(float(np.average(accuracy, weights=rows)), "dev accuracies by rows", sum(rows))
        scores["macro"] = Score(float(np.mean(accuracy)), "mean of dev accuracies", sum(rows))
    return scores
