"""Verdicts: one for each printed number, with its reason and the runs that it depends on."""

from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.experiments.catalogue import experiments
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, published_results
from phrasemodels.flows.results.results import Result

DATA = ("dataset", "dataset statistics")  # systems of rows that describe a corpus
AVERAGE = " AVERAGE"  # what a dataset's name ends with
PRINTED = ("paper", "system", "variant", "dataset", "split", "metric", "value")


def verdicts(results: Iterable[Result], paper: str = "") -> list[dict[str, Any]]:
    """A verdict for each row of published_results.csv, in its order; of one paper, if one is named."""
    known = published_results()
    papers = {row["paper"] for row in known}
    if paper and paper not in papers:
        raise ValueError(f"no paper {paper!r}: {closest(paper, papers)}")
    found = list(results)
    lines = [_verdict(row, found) for row in known if not paper or row["paper"] == paper]
    for line in lines:
        if line["dataset"].endswith(AVERAGE):
            line |= _averaged(line, lines)
    return lines


def _verdict(row: dict[str, str], results: Sequence[Result]) -> dict[str, Any]:
    same = [other for other in published_results() if all(other[name] == row[name] for name in PRINTED)]
    best = max((r for r in results if _answers(r.answer.cell, same)), key=lambda r: r.worth, default=None)
    line: dict[str, Any] = {k: row[k] for k in ("paper", "table", "system", "variant", "dataset", "split", "metric")}
    line |= {"published": float(row["value"]), "notes": row["notes"]}
    if best is None:
        nothing: dict[str, Any] = {"ours": None, "half_width": None, "seeds": 0, "runs": []}
        return (
            line
            | nothing
            | dict.fromkeys(("source", "title", "experiment"), "")
            | {"verdict": "not run", "reason": _why_not(row, same)}
        )
    ours = best.row["intervals"][best.row["metric"]]
    return line | {
        "ours": ours["mean"],
        "half_width": ours["half_width"],
        "seeds": len(best.row["seeds"]),
        "source": best.source,
        "title": best.title,
        "experiment": best.experiment.name,
        "runs": best.runs,
        "verdict": best.row["verdict"],
        "reason": best.row["reason"],
    }


def _averaged(line: dict[str, Any], lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of an average of tasks: that of ours, if all of them were run, and what the printed values really give."""
    prefix = line["dataset"].removesuffix(AVERAGE)
    same = ("paper", "table", "system", "variant", "metric")
    tasks = [
        o for o in lines if o["dataset"].startswith(prefix) and all(o[n] == line[n] for n in same) and o is not line
    ]
    given = f"the {len(tasks)} listed tasks really give {fmean(task['published'] for task in tasks):.2f}"
    run = [task["ours"] for task in tasks if task["ours"] is not None]
    if len(run) < len(tasks):
        return {"reason": f"{len(run)} of {len(tasks)} tasks were run; {given}"}
    seeds = min(task["seeds"] for task in tasks)
    return {
        "ours": fmean(run),
        "seeds": seeds,
        "verdict": "not comparable",
        "reason": f"{given}; other tasks are hidden",
    }


def _answers(cell: Cell | None, rows: Iterable[dict[str, str]]) -> bool:
    """Whether a cell is one of these rows, which are one number printed in several places; what is empty is any."""
    wanted = cell.wanted if cell else {}
    return bool(wanted) and any(all(row[name] == value for name, value in wanted.items()) for row in rows)


def _why_not(row: dict[str, str], same: Sequence[dict[str, str]]) -> str:
    """What it would take to answer a number."""
    if row["system"] in DATA:
        return "describes the paper's own corpus"
    if asked := _asked(same):
        experiment, answer = asked
        table = experiment.table
        command = f"no run: phrasemodels reproduce --paper {table.paper} --table {table.number} --row {experiment.row}"
        return "; ".join(filter(None, (answer.why_not, command)))
    return "no experiment answers it"


def _asked(same: Sequence[dict[str, str]]) -> tuple[Experiment, Answer] | None:
    return next(((e, a) for e in _experiments() for a in e.answers if _answers(a.cell, same)), None)


@cache
def _experiments() -> list[Experiment]:
    return experiments()


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts by paper and verdict."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        of = counts.setdefault(row["paper"], {})
        of[row["verdict"]] = of.get(row["verdict"], 0) + 1
    return counts
