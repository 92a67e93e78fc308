"""Tests of whether one system is better than another on the same test sentences, with chance in seeds and in sentences.

They need only the statistics that are summed over sentences before a metric is computed; the metric is a function of the
sums, (..., K) -> (...). Shapes: S seeds, n sentences, K statistics, R resamples.

The dev score that a search of a given budget is expected to find (Dodge et al. 2019, Show Your Work, section 3.1).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FEWEST_SEEDS = 3
BEYOND, HIDDEN = 1.0, 0.7  # of degrees of freedom (_freedom)
BLOCK = 4_000_000  # weights of sentences in memory at a time: 32 MB


@dataclass(frozen=True)
class SeedGroup:
    """Mean over n seeds, standard deviation, and half the width of the 95 % interval (Student's t). With one seed,
    deviation and half width are NaN."""

    mean: float
    deviation: float
    half_width: float
    n: int

    @property
    def warning(self) -> str:
        """A warning about too few seeds; empty from three seeds on."""
        return few_seeds(self.n)


def few_seeds(n: int) -> str:
    """Return a warning about too few seeds; empty from three seeds on."""
    if n < 2:
        return f"{n} seed; a verdict needs 2"
    return "" if n >= FEWEST_SEEDS else f"{n} seeds, which say little of how much seeds differ; take {FEWEST_SEEDS}"


def seed_group(values: Sequence[float]) -> SeedGroup:
    """Summarise one value a seed."""
    from scipy import stats

    n = len(values)
    if n < 2:
        return SeedGroup(float(np.mean(values)), math.nan, math.nan, n)
    deviation = float(np.std(values, ddof=1))
    return SeedGroup(float(np.mean(values)), deviation, float(stats.t.ppf(0.975, n - 1)) * deviation / n**0.5, n)


@dataclass(frozen=True)
class Statistic:
    """A metric as a function of per-sentence statistics: the column of sentences.arrow that has them, and the value
    (0 to 100) of their sums, (..., K) -> (...)."""

    column: str
    value: Callable[[Array], Array]


@dataclass(frozen=True)
class Difference:
    """A system minus its baseline: difference of means over seeds, 95 % interval [low, high] and p of the two-level
    bootstrap, and p of approximate randomisation, which sees chance in sentences only. With one seed the interval says
    nothing about other seeds."""

    difference: float
    low: float
    high: float
    p: float
    p_randomisation: float
    seeds: int
    sentences: int


def difference(ours: Array, base: Array, value: Callable[[Array], Array], resamples: int = 1000) -> Difference:
    """Compare two systems by their statistics (S, n, K) on the same sentences. Deterministic. ValueError: the systems have
    different numbers of sentences."""
    if ours.shape[1:] != base.shape[1:]:
        raise ValueError(f"the systems were tested on other sentences: {ours.shape[1]} and {base.shape[1]}")
    from scipy import stats  # not at the top: machines that only train do not need scipy

    rng = np.random.default_rng(0)
    found, error, freedom = two_level_bootstrap(ours, base, value, resamples, rng)
    half = float(stats.t.ppf(0.975, freedom)) * error
    p = 2 * float(stats.t.sf(abs(found) / error, freedom)) if error else float(found == 0)
    randomised = approximate_randomisation(ours, base, value, resamples, rng)
    return Difference(found, found - half, found + half, p, randomised, min(len(ours), len(base)), ours.shape[1])


def two_level_bootstrap(
    ours: Array, base: Array, value: Callable[[Array], Array], resamples: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Return the difference of means over seeds, its standard error, and degrees of freedom.

    The variance of the difference sums the variance of the two means of seeds, s² / S, and that due to sentences, which all seeds and
    both systems share. s² has the noise of sentences that each seed sees for itself, so only the rest of it is added: the
    variance over resampled sentences without the part that differs by seed (Owen 2007 on noise that counts twice). An s² of
    few seeds is not cut off at that part: it would be too large on average; its chance is the chance of the whole.
    """
    found, sentences, seeds = two_level_parts(ours, base, value, resamples, rng)
    return found, *two_level_error(sentences, ours.shape[1], [one for one in seeds if one[2] > 1])


SeedParts = tuple[float, float, int]  # variance over seeds, the part of it that sentences alone make, seeds


def two_level_parts(
    ours: Array, base: Array, value: Callable[[Array], Array], resamples: int, rng: np.random.Generator
) -> tuple[float, float, tuple[SeedParts, SeedParts]]:
    """Return the difference of means over seeds, its variance over resampled sentences, and the parts of both systems."""
    both = np.moveaxis(np.concatenate((ours, base)), 0, 1)
    drawn = np.split(_resampled(both, resamples, rng), [len(ours)], axis=1)
    means, replicates = (value(ours.sum(1)), value(base.sum(1))), [value(x) for x in drawn]
    sentences = float(np.var(replicates[0].mean(1) - replicates[1].mean(1), ddof=1))
    one, other = (
        (float(mean.var(ddof=1)), _noise(replicate), len(mean)) if len(mean) > 1 else (0.0, 0.0, 1)
        for mean, replicate in zip(means, replicates, strict=True)
    )
    return float(means[0].mean() - means[1].mean()), sentences, (one, other)


def two_level_error(sentences: float, n: int, seeds: Sequence[tuple[float, float, int]]) -> tuple[float, float]:
    """Return the standard error of a difference and its degrees of freedom.

    sentences: its variance over resampled sentences, of which there are n. seeds: of each system with several seeds their
    variance, the part of it that sentences alone make, and their number.
    """
    shared = max(0.0, sentences - sum(noise / S for _, noise, S in seeds))
    parts = [(variance / S, S - 1) for variance, _, S in seeds]
    return math.sqrt(shared + sum(part for part, _ in parts)), _freedom(shared, n - 1, parts)


def _noise(replicate: Array) -> float:
    """Return the variance between seeds that resampled sentences alone make, of replicates (R, S)."""
    S = replicate.shape[1]
    return float((replicate - replicate.mean(1, keepdims=True)).var(0).mean() * S / (S - 1))


def _freedom(shared: float, sentences: int, parts: Sequence[tuple[float, int]]) -> float:
    """Return the degrees of freedom of a sum of variances: the shared one, with its degrees, and (variance, degrees) of seeds.

    Satterthwaite's sum, 1 / f = Σ share² / f_i, is wrong in two places. It gives too few degrees where variances that are
    alike are known equally badly; Welch (1947) adds 2 to each f_i and takes 2 from f, and BEYOND is between the two. It gives
    far too many where few seeds agree by chance, so that the sentences seem to be all there is: a part counts for more, by up
    to HIDDEN / f_i of the shared one. Both numbers were chosen by `benchmarks/significance.py`.
    """
    total = shared + sum(variance for variance, _ in parts)
    if total == 0:
        return 1.0
    summed = (shared / total) ** 2 / (max(1, sentences) + BEYOND)
    for part, freedom in parts:
        hidden = HIDDEN / freedom * shared
        wider = part + (hidden * part / (hidden + part) if part else 0.0)
        summed += (wider / total) ** 2 / (freedom + BEYOND)
    return max(1.0, 1 / summed - BEYOND)


def _resampled(statistics: Array, resamples: int, rng: np.random.Generator) -> Array:
    """Return the sums (R, S, K) of statistics (n, S, K) over R draws of sentences with replacement, in blocks: R n numbers are many."""
    n = len(statistics)
    flat, step, blocks = statistics.reshape(n, -1), max(1, BLOCK // n), []
    for first in range(0, resamples, step):
        rows = rng.integers(0, n, (min(step, resamples - first), n), dtype=np.int32)
        cells = (rows + n * np.arange(len(rows))[:, None]).ravel()
        counts = np.bincount(cells, minlength=len(rows) * n).reshape(-1, n)
        blocks.append(counts.astype(np.float64) @ flat)
    return np.concatenate(blocks).reshape(resamples, *statistics.shape[1:])


def approximate_randomisation(
    ours: Array, base: Array, value: Callable[[Array], Array], resamples: int, rng: np.random.Generator
) -> float:
    """Return p: how often exchanging the systems' outputs for random sentences, in all seeds at once, makes a difference
    as large as the observed one. NaN if the systems have different numbers of seeds."""
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
    """Return p values corrected for multiple tests, so that the family errs with probability at most α (Holm 1979)."""
    corrected, before = [0.0] * len(ps), 0.0
    for rank, index in enumerate(np.argsort(ps, kind="stable")):
        before = max(before, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[int(index)] = before
    return corrected


