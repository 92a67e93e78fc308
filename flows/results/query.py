"""SQL over runs, artifacts and verdicts, in a DuckDB that can read nothing else and write nothing."""

import re
from typing import Any

import pyarrow as pa

from phrasemodels.data.download.manifest import closest
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.columns import VIEWS
from phrasemodels.flows.results.tables import schema_of
from phrasemodels.infra.tracking import Tracker

# SQL: phrases per sentence and words per phrase at each level, beside those that Table 1 of paper 001 prints for the corpus
TABLE_1 = r"""
with ours as (
    select label, level, round(avg(phrases), 2) as phrases, round(sum(words) / sum(phrases), 2) as words
    from levels where words > 0 group by all
), paper as (
    select replace(dataset, 'SICK-E', 'SICK') as dataset, regexp_extract(variant, '\d')::int as level,
        max(value) filter (printed_metric = 'phrases_per_sentence') as phrases,
        max(value) filter (printed_metric = 'words_per_phrase') as words
    from published where paper = '001' and table_ = 'Table 1' and variant like 'layer%' group by all
)
select label, ours.level, ours.phrases, ours.words, paper.phrases as published_phrases, paper.words as published_words
from ours left join paper on paper.level = ours.level and regexp_matches(label, '\b' || dataset || '\b')
order by label, ours.level
"""


def query(store: Store, tracker: Tracker, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a question. ValueError: the question is wrong; the message names the nearest name.

    Columns have unique names: the second `key` is `key_1`. The connection reads and writes no files, loads no extensions,
    and cannot be reconfigured. All views are there, so that they can be listed; those that the question does not name are
    empty, because to build them takes time.
    """
    import duckdb

    if sql.encode(errors="ignore").decode() != sql:
        raise ValueError("the question is no UTF-8: write it again")
    named = [name for name in VIEWS if name in sql.lower()]
    empty = {name: schema_of(name).empty_table() for name in VIEWS}
    try:
        _answer(empty, sql)  # a mistake is found at once: to build a view may take seconds
        return _answer(empty | {name: _rows(name, store, tracker) for name in named}, sql)
    except duckdb.Error as error:
        raise ValueError(explained(str(error), named)) from error


def _answer(tables: dict[str, pa.Table], sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    import duckdb

    closed: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": "",
    }
    with duckdb.connect(":memory:", config=closed) as connection:
        for name, rows in tables.items():
            connection.register(f"_{name}", rows)
            connection.execute(f"create table {name} as select * from _{name}")
            connection.unregister(f"_{name}")
        connection.execute("set python_enable_replacements = false")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        connection.execute(sql)
        if connection.description is None:
            raise ValueError("the question is empty: ask one, like select * from verdicts")
        return _unique([column[0] for column in connection.description]), connection.fetchall()


def _rows(view: str, store: Store, tracker: Tracker) -> pa.Table:
    """Return the rows of a view; its code is imported only if a question names it."""
    from phrasemodels.flows.results import views_of_data, views_of_runs

    rows: pa.Table = (getattr(views_of_runs, view, None) or getattr(views_of_data, view))(store, tracker)
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
    place = next((line.split(":", 1)[1].strip() for line in error.splitlines() if line.startswith("LINE ")), "")
    return f"{said}{f', in: {place}' if place else ''}; `show tables` lists the views"
