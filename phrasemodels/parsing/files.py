"""Texts and tables for parsing, and files of their parses: brackets, CoNLL-U, JSON lines, Arrow and Parquet.

In the last three a record is a sentence. It has its `file`, its `row` (the line, or the row of a table, from 1), its number
`sentence` in the row (from 1; 0 if the row has no words), the kept columns of the row, and FIELDS. Places are characters of
the row.
"""

import csv
import json
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from phrasemodels.data.formats.conllu import conllu_sentences, read_conllu
from phrasemodels.data.formats.lines import Line, lines, lines_with_replacements
from phrasemodels.parsing.words import Sentences, by_spaces, undivided

if TYPE_CHECKING:
    from phrasemodels.parsing.parser import Parse, Parser

_WORDS, _PLACES = pa.list_(pa.string()), pa.list_(pa.int32())
_PHRASE = pa.struct({"label": pa.string(), "start": pa.int32(), "end": pa.int32()})
BEFORE = {"file": pa.string(), "row": pa.int64(), "sentence": pa.int32()}
FIELDS = {
    **{"start": pa.int32(), "end": pa.int32(), "text": pa.string()},
    **{"tokens": _WORDS, "starts": _PLACES, "ends": _PLACES, "lemmas": _WORDS, "tags": _WORDS, "universal": _WORDS},
    **{"features": _WORDS, "heads": _PLACES, "relations": _WORDS},  # heads count from 1; 0 is the root
    **{"phrases": pa.list_(_PHRASE), "tree": pa.string(), "note": pa.string()},  # of words [start, end), from 0
}
NO_SENTENCE: dict[str, Any] = {  # of a row without words
    name: [] if pa.types.is_list(kind) else "" if kind == pa.string() else None for name, kind in FIELDS.items()
}
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")  # of tables that are read
BINARY = ("arrow", "parquet")
FORMATS = ("brackets", "conllu", "jsonl", *BINARY)
LONGEST_PARAGRAPH = 1 << 20  # characters; a longer one is cut at the end of a line
BATCH = 4096  # rows that are written at once
LONGEST_CELL = 1 << 24  # characters of a cell of CSV
T = TypeVar("T")


def _batched(items: Iterable[T]) -> Iterator[list[T]]:
    items = iter(items)
    while some := list(islice(items, BATCH)):
        yield some


class Row(NamedTuple):
    """A text of a table, with its number, from 1, and its kept columns."""

    number: int
    text: str
    kept: Mapping[str, Any]


# texts, how they are divided, texts of a batch
ParseTexts = Callable[[Iterator[str], str, int], "Iterator[list[Parse]]"]


def splits(parser: "Parser") -> dict[str, Sentences]:
    """Return how the texts of each kind of input are divided."""
    whole = undivided(parser.split)
    return {"text": parser.split, "lines": parser.split, "sentences": whole, "tokens": by_spaces}


class Table(NamedTuple):
    """The text column of a table, and the columns to keep."""

    column: str
    kept: tuple[str, ...] = ()


class Answer(NamedTuple):
    """The parses of a row: a line, a block of lines or a row of a table.

    line: the number of the row, of a block its first line. conllu: the lines as read. kept: columns of the row.
    """

    line: int
    parses: "list[Parse]"
    conllu: Sequence[Line] = ()
    file: str = ""
    kept: Mapping[str, Any] = {}


def written(answer: Answer, form: str, prefix: str = "") -> Iterator[str]:
    """Yield the lines of an answer: an empty one without words, but in CoNLL-U. Given CoNLL-U keeps its unpredicted columns.

    prefix: of the names of sentences. A name is the number of the line and of the sentence beginning in it.
    """
    if form == "jsonl":
        kept = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in answer.kept.items()}
        made = records(answer._replace(kept=kept))  # JSON has no NaN
        yield from (json.dumps(record, ensure_ascii=False, default=str) for record in made)
    elif form == "conllu":
        for count, found in enumerate(answer.parses, 1):
            yield found.conllu(f"{prefix}{answer.line}-{count}", answer.conllu)
    else:
        yield from (found.brackets for found in answer.parses) if answer.parses else [""]


