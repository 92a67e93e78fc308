"""Verdicts: one for each printed number, with its reason and its runs.

Two systems judge ratios of speeds and gains. A number printed in several places has one result. A number without a result
gets the reason, and the prerequisites of a run at the paper's size.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

from phrasemodels import project
from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.experiments.catalogue import PROFILES, asked_for, counted, experiments
from phrasemodels.flows.experiments.comparability import STATED_FIRST, kind_of
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment
from phrasemodels.flows.experiments.published import (
    CONTRADICTION,
    EXCHANGED,
    JUDGED,
    PRINTED,
    SUSPECT,
    Columns,
    printed_value,
    published_results,
    same_numbers,
)
from phrasemodels.flows.results.needs import NOBODY, UNDEFINED, further, needs
from phrasemodels.flows.results.results import Result
from phrasemodels.tasks.metrics.compare import reason_not, verdict_on
from phrasemodels.verdicts.judgement import Verdict, judge, qualified
from phrasemodels.verdicts.printed import (
    WITHOUT,
    base_of,
    exchanged,
    least_whole,
    no_mean,
    no_product,
    no_share,
    no_sum,
    no_total,
    product_outside,
)
from phrasemodels.verdicts.rule import LARGEST_MARGIN, PrintedValue
from phrasemodels.verdicts.significance import seed_group

Line = Mapping[str, Any]  # a printed number with its verdict


@dataclass(frozen=True)
class Derived:
    """How a printed number follows from another system's number: the percent of it, or the gain over it."""

    kind: str
    over: Cell
    base: Cell

    def value(self, over: float, base: float) -> float:
        """Return the number from two values of ours."""
        return 100 * over / base if self.kind == "percent" else over - base


def derived_from(row: Columns) -> Derived | None:
    """Return how a printed number follows from two others by its column `made_of`, or None."""
    kind, _, names = row["made_of"].partition(" of ")
    cells = [Cell(row["paper"], *name.split(" | ")) for name in names.split("; ") if name]
    return Derived(kind, *cells) if cells else None


def derive(row: Columns, results: Sequence[Result]) -> dict[str, Any]:
    """Return the verdict on a derived number, with its value and seeds. Empty if no comparison has both systems.

    Absolute speeds are not comparable, but their ratio is. So only the size, data and settings of both count.
    """
    if (known := derived_from(row)) is None:
        return {}
    pairs = [
        (over, base)
        for over in _answering(known.over, results)
        for base in _answering(known.base, results)
        if over.source == base.source
    ]
    if not pairs:
        return {}
    pair = max(pairs, key=lambda two: two[0].worth)
    values = [r.row["values"][r.answer.metric] for r in pair]
    seeds = [seed for seed in pair[0].row["seeds"] if seed in pair[1].row["seeds"]]
    by_seed = [dict(zip(r.row["seeds"], own, strict=True)) for r, own in zip(pair, values, strict=True)]
    if not seeds:
        return {}
    of_seeds = [known.value(by_seed[0][seed], by_seed[1][seed]) for seed in seeds]
    ours = seed_group(of_seeds)
    stand_in = any(r.row["stand_in"] for r in pair)
    why = dict.fromkeys(r.experiment.reason_not(replace(r.answer, why_not="")) for r in pair)
    reason = reason_not(stand_in, "; ".join(filter(None, why)))
    verdict = verdict_on(row["value"], of_seeds, reason, False, printed_value(row))
    return {
        "ours": ours.mean,
        "half_width": None if ours.n < 2 else ours.half_width,
        "seeds": ours.n,
        "verdict": verdict.verdict,
        "reason": f"{verdict.reason}; of {pair[0].experiment.name} and {pair[1].experiment.row}",
        "source": pair[0].source,
        "title": pair[0].title,
        "experiment": pair[0].experiment.name,
        "runs": pair[0].runs,
        "kind": _basis(pair[0].experiment),
    }


def _answering(cell: Cell, results: Iterable[Result]) -> list[Result]:
    """Return the results for a cell: every common column is equal."""

    def same(other: Cell | None) -> bool:
        if other is None:
            return False
        return all(other.wanted.get(name, value) == value for name, value in cell.wanted.items())

    return [r for r in results if same(r.answer.cell)]


