"""Verdicts: one for each printed number, with its reason and the runs that it depends on.

Ratios of speeds and gains are judged by two systems; a number that is printed in several places has one result. A number
without a result gets the reason, and the prerequisites of a run at the paper's size.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

from phrasemodels import project
from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.experiments.catalogue import COUNTED, PROFILES, experiments
from phrasemodels.flows.experiments.comparability import STATED_FIRST, kind_of
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment
from phrasemodels.flows.experiments.published import JUDGED, printed_value, published_results
from phrasemodels.flows.results.impossible import AVERAGE, LITERATURE, SUSPECT, Line, impossible, tasks_of
from phrasemodels.flows.results.prerequisites import further, needs
from phrasemodels.flows.results.results import Result
from phrasemodels.tasks.metrics.compare import reason_not
from phrasemodels.verdicts.judgement import Verdict, judge, qualified
from phrasemodels.verdicts.rule import LARGEST_MARGIN, PrintedValue
from phrasemodels.verdicts.significance import seed_group


def percent(value: float, base: float) -> float:
    """Return a value in percent of a base."""
    return 100 * value / base


def gain(value: float, base: float) -> float:
    """Return how much a value is above a base."""
    return value - base


@dataclass(frozen=True)
class Derived:
    """A printed number, and the printed numbers of the two systems that it compares."""

    cell: Cell
    over: Cell
    base: Cell
    value: Callable[[float, float], float]


MIXED = "n=[0;0;2;2;3;3;4;4]"
SPEED = Cell("002", "Table 5", "Transformer", "ours", "training_speed", "MSParS")
RATIO = Cell("002", "text 4.3.1", "PhraseTransformer", "vs Transformer", "", "MSParS")
DERIVED = (
    Derived(
        replace(RATIO, metric="relative_training_speed_min"),
        replace(SPEED, system="PhraseTransformer Res.", variant=MIXED),
        SPEED,
        percent,
    ),
    Derived(
        replace(RATIO, metric="relative_training_speed_max"),
        replace(SPEED, system="PhraseTransformer", variant=MIXED),
        SPEED,
        percent,
    ),
    Derived(
        Cell("002", "text 4.3.1", "PhraseTransformer Sum", "vs Transformer", "gain_logic_match", "Atis", "test"),
        Cell("002", "Table 2", "PhraseTransformer Sum", MIXED, "logic match", "Atis", "test"),
        Cell("002", "Table 3", "Transformer", "ours", "logic match", "Atis", "test"),
        gain,
    ),
)


def derived_from(columns: dict[str, str]) -> Derived | None:
    """Return how a printed number is derived; columns: its row of data/published_results.csv."""
    return next((d for d in DERIVED if all(columns[n] == value for n, value in d.cell.wanted.items())), None)


def derive(known: Derived, results: Sequence[Result]) -> dict[str, Any]:
    """Return the verdict on a derived number, with its value and seeds; empty if no comparison has both systems.

    Of absolute speeds nothing is comparable, but their ratio is; so only the size, data and settings of both count.
    """
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
    verdict = judge(
        known.cell.printed, of_seeds, how=known.cell.how, reason_not=reason_not(stand_in, "; ".join(filter(None, why)))
    )
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
    """Return the results that answer a cell: every column that both name is equal."""

    def same(other: Cell | None) -> bool:
        if other is None:
            return False
        return all(other.wanted.get(name, value) == value for name, value in cell.wanted.items())

    return [r for r in results if same(r.answer.cell)]


PRINTED = ("paper", "system", "variant", "dataset", "split", "metric", "value")
Columns = Mapping[str, str]  # of data/published_results.csv


@dataclass(frozen=True)
class Repeat:
    """Rows of the file, by some columns, that repeat rows whose columns are the same but for `of`, in fewer digits or as many."""

    row: Columns
    of: Columns


FOURTH, FIFTH = f"Model 4, {MIXED}", f"Model 5, {MIXED}"
BEST = "3 self-attention layers; PWFF yes; residual dropout yes"
REPEATS = (
    Repeat({"paper": "001", "table": "Table 4", "variant": "(8) Full Model"}, {"table": "Table 2", "variant": ""}),
    *(
        Repeat(
            {"paper": "002", "table": "Table 3", "variant": variant, "dataset": dataset},
            {"table": "Table 2", "variant": MIXED, "dataset": full},
        )
        for variant in (FOURTH, FIFTH)
        for dataset, full in (("Atis", "Atis"), ("MSParS", "MSParS (BPE6k)"))
    ),
    Repeat(
        {"paper": "002", "table": "Table 4", "variant": "layers=[1 - 6]", "metric": "logic match"},
        {"table": "Table 2", "variant": MIXED},
    ),
    *(
        Repeat({"paper": "004", "table": place}, {"table": "Table 2", "variant": BEST})
        for place in ("abstract", "text 6")
    ),
)


def original(row: Columns) -> Columns:
    """Return the row that a row repeats, or the row itself."""
    for repeat in REPEATS:
        if all(row[name] == value for name, value in repeat.row.items()):
            wanted = {name: row[name] for name in ("paper", "table", *PRINTED[1:-1])} | dict(repeat.of)
            (found,) = [o for o in published_results() if all(o[name] == value for name, value in wanted.items())]
            return found
    return row


def same_numbers(row: Columns) -> list[Columns]:
    """Return all rows of the file that are one number with a row, itself among them."""
    return _same()[_identity(row)]


@cache
def _same() -> dict[tuple[str, ...], list[Columns]]:
    found: dict[tuple[str, ...], list[Columns]] = {}
    for row in published_results():
        found.setdefault(_identity(row), []).append(row)
    return found


def _identity(row: Columns) -> tuple[str, ...]:
    return tuple(original(row)[name] for name in PRINTED)


NO_RUN, COUNT, THEIRS, ABSENT, OTHER = (
    "no run yet",
    "not counted yet",
    "literature, not ours to run",
    "its corpus is not here",
    "no table computes it",
)

# Absolute figures of other hardware, by metric: nothing that runs elsewhere can be compared with them.
HARDWARE = {
    "training_speed": "a speed of one P100 16 GB: only the ratio of two systems can be compared elsewhere",
    "memory": "memory of the authors' program; what was counted is not said",
}

MSPARS = "no table computes it: it is of train after BPE, and the logical forms of train are not here"
MSPARS_FORMS = (
    "no table computes it: it is of the logical forms, of which train's are not here (dev's have 14.68 words)"
)

# Corpora that are not here, by paper and data set.
CORPORA = {
    ("000", "PTB POS tagging"): "describes the Penn Treebank, which has a licence and is not here",
    ("001", "SNLI"): "describes SNLI's official training set, which users put in by hand",
    ("002", "MSParS (BPE6k)"): MSPARS,
    ("002", "MSParS"): MSPARS_FORMS,
}

DATA = ("dataset", "dataset statistics")  # systems of rows that describe a corpus


def not_run(row: Columns, same: Iterable[Columns]) -> tuple[str, str, str]:
    """Return the verdict, the reason and the kind of reason of a number without a value of ours. same: the rows of the
    file that are this number."""
    if row["variant"] == LITERATURE:
        return "not run", "not ours to run: a result of others, which the paper repeats", THEIRS
    if row["metric"] in HARDWARE:
        return "not comparable", HARDWARE[row["metric"]], HARDWARE[row["metric"]]
    if pair := asked(same):
        return "not run", *_command(*pair)
    if derived := derived_from(dict(row)):
        both = f"{derived.over.system} and {derived.base.system}"
        return "not run", f"no run of both {both} ({derived.over.table}), whose numbers give it", NO_RUN
    if row["system"] in DATA and (reason := CORPORA.get((row["paper"], row["dataset"]))):
        return "not run", reason, ABSENT
    return "not run", OTHER, OTHER


def _command(experiment: Experiment, answer: Answer) -> tuple[str, str]:
    """Return how to get an answer, or why nobody can, and the kind of reason."""
    table = experiment.table
    if (table.paper, table.number) in COUNTED:
        corpora = COUNTED[table.paper, table.number]
        return f"not counted yet: phrasemodels verdicts --count{' --corpora' * corpora}", COUNT
    command = (
        f"no run: phrasemodels reproduce --paper {table.paper} --table {table.number} --row {experiment.row} --seeds 3"
    )
    command += f" --profile {PROFILES[-1]}" if experiment.profile == PROFILES[-1] else ""
    return (answer.why_not,) * 2 if answer.why_not else (command, NO_RUN)


def answers(cell: Cell | None, rows: Iterable[Columns]) -> bool:
    """Return whether a cell is one of these rows, which are one number printed in several places; what is empty is any."""
    wanted = cell.wanted if cell else {}
    return bool(wanted) and any(all(row[name] == value for name, value in wanted.items()) for row in rows)


def asked(rows: Iterable[Columns]) -> tuple[Experiment, Answer] | None:
    """Return the experiment at the paper's size, or else another one, that answers a number."""
    same = list(rows)
    found = [(e, a) for e in catalogue() for a in e.answers if answers(a.cell, same)]
    exact = [pair for pair in found if pair[1].exact and not pair[0].recipe.trains]
    largest = [pair for pair in found if pair[0].profile == PROFILES[-1]]
    return next(iter((*exact, *largest, *found)), None)


