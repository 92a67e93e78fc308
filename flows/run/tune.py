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

from phrasemodels.data.store.step import Step, with_dependencies
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import MOST_SEEDS, Table
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.run.execute import stop_at
from phrasemodels.flows.run.nodes import SharedCheckpoints
from phrasemodels.flows.run.plan import Plan
from phrasemodels.tasks.train.checkpoints import newest
from phrasemodels.tasks.train.loop import history
from phrasemodels.verdicts.tuning import expected_best

if TYPE_CHECKING:
    import optuna

SEED = MOST_SEEDS  # no row that is reported has it
SHARES = (0.25, 0.5, 1.0)  # of the updates, after which trials that are behind are pruned


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
    drawn: "optuna.Trial"
    losses: list[float] = field(default_factory=list)
    updates: int = 0
    pruned: bool = False

    @property
    def changed(self) -> tuple[str, ...]:
        """What it changes in the row as it is defined."""
        return self.pipeline.experiment.changed


@dataclass
class Search:
    """The trials of one row. The first has the row's own settings."""

    row: Experiment
    study: "optuna.Study"
    trials: list[Trial]

    @classmethod
    def of(cls, row: Experiment, budget: int) -> "Search":
        """Draw a budget of trials; those of a row are the same whenever they are drawn."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = zlib.crc32(row.name.encode())
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed), pruner=pruner)
        trials = []
        for number in range(budget):
            drawn = study.ask()
            changed = [text for one in SPACE if (text := _drawn(drawn, row, one))] if number else []
            trials.append(Trial(replace(overridden(row, *changed), answers=()).steps(SEED), drawn))
        return cls(row, study, trials)

    @property
    def best(self) -> Trial:
        """The trial with the lowest dev loss, of those that were trained to the end. ValueError: all diverged."""
        ended = [trial for trial in self.trials if not trial.pruned and math.isfinite(trial.losses[-1])]
        if not ended:
            raise ValueError(f"{self.row.name}: each of {len(self.trials)} trials diverged; lower train.learning_rate")
        return min(ended, key=lambda trial: trial.losses[-1])

    def measure(self, store: Store) -> None:
        """Read how far each trial has come, and prune those that are behind."""
        for trial in self.trials:
            if trial.pruned:
                continue
            loss, trial.updates = _dev_loss(store, trial.pipeline, SHARES[len(trial.losses)])
            trial.losses.append(loss)
            trial.drawn.report(loss if math.isfinite(loss) else 1e300, len(trial.losses))
            last = len(trial.losses) == len(SHARES)
            trial.pruned = not math.isfinite(loss) or (not last and trial.drawn.should_prune())


def _drawn(drawn: "optuna.Trial", row: Experiment, one: Dimension) -> str:
    """Return a value of a dimension as an override; empty if the row has no such field, or uses none of it."""
    try:
        own: Any = reduce(getattr, one.path.split("."), row)
    except AttributeError:
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
    reached = [row for row in _history(store, pipeline.trained) if row["step"] <= stop_at(pipeline.experiment, share)]
    losses = [row["dev_loss"] for row in reached if math.isfinite(row["dev_loss"])]
    return (min(losses), int(reached[-1]["step"])) if losses else (math.inf, 0)


def _history(store: Store, step: Step) -> list[dict[str, float]]:
    """Return the metrics of a training, finished or not, a row for each evaluation."""
    if made := store.find(step, verify=False):
        return history(made)
    folder = store.workspace(step.key) / "checkpoints"
    if store.shared is not None:
        SharedCheckpoints(store.shared, step.key, folder).pull()
    found = newest(folder, step.key)
    return found[1]["progress"]["history"] if found else []


def trials_of(table: Table, searches: Sequence[Search]) -> Plan:
    """Return the plan of all trials that are not pruned."""
    alive = [trial.pipeline.experiment for search in searches for trial in search.trials if not trial.pruned]
    return Plan(replace(table, experiments=tuple(alive), seeds=(SEED,), how="tuning"))


def steps_of(plan: Plan) -> list[Step]:
    """Return the steps of the trainings of a plan, inputs first, without tests."""
    return with_dependencies([pipeline.trained for pipeline in plan.pipelines])


def tuned(table: Table, searches: Sequence[Search]) -> Table:
    """Return the table with the best settings of each row, and all trials."""
    rows = tuple(replace(search.best.pipeline.experiment, answers=search.row.answers) for search in searches)
    budget = len(searches[0].trials)
    return replace(table, experiments=rows, how=f"tuned by {budget} trials a row", trials=trial_records(searches))


def finished_searches(table: Table, budget: int, store: Store) -> list[Search]:
    """Return the search of each row of a table from the trials in the store. ValueError: it lacks some."""
    searches = [Search.of(row, budget) for row in table.experiments]
    for _ in SHARES:
        for search in searches:
            search.measure(store)
    for trial in (trial for search in searches for trial in search.trials):
        ended = trial.pruned or store.find(trial.pipeline.trained, verify=False)
        if not (ended and _history(store, trial.pipeline.trained)):
            name = trial.pipeline.experiment.name
            raise ValueError(
                f"{name}: this trial is not in the store: run `phrasemodels reproduce --tune {budget}` first"
            )
    return searches


def trial_records(searches: Sequence[Search]) -> tuple[dict[str, Any], ...]:
    """Return all trials of each row, and the lowest dev loss that a search of each budget is expected to find.

    A pruned trial counts with the lowest loss that it had.
    """
    return tuple(
        {
            "row": search.row.row,
            "expected best dev loss": {
                name: value.tolist()
                for name, value in vars(expected_best([trial.losses[-1] for trial in search.trials])).items()
            },
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
