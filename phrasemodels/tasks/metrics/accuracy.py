"""Accuracy: the share of right answers, in percent."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from phrasemodels.tasks.metrics.score import Score
from phrasemodels.verdicts.significance import Array


def accuracy(right: NDArray[np.bool_], signature: str) -> Score:
    """Return the share of true values (n)."""
    return Score(100 * float(right.mean()), signature, len(right))


def accuracies(right: NDArray[np.bool_], groups: Sequence[str], signature: str) -> dict[str, Score]:
    """Return the accuracy over all n sentences, and over each group of sentences: `accuracy/GROUP`."""
    return {f"accuracy{suffix}": accuracy(right[rows], signature) for suffix, rows in by_group(groups).items()}


def by_group(groups: Sequence[str]) -> Mapping[str, NDArray[np.bool_]]:
    """Return masks (n) of the sentences that a metric is computed over, by the suffix of its name: "" for all sentences,
    "/GROUP" for each named group, in alphabetical order."""
    names = np.asarray(groups)
    return {"": np.ones(len(names), bool), **{f"/{name}": names == name for name in sorted(set(names) - {""})}}


def accuracy_of(sums: Array) -> Array:
    """Return the accuracy, in percent, of summed (right, all) counts (..., 2); it is 0 of nothing."""
    return 100 * sums[..., 0] / np.maximum(sums[..., 1], 1)