def compared(derived: Derived) -> list[Experiment]:
    """Return the experiments that a derived number compares, as `asked` finds them."""
    cells = (derived.over.wanted, derived.base.wanted)
    rows = [[r for r in published_results() if all(r[name] == value for name, value in cell.items())] for cell in cells]
    return [pair[0] for same in rows if (pair := asked(same))]


@cache
def catalogue() -> list[Experiment]:
    """Return the rows of all tables at all sizes."""
    return experiments()


COLUMNS = ("paper", "table", "system", "variant", "dataset", "split", "metric")
EXACT = "counted"  # kinds of judgement: this, and on what settings the trainings rest
AS_PUBLISHED, AS_RELEASED, RETUNED = "trained as published", "trained as released", "trained after re-tuning"


def verdicts(results: Iterable[Result], paper: str = "") -> list[dict[str, Any]]:
    """Return a verdict for each row of published_results.csv, in its order; of one paper, if one is named.

    kind: the kind of its reason, of which there are few. needs: what it takes until a number without a judgement has one,
    empty if a training would not do it. ValueError: there is no such paper.
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
        line["needs"] = _needs(row, line, lines)
        del line["values"], line["caveat"], line["basis"]
    return lines


def _needs(row: dict[str, str], line: Line, lines: Sequence[Line]) -> str:
    """Return what it takes to judge a printed number; empty if it has a verdict."""
    if line["verdict"] in ("reproduced", "higher", "lower", "impossible", "suspect"):
        return ""
    if line["verdict"] == "inconclusive" or line["kind"] == "too few runs":
        return further(line)
    if line["dataset"].endswith(AVERAGE):
        open_ones = [
            task for task in tasks_of(line, lines) if task["verdict"] not in (*JUDGED, "impossible", "suspect")
        ]
        pairs = [asked([task]) for task in open_ones]
        return needs([pair[0] for pair in pairs if pair], line["reason"])
    if derived := derived_from(row):
        if derived.base == SPEED:
            return "ten updates of both systems on one machine"
        return needs(compared(derived), line["reason"])
    pair = asked(same_numbers(row))
    return needs([pair[0]] if pair and pair[0].recipe.trains else [], line["reason"])


def _line(row: dict[str, str], results: Sequence[Result]) -> dict[str, Any]:
    """Return the line of a printed number, by the best result that answers it."""
    same = same_numbers(row)
    line: dict[str, Any] = {name: row[name] for name in COLUMNS}
    line |= {"printed": row["value"], "published": float(row["value"]), "stdev": row["stdev"], "notes": row["notes"]}
    line |= {
        "ours": None,
        "half_width": None,
        "seeds": 0,
        "runs": [],
        "exact": False,
        "values": [],
        "caveat": "",
        "basis": "",
    }
    line |= dict.fromkeys(("source", "title", "experiment", "measured"), "") | {"further_seeds": None}
    line |= {"readings": [], "chance": row["chance"], "says_nothing": _says_nothing(row)}
    if found := _readings(row, results, same):
        line |= _agreed(found, _has_readings(same))
    elif (derived := derived_from(row)) and (made := derive(derived, results)):
        line |= made | {"kind": made["kind"] if made["verdict"] in JUDGED else made["reason"].partition("; of ")[0]}
    else:
        line |= dict(zip(("verdict", "reason", "kind"), not_run(row, same), strict=True))
    if line["verdict"] == "reproduced" and line["says_nothing"]:
        line["reason"] += f"; says nothing: chance has {row['chance']}"
    return line


def _says_nothing(row: Columns) -> bool:
    """Return whether a printed value is no better than chance, give or take the largest margin."""
    return bool(row["chance"]) and float(row["value"]) <= float(row["chance"]) + LARGEST_MARGIN


def _has_readings(same: Iterable[Columns]) -> bool:
    """Return whether a number has several readings that are trained."""
    rows = list(same)
    return any(answers(a.reading, rows) and not a.exact for e in catalogue() for a in e.answers)


def _readings(row: Columns, results: Sequence[Result], same: Iterable[Columns]) -> list[dict[str, Any]]:
    """Return the line of each reading of a number by its best result: those that can be compared first, then the main one."""
    rows, best = list(same), {}
    for result in sorted(results, key=lambda r: r.worth):
        if answers(result.answer.cell or result.answer.reading, rows):
            best[_reading(result), result.experiment.profile] = result
    lines = [_answered(row, result) | {"name": name, "main": not name} for (name, _), result in best.items()]
    lines.sort(key=lambda line: (line["verdict"] in JUDGED, line["main"], line["seeds"]), reverse=True)
    return lines


def _reading(result: Result) -> str:
    """Return the name of a reading; empty for the main one."""
    answer = result.answer
    if answer.reading is None:
        return ""
    return answer.named or (answer.exact and answer.why_not.partition(";")[0]) or result.experiment.row


FEWEST_RUNS = 3  # of a reading that votes
DIFFER = "readings differ"


def _agreed(lines: Sequence[dict[str, Any]], several: bool) -> dict[str, Any]:
    """Return the line of a number by its readings: the verdict on which all agree that have three runs.

    A counted number has the verdict of its main reading. A smaller run, or one on other data, never votes.

    Args:
        several: there are readings that are trained, be they run or not.
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
    made = {name: value for name, value in front.items() if name not in ("name", "main")}
    if judged and not voting:
        more = FEWEST_RUNS - front["seeds"]
        reason = f"no reading has {FEWEST_RUNS} runs: {', '.join(said)}; {more} further seed{'s' * (more > 1)} of each"
        made |= {"verdict": "not run", "reason": reason, "kind": "too few runs", "further_seeds": more}
    elif len({line["verdict"] for line in voting}) > 1:
        made |= {"verdict": "inconclusive", "reason": f"{DIFFER}: {', '.join(said)}", "further_seeds": None}
        made["kind"] = front["basis"]
    names = ("name", "experiment", "source", "ours", "half_width", "seeds", "exact", "verdict")
    made["readings"] = [{n: line[n] for n in names} | {"votes": line in voting} for line in lines if len(lines) > 1]
    return made


