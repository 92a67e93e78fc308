"""The record types that travel through the pipeline, as Arrow schemas.

No column is ever null: a missing value is an empty string or an empty list.
"""

import pyarrow as pa
import pyarrow.compute as pc

_tokens = pa.list_(pa.field("item", pa.string(), nullable=False))


def _record(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


# A sentence and its translation (or its logical form). `group` names a subset to be scored apart, or is empty.
BITEXT = _record(id=pa.int64(), source=pa.string(), target=pa.string(), group=pa.string())

# The same, divided into tokens.
TOKENS = _record(id=pa.int64(), source=_tokens, target=_tokens, group=pa.string())


def phrase_schema(width: int) -> pa.Schema:
    """Token ids, and phrases by the positions of their words: `width` of them, filled up with -1."""
    ids = pa.list_(pa.field("item", pa.int32(), nullable=False))
    members = pa.list_(pa.field("item", pa.list_(pa.field("item", pa.int32(), nullable=False), width), nullable=False))
    return _record(id=pa.int64(), source=ids, target=ids, phrases=members, group=pa.string())


def check(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """The table, if it has exactly this schema and no nulls; else a ValueError that names `where` and the column."""
    if not table.schema.equals(schema):
        raise ValueError(f"{where}: columns {table.schema.names} do not match {schema.names} (or their types differ)")
    for name in schema.names:
        if table[name].null_count:
            row = pc.index(pc.is_null(table[name]), True).as_py()
            raise ValueError(f"{where}: column {name!r} is null in row {row}")
    return table
