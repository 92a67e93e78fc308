"""Arrow tables of the views of SQL."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.columns import FLAG, NUMBER, TEXT, TIME, VIEWS, WHOLE, WORDS

TYPES = {
    TEXT: pa.string(),
    NUMBER: pa.float64(),
    WHOLE: pa.int64(),
    FLAG: pa.bool_(),
    WORDS: pa.list_(pa.string()),
    TIME: pa.timestamp("ms"),
}


def schema_of(view: str) -> pa.Schema:
    """Return the columns of a view."""
    return pa.schema([(name, TYPES[kind]) for name, kind in VIEWS[view].columns.items()])


def table(view: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Return a view of rows; a column that a row lacks is null, and other names are left out."""
    return pa.Table.from_pylist(list(rows), schema=schema_of(view))


def of_step(store: Store, step: str) -> list[Artifact]:
    """Return the artifacts of a step, oldest first."""
    return [artifact for artifact in store.all_artifacts() if artifact.manifest["step"] == step]
