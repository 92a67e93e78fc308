"""Experiments (rows of result tables with printed numbers) and the parts of tables.

The parts are rows, sizes and profiles. An experiment is trained or counted. A counted one has sizes of a corpus or of
an untrained model.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from phrasemodels import project
from phrasemodels.data.store.store import HasKey, Step
from phrasemodels.flows.experiments.comparability import Aspect, caveat, compare_settings, reason
from phrasemodels.flows.experiments.published import CHANGE, PRINTED, printed_value, published_results
from phrasemodels.tasks.prepare.corpora import leaks
from phrasemodels.tasks.problems.recipe import Recipe, steps_of
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.verdicts.rule import PrintedValue
from phrasemodels.verdicts.significance import Statistic

if TYPE_CHECKING:
    from phrasemodels.tasks.problems.counting import CountingRecipe


@dataclass(frozen=True)
class Cell:
    """A printed number by its identifying columns of data/published_results.csv.

    An empty field matches any value.
    """

    paper: str
    table: str
    system: str
    variant: str
    metric: str
    dataset: str = ""
    split: str = ""

    @cached_property
    def wanted(self) -> dict[str, str]:
        """The columns to match."""
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

    @property
    def unread(self) -> str:
        """Why no value that varies can be compared with it: its scale is unknown. Empty if it is known."""
        if self.how.scale or self.how.margin is not None:
            return ""
        return f"the scale of {self._row['metric']!r} is unknown: give {PRINTED} a column scale (percent, share, positive or count)"

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
    """A metric of ours and the printed number it answers if there is one.

    statistic: with it the row is tested against its baseline. why_not: why nobody can reproduce the printed number and
    the nature of ours. exact: the value does not vary by seed, like a count of parameters. note: a remark beside the
    verdict on an exact value. reading: the printed number of another row if this row is a second reading of it. The
    verdict is of the row with the `cell`. This row is listed beside it.
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
    """A result table: its paper, its name for `--table` and its folder in names of experiments."""

    paper: str
    number: str
    folder: str


@dataclass(frozen=True)
class Experiment:
    """A row of a result table at one size (profile).

    answers: the first one is the row's main number. baseline: the row to test this row against. Empty: the first of the
    table. changed: overrides that change scores. With any of them no verdict is given. origin: the system's paper if
    the table is of none.
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
        """PAPER/TABLE/PROFILE/ROW of the defined row.

        Each override that changes scores follows after a `+`. All products of an experiment have this name: steps,
        runs, reports and folders.
        """
        return CHANGE.join((self.sibling(self.like or self.row), *self.changed))

    def sibling(self, row: str) -> str:
        """Return the name of a row of the same table and profile, as it is defined."""
        return "/".join((self.table.paper, self.table.folder, self.profile, row))

    @property
    def paper(self) -> str:
        """The paper of the system."""
        return self.origin or self.table.paper

    @cached_property
    def aspects(self) -> dict[str, Aspect]:
        """Data, size, model, training and tuning beside the published ones. Empty if nothing is trained."""
        if not self.recipe.trains:
            return {}
        return compare_settings(self.table.paper, self.table.folder, self.row, self)

    @property
    def comparable(self) -> bool:
        """Whether a verdict may be given: nothing is trained, or every aspect is as published."""
        return not self.differences

    @cached_property
    def differences(self) -> str:
        """The settings unlike the published ones in one line. Empty if the experiment is comparable."""
        return reason(self.aspects, self.name)

    @cached_property
    def caveat(self) -> str:
        """Our choices where the paper leaves settings open, in one line."""
        return caveat(self.aspects, self.name)

    def reason_not(self, answer: Answer) -> str:
        """Return why the printed number cannot be compared with ours. It is empty if it can."""
        reasons = [answer.why_not, self.differences] if answer.cell else []
        if answer.cell and not answer.exact:
            reasons.append(answer.cell.unread)
        reads_trees = getattr(getattr(self.recipe, "structure", None), "trees", None) != "none"
        if reads_trees and (named := getattr(getattr(self.recipe, "parsed", None), "card_name", "")):
            reasons.append(f"trees by the {named}")
        changed = ["changed: " + ", ".join(self.changed)] if self.changed else []
        return "; ".join(filter(None, reasons + changed))

    def steps(
        self, seed: int, data: Mapping[str, HasKey] | None = None, about: Mapping[str, Any] | None = None
    ) -> "Pipeline":
        """Return the steps of one seed.

        Args:
            data: The inputs of the steps by name if they are made already.
            about: More for the manifests.
        """
        own = {
            "paper": self.paper,
            "table": self.table.number,
            "profile": self.profile,
            "row": self.row,
            **(about or {}),
        }
        return Pipeline(self, seed, steps_of(self.name, self.recipe, self.model, self.train, seed, own, data))

    @property
    def lean(self) -> "Experiment":
        """The experiment without parts that need other libraries than a training does."""
        return replace(self, recipe=self.recipe.without_optional_libraries())

    def data_names(self, seed: int) -> set[str]:
        """Return the names of the data that the steps of a training read."""
        stages = self.recipe.measured_stages(self.model, self.train, seed)
        return {name for stage in stages.values() for name in stage.inputs.values()} - stages.keys()

    @property
    def leak(self) -> Step | None:
        """The step that counts test records found verbatim in the training set. None: nothing is trained."""
        if not self.recipe.trains:
            return None
        corpus = self.recipe.corpus
        return Step(leaks, f"leaks {corpus.name}", None, {name: corpus.split(name) for name in ("train", "test")})


@dataclass(frozen=True)
class Pipeline:
    """The steps of one experiment with one seed, by stage. Without a training the only stage is `scores`."""

    experiment: Experiment
    seed: int
    stages: Mapping[str, Step]

    @property
    def trains(self) -> bool:
        """Whether a model is trained and makes predictions."""
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
    """Widths and depths of all rows of a table. So rows differ in the compared part alone. 0: not used.

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
        """The fields of a Transformer encoder's configuration."""
        return {name: getattr(self, name) for name in ("d", "heads", "layers", "d_ff", "dropout")}


@dataclass(frozen=True)
class Profile:
    """How a table is run at one size. recipe: the problem on its corpus. A row may replace its fields."""

    size: Size
    train: TrainConfig
    recipe: Any


@dataclass(frozen=True)
class Row:
    """A system of a table.

    system, variant: its name in the paper. model: its configuration at a size. recipe, train: replacements of fields in
    the profile's recipe and training, like {"schedule": inverse_sqrt}. baseline: the row to test it against. Empty: the
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
    """Return a row of a table without training."""
    return Experiment(table, PROFILE, row, *named, answers, recipe, model)


def exact(ours: str, cell: Cell | None, why_not: str = "", note: str = "", reading: Cell | None = None) -> Answer:
    """Return the answer to a number that is the same for every seed."""
    return Answer(ours, cell, why_not=why_not, exact=True, note=note, reading=reading)
