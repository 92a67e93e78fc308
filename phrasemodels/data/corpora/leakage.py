"""Leakage: the number of test records in the training set, and repeated records of a split."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.corpora.readers import reasons
from phrasemodels.data.formats.shards import BATCH_ROWS, DIGEST_BYTES, as_integers, digests

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
    """Counts of the rows of a split, in 16 bytes a row: unusable rows by reason, and digests of the records."""

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
    """Return the counts of tables, at least one, as one."""
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
