"""SQL over runs, artifacts and verdicts, in a DuckDB that can read nothing else and write nothing; answers as DataFrames."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

import phrasemodels.infra.environment  # noqa: F401
from phrasemodels.data.download.manifest import closest
from phrasemodels.data.formats.shards import read_shard, write_parquet
from phrasemodels.data.store.artifacts import atomic_replace
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.columns import VIEWS, parquet_path, schema_of
from phrasemodels.flows.results.records import limited_memory, open_to_read
from phrasemodels.infra.tracking import Tracker
from phrasemodels.written import writing_folder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


# SQL: phrases per sentence and words per phrase at each level, beside those that Table 1 of paper 001 prints for the corpus
TABLE_1 = r"""
with ours as (
    select label, key, level, round(avg(phrases), 2) as phrases, round(sum(words) / sum(phrases), 2) as words
    from levels where words > 0 group by all
), paper as (
    select replace(dataset, 'SICK-E', 'SICK') as dataset, regexp_extract(variant, '\d')::int as level,
        max(value) filter (printed_metric = 'phrases_per_sentence') as phrases,
        max(value) filter (printed_metric = 'words_per_phrase') as words
    from published where paper = '001' and table_ = 'Table 1' and variant like 'layer%' group by all
)
select label, ours.level, ours.phrases, ours.words, paper.phrases as published_phrases, paper.words as published_words,
    key
from ours left join paper on paper.level = ours.level and regexp_matches(label, '\b' || dataset || '\b')
order by label, key, ours.level
"""

# SQL: views of the file that `write_database` writes
VIEWS_OF_TABLES = {
    "counts": "select paper, verdict, count(*) as numbers from verdicts group by all order by all",
    "answers": "select paper, table_, system, variant, dataset, metric, printed, ours, half_width, seeds, verdict, reason "
    "from verdicts where ours is not null order by number",
    "levels_of_corpora": TABLE_1,
}
CHANGES = {"ALTER", "DELETE", "DROP", "INSERT", "MERGE_INTO", "UPDATE"}  # kinds of statements
MEMORY = "4GB"  # of a question
EMPTY = "the question is empty: ask one, like select * from verdicts"
T = TypeVar("T")


def query(store: Store, tracker: Tracker, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a question. ValueError: the question is wrong; the message names the nearest name.

    Columns have unique names: the second `key` is `key_1`."""
    return answered(store, tracker, sql, _rows_of)


