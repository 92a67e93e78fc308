"""The HTML page of a table that is counted: every number as it is printed, ours, and the verdict. It is one file."""

from pathlib import Path

from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.flows.report.templates import render
from phrasemodels.flows.results.finished import FinishedTable


def write_counts(finished: FinishedTable, page: Path | None = None) -> Path:
    """Write the page into the folder `reports` of the store, and to `page`, the page of a run; return the first path."""
    table, compared = finished.table, finished.comparison
    text = render("counts.html.jinja", table=table, rows=compared.meta["rows"], licences=compared.meta["licences"])
    path = finished.store.root / "reports" / f"{table.slug}.html"
    for place in (path, page) if page else (path,):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_durably(place, text)
    return path
