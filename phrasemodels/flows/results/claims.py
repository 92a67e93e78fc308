"""The papers' claims and their answers by pairs of results at the paper's size.

Answers elsewhere are at a small size or on other data.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels import project
from phrasemodels.data.download.manifest import find_corpus
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.experiment import Answer, Experiment
from phrasemodels.flows.experiments.published import (
    Columns,
    printed_value,
    published_results,
    reading_lines,
    same_numbers,
)
from phrasemodels.flows.results.records import SENTENCES, TRIALS, kept_files
from phrasemodels.flows.results.results import Result, statistics_of
from phrasemodels.flows.results.verdicts import (
    AVERAGE,
    answers,
    catalogue,
    mean_of_fewer,
    not_a_mean,
    rests_on,
    tasks_of,
)
from phrasemodels.verdicts.claims import (
    ALL,
    OPEN,
    SEVERAL,
    Claim,
    ClaimVerdict,
    Gain,
    agreed,
    elsewhere,
    gain_of_items,
    gain_of_values,
    judge_gain,
    printed_gain,
    read_claims,
    weakest,
)
from phrasemodels.verdicts.rule import PrintedValue
from phrasemodels.verdicts.significance import FEWEST_SEEDS

CLAIMS = "claims.csv"  # of the five papers, and beside the module of a paper that a user adds
NO_RUN = "no run of both rows at the paper's size"
UNSEEN = ("lower_is_better", "than_table", "stand_ins")  # columns of a claim that its answer doesn't have
TUNED = "with tuned settings"  # of each row; such rows are compared with each other alone


@cache
def claims() -> list[Claim]:
    """Return the claims of the five papers and of users."""
    beside = {paper: project.beside(paper, CLAIMS) for paper in project.parts("papers")}
    places = {"": Path(str(files("phrasemodels.data") / CLAIMS))} | {
        paper: path for paper, path in beside.items() if path
    }
    return [claim for paper, path in places.items() for claim in read_claims(path, paper)]


def name_of(row: Columns) -> str:
    """Return the name of a printed row in claims: its system and variant."""
    return ", ".join(filter(None, (row["system"], row["variant"])))


def printed_rows(claim: Claim) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the printed numbers of the better rows, and the printed number of the other row.

    Raises:
        ValueError: A row isn't printed, or is printed twice.
    """

    def find(name: str, table: str) -> dict[str, Any]:
        wanted = {"paper": claim.paper, "table": table, "dataset": claim.dataset, "metric": claim.metric}
        if claim.split:
            wanted["split"] = claim.split
        known = (r for r in published_results() if all(r[column] == value for column, value in wanted.items()))
        found = [row for row in known if name_of(row) == name]
        if len(found) != 1:
            raise ValueError(f"claim {claim.id}: {len(found)} printed numbers of {name[:80]!r} in {table}; one must be")
        return found[0]

    return [find(name, claim.table) for name in claim.rows], find(claim.than, claim.than_table or claim.table)


