"""A dev set for corpora that have none: a part of their training set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from phrasemodels.data.corpora.readers import take
from phrasemodels.data.download.manifest import Part
from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards


class Divided(Protocol):
    """A corpus by its splits."""

    @property
    def name(self) -> str: ...
    def split(self, split: str) -> Step: ...


@dataclass(frozen=True)
class Share:
    """Rows [start, stop) of a fixed random order in which equal values of `by` stay together: phrasemodels.data.download.manifest.Part."""

    part: Mapping[str, Any]


def take_share(job: Job, settings: Share) -> dict[str, Any]:
    """Shards of a share of job.inputs["rows"]."""
    part = Part.model_validate(settings.part)
    return write_shards(job.out, take(read_shards(job.inputs["rows"]), part, "held out"))


@dataclass(frozen=True)
class HeldOut:
    """A corpus of which about `dev` rows of train are held out; rows with the same `by` are on one side."""

    corpus: Divided
    dev: int
    by: str

    @property
    def name(self) -> str:
        return self.corpus.name

    def split(self, split: str) -> Step:
        """The step that yields the rows of train, dev or test."""
        if split == "test":
            return self.corpus.split(split)
        part = {"by": self.by, "start": self.dev} if split == "train" else {"by": self.by, "stop": self.dev}
        return Step(take_share, f"hold out {self.name} {split}", Share(part), {"rows": self.corpus.split("train")})
