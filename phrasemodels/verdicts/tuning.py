"""The dev score that a search of a given budget is expected to find (Dodge et al. 2019, Show Your Work, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES = 2000


@dataclass(frozen=True)
class ExpectedBest:
    """Of a search with a budget of 1 to n trials: mean (n,) of the best dev loss, and its 95 % interval low, high (n,)."""

    mean: Array
    low: Array
    high: Array


def expected_best(losses: Sequence[float], seed: int = 0) -> ExpectedBest:
    """Return the lowest dev loss that as many trials as given, or fewer, are expected to find.

    losses: of n trials whose settings were drawn independently; a trial that diverged counts as the worst of the others.
    The interval is a percentile bootstrap over trials: it tells how much another search could have found. ValueError: no
    loss is a finite number.
    """
    values = np.asarray(losses, float)
    if not np.isfinite(values).any():
        raise ValueError("no trial has a finite dev loss")
    values = np.where(np.isfinite(values), values, values[np.isfinite(values)].max())
    drawn = np.random.default_rng(seed).choice(values, (RESAMPLES, len(values)))
    low, high = np.percentile(_expected(drawn), (2.5, 97.5), axis=0)
    return ExpectedBest(_expected(values[None])[0], low, high)


def _expected(values: Array) -> Array:
    """Return E[min of b draws with replacement] of each row of values (m, n), for b = 1 to n: (m, n)."""
    n = values.shape[1]
    budgets = np.arange(1, n + 1)[:, None]
    above = (1 - np.arange(n + 1) / n) ** budgets  # P(no draw is among the i lowest), (budget, i)
    return np.sort(values, 1) @ (above[:, :-1] - above[:, 1:]).T
