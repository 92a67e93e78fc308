"""Correlations of predicted with gold scores: Pearson's r and Spearman's ρ."""

import numpy as np
from numpy.typing import NDArray

from phrasemodels.verdicts.significance import Array


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return Pearson's r of two sequences (n); 0 if one of them is constant."""
    from scipy import stats  # not at the top: machines that only train do not need scipy

    return float(stats.pearsonr(x, y)[0]) if np.ptp(x) and np.ptp(y) else 0.0


def spearman(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return Spearman's ρ of two sequences (n); 0 if one of them is constant."""
    from scipy import stats

    return float(stats.spearmanr(x, y)[0]) if np.ptp(x) and np.ptp(y) else 0.0


def correlation_statistics(x: Array, y: Array) -> Array:
    """Return the statistics of each sentence (n, 6) whose sums `correlation_of` takes: (1, x, y, x², y², xy)."""
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], -1)


def correlation_of(sums: Array) -> Array:
    """Return 100 r of summed `correlation_statistics` (..., 6); with ranks in the whole test set for x and y, 100 ρ."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(100 * (n * xy - x * y) / np.sqrt((n * xx - x**2) * (n * yy - y**2)), nan=0.0)
