"""The conclusion of a compared table, in sentences: what phrases gain, on which sentences, and what a verdict would take."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from phrasemodels.flows.report.templates import is_sure, row_name

Row = dict[str, Any]  # of a comparison
KINDS = {"idiom": "idioms", "plain": "plain sentences"}  # groups of sentences by their name in a sentence
CHANGED = "changed: "  # before the overrides in a reason
ENOUGH = 3  # seeds of a verdict
METRICS = {"bleu": "BLEU"}  # as they are written in a sentence


def findings(rows: Sequence[Row]) -> list[str]:
    """Return sentences that say what came out, the first of them the conclusion; rows: of a comparison."""
    tested = [row for row in rows if row["against"]]
    if not tested:
        if len(rows) == 1:
            return [f"{row_name(rows[0])}: {_mean(rows[0])}. Nothing is tested against it."]
        means = sorted(row["intervals"][row["metric"]]["mean"] for row in rows)
        alike = len({row["metric"] for row in rows}) == 1
        found = f", {_metric(rows[0])} {means[0]:.2f} to {means[-1]:.2f}" if alike else ""
        return [f"{len(rows)} rows{found}; none is tested against another."]
    largest = max(tested, key=lambda row: abs(_difference(row)["difference"]))
    said = [_gain(largest, rows)]
    if kinds := [_on_kind(largest, kind) for kind in KINDS if f"{largest['metric']}/{kind}" in _differences(largest)]:
        said[:0] = [f"{row_name(largest)} against {_baseline(largest, rows)}: {', '.join(kinds)}."]
    few = min(len(row["seeds"]) for row in tested)
    if few < 2:
        said.append("With one seed nothing says what other seeds would do.")
    elif len(tested) == 1:
        said.append(f"That is {'more' if is_sure(_difference(largest)) else 'no more'} than chance.")
    else:
        said += _counted(tested)
    if 2 <= few < ENOUGH:
        said.append(f"These are {few} seeds; a verdict needs {ENOUGH}.")
    return said


def _counted(tested: Sequence[Row]) -> Iterator[str]:
    """Yield for each metric how many rows differ from their baselines, and which."""
    by_metric: dict[str, list[Row]] = {}
    for row in tested:
        by_metric.setdefault(row["metric"], []).append(row)
    for own in by_metric.values():
        in_metric = f" in {_metric(own[0])}" if len(by_metric) > 1 else ""
        if sure := [row_name(row) for row in own if is_sure(_difference(row))]:
            rows = f"{len(sure)} of {len(own)} rows differ" if len(own) > 1 else "The row differs"
            theirs = "their baselines" if len(own) > 1 else "its baseline"
            yield f"{rows} from {theirs} by more than chance{in_metric}{': ' + ', '.join(sure) if len(own) > 1 else ''}."
        elif len(own) > 1:
            yield f"None of {len(own)} rows differs from its baseline by more than chance{in_metric}."
        else:
            yield f"The row does not differ from its baseline by more than chance{in_metric}."


def needed(rows: Sequence[Row]) -> list[str]:
    """Return what it would take to compare these rows with the paper, or what stands in the way; each reason once, and rows
    that were changed each in its own way together."""
    parts = reasons([row for row in rows if row["verdict"] == "not comparable"])
    changed = [part for part in parts if part.startswith(CHANGED)]
    others = {re.sub(r": \d+ settings", "", part): part for part in reversed(parts) if part not in changed}
    return [*reversed(others.values()), *(changed if len(changed) < 2 else [f"{CHANGED}settings of each row"])]


def reasons(rows: Sequence[Row]) -> list[str]:
    """Return the parts of the reasons of rows, each once."""
    return list(dict.fromkeys(part for row in rows for part in unnamed(row["reason"]).split("; ")))


def unnamed(reason: str) -> str:
    """Return a reason with ROW for the row that it names, so that the rows of a table share it."""
    return re.sub(r"\(phrasemodels marks [^()]*\)", "(phrasemodels marks ROW)", reason)


def _gain(row: Row, rows: Sequence[Row]) -> str:
    found = _difference(row)
    return f"{row_name(row)} {_told(found)} {_metric(row)} against {_baseline(row, rows)}."


def _on_kind(row: Row, kind: str) -> str:
    metric = row["metric"]
    return f"on {KINDS[kind]} {_told(_differences(row)[f'{metric}/{kind}'])} {_metric(row)}"


def _told(found: dict[str, Any]) -> str:
    gains = "gains" if found["difference"] > 0 else "loses"
    verb = gains if abs(found["difference"]) >= 0.05 else "differs by"
    interval = f" [{found['low']:+.1f}, {found['high']:+.1f}]" if found["seeds"] > 1 else ""
    return f"{verb} {abs(found['difference']):.1f}{interval}"


def _metric(row: Row) -> str:
    return METRICS.get(row["metric"], str(row["metric"]))


def _difference(row: Row) -> dict[str, Any]:
    return dict(_differences(row)[row["metric"]])


def _differences(row: Row) -> dict[str, Any]:
    return dict(row["against"]["differences"])


def _baseline(row: Row, rows: Sequence[Row]) -> str:
    name = row["against"]["baseline"]
    return next((row_name(other) for other in rows if other["experiment"] == name), name)


def _mean(row: Row) -> str:
    ours = row["intervals"][row["metric"]]
    half = f" ± {ours['half_width']:.2f}" if ours["half_width"] is not None else ""
    return f"{_metric(row)} {ours['mean']:.2f}{half}"