NO_RUN, COUNT, THEIRS = "no run yet", "not counted yet", "literature, not ours to run"
ABSENT, OTHER = "its corpus is not here", "no table computes it"
MSPARS = f"{OTHER}: it is of train after BPE, and the logical forms of train are not here"
MSPARS_FORMS = f"{OTHER}: it is of the logical forms, of which train's are not here (dev's have 14.68 words)"

# Corpora that are not here, by paper and data set.
CORPORA = {
    ("000", "PTB POS tagging"): "describes the Penn Treebank, which has a licence and is not here",
    ("001", "SNLI"): "describes SNLI's official training set, which users put in by hand",
    ("002", "MSParS (BPE6k)"): MSPARS,
    ("002", "MSParS"): MSPARS_FORMS,
}

DATA = ("dataset", "dataset statistics")  # systems of rows that describe a corpus


def not_run(row: Columns, same: Iterable[Columns]) -> tuple[str, str, str]:
    """Return the verdict, the reason and the kind of reason of a number without a value of ours.

    same: the rows of the file with this number.
    """
    if row["variant"] == LITERATURE:
        return "not run", "not ours to run: a result of others, which the paper repeats", THEIRS
    if row["not_comparable"]:
        return "not comparable", row["not_comparable"], row["not_comparable"]
    if pair := asked(same):
        experiment, answer = pair
        if (corpora := counted(experiment.table.paper).get(experiment.table.number)) is not None:
            return "not run", f"not counted yet: phrasemodels verdicts --count{' --corpora' * corpora}", COUNT
        if answer.why_not:
            return "not run", answer.why_not, answer.why_not
        return "not run", f"no run: {_command([experiment])}", NO_RUN
    if derived := derived_from(row):
        both = f"{derived.over.system} and {derived.base.system}"
        return "not run", f"no run of both {both} ({derived.over.table}), whose numbers give it", NO_RUN
    if row["system"] in DATA and (reason := CORPORA.get((row["paper"], row["dataset"]))):
        return "not run", reason, ABSENT
    return "not run", _unasked(row), OTHER


def _unasked(row: Columns) -> str:
    """Return why no row answers a number: the first of its names that no row of a user's study has, and those there are."""
    if row["paper"] not in project.parts("papers"):
        return OTHER
    if not (cells := asked_for(row["paper"])):
        return f"{OTHER}: no row names a printed number; write printed={PRINTED!r} into the table"
    for name in COLUMNS[1:]:
        there = sorted({getattr(cell, name) for cell in cells})
        cells = [cell for cell in cells if getattr(cell, name) in ("", row[name])]
        if not cells:
            return f"no {WORDS.get(name, name)} {row[name]!r}; there {'are' if there[1:] else 'is'} {', '.join(there)}"
    return OTHER


def answers(cell: Cell | None, rows: Iterable[Columns]) -> bool:
    """Return whether a cell is one of these rows of one number. An empty entry is any."""
    wanted = cell.wanted if cell else {}
    return bool(wanted) and any(all(row[name] == value for name, value in wanted.items()) for row in rows)


def asked(rows: Iterable[Columns]) -> tuple[Experiment, Answer] | None:
    """Return the experiment for a number at the paper's size, or else another one."""
    same = list(rows)
    found = [(e, a) for e in catalogue() for a in e.answers if answers(a.cell, same)]
    exact = [pair for pair in found if pair[1].exact and not pair[0].recipe.trains]
    largest = [pair for pair in found if pair[0].profile == PROFILES[-1]]
    return next(iter((*exact, *largest, *found)), None)


def compared(derived: Derived) -> list[Experiment]:
    """Return the experiments behind a derived number, as `asked` finds them."""
    cells = (derived.over.wanted, derived.base.wanted)
    rows = [[r for r in published_results() if all(r[name] == value for name, value in cell.items())] for cell in cells]
    return [pair[0] for same in rows if (pair := asked(same))]


@cache
def catalogue() -> list[Experiment]:
    """Return the rows of all tables at all sizes."""
    return experiments()


COLUMNS = ("paper", "table", "system", "variant", "dataset", "split", "metric")
WORDS = {"system": "row", "dataset": "data set"}  # for names of columns
FACTS = ("n", "n_of", "doubt", "exchanged_with")  # of a printed number, that what cannot be rests on
HIDDEN = ("values", "caveat", "basis", "rests", "starts", *FACTS)  # columns of a line that nobody else reads
EXACT = "counted"  # kinds of judgement: this, and on what settings the trainings rest
AS_PUBLISHED, AS_RELEASED, RETUNED = "trained as published", "trained as released", "trained after re-tuning"