def answers(
    parser: "Parser",
    file: Path,
    read: str,
    batch: int,
    parse_texts: ParseTexts | None = None,
    table: Table | None = None,
) -> Iterator[Answer]:
    """Yield the parses of each paragraph, line or row of a file."""
    where = "stdin" if str(file) == "-" else str(file)
    rows: Iterable[Row]
    if table:
        rows, read = rows_of(file, *table), "text" if read == "auto" else read
    else:
        found = lines_with_replacements(file, warn)
        if read == "auto":
            found, read = recognised(found, file)
        if read == "conllu":
            yield from conllu_answers(parser, found, where, batch)
            return
        rows = (Row(number, text, {}) for number, text in (blocks(found) if read == "text" else found))
    waiting: deque[Row] = deque()

    def texts() -> Iterator[str]:
        for row in rows:
            waiting.append(row)
            yield row.text

    given = parse_texts or (lambda texts, split, batch: parser.parse_each(texts, splits(parser)[split], batch))
    for parses in given(texts(), read, batch):
        row = waiting.popleft()
        yield Answer(row.number, parses, (), where, row.kept)


def conllu_answers(parser: "Parser", lines: Iterable[Line], where: str, batch: int) -> Iterator[Answer]:
    """Yield the parse of each sentence of CoNLL-U, and before an error of all sentences above the broken line."""
    broken: list[ValueError] = []
    waiting: deque[list[Line]] = deque()

    def tokens() -> Iterator[list[str]]:
        for own in conllu_sentences(lines):
            try:
                (sentence,) = read_conllu(own, where)
            except ValueError as error:
                broken.append(error)
                return
            waiting.append(own)
            yield sentence.tokens

    for found in parser.parse_tokens(tokens(), batch):
        own = waiting.popleft()
        yield Answer(own[0].number, [found], own, where)
    if broken:
        raise broken[0]


def warn(text: str) -> None:
    """Print a line on stderr at once."""
    print(text, file=sys.stderr, flush=True)


def recognised(lines: Iterator[Line], file: Path) -> tuple[Iterator[Line], str]:
    """Return the lines, and their kind.

    It is `conllu` by the file's name, or if the first line without a comment has ten columns. Else it is `text`.
    """
    if file.suffix.lower() in (".conllu", ".conllup"):
        return lines, "conllu"
    seen = []
    for line in lines:
        seen.append(line)
        if line.text.strip() and not line.text.startswith("#"):
            break
    fields = seen[-1].text.split("\t") if seen else []
    if len(fields) != 10 or not fields[0].replace("-", "").replace(".", "").isdecimal():
        return chain(seen, lines), "text"
    warn("this is read as CoNLL-U; --input text reads it as text")
    return chain(seen, lines), "conllu"


