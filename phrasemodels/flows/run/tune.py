"""Tuning with the same number of trials for each row of a table.

Trials draw their settings at random. The setting with the lowest dev loss is chosen. A trial is a training like all others: a
step of the store for a second run to find, and a run of MLflow. Test sets are not read. Trials have a seed of their own, so
no reported seed was chosen by its luck.
"""

import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.experiments.catalogue import MOST_SEEDS, Table, experiments, space_of
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.experiments.overrides import as_text, overridden
from phrasemodels.flows.run.execute import SharedCheckpoints, stop_at
from phrasemodels.flows.run.plan import Plan
from phrasemodels.tasks.train.checkpoints import Progress, newest
from phrasemodels.tasks.train.config import constant, halved_thrice
from phrasemodels.tasks.train.trainer import history
from phrasemodels.verdicts.significance import expected_best

SEED = MOST_SEEDS  # no row that is reported has it
SHARES = (0.25, 0.5, 1.0)  # of the updates, after which the worse half of the trials is pruned
WITHOUT_WARMUP = (constant, halved_thrice)  # schedules


@dataclass(frozen=True)
class Dimension:
    """A searched field: values or log-uniform numbers.

    Numbers are from a factor below to a factor above the row's own.
    """

    path: str
    factor: float = 0.0
    values: tuple[Any, ...] = ()


# A row is searched in the fields of it that are here, and in those of the SPACE of a user's study.
SPACE = (
    Dimension("train.learning_rate", factor=4),
    Dimension("train.warmup", factor=4),
    Dimension("model.encoder.dropout", values=(0.0, 0.1, 0.2, 0.3, 0.4)),
    Dimension("model.dropout", values=(0.0, 0.1, 0.2, 0.3, 0.4)),
    Dimension("model.initial", factor=10),
    Dimension("model.deviation", factor=10),
)


@dataclass
class Trial:
    """A setting of a row, and the lowest dev loss of its training so far."""

    pipeline: Pipeline
    losses: list[float] = field(default_factory=list)
    updates: int = 0
    pruned: bool = False

    @property
    def changed(self) -> tuple[str, ...]:
        """The overrides of the row as it is defined."""
        return self.pipeline.experiment.changed

    @property
    def record(self) -> dict[str, Any]:
        """The trial as it is kept beside the results of its table."""
        losses = [loss if math.isfinite(loss) else None for loss in self.losses]
        known = {"changed": self.changed, "losses": losses, "updates": self.updates, "pruned": self.pruned}
        return known | {"training": self.pipeline.trained.key}

    def reached(self, store: Store, share: float) -> bool:
        """Return whether the training has come to a share of its updates, or has ended."""
        _, updates = history_so_far(store, self.pipeline.trained)
        return updates >= min(stop_at(self.pipeline.experiment, share), self.pipeline.experiment.train.steps)


@dataclass
class Search:
    """The trials of one row. The first has the row's own settings."""

    row: Experiment
    trials: list[Trial]

    @classmethod
    def of(cls, row: Experiment, budget: int) -> "Search":
        """Draw a budget of trials. Each draw of a row gives the same ones.

        ValueError: the row trains nothing, or has no dev set to choose on.
        """
        if not row.recipe.trains:
            raise ValueError(f"{row.name}: it trains nothing that could be tuned; leave out --tune")
        if not getattr(row.recipe, "score_dev", True):
            raise ValueError(
                f"{row.name}: its dev set is a part of train, or test itself, so no setting can be chosen on it; leave it out "
                "by --row, or leave out --tune"
            )
        # crc32, not hash(), which differs from process to process: a second run draws the same trials
        draw, trials = random.Random(zlib.crc32(row.name.encode())), []
        added = space_of(row.table.paper)
        rows = [one for one in experiments(row.table.paper) if one.profile == row.profile] if added else []
        for path in added:
            if all(_field(one, path) is _NONE for one in rows):
                raise ValueError(
                    f"SPACE: no row of {row.table.paper} has a field {path}; `phrasemodels experiments {row.name} --settings` "
                    "lists the names"
                )
        space = (*SPACE, *(_dimension(path, values) for path, values in added.items()))
        for number in range(budget):
            changed = [text for one in space if (text := _drawn(draw, row, one))] if number else []
            # without answers: a trial answers no printed number
            trials.append(Trial(replace(overridden(row, *changed), answers=()).steps(SEED)))
        return cls(row, trials)

    @property
    def alive(self) -> list[Trial]:
        """The trials without the pruned ones. ValueError: all diverged."""
        if alive := [trial for trial in self.trials if not trial.pruned]:
            return alive
        raise ValueError(f"{self.row.name}: each of {len(self.trials)} trials diverged; lower train.learning_rate")

    @property
    def best(self) -> Trial:
        """The finished trial with the lowest dev loss."""
        return min(self.alive, key=lambda trial: trial.losses[-1])

    def measure(self, store: Store) -> None:
        """Read the progress of each trial. Prune diverged trials and (but for the last time) the worse half."""
        alive = self.alive
        for trial in alive:
            loss, trial.updates = _dev_loss(store, trial.pipeline, SHARES[len(trial.losses)])
            trial.losses.append(loss)
        losses = [trial.losses[-1] for trial in alive]
        last = len(alive[0].losses) == len(SHARES)
        for trial, loss, is_behind in zip(alive, losses, worse_half(losses), strict=True):
            is_own = trial is self.trials[0]  # what the best settings are compared with
            trial.pruned = not math.isfinite(loss) or (is_behind and not last and not is_own)


