"""Verdicts: one for each printed number, with its reason and the runs that it depends on."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.experiments.marks import STATED_FIRST, kind_of
from phrasemodels.flows.experiments.published import published_results
from phrasemodels.flows.results.derived import derive, derived_from
from phrasemodels.flows.results.glance import JUDGED
from phrasemodels.flows.results.impossible import AVERAGE, LISTED_AVERAGES, Line, impossible, tasks_of
from phrasemodels.flows.results.needs import needs
from phrasemodels.flows.results.not_run import answers, asked, compared, not_run
from phrasemodels.flows.results.repeated import same_numbers
from phrasemodels.flows.results.results import Result
from phrasemodels.tasks.metrics.compare import reason_not
from phrasemodels.verdicts.judgement import judge, qualified
from phrasemodels.verdicts.significance import seed_group

COLUMNS = ("paper", "table", "system", "variant", "dataset", "split", "metric")
TRAINED, EXACT = "over the seeds of a training", "counted, by the printed digits"  # kinds of judgement
OTHERWISE = f"{TRAINED} that is other than published in what its reason says"


def verdicts(results: Iterable[Result], paper: str = "") -> list[dict[str, Any]]:
    """Return a verdict for each row of published_results.csv, in its order; of one paper, if one is named.

    kind: the kind of its reason, of which there are few. needs: what it takes until a number without a judgement has one,
    empty if a training would not do it. ValueError: there is no such paper.
    """
    known = published_results()
    papers = {row["paper"] for row in known}
    if paper and paper not in papers:
        raise ValueError(f"no paper {paper!r}: {closest(paper, papers)}")
    found = list(results)
    lines = [_line(row, found) for row in known if not paper or row["paper"] == paper]
    for line in lines:
        if line["dataset"].endswith(AVERAGE):
            line |= _averaged(line, tasks_of(line, lines))
    for place, kind, said in list(impossible(lines)):
        lines[place] |= {"verdict": "impossible", "kind": kind, "reason": said}
    for row, line in zip((r for r in known if not paper or r["paper"] == paper), lines, strict=True):
        line["needs"] = "" if line["verdict"] in (*JUDGED, "impossible") else _needs(row)
        del line["values"], line["caveat"]
    for line in lines:
        if line["verdict"] == "not comparable" and (line["paper"], line["metric"]) in LISTED_AVERAGES:
            line["needs"] = line["needs"] or next((t["needs"] for t in tasks_of(line, lines) if t["needs"]), "")
    return lines


def _needs(row: dict[str, str]) -> str:
    """Return what it takes to judge a printed number that a training can answer; empty if none can."""
    if derived := derived_from(row):
        both = " and ".join(dict.fromkeys(map(needs, compared(derived))))
        return both.replace("a training", "trainings of both", 1)
    pair = asked(same_numbers(row))
    return needs(pair[0]) if pair and pair[0].recipe.trains and not pair[1].why_not else ""


def _line(row: dict[str, str], results: Sequence[Result]) -> dict[str, Any]:
    """Return the line of a printed number, by the best result that answers it."""
    same = same_numbers(row)
    line: dict[str, Any] = {name: row[name] for name in COLUMNS}
    line |= {"printed": row["value"], "published": float(row["value"]), "stdev": row["stdev"], "notes": row["notes"]}
    line |= {"ours": None, "half_width": None, "seeds": 0, "runs": [], "exact": False, "values": [], "caveat": ""}
    line |= dict.fromkeys(("source", "title", "experiment", "measured"), "")
    best = max((r for r in results if answers(r.answer.cell, same)), key=lambda r: r.worth, default=None)
    if best is not None:
        return line | _answered(row["value"], best)
    if (derived := derived_from(row)) and (made := derive(derived, results)):
        return line | made | {"kind": TRAINED if made["verdict"] in JUDGED else made["reason"].partition("; of ")[0]}
    verdict, reason, kind = not_run(row, same)
    return line | {"verdict": verdict, "reason": reason, "kind": kind}


def _answered(printed: str, best: Result) -> dict[str, Any]:
    """Return what a result says of a printed number; it is judged by the digits of that number."""
    metric, exact = best.row["metric"], best.answer.exact
    values = best.row["values"][metric]
    unlike = best.experiment.reason_not(best.answer) or best.row["reason_not"]  # by what is known of it today, or then
    why_not = reason_not(best.row["stand_in"], "; ".join(filter(None, (best.outdated, unlike))))
    caveat = best.answer.note if exact else best.experiment.caveat
    verdict = qualified(judge(printed, seed_group(values), why_not, exact), caveat)
    judged = verdict.verdict in JUDGED
    how = f" ({best.row['signatures'][metric]})" if exact and judged else ""
    return {
        "ours": best.row["intervals"][metric]["mean"],
        "half_width": best.row["intervals"][metric]["half_width"],
        "seeds": len(best.row["seeds"]),
        "source": best.source,
        "title": best.title,
        "experiment": best.experiment.name,
        "measured": metric,
        "runs": best.runs,
        "exact": exact,
        "values": values,
        "caveat": caveat,
        "verdict": verdict.verdict,
        "reason": verdict.reason + how,
        "kind": (EXACT if exact else _trained(caveat)) if judged else kind_of(verdict.reason),
    }


def _averaged(line: dict[str, Any], tasks: Sequence[Line]) -> dict[str, Any]:
    """Return what is said of an average of tasks: that of ours if all of them were run, and what the printed ones give."""
    given = f"the {len(tasks)} listed tasks really give {fmean(task['published'] for task in tasks):.2f}"
    run = [task for task in tasks if task["ours"] is not None]
    if len(run) < len(tasks):
        return {"reason": f"{len(run)} of {len(tasks)} tasks were run; {given}"}
    ours = {"ours": fmean(task["ours"] for task in tasks), "seeds": min(task["seeds"] for task in tasks)}
    unlike = [task for task in tasks if task["verdict"] == "not comparable"]
    if (line["paper"], line["metric"]) not in LISTED_AVERAGES:
        kind = "other tasks are in the average, which are not listed"
        mixed = f"; in ours, {len(unlike)} of {len(tasks)} tasks: {unlike[0]['reason']}" if unlike else ""
        return ours | {"verdict": "not comparable", "reason": f"{given}; {kind}{mixed}", "kind": kind}
    if unlike:
        reason = unlike[0]["reason"]
        return ours | {
            "verdict": "not comparable",
            "reason": f"{len(unlike)} tasks: {reason}",
            "kind": unlike[0]["kind"],
        }
    group = seed_group([fmean(values) for values in zip(*(task["values"] for task in tasks), strict=False)])
    judged = qualified(judge(line["printed"], group, ""), tasks[0]["caveat"])
    kind = _trained(tasks[0]["caveat"]) if judged.verdict in JUDGED else judged.reason
    half = {"half_width": None if group.n < 2 else group.half_width}
    return ours | half | {"verdict": judged.verdict, "reason": judged.reason, "kind": kind}


def _trained(caveat: str) -> str:
    return OTHERWISE if caveat.startswith(STATED_FIRST) else TRAINED
