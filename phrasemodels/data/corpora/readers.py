"""Read a split of a corpus and check the rows against the manifest.

A reader is chosen by name and called on the files. Its rows are counted: unusable ones by reason, repeated ones and
rows of the training set.
"""

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from phrasemodels.data.corpora import bitext, releases, treebank
from phrasemodels.data.download.manifest import Manifest, Part, Split, closest, explain, how_to_supply
from phrasemodels.data.formats.shards import BATCH_ROWS, DIGEST_BYTES, SCHEMAS, as_integers, check, digests

Reader = Callable[..., pa.Table | Iterator[pa.Table]]  # (files by role, max_words, options of the split)

READERS: dict[str, Reader] = {
    "aspec": bitext.read_aspec,
    "babi": releases.read_babi,
    "bitext": bitext.bitext_blocks,
    "columns": bitext.column_blocks,
    "labelled": bitext.labelled_blocks,
    "mspars": bitext.read_mspars,
    "questions": bitext.read_mspars_questions,
    "senteval.classes": releases.read_classes,
    "senteval.paraphrases": releases.read_paraphrases,
    "senteval.polarity": releases.read_polarity,
    "senteval.sentiment": releases.read_sentiment,
    "senteval.sick": releases.read_sick,
    "senteval.similarity": releases.read_similarity,
    "senteval.trec": releases.read_trec,
    "snli.official": releases.read_snli_official,
    "snli.tokenised": releases.read_snli,
    "treebank": treebank.read,
    "treebank.arcs": treebank.read_with_arcs,
    "treebank.predicted_tags": treebank.read_with_predicted_tags,
    "treebank.tagged": treebank.read_tagged,
}


def read(manifest: Manifest, name: str, folder: Path) -> pa.Table:
    """Read a split of a corpus from its files in `folder`. ValueError: it is not as the manifest states."""
    split = manifest.split(name)
    for file in split.files.values():
        if not (folder / file).exists():
            raise ValueError(absent(manifest, file))
    where = f"{manifest.name} {name}"
    return read_split(reader(manifest, split), complete(manifest, name), folder, manifest.max_words, where)


def complete(manifest: Manifest, name: str) -> Split:
    """Return a split with its record type, by default the record type of the manifest."""
    split = manifest.split(name)
    return split.model_copy(update={"schema_": split.schema_ or manifest.schema_})


def read_split(tables_of: Reader, split: Split, folder: Path, max_words: int, where: str) -> pa.Table:
    """Return the rows of `read_blocks` as one table."""
    return whole(read_blocks(tables_of, split, folder, max_words, where))


def blocks(manifest: Manifest, name: str, folder: Path) -> Iterator[pa.Table]:
    """Yield the rows of `read` in tables. ValueError: as `read_blocks`."""
    split = complete(manifest, name)
    return read_blocks(reader(manifest, split), split, folder, manifest.max_words, f"{manifest.name} {name}")


def whole(tables: Iterable[pa.Table]) -> pa.Table:
    """Return one or more tables as one."""
    return pa.concat_tables(tables).combine_chunks()


def read_blocks(tables_of: Reader, split: Split, folder: Path, max_words: int, where: str) -> Iterator[pa.Table]:
    """Yield the rows of a split in its record type, by a reader. A long file of several parts is read twice.

    ValueError: the files differ from the manifest. This may be known only at the end.
    """
    assert split.schema_ is not None, "`complete` gives a split its record type"
    schema, files = SCHEMAS[split.schema_], {role: folder / file for role, file in split.files.items()}

    def tables() -> Iterator[pa.Table]:
        found = read_files(tables_of, files, max_words, split.options, where)
        return (check(table, schema, where) for table in found)

    try:
        yield from counted(tables() if split.part is None else take(tables, split.part, where), split, where)
    except ValueError as error:  # name the file without the folder: it is a copy in the store, not for editing
        raise ValueError(str(error).replace(f"{folder}{os.sep}", f"{where}: ")) from error


def reader(manifest: Manifest, split: Split) -> Reader:
    """Return the reader of a split. ValueError: there is no reader of this name."""
    name = split.reader or manifest.reader
    if name not in READERS:
        raise ValueError(f"{manifest.name}: no reader {name!r}: {closest(name, READERS)}")
    return READERS[name]


