"""Tuning: each row of a table gets the same number of trials, with settings drawn at random, and the best on dev is taken.

Trials are trainings like all others: steps of the store, which a second run finds, and runs of MLflow. Test sets are not
read. Trials train with a seed of their own, so that what is reported later was not chosen by its luck.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from phrasemodels.data.store.step import Step
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import MOST_SEEDS, Table
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.run.execute import stop_at
from phrasemodels.flows.run.nodes import SharedCheckpoints
from phrasemodels.flows.run.plan import Plan
from phrasemodels.tasks.train.checkpoints import newest
from phrasemodels.tasks.train.loop import history
from phrasemodels.tasks.train.optimisers import constant, halved_thrice
from phrasemodels.verdicts.tuning import expected_best

if TYPE_CHECKING:
    import optuna

SEED = MOST_SEEDS  # no row that is reported has it
SHARES = (0.25, 0.5, 1.0)  # of the updates, after which the worse half of the trials is pruned
WITHOUT_WARMUP = (constant, halved_thrice)  # schedules


@dataclass(frozen=True)
class Dimension:
    """A field that is searched: values, or numbers from a factor below to a factor above the row's own, log-uniform."""

    path: str
    factor: float = 0.0
    values: tuple[float, ...] = ()


# A row is searched in those of its fields that are here.
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
    """A setting of a row, and the lowest dev loss that its training has come to."""

    pipeline: Pipeline
    losses: list[float] = field(default_factory=list)
    updates: int = 0
    pruned: bool = False

    @property
    def changed(self) -> tuple[str, ...]:
        """What it changes in the row as it is defined."""
        return self.pipeline.experiment.changed

    def reached(self, store: Store, share: float) -> bool:
        """Return whether the training has come to a share of its updates, or has ended."""
        _, updates = _history(store, self.pipeline.trained)
        return updates >= min(stop_at(self.pipeline.experiment, share), self.pipeline.experiment.train.steps)


@dataclass
class Search:
    """The trials of one row. The first has the row's own settings."""

    row: Experiment
    trials: list[Trial]

    @classmethod
    def of(cls, row: Experiment, budget: int) -> "Search":
        """Draw a budget of trials; those of a row are the same whenever they are drawn. ValueError: the row trains nothing, or
        has no dev set to choose on."""
        import optuna

        if not row.recipe.trains:
            raise ValueError(f"{row.name}: it trains nothing that could be tuned; leave out --tune")
        if not getattr(row.recipe, "score_dev", True):
            raise ValueError(
                f"{row.name}: its dev set is a part of train, or test itself, so no setting can be chosen on it; leave it out "
                "by --row, or leave out --tune"
            )
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(zlib.crc32(row.name.encode())))
        trials = []
        for number in range(budget):
            drawn = study.ask()
            changed = [text for one in SPACE if (text := _drawn(drawn, row, one))] if number else []
            trials.append(Trial(replace(overridden(row, *changed), answers=()).steps(SEED)))
        return cls(row, trials)

    @property
    def alive(self) -> list[Trial]:
        """The trials that are not pruned. ValueError: all diverged."""
        if alive := [trial for trial in self.trials if not trial.pruned]:
            return alive
        raise ValueError(f"{self.row.name}: each of {len(self.trials)} trials diverged; lower train.learning_rate")

    @property
    def best(self) -> Trial:
        """The trial with the lowest dev loss, of those that were trained to the end."""
        return min(self.alive, key=lambda trial: trial.losses[-1])

    def measure(self, store: Store) -> None:
        """Read how far each trial has come; prune those that diverged and, but for the last time, those that are behind."""
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
    """Return which of some trials are in the worse half, as successive halving prunes them. The middle one and ties are not."""
    limit = sorted(losses)[math.ceil(len(losses) / 2) - 1]
    return [loss > limit for loss in losses]


def _drawn(drawn: "optuna.Trial", row: Experiment, one: Dimension) -> str:
    """Return a value of a dimension as an override; empty if the row has no such field, or uses none of it."""
    try:
        own: Any = reduce(getattr, one.path.split("."), row)
    except AttributeError:
        return ""
    if one.path == "train.warmup" and row.train.schedule in WITHOUT_WARMUP:
        return ""
    if one.values:
        return f"{one.path}={drawn.suggest_categorical(one.path, one.values)}"
    if not own:
        return ""
    value = drawn.suggest_float(one.path, own / one.factor, own * one.factor, log=True)
    return f"{one.path}={max(1, round(value)) if isinstance(own, int) else float(f'{value:.3g}')}"


def _dev_loss(store: Store, pipeline: Pipeline, share: float) -> tuple[float, int]:
    """Return the lowest dev loss that a training came to within a share of its updates, and the updates of its last
    evaluation there; infinity if it has diverged. A run that finds more of the training done sees the same."""
    rows, _ = _history(store, pipeline.trained)
    reached = [row for row in rows if row["step"] <= stop_at(pipeline.experiment, share)]
    losses = [row["dev_loss"] for row in reached if math.isfinite(row["dev_loss"])]
    return (min(losses), int(reached[-1]["step"])) if losses else (math.inf, 0)


def _history(store: Store, step: Step) -> tuple[list[dict[str, float]], float]:
    """Return the metrics of a training, a row for each evaluation, and its updates; infinity if it has ended."""
    if made := store.find(step, verify=False):
        return history(made), math.inf
    folder = store.workspace(step.key) / "checkpoints"
    if store.shared is not None:
        SharedCheckpoints(store.shared, step.key, folder).fetch()
    if (found := newest(folder, step.key)) is None:
        return [], 0
    return found[1]["progress"]["history"], found[1]["progress"]["step"]


def trials_of(table: Table, searches: Sequence[Search]) -> Plan:
    """Return the plan of all trials."""
    trials = tuple(trial.pipeline.experiment for search in searches for trial in search.trials)
    return Plan(replace(table, experiments=trials, seeds=(SEED,), how=", ".join((*table.changed, "tuning"))))


def behind(store: Store, searches: Sequence[Search], share: float) -> list[Trial]:
    """Return the trials that are not pruned and have not come to a share of their updates."""
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
        if missing := behind(store, searches, share):
            raise ValueError(
                f"{missing[0].pipeline.experiment.name}: this trial is not in the store: run `phrasemodels reproduce --tune {budget}` "
                "first"
            )
        for search in searches:
            search.measure(store)
    return searches


def trial_records(searches: Sequence[Search]) -> tuple[dict[str, Any], ...]:
    """Return all trials of each row, and the lowest dev loss that each number of settings drawn at random is expected to find
    after the first share of the updates: later ones are only known of the better trials."""
    return tuple(
        {
            "row": search.row.row,
            "expected best dev loss": _expected(search),
            "trials": [
                {
                    "changed": trial.changed,
                    "losses": [loss if math.isfinite(loss) else None for loss in trial.losses],
                    "updates": trial.updates,
                    "pruned": trial.pruned,
                    "training": trial.pipeline.trained.key,
                }
                for trial in search.trials
            ],
        }
        for search in searches
    )


def _expected(search: Search) -> dict[str, Any]:
    """Return mean, low and high of the expected best dev loss, and the updates after which it is; nothing without trials drawn
    at random that have a loss."""
    losses = [trial.losses[0] for trial in search.trials[1:]]
    if not any(map(math.isfinite, losses)):
        return {}
    curve = {name: value.tolist() for name, value in vars(expected_best(losses)).items()}
    return {"updates": min(stop_at(search.row, SHARES[0]), search.row.train.steps), **curve}
