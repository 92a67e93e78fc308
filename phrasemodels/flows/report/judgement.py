"""The HTML page of a foreign paper: verdicts on its printed numbers, tests, plots. It is one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.flows.experiments.published import VERDICTS
from phrasemodels.flows.report import digits_of, render
from phrasemodels.flows.report.plots import differences, intervals
from phrasemodels.verdicts.judgement import Judged, JudgedGain, Read, plain
from phrasemodels.verdicts.scores import Scores

MARK = b'<meta name="generator" content="phrasemodels">'
MOST_ROWS = 40  # of a plot
Group = tuple[str, str, str, str]  # paper, table, data set, metric


def is_page(path: Path) -> bool:
    """Return whether a file is a page that was written here, so that another one may take its place."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK in file.read(500)


def write_judgement(
    judged: Sequence[Judged],
    left: Sequence[Scores],
    to: Path,
    gains: Sequence[JudgedGain] = (),
    read: Sequence[Read] = (),
    unread: Sequence[str] = (),
) -> Path:
    """Write the page of judged numbers.

    Args:
        judged: The numbers.
        left: Scores without a printed number.
        to: The file.
        gains: Judged claims.
        read: How the files were read.
        unread: Unread parts, a line each.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    write_durably(to, judgement_text(judged, left, gains, read, unread))
    return to


def judgement_text(
    judged: Sequence[Judged],
    left: Sequence[Scores] = (),
    gains: Sequence[JudgedGain] = (),
    read: Sequence[Read] = (),
    unread: Sequence[str] = (),
) -> str:
    """Return the page of judged numbers. See `write_judgement`."""
    rows: list[dict[str, Any]] = [plain(one) for one in judged]
    groups: dict[Group, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["paper"], row["table"], row["dataset"], row["metric"]), []).append(row)
    for found in groups.values():
        shown = max(digits_of(row["value"]) for row in found)
        for row in found:
            row["digits"] = shown
    counts = {verdict: sum(one.verdict == verdict for one in judged) for verdict in VERDICTS}
    return render(
        "judged.html.jinja",
        papers=list(dict.fromkeys(row["paper"] for row in rows)),
        rows=rows,
        counts={verdict: count for verdict, count in counts.items() if count},
        reasons=list(dict.fromkeys(row["reason"] for row in rows)),
        plots={_title(group): plot for group, found in groups.items() if (plot := _intervals(group, found))},
        differences={_title(group): plot for group, found in groups.items() if (plot := _differences(found))},
        tested=[row for row in rows if row["test"]],
        left=left,
        gains=gains,
        read=read,
        unread=unread,
    )


def _title(group: Group) -> str:
    paper, table, dataset, metric = group
    return ", ".join(part for part in (paper, f"table {table}" if table else "", dataset, metric) if part)


def _intervals(group: Group, rows: Sequence[dict[str, Any]]) -> Markup | None:
    """Return the plot of published numbers and of ours. None without numbers of ours."""
    shown = [
        {
            "name": row["row"],
            "values": row["values"],
            "published": float(row["value"].replace("−", "-").removesuffix("%")) if row["value"] else None,
            "mean": row["ours"]["mean"],
            "half_width": row["ours"]["half_width"],
        }
        for row in rows
        if row["ours"] and row["ours"]["mean"] is not None  # a run that diverged has no place on the axis
    ]
    return Markup(intervals(shown[:MOST_ROWS], group[3] or "score")) + _left_out(len(shown)) if shown else None


def _differences(rows: Sequence[dict[str, Any]]) -> Markup | None:
    """Return the plot of the differences from the baseline. None if no row was tested."""
    found = {row["row"]: {row["metric"]: row["test"]} for row in rows if row["test"] and "difference" in row["test"]}
    return Markup(differences(dict(list(found.items())[:MOST_ROWS]))) + _left_out(len(found)) if found else None


def _left_out(rows: int) -> Markup:
    """Return a plot's note on left-out rows, if there are any."""
    return Markup(f"<p>The first {MOST_ROWS} of {rows} rows; the table has all.</p>") if rows > MOST_ROWS else Markup()
