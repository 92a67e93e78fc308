"""What was run as DataFrames: polars, pandas or Arrow, by what is installed."""

from importlib.util import find_spec
from typing import Any

import phrasemodels.infra.environment  # noqa: F401
from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.results.columns import VIEWS
from phrasemodels.flows.results.query import answered, arrow_of
from phrasemodels.flows.results.stores import opened_to_read

PACKAGES = {"polars": "polars", "pandas": "pandas", "arrow": "pyarrow"}  # of kinds, the preferred one first


def frame(question: str, kind: str = "") -> Any:
    """Return a view by name, or the answer to a query. ValueError: the kind is unknown or not installed, or the question
    is wrong."""
    chosen = kind or next(name for name, package in PACKAGES.items() if find_spec(package))
    if chosen not in PACKAGES:
        raise ValueError(f"kind {kind!r}: {closest(kind, PACKAGES)}")
    if not find_spec(PACKAGES[chosen]):
        raise ValueError(f"{chosen} is not installed: pip install {PACKAGES[chosen]}")
    sql = f"select * from {question}" if question in VIEWS else question
    table = answered(*opened_to_read(), sql, arrow_of)
    if chosen == "pandas":
        return table.to_pandas()
    if chosen == "polars":
        import polars

        return polars.from_arrow(table)
    return table
