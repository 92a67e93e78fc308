"""Needs of a printed number: trainings with core hours or data with licence and place.

A need may also say that nobody can judge the number.
"""

import csv
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from phrasemodels.data.download.manifest import find_corpus
from phrasemodels.encoders.inputs import PretrainedConfig
from phrasemodels.flows.experiments.comparability import NOT, kind_of
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.problems.sentence_data import VectorFile

UNDEFINED = "the paper does not say what is counted"  # in the note of a count
NOBODY = "nobody can judge it"
HUB = {"xlnet-large-cased": "MIT", "bert-large-uncased": "Apache-2.0"}  # licences of pretrained encoders
GLOVE = "Public Domain Dedication and License 1.0, nlp.stanford.edu/projects/glove"


def needs(experiments: Iterable[Experiment], reason: str) -> str:
    """Return the needs of a number by trainings at the paper's size.

    Without trainings the reason for the missing judgement gives the needs. experiments: their trainings would answer it
    together. There are none if no training would.
    """
    found = next((row for row in _data("needs") if row["words"] in reason), {"needs": "", "beside": "training"})
    if found["beside"] == "corpus":
        return f"{_corpus(found['needs'])}; seconds of a core"
    said = found["needs"]
    return said if found["beside"] == "alone" else ", and ".join(filter(None, (said, trainings(experiments))))


def further(line: Mapping[str, Any], trained: Iterable[str]) -> str:
    """Return what decides an inconclusive number: further seeds with their core hours, or none.

    trained: names of the experiments behind it, several for an average.
    """
    if UNDEFINED in line["reason"]:
        return f"{NOBODY}: the paper does not say what it counts"
    if (seeds := line["further_seeds"]) is None:
        return "no number of seeds decides it"
    hours = [training_hours().get(name) for name in trained]
    cost = f", {_time(seeds * sum(filter(None, hours)))}" if all(hours) else ""
    return f"{seeds} further seed{'s' * (seeds > 1)}{cost}"


def trainings(experiments: Iterable[Experiment]) -> str:
    """Return the needs of trainings at the paper's size. They are empty without trainings.

    Needs are core hours, files put in by hand and pretrained encoders. Differences of the rows from the paper's are
    needs, too.
    """
    every = list({one.name: one for one in experiments}.values())
    if not every:
        return ""
    said = ["a training at the paper's size" if len(every) == 1 else f"{len(every)} trainings at the paper's size"]
    known = [training_hours()[one.name] for one in every if one.name in training_hours()]
    if len(known) == len(every):
        stops = any(one.train.patience for one in every)
        said[0] += f" ({'at least' if stops else 'about'} {_time(sum(known))} a seed)"
    parts = [part for one in every for part in _parts((one.recipe, one.model))]
    said += sorted(
        {_corpus(part.name) for part in parts if isinstance(part, Corpus) and _by_hand(part.name, part.part)}
    )
    said += sorted({f"{part.name} ({GLOVE}), put in by hand" for part in parts if isinstance(part, VectorFile)})
    encoders = sorted({part.family for part in parts if isinstance(part, PretrainedConfig)})
    said += [f"{name} ({HUB[name]}, huggingface.co) from a model hub" for name in encoders]
    for one in every:
        if unlike := kind_of(one.differences).removeprefix(NOT):
            said.append(f"a row of ours with the paper's {unlike} (phrasemodels compare-settings {one.name})")
    return ", and ".join(said)


@cache
def _data(name: str) -> list[dict[str, str]]:
    """Return the lines of a table of the package. needs: what a number takes by words of its reason."""
    with (files("phrasemodels.data") / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def training_hours() -> Mapping[str, float]:
    """Return the core hours of one training of each experiment at the paper's size, measured by benchmarks/paper_hours.py.

    Trainings that stop by themselves have the fewest possible hours.
    """
    return {line["experiment"]: float(line["hours"]) for line in _data("training_hours")}


def _time(hours: float) -> str:
    """Return a time in two digits."""
    if hours < 1:
        return f"{max(1, round(60 * hours))} minutes of a core"
    return f"{round(hours, 1 - math.floor(math.log10(hours))):,.4g} core hours".replace(".0 ", " ")


def _corpus(name: str) -> str:
    manifest = find_corpus(name)
    terms = manifest.licence_text.replace("Not passed on.", "").strip().rstrip(".")
    return f"{manifest.title} ({terms}; {manifest.homepage}), put in by hand"


def _parts(value: Any) -> Iterator[Any]:
    """Yield the configurations inside of a value, and itself."""
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    elif dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name))


@cache
def _by_hand(corpus: str, part: str) -> bool:
    """Return whether a part of a corpus has files to put in by hand."""
    manifest = find_corpus(corpus)
    splits = [split for name, split in manifest.splits.items() if name.startswith(part)]
    return not {file for split in splits for file in split.files.values()} <= {file.name for file in manifest.files}