def verdicts(results: Iterable[Result], paper: str = "") -> list[dict[str, Any]]:
    """Return a verdict for each row of published_results.csv or of one paper, in its order.

    kind: the kind of its reason. There are few kinds. needs: the needs of a number without a judgement. They are
    empty if a training would not help. ValueError: the paper is unknown.
    """
    known = published_results()
    papers = {row["paper"] for row in known}
    if paper and paper not in papers:
        if paper in project.parts("papers"):
            raise ValueError(
                f"paper {paper!r} has no number in printed.csv beside its module, so there is none to judge"
            )
        raise ValueError(f"no paper {paper!r}: {closest(paper, papers)}")
    found = list(results)
    lines = [_line(row, found) for row in known if not paper or row["paper"] == paper]
    for line in lines:
        if line["dataset"].endswith(AVERAGE):
            line |= _averaged(line, tasks_of(line, lines))
    for place, kind, said in list(impossible(lines)):
        verdict = "suspect" if kind.startswith(SUSPECT) else "impossible"
        lines[place] |= {"verdict": verdict, "kind": kind, "reason": said}
    for row, line in zip((r for r in known if not paper or r["paper"] == paper), lines, strict=True):
        line["needs"], line["command"] = _needs(row, line, lines)
        for name in HIDDEN:
            del line[name]
    return lines


def _needs(row: Columns, line: Line, lines: Sequence[Line]) -> tuple[str, str]:
    """Return the needs of a printed number, and the command. Both are empty if it has a verdict."""
    if line["verdict"] in ("reproduced", "higher", "lower", "impossible", "suspect"):
        return "", ""
    if line["verdict"] == "inconclusive" or line["kind"] == "too few runs":
        deciding = [one for one in line["readings"] if one["votes"]] or [line]
        names = [one["experiment"] for one in tasks_of(line, lines) or deciding]
        own = [one for one in catalogue() if one.name in names]
        more = line["further_seeds"]
        command = _command(own, max(one["seeds"] for one in deciding) + more) if more else ""
        return further(line, names), command
    if line["dataset"].endswith(AVERAGE):
        open_ones = [
            task for task in tasks_of(line, lines) if task["verdict"] not in (*JUDGED, "impossible", "suspect")
        ]
        trained = [pair[0] for task in open_ones if (pair := asked([task]))]
    elif derived := derived_from(row):
        trained = compared(derived)
        if derived.base.metric == "training_speed":
            return "ten updates of both systems on one machine", f"{_command(trained, 1)} --set train.steps=10"
    else:
        pair = asked(same_numbers(row))
        trained = [pair[0]] if pair and pair[0].recipe.trains else []
    said = needs(trained, line["reason"])
    return said, "" if said.startswith(NOBODY) else _command(trained) if trained else COUNTING


COUNTING = "phrasemodels verdicts --count --corpora"


