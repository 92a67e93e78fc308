"""An experiment: a problem on a corpus, a model, a training, and the published numbers that it answers."""

import csv
import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, get_args, get_origin

from phrasemodels.data.download.manifest import closest
from phrasemodels.data.store.step import Step
from phrasemodels.tasks.metrics.significance import Statistic
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.problems.recipe import Recipe, steps_of
from phrasemodels.tasks.train.config import TrainConfig

SET = ("recipe", "model", "train")  # what of an experiment is overridden; the rest says which row it is
MAY_BE_0 = {"batch_rows", "patience", "workers", "seed", "merges", "max_tokens", "max_words", "linear_updates", "d_ff",
            "extra"}  # of what they count there may be none  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A number that a paper printed; it identifies one row of data/published_results.csv. What is empty is any."""

    paper: str
    table: str
    system: str
    variant: str
    metric: str
    dataset: str = ""
    split: str = ""

    @cached_property
    def wanted(self) -> dict[str, str]:
        """What a row has to say to be this one."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value}

    @cached_property
    def published(self) -> float:
        """The value in the paper; a ValueError if there is no such row, or more than one."""
        found = [row for row in published_results() if all(row[n] == value for n, value in self.wanted.items())]
        if len(found) != 1:
            raise ValueError(f"{len(found)} rows of data/published_results.csv are {self.wanted}: a cell names one")
        return float(found[0]["value"])


@cache
def published_results() -> list[dict[str, str]]:
    """All numbers that the five papers printed, as strings."""
    with (files("phrasemodels.data") / "published_results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Answer:
    """A metric of ours, and the published number that it answers, if there is one; with a statistic, rows are tested
    against the first of their table. why_not: why nobody can reproduce the number, and what ours is instead."""

    metric: str
    cell: Cell | None = None
    statistic: Statistic | None = None
    why_not: str = ""


@dataclass(frozen=True)
class Experiment:
    """One row of a result table, at one size. `comparable` says whether corpus and size are the paper's own, so that a
    verdict may be given at all; the first answer is the one that the row is known by. ray_train: the seeds whose
    trainings go through Ray Train (None: all); the others, unless they are given more than a processor, are plain Ray
    tasks, with the same loop. baseline: the row that it is tested against, by name; none: the first of the table.
    changed: overrides that a score sees; with any, no verdict is given either."""

    name: str
    paper: str
    system: str
    variant: str
    answers: tuple[Answer, ...]
    profile: str
    comparable: bool
    recipe: Recipe
    model: Any
    train: TrainConfig = field(default_factory=TrainConfig)
    ray_train: tuple[int, ...] | None = None
    baseline: str = ""
    changed: tuple[str, ...] = ()

    def reason_not(self, answer: Answer) -> str:
        """Why a published number cannot be compared with ours, or nothing."""
        smaller = "" if self.comparable else f"smaller than the paper's setting (profile {self.profile})"
        reasons = [answer.why_not or smaller] if answer.cell else []
        changed = ["changed: " + ", ".join(self.changed)] if self.changed else []
        return "; ".join(filter(None, reasons + changed))

    @property
    def row(self) -> str:
        """Its name within the table."""
        return self.name.rsplit("/", 1)[1]

    def steps(self, seed: int) -> "Pipeline":
        """The steps of one seed."""
        steps = steps_of(self.name, self.recipe, self.model, self.train, seed)
        stages = self.recipe.stages(self.model, self.train, seed)
        return Pipeline(self, seed, steps, frozenset(steps[name].key for name, stage in stages.items() if stage.spread))


@dataclass(frozen=True)
class Pipeline:
    """The stages of one experiment and seed; `spread` holds the keys of those that run where the flow runs."""

    experiment: Experiment
    seed: int
    stages: Mapping[str, Step]
    spread: frozenset[str] = frozenset()

    @property
    def trained(self) -> Step:
        return self.stages["model"]

    @property
    def predicted(self) -> Step:
        return self.stages["predictions"]

    @property
    def scored(self) -> Step:
        return self.stages["scores"]


def override(value: Any, assignment: str) -> Any:
    """A copy of nested dataclasses with one field replaced: `train.steps=200`.

    A ValueError names an unknown field, with the nearest known one, or a value of the wrong type or size.
    """
    path, separator, text = assignment.partition("=")
    if not separator:
        raise ValueError(f"{assignment!r}: an override reads field.field=value, like train.steps=200")
    if path.split(".")[0] not in SET:
        raise ValueError(f"{path!r}: only fields of {', '.join(SET)} are overridden, like train.steps=200")
    return _replace(value, path.split("."), text, path)


def _replace(value: Any, path: list[str], text: str, whole: str) -> Any:
    head, *rest = path
    known = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    if head not in known:
        raise ValueError(
            f"{whole!r}: no field {head!r}; {closest(head, known) if known else 'there are none below it'}"
        )
    if isinstance(value, SampleCorpus) and head == "name":
        raise ValueError(f"{whole}={text}: this profile generates its corpus; take profile laptop, which reads one")
    current = getattr(value, head)
    new = _replace(current, rest, text, whole) if rest else _parse(text, type(value), head, whole)
    if not rest:
        for number in new if isinstance(new, tuple) else (new,):
            _check(number, current, head, f"{whole}={text}")
    try:
        return dataclasses.replace(value, **{head: new})
    except ValueError as error:  # of the configuration itself; it begins with the name of its field
        raise ValueError(f"{whole.removesuffix('.'.join(path))}{error}") from error


def _check(new: Any, known: Any, name: str, said: str) -> None:
    """A ValueError for a number that is negative, or of which there is none, or 0 where a size is known."""
    if isinstance(new, int | float) and not isinstance(new, bool):
        least = int(isinstance(known, int) and known > 0 and name not in MAY_BE_0)
        if not new >= least:  # NaN is not
            raise ValueError(f"{said}: it is {least} or more")
        if new == math.inf and name != "clip":
            raise ValueError(f"{said}: it is finite")


def _parse(text: str, owner: type, name: str, whole: str) -> Any:
    """A value of a field's type: numbers, words, and tuples of them."""
    kind = typing.get_type_hints(owner)[name]
    try:
        if get_origin(kind) is not tuple:
            return _plain(text, kind)
        first, *others = get_args(kind)
        parts = tuple(_plain(part, first) for part in text.split(",") if part)
        if others == [...] or len(parts) == 1 + len(others):
            return parts
    except (ValueError, KeyError):
        pass
    raise ValueError(
        f"{whole}={text}: the field takes {getattr(kind, '__name__', kind)}, and parts cannot be given as text"
    )


def _plain(text: str, kind: Any) -> Any:
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind in (int, float, str):
        return kind(text)
    raise ValueError(f"{kind} is not written as text")