def _answered(row: Columns, best: Result) -> dict[str, Any]:
    """Return what a result says of a printed number; it is judged by the digits of that number."""
    metric, exact = best.row["metric"], best.answer.exact
    values = best.row["values"][metric]
    unlike = best.experiment.reason_not(best.answer) or best.row["reason_not"]  # by what is known of it today, or then
    why_not = reason_not(best.row["stand_in"], "; ".join(filter(None, (best.outdated, unlike))))
    caveat = best.answer.note if exact else best.experiment.caveat
    how = replace(printed_value(row), items=_items(best))
    verdict = _withheld(qualified(judge(row["value"], values, why_not, exact, how), caveat), best)
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
        "values": values,
        "caveat": caveat,
        "verdict": verdict.verdict,
        "reason": verdict.reason + signature,
        "further_seeds": verdict.further_seeds,
        "basis": _basis(best.experiment),
        "kind": (EXACT if exact else _basis(best.experiment)) if judged else kind_of(verdict.reason),
    }


UNDEFINED = "the paper does not say what is counted"  # in the note of a count
OTHER_MODEL = "another model than the paper's"
UNRECORDED = "unrecorded search"  # in the source of a setting


def _withheld(verdict: Verdict, best: Result) -> Verdict:
    """Return a verdict without what its runs can't bear, and with what it rests on."""
    said, reason = verdict.verdict, verdict.reason
    if best.answer.exact:
        undefined = said in ("higher", "lower") and UNDEFINED in best.answer.note
        return replace(verdict, verdict="inconclusive") if undefined else verdict
    if said not in JUDGED:
        return verdict
    starts = getattr(best.experiment.recipe, "restarts", 1)
    if starts > 1:
        reason = reason.replace("printed: 1 run", f"printed: 1 run of {starts} starts, as each of ours")
    rest = rests_on(best)
    if said == "reproduced" and any(words.startswith(OTHER_MODEL) for words in rest):
        said = "inconclusive"
    return replace(verdict, verdict=said, reason="; ".join((reason, *rest)))