def _command(trained: Iterable[Experiment], seeds: int = 3) -> str:
    """Return the command for training rows. Rows of several tables have a command for each."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for one in trained:
        rows.setdefault((one.table.paper, one.table.number, one.profile), []).append(one.row)
    commands = []
    for (paper, number, profile), own in rows.items():
        chosen = "".join(f" --row {row}" for row in dict.fromkeys(own))
        size = f" --profile {profile}" if profile == PROFILES[-1] else ""
        commands.append(f"phrasemodels reproduce --paper {paper} --table {number}{chosen} --seeds {seeds}{size}")
    return "; ".join(commands)


def _line(row: Columns, results: Sequence[Result]) -> dict[str, Any]:
    """Return the line of a printed number, by its best result."""
    same = same_numbers(row)
    line: dict[str, Any] = {name: row[name] for name in COLUMNS}
    line |= {"printed": row["value"], "published": float(row["value"]), "stdev": row["stdev"], "notes": row["notes"]}
    line |= {"ours": None, "half_width": None, "seeds": 0, "runs": [], "exact": False, "values": {}}
    line |= {"caveat": "", "basis": "", "rests": [], "starts": ""}
    line |= {name: row[name] for name in FACTS}
    line |= dict.fromkeys(("source", "title", "experiment", "measured"), "") | {"further_seeds": None}
    # a printed value that is no better than chance, give or take the largest margin
    nothing = bool(row["chance"]) and float(row["value"]) <= float(row["chance"]) + LARGEST_MARGIN
    line |= {"readings": [], "chance": row["chance"], "says_nothing": nothing}
    if found := _readings(row, results, same):
        several = any(answers(a.reading, same) and not a.exact for e in catalogue() for a in e.answers)
        line |= _agreed(found, several)
    elif made := derive(row, results):
        line |= made | {
            "kind": made["kind"] if made["verdict"] in JUDGED else kind_of(made["reason"].partition("; of ")[0])
        }
    else:
        line |= dict(zip(("verdict", "reason", "kind"), not_run(row, same), strict=True))
    if line["verdict"] == "reproduced" and line["says_nothing"]:
        line["reason"] += f"; says nothing: chance has {row['chance']}"
    return line


def _readings(row: Columns, results: Sequence[Result], same: Iterable[Columns]) -> list[dict[str, Any]]:
    """Return the line of each reading of a number by its best result.

    Comparable ones are first, then the main one, then those of most seeds and of most updates.
    """
    rows, best = list(same), {}
    for result in sorted(results, key=lambda r: r.worth):
        if answers(result.answer.cell or result.answer.reading, rows):
            best[_reading(result), result.experiment.profile] = result
    lines = [
        _answered(row, result) | {"name": name, "main": not name, "steps": result.experiment.train.steps}
        for (name, _), result in best.items()
    ]
    courses = [_course(result.experiment) for result in best.values()]
    for line, course in zip(lines, courses, strict=True):
        line["alike"] = [
            one["name"] or "main" for one, other in zip(lines, courses, strict=True) if course and other == course
        ]
    order = ("main", "seeds", "steps")  # of two looks at one training the later one is first
    lines.sort(key=lambda line: (line["verdict"] in JUDGED, *(line[name] for name in order)), reverse=True)
    return lines


def _reading(result: Result) -> str:
    """Return the name of a reading. The main one has an empty name."""
    answer = result.answer
    if answer.reading is None:
        return ""
    return answer.named or (answer.exact and answer.why_not.partition(";")[0]) or result.experiment.row


def _course(experiment: Experiment) -> str:
    """Return the common part of trainings that differ in their last update alone. Empty if their schedules see it."""
    train = experiment.train
    known = [train.schedule(step, train.warmup, steps) for step in (0, 9, 99) for steps in (1000, 2000)]
    if not experiment.recipe.trains or known[::2] != known[1::2]:
        return ""
    return repr((experiment.recipe, experiment.model, replace(train, steps=1)))


FEWEST_RUNS = 3  # of a reading that votes
DIFFER = "readings differ"


def _agreed(lines: Sequence[dict[str, Any]], several: bool) -> dict[str, Any]:
    """Return the line of a number by its readings: the common verdict of all with three runs.

    A counted number has the verdict of its main reading. Smaller runs and runs on other data never vote.

    Args:
        several: There are trained readings, run or not.
    """
    judged = [line for line in lines if line["verdict"] in JUDGED]
    voting = judged if not several else [line for line in judged if line["seeds"] >= FEWEST_RUNS]
    front = next(iter((*voting, *lines)))
    if front["exact"]:
        front = next((line for line in lines if line["main"]), front)
        voting = [front]
    said = [
        f"{line['name'] or 'main'} {line['ours']:.2f} ({line['verdict']}, {line['seeds']} seeds)" for line in judged
    ]
    made = {name: value for name, value in front.items() if name not in ("name", "main", "steps", "alike")}
    if judged and not voting:
        more = FEWEST_RUNS - front["seeds"]
        reason = f"no reading has {FEWEST_RUNS} runs: {', '.join(said)}; {more} further seed{'s' * (more > 1)} of each"
        made |= {"verdict": "not run", "reason": reason, "kind": "too few runs", "further_seeds": more}
    elif len({line["verdict"] for line in voting}) > 1:
        rest = dict.fromkeys(words for line in judged for words in line["rests"])
        made |= {"verdict": "inconclusive", "reason": "; ".join((f"{DIFFER}: {', '.join(said)}", *rest))}
        made["further_seeds"] = None
        made["kind"] = front["basis"]
    elif len(voting) > 1 and front["verdict"] == "inconclusive":
        needed = [line["further_seeds"] for line in voting]
        made["further_seeds"] = max(needed) if all(needed) else None
        made["reason"] += f"; the {len(voting)} readings would all have to decide: {', '.join(said)}"
    alike: list[str] = next((line["alike"] for line in judged if len(line["alike"]) > 1), [])
    if alike and not front["exact"]:
        made["reason"] += f"; {' and '.join(alike)} are one training after fewer and more updates"
    names = ("name", "experiment", "source", "ours", "half_width", "seeds", "exact", "verdict")
    made["readings"] = [{n: line[n] for n in names} | {"votes": line in voting} for line in lines if len(lines) > 1]
    return made


def _answered(row: Columns, best: Result) -> dict[str, Any]:
    """Return the verdict of a result on a printed number, by the digits of this number."""
    metric, exact = best.row["metric"], best.answer.exact
    values = best.row["values"][metric]
    unlike = best.experiment.reason_not(best.answer) or best.row["reason_not"]  # by what is known of it today, or then
    why_not = reason_not(best.row["stand_in"], "; ".join(filter(None, (best.outdated, unlike))))
    caveat = best.answer.note if exact else best.experiment.caveat
    how = replace(printed_value(row), items=_items(best))
    verdict = _withheld(qualified(verdict_on(row["value"], values, why_not, exact, how), caveat), best)
    judged = verdict.verdict in JUDGED
    signature = f" ({best.row['signatures'][metric]})" if exact and judged else ""
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
        "values": dict(zip(best.row["seeds"], values, strict=True)),
        "caveat": caveat,
        "verdict": verdict.verdict,
        "reason": verdict.reason + signature,
        "further_seeds": verdict.further_seeds,
        "basis": _basis(best.experiment),
        "rests": [] if exact else rests_on(best),
        "starts": _starts(best),
        "kind": (EXACT if exact else _basis(best.experiment)) if judged else kind_of(verdict.reason),
    }


OTHER_MODEL = "another model than the paper's"
UNRECORDED = "unrecorded search"  # in the source of a setting


def _withheld(verdict: Verdict, best: Result) -> Verdict:
    """Return a verdict as far as its runs bear it, with its limits."""
    said, reason = verdict.verdict, verdict.reason
    if best.answer.exact:
        undefined = said in ("higher", "lower") and UNDEFINED in best.answer.note
        return replace(verdict, verdict="inconclusive") if undefined else verdict
    if said not in JUDGED:
        return verdict
    return _reserved(replace(verdict, reason=_with_starts(reason, _starts(best))), rests_on(best))


def _starts(best: Result) -> str:
    """Return of which starts a value is, empty if each run has one."""
    starts = getattr(best.experiment.recipe, "restarts", 1)
    of = (
        f"the mean of the {getattr(best.experiment.recipe, 'averaged', starts)} best"
        if best.answer.metric == "fact"
        else "the best"
    )
    return f"{of} of {starts} starts" if starts > 1 else ""


def _with_starts(reason: str, starts: str) -> str:
    if not starts:
        return reason
    return reason.replace("printed: 1 run", f"printed: {starts}, as each of ours").replace("of 1 run,", f"of {starts},")


def _reserved(verdict: Verdict, rest: Sequence[str]) -> Verdict:
    """Return a verdict with a sceptic's reservations. Nothing is reproduced by another model."""
    other = verdict.verdict == "reproduced" and any(words.startswith(OTHER_MODEL) for words in rest)
    said = "inconclusive" if other else verdict.verdict
    return replace(verdict, verdict=said, reason="; ".join((verdict.reason, *rest)))


