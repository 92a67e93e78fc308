"""Read a split of a corpus: choose its reader by name, call it on the files, and check the rows against the manifest."""

import hashlib
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from phrasemodels.data.corpora import babi, bitext, senteval, snli, treebank
from phrasemodels.data.download.manifest import Manifest, Part, Split, closest, explain, how_to_supply
from phrasemodels.data.formats.shards import SCHEMAS, check

Reader = Callable[..., pa.Table | Iterator[pa.Table]]  # (files by role, max_words, options of the split)

READERS: dict[str, Reader] = {
    "aspec": bitext.read_aspec,
    "babi": babi.read,
    "bitext": bitext.bitext_blocks,
    "columns": bitext.column_blocks,
    "labelled": bitext.labelled_blocks,
    "mspars": bitext.read_mspars,
    "questions": bitext.read_mspars_questions,
    "senteval.classes": senteval.read_classes,
    "senteval.paraphrases": senteval.read_paraphrases,
    "senteval.polarity": senteval.read_polarity,
    "senteval.sentiment": senteval.read_sentiment,
    "senteval.sick": senteval.read_sick,
    "senteval.similarity": senteval.read_similarity,
    "senteval.trec": senteval.read_trec,
    "snli.official": snli.read_official,
    "snli.tokenised": snli.read_tokenised,
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


def whole(tables: Iterable[pa.Table]) -> pa.Table:
    """Return tables, of which there is at least one, as one."""
    return pa.concat_tables(tables).combine_chunks()


def read_blocks(tables_of: Reader, split: Split, folder: Path, max_words: int, where: str) -> Iterator[pa.Table]:
    """Yield the rows of a split, which has its record type, by a reader. ValueError: the files are not as the manifest states;
    this may be known only at the end."""
    assert split.schema_ is not None, "`complete` gives a split its record type"
    schema, files = SCHEMAS[split.schema_], {role: folder / file for role, file in split.files.items()}
    try:
        tables: Iterator[pa.Table] = (
            check(table, schema, where) for table in read_files(tables_of, files, max_words, split.options, where)
        )
        if split.part is not None:
            tables = iter([take(whole([schema.empty_table(), *tables]), split.part, where)])
        yield from counted(tables, split, where)
    except ValueError as error:  # name the file without the folder: it is a copy in the store, not for editing
        raise ValueError(str(error).replace(f"{folder}{os.sep}", f"{where}: ")) from error


def reader(manifest: Manifest, split: Split) -> Reader:
    """Return the reader of a split. ValueError: there is no reader of this name."""
    name = split.reader or manifest.reader
    if name not in READERS:
        raise ValueError(f"{manifest.name}: no reader {name!r}: {closest(name, READERS)}")
    return READERS[name]


class FilesByRole(dict[str, Path]):
    """The files of a split by role. ValueError, in place of KeyError: no file has the role that the reader needs."""

    def __init__(self, files: Mapping[str, Path], where: str) -> None:
        super().__init__(files)
        self.where = where

    def __missing__(self, role: str) -> Path:
        raise ValueError(f"{self.where}, files: none is {role!r}: {closest(role, self)}")


def read_files(
    tables_of: Reader, files: Mapping[str, Path], max_words: int, options: Mapping[str, object], where: str
) -> Iterator[pa.Table]:
    """Call a reader; yield its tables. ValueError: files or options do not fit the annotations of its parameters."""
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


def take(table: pa.Table, part: Part | None, where: str) -> pa.Table:
    """Return the rows of a part, in the order of the table.

    Parts divide a fixed random order of the rows. Rows with equal values of `part.by` are together in it, and belong to
    the part of the first of them.
    """
    if part is None:
        return table
    columns = [field.name for field in table.schema if not pa.types.is_list(field.type)]
    if part.by not in columns:
        raise ValueError(f"{where}, part.by: no column {part.by!r} of single values: {closest(part.by, columns)}")
    counts = Counter(table[part.by].to_pylist())
    stop = table.num_rows if part.stop is None else part.stop
    begin, chosen = 0, set()
    for value in sorted(counts, key=lambda value: (hashlib.sha256(str(value).encode()).digest(), value)):
        if part.start <= begin < stop:
            chosen.add(value)
        begin += counts[value]
    return table.filter(pc.is_in(table[part.by], pa.array(chosen, table.schema.field(part.by).type)))


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
    """Return instructions for a file that is missing."""
    for wanted in manifest.sources:
        if wanted.name == file:
            return how_to_supply(manifest, wanted)
    return f"{manifest.name}: {file} is missing; fetch the corpus again"