@dataclass(frozen=True)
class Side:
    """The runs of one row: of a number, or of all tasks of an average.

    group: size, reading, overrides and test set. asked: the runs answer the number itself. stands_in: for a row that is
    not run. lacking: which tasks of an average were run, if not all.
    """

    results: tuple[Result, ...]
    answer: Answer
    group: tuple[str, ...]
    asked: bool
    stands_in: bool = False
    lacking: str = ""

    def pairs_with(self, others: Sequence["Side"]) -> "list[Side]":
        """Return the sides to compare with.

        One has the same group, of the same table or else of the same training. Without it they are other readings in
        the same table against which this one is tested, and stand-ins.
        """
        alike = [other for other in others if other.group == self.group]
        mine, train = self.results[0], self.results[0].experiment.train
        same_table = [other for other in others if other.results[0].source == mine.source]
        same_training = [other for other in alike if other.results[0].experiment.train == train]
        if found := [*(other for other in same_table if other in alike), *same_training]:
            return found[:1]
        tested = (mine.row.get("against") or {}).get("baseline")
        beside = [o for o in same_table if (o.group[0], *o.group[2:]) == (self.group[0], *self.group[2:])]
        return [o for o in beside if o.stands_in or o.results[0].experiment.name == tested]

    def against(self, other: "Side") -> "Side":
        """Return this side with the name of the other's reading, too."""
        names = dict.fromkeys(filter(None, (self.group[1], other.group[1] and f"against {other.group[1]}")))
        same = other.group[1] == self.group[1]
        return self if same else replace(self, group=(self.group[0], " ".join(names), *self.group[2:]))

    @property
    def values(self) -> list[float]:
        """One value a seed, of the common seeds of all tasks."""
        metric = self.answer.metric
        by_seed = [dict(zip(r.row["seeds"], r.row["values"][metric], strict=True)) for r in self.results]
        seeds = [seed for seed in by_seed[0] if all(seed in one for one in by_seed)]
        return [fmean(one[seed] for one in by_seed) for seed in seeds]

    @property
    def comparable(self) -> bool:
        """Whether these runs answer the paper: its size, data and settings."""
        e = self.results[0].experiment
        unlike = not self.asked or e.changed or self.answer.why_not or (e.recipe.trains and not e.comparable)
        return not unlike and not any(r.row["stand_in"] or r.outdated for r in self.results)

    @property
    def place(self) -> str:
        """Size and data of these runs, where they aren't the paper's."""
        e = self.results[0].experiment
        if not e.aspects:
            return "as it is counted here"
        other = (
            self.results[0].row["stand_in"] or not (self.asked or self.stands_in) or not e.aspects["data"].as_published
        )
        small = not e.aspects["size"].as_published
        said = ["at a small size"] * small + [f"on {_title(_corpus(e))}"] * bool(other)
        said += [self.group[1]] * bool(self.group[1]) + [TUNED] * (self.group[2] == TUNED)
        return ", ".join(said) or "with other settings"


def _corpus(experiment: Experiment) -> str:
    corpus = experiment.recipe.corpus
    while not isinstance(getattr(corpus, "name", None), str) and hasattr(corpus, "corpus"):
        corpus = corpus.corpus
    return str(getattr(corpus, "name", ""))


def _title(corpus: str) -> str:
    try:
        return re.split(r" \(|: |, ", find_corpus(corpus).title)[0]
    except (ValueError, LookupError):
        return "generated sentences"


def _sides(row: Columns, results: Sequence[Result], stand_ins: str = "") -> list[Side]:
    """Return the runs for a printed number, for its system, variant and metric on other data, and of stand-ins."""
    if row["dataset"].endswith(AVERAGE):
        return _averages(row, results)
    same = same_numbers(row)
    known = [(e, a) for e in catalogue() for a in e.answers if answers(a.cell or a.reading, same)]
    alike = {(e.table.paper, e.system, e.variant, a.metric) for e, a in known}
    instead = stand_ins.split(SEVERAL)
    own, others = ({_corpus(e) for e, _ in pairs} for pairs in (known, _of_other_data(row)))
    searched = {f"results/{path.parent.name}" for path in kept_files() if (path.parent / TRIALS).exists()}
    found = []
    for result in results:
        e, answer = result.experiment, result.answer
        cell = answer.cell or answer.reading
        asked = answers(cell, same)
        stands_in = ", ".join((e.system, e.variant)) in instead and answer.metric in {metric for *_, metric in alike}
        same_row = (e.table.paper, e.system, e.variant, answer.metric) in alike or stands_in
        if same_row and (asked or cell is None):
            if not asked and _corpus(e) in others - own:
                continue  # it answers the number that the paper prints for this corpus
            reading = e.variant if stands_in else answer.named if answer.reading else ""
            tuned = TUNED if result.source in searched else ",".join(e.changed)
            test_set = str(result.row.get("test_set", result.source))  # a comparison in the store has one
            group = (e.profile, reading, tuned, test_set)
            found.append(Side((result,), answer, group, asked, stands_in))
    return found


def _of_other_data(row: Columns) -> list[tuple[Experiment, Answer]]:
    """Return what answers the printed numbers of the same row and metric on other data."""
    alike = ("paper", "system", "variant", "metric")
    others = [r for r in published_results() if all(r[n] == row[n] for n in alike) and r["dataset"] != row["dataset"]]
    return [(e, a) for e in catalogue() for a in e.answers if answers(a.cell, others)]