def blocks(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines between empty lines as one text, with the number of the first of them."""
    waiting: list[Line] = []
    size = 0
    for line in lines:
        if line.text.strip():
            waiting.append(line)
            size += len(line.text)
        if waiting and (not line.text.strip() or size > LONGEST_PARAGRAPH):
            yield waiting[0]._replace(text="\n".join(one.text for one in waiting))
            waiting, size = [], 0
    if waiting:
        yield waiting[0]._replace(text="\n".join(one.text for one in waiting))


def write(
    answers: Iterable[Answer],
    to: IO[bytes],
    form: str,
    kept: pa.Schema | None = None,
    several: bool = False,
    shown: Callable[[str], str] = str,
    flush: bool = False,
) -> None:
    """Write answers in a format.

    kept: the types of kept columns. several: the names of sentences begin with their file. shown: the shown form of a line.
    flush: each at once.
    """
    if form in BINARY:
        write_table(chain.from_iterable(map(records, answers)), to, kept, form)
        return
    for answer in answers:
        for line in written(answer, form, f"{Path(answer.file).stem}-" if several else ""):
            to.write(f"{shown(line)}\n".encode())
        if flush:
            to.flush()


def records(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield a record for each sentence of a row. A row without words has one record."""
    found = [parse.record() for parse in answer.parses] or [NO_SENTENCE]
    for number, record in enumerate(found, 1):
        before = {"file": answer.file, "row": answer.line, "sentence": number if answer.parses else 0}
        yield {**before, **answer.kept, **record}


def schema(kept: pa.Schema | None = None) -> pa.Schema:
    """Return the schema of records. ValueError: a kept column has the name of another."""
    for name in kept.names if kept else ():
        if name in BEFORE or name in FIELDS:
            raise ValueError(f"column {name!r} has the name of a column of the parses: give it another name")
    return pa.schema([*BEFORE.items(), *(kept or ()), *FIELDS.items()])


def write_table(records: Iterable[Mapping[str, Any]], to: IO[bytes], kept: pa.Schema | None, form: str) -> None:
    """Write records as Parquet or as an Arrow IPC file, some at a time."""
    wanted = schema(kept)
    made = pq.ParquetWriter(to, wanted, compression="zstd") if form == "parquet" else pa.ipc.new_file(to, wanted)
    with made as writer:
        for some in _batched(records):
            writer.write_batch(pa.RecordBatch.from_pylist(some, wanted))


def rows_of(file: Path, column: str, kept: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the texts of a column of CSV, TSV, JSON lines or Parquet in turn. A missing text is empty.

    ValueError: the column is missing, a text is something else, or the table cannot be read. The message names the row.
    """
    for number, row in enumerate(_dictionaries(file, [column, *kept]), 1):
        if missing := [name for name in (column, *kept) if name not in row]:
            raise ValueError(f"{file}, row {number}: no column {missing[0]!r}; there are {', '.join(map(str, row))}")
        yield Row(number, _text(row[column], f"{file}, row {number}: {column}"), {name: row[name] for name in kept})


def _text(value: Any, where: str) -> str:
    """Return a cell as text. A missing one is empty. ValueError: it is something else, or has a NUL byte."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{where} is {str(value)[:20]}, which is no text")
    if "\0" in value:
        raise ValueError(f"{where} has a NUL byte, which is no text: remove it")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON may have halves of characters
        warn(f"{where} has half a character: it is read as \ufffd")
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    return value


def types_of(file: Path, kept: Sequence[str]) -> pa.Schema:
    """Return the types of columns of a table. JSON lines are read for them. ValueError: a column has values of several types."""
    if not kept or file.suffix.lower() in (".csv", ".tsv"):
        return pa.schema([(name, pa.string()) for name in kept])
    try:
        if file.suffix.lower() == ".parquet":
            found = pq.read_schema(file)
            _check_once(file, kept, found.names)
            return pa.schema([found.field(name) for name in kept if name in found.names])
        own = ({name: row.get(name) for name in kept} for row in _dictionaries(file, kept))
        every = [pa.Table.from_pylist(some).schema for some in _batched(own)]
        return pa.unify_schemas(every, promote_options="permissive")
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(f"{file}: {', '.join(kept)}: no table, or values of several types ({error})") from error


def _dictionaries(file: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    ending = file.suffix.lower()
    if ending in (".csv", ".tsv"):
        yield from _csv(file, "\t" if ending == ".tsv" else ",", columns)
    elif ending == ".parquet":
        try:
            with pq.ParquetFile(file) as table:
                names = table.schema_arrow.names
                _check_once(file, columns, names)
                for some in table.iter_batches(BATCH, columns=[name for name in columns if name in names]):
                    yield from some.to_pylist() if set(columns) <= set(names) else [dict.fromkeys(names)]
        except pa.ArrowException as error:
            raise ValueError(f"{file}: not a whole Parquet file ({error})") from error
    elif ending in ENDINGS:
        for line in filter(lambda line: line.text.strip(), lines(file)):
            try:
                row = json.loads(line.text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{file}, line {line.number}: no JSON ({error})") from error
            if not isinstance(row, dict):
                raise ValueError(f"{file}, line {line.number}: no JSON object")
            yield row
    else:
        raise ValueError(f"{file}: a table's name ends with {', '.join(ENDINGS)}")


def _check_once(file: Path | str, columns: Sequence[str], names: Sequence[str]) -> None:
    for name in columns:
        if list(names).count(name) > 1:
            raise ValueError(f"{file}: two columns are named {name!r}: give one another name")


def _csv(file: Path, delimiter: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    before, rows = csv.field_size_limit(LONGEST_CELL), None
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            rows = csv.DictReader(opened, delimiter=delimiter, strict=True)
            _check_once(file, columns, rows.fieldnames or ())
            for number, row in enumerate(rows, 1):
                if None in row:
                    raise ValueError(f"{file}, row {number}: more cells than the header has")
                if missing := [name for name, cell in row.items() if cell is None]:
                    raise ValueError(f"{file}, row {number}: fewer cells than the header has, none of {missing[0]!r}")
                yield row
    except (csv.Error, UnicodeDecodeError) as error:
        where = f"{file}, line {rows.reader.line_num}" if rows else file
        raise ValueError(f"{where}: no {'TSV' if delimiter != ',' else 'CSV'} in UTF-8 ({error})") from error
    finally:
        csv.field_size_limit(before)


def parse_table(parser: "Parser", table: Any, column: str = "text", keep: Sequence[str] = (), batch: int = 256) -> Any:
    """Return the parses of the texts of a table, as a table of the same kind: see `Parser.parse_table`."""
    is_pandas, has_columns = hasattr(table, "iloc"), hasattr(table, "columns")
    if isinstance(table, str | list | tuple) or (is_pandas and not has_columns):
        raise TypeError(
            f"a {type(table).__name__} is no table: give a table of Arrow or pandas, or parse a list of texts"
        )
    is_arrow = not is_pandas
    keep = [keep] if isinstance(keep, str) else list(keep)
    table = pa.table(table) if is_arrow else table
    names = table.column_names if is_arrow else list(table.columns)
    for name in (column, *keep):
        if name not in names:
            raise ValueError(f"no column {name!r}; there are {', '.join(map(str, names))}")
    _check_once("the table", [str(name) for name in (column, *keep)], [str(name) for name in names])
    own = table[column]
    values = own.to_pylist() if is_arrow else own.astype(object).where(own.notna(), None)
    texts = [_text(value, f"row {row}: {column}") for row, value in enumerate(values, 1)]
    kept = table.select(list(keep)) if is_arrow else pa.table({str(name): pa.nulls(len(table)) for name in keep})
    wanted = schema(kept.schema)
    every = zip(kept.to_pylist() if keep else [{}] * len(texts), parser.parse_each(texts, batch=batch), strict=True)
    found = chain.from_iterable(records(Answer(row, parses, (), "", own)) for row, (own, parses) in enumerate(every, 1))
    made = pa.Table.from_batches((pa.RecordBatch.from_pylist(some, wanted) for some in _batched(found)), wanted)
    made = made.drop_columns("file")
    if is_arrow:
        return made
    import pandas as pd

    whole = made.select(["start", "end"]).to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get)
    own = table[[*keep]].iloc[made["row"].to_numpy() - 1].reset_index(drop=True)  # as they are, ids of any type among them
    places = {"start": whole["start"], "end": whole["end"]}  # no fractions beside a missing text
    return made.to_pandas().assign(**places, **{str(name): own[name] for name in own})
