"""From a manifest and a folder of files to a table: a reader by name, and what the manifest promises, checked."""

import hashlib
import inspect
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from phrasemodels.data.corpora import aspec, babi, bitext, columns, logical_forms, senteval, snli, treebank
from phrasemodels.data.download.manifest import Manifest, Part, Split, by_hand, closest, explain
from phrasemodels.data.formats.schemas import SCHEMAS, check

Reader = Callable[..., pa.Table]  # (files by the parts they play, max_words, options of the split)

READERS: dict[str, Reader] = {
    "aspec": aspec.read,
    "babi": babi.read,
    "bitext": bitext.read,
    "columns": columns.read,
    "mspars": logical_forms.read,
    "questions": logical_forms.read_questions,
    "senteval.classes": senteval.read_classes,
    "senteval.paraphrases": senteval.read_paraphrases,
    "senteval.sentiment": senteval.read_sentiment,
    "senteval.sick": senteval.read_sick,
    "senteval.similarity": senteval.read_similarity,
    "senteval.trec": senteval.read_trec,
    "snli.official": snli.read_official,
    "snli.tokenised": snli.read_tokenised,
    "treebank": treebank.read,
    "treebank.tagged": treebank.read_tagged,
}


def read(manifest: Manifest, name: str, folder: Path) -> pa.Table:
    """A split of a corpus whose files lie in `folder`. ValueError: anything else than the manifest says."""
    split = manifest.split(name)
    for file in split.files.values():
        if not (folder / file).exists():
            raise ValueError(absent(manifest, file))
    where = f"{manifest.name} {name}"
    return read_split(reader(manifest, split), complete(manifest, name), folder, manifest.max_words, where)


def complete(manifest: Manifest, name: str) -> Split:
    """A split with its record type, which may be that of the manifest."""
    split = manifest.split(name)
    return split.model_copy(update={"schema_": split.schema_ or manifest.schema_})


def read_split(table_of: Reader, split: Split, folder: Path, max_words: int, where: str) -> pa.Table:
    """A split of files that are there, by its reader."""
    assert split.schema_ is not None, "see `complete`"
    files = {role: folder / file for role, file in split.files.items()}
    try:
        table = check(read_files(table_of, files, max_words, split.options, where), SCHEMAS[split.schema_], where)
    except ValueError as error:  # by the file's own name: where it lies it is a copy, which nobody should mend
        raise ValueError(str(error).replace(f"{folder}{os.sep}", f"{where}: ")) from error
    return counted(take(table, split.part, where), split, where)


def reader(manifest: Manifest, split: Split) -> Reader:
    """The reader of a split."""
    name = split.reader or manifest.reader
    if name not in READERS:
        raise ValueError(f"{manifest.name}: no reader {name!r}: {closest(name, READERS)}")
    return READERS[name]


class Files(dict[str, Path]):
    """Files of a split by the parts they play. ValueError: none plays a part that the reader needs."""

    def __init__(self, files: Mapping[str, Path], where: str) -> None:
        super().__init__(files)
        self.where = where

    def __missing__(self, part: str) -> Path:
        raise ValueError(f"{self.where}, files: none is {part!r}: {closest(part, self)}")


def read_files(
    table_of: Reader, files: Mapping[str, Path], max_words: int, options: Mapping[str, object], where: str
) -> pa.Table:
    """The table of a reader; refuses files and options other than its own, by its annotations."""
    parameters = inspect.signature(table_of).parameters
    known = [name for name in parameters if name not in ("files", "max_words")]
    for option in options:
        if option not in known:
            raise ValueError(f"{where}: {table_of.__module__} has no option {option!r}: {closest(option, known)}")
    if not files:
        raise ValueError(f"{where}, files: there are none")
    for name, value in {"files": files, **options}.items():
        try:
            TypeAdapter(parameters[name].annotation).validate_python(value, strict=True)
        except ValidationError as error:
            raise ValueError(f"{where}, {name}: {explain(error)}") from error
    return table_of(Files(files, where), max_words, **options)


def take(table: pa.Table, part: Part | None, where: str) -> pa.Table:
    """The rows of a part, in their order. Rows are put into a fixed random order, in which those with equal values of
    `part.by` stand together, and belong to the part that the first of them falls into."""
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
    """How many rows cannot be used, by reason."""
    if "reason" not in table.column_names:
        return {}
    return {reason: count for reason, count in sorted(Counter(table["reason"].to_pylist()).items()) if reason}


def counted(table: pa.Table, split: Split, where: str) -> pa.Table:
    """The table, if it has as many rows and as many that cannot be used as the manifest says; at least one."""
    if table.num_rows == 0:
        raise ValueError(f"{where}: no rows{'; change its part, or give a larger file' if split.part else ''}")
    if split.rows is not None and table.num_rows != split.rows:
        raise ValueError(
            f"{where}: {table.num_rows} rows, the manifest says {split.rows}: another version of the corpus?"
        )
    if split.reasons not in ("unknown", reasons(table)):
        raise ValueError(f"{where}: rows that cannot be used: {reasons(table)}, the manifest says {split.reasons}")
    return table


def absent(manifest: Manifest, file: str) -> str:
    """What to do for a file that is not there."""
    for source in manifest.sources:
        if source.name == file:
            return by_hand(manifest, source)
    return f"{manifest.name}: {file} is not there; fetch the corpus again"
