"""Experiments, the rows of result tables, with the printed numbers that they answer; and the rows, sizes and profiles that
tables are built from.

An experiment is trained, or counted: its numbers are then sizes of a corpus, or of a model that is only built.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from phrasemodels import project
from phrasemodels.data.store.store import Step
from phrasemodels.flows.experiments.comparability import Aspect, caveat, compare_settings, reason
from phrasemodels.flows.experiments.names import CHANGE
from phrasemodels.flows.experiments.published import PRINTED, printed_value, published_results
from phrasemodels.tasks.prepare.corpora import leaks
from phrasemodels.tasks.problems.recipe import Recipe, steps_of
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.verdicts.rule import PrintedValue
from phrasemodels.verdicts.significance import Statistic

if TYPE_CHECKING:
    from phrasemodels.tasks.problems.counting import CountingRecipe


@dataclass(frozen=True)
class Cell:
    """A printed number, by the columns of data/published_results.csv that identify it; an empty field matches any value."""

    paper: str
    table: str
    system: str
    variant: str
    metric: str
    dataset: str = ""
    split: str = ""

    @cached_property
    def wanted(self) -> dict[str, str]:
        """The columns that have to match."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value}

    @property
    def published(self) -> float:
        """The printed value as a number."""
        return float(self.printed)

    @property
    def printed(self) -> str:
        """The value as it is printed: its digits are its precision. ValueError: no row of the file matches, or several do."""
        return self._row["value"]

    @property
    def how(self) -> PrintedValue:
        """How the value was made, as far as the paper says."""
        return printed_value(self._row)

    @cached_property
    def _matching(self) -> list[dict[str, str]]:
        return [row for row in published_results() if all(row[n] == value for n, value in self.wanted.items())]

    @property
    def is_printed(self) -> bool:
        """Whether a row of the file matches."""
        return bool(self._matching)

    @cached_property
    def _row(self) -> dict[str, str]:
        if len(matching := self._matching) != 1:
            paper = self.wanted.get("paper", "")
            file = project.beside(paper, PRINTED) if paper in project.parts("papers") else "data/published_results.csv"
            raise ValueError(f"{len(matching)} rows of {file or PRINTED} match {self.wanted}: one must")
        return matching[0]


@dataclass(frozen=True)
class Answer:
    """A metric of ours and the printed number that it answers, if there is one.

    statistic: with it, the row is tested against its baseline. why_not: why nobody can reproduce the printed number, and
    what ours is instead. exact: the value does not vary by seed, like a count of parameters; note: what is said beside the
    verdict on such a value. reading: the printed number that this row is another reading of than the row with the `cell`; the
    verdict on it is of that row, and this one is listed beside it.
    """

    metric: str
    cell: Cell | None = None
    statistic: Statistic | None = None
    why_not: str = ""
    exact: bool = False
    note: str = ""
    reading: Cell | None = None
    named: str = ""
    """Name of the reading, such as `10 epochs`."""


@dataclass(frozen=True)
class TableName:
    """A result table: its paper, its name for `--table`, and the folder name that stands in experiment names."""

    paper: str
    number: str
    folder: str


@dataclass(frozen=True)
class Experiment:
    """A row of a result table at one size (profile).

    answers: the first one is the number that the row is known by. baseline: the row that this row is tested against; empty:
    the first of the table. changed: overrides that change scores; with any of them no verdict is given. origin: the paper
    that the system is from, where the table is of no paper.
    """

    table: TableName
    profile: str
    row: str
    system: str
    variant: str
    answers: tuple[Answer, ...]
    recipe: Recipe
    model: Any
    train: TrainConfig = field(default_factory=TrainConfig)
    baseline: str = ""
    changed: tuple[str, ...] = ()
    origin: str = ""
    like: str = ""
    """The row that it differs from by its overrides, if it stands beside that row in its table."""

    @property
    def name(self) -> str:
        """PAPER/TABLE/PROFILE/ROW of the row as it is defined; each override that changes scores follows after a `+`.

        All that is made of an experiment has this name: its steps, runs, reports, registered models and folders.
        """
        return CHANGE.join((self.sibling(self.like or self.row), *self.changed))

    def sibling(self, row: str) -> str:
        """Return the name of a row of the same table and profile, as it is defined."""
        return "/".join((self.table.paper, self.table.folder, self.profile, row))

    @property
    def paper(self) -> str:
        """The paper that the system is from."""
        return self.origin or self.table.paper

    @cached_property
    def aspects(self) -> dict[str, Aspect]:
        """Data, size, model, training and tuning beside what is published; empty if nothing is trained."""
        if not self.recipe.trains:
            return {}
        return compare_settings(self.table.paper, self.table.folder, self.row, self)

    @property
    def comparable(self) -> bool:
        """Whether a verdict may be given: nothing is trained, or every aspect is as published."""
        return not self.differences

    @cached_property
    def differences(self) -> str:
        """The settings that differ from the published ones, in one line; empty if the experiment is comparable."""
        return reason(self.aspects, self.name)

    @cached_property
    def caveat(self) -> str:
        """The settings that the paper leaves open and were chosen here, in one line."""
        return caveat(self.aspects, self.name)

    def reason_not(self, answer: Answer) -> str:
        """Return why the printed number cannot be compared with ours; empty if it can."""
        reasons = [answer.why_not, self.differences] if answer.cell else []
        if named := getattr(getattr(self.recipe, "parsed", None), "card_name", ""):
            reasons.append(f"trees by the {named}")
        changed = ["changed: " + ", ".join(self.changed)] if self.changed else []
        return "; ".join(filter(None, reasons + changed))

    def steps(self, seed: int) -> "Pipeline":
        """Return the steps of one seed."""
        about = {
            "paper": self.paper,
            "table": self.table.number,
            "profile": self.profile,
            "row": self.row,
        }
        return Pipeline(self, seed, steps_of(self.name, self.recipe, self.model, self.train, seed, about))

    @property
    def leak(self) -> Step | None:
        """The step that counts test records that stand verbatim in the training set; None: nothing is trained."""
        if not self.recipe.trains:
            return None
        corpus = self.recipe.corpus
        return Step(leaks, f"leaks {corpus.name}", None, {name: corpus.split(name) for name in ("train", "test")})


