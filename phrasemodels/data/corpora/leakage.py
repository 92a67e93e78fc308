"""Leakage: how many test records also occur in the training set."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

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


def leakage(train: pa.Table, test: pa.Table, columns: Sequence[str] = ()) -> Leak:
    """Count test records whose columns equal those of a training record; by default the columns of `content`."""
    columns = columns or content(test)
    shared = pc.sum(pc.is_in(_keys(test, columns), _keys(train, columns))).as_py()
    return Leak(shared or 0, test.num_rows)


def content(table: pa.Table) -> tuple[str, ...]:
    """Return the columns that hold the text of a record: not its id, group, label and analyses."""
    return next(columns for first, columns in CONTENT.items() if first in table.column_names)


def _keys(table: pa.Table, columns: Sequence[str]) -> pa.Array:
    return pc.binary_join_element_wise(*(_text(table[name].combine_chunks()) for name in columns), SEPARATORS[1])


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        return pc.binary_join(column.cast(pa.list_(pa.string())), SEPARATORS[0])
    return column