def rests_on(result: Result) -> list[str]:
    """Return a sceptic's reservations about a training: another model than the paper's, settings of unrecorded origin."""
    aspects = result.experiment.aspects
    if not aspects:
        return []
    other = [words for words in aspects["model"].stated if words.startswith("model.")]
    unrecorded = any(UNRECORDED in words for words in aspects["tuning"].stated)
    return [f"{OTHER_MODEL}: {words}" for words in other] + ["settings of unrecorded origin"] * unrecorded


def _items(best: Result) -> int:
    """Return the number of test items behind a share, or 0 for any other metric."""
    if best.answer.statistic is None or best.answer.statistic.column != "right":
        return 0
    return sum(int(part.get("rows", 0)) for part in best.row.get("test_set") or [])


def _averaged(line: dict[str, Any], tasks: Sequence[Line]) -> dict[str, Any]:
    """Return the verdict on an average of tasks: our own if all of them were run, and the printed ones' average."""
    given = f"the {len(tasks)} listed tasks really give {fmean(task['published'] for task in tasks):.2f}"
    run = [task for task in tasks if task["ours"] is not None]
    if len(run) < len(tasks):
        return {"reason": f"{len(run)} of {len(tasks)} tasks were run; {given}"}
    seeds = [seed for seed in tasks[0]["values"] if all(seed in task["values"] for task in tasks)]
    if not seeds:
        return {"reason": f"the tasks have no seed in common; {given}"}
    means = [fmean(task["values"][seed] for task in tasks) for seed in seeds]
    sources = {task["source"] for task in tasks}
    ours = {
        "ours": fmean(means),
        "seeds": len(seeds),
        "runs": [run for task in tasks for run in task["runs"] if run["seed"] in seeds],
        "source": sources.pop() if len(sources) == 1 else "",
    }
    unlike = [task for task in tasks if task["verdict"] == "not comparable"]
    if unlike:
        reason = unlike[0]["reason"]
        return ours | {
            "verdict": "not comparable",
            "reason": f"{len(unlike)} tasks: {reason}",
            "kind": unlike[0]["kind"],
        }
    group, rest = seed_group(means), list(dict.fromkeys(words for task in tasks for words in task["rests"]))
    judged = qualified(judge(line["printed"], means, how=PrintedValue()), tasks[0]["caveat"])
    judged = _reserved(replace(judged, reason=_with_starts(judged.reason, tasks[0]["starts"])), rest)
    kind = tasks[0]["basis"] if judged.verdict in JUDGED else judged.reason
    half = {"half_width": None if group.n < 2 else group.half_width, "further_seeds": judged.further_seeds}
    return ours | half | {"verdict": judged.verdict, "reason": judged.reason, "kind": kind}


