"""The HTML page of a foreign paper: verdicts on its printed numbers, tests. It is one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.flows.experiments.published import VERDICTS
from phrasemodels.flows.report import digits_of, render
from phrasemodels.verdicts.judgement import Judged, JudgedGain, Read, plain
from phrasemodels.verdicts.scores import Scores

MARK = b'<meta name="generator" content="phrasemodels">'


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
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}  # by paper, table, data set, metric
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
        tested=[row for row in rows if row["test"]],
        left=left,
        gains=gains,
        read=read,
        unread=unread,
    )
