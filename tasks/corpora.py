"""Raw corpora to records: download, read, or generate."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from data.schemas import BITEXT, check
from data.store import Artifact, Job, Step
from tasks.stages import write_stage


@dataclass(frozen=True)
class Direction:
    """Which language is translated into which."""

    source: str = "en"
    target: str = "de"


@dataclass(frozen=True)
class Fetch:
    """A corpus and the digests of its files; where they come from does not matter to what they are."""

    corpus: str
    digests: Mapping[str, str]


def fetch_corpus(job: Job, settings: Fetch) -> dict[str, Any]:
    """Download a corpus of data/manifests: every file whole and verified, or an error."""
    from data.fetch import free_space
    from data.manifest import load
    from data.supplied import obtain

    manifest = load(settings.corpus)
    free_space(job.out, 3 * sum(file.bytes for file in manifest.files))
    origins = obtain(manifest, job.out, job.places.sources)
    return {
        "corpus": manifest.name,
        "from": {name: origin if "://" in origin else "a folder" for name, origin in origins.items()},
        **_terms(manifest.licence, manifest.redistributable, manifest.stand_in),
    }


def _terms(licence: str, redistributable: bool, stand_in: bool) -> dict[str, Any]:
    """What travels with everything that is made from a corpus."""
    return {"licences": [licence], "redistributable": redistributable, "stand_in": stand_in}


@dataclass(frozen=True)
class ReadSplit:
    """One division of a corpus: its two files, how many rows it must have, how long a line may be."""

    source: str
    target: str
    rows: int
    max_words: int
    terms: tuple[str, bool, bool]


def read_split(job: Job, settings: ReadSplit) -> dict[str, Any]:
    """BITEXT shards of two files of job.inputs["corpus"]."""
    from data.corpora.bitext import read_bitext

    corpus: Artifact = job.inputs["corpus"]
    table = read_bitext(corpus.file(settings.source), corpus.file(settings.target), settings.rows, settings.max_words)
    return {**_terms(*settings.terms), **write_stage(job.out, table)}


@dataclass(frozen=True)
class Generate:
    """A split of the sample corpus."""

    split: str
    sizes: Mapping[str, int]
    seed: int
    idiom_share: float


def generate_split(job: Job, settings: Generate) -> dict[str, Any]:
    """BITEXT shards of the sample grammar; a sentence's group is `idiom` or `plain`."""
    from data.grammar import corpus

    sentences = corpus(settings.seed, settings.sizes, settings.idiom_share)[settings.split]
    columns = [
        pa.array(range(len(sentences)), pa.int64()),
        pa.array([" ".join(s.source) for s in sentences]),
        pa.array([" ".join(s.target) for s in sentences]),
        pa.array(["idiom" if s.idiom else "plain" for s in sentences]),
    ]
    table = check(pa.Table.from_arrays(columns, schema=BITEXT), BITEXT, "the sample grammar")
    return {"corpus": "sample", **_terms("Apache-2.0", True, True), **write_stage(job.out, table)}


@dataclass(frozen=True)
class BitextCorpus:
    """A parallel corpus of data/manifests, in one direction."""

    name: str
    direction: Direction = field(default_factory=Direction)

    def split(self, split: str) -> Step:
        """The step that yields the rows of train, dev or test."""
        from data.manifest import load

        manifest = load(self.name)
        division = manifest.split(split)
        if division.rows is None:
            raise ValueError(f"{self.name} {split}: the manifest does not say how many rows there must be; give `rows`")
        files = (division.files[self.direction.source], division.files[self.direction.target])
        digests = {file.name: file.sha256 for file in manifest.files}
        corpus = Step(fetch_corpus, f"fetch {self.name}", Fetch(self.name, digests))
        settings = ReadSplit(*files, division.rows, manifest.max_words, (*manifest.terms(split),))
        return Step(read_split, f"read {self.name} {split}", settings, {"corpus": corpus})


@dataclass(frozen=True)
class SampleCorpus:
    """The generated corpus: how many sentences a split has, and the share that holds an idiom."""

    train: int = 4000
    dev: int = 300
    test: int = 600
    seed: int = 0
    idiom_share: float = 0.3
    name: str = "sample"

    def split(self, split: str) -> Step:
        """The step that yields the rows of train, dev or test."""
        sizes = {"train": self.train, "dev": self.dev, "test": self.test}
        return Step(generate_split, f"generate {split}", Generate(split, sizes, self.seed, self.idiom_share))