def worse_half(losses: Sequence[float]) -> list[bool]:
    """Mark the trials to prune by successive halving: a loss above the median."""
    limit = sorted(losses)[math.ceil(len(losses) / 2) - 1]
    return [loss > limit for loss in losses]


def _dimension(path: str, values: float | Sequence[Any]) -> Dimension:
    """Return a dimension of a study's SPACE: a factor, or values. ValueError: it is neither."""
    if isinstance(values, int | float) and values > 1:
        return Dimension(path, factor=values)
    if isinstance(values, tuple | list) and values:
        return Dimension(path, values=tuple(values))
    raise ValueError(f"SPACE: {path} is {values!r}: give values to choose from, or a factor above 1")


def _drawn(draw: random.Random, row: Experiment, one: Dimension) -> str:
    """Return a value of a dimension as an override. It is empty if the row lacks the field or uses none of it."""
    own = _field(row, one.path)
    if own is _NONE:
        return ""
    if one.path == "train.warmup" and row.train.schedule in WITHOUT_WARMUP:
        return ""
    if one.values:
        return f"{one.path}={as_text(draw.choice(one.values))}"
    if not own:
        return ""
    value = own * math.exp(draw.uniform(-1, 1) * math.log(one.factor))
    return f"{one.path}={max(1, round(value)) if isinstance(own, int) else float(f'{value:.3g}')}"


_NONE = object()


def _field(row: Experiment, path: str) -> Any:
    """Return the value of a field of a row, or _NONE."""
    try:
        return reduce(getattr, path.split("."), row)
    except AttributeError:
        return _NONE


def _dev_loss(store: Store, pipeline: Pipeline, share: float) -> tuple[float, int]:
    """Return the lowest dev loss of a training within a share of its updates, and the updates of its last evaluation there.

    It is infinity after divergence. A run that finds more of the training done sees the same.
    """
    rows, _ = history_so_far(store, pipeline.trained)
    reached = [row for row in rows if row["step"] <= stop_at(pipeline.experiment, share)]
    losses = [row["dev_loss"] for row in reached if math.isfinite(row["dev_loss"])]
    if Progress(history=reached).diverged:
        return math.inf, 0
    return (min(losses), int(reached[-1]["step"])) if losses else (math.inf, 0)


def history_so_far(store: Store, step: Step) -> tuple[list[dict[str, float]], float]:
    """Return the metrics of a training (a row for each evaluation) and its updates.

    Updates are infinity if it has ended or diverged.
    """
    if made := store.find(step, verify=False):
        return history(made), math.inf
    folder = store.workspace(step.key) / "checkpoints"
    if store.shared is not None:
        SharedCheckpoints(store.shared, step.key, folder).fetch()
    if (found := newest(folder, step.key)) is None:
        return [], 0
    progress = Progress(**found[1]["progress"])
    return progress.history, math.inf if progress.diverged else progress.step


def trials_of(table: Table, searches: Sequence[Search]) -> Plan:
    """Return the plan of all trials."""
    trials = tuple(trial.pipeline.experiment for search in searches for trial in search.trials)
    return Plan(replace(table, experiments=trials, seeds=(SEED,), how=", ".join((*table.changed, "tuning"))))


def unfinished_trials(store: Store, searches: Sequence[Search], share: float) -> list[Trial]:
    """Return the living trials with less than `share` of their updates."""
    return [trial for search in searches for trial in search.alive if not trial.reached(store, share)]


def tuned(table: Table, searches: Sequence[Search]) -> Table:
    """Return the table with the best settings of each row, and all trials."""
    rows = tuple(replace(search.best.pipeline.experiment, answers=search.row.answers) for search in searches)
    budget = len(searches[0].trials)
    how = ", ".join((*table.changed, f"tuned by {budget} trial{'s' * (budget > 1)} a row"))
    return replace(table, experiments=rows, how=how, trials=trial_records(searches))


def finished_searches(table: Table, budget: int, store: Store) -> list[Search]:
    """Return the search of each row of a table from the trials in the store. ValueError: it lacks some."""
    searches = [Search.of(row, budget) for row in table.experiments]
    for share in SHARES:
        if missing := unfinished_trials(store, searches, share):
            raise ValueError(
                f"{missing[0].pipeline.experiment.name}: this trial is not in the store: run `phrasemodels reproduce --tune {budget}` "
                "first"
            )
        for search in searches:
            search.measure(store)
    return searches


def trial_records(searches: Sequence[Search]) -> tuple[dict[str, Any], ...]:
    """Return all trials of each row, and the expected lowest dev loss of each number of random settings.

    It is taken after the first share of the updates: only the better trials have later losses.
    """
    return tuple(
        {
            "row": search.row.row,
            "expected best dev loss": _expected(search),
            "trials": [trial.record for trial in search.trials],
        }
        for search in searches
    )


def _expected(search: Search) -> dict[str, Any]:
    """Return mean, low and high of the expected best dev loss and its updates.

    It is nothing without random trials with a loss.
    """
    losses = [trial.losses[0] for trial in search.trials[1:]]
    if not any(map(math.isfinite, losses)):
        return {}
    curve = {name: value.tolist() for name, value in vars(expected_best(losses)).items()}
    return {"updates": min(stop_at(search.row, SHARES[0]), search.row.train.steps), **curve}
