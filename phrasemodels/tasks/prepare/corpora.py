"""Corpora as records, downloaded and read or generated.

A dev set is held out of train. Test records are found in train. Several treebanks become one training set with as much
of each as its licence or its annotation allows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from phrasemodels.config import at_least
from phrasemodels.data.corpora import readers
from phrasemodels.data.corpora.readers import Reader, leakage, take
from phrasemodels.data.corpora.samples import Records, Translations
from phrasemodels.data.download.manifest import Languages, Part, Split, find_corpus
from phrasemodels.data.formats.conllu import BOTH_TAGS
from phrasemodels.data.formats.shards import TREES, build
from phrasemodels.data.store.artifacts import sha256_of
from phrasemodels.data.store.store import Job, Step
from phrasemodels.tasks.prepare.sharded import read_shards, shard_tables, write_shards


@dataclass(frozen=True)
class FetchCorpus:
    """A corpus by name, and the digests of its files. Mirrors are not part of it: they do not change the bytes."""

    corpus: str
    digests: Mapping[str, str]


def fetch_corpus(job: Job, settings: FetchCorpus) -> dict[str, Any]:
    """Download or copy all files of a corpus and verify the copies.

    The corpus is of data/manifests or added by the user. OSError: a file cannot be had. ValueError: a user file has
    changed since its digest was taken.
    """
    from phrasemodels.data.download.fetch import free_space, obtain

    manifest = find_corpus(settings.corpus)
    free_space(job.out, 3 * sum(file.bytes for file in manifest.files))
    origins = obtain(manifest, job.out, job.executor.sources)
    if lost := sorted(settings.digests.keys() - origins.keys()):  # files of the plan, which have gone since
        raise OSError(f"{settings.corpus}: {', '.join(lost)} cannot be found any more; put them back, and start again")
    for name, origin in origins.items():
        if sha256_of(job.out / name) != settings.digests.get(name):
            raise ValueError(f"{origin}: {name} of {manifest.name} has changed since the run was planned; start again")
    return {
        "corpus": manifest.name,
        "from": {name: origin if "://" in origin else "a folder" for name, origin in origins.items()},
        **_terms(manifest.licence, manifest.redistributable, manifest.stand_in),
    }


def fetched(corpus: str, digests: Mapping[str, str]) -> Step:
    """Return the step that fetches a corpus. digests: of its files by name."""
    return Step(fetch_corpus, f"fetch {corpus}", FetchCorpus(corpus, digests))


def _terms(licence: str, redistributable: bool, stand_in: bool) -> dict[str, Any]:
    """Return the terms of a corpus, which the meta of everything made from it repeats."""
    return {"licences": [licence], "redistributable": redistributable, "stand_in": stand_in}


@dataclass(frozen=True)
class ReadSplit:
    """A split of a corpus: its reader, name and entry in the manifest (data/download/manifest.py: Split).

    terms: licence, redistributable, stand_in. order: the names of its files in the order of reading. Keys do not keep
    the order of a mapping.
    """

    read: Reader
    name: str
    division: Mapping[str, Any]
    max_words: int
    terms: tuple[str, bool, bool]
    order: tuple[str, ...] = ()


def read_split(job: Job, settings: ReadSplit) -> dict[str, Any]:
    """Write the records of one split of the files job.inputs["corpus"]. ValueError: they differ from the manifest."""
    split = Split.model_validate(settings.division)
    folder, unusable = job.inputs["corpus"].folder(), Counter[str]()

    def blocks() -> Iterator[pa.Table]:
        for table in readers.read_blocks(settings.read, split, folder, settings.max_words, settings.name):
            unusable.update(readers.reasons(table))
            yield table

    made = write_shards(job.out, blocks())
    return {**_terms(*settings.terms), "unusable": dict(sorted(unusable.items())), **made}


@dataclass(frozen=True)
class SampleSplit:
    """A split of a sample corpus: its kind of records and the sizes of all (disjoint) splits."""

    records: Records
    split: str
    sizes: Mapping[str, int]


def sample_split(job: Job, settings: SampleSplit) -> dict[str, Any]:
    """Write the records of one split of a sample corpus."""
    table = settings.records.tables(settings.sizes)[settings.split]
    return {"corpus": "sample", **_terms("Apache-2.0", True, True), **write_shards(job.out, table)}


@dataclass(frozen=True)
class Corpus:
    """A corpus of data/manifests, or a part of it.

    Args:
        name: The name of its manifest.
        part: The part. Its splits are called PART.train and so on.
        supplied: Digests of files that the user provides, for a corpus that cannot be downloaded.
    """

    name: str
    part: str = ""
    supplied: Mapping[str, str] = field(default_factory=dict)

    def split(self, split: str) -> Step:
        """Return the step that yields the records of train, dev or test."""
        return _read(self.name, f"{self.part}.{split}" if self.part else split, {}, self.supplied)

    @property
    def languages(self) -> Languages:
        """The languages that the manifest says. ValueError: it says none."""
        return _languages(self.name)

    def has(self, split: str) -> bool:
        """Return whether the corpus has a split: some have no dev set."""
        return (f"{self.part}.{split}" if self.part else split) in find_corpus(self.name).splits


@dataclass(frozen=True)
class BitextCorpus:
    """A parallel corpus of data/manifests, from the source to the target language of its manifest.

    Args:
        name: The name of its manifest.
        reverse: Swap source and target.
    """

    name: str
    reverse: bool = False

    @property
    def languages(self) -> Languages:
        """The languages of this direction. ValueError: the manifest says none."""
        known = _languages(self.name)
        turned = {"source": known.target, "target": known.source}
        return known.model_copy(update=turned) if self.reverse else known

    def split(self, split: str) -> Step:
        """Return the step that yields the records of train, dev or test. ValueError: one file has both sides, in one order."""
        manifest, languages = find_corpus(self.name), self.languages
        if (manifest.split(split).reader or manifest.reader) == "bitext":
            return _read(self.name, split, {"source": languages.source, "target": languages.target}, {})
        if self.reverse:
            raise ValueError(
                f"{self.name}: its reader has one direction; exchange the columns, and the languages, instead"
            )
        return _read(self.name, split, {}, {})


def _languages(corpus: str) -> Languages:
    if (found := find_corpus(corpus).languages) is None:
        say = 'languages = { source = "en", target = "fr" }'
        raise ValueError(f"{corpus}: its manifest names no languages; write `{say}` above its files")
    return found


def _read(corpus: str, split: str, options: Mapping[str, str], supplied: Mapping[str, str]) -> Step:
    """Return the step that reads a split. ValueError: the user has to provide one of its files, and has not."""
    manifest = find_corpus(corpus)
    division = readers.complete(manifest, split)
    digests = {file.name: file.sha256 for file in manifest.files} | dict(supplied)
    for file in division.files.values():
        if not any(name == file or name.startswith(f"{file}/") for name in digests):
            raise ValueError(readers.absent(manifest, file))
    division = division.model_copy(update={"options": {**division.options, **options}})
    entry = division.model_dump(by_alias=True, exclude_defaults=True, exclude={"note"})
    settings = ReadSplit(
        readers.reader(manifest, division),
        f"{corpus} {split}",
        entry,
        manifest.max_words,
        (*manifest.terms(split),),
        (*division.files,),
    )
    return Step(read_split, f"read {corpus} {split}", settings, {"corpus": fetched(corpus, digests)})


@dataclass(frozen=True)
class SampleCorpus:
    """A sample corpus of data/corpora/samples.py.

    Args:
        train: Rows of train.
        dev: Rows of dev.
        test: Rows of test.
        name: The name of the corpus in reports.
    """

    train: int = 4000
    dev: int = 300
    test: int = 600
    records: Records = field(default_factory=Translations)
    name: str = "sample"

    @property
    def languages(self) -> Languages:
        """The target is only like German: a grammar made it."""
        return Languages(source="en", target="de")

    def __post_init__(self) -> None:
        at_least(self, 1, "train", "dev", "test")

    def split(self, split: str) -> Step:
        """Return the step that yields the records of train, dev or test."""
        sizes = {"train": self.train, "dev": self.dev, "test": self.test}
        label = f"sample {type(self.records).__name__.lower()} {split}"
        return Step(sample_split, label, SampleSplit(self.records, split, sizes))


class AnyCorpus(Protocol):
    """A corpus by name, whose splits are steps."""

    @property
    def name(self) -> str: ...
    def split(self, split: str) -> Step: ...


@dataclass(frozen=True)
class TakeShare:
    """Rows [start, stop) of a fixed random order that keeps rows with equal `by` together: fields of
    data/download/manifest.py: Part."""

    part: Mapping[str, Any]


def take_share(job: Job, settings: TakeShare) -> dict[str, Any]:
    """Write a share of the rows of job.inputs["rows"]. ValueError: no row is in it."""
    part = Part.model_validate(settings.part)
    made = write_shards(job.out, take(lambda: shard_tables(job.inputs["rows"]), part, "held out"))
    if not made["rows"]:
        every = job.inputs["rows"].meta["rows"]
        raise ValueError(f"no row is held out of {every} by {part.by!r}, {settings.part}: hold out fewer")
    return made


@dataclass(frozen=True)
class HeldOut:
    """A corpus without a dev set. Rows of train become one.

    Args:
        dev: Rows of the dev set, about.
        by: A column. Rows with equal values of it stay on one side.
    """

    corpus: AnyCorpus
    dev: int
    by: str

    def __post_init__(self) -> None:
        at_least(self, 1, "dev")

    @property
    def name(self) -> str:
        return self.corpus.name

    def split(self, split: str) -> Step:
        """Return the step that yields the records of train, dev or test."""
        if split == "test":
            return self.corpus.split(split)
        part = {"by": self.by, "start": self.dev} if split == "train" else {"by": self.by, "stop": self.dev}
        return Step(take_share, f"hold out {self.name} {split}", TakeShare(part), {"rows": self.corpus.split("train")})


def as_they_are(rows: Step) -> Step:
    """Return records as they are, with the trees of their corpus if it has any."""
    return rows


def leaks(job: Job, settings: None) -> dict[str, Any]:
    """Count the records of job.inputs["test"] that are also in ["train"], with every field but the label equal."""
    found = leakage(shard_tables(job.inputs["train"]), shard_tables(job.inputs["test"]))
    return {"leak": {"shared": found.shared, "rows": found.rows}}


@dataclass(frozen=True)
class Take:
    """The parts of a treebank that are read.

    documents: beginnings of the names of taken documents. (): all. licences: of the taken documents. (): the licences
    of the whole treebank. times: how often each sentence is in the training set.
    """

    documents: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    times: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "times")


@dataclass(frozen=True)
class JoinTreebanks:
    """The columns that are read of each input by its name.

    Tags become Penn tag, BOTH_TAGS and universal tag to predict both.
    """

    takes: Mapping[str, Take]


def join_treebanks(job: Job, settings: JoinTreebanks) -> dict[str, Any]:
    """Write the TREES of all inputs one after the other by name. ValueError: nothing is left of an input."""
    tables, licences = [], set()
    for name, part in sorted(settings.takes.items()):
        rows = [
            row for row in read_shards(job.inputs[name]).to_pylist() if row["group"].startswith(part.documents or "")
        ]
        if not rows:
            raise ValueError(f"{name}: no document begins with any of {part.documents}")
        tables += [pa.Table.from_pylist([_both_tags(row) for row in rows], schema=TREES)] * part.times
        licences |= set(part.licences or job.inputs[name].meta["licences"])
    joined = pa.concat_tables(tables).combine_chunks()
    columns = {column: joined[column].combine_chunks() for column in TREES.names if column != "id"}
    free = all(
        part.licences or job.inputs[name].meta.get("redistributable", False) for name, part in settings.takes.items()
    )
    terms = {"licences": sorted(licences), "redistributable": free, "stand_in": True}
    return {**terms, **write_shards(job.out, build(TREES, "joined treebanks", columns, joined.num_rows))}


def _both_tags(row: dict[str, Any]) -> dict[str, Any]:
    if not row["universal"]:
        return row
    pairs = zip(row["tags"] or [""] * len(row["tokens"]), row["universal"], strict=True)
    return {**row, "tags": [f"{penn}{BOTH_TAGS}{universal}" for penn, universal in pairs]}


@dataclass(frozen=True)
class JoinedTreebanks:
    """A training set of several treebanks. Dev and test are complete and from one treebank.

    Args:
        name: The name of the joined corpus.
        parts: Treebanks of the training set.
        takes: Parts of treebanks to read by the treebank's name. Default: all.
    """

    name: str
    parts: tuple[AnyCorpus, ...]
    evaluated: AnyCorpus
    takes: Mapping[str, Take] = field(default_factory=dict)

    def split(self, split: str) -> Step:
        """Return the step that yields the records of train, dev or test."""
        if split != "train":
            return self.evaluated.split(split)
        takes = {part.name: self.takes.get(part.name, Take()) for part in self.parts}
        inputs = {part.name: part.split("train") for part in self.parts}
        return Step(join_treebanks, f"join {self.name}", JoinTreebanks(takes), inputs)