def _rows_of(connection: "DuckDBPyConnection", sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    connection.execute(sql)
    if connection.description is None:
        raise ValueError(EMPTY)
    return _unique([column[0] for column in connection.description]), connection.fetchall()


def arrow_of(connection: "DuckDBPyConnection", sql: str) -> pa.Table:
    """Return the answer to a question as an Arrow table; whole numbers are int64 if all of a column fit."""
    if (relation := connection.sql(sql)) is None:
        raise ValueError(EMPTY)
    found = relation.to_arrow_table()
    return pa.table(list(map(_narrow, found.columns)), names=_unique(found.column_names))


def _narrow(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        with suppress(pa.ArrowInvalid):  # a number is too large
            return column.cast(pa.int64())
    return column


def answered(store: Store, tracker: Tracker, sql: str, ask: Callable[["DuckDBPyConnection", str], T]) -> T:
    """Return what `ask` makes of a question. ValueError: the question is wrong.

    The connection reads and writes no files, loads no extensions,
    and cannot be reconfigured. All views are there, so that they can be listed; those that the question does not name are
    empty, because to build them takes time.
    """
    import duckdb

    if sql.encode(errors="ignore").decode() != sql:
        raise ValueError("the question is no UTF-8: write it again")
    named = [name for name in VIEWS if name in sql.lower()]
    empty = {name: schema_of(name).empty_table() for name in VIEWS}
    try:
        statements = duckdb.extract_statements(sql)
        if any(statement.type.name in CHANGES for statement in statements):
            raise ValueError("the question changes tables, which are copies: ask one, like select * from verdicts")
        if len(statements) > 1:
            raise ValueError(f"these are {len(statements)} questions: ask one at a time")
        if "pivot" not in sql.lower():  # whose columns are those of the rows
            _answer(empty, sql, ask)  # a mistake is found at once: to build a view may take seconds
        named = _named(sql)
        return _answer(empty | {name: _rows(name, store, tracker) for name in named}, sql, ask)
    except duckdb.Error as error:
        raise ValueError(explained(str(error), named)) from error


def _named(sql: str) -> list[str]:
    """Return the views that a question reads; if DuckDB can't tell, those whose names occur in it, or all if it computes names."""
    import duckdb

    try:
        with duckdb.connect(":memory:") as connection:
            for name, view in VIEWS.items():
                columns = ", ".join(f'"{column}" {kind}' for column, kind in view.columns.items())
                connection.execute(f"create table {name} ({columns})")
            read = {name.lower() for name in connection.get_table_names(sql)}
    except duckdb.Error:  # of a pivot, which is several statements, or of query_table
        computed = re.search(r"\bquery(_table)?\s*\(", sql.lower())
        read = {name for name in VIEWS if computed or name in sql.lower()}
    return [name for name in VIEWS if name in read]


def _answer(tables: dict[str, pa.Table], sql: str, ask: Callable[["DuckDBPyConnection", str], T]) -> T:
    import duckdb

    closed: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": "",
        "memory_limit": MEMORY,
    }
    with duckdb.connect(":memory:", config=closed) as connection:
        for name, rows in tables.items():  # not copied: a question reads the columns that it names, of mapped files
            connection.register(name, rows)
        connection.execute("set python_enable_replacements = false")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        with limited_memory():  # the rows of an answer are not DuckDB's
            return _interruptibly(connection, partial(ask, connection, sql))


def _interruptibly(connection: "DuckDBPyConnection", work: Callable[[], T]) -> T:
    """Return what `work` returns. Ctrl-C ends its question at once, which DuckDB by itself may work at for ever."""
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(work)
        try:
            while not wait([found], 0.1).done:  # the signal may reach another thread, which does not end this wait
                pass
            return found.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


LARGE = ("sentence_scores",)  # views of millions of rows, which are made only for a question that names them


def write_database(store: Store, tracker: Tracker, to: Path) -> Path:
    """Write all views but LARGE as the tables of a DuckDB file, and the questions of VIEWS_OF_TABLES as its views; return its
    path."""
    import duckdb

    if str(to).encode(errors="ignore").decode() != str(to):
        raise ValueError(f"{str(to)!r}: DuckDB takes no file whose name is not UTF-8: choose another name")
    try:
        # DuckDB writes a second file beside the first, and leaves it if the disk is full
        with atomic_replace(to) as path, tempfile.TemporaryDirectory(dir=to.parent, prefix=".") as folder:
            with duckdb.connect(Path(folder) / "views") as connection:
                _write_views(connection, store, tracker)
            os.replace(Path(folder) / "views", path)
    except duckdb.Error as error:
        raise OSError(f"{to} could not be written: {str(error).splitlines()[0].rpartition(': ')[2]}") from error
    return to


def _write_views(connection: "DuckDBPyConnection", store: Store, tracker: Tracker) -> None:
    for name, view in ((name, view) for name, view in VIEWS.items() if name not in LARGE):
        connection.register(f"_{name}", _rows(name, store, tracker))
        _interruptibly(connection, partial(connection.execute, f"create table {name} as select * from _{name}"))
        connection.unregister(f"_{name}")
        connection.execute(f"comment on table {name} is '{view.row.replace(chr(39), chr(39) * 2)}'")
    for name, question in VIEWS_OF_TABLES.items():
        connection.execute(f"create view {name} as {question}")


def write_shards(store: Store, to: str, force: bool = False) -> str:
    """Write the files of the view `shards` as Parquet below a folder or URL, by their column `parquet`; return it.

    Their metadata has the terms of the corpora. ValueError: there are other files, and `force` is false.
    """
    from phrasemodels.data.store.shared import Bucket

    if "://" not in to:
        with writing_folder(Path(to), force) as folder:
            for name, table in _records(store):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_parquet(folder / name, table)
        return to
    bucket = Bucket(to)
    if bucket.listed() and not force:
        raise ValueError(f"{to}: holds files already; name another place, or use --force (in Python force=True)")
    with tempfile.TemporaryDirectory() as temporary:
        for name, table in _records(store):
            write_parquet(Path(temporary, "shard"), table)
            bucket.put(Path(temporary, "shard"), *name.split("/"))
    return to


def _records(store: Store) -> Iterator[tuple[str, pa.Table]]:
    """Yield the path of the Parquet file and the records of each shard in the store."""
    for artifact in store.all_artifacts():
        for shard in artifact.meta.get("shards", []):
            terms = {name: str(artifact.meta[name]) for name in ("licences", "redistributable", "stand_in")}
            yield (
                parquet_path(artifact, shard["file"]),
                read_shard(artifact.file(shard["file"])).replace_schema_metadata(terms),
            )


def _rows(view: str, store: Store, tracker: Tracker) -> pa.Table:
    """Return the rows of a view; the code of all rows is imported only if a question names a view."""
    from phrasemodels.flows.results import views

    rows: pa.Table = getattr(views, view)(store, tracker)
    return rows


def _unique(names: list[str]) -> list[str]:
    """Return the names, with a number after each that is there before, in any case: key, Key, key_1 -> key, Key_2, key_1."""
    taken = {name.lower() for name in names}
    found: dict[str, str] = {}  # by the name in lower case
    for name in names:
        new, count = name, 0
        while new.lower() in found or (count and new.lower() in taken):
            count += 1
            new = f"{name}_{count}"
        found[new.lower()] = new
    return list(found.values())


_COLUMN = re.compile(
    r'(?:column named|Referenced column|table column) "([^"]+)"|does not have a column named "([^"]+)"'
)
_TABLE = re.compile(r"Table with name (\S+) does not exist")


def explained(error: str, named: list[str]) -> str:
    """Return an error of DuckDB as one line with the nearest column or view. named: the views of the question."""
    if found := _TABLE.search(error):
        near = closest(found[1], VIEWS)
        return f"no view {found[1]!r}: {near if near.startswith('did') else '`show tables` lists the views'}"
    if found := _COLUMN.search(error):
        column = found[1] or found[2]
        owners = {name: view for view in named or VIEWS for name in VIEWS[view].columns}
        near = closest(column.split(".")[-1], owners)
        listed = " and ".join(f"`describe {view}`" for view in named) or "`show tables`"
        return f"no column {column!r}: {f'{near}; ' if near.startswith('did') else ''}{listed} lists what there is"
    said = next(line for line in error.splitlines() if line.strip())
    if said.startswith("Out of Memory"):
        return f"{said}; a question may take {MEMORY}: ask for less at a time"
    place = next((line.split(":", 1)[1].strip() for line in error.splitlines() if line.startswith("LINE ")), "")
    return f"{said}{f', in: {place}' if place else ''}; `show tables` lists the views"


PACKAGES = {"polars": "polars", "pandas": "pandas", "arrow": "pyarrow"}  # of kinds, the preferred one first


def frame(question: str, kind: str = "") -> Any:
    """Return a view by name, or the answer to a query. ValueError: the kind is unknown or not installed, or the question
    is wrong."""
    chosen = kind or next(name for name, package in PACKAGES.items() if find_spec(package))
    if chosen not in PACKAGES:
        raise ValueError(f"kind {kind!r}: {closest(kind, PACKAGES)}")
    if not find_spec(PACKAGES[chosen]):
        raise ValueError(f"{chosen} is not installed: pip install {PACKAGES[chosen]}")
    if not isinstance(question, str):
        raise ValueError(f"{question!r} is no question: name a view, such as 'verdicts', or write a query")
    if question.isidentifier() and question not in VIEWS:
        raise ValueError(f"no view {question!r}: {closest(question, VIEWS)}")
    sql = f"select * from {question}" if question in VIEWS else question
    table = answered(*open_to_read(), sql, arrow_of)
    if chosen == "pandas":
        return table.to_pandas()
    if chosen == "polars":
        import polars

        return polars.from_arrow(table)
    return table
