"""Tuning with the same number of trials for each row of a table.

Trials draw their settings at random. The setting with the lowest dev loss is chosen. A trial is a training like all others: a
step of the store for a second run to find, and a run of MLflow. Test sets are not read. Trials have a seed of their own, so
no reported seed was chosen by its luck.
"""

import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import MOST_SEEDS, Table, experiments, space_of
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.experiments.overrides import as_text, overridden
from phrasemodels.flows.run.execute import SharedCheckpoints
from phrasemodels.flows.run.plan import Plan
from phrasemodels.tasks.train.checkpoints import Progress, newest
from phrasemodels.tasks.train.config import constant, halved_thrice
from phrasemodels.tasks.train.trainer import history

SEED = MOST_SEEDS  # no row that is reported has it
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
    """A setting of a row, and the lowest dev loss of its training: infinity if it diverged."""

    pipeline: Pipeline
    loss: float = math.inf

    @property
    def changed(self) -> tuple[str, ...]:
        """The overrides of the row as it is defined."""
        return self.pipeline.experiment.changed

    @property
    def record(self) -> dict[str, Any]:
        """The trial as it is kept beside the results of its table."""
        loss = self.loss if math.isfinite(self.loss) else None
        return {"changed": self.changed, "loss": loss, "training": self.pipeline.trained.key}


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
    def best(self) -> Trial:
        """The trial with the lowest dev loss. ValueError: all diverged."""
        best = min(self.trials, key=lambda trial: trial.loss)
        if not math.isfinite(best.loss):
            raise ValueError(f"{self.row.name}: each of {len(self.trials)} trials diverged; lower train.learning_rate")
        return best

    def measure(self, store: Store) -> None:
        """Read the dev loss of each trial. ValueError: one has not been run."""
        for trial in self.trials:
            if (loss := _dev_loss(store, trial.pipeline)) is None:
                raise ValueError(
                    f"{trial.pipeline.experiment.name}: this trial is not in the store: run `phrasemodels reproduce --tune "
                    f"{len(self.trials)}` first"
                )
            trial.loss = loss


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


def _dev_loss(store: Store, pipeline: Pipeline) -> float | None:
    """Return the lowest dev loss of a training: infinity if it diverged, None if it has not ended."""
    step = pipeline.trained
    if made := store.find(step, verify=False):
        return min(filter(math.isfinite, (row["dev_loss"] for row in history(made))), default=math.inf)
    folder = store.workspace(step.key) / "checkpoints"
    if store.shared is not None:
        SharedCheckpoints(store.shared, step.key, folder).fetch()
    found = newest(folder, step.key)
    return math.inf if found is not None and Progress(**found[1]["progress"]).diverged else None


def trials_of(table: Table, searches: Sequence[Search]) -> Plan:
    """Return the plan of all trials."""
    trials = tuple(trial.pipeline.experiment for search in searches for trial in search.trials)
    return Plan(replace(table, experiments=trials, seeds=(SEED,), how=", ".join((*table.changed, "tuning"))))


def tuned(table: Table, searches: Sequence[Search]) -> Table:
    """Return the table with the best settings of each row, and all trials."""
    rows = tuple(replace(search.best.pipeline.experiment, answers=search.row.answers) for search in searches)
    budget = len(searches[0].trials)
    trials = tuple({"row": one.row.row, "trials": [trial.record for trial in one.trials]} for one in searches)
    how = ", ".join((*table.changed, f"tuned by {budget} trial{'s' * (budget > 1)} a row"))
    return replace(table, experiments=rows, how=how, trials=trials)


def finished_searches(table: Table, budget: int, store: Store) -> list[Search]:
    """Return the search of each row of a table from the trials in the store. ValueError: it lacks some."""
    searches = [Search.of(row, budget) for row in table.experiments]
    for search in searches:
        search.measure(store)
    return searches
