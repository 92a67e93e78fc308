"""What it takes until a printed number can be judged by a training at the paper's size."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from phrasemodels.data.download.corpora import find
from phrasemodels.encoders.inputs import PretrainedConfig
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.experiments.marks import NOT, kind_of
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.problems.entailment.data import VectorFile


def needs(experiment: Experiment) -> str:
    """Return what an experiment at the paper's size waits for, in one line: rows that are not the paper's, files that are
    put in by hand, and the training itself."""
    parts = list(_parts((experiment.recipe, experiment.model)))
    by_hand = sorted({part.name for part in parts if _by_hand(part)})
    encoders = sorted({part.name for part in parts if isinstance(part, PretrainedConfig)})
    unlike = kind_of(experiment.unlike).removeprefix(NOT)
    said = [
        "a training at the paper's size",
        f"files put in by hand ({', '.join(by_hand)})" if by_hand else "",
        f"{', '.join(encoders)} from a model hub" if encoders else "",
        f"a row of ours with the paper's {unlike} (phrasemodels marks shows what differs)" if unlike else "",
    ]
    return ", and ".join(filter(None, said))


def _parts(value: Any) -> Iterator[Any]:
    """Yield the configurations that are nested in a value, and itself."""
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    elif dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name))


def _by_hand(part: Any) -> bool:
    """Return whether a part has files that no command fetches."""
    if isinstance(part, Corpus):
        manifest = find(part.name)
        splits = [split for name, split in manifest.splits.items() if name.startswith(part.part)]
        return not {file for split in splits for file in split.files.values()} <= {file.name for file in manifest.files}
    return isinstance(part, VectorFile)