class FilesByRole(dict[str, Path]):
    """The files of a split by role. ValueError, in place of KeyError: no file has the reader's role."""

    def __init__(self, files: Mapping[str, Path], where: str) -> None:
        super().__init__(files)
        self.where = where

    def __missing__(self, role: str) -> Path:
        raise ValueError(f"{self.where}, files: none is {role!r}: {closest(role, self)}")


def read_files(
    tables_of: Reader, files: Mapping[str, Path], max_words: int, options: Mapping[str, object], where: str
) -> Iterator[pa.Table]:
    """Call a reader and yield its tables. ValueError: files or options do not fit its parameters."""
    parameters = inspect.signature(tables_of).parameters
    known = [name for name in parameters if name not in ("files", "max_words")]
    for option in options:
        if option not in known:
            raise ValueError(f"{where}: {tables_of.__module__} has no option {option!r}: {closest(option, known)}")
    if not files:
        raise ValueError(f"{where}, files: there are none; name them in the manifest")
    for name, value in {"files": files, **options}.items():
        try:
            TypeAdapter(parameters[name].annotation).validate_python(value, strict=True)
        except ValidationError as error:
            raise ValueError(f"{where}, {name}: {explain(error)}") from error
    tables = tables_of(FilesByRole(files, where), max_words, **options)
    yield from [tables] if isinstance(tables, pa.Table) else tables


KEPT_TABLES = 4  # that are not read again


def take(tables: Callable[[], Iterator[pa.Table]], part: Part, where: str) -> Iterator[pa.Table]:
    """Yield the rows of a part from the tables of all rows. Many tables are asked for twice.

    Parts divide a fixed random order of the rows. Rows with equal values of `part.by` are together in it. They belong to the
    part of the first of them.
    """
    all_tables = tables()
    first = list(islice(all_tables, KEPT_TABLES))
    keys = [part_keys(table, part, where) for table in first]
    for table in all_tables:
        first = []
        keys.append(part_keys(table, part, where))
    chosen, at = in_part(np.concatenate([*keys, np.empty((0, 2), np.uint64)]), part.start, part.stop), 0
    for table in first or tables():
        yield table.filter(pa.array(chosen[at : at + table.num_rows]))
        at += table.num_rows


def part_keys(table: pa.Table, part: Part, where: str) -> np.ndarray:
    """Return 64 bits of the digests of each row's values of `by` and of `alike` (rows, 2).

    `by` is for the order of parts.
    """
    columns = [field.name for field in table.schema if not pa.types.is_list(field.type)]
    found = np.zeros((table.num_rows, 2), np.uint64)
    for place, (name, column) in enumerate((("by", part.by), ("alike", part.alike))):
        if column and column not in columns:
            raise ValueError(f"{where}, part.{name}: no column {column!r} of single values: {closest(column, columns)}")
        if column:
            found[:, place] = as_integers(digests(table[column]))[:, 0].astype(np.uint64)
    return found


def in_part(keys: np.ndarray, start: int, stop: int | None) -> np.ndarray:
    """Return for each row whether the rows before all those of its key are in [start, stop).

    Keys are in their own order if all rows are alike. Else the k-th of n keys of a kind is at (k + 1/2) / n of the order, so
    each kind has its share of any part.
    """
    _, first, group, sizes = np.unique(keys[:, 0], return_index=True, return_inverse=True, return_counts=True)
    _, kind, count = np.unique(keys[first, 1], return_inverse=True, return_counts=True)
    by_kind = kind.argsort(kind="stable")
    place = np.empty(len(first))
    place[by_kind] = np.arange(len(first)) - np.repeat(count.cumsum() - count, count)
    order = ((place + 0.5) / count[kind]).argsort(kind="stable")
    begins = np.empty(len(first), np.int64)
    begins[order] = sizes[order].cumsum() - sizes[order]
    chosen: np.ndarray = ((start <= begins) & (begins < (len(keys) if stop is None else stop)))[group]
    return chosen


def reasons(table: pa.Table) -> dict[str, int]:
    """Count the unusable rows, by reason."""
    if "reason" not in table.column_names:
        return {}
    return {reason: count for reason, count in sorted(Counter(table["reason"].to_pylist()).items()) if reason}


