"""Logistic regression on frozen features as SentEval trains it, many models at once, with gradients written by hand.

All models of a call share the features. A fold is the rows that a model is trained on and those that it is stopped by; each
fold has a model for each strength of the L2 penalty. Shapes: N rows, d features, C classes, F folds, R strengths.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrasemodels.layers.checks import at_least
from phrasemodels.tasks.train.batches import Rows, stream

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2)
Counter = Callable[[Tensor, Tensor], Tensor]  # (count so far, whether this check is better than the best) -> new count


class Adam:
    """Adam with PyTorch's constants and a rate of 0.001; the penalty is part of the gradient."""

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
    """Count all checks that were not better than the best: SentEval's counter, which is never reset."""
    return count + ~better


def summed(rows: int) -> float:
    """The loss of a batch is a sum, as in SentEval's code with the PyTorch of 2018; the penalty weighs less."""
    return 1.0


def averaged(rows: int) -> float:
    """The loss of a batch is a mean, as in SentEval's code with today's PyTorch."""
    return 1.0 / rows


@dataclass(frozen=True)
class LogisticConfig:
    """How SentEval trains classifiers. folds: of cross-validation. batch: rows. passes: over the data between two checks on
    the held-out rows. patience: checks without improvement before a model stops. most_passes: in all.
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
    """Weights (F, R, d + 1, C), with the bias as the last row, and the best accuracies on the held-out rows (F, R)."""

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
    """Return batches (F, size) of one pass over each fold's rows in random order; -1 where a fold has no more rows."""
    longest = max(map(len, rows))
    order = torch.full((len(rows), -(-longest // size) * size), -1)
    for f, own in enumerate(rows):
        order[f, : len(own)] = torch.from_numpy(own)[torch.randperm(len(own), generator=generator)]
    return list(order.split(size, 1))


def _gradient(x: Tensor, labels: Tensor, chosen: Tensor, weights: Tensor, R: int, setting: LogisticConfig) -> Tensor:
    """Return the gradient of the cross entropy of a batch (F, d + 1, R C)."""
    there = chosen >= 0
    rows = x[chosen]
    error = (rows @ weights).unflatten(-1, (R, -1)).softmax(-1)
    gold = labels[chosen][..., None, None].expand(-1, -1, R, 1)
    error.scatter_add_(-1, gold, torch.full(gold.shape, -1.0))
    error *= there[..., None, None] * setting.reduction(chosen.shape[1])
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
    """Return the rows that are not among `some`."""
    return np.setdiff1d(rows, some, assume_unique=True)


def held_out(rows: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Divide rows into those to train on and a share to stop by."""
    order = np.random.default_rng(stream(seed, "held out")).permutation(rows)
    count = max(1, int(share * len(rows)))
    return order[count:], order[:count]
