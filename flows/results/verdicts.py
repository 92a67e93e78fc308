"""Verdicts: one for each printed number, with its reason and the runs that it depends on."""

from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean
from typing import Any

from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.experiments.catalogue import experiments
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, published_results
from phrasemodels.flows.results.results import Result

DATA = ("dataset", "dataset statistics")  # in place of a system, in rows that describe a corpus
AVERAGE = " AVERAGE"  # the end of the name of a dataset that stands for an average over several
PRINTED = (
    "paper",
    "system",
    "variant",
    "dataset",
    "split",
    "metric",
    "value",
)  # equal where one number is printed twice


def verdicts(results: Iterable[Result], paper: str = "") -> list[dict[str, Any]]:
    """Return a verdict for each row of published_results.csv, in its order; paper: only for this one. ValueError: no such paper."""
    known = published_results()
    papers = {row["paper"] for row in known}
    if paper and paper not in papers:
        raise ValueError(f"no paper {paper!r}: {closest(paper, papers)}")
    results = list(results)
    lines = [_verdict(row, results) for row in known if not paper or row["paper"] == paper]
    for line in lines:
        if line["dataset"].endswith(AVERAGE):
            line |= _averaged(line, lines)
    return lines


def _verdict(row: dict[str, str], results: Sequence[Result]) -> dict[str, Any]:
    """Return the verdict on a printed number by the best result that answers it."""
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
    """Return our average over the tasks of a printed average, if all were run, and the true average of the printed values."""
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
    """Return whether a cell matches one of these rows, which print one number in several places."""
    wanted = cell.wanted if cell else {}
    return bool(wanted) and any(all(row[name] == value for name, value in wanted.items()) for row in rows)


def _why_not(row: dict[str, str], same: Sequence[dict[str, str]]) -> str:
    """Return why a number has no run, with the command that runs it if an experiment answers it."""
    if row["system"] in DATA:
        return "describes the paper's own corpus"
    if match := _experiment_for(same):
        experiment, answer = match
        table = experiment.table
        command = f"no run: phrasemodels reproduce --paper {table.paper} --table {table.number} --row {experiment.row}"
        return "; ".join(filter(None, (answer.why_not, command)))
    return "no experiment answers it"


def _experiment_for(same: Sequence[dict[str, str]]) -> tuple[Experiment, Answer] | None:
    """Return the first experiment that answers a number, and its answer."""
    return next(((e, a) for e in _experiments() for a in e.answers if _answers(a.cell, same)), None)


@cache
def _experiments() -> list[Experiment]:
    return experiments()


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the number of verdicts of each kind, by paper."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        by_verdict = counts.setdefault(row["paper"], {})
        by_verdict[row["verdict"]] = by_verdict.get(row["verdict"], 0) + 1
    return counts
