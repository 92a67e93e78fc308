"""An experiment: a corpus, a problem, a model, a training, and the published number that it answers."""

import csv
import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, get_args, get_origin

from data.manifest import closest
from data.store import Step
from phrasemodels.models.search import BeamSearch
from phrasemodels.models.translation import TranslationConfig
from tasks.corpora import BitextCorpus, SampleCorpus
from tasks.metrics import Detokenise, ScoreSettings, score_translations
from tasks.phrases import Phrases, phrases
from tasks.tokenise import Tokenise, Tokeniser, detokenise_moses, moses_lower, tokenise
from tasks.train import TrainConfig, TrainSettings, train
from tasks.translation import TranslateSettings, Translation, translate
from tasks.vocabulary import VocabularySettings, vocabulary


@dataclass(frozen=True)
class Cell:
    """A number that a paper printed; it identifies one row of data/published_results.csv."""

    paper: str
    table: str
    system: str
    variant: str
    metric: str

    @cached_property
    def published(self) -> float:
        """The value in the paper; a KeyError if there is no such row, or more than one."""
        (row,) = (row for row in published_results() if all(row[k] == v for k, v in dataclasses.asdict(self).items()))
        return float(row["value"])


@cache
def published_results() -> list[dict[str, str]]:
    """All numbers that the five papers printed, as strings."""
    with (files("data") / "published_results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Text:
    """From text to tokens, ids and back. max_tokens drops longer sentences from training alone (0: none)."""

    tokeniser: Tokeniser = moses_lower
    detokenise: Detokenise = detokenise_moses
    source_language: str = "en"
    target_language: str = "de"
    min_count: int = 1
    max_tokens: int = 0


@dataclass(frozen=True)
class Experiment:
    """One row of a result table, at one size. `steps` is all of its pipeline; `comparable` says whether corpus and
    size are the paper's own, so that a verdict may be given at all."""

    name: str
    answers: Cell
    profile: str
    comparable: bool
    corpus: BitextCorpus | SampleCorpus
    model: TranslationConfig
    phrases: Phrases
    train: TrainConfig = field(default_factory=TrainConfig)
    text: Text = field(default_factory=Text)
    search: BeamSearch = field(default_factory=BeamSearch)
    ray_train: bool = True

    def steps(self, seed: int) -> "Pipeline":
        """The steps of one seed."""
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        name = f"{self.corpus.name}"
        division = Tokenise(self.text.tokeniser, self.text.source_language, self.text.target_language)
        tokens = {split: Step(tokenise, f"tokenise {name} {split}", division, {"rows": raw[split]}) for split in raw}
        words = Step(
            vocabulary, f"vocabulary {name}", VocabularySettings(self.text.min_count), {"rows": tokens["train"]}
        )
        limits = {"train": self.text.max_tokens, "dev": 0, "test": 0}
        numbers = {
            split: Step(
                phrases,
                f"phrases {name} {split} ({self.phrases.enumerate.__name__} {self.phrases.longest})",
                dataclasses.replace(self.phrases, max_tokens=limits[split]),
                {"rows": tokens[split], "vocabulary": words},
            )
            for split in raw
        }
        label = f"{self.name} seed {seed}"
        problem = Translation()
        trained = Step(
            train,
            f"train {label}",
            TrainSettings(problem, self.model, self.train, seed),
            {"train": numbers["train"], "dev": numbers["dev"], "vocabulary": words},
        )
        predicted = Step(
            translate,
            f"translate {label}",
            TranslateSettings(problem, self.model, self.search),
            {"model": trained, "phrases": numbers["test"], "rows": tokens["test"], "vocabulary": words},
        )
        scored = Step(
            score_translations,
            f"score {label}",
            ScoreSettings(self.text.detokenise, self.text.target_language),
            {"predictions": predicted, "rows": raw["test"]},
        )
        return Pipeline(self, seed, trained, predicted, scored)


@dataclass(frozen=True)
class Pipeline:
    """The steps of one experiment and seed that others ask for by name."""

    experiment: Experiment
    seed: int
    trained: Step
    predicted: Step
    scored: Step


def closure_of(steps: Sequence[Step]) -> list[Step]:
    """The steps and all that they rest on, each once, inputs before what is made from them."""
    ordered: dict[str, Step] = {}

    def visit(step: Step) -> None:
        if step.key not in ordered:
            for value in step.inputs.values():
                if isinstance(value, Step):
                    visit(value)
            ordered[step.key] = step

    for step in steps:
        visit(step)
    return list(ordered.values())


def override(value: Any, assignment: str) -> Any:
    """A copy of nested dataclasses with one field replaced: `train.steps=200`.

    A ValueError names an unknown field, with the nearest known one, or a value of the wrong type.
    """
    path, separator, text = assignment.partition("=")
    if not separator:
        raise ValueError(f"{assignment!r}: an override reads field.field=value, like train.steps=200")
    return _replace(value, path.split("."), text, path)


def _replace(value: Any, path: list[str], text: str, whole: str) -> Any:
    head, *rest = path
    known = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    if head not in known:
        raise ValueError(
            f"{whole!r}: no field {head!r}; {closest(head, known) if known else 'there are none below it'}"
        )
    current = getattr(value, head)
    new = _replace(current, rest, text, whole) if rest else _parse(text, type(value), head, whole)
    return dataclasses.replace(value, **{head: new})


def _parse(text: str, owner: type, name: str, whole: str) -> Any:
    """A value of a field's type: numbers, words, and tuples of them."""
    kind = typing.get_type_hints(owner)[name]
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind in (int, float, str):
            return kind(text)
        if get_origin(kind) is tuple:
            return tuple(get_args(kind)[0](part) for part in text.split(","))
    except (ValueError, KeyError):
        pass
    raise ValueError(
        f"{whole}={text}: the field takes {getattr(kind, '__name__', kind)}, and parts cannot be given as text"
    )
