"""Is one system better than another? Seeds and sentences as two sources of chance, on the same test sentences.

Everything here needs only statistics that are summed over sentences before a metric is taken of them: S seeds, n
sentences, K statistics, R resamples. What a metric makes of sums (..., K) is a function that is passed in.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FEWEST_SEEDS = 3
BLOCK = 4_000_000  # weights of sentences held at a time: 32 MB


@dataclass(frozen=True)
class SeedGroup:
    """Mean over seeds, standard deviation, and half the width of the 95 % interval (Student's t); n seeds.

    With one seed deviation and half width are NaN.
    """

    mean: float
    deviation: float
    half_width: float
    n: int

    @property
    def warning(self) -> str:
        """What to think of few seeds; empty from three on."""
        return "" if self.n >= FEWEST_SEEDS else f"{self.n} seed{'s' * (self.n > 1)}; a verdict needs {FEWEST_SEEDS}"


def seed_group(values: Sequence[float]) -> SeedGroup:
    """The seed group of one value a seed."""
    from scipy import stats

    n = len(values)
    if n < 2:
        return SeedGroup(float(np.mean(values)), math.nan, math.nan, n)
    deviation = float(np.std(values, ddof=1))
    return SeedGroup(float(np.mean(values)), deviation, float(stats.t.ppf(0.975, n - 1)) * deviation / n**0.5, n)


@dataclass(frozen=True)
class Statistic:
    """A metric by its per-sentence statistics: the column of sentences.arrow that holds them, and its value (0 to 100)
    of their sums, (..., K) -> (...)."""

    column: str
    value: Callable[[Array], Array]


def bleu_of(sums: Array) -> Array:
    """Corpus BLEU without smoothing, of lengths of hypothesis and reference, then matches and totals of 1- to 4-grams."""
    hypothesis, reference, matches, totals = sums[..., 0], sums[..., 1], sums[..., 2:6], sums[..., 6:10]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.log(matches / totals).mean(-1)
        penalty = np.minimum(0.0, 1 - reference / hypothesis)
        return np.nan_to_num(100 * np.exp(precision + penalty), nan=0.0)


def accuracy_of(sums: Array) -> Array:
    """Share of what is right, of (right, all): exact match, tags, attachments."""
    return 100 * sums[..., 0] / sums[..., 1]


def f1_of(sums: Array) -> Array:
    """F1 of (matched, predicted, gold): labelled brackets."""
    return 200 * sums[..., 0] / (sums[..., 1] + sums[..., 2])


def correlation_of(sums: Array) -> Array:
    """Pearson's r times 100, of (1, x, y, x², y², xy). With ranks in the whole test set for x and y: Spearman's ρ."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(100 * (n * xy - x * y) / np.sqrt((n * xx - x**2) * (n * yy - y**2)), nan=0.0)


def correlation_statistics(x: Array, y: Array) -> Array:
    """Per sentence (n, 6), what `correlation_of` takes sums of."""
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], -1)


BLEU = Statistic("bleu_counts", bleu_of)


@dataclass(frozen=True)
class Difference:
    """A system minus its baseline: mean over seeds, 95 % interval and p of the two-level bootstrap, and p of approximate
    randomisation, which knows of sentences alone. With one seed no interval speaks of other seeds."""

    difference: float
    low: float
    high: float
    p: float
    p_randomisation: float
    seeds: int
    sentences: int


def difference(ours: Array, base: Array, value: Callable[[Array], Array], resamples: int = 1000) -> Difference:
    """Compare two systems by the statistics of their seeds (S, n, K) on the same sentences. Deterministic."""
    if ours.shape[1:] != base.shape[1:]:
        raise ValueError(f"the systems were tested on other sentences: {ours.shape[1]} and {base.shape[1]}")
    from scipy import stats  # here, so that a box that only trains does without it

    rng = np.random.default_rng(0)
    found, error, freedom = two_level_bootstrap(ours, base, value, resamples, rng)
    half = float(stats.t.ppf(0.975, freedom)) * error
    p = 2 * float(stats.t.sf(abs(found) / error, freedom)) if error else float(found == 0)
    randomised = approximate_randomisation(ours, base, value, resamples, rng)
    return Difference(found, found - half, found + half, p, randomised, min(len(ours), len(base)), ours.shape[1])


