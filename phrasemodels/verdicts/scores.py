"""Scores of one's own runs: of each seed and test item, or of each seed alone."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from phrasemodels.verdicts.significance import Array

MOST = 5_000_000  # observations that are read at most


class Observation(NamedTuple):
    """The score of one item by one seed. total: what the score is out of, such as 1, or the words of a sentence."""

    row: str
    dataset: str
    metric: str
    seed: str
    item: str
    score: float
    total: float = 1.0


@dataclass(frozen=True, eq=False)  # arrays have no one truth value
class Scores:
    """The scores of one row, data set and metric; sums: (S, n, 2), score and total of each seed and item.

    The metric is Σ score / Σ total. So it is a mean over items, a share of words, or the F1 of 2 · matches in gold + predicted.
    """

    row: str
    dataset: str
    metric: str
    seeds: tuple[str, ...]
    items: tuple[str, ...]
    sums: Array

    @property
    def is_share(self) -> bool:
        """Whether the scores of several items lie between 0 and their totals, so that the metric cannot exceed 1."""
        score, total = self.sums[..., 0], self.sums[..., 1]
        return len(self.items) > 1 and bool(((score >= 0) & (score <= total)).all())

    @property
    def repeats(self) -> bool:
        """Whether there are several seeds, and all have the same score of each item."""
        return len(self.seeds) > 1 and bool((self.sums == self.sums[:1]).all())

    def values(self) -> list[float]:
        """Return the metric of each seed."""
        return [float(value) for value in ratio(self.sums.sum(1))]


def ratio(sums: Array) -> Array:
    """Return score / total of sums (..., 2) -> (...); 0 where the total is 0."""
    return np.divide(sums[..., 0], sums[..., 1], out=np.zeros(sums.shape[:-1]), where=sums[..., 1] != 0)


def collected(observations: Iterable[Observation]) -> list[Scores]:
    """Return the scores of each row, data set and metric, in the order in which they first occur.

    ValueError: a score is not finite, a total is negative, a seed has an item twice, seeds have different items, or there are
    too many.
    """
    found: dict[tuple[str, str, str], dict[str, dict[str, tuple[float, float]]]] = {}
    for count, one in enumerate(observations):
        if count >= MOST:
            raise ValueError(f"more than {MOST} scores; judge fewer rows at a time")
        items = found.setdefault((one.row, one.dataset, one.metric), {}).setdefault(one.seed, {})
        if not (math.isfinite(one.score) and math.isfinite(one.total) and one.total >= 0):
            raise ValueError(
                f"{_named(one)}, item {one.item[:40]!r}: score {one.score} of {one.total} is no finite number"
            )
        if one.item in items:
            raise ValueError(f"{_named(one)}: item {one.item[:40]!r} has two scores; a seed has one for each item")
        items[one.item] = (one.score, one.total)
    return [_scores(key, seeds) for key, seeds in found.items()]


def _scores(key: tuple[str, str, str], seeds: dict[str, dict[str, tuple[float, float]]]) -> Scores:
    items = tuple(sorted(set().union(*seeds.values())))
    for seed, own in seeds.items():
        if lacking := [item for item in items if item not in own]:
            where = _named(Observation(*key, seed, "", 0))
            raise ValueError(
                f"{where}: {len(lacking)} of {len(items)} items have no score, such as {lacking[0][:40]!r}; all seeds must have "
                "the same items"
            )
    sums = np.array([[own[item] for item in items] for own in seeds.values()], np.float64)
    return Scores(*key, tuple(seeds), items, sums)


def _named(one: Observation) -> str:
    names = (("row", one.row), ("data set", one.dataset), ("metric", one.metric), ("seed", one.seed))
    return ", ".join(f"{kind} {name[:60]!r}" for kind, name in names if name)
