"""From scores to verdicts: means over seeds, intervals, and what they say about a published number."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from data.store import Artifact, Job, write_durably

FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Interval:
    """Mean over seeds, standard deviation, and half the width of the 95 % interval (Student's t); n seeds.

    With one seed deviation and half width are NaN.
    """

    mean: float
    deviation: float
    half_width: float
    n: int


def interval(values: Sequence[float]) -> Interval:
    """The interval of the mean of values."""
    n = len(values)
    if n < 2:
        return Interval(float(np.mean(values)), math.nan, math.nan, n)
    deviation = float(np.std(values, ddof=1))
    return Interval(float(np.mean(values)), deviation, float(stats.t.ppf(0.975, n - 1)) * deviation / n**0.5, n)


@dataclass(frozen=True)
class Verdict:
    """What our runs say about a published number: not run, not comparable, reproduced, higher or lower."""

    verdict: str
    reason: str


def judge(published: float | None, ours: Interval | None, reason_not: str) -> Verdict:
    """The verdict on a number. `reason_not` says why it cannot be compared, or is empty; nothing on stand-in data or at
    a smaller size is ever called reproduced."""
    if ours is None:
        return Verdict("not run", "no run of this experiment is in the store")
    if published is None:
        return Verdict("not comparable", "the paper prints no such number")
    if reason_not:
        return Verdict("not comparable", reason_not)
    if ours.n < FEWEST_SEEDS:
        return Verdict("not comparable", f"{ours.n} seeds; a verdict needs {FEWEST_SEEDS}")
    if abs(published - ours.mean) <= ours.half_width:
        return Verdict("reproduced", f"the published value lies in our 95 % interval over {ours.n} seeds")
    direction = "higher" if ours.mean > published else "lower"
    return Verdict(direction, f"our mean is {abs(ours.mean - published):.2f} {direction} than the published value")


@dataclass(frozen=True)
class RowSettings:
    """A row of a table: the experiment, the number that it answers, in which metric of ours, and why not, if so."""

    experiment: str
    system: str
    variant: str
    published: float | None
    metric: str
    reason_not: str


@dataclass(frozen=True)
class CompareSettings:
    """A table and its seeds."""

    title: str
    rows: tuple[RowSettings, ...]
    seeds: tuple[int, ...]


def compare(job: Job, settings: CompareSettings) -> dict[str, Any]:
    """verdicts.json: each row with its values by seed, interval and verdict, from inputs "EXPERIMENT seed N"."""
    rows = [
        _row(row, [job.inputs[f"{row.experiment} seed {seed}"] for seed in settings.seeds], settings.seeds)
        for row in settings.rows
    ]
    write_durably(job.out / "verdicts.json", json.dumps({"title": settings.title, "rows": rows}, indent=1))
    return {"title": settings.title, "rows": rows}


def _row(row: RowSettings, scores: list[Artifact], seeds: tuple[int, ...]) -> dict[str, Any]:
    metrics = sorted({name for artifact in scores for name in artifact.meta["scores"]})
    values = {name: [artifact.meta["scores"][name]["value"] for artifact in scores] for name in metrics}
    ours = interval(values[row.metric])
    stand_in = any(artifact.meta["stand_in"] for artifact in scores)
    reason = "generated sample corpus, not the paper's data" if stand_in else row.reason_not
    return {
        **asdict(row),
        "seeds": list(seeds),
        "values": values,
        "intervals": {name: _finite(asdict(interval(value))) for name, value in values.items()},
        "signatures": {name: scores[0].meta["scores"][name]["signature"] for name in metrics},
        "stand_in": stand_in,
        **asdict(judge(row.published, ours, reason)),
    }


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """NaN as null, which JSON has."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