def two_level_bootstrap(
    ours: Array, base: Array, value: Callable[[Array], Array], resamples: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Difference of means over seeds, its standard error, degrees of freedom (Satterthwaite).

    A resample draws seeds of each system, then sentences, the same for both. Taken plainly, that is wrong for the few
    seeds one has: n of n seeds vary too little, and since every seed meets the same sentences, their noise counts twice
    (Owen 2007). So the deviations of seeds are rescaled to the variance that is left when the noise of the sentences is
    taken out (reflation: Carpenter, Goldstein & Rasbash 2003), and sentences are resampled for all seeds at once.
    """
    weights = _resampled(ours.shape[1], resamples, rng)
    means, replicates = zip(*(_values(x, value, weights) for x in (ours, base)), strict=True)
    sentences = replicates[0].mean(1) - replicates[1].mean(1)
    seeds, freedom = np.zeros(resamples), 0.0
    for sign, mean, replicate in zip((1, -1), means, replicates, strict=True):
        S = len(mean)
        if S > 1 and (left := _seed_variance(mean, replicate)) > 0:
            drawn = mean[rng.integers(0, S, (resamples, S))].mean(1) - mean.mean()
            seeds += sign * drawn * math.sqrt(left / mean.var())
            freedom += (left / S) ** 2 / (S - 1)
    within = float(np.var(sentences, ddof=1))
    total = float(np.var(sentences + seeds, ddof=1))
    freedom += within**2 / max(1, ours.shape[1] - 1)
    return float(means[0].mean() - means[1].mean()), math.sqrt(total), max(1.0, total**2 / freedom) if freedom else 1.0


def _seed_variance(mean: Array, replicate: Array) -> float:
    """Variance between seeds without that of sentences, from the values of seeds (S) and their replicates (R, S)."""
    noise = (replicate - replicate.mean(1, keepdims=True)).var(0).mean() * len(mean) / (len(mean) - 1)
    return float(max(0.0, mean.var(ddof=1) - noise))


def _resampled(n: int, resamples: int, rng: np.random.Generator) -> Callable[[Array], Array]:
    """Sums (R, ...) of statistics (n, ...) over sentences drawn with replacement, the same ones at every call."""
    drawn = rng.integers(0, n, (resamples, n), dtype=np.int32)
    step = max(1, BLOCK // n)

    def sums(statistics: Array) -> Array:
        flat = statistics.reshape(n, -1)
        blocks = []
        for first in range(0, resamples, step):
            rows = drawn[first : first + step]
            cells = (rows + n * np.arange(len(rows))[:, None]).ravel()
            counts = np.bincount(cells, minlength=len(rows) * n).reshape(-1, n)
            blocks.append(counts.astype(np.float64) @ flat)
        return np.concatenate(blocks).reshape(resamples, *statistics.shape[1:])

    return sums


def _values(x: Array, value: Callable[[Array], Array], sums: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Values of the seeds (S), and of each resample (R, S)."""
    return value(x.sum(1)), value(sums(np.moveaxis(x, 0, 1)))


def approximate_randomisation(
    ours: Array, base: Array, value: Callable[[Array], Array], resamples: int, rng: np.random.Generator
) -> float:
    """p of two systems with as many seeds each: how often exchanging the outputs of random sentences, of all seeds at
    once, makes a difference as large. NaN if one has more seeds than the other."""
    if len(ours) != len(base):
        return math.nan
    n = ours.shape[1]
    gap, total = np.moveaxis(ours - base, 0, 1).reshape(n, -1), ours.sum(1) + base.sum(1)
    seen = abs(value(ours.sum(1)).mean() - value(base.sum(1)).mean())
    larger, step = 0, max(1, BLOCK // n)
    for first in range(0, resamples, step):
        kept = rng.integers(0, 2, (min(step, resamples - first), n), dtype=np.int8).astype(np.float64)
        mine = (kept @ gap).reshape(-1, *total.shape) + base.sum(1)
        apart = value(mine).mean(1) - value(total - mine).mean(1)
        larger += int((np.abs(apart) >= seen - 1e-9).sum())
    return (larger + 1) / (resamples + 1)


def holm(ps: Sequence[float]) -> list[float]:
    """The p values of a table, corrected so that all its claims together err with at most α (Holm 1979)."""
    corrected, before = [0.0] * len(ps), 0.0
    for rank, index in enumerate(np.argsort(ps, kind="stable")):
        before = max(before, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[int(index)] = before
    return corrected