def rests_on(result: Result) -> list[str]:
    """Return in words what a sceptic has to know of a training: another model than the paper's, settings of unrecorded origin."""
    aspects = result.experiment.aspects
    if not aspects:
        return []
    other = [words for words in aspects["model"].stated if words.startswith("model.")]
    unrecorded = any(UNRECORDED in words for words in aspects["tuning"].stated)
    return [f"{OTHER_MODEL}: {words}" for words in other] + ["settings of unrecorded origin"] * unrecorded


def _items(best: Result) -> int:
    """Return the items of a result's test set of which its metric is a share; 0 if it is another metric or not known."""
    if best.answer.statistic is None or best.answer.statistic.column != "right":
        return 0
    return sum(int(part.get("rows", 0)) for part in best.row.get("test_set") or [])


def _averaged(line: dict[str, Any], tasks: Sequence[Line]) -> dict[str, Any]:
    """Return what is said of an average of tasks: our own if all of them were run, and what the printed ones give."""
    given = f"the {len(tasks)} listed tasks really give {fmean(task['published'] for task in tasks):.2f}"
    run = [task for task in tasks if task["ours"] is not None]
    if len(run) < len(tasks):
        return {"reason": f"{len(run)} of {len(tasks)} tasks were run; {given}"}
    # of the seeds that all tasks have
    means = [fmean(values) for values in zip(*(task["values"] for task in tasks), strict=False)]
    ours = {"ours": fmean(means or [task["ours"] for task in tasks]), "seeds": min(task["seeds"] for task in tasks)}
    unlike = [task for task in tasks if task["verdict"] == "not comparable"]
    if unlike:
        reason = unlike[0]["reason"]
        return ours | {
            "verdict": "not comparable",
            "reason": f"{len(unlike)} tasks: {reason}",
            "kind": unlike[0]["kind"],
        }
    group = seed_group(means)
    judged = qualified(judge(line["printed"], means, how=PrintedValue()), tasks[0]["caveat"])
    kind = tasks[0]["basis"] if judged.verdict in JUDGED else judged.reason
    half = {"half_width": None if group.n < 2 else group.half_width, "further_seeds": judged.further_seeds}
    return ours | half | {"verdict": judged.verdict, "reason": judged.reason, "kind": kind}


def _basis(experiment: Experiment) -> str:
    """Return on what settings a training rests: published, released with the paper's code, or chosen anew and said so."""
    if experiment.caveat.startswith(STATED_FIRST):
        return RETUNED
    return AS_RELEASED if any(aspect.released for aspect in experiment.aspects.values()) else AS_PUBLISHED
