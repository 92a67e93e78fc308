"""Answers of `sql`: names of columns are unique, and views are found in any case."""

import pytest

from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.query import query


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("select 1 as key, 2 as key, 3 as Key", ["key", "key_1", "Key_2"]),
        ("select 1 as key, 2 as key_1, 3 as key, 4 as key_1", ["key", "key_1", "key_2", "key_1_1"]),
        ("select a.n, b.n from (select 1 as n) a, (select 2 as n) b", ["n", "n_1"]),
        ("select 1 as a, 2 as b", ["a", "b"]),
    ],
)
def test_columns_of_an_answer_have_unique_names(question: str, names: list[str], store: Store) -> None:
    columns, (row,) = query(store, None, question)  # type: ignore[arg-type]
    assert columns == names and list(row) == list(range(1, len(names) + 1))


def test_views_are_found_in_any_case(store: Store) -> None:
    (row,) = query(store, None, "SELECT count(*) > 400 FROM Published")[1]  # type: ignore[arg-type]
    assert row == (True,)


def test_views_are_read_where_they_are_and_not_copied(store: Store) -> None:
    assert query(store, None, "select count(*) from duckdb_tables()")[1] == [(0,)]  # type: ignore[arg-type]
    assert ("published",) in query(store, None, "show tables")[1]  # type: ignore[arg-type]