def _averages(row: Columns, results: Sequence[Result]) -> list[Side]:
    """Return the runs of the tasks of an average, by size and settings."""
    tasks = tasks_of(row, published_results())
    found: dict[tuple[str, ...], dict[str, Side]] = {}
    for task in tasks:
        for side in _sides(task, results):
            group = (*side.group[:3], side.results[0].experiment.table.folder)  # the tasks have test sets of their own
            found.setdefault(group, {}).setdefault(task["dataset"], side)
    made = []
    for group, run in found.items():
        said = "" if len(run) == len(tasks) else f"only {len(run)} of {len(tasks)} tasks were run"
        runs, one = tuple(side.results[0] for side in run.values()), next(iter(run.values()))
        made.append(Side(runs, one.answer, (*group, *run), asked=True, lacking=said))
    return made


def answered_claims(results: Iterable[Result], store: Store | None = None, paper: str = "") -> list[dict[str, Any]]:
    """Return the answer to each claim.

    Args:
        store: Its scores have the statistics of test items.
        paper: Only claims of this paper.

    Returns:
        Columns of the claim, and: printed (the gain), verdict, reason, difference, low, high, seeds, further_seeds, source; and
        elsewhere: answers at a small size or on other data, each with its place.
    """
    found = sorted(results, key=lambda result: result.worth, reverse=True)
    artifacts = {} if store is None else {artifact.key: artifact for artifact in store.all_artifacts()}
    return [_answered(claim, found, artifacts) for claim in claims() if not paper or claim.paper == paper]