def _basis(experiment: Experiment) -> str:
    """Return the origin of settings: published, released with the paper's code or chosen anew and said so."""
    if experiment.caveat.startswith(STATED_FIRST):
        return RETUNED
    return AS_RELEASED if any(aspect.released for aspect in experiment.aspects.values()) else AS_PUBLISHED


# Printed numbers that cannot be what the paper says they are, each with its arithmetic. No published value is changed.

LITERATURE = "literature"  # the variant of a row that a paper repeats from others
ERRORS = "share_of_errors"  # a metric of shares that are parts of one whole


def not_a_share(line: Line, lines: Sequence[Line]) -> str:
    """Say why an accuracy is no share of the `n` items of its test or dev set."""
    if not line["n"] or line["metric"] == ERRORS:
        return ""
    said = no_share(line["printed"], int(line["n"])).replace(
        f" of {line['n']}:", f" of {line['n']} ({line['n_of']}):", 1
    )
    mean = "a mean over runs could be, which the paper does not say of it"
    return said and "; ".join(filter(None, (said, mean, line["doubt"])))


AVERAGE = " AVERAGE"  # so ends the data set of a row that is an average
SAME_ROW = ("paper", "system", "metric")  # of the slides and of the full paper, which alone lists tasks 7 and 8 of bAbI


def tasks_of(line: Line, lines: Sequence[Line]) -> list[Line]:
    """Return the lines behind an average, none for other lines."""
    if not line["dataset"].endswith(AVERAGE):
        return []
    prefix = line["dataset"].removesuffix(AVERAGE)
    row = [o for o in lines if all(o[name] == line[name] for name in SAME_ROW)]
    return [o for o in row if o["dataset"].startswith(prefix) and not o["dataset"].endswith(AVERAGE)]


def mean_of_fewer(line: Line, lines: Sequence[Line]) -> str:
    """Say that an average is the mean of all of its printed tasks but one."""
    said = not_a_mean(line, lines).partition("; one of the ")[0]
    return said if f"; {WITHOUT} " in said else ""


