"""Several treebanks as one training set, with as much of each as its licence, or its annotation, allows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.schemas import TREES, build
from phrasemodels.data.store.step import Job, Step
from phrasemodels.layers.checks import at_least
from phrasemodels.parsing.parser import BOTH_TAGS
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards


@dataclass(frozen=True)
class Take:
    """What is taken of a treebank.

    documents: beginnings of the names of documents that are taken; (): all. licences: of what is taken; (): those of the
    whole treebank. times: how often each sentence is in the training set.
    """

    documents: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    times: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "times")


@dataclass(frozen=True)
class JoinTreebanks:
    """What is taken of each input, by its name. Tags become Penn tag, BOTH_TAGS and universal tag, to predict both."""

    takes: Mapping[str, Take]


def join_treebanks(job: Job, settings: JoinTreebanks) -> dict[str, Any]:
    """Write the TREES of all inputs, one after the other, by name. ValueError: nothing is left of an input."""
    tables, licences = [], set()
    for name, take in sorted(settings.takes.items()):
        rows = [
            row for row in read_shards(job.inputs[name]).to_pylist() if row["group"].startswith(take.documents or "")
        ]
        if not rows:
            raise ValueError(f"{name}: no document begins with any of {take.documents}")
        tables += [pa.Table.from_pylist([_both_tags(row) for row in rows], schema=TREES)] * take.times
        licences |= set(take.licences or job.inputs[name].meta["licences"])
    joined = pa.concat_tables(tables).combine_chunks()
    columns = {column: joined[column].combine_chunks() for column in TREES.names if column != "id"}
    free = all(
        take.licences or job.inputs[name].meta.get("redistributable", False) for name, take in settings.takes.items()
    )
    terms = {"licences": sorted(licences), "redistributable": free, "stand_in": True}
    return {**terms, **write_shards(job.out, build(TREES, "joined treebanks", columns, joined.num_rows))}


def _both_tags(row: dict[str, Any]) -> dict[str, Any]:
    if not (row["tags"] and row["universal"]):
        return row
    pairs = zip(row["tags"], row["universal"], strict=True)
    return {**row, "tags": [f"{penn}{BOTH_TAGS}{universal}" for penn, universal in pairs]}


@dataclass(frozen=True)
class JoinedTreebanks:
    """A training set of several treebanks; dev and test are those of one treebank, complete."""

    name: str
    parts: tuple[Corpus, ...]
    evaluated: Corpus
    takes: Mapping[str, Take] = field(default_factory=dict)

    def split(self, split: str) -> Step:
        """Return the step that yields the records of train, dev or test."""
        if split != "train":
            return self.evaluated.split(split)
        takes = {part.name: self.takes.get(part.name, Take()) for part in self.parts}
        inputs = {part.name: part.split("train") for part in self.parts}
        return Step(join_treebanks, f"join {self.name}", JoinTreebanks(takes), inputs)
