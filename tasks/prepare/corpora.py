"""Raw corpora to records: download, read, or generate."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from phrasemodels.data.corpora import readers
from phrasemodels.data.corpora.readers import Reader
from phrasemodels.data.download.manifest import Split, load
from phrasemodels.data.samples.records import Records, Translations
from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.prepare.sharded import write_shards


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
    from phrasemodels.data.download.fetch import free_space
    from phrasemodels.data.download.user_files import obtain

    manifest = load(settings.corpus)
    free_space(job.out, 3 * sum(file.bytes for file in manifest.files))
    origins = obtain(manifest, job.out, job.executor.sources)
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
    """A division of a corpus: its reader, and what the manifest says of it (fields of phrasemodels.data.download.manifest.Split)."""

    read: Reader
    name: str
    division: Mapping[str, Any]
    max_words: int
    terms: tuple[str, bool, bool]


def read_split(job: Job, settings: ReadSplit) -> dict[str, Any]:
    """Shards of a division of job.inputs["corpus"]: exactly the rows that the manifest promises."""
    split = Split.model_validate(settings.division)
    table = readers.read_split(settings.read, split, job.inputs["corpus"].path, settings.max_words, settings.name)
    unusable = readers.reasons(table)
    return {**_terms(*settings.terms), "record": split.schema_, "unusable": unusable, **write_shards(job.out, table)}


@dataclass(frozen=True)
class Generate:
    """A split of a sample corpus."""

    records: Records
    split: str
    sizes: Mapping[str, int]
    seed: int


def generate_split(job: Job, settings: Generate) -> dict[str, Any]:
    """Shards of the sample grammar."""
    table = settings.records.tables(settings.seed, settings.sizes)[settings.split]
    return {"corpus": "sample", **_terms("Apache-2.0", True, True), **write_shards(job.out, table)}


@dataclass(frozen=True)
class Corpus:
    """A corpus of data/manifests, or the part of it whose splits are called PART.train and so on.

    supplied: digests of what a user put in by hand, for corpora that cannot be downloaded (flows/run/user_files.py).
    """

    name: str
    part: str = ""
    supplied: Mapping[str, str] = field(default_factory=dict)

    def split(self, split: str) -> Step:
        """The step that yields the rows of train, dev or test."""
        return _read(self.name, f"{self.part}.{split}" if self.part else split, {}, self.supplied)

    def has(self, split: str) -> bool:
        """Whether there is such a split: not every corpus has a dev set."""
        return (f"{self.part}.{split}" if self.part else split) in load(self.name).splits


@dataclass(frozen=True)
class BitextCorpus:
    """A parallel corpus of data/manifests, in one direction."""

    name: str
    direction: Direction = field(default_factory=Direction)

    def split(self, split: str) -> Step:
        """The step that yields the rows of train, dev or test."""
        return _read(self.name, split, {"source": self.direction.source, "target": self.direction.target}, {})


def _read(corpus: str, split: str, options: Mapping[str, str], supplied: Mapping[str, str]) -> Step:
    """The step that reads a split; a ValueError if its files are put in by hand and are not among the supplied."""
    manifest = load(corpus)
    division = readers.complete(manifest, split)
    digests = {file.name: file.sha256 for file in manifest.files} | dict(supplied)
    for file in division.files.values():
        if not any(name == file or name.startswith(f"{file}/") for name in digests):
            raise ValueError(readers.absent(manifest, file))
    division = division.model_copy(update={"options": {**division.options, **options}})
    told = division.model_dump(by_alias=True, exclude_defaults=True, exclude={"note"})
    settings = ReadSplit(
        readers.reader(manifest, division), f"{corpus} {split}", told, manifest.max_words, (*manifest.terms(split),)
    )
    fetched = Step(fetch_corpus, f"fetch {corpus}", Fetch(corpus, digests))
    return Step(read_split, f"read {corpus} {split}", settings, {"corpus": fetched})


@dataclass(frozen=True)
class SampleCorpus:
    """A generated corpus: how many records a split has, and of which type they are (phrasemodels.data.samples.records)."""

    train: int = 4000
    dev: int = 300
    test: int = 600
    seed: int = 0
    records: Records = field(default_factory=Translations)
    name: str = "sample"

    def split(self, split: str) -> Step:
        """The step that yields the rows of train, dev or test."""
        sizes = {"train": self.train, "dev": self.dev, "test": self.test}
        label = f"generate {type(self.records).__name__.lower()} {split}"
        return Step(generate_split, label, Generate(self.records, split, sizes, self.seed))