def not_a_mean(line: Line, lines: Sequence[Line]) -> str:
    """Say why an average differs from the mean of its printed tasks."""
    tasks = tasks_of(line, lines)
    said = no_mean(line["printed"], [task["printed"] for task in tasks]) if tasks else ""
    return said and f"{said}; one of the {len(tasks) + 1} numbers at least is wrong"


def misprinted(line: Line, lines: Sequence[Line]) -> str:
    """Say why a count of a public corpus is a misprint, once it has been counted."""
    if not _is_counted(line) or line["verdict"] == "reproduced" or not line["doubt"]:
        return ""
    return f"a misprint: {line['reason']}; {line['doubt']}"


def in_anothers_place(line: Line, lines: Sequence[Line]) -> str:
    """Say that a number stands in the place of another data set's, once both have been counted."""
    same = {
        o["dataset"]: o
        for o in lines
        if all(o[name] == line[name] for name in ("paper", "table", "metric"))
        and o["exchanged_with"]
        and _is_counted(o)
    }
    if len(same) < 2 or line["dataset"] not in same:
        return ""
    one, other = same.values()
    said = exchanged((one["printed"], other["printed"]), (one["ours"], other["ours"]))
    counts = [f"{dataset} has {round(of['ours'], 2):g}" for dataset, of in same.items()]
    return said and f"{said}; {', '.join(counts)}: both are wrong"


def _is_counted(line: Line) -> bool:
    return bool(line["exact"]) and line["verdict"] in ("reproduced", "higher", "lower")


# Table 4 of paper 002: numbers that are a base and a step for each layer. Section 3.1: BiLSTMs of 64 to 64 (66,560 parameters),
# one for each of the three sizes of n-grams of a layer.
LAYER_COLUMN, LAYER_STEP = ("002", "Table 4", "parameters"), 3 * 66_560 / 1e6
LAYERS = {"layers=[1]": 1, "layers=[1 - 2]": 2, "layers=[1 - 3]": 3, "layers=[1 - 6]": 6, "layers=[3-6]": 4}


def not_the_layers(line: Line, lines: Sequence[Line]) -> str:
    """Say why a number cannot belong to so many layers, by the other numbers of its column."""
    found = {o["variant"]: o["printed"] for o in lines if (o["paper"], o["table"], o["metric"]) == LAYER_COLUMN}
    if found.get(line["variant"]) != line["printed"] or line["metric"] != LAYER_COLUMN[-1]:
        return ""
    others = {LAYERS[v]: text for v, text in found.items() if v != line["variant"] and v in LAYERS}
    try:
        base, slack = base_of(others, LAYER_STEP)
    except ValueError:  # one of the others is wrong
        return ""
    return no_sum(line["printed"], LAYER_STEP, base, LAYERS[line["variant"]], slack)


# Table 1 of paper 001. Phrases a sentence × words a phrase are the words of a sentence, on every level. CORPUS_WORDS: of a
# sentence of the corpus, mean: between spaces, and with every mark apart. Parsers join no words, and divide them at marks;
# in seven rows every product lies between the two. SST-2 is not here: the paper counts phrases of its trees.
PHRASES, OF_PHRASE = "phrases_per_sentence", "words_per_phrase"
CORPUS_WORDS = {
    "MR": (21.02, 22.94), "CR": (20.09, 20.74), "MPQA": (3.08, 3.12), "SUBJ": (24.06, 25.73), "SST5": (19.17, 20.64),
    "TREC": (9.98, 10.53), "SICK-E": (9.62, 9.71), "SICK-R": (9.62, 9.71), "STS14": (9.13, 10.72), "MRPC": (18.92, 23.51),
}  # fmt: skip


def too_many_words(line: Line, lines: Sequence[Line]) -> str:
    """Say why phrases a sentence × words a phrase are more words than known parsers make of a sentence."""
    if line["dataset"] not in CORPUS_WORDS or not (said := not_the_words(line, lines)):
        return ""
    phrases, words = _phrases_and_words(line, lines)[line["variant"]]
    return said if float(phrases) * float(words) > CORPUS_WORDS[line["dataset"]][1] else ""


LEVEL_SHIFT = 1.06  # a mean over sentences in place of one over phrases moves the product of a level by 2 to 6 %