@dataclass(frozen=True)
class Pipeline:
    """The steps of one experiment with one seed, by stage. One that trains nothing has only the stage `scores`."""

    experiment: Experiment
    seed: int
    stages: Mapping[str, Step]

    @property
    def trains(self) -> bool:
        """Whether a model is trained, which makes predictions."""
        return self.experiment.recipe.trains

    @property
    def trained(self) -> Step:
        return self.stages["model"]

    @property
    def predicted(self) -> Step:
        return self.stages["predictions"]

    @property
    def scored(self) -> Step:
        return self.stages["scores"]


@dataclass(frozen=True)
class Size:
    """Widths and depths that all rows of a table share, so that rows differ only in what is compared; 0: not used.

    d, heads, layers, d_ff, dropout: of an encoder. hidden: of the classifier over it, or of a parser's span scorer.
    d_kv, arc_hidden: of the parser of paper 004. lstm, adasent, channels: of baselines of paper 001. parents: of the
    scorer of parents of paper 003.
    """

    d: int
    heads: int = 0
    layers: int = 0
    d_ff: int = 0
    dropout: float = 0.0
    hidden: int = 0
    d_kv: int = 0
    arc_hidden: int = 0
    lstm: int = 0
    adasent: int = 0
    channels: int = 0
    parents: int = 0

    @property
    def encoder(self) -> dict[str, Any]:
        """The fields that the configuration of a Transformer encoder takes."""
        return {name: getattr(self, name) for name in ("d", "heads", "layers", "d_ff", "dropout")}


@dataclass(frozen=True)
class Profile:
    """How a table is run at one size. recipe: the problem on its corpus; a row may replace fields of it."""

    size: Size
    train: TrainConfig
    recipe: Any


@dataclass(frozen=True)
class Row:
    """A system of a table.

    system, variant: its name in the paper. model: its configuration at a size. recipe, train: fields that it replaces in the
    profile's recipe and training, such as {"schedule": inverse_sqrt}. baseline: the row it is tested against; empty: the
    first of the table.
    """

    slug: str
    system: str
    variant: str
    model: Callable[[Size], Any]
    recipe: Mapping[str, Any] = field(default_factory=dict)
    baseline: str = ""
    train: Mapping[str, Any] = field(default_factory=dict)


def experiments(
    table: TableName, profile: str, chosen: Profile, rows: Iterable[Row], answers: Callable[[Row], tuple[Answer, ...]]
) -> list[Experiment]:
    """Return the experiments of the rows of a table at one size."""
    return [
        Experiment(
            table=table,
            profile=profile,
            row=row.slug,
            system=row.system,
            variant=row.variant,
            answers=answers(row),
            recipe=replace(chosen.recipe, **row.recipe),
            model=row.model(chosen.size),
            train=replace(chosen.train, **row.train),
            baseline=row.baseline,
        )
        for row in rows
    ]


PROFILE = "paper"  # the only size of what is counted
CORPUS = "dataset statistics"  # the system of a row about a corpus
Named = tuple[str, str]  # a row's system and variant


def counted(
    table: TableName,
    row: str,
    named: Named,
    recipe: "CountingRecipe",
    answers: tuple[Answer, ...],
    model: Any = None,
) -> Experiment:
    """Return a row of a table that is counted."""
    return Experiment(table, PROFILE, row, *named, answers, recipe, model)


def exact(ours: str, cell: Cell | None, why_not: str = "", note: str = "", reading: Cell | None = None) -> Answer:
    """Return the answer to a number that does not vary by seed."""
    return Answer(ours, cell, why_not=why_not, exact=True, note=note, reading=reading)