def counted(tables: Iterable[pa.Table], split: Split, where: str) -> Iterator[pa.Table]:
    """Yield the tables. ValueError: they are empty, or their rows or unusable rows are not as many as the manifest states."""
    rows, unusable = 0, Counter[str]()
    for table in tables:
        rows += table.num_rows
        unusable.update(reasons(table))
        yield table
    if rows == 0:
        raise ValueError(f"{where}: no rows{'; change its part, or give a larger file' if split.part else ''}")
    if split.rows is not None and rows != split.rows:
        raise ValueError(
            f"{where}: {rows} rows, the manifest states {split.rows}: is it another version of the corpus?"
        )
    found = dict(sorted(unusable.items()))
    if split.reasons not in ("unknown", found):
        raise ValueError(f"{where}: unusable rows: {found}, the manifest states {split.reasons}")


def absent(manifest: Manifest, file: str) -> str:
    """Return instructions for a missing file."""
    for wanted in manifest.sources:
        if wanted.name == file:
            return how_to_supply(manifest, wanted)
    return f"{manifest.name}: {file} is missing; fetch the corpus again"


CONTENT = {
    "source": ("source", "target"),
    "tokens": ("tokens",),
    "premise": ("premise", "hypothesis"),
    "text": ("text",),
    "question": ("facts", "question"),
}
SEPARATORS = ("\x1e", "\x1f")


class Leak(NamedTuple):
    """`shared` of `rows` records of a test set also occur in the training set."""

    shared: int
    rows: int

    @property
    def share(self) -> float:
        return self.shared / self.rows if self.rows else 0.0

    def __str__(self) -> str:
        return f"{self.shared} of {self.rows} records ({self.share:.0%}) stand verbatim in train"


class Counts(NamedTuple):
    """Unusable rows of a split by reason and digests of the records in 16 bytes a row."""

    reasons: dict[str, int]
    schema: pa.Schema
    records: pa.ChunkedArray

    @property
    def rows(self) -> int:
        return len(self.records)

    @property
    def repeated(self) -> int:
        """How many records equal an earlier one."""
        words = np.concatenate([np.empty((0, 2), np.uint64), *map(as_integers, self.records.chunks)])
        first = np.sort(words[:, 0])
        # few have an equal first half, and only these are compared whole: a set of all would take five times the memory
        some = words[np.isin(words[:, 0], first[1:][first[1:] == first[:-1]])]
        return len(some) - len(np.unique(some, axis=0))

    def shared_with(self, train: "Counts") -> Leak:
        """Return how many records are also in the training set."""
        seen = np.zeros(self.rows, bool)
        for block in train.records.chunks:
            seen |= pc.is_in(self.records, value_set=block).to_numpy()
        return Leak(int(seen.sum()), self.rows)


def leakage(train: Iterable[pa.Table], test: Iterable[pa.Table]) -> Leak:
    """Count the records of a test set that are also in the training set, of which one table at a time is in memory."""
    return counts(test).shared_with(counts(train))


def counts(tables: Iterable[pa.Table]) -> Counts:
    """Count the rows of a split, one table at a time. There is at least one."""
    return merged(
        Counts(reasons(table), table.schema, pa.chunked_array(map(digests, _keys(table)), pa.binary(DIGEST_BYTES)))
        for table in tables
    )


def merged(every: Iterable[Counts]) -> Counts:
    """Return the counts of one or more tables as one."""
    found, schema, records = Counter[str](), pa.schema([]), []
    for one in every:
        schema = one.schema
        found.update(one.reasons)
        records += one.records.chunks
    return Counts(dict(sorted(found.items())), schema, pa.chunked_array(records, pa.binary(DIGEST_BYTES)))


def content(table: pa.Table) -> tuple[str, ...]:
    """Return the columns with the text of a record: not its id, group, label and analyses."""
    return next(columns for first, columns in CONTENT.items() if first in table.column_names)


def _keys(table: pa.Table) -> Iterator[pa.Array]:
    """Yield the content of the records of each batch, a string each."""
    for batch in table.select(content(table)).to_batches(max_chunksize=BATCH_ROWS):
        yield pc.binary_join_element_wise(*map(_text, batch.columns), SEPARATORS[1]).cast(pa.large_string())


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        return pc.binary_join(column.cast(pa.list_(pa.string())), SEPARATORS[0])
    return column
