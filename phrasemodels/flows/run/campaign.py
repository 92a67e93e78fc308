"""Time-boxed runs: which trainings of a table come first, what fits into the time, and how far each row is."""

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from phrasemodels.data.store.step import Step, with_dependencies
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.run.plan import Plan
from phrasemodels.tasks.train.loop import PROGRESS

UNITS = {"h": 3600, "m": 60, "s": 1}


def seconds_of(text: str) -> float:
    """Return the seconds of a duration like 3h, 90m or 1h30m. ValueError: it is none."""
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    found = (
        sum(float(value or 0) * UNITS[unit] for value, unit in zip(parts.groups(), UNITS, strict=True)) if parts else 0
    )
    if not found:
        raise ValueError(f"{text!r} is no duration: write it like 3h, 90m or 1h30m")
    return found


@dataclass(frozen=True)
class Standing:
    """How far the training of one experiment and seed is: updates done, of how many, and seconds that each took (NaN: not
    known yet)."""

    pipeline: Pipeline
    done: int
    updates: int
    pace: float

    @property
    def left(self) -> float:
        """Estimated seconds to the end; NaN if nothing is known of the speed."""
        return 0.0 if self.done >= self.updates else (self.updates - self.done) * self.pace


@dataclass(frozen=True)
class RowStanding:
    """How far a row is, over its seeds. answers: how many printed numbers it answers."""

    experiment: Experiment
    seeds: tuple[Standing, ...]
    answers: int

    @property
    def left(self) -> float:
        """Estimated seconds of training to the end of its last seed."""
        return sum(standing.left for standing in self.seeds)

    @property
    def rank(self) -> tuple[bool, float, float]:
        """The order of rows: those that answer printed numbers, then those with least time to each number; of unknown
        speed by the updates that are left."""
        seconds = self.left / max(1, self.answers)
        updates = sum(standing.updates - standing.done for standing in self.seeds)
        return (not self.answers, seconds if math.isfinite(seconds) else math.inf, updates / max(1, self.answers))

    def told(self, fits: bool | None = None) -> dict[str, object]:
        """Return the row in words, for terminals and pages."""
        done = ", ".join(f"{s.done} of {s.updates}" for s in self.seeds)
        left = "not known before its first updates" if math.isnan(self.left) else f"{self.left / 60:.0f} min"
        row = {"row": self.experiment.name, "numbers": self.answers, "updates of each seed": done, "left": left}
        return row if fits is None else row | {"fits": "yes" if fits else "no"}


def standings(plan: Plan, store: Store) -> list[RowStanding]:
    """Return how far each row of a plan is that trains, the one that comes first in a time-boxed run first."""
    found = [_standing(p, store) for p in plan.pipelines if p.trains]
    usual = _usual_pace(found)
    rows = []
    for experiment in plan.table.experiments:
        own = [s for s in found if s.pipeline.experiment == experiment]
        pace = _usual_pace(own, usual)
        seeds = tuple(Standing(s.pipeline, s.done, s.updates, pace if math.isnan(s.pace) else s.pace) for s in own)
        if seeds:
            rows.append(RowStanding(experiment, seeds, sum(1 for answer in experiment.answers if answer.cell)))
    return sorted(rows, key=lambda row: row.rank)


def unfinished(rows: Iterable[RowStanding], left: Mapping[str, str]) -> list[dict[str, object]]:
    """Return in words the rows without a result. left: keys of their steps, with the error of a training that diverged, or ""
    if the time was up."""
    told = []
    for row in rows:
        why = {left[key] for standing in row.seeds if (key := standing.pipeline.scored.key) in left}
        if why:
            told.append(row.told() | ({"left": "; ".join(sorted(why - {""}))} if any(why) else {}))
    return told


def _usual_pace(found: Iterable[Standing], otherwise: float = math.nan) -> float:
    """Return the median of what is known of the seconds an update takes."""
    known = [standing.pace for standing in found if not math.isnan(standing.pace)]
    return statistics.median(known) if known else otherwise


def _standing(pipeline: Pipeline, store: Store) -> Standing:
    """Return how far one training is, by the store: finished, under way or not begun."""
    updates = pipeline.experiment.train.steps
    if trained := store.find(pipeline.trained, verify=False):
        return Standing(pipeline, updates, updates, trained.meta["train_seconds"] / max(1, trained.meta["steps"]))
    path = store.workspace(pipeline.trained.key) / "checkpoints" / PROGRESS
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return Standing(pipeline, state["step"], updates, state["seconds"] / state["step"])
    except (OSError, ValueError, KeyError, ZeroDivisionError):
        return Standing(pipeline, 0, updates, math.nan)


def fitting(rows: Sequence[RowStanding], seconds: float, processors: int) -> list[bool]:
    """Return for each row whether it is expected to end in time, if trainings run in this order, each on as many processors
    as it has threads and workers."""
    free = [0.0] * max(1, processors)  # the time from which on each processor is free
    fits = []
    for row in rows:
        ends = 0.0
        for standing in row.seeds:
            train = standing.pipeline.experiment.train
            needed = min(len(free), train.threads * max(1, train.workers))
            free.sort()
            end = free[needed - 1] + (math.inf if math.isnan(standing.left) else standing.left)  # unknown: does not fit
            free[:needed] = [end] * needed
            ends = max(ends, end)
        fits.append(ends <= seconds)
    return fits


def in_order(plan: Plan, rows: Iterable[RowStanding]) -> list[Step]:
    """Return the steps of a plan with all seeds of one row before the next row."""
    first = [standing.pipeline.scored for row in rows for standing in row.seeds]
    return with_dependencies([*first, *plan.steps])
