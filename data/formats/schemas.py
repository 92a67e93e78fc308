"""The record types that travel through the pipeline, as Arrow schemas.

No column is ever null: a missing value is an empty string or an empty list. `id` is the row's place in the file that
it was read from, from 0. `group` names a subset to be scored apart, or is empty. `reason` says why a row, or one of
its analyses, cannot be used, and is empty for all others: such rows are kept, so that they can be counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


_tokens = _list(pa.string())


def _record(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


# A sentence and its translation, or its logical form.
BITEXT = _record(id=pa.int64(), source=pa.string(), target=pa.string(), group=pa.string())

# The same, divided into tokens.
TOKENS = _record(id=pa.int64(), source=_tokens, target=_tokens, group=pa.string())

# Tokens and a part of speech for each.
TAGGED = _record(id=pa.int64(), tokens=_tokens, tags=_tokens, group=pa.string(), reason=pa.string())

# Two sentences and how they are related: a label, or a score (0 where there is a label). Pairs of one `family` share
# the premise. Trees are Penn brackets with the premise's or hypothesis' words as leaves; binary ones have no labels.
PAIRS = _record(
    id=pa.int64(),
    premise=pa.string(),
    hypothesis=pa.string(),
    label=pa.string(),
    score=pa.float64(),
    family=pa.int64(),
    premise_tree=pa.string(),
    hypothesis_tree=pa.string(),
    premise_binary=pa.string(),
    hypothesis_binary=pa.string(),
    group=pa.string(),
    reason=pa.string(),
)

# A sentence and its class. `tree` is brackets, where the corpus has them.
SENTENCES = _record(
    id=pa.int64(), text=pa.string(), label=pa.string(), tree=pa.string(), group=pa.string(), reason=pa.string()
)

# A question about a story: the facts told before it, by their lines in the story (ascending, from 1), and the answer.
# `support` holds the places in `facts` (from 0) that the answer needs, in the order of the corpus.
STORIES = _record(
    id=pa.int64(),
    task=pa.string(),
    story=pa.int64(),
    facts=_tokens,
    lines=_list(pa.int32()),
    question=pa.string(),
    answer=pa.string(),
    support=_list(pa.int32()),
    group=pa.string(),
    reason=pa.string(),
)

# A sentence of n tokens with its analyses; what a corpus lacks, or has wrong for this row, is empty. `tags` are Penn
# tags, `universal` those of Universal Dependencies. `tree` is Penn brackets `(ROOT (S (NP (DT the) ...` without
# traces or function tags; `heads` count tokens from 1, with 0 for the root.
TREES = _record(
    id=pa.int64(),
    tokens=_tokens,
    tags=_tokens,
    universal=_tokens,
    tree=pa.string(),
    heads=_list(pa.int32()),
    relations=_tokens,
    group=pa.string(),
    reason=pa.string(),
)

SCHEMAS = {
    "bitext": BITEXT,
    "tagged": TAGGED,
    "pairs": PAIRS,
    "sentences": SENTENCES,
    "stories": STORIES,
    "trees": TREES,
}


def phrase_schema(width: int) -> pa.Schema:
    """Token ids, and phrases by the positions of their words: `width` of them, filled up with -1."""
    ids = _list(pa.int32())
    return _record(id=pa.int64(), source=ids, target=ids, phrases=_rows(width), group=pa.string())


def level_schema(levels: int) -> pa.Schema:
    """For each token the number of its phrase at each of so many levels, from 0 in every sentence."""
    return _record(id=pa.int64(), levels=_rows(levels), group=pa.string(), reason=pa.string())


def _rows(width: int) -> pa.DataType:
    return _list(pa.list_(pa.field("item", pa.int32(), nullable=False), width))


def check(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """The table, if it has exactly this schema and no nulls; else a ValueError that names `where` and the column."""
    if not table.schema.equals(schema):
        raise ValueError(f"{where}: columns {table.schema.names} do not match {schema.names} (or their types differ)")
    for name in schema.names:
        if (row := _null(table[name])) is not None:
            raise ValueError(f"{where}: column {name!r} is null in row {row}")
    return table


def _null(column: pa.ChunkedArray) -> int | None:
    """The row of a null, which may be inside of a list; None if there is none."""
    if column.null_count:
        return pc.index(pc.is_null(column), True).as_py()
    if not (pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)):
        return None
    item = _null(pc.list_flatten(column))
    return None if item is None else pc.list_parent_indices(column.combine_chunks())[item].as_py()


def build(schema: pa.Schema, where: str, columns: Mapping[str, Any], rows: int) -> pa.Table:
    """A table of these columns; a column that is not given is `id` from 0, or empty."""
    arrays = [_column(field, columns.get(field.name), rows) for field in schema]
    return check(pa.Table.from_arrays(arrays, schema=schema), schema, where)


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Rows as columns of these names."""
    rows = list(rows)
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _column(field: pa.Field, values: Any, rows: int) -> pa.Array:
    if values is None:
        empty: Any = [] if pa.types.is_list(field.type) else "" if pa.types.is_string(field.type) else 0
        values = range(rows) if field.name == "id" else [empty] * rows
    return pa.array(values, field.type)