def _answered(claim: Claim, results: Sequence[Result], artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    better, than = printed_rows(claim)
    how = _how(claim, better[0])
    kind = "main" if claim.kind == ALL else claim.kind
    printed, *_ = printed_gains(claim)
    base = _sides(than, results, claim.stand_ins)
    # of each size and reading: the best result of each row
    pairs: dict[tuple[str, ...], dict[str, tuple[ClaimVerdict, Side]]] = {}
    for row in better:
        for side in _sides(row, results):
            for other in side.pairs_with(base):
                named = side.against(other)
                group = (*named.group, side.results[0].experiment.table.folder)
                if (name := name_of(row)) in (own := pairs.setdefault(group, {})):
                    continue
                unread = next(filter(None, (a.cell.unread for a in (side.answer, other.answer) if a.cell)), "")
                try:
                    gain = _gain(side, other, how, artifacts)
                except ValueError as error:  # ours don't fit the printed scale
                    gain, unread = None, str(error)
                exact = side.answer.exact and other.answer.exact
                judged = judge_gain(row["value"], than["value"], gain, how, kind, exact)
                rest = dict.fromkeys(words for one in (side, other) for words in rests_on(one.results[0]))
                unread = "" if kind == "resource" or side.answer.exact else unread
                doubts = [side.lacking, unread, *(_no_average(number) for number in (row, than))]
                judged = replace(judged, reason="; ".join(filter(None, (judged.reason, *doubts, *rest))))
                if side.lacking or unread:
                    judged = replace(judged, verdict=OPEN, further_seeds=None)
                own[name] = (judged, named)
    whole = [list(of.values()) for of in pairs.values() if len(of) == len(better)]
    made = [(weakest(v for v, _ in of) if len(of) > 1 else of[0][0], of[0][1]) for of in whole]
    best: dict[tuple[str, ...], tuple[ClaimVerdict, Side]] = {}
    for verdict, side in made:
        if side.comparable:
            best.setdefault((*side.group[:3], side.lacking), (verdict, side))
    ours = sorted(best.values(), key=_rank, reverse=True)
    small = [_elsewhere(verdict, side) for verdict, side in made if not (side.comparable or side.lacking)]
    small.sort(key=lambda one: one["source"])
    # of answers by the same runs, which two kept results have, the first
    runs = [tuple(one[name] for name in ("place", "difference", "low", "high", "seeds")) for one in small]
    others = [one for place, one in enumerate(small) if runs[place] not in runs[:place]]
    answer = _main(ours) or ClaimVerdict(OPEN, NO_RUN, printed)
    return {
        **{name: value for name, value in asdict(claim).items() if name not in UNSEEN},
        "better": claim.better.split(SEVERAL)[0] if claim.kind != ALL else claim.better,
        "printed_better": better[0]["value"],
        "printed_than": than["value"],
        **asdict(answer),
        "readings": [
            {"reading": side.group[1], "votes": _votes(one, side), "source": _source(side), **asdict(one)}
            for one, side in ours
        ],
        "source": _source(ours[0][1]) if ours else "",
        "elsewhere": others,
    }


def printed_gains(claim: Claim) -> list[float]:
    """Return the printed gain of each better row of a claim. ValueError: there is none, or no such row."""
    better, than = printed_rows(claim)
    how, kind = _how(claim, better[0]), "main" if claim.kind == ALL else claim.kind
    try:
        return [printed_gain(row["value"], than["value"], how, kind) for row in better]
    except ValueError as error:
        raise ValueError(f"claim {claim.id}: {error}; if less is better, say so in the column lower_is_better") from None


def _how(claim: Claim, row: Columns) -> PrintedValue:
    how = printed_value(row)
    scale = "positive" if claim.kind == "resource" else how.scale
    lower = claim.lower_is_better or how.lower_is_better  # as claims.csv or the number's own line says
    return PrintedValue(scale, how.margin, lower_is_better=lower, ours_percent=how.ours_percent)


def _main(ours: Sequence[tuple[ClaimVerdict, Side]]) -> ClaimVerdict | None:
    """Return the answer of the voting readings at the paper's size. None: there is no reading."""
    if voting := [(side.group[1], verdict) for verdict, side in ours if _votes(verdict, side)]:
        return agreed(voting)
    if not ours:
        return None
    first, side = ours[0]
    return replace(first, reason=": ".join(filter(None, (side.group[1], first.reason))))


def _votes(verdict: ClaimVerdict, side: Side) -> bool:
    return not side.lacking and (side.answer.exact or min(verdict.seeds, default=0) >= FEWEST_SEEDS)


def _rank(one: tuple[ClaimVerdict, Side]) -> tuple[bool, int, int]:
    """Return the rank of a reading: first voting ones, then most seeds, then most updates."""
    verdict, side = one
    return _votes(*one), min(verdict.seeds, default=0), side.results[0].experiment.train.steps


def _no_average(row: Columns) -> str:
    """Say that a printed average isn't the mean of its printed tasks."""
    lines = [r | {"printed": r["value"]} for r in published_results()] if row["dataset"].endswith(AVERAGE) else []
    line = {**row, "printed": row["value"]}
    return mean_of_fewer(line, lines) or not_a_mean(line, lines)


def _elsewhere(verdict: ClaimVerdict, side: Side) -> dict[str, Any]:
    return {"place": side.place, "source": _source(side), **asdict(elsewhere(verdict, side.place))}


def _source(side: Side) -> str:
    return ", ".join(dict.fromkeys(result.source for result in side.results))


def _gain(better: Side, than: Side, how: PrintedValue, artifacts: Mapping[str, Artifact]) -> Gain | None:
    """Return our gain, by test items where they are kept."""
    statistic = better.answer.statistic
    values = (better.values, than.values)
    whole = statistic and statistic == than.answer.statistic and np.isfinite([x for one in values for x in one]).all()
    if whole and len(better.results) == len(than.results) == 1 and how.scale == "percent":
        assert statistic is not None
        tables = [_items(side.results[0], artifacts) for side in (better, than)]
        first = [one[0].select(["id", "group"]) if one else None for one in tables]
        if first[0] is not None and first[0] == first[1]:
            ours, base = (np.stack([_column(t, statistic.column) for t in one]) for one in tables)
            return gain_of_items(ours, base, statistic.value, -1.0 if how.lower_is_better else 1.0)
    return gain_of_values(*values, how)


def _column(table: pa.Table, name: str) -> np.ndarray:
    return np.array(table[name].to_pylist(), np.float64)


def _items(result: Result, artifacts: Mapping[str, Artifact]) -> list[pa.Table]:
    """Return the statistics of test items as a table a seed. There are none if they aren't kept."""
    if result.kept:
        return next(statistics_of(result.folder, [result.row])) if result.row.get("sentences") else []
    scores = [artifacts.get(run["score"]) for run in result.runs]
    return [read_shard(one.file(SENTENCES)) for one in scores if one] if all(scores) else []


def claim_lines(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a claim in a terminal: its answer, its readings and the answers elsewhere."""
    yield f"{one['id']}  {one['verdict']}: {one['claim']}"
    yield "    " + ", ".join(filter(None, (f"{one['better']} against {one['than']}", one["dataset"], one["metric"])))
    yield f"    {one['reason']}"
    yield from (f"    reading {line}" for line in reading_lines(one))
    for other in one["elsewhere"]:
        yield f"    {other['verdict']}: {other['reason']}; {other['source']}"
