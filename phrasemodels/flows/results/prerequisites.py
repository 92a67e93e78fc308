"""Prerequisites of judging a printed number that no result judges: trainings with their core hours, data with its licence and place,
programs, or that nobody can."""

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

NOBODY = "nobody can judge it"
UNDEFINED = "does not say what is counted"
STANFORD = (
    "trees by the Stanford parser 3.5.2 (GPL, nlp.stanford.edu/software/lex-parser.html, put in by hand; needs Java; "
    "about 4 core hours)"
)
BY_REASON = {  # what a number takes that no training alone would judge, by words of its reason
    "not ours to run": f"{NOBODY} here: it is of another work, whose own tables are the place to look",
    "true by construction": f"{NOBODY}: it was given to the model, or with the corpus",
    "its 34 relations": f"{NOBODY}: the paper names no number of relations",
    "activations that": f"{NOBODY}: the paper does not say what it counts as memory",
    "a speed of one P100": f"{NOBODY} elsewhere: it takes the authors' program on a P100 with 16 GB",
    "cannot be reproduced: the public test set": f"{NOBODY}: the logical forms of MSParS's test set are not public",
    "no table computes it: it is of": f"{NOBODY}: the logical forms of MSParS's training set are not public",
    "describes the Penn Treebank": "penn_treebank",
    "describes SNLI's official": "snli_official",
    "trees by Stanza": STANFORD,
    "trees of the transfer tasks": STANFORD,
}
HUB = {"xlnet-large-cased": "MIT", "bert-large-uncased": "Apache-2.0"}  # licences of pretrained encoders
GLOVE = "Public Domain Dedication and License 1.0, nlp.stanford.edu/projects/glove"


def needs(experiments: Iterable[Experiment], reason: str) -> str:
    """Return what it takes to judge a number by trainings at the paper's size, or else by the reason that it is not judged.

    experiments: whose trainings would answer it together; none if no training would.
    """
    other = next((what for words, what in BY_REASON.items() if words in reason), "")
    if other in ("penn_treebank", "snli_official"):
        return f"{_corpus(other)}; seconds of a core"
    return other if other not in ("", STANFORD) else ", and ".join(filter(None, (other, trainings(experiments))))


def further(line: Mapping[str, Any]) -> str:
    """Return what decides an inconclusive number: further seeds with their core hours, or that none do."""
    if UNDEFINED in line["reason"]:
        return f"{NOBODY}: the paper does not say what it counts"
    if (seeds := line["further_seeds"]) is None:
        return "no number of seeds decides it"
    hours = training_hours().get(line["experiment"])
    cost = f", {_time(seeds * hours)}" if hours else ""
    return f"{seeds} further seed{'s' * (seeds > 1)}{cost}"


def trainings(experiments: Iterable[Experiment]) -> str:
    """Return what trainings at the paper's size take: core hours, files that are put in by hand, pretrained encoders, and what
    is not the paper's in the rows themselves; empty without any."""
    every = list({one.name: one for one in experiments}.values())
    if not every:
        return ""
    said = ["a training at the paper's size" if len(every) == 1 else f"{len(every)} trainings at the paper's size"]
    known = [training_hours()[one.name] for one in every if one.name in training_hours()]
    if len(known) == len(every):
        said[0] += f" (about {_time(sum(known))} a seed)"
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
def training_hours() -> Mapping[str, float]:
    """Return the core hours of one training of each experiment at the paper's size, which benchmarks/paper_hours.py measured."""
    with (files("phrasemodels.data") / "training_hours.csv").open(encoding="utf-8") as file:
        return {line["experiment"]: float(line["hours"]) for line in csv.DictReader(file)}


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
    """Yield the configurations that are nested in a value, and itself."""
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    elif dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name))


@cache
def _by_hand(corpus: str, part: str) -> bool:
    """Return whether a part of a corpus has files that no command fetches."""
    manifest = find_corpus(corpus)
    splits = [split for name, split in manifest.splits.items() if name.startswith(part)]
    return not {file for split in splits for file in split.files.values()} <= {file.name for file in manifest.files}
