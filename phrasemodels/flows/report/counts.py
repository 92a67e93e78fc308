"""The HTML page of a table that is counted: every number as it is printed, ours, and the verdict. It is one file."""

from phrasemodels.flows.report.templates import render
from phrasemodels.flows.results.finished import FinishedTable


def counts_text(finished: FinishedTable) -> str:
    """Return the page of a table that is counted."""
    compared = finished.comparison.meta
    return render("counts.html.jinja", table=finished.table, rows=compared["rows"], licences=compared["licences"])