def levels_differ(line: Line, lines: Sequence[Line]) -> str:
    """Say why the levels of one corpus cannot be of the same sentences, whatever the phrases and words are means of."""
    products = sorted(float(one) * float(other) for one, other in _phrases_and_words(line, lines).values())
    return _unlike_levels(line, lines) if products and products[-1] > LEVEL_SHIFT * products[0] else ""


def _unlike_levels(line: Line, lines: Sequence[Line]) -> str:
    """Say why phrases × words of the levels of one corpus contradict each other. Empty if they do not."""
    pairs = list(_phrases_and_words(line, lines).values())
    one_of = f"words a sentence do not depend on the level, so one of the {2 * len(pairs)} numbers at least is wrong"
    said = no_product(pairs) if pairs else ""
    return said and f"{said}: {one_of}"


def not_the_words(line: Line, lines: Sequence[Line]) -> str:
    """Say why phrases a sentence and words a phrase of one level cannot both be.

    The corpus says it. Where its words are not known, the other levels do.
    """
    bounds, pairs = CORPUS_WORDS.get(line["dataset"]), _phrases_and_words(line, lines)
    if not bounds or not pairs:
        return _unlike_levels(line, lines)
    said = product_outside(*pairs[line["variant"]], *bounds)
    has = f"{line['dataset']} has {bounds[0]:.2f}, or {bounds[1]:.2f} with every mark apart"
    return said and f"{said} words a sentence, but {has}: one of the two numbers at least is wrong"


def _phrases_and_words(line: Line, lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    """Return the printed phrases a sentence and words a phrase of a line's data set, by level.

    It is empty for a line of another metric, and if a level lacks one of both.
    """
    if line["metric"] not in (PHRASES, OF_PHRASE):
        return {}
    levels: dict[str, dict[str, str]] = {}
    for other in lines:
        same = all(other[name] == line[name] for name in ("paper", "table", "dataset"))
        if same and other["metric"] in (PHRASES, OF_PHRASE):
            levels.setdefault(other["variant"], {})[other["metric"]] = other["printed"]
    pairs = {variant: (found.get(PHRASES, ""), found.get(OF_PHRASE, "")) for variant, found in levels.items()}
    return pairs if all(all(pair) for pair in pairs.values()) else {}


def not_one_whole(line: Line, lines: Sequence[Line]) -> str:
    """Say why percentages of one whole cannot come from its `n` parts, even if parts may count twice."""
    if line["metric"] != ERRORS:
        return ""
    most, shares = int(line["n"]), [o["printed"] for o in lines if (o["paper"], o["metric"]) == (line["paper"], ERRORS)]
    said = no_total("100.0", [1.0] * len(shares), shares)
    # parts of two kinds, which count twice, would not do it
    if not said or (n := least_whole(shares)) <= most:
        return ""
    of = f"the least number of which all are shares is {n}, and there are {most} {line['n_of']}"
    odd = [share for share in shares if no_share(share, most)]
    suspect = f"; {odd[0]} is suspect, the only one that is no share of {most}" if len(odd) == 1 else ""
    return f"{said}; {of}: one of the {len(shares)} numbers at least is wrong{suspect}"


KINDS = {
    f"{CONTRADICTION}: levels of unlike words a sentence": levels_differ,
    f"{SUSPECT}: phrases × words are more words than a sentence has, unless its parser splits more": too_many_words,
    f"{CONTRADICTION}: phrases × words are not the words of a sentence": not_the_words,
    f"{SUSPECT}: no share of its test or dev set, unless it is a mean over runs": not_a_share,
    f"{SUSPECT}: not the mean of its rows, unless it leaves one out": mean_of_fewer,
    f"{CONTRADICTION}: not the mean of its rows": not_a_mean,
    EXCHANGED: in_anothers_place,
    f"{CONTRADICTION}: parameters of other layers": not_the_layers,
    f"{CONTRADICTION}: shares that are more than the whole": not_one_whole,
    f"{CONTRADICTION}: a misprint of a count": misprinted,
}


def impossible(lines: Sequence[Line]) -> Iterator[tuple[int, str, str]]:
    """Yield the places of impossible printed numbers, with the kind of finding and its arithmetic."""
    for place, line in enumerate(lines):
        for kind, check in KINDS.items():
            if said := check(line, lines):
                yield place, kind, said
                break
