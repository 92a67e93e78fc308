"""One verdict for each number that the papers printed, with its reason and the runs it rests on."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from flows.answers import Answer
from flows.catalogue import experiments
from flows.experiment import Cell, Experiment, published_results

DATA = ("dataset", "dataset statistics")  # systems of rows that describe a corpus
PRINTED = ("paper", "system", "variant", "dataset", "split", "metric", "value")


def verdicts(answers: Iterable[Answer], paper: str = "") -> list[dict[str, Any]]:
    """A verdict for each row of published_results.csv, in its order; of one paper, if one is named."""
    known = published_results()
    if paper and paper not in {row["paper"] for row in known}:
        raise ValueError(f"no paper {paper!r}: known are {', '.join(sorted({row['paper'] for row in known}))}")
    found = list(answers)
    return [_verdict(row, found) for row in known if not paper or row["paper"] == paper]


def _verdict(row: dict[str, str], answers: Sequence[Answer]) -> dict[str, Any]:
    same = [other for other in published_results() if all(other[k] == row[k] for k in PRINTED)]
    best = max((a for a in answers if any(meant(a.experiment.answers, s) for s in same)), key=_worth, default=None)
    line: dict[str, Any] = {k: row[k] for k in ("paper", "table", "system", "variant", "dataset", "split", "metric")}
    line |= {"published": float(row["value"]), "ours": None, "half_width": None, "seeds": 0, "notes": row["notes"]}
    if best is None:
        return line | {"verdict": "not run", "reason": _why_not(row, same), "source": "", "title": "", "runs": []}
    ours = best.row["intervals"][best.row["metric"]]
    return line | {
        "ours": ours["mean"],
        "half_width": ours["half_width"],
        "seeds": len(best.row["seeds"]),
        "verdict": best.row["verdict"],
        "reason": best.row["reason"],
        "source": best.source,
        "title": best.title,
        "runs": best.runs,
    }


def _worth(answer: Answer) -> tuple[bool, int, int, str]:
    return answer.worth


def meant(cell: Cell, row: dict[str, str]) -> bool:
    """Whether a cell of an experiment is this row; what a cell leaves empty is not asked."""
    return all(row[name] == value for name, value in dataclasses.asdict(cell).items() if value)


def _why_not(row: dict[str, str], same: Sequence[dict[str, str]]) -> str:
    """What it would take to answer a number."""
    if row["system"] in DATA:
        return "describes the paper's own corpus"
    if (asked := [e for e in _experiments() if any(meant(e.answers, s) for s in same)]) != []:
        table = asked[0].answers.table.removeprefix("Table ")
        return f"phrasemodels reproduce --paper {row['paper']} --table {table} --row {asked[0].name.rsplit('/', 1)[1]}"
    return "no experiment answers it"


def _experiments() -> list[Experiment]:
    return experiments()


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts by paper and verdict."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        of = counts.setdefault(row["paper"], {})
        of[row["verdict"]] = of.get(row["verdict"], 0) + 1
    return counts
