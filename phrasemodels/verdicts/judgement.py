"""The verdict on one printed number by your own seeds, and on all numbers of a paper by scores of your own runs."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from phrasemodels.verdicts.claims import OPEN, ClaimVerdict, Gain, gain_of_items, gain_of_values, judge_gain
from phrasemodels.verdicts.printed import COUNT, Printed, digits, impossible, prints_as
from phrasemodels.verdicts.rule import PrintedValue, deviation_apart, factor_of, how_made, judge_runs, read_number
from phrasemodels.verdicts.scales import (
    UNITLESS,
    Decision,
    decide,
    is_average,
    known,
    misfit,
    share_among,
    split_of,
    words,
)
from phrasemodels.verdicts.scores import Scores, ratio
from phrasemodels.verdicts.significance import Array, Difference, SeedGroup, difference, few_seeds, holm, seed_group
from phrasemodels.verdicts.tables import Fold, fold_of, folded, folded_metric


@dataclass(frozen=True)
class Verdict:
    """The verdict on a published number: not run, not comparable, reproduced, higher, lower or inconclusive; and its reason.

    further_seeds: of an inconclusive verdict, the least deciding number of further seeds; None if there is none.
    """

    verdict: str
    reason: str
    further_seeds: int | None = None


def judge(
    printed: str,
    ours: Sequence[float] | None,
    reason_not: str = "",
    exact: bool = False,
    how: PrintedValue | None = None,
) -> Verdict:
    """Return the verdict on one printed number.

    Args:
        printed: The text of the printed number. Empty if the paper has none.
        ours: One value a seed, NaN for a diverged run. None without a run.
        reason_not: Why the numbers can't be compared, for example a smaller size. Empty if they can.
        exact: The value does not vary by seed, like a count: one run is enough, and it has to print the same.
        how: How the number was made. None: a percentage or a share; `decide` finds it by the number and our values.

    Raises:
        ValueError: `printed` is no text of a finite number, there is no value, or neither a scale nor a margin is known.
    """
    if ours is None:
        return Verdict("not run", "no run of this experiment is in the store")
    if not printed:
        return Verdict("not comparable", "; ".join(filter(None, ("the paper prints no such number", reason_not))))
    if not isinstance(printed, str):
        raise ValueError(f"{printed!r} is no text: give the number with its printed digits, such as '87.10'")
    read_number(printed)
    if reason_not:
        return Verdict("not comparable", reason_not)
    try:
        ours = [] if isinstance(ours, str | Mapping) else [float(value) for value in ours]  # not the digits of a text, nor keys
    except (TypeError, ValueError):
        raise ValueError("the values of the seeds must be numbers, one for each seed") from None
    if not len(ours):
        raise ValueError("the values of the seeds are missing: give a list with one for each seed")
    if exact:
        if math.isfinite(ours[0]) and len({*ours}) == 1:
            return _exactly(printed, ours[0])
        how = PrintedValue("count")
    doubt = ""
    if how is None:
        decision = decide("", [(printed, ours)])
        if decision.problem:
            raise ValueError(decision.problem.replace("--scale METRIC=…", "how=PrintedValue(…)"))
        how, doubt = PrintedValue(decision.scale), decision.doubt
        ours = [decision.factor * value for value in ours]
        if len(ours) > 1 and len({*ours}) == 1:
            doubt, ours = f"all {len(ours)} runs have the same scores, so they count as one", ours[:1]
    doubts = [doubt, few_seeds(len(ours)) if len(ours) == 2 else ""]
    found = judge_runs(printed, ours, how)
    return qualified(Verdict(found.verdict, found.reason, found.further_seeds), "; ".join(filter(None, doubts)))


def qualified(verdict: Verdict, caveat: str) -> Verdict:
    """Return a verdict on compared numbers with a caveat in its reason. Other verdicts stay as they are."""
    if not caveat or verdict.verdict in ("not comparable", "not run"):
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; but {caveat}")


def _exactly(printed: str, value: float) -> Verdict:
    """Judge a value without variance over seeds by the printed digits."""
    said = _plain(value)
    if prints_as(printed, value):
        return Verdict("reproduced", f"{said}, which prints as {printed}" if said != printed else f"it is {said}")
    direction = "higher" if value > float(printed) else "lower"
    return Verdict(
        direction, f"it is {said}, which is {_plain(abs(value - float(printed)))} {direction} than {printed}"
    )


def _plain(value: float) -> str:
    return f"{round(value, 4):.10g}"


RESAMPLES = 1000


@dataclass(frozen=True)
class Test:
    """The difference of a row from its baseline on the same items.

    tested: the difference, None if it cannot be tested; then the note says why. p_holm: p, corrected over the rows of a table
    and metric; None for one seed. note: also warns of few seeds.
    """

    __test__ = False  # no test of pytest

    baseline: str
    tested: Difference | None
    p_holm: float | None
    note: str


@dataclass(frozen=True)
class Judged:
    """A printed number with its verdict. ours: the metric over seeds, in the unit of the printed number."""

    printed: Printed
    verdict: str
    reason: str
    ours: SeedGroup | None
    values: tuple[float, ...]
    items: int
    test: Test | None
    scale: Decision


def judge_table(printed: Sequence[Printed], scores: Sequence[Scores]) -> list[Judged]:
    """Return a verdict on each printed number by the scores with its names, with a test against its baseline.

    The scale is decided once for the numbers of a table and metric, printed and ours. The baseline is the named row, or else
    the first row of its table, data set and metric. ValueError: two scores answer one number, or arithmetic names a missing
    number.
    """
    answers = _answers(printed, scores)
    scales = _scales(printed, answers)
    judged = [_judged(*each, printed, scores) for each in zip(printed, answers, scales, strict=True)]
    by_place = {one.where: place for place, one in enumerate(printed)}
    for place, (one, ours) in enumerate(zip(printed, answers, strict=True)):
        base = by_place.get((*one.where[:2], _baseline(one, printed), *one.where[3:]))
        other = None if base is None else answers[base]
        if base is not None and ours is not None and other is not None and other is not ours:
            judged[place] = replace(judged[place], test=_test(printed[base].row, ours, other, scales[place].factor))
    return _corrected(judged)


@dataclass(frozen=True)
class Read:
    """How the numbers of one metric in one table were read: their scale, our factor, and their count."""

    table: str
    metric: str
    scale: str
    factor: float
    systems: tuple[str, ...]
    datasets: tuple[str, ...]
    printed: int
    answered: int
    seeds: tuple[int, ...]
    problem: str


def how_read(printed: Sequence[Printed], scores: Sequence[Scores]) -> list[Read]:
    """Return how printed numbers and scores were read, a metric of a table each."""
    answers = _answers(printed, scores)
    groups: dict[tuple[str, str, Decision], list[int]] = {}
    for place, (one, scale) in enumerate(zip(printed, _scales(printed, answers), strict=True)):
        groups.setdefault((one.table, one.metric, scale), []).append(place)
    made = []
    for (table, metric, scale), places in groups.items():
        numbers, ours = [printed[place] for place in places], [answers[place] for place in places]
        less = {scale.lower_is_better if one.lower_is_better is None else one.lower_is_better for one in numbers}
        better = "what is better isn't known" if None in less else f"{'lower' if True in less else 'higher'} is better"
        known = f"{scale.scale}, {better}" if scale.scale else "unknown"
        made.append(
            Read(
                table, metric, known, scale.factor,
                tuple(dict.fromkeys(one.row for one in numbers)), tuple(dict.fromkeys(one.dataset for one in numbers if one.dataset)),
                sum(bool(one.value) for one in numbers), sum(one is not None for one in ours),
                tuple(sorted({len(one.seeds) for one in ours if one})), scale.problem,
            )
        )  # fmt: skip
    return made


@dataclass(frozen=True)
class Match:
    """A printed system and the runs that answer its numbers. ours: its name there; why: why numbers have no answer."""

    system: str
    printed: int
    answered: int
    seeds: tuple[int, ...]
    ours: tuple[str, ...]
    why: tuple[str, ...]


def matched(printed: Sequence[Printed], scores: Sequence[Scores]) -> list[Match]:
    """Return for each printed system whether runs of ours answer its numbers."""
    groups: dict[str, list[tuple[Printed, Scores | None, Decision]]] = {}
    answers = _answers(printed, scores)
    for one, ours, scale in zip(printed, answers, _scales(printed, answers), strict=True):
        if one.value:
            groups.setdefault(one.row, []).append((one, ours, scale))
    made = []
    for system, pairs in groups.items():
        found = [ours for _, ours, _ in pairs if ours and not ours.problem]
        why = (_not_run(one, scores) if ours is None else _withheld(one, ours, scale) for one, ours, scale in pairs)
        seeds = tuple(sorted({len(ours.seeds) for ours in found}))
        names = tuple(dict.fromkeys(ours.row for ours in found if ours.row))
        made.append(Match(system, len(pairs), len(found), seeds, names, tuple(dict.fromkeys(filter(None, why)))))
    return made


def unmatched(printed: Sequence[Printed], scores: Sequence[Scores]) -> list[str]:
    """Say which systems, data sets and metrics of ours match no printed one, a line each."""
    fold, answers = fold_of(map(_wanted, printed)), _answers(printed, scores)
    lines = [] if any(answers) else ["no result of ours matches a printed number: compare the names"]
    theirs = [(_wanted(one), fold(*_wanted(one)), ours) for one, ours in zip(printed, answers, strict=True) if one.value]
    for place, kind in enumerate(("system", "data set", "metric")):
        names = {(one.row, one.dataset, one.metric)[place]: fold(one.row, one.dataset, one.metric)[place] for one in scores}
        only = len({wanted[place] for wanted, _, _ in theirs}) == 1
        apart = [name for name, has in names.items() if not any(_fits(name, has, want[place], only) for _, want, _ in theirs)]
        lacking = {wanted[place]: None for wanted, _, _ in theirs} if apart else {}
        for wanted, _, ours in theirs:
            if ours:
                lacking.pop(wanted[place], None)
        if "" in apart:
            lines.append(f"some of ours name no {kind}: add a column, or say --{kind.replace(' ', '')}")
        if named := list(filter(None, apart)):
            or_column = ", or add a column our_row to the printed table" if kind == "system" else ""
            without = f"; printed without results: {_few(list(lacking))}" if any(lacking) else ""
            lines.append(f"{kind}s of ours that match no printed one: {_few(named)}{without}; spell them alike{or_column}")
    return lines


def _few(names: Sequence[str]) -> str:
    return ", ".join(name[:60] for name in names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


@dataclass(frozen=True)
class JudgedGain:
    """A claim of one system of a table over another, with its answer."""

    system: str
    baseline: str
    table: str
    dataset: str
    metric: str
    answer: ClaimVerdict


def judge_gains(
    printed: Sequence[Printed], scores: Sequence[Scores], pairs: Sequence[tuple[str, str]] = ()
) -> list[JudgedGain]:
    """Return an answer to each claim of a system over a baseline, for each table, data set and metric with both.

    Args:
        printed: The printed numbers. Those with `gain_over` are claims, too.
        scores: Ours.
        pairs: Further claims: names of system and baseline.

    Raises:
        ValueError: No table has both systems of a claim.
    """
    answers = _answers(printed, scores)
    scales = _scales(printed, answers)
    made = []
    for (place, other), name in _claims(printed, pairs).items():
        one = printed[place]
        answer = ClaimVerdict(OPEN, f"{name} has no printed number beside it", math.nan)
        if other is not None:
            answer = _gain(one, printed[other], answers[place], answers[other], scales[place])
            name = printed[other].row
        made.append(JudgedGain(one.row, name, one.table, one.dataset, one.metric, answer))
    return made


def _claims(printed: Sequence[Printed], pairs: Sequence[tuple[str, str]]) -> dict[tuple[int, int | None], str]:
    """Return the name of the baseline by the places of both numbers of a claim. ValueError: no table has both systems."""
    places = {
        (*one.where[:2], folded(one.row), *one.where[3:]): place for place, one in enumerate(printed) if one.value
    }
    claims: dict[tuple[int, int | None], str] = {}

    def beside(one: Printed, row: str) -> int | None:
        return places.get((*one.where[:2], folded(row), *one.where[3:]))

    for system, baseline in pairs:
        mine = [place for place, one in enumerate(printed) if one.value and folded(one.row) == folded(system)]
        both: dict[tuple[int, int | None], str] = {
            (place, base): baseline for place in mine if (base := beside(printed[place], baseline)) is not None
        }
        if not both:
            rows = ", ".join(dict.fromkeys(one.row for one in printed))
            raise ValueError(f"gain {system}:{baseline}: no table has both; its systems are {rows[:200]}")
        claims |= both
    for place, one in enumerate(printed):
        if one.value and one.gain_over:  # a claim on this number alone
            claims[place, beside(one, one.gain_over)] = one.gain_over
    return claims


def unclaimed(printed: Sequence[Printed], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Say which claims name a system that no printed table has, a line each."""
    lines = [
        f"gain {printed[place].row}:{name}: {name} has no printed number beside it"
        for (place, other), name in _claims(printed, ()).items()
        if other is None
    ]
    for pair in pairs:
        try:
            _claims(printed, [pair])
        except ValueError as error:
            lines.append(str(error))
    return list(dict.fromkeys(lines))


def _gain(one: Printed, other: Printed, ours: Scores | None, base: Scores | None, scale: Decision) -> ClaimVerdict:
    """Return the answer to one claim, an open one if ours cannot tell."""
    lower = scale.lower_is_better if one.lower_is_better is None else one.lower_is_better
    how = PrintedValue(scale.scale, lower_is_better=bool(lower))
    problem = one.asked or other.asked or scale.problem or next((s.problem for s in (ours, base) if s and s.problem), "")
    if ours is None or base is None or problem:
        return ClaimVerdict(OPEN, problem or "ours lack one of the two systems", math.nan)
    if lower is None:
        asked = (
            f"whether more or less of {one.metric} is better isn't known: say --better '{one.metric}=lower' or higher"
        )
        return ClaimVerdict(OPEN, asked, math.nan)
    if ours.same_as(base):
        return ClaimVerdict(OPEN, "both systems have the same scores of ours, of which one may be a copy", math.nan)
    if copied := next((s.copied for s in (ours, base) if s.halved), ""):
        return ClaimVerdict(OPEN, f"{copied}. Take copies away, or give more digits", math.nan)
    if ours.items != base.items and min(len(ours.items), len(base.items)) > 1:
        return ClaimVerdict(OPEN, f"both systems have other test items: {_in_common(ours, base)}", math.nan)
    one_run = [s.repeats for s in (ours, base)]
    if len(ours.items) > 1 and ours.items == base.items and not any((*one_run, *ours.diverged, *base.diverged)):
        factor = scale.factor * factor_of(how)
        sign = -1.0 if how.lower_is_better else 1.0
        gain: Gain | None = gain_of_items(ours.sums, base.sums, _scaled(factor, how.scale == "positive"), sign)
    else:
        values = [dict(zip(s.seeds, s.values(), strict=True)) for s in (ours, base)]
        paired = values[0].keys() == values[1].keys() and not any(one_run)
        seeds = [values[0] if paired else of for of in values]  # in one order
        mine, theirs = (
            [scale.factor * of[seed] for seed in own][: 1 if repeats else None]
            for of, own, repeats in zip(values, seeds, one_run, strict=True)
        )
        half = scale.factor * 0.5 * 10.0 ** -max(digits(f"{value:.10g}") for s in (ours, base) for value in s.values())
        gain = gain_of_values(mine, theirs, how, paired, half)
    try:
        return judge_gain(one.digits, other.digits, gain, how)
    except ValueError as error:
        said = str(error).replace("exchange the rows, or say kind=equal", f"{'less' if lower else 'more'} is better")
        return ClaimVerdict(OPEN, said, math.nan)


def unused(printed: Sequence[Printed], scores: Sequence[Scores]) -> list[Scores]:
    """Return the scores without a printed number."""
    used = {(one.row, one.dataset, one.metric) for one in _answers(printed, scores) if one}
    return [one for one in scores if (one.row, one.dataset, one.metric) not in used]


def _answers(printed: Sequence[Printed], scores: Sequence[Scores]) -> list[Scores | None]:
    only = tuple(len({*names}) == 1 for names in zip(*map(_wanted, printed), strict=True))
    fold = fold_of(map(_wanted, printed))
    apart = [bool(one.heading or split_of(one.dataset)) for one in printed]  # whose data set ours have to name
    answers = [_answer(one, scores, (only[0], only[1] and not of, only[2]), fold) for one, of in zip(printed, apart, strict=True)]
    pairs = list(zip(printed, answers, strict=True))
    return [ours and _averaged(one, ours, pairs) for one, ours in pairs]


def _averaged(one: Printed, ours: Scores, pairs: Sequence[tuple[Printed, Scores | None]]) -> Scores:
    """Return scores of ours, with a problem if they are no mean over items, or a printed average may be over other data sets."""
    no_mean = not known(one.metric).of_items or bool({"macro", "balanced"} & {*words(re.sub(r"[()_]", " ", one.metric))})
    if no_mean and len(ours.items) > 1 and (ours.sums[..., 1] == 1).all() and not (ours.problem or one.columns.get("same")):
        asked = f"{one.metric} is no mean over items: give one value for each seed, or totals, or say --same '{one.metric}'"
        return replace(ours, problem=asked)
    by_metric = not one.dataset and bool({"avg", "average", "mean"} & {*words(one.metric)})
    if ours.problem or one.columns.get("same") or not (by_metric or is_average(one.dataset)):
        return ours
    beside = [(other, of) for other, of in pairs if other.where[:3] == one.where[:3] and other.value and other.dataset
              and not is_average(other.dataset) and (by_metric or other.metric == one.metric)]  # fmt: skip
    if by_metric and not beside:
        return ours
    lacking = [other.dataset for other, of in beside if of is None]
    values = [of.values() for _, of in beside if of is not None and of.seeds == ours.seeds]
    said = "its data sets are not printed"
    if lacking:
        said = f"it stands beside {_few([other.dataset for other, _ in beside])}, of which yours lack {_few(lacking)}"
    elif beside:
        means, own = np.mean(values, 0) if len(values) == len(beside) else np.array(math.nan), np.array(ours.values())
        places = [max(digits(f"{value:.10g}") for value in of) for of in (ours.values(), *values)]
        if np.all(np.abs(means - own) <= 0.5 * (10.0 ** -places[0] + 10.0 ** -max(places[1:], default=0)) + 1e-9):
            return ours
        said = f"yours is not the mean of yours over {_few([other.dataset for other, _ in beside])}"
    name = one.dataset or one.metric
    return replace(ours, problem=f"{name} is an average, and {said}: give it over the same data sets, or say --same '{name}'")


def _answer(one: Printed, scores: Sequence[Scores], only: tuple[bool, ...], fold: Fold) -> Scores | None:
    """Return the scores of a printed number: of its row, data set and metric, by folded names.

    A name missing in scores fits if all printed numbers have one name there (only). ValueError: several results fit.
    """
    wanted = fold(*_wanted(one))
    named = [(s, (s.row, s.dataset, s.metric)) for s in scores]
    fitting = [s for s, names in named if all(map(_fits, names, fold(*names), wanted, only))]
    exact = [s for s in fitting if fold(s.row, s.dataset, s.metric) == wanted]
    if len(exact or fitting) > 1:
        found = "; ".join(" / ".join(filter(None, (s.row, s.dataset, s.metric))) for s in fitting)
        raise ValueError(
            f"{' / '.join(filter(None, one.where))[:200]}: {len(fitting)} results fit: {found[:200]}; name data set and metric"
        )
    return next(iter(exact or fitting), None)


def _wanted(one: Printed) -> tuple[str, str, str]:
    return one.our_row or one.row, one.our_dataset or one.dataset, one.our_metric or one.metric


def _fits(name: str, has: tuple[Any, ...], want: tuple[Any, ...], only: bool) -> bool:
    """Return whether a name of ours is a printed one, by folded names. A metric may lack its unit."""
    if has == want or (not name and only):
        return True
    if not (has and want and isinstance(has[0], tuple) and isinstance(want[0], tuple)):
        return False
    (mine, unit), (theirs, other) = has, want
    return mine == theirs and bool(mine) and (not unit or not other)


def _judged(
    one: Printed, ours: Scores | None, scale: Decision, printed: Sequence[Printed], scores: Sequence[Scores]
) -> Judged:
    said = impossible(one, printed)
    if ours is None:
        verdict = Verdict("impossible", said) if said else Verdict("not run", _not_run(one, scores))
        return Judged(one, verdict.verdict, verdict.reason, None, (), 0, None, scale)
    values = tuple(scale.factor * value for value in ours.values())
    verdict = Verdict("impossible", said) if said else _verdict(one, ours, values, scale, scores)
    return Judged(one, verdict.verdict, verdict.reason, seed_group(values), values, len(ours.items), None, scale)


def _withheld(one: Printed, ours: Scores, scale: Decision) -> str:
    """Return why a number has no verdict, whatever ours are; empty if it has one."""
    exempt = one.arithmetic == COUNT or one.margin or one.not_comparable
    return ours.problem or one.asked or deviation_apart(one, scale.scale) or ("" if exempt else scale.problem)


def _verdict(
    one: Printed, ours: Scores, values: Sequence[float], scale: Decision, scores: Sequence[Scores]
) -> Verdict:
    """Return the verdict on a number. Without a scale or a margin it is not comparable; the others are judged all the same."""
    exact = one.arithmetic == COUNT
    if one.value and (said := _withheld(one, ours, scale)):
        return Verdict("not comparable", said)
    less = scale.lower_is_better if one.lower_is_better is None else one.lower_is_better
    if ours.diverged and less is None and scale.scale in ("percent", "share"):
        asked = f"a run diverged, and the worst end of {one.metric} isn't known: say --better '{one.metric}=lower' or higher"
        return Verdict("not comparable", asked)
    how = how_made(one, scale.scale, len(ours.items) if ours.is_share else 0, scale.lower_is_better)
    if exact:
        return judge(one.digits, values, one.not_comparable, exact, how)
    runs = values[:1] if ours.repeats else values
    found = judge(one.digits, runs, one.not_comparable, exact, how)
    units = [" ".join(folded_metric(name)[1]) for name in (_wanted(one)[2], ours.metric)]
    if found.verdict in ("higher", "lower") and bool(units[0]) != bool(units[1]):
        whose, unit = ("ours", units[0]) if units[0] else ("the printed numbers", units[1])
        return Verdict("not comparable", f"{whose} name no unit, the others are in {unit}: write it behind the metric")
    doubts = [_caveat(one, ours, scale)]
    if copied := next((other.row for other in scores if other is not ours and _is_copy(ours, other)), ""):
        doubts.append(f"{copied} has the same scores, of which one may be a copy")
    return qualified(found, "; ".join(filter(None, doubts)))


FAR = 48.0  # times: ours that are so far from printed numbers may have another unit


def _asked_by_all(metric: str, group: Sequence[tuple[Printed, Scores]], scale: Decision) -> str:
    """Say that ours of a metric may be of the opposite kind, as all lie at 100 - printed, or have another unit. Empty if not."""
    if any(one.columns.get("same") for one, _ in group):
        return ""
    kind, option = known(metric).kind, f"say --same '{metric}' if both are alike"
    if kind == "error" and any(ours.is_share and not ours.metric for _, ours in group):
        return f"a score of an item may count what is right, where {metric} counts what is wrong: name the metric of ours, or {option}"
    pairs = [(float(one.digits), float(np.mean(of))) for one, ours in group if one.value and (of := _finite(ours, scale.factor))]
    theirs, mine = np.array(pairs).reshape(-1, 2).T
    if scale.scale in ("percent", "share") and kind in ("", "fraction", "error") and pairs:
        whole = 100.0 if scale.scale == "percent" else 1.0
        apart, opposite = np.abs(theirs - mine).mean(), np.abs(whole - theirs - mine).mean()
        if opposite < min(apart / 3, whole / 20) and apart > whole / 10:
            return f"ours lie at {whole:g} - {metric}: give what is right or wrong in both, or {option}"
    stated = any(one.scale == "positive" and not one.columns.get("unit") for one, _ in group)
    unit = any(folded_metric(_wanted(one)[2])[1] for one, _ in group)
    if scale.scale == "positive" and not (stated or unit) and pairs and min(theirs.min(), mine.min()) > 0:
        ratio_of = math.exp(float(np.log(mine / theirs).mean()))
        if max(ratio_of, 1 / ratio_of) > FAR:
            times = float(f"{max(ratio_of, 1 / ratio_of):.1g}")
            factor = f"{times:.0f} times" if ratio_of > 1 else f"1/{times:.0f} of"
            alike = "give both alike, such as means" if known(metric).name in UNITLESS else "write units behind both metrics"
            return f"ours are about {factor} the printed numbers: {alike}, or say --scale '{metric}=positive' if both are in one unit"
    return ""


def _finite(ours: Scores, factor: float) -> list[float]:
    return [factor * value for value in ours.values() if math.isfinite(value)]


def _is_copy(ours: Scores, other: Scores) -> bool:
    """Return whether another system has the same scores of one data set and metric."""
    alike = (ours.dataset, ours.metric) == (other.dataset, other.metric)
    return alike and ours.items == other.items and ours.same_as(other)


def _scales(printed: Sequence[Printed], answers: Sequence[Scores | None]) -> list[Decision]:
    """Return the scale of each number: decided once for its paper, table and metric, over all numbers there and ours."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, one in enumerate(printed):
        zero = bool(one.value) and not float(one.digits)  # which isn't positive, as others of its metric may have to be
        key = (
            one.paper,
            one.table,
            one.metric,
            one.scale,
            one.is_percent,
            zero and known(one.metric).kind == "positive",
        )
        groups.setdefault(key, []).append(place)
    scales = [Decision()] * len(printed)
    for (_, _, metric, stated, *_), places in groups.items():
        answered = {place: ours for place in places if (ours := answers[place]) is not None}
        shares = bool(answered) and all(ours.is_share for ours in answered.values())
        pairs = [(printed[place].value, answered[place].values() if place in answered else ()) for place in places]
        percent = {ours.percent for ours in answered.values()}
        decision = decide(str(metric), pairs, str(stated), shares, percent == {True})
        units = {(str(metric), any("%" in text for text, _ in pairs)), *((s.metric, s.percent) for s in answered.values())}
        if said := "" if stated else next(filter(None, (misfit(*each, str(metric)) for each in sorted(units))), ""):
            decision = Decision(problem=said)
        if len(percent) > 1:
            decision = Decision(
                problem=f"some of ours of {metric} are marked as percent, some aren't: mark all or none"
            )
        if said := "" if decision.problem else _asked_by_all(str(metric), [(printed[p], of) for p, of in answered.items()], decision):
            decision = replace(decision, scale="", problem=said)
        for place in places:
            scales[place] = decision
            if decision.scale == "percent" and place in answered:
                values = [decision.factor * value for value in answered[place].values()]
                if said := share_among(printed[place].value, (text for text, _ in pairs), values, bool(stated) or "%" in str(metric)):
                    scales[place] = replace(decision, scale="", problem=said)
    return scales


def _caveat(one: Printed, ours: Scores, scale: Decision) -> str:
    """Return doubts about a verdict: equal seeds, other units, or another number of items than the paper's."""
    doubts = [scale.doubt] if one.value and scale.doubt else []
    if ours.repeats:
        doubts.append(f"all {len(ours.seeds)} runs have the same scores, so they count as one")
    elif copied := ours.copied:
        doubts.append(copied)
    items, total = len(ours.items), round(float(ours.sums[0, :, 1].sum()))
    if one.n and items > 1 and one.n not in (items, total):
        doubts.append(f"the paper's number is of {one.n} items, ours of {items}")
    return "; ".join(doubts)


def _not_run(one: Printed, scores: Sequence[Scores]) -> str:
    """Name the part of a printed number's name missing in all scores."""
    known = [{s.row for s in scores}, {s.dataset for s in scores}, {s.metric for s in scores}]
    folds = (folded, folded, folded_metric)
    for kind, want, names, fold in zip(("system", "data set", "metric"), _wanted(one), known, folds, strict=True):
        if not any(_fits(has, fold(has), fold(want), False) for has in names):
            pairs = zip(folds[1:], known[1:], strict=True)
            if kind == "system" and any(_fits(has, of(has), of(want), False) for of, own in pairs for has in own):
                return f"{want!r} is a data set or metric of yours: turn the table, so that each system is a row"
            near = get_close_matches(want, names - {""}, 1, 0.0)
            if not near and one.heading:
                return f"{one.heading!r} may be a metric: name yours so, or say --dataset {want!r} if {want!r} is a data set"
            if near and not want:
                return f"the printed numbers name no {kind}, ours are of {near[0]!r}: add a column, or say --{kind.replace(' ', '')}"
            if near:
                return f"no results of the {kind} {want!r}; the closest is {near[0]!r}"
            return (
                f"the results name no {kind}, and several are printed: add a column, or say --{kind.replace(' ', '')}"
            )
    return "no results of this system, data set and metric together"


def _baseline(one: Printed, printed: Sequence[Printed]) -> str:
    """Return the baseline row of a number. ValueError: it names a missing one."""
    group = [other.row for other in printed if (*other.where[:2], *other.where[3:]) == (*one.where[:2], *one.where[3:])]
    if one.baseline and one.baseline not in group:
        raise ValueError(f"{' / '.join(one.where)[:200]}: no row {one.baseline[:60]!r} with this data set and metric")
    return one.baseline or group[0]


def _test(name: str, ours: Scores, base: Scores, factor: float) -> Test:
    """Return the test of a row against its baseline, none if a run of either diverged."""
    if diverged := (*ours.diverged, *base.diverged):
        return Test(name, None, None, f"not tested: the score of seed {diverged[0][:40]!r} is not finite")
    if ours.repeats or base.repeats:
        return Test(name, None, None, "not tested: all runs of a row have the same scores")
    if ours.items != base.items:
        return Test(name, None, None, f"not tested: {_in_common(ours, base)}")
    found = difference(ours.sums, base.sums, _scaled(factor), RESAMPLES)
    if len(ours.items) == 1:  # an exchange of one item is no test
        found = replace(found, p_randomisation=math.nan)
        if found.seeds < 2:
            return Test(name, None, None, "not tested: one seed, and no items")
    return Test(name, found, None, few_seeds(found.seeds))


def _in_common(ours: Scores, base: Scores) -> str:
    return f"{len({*ours.items} & {*base.items})} items in common, of {len(ours.items)} and {len(base.items)}"


def _scaled(factor: float, logarithm: bool = False) -> Callable[[Array], Array]:
    return lambda sums: np.log(factor * ratio(sums)) if logarithm else factor * ratio(sums)


def _corrected(judged: list[Judged]) -> list[Judged]:
    """Return judged numbers with p values corrected over each table and metric. One seed has none."""
    families: dict[tuple[str, str, str], list[int]] = {}
    for place, one in enumerate(judged):
        if one.test and one.test.tested and one.test.tested.seeds > 1:
            families.setdefault((one.printed.paper, one.printed.table, one.printed.metric), []).append(place)
    made = list(judged)
    for places in families.values():
        tests = [made[place].test for place in places]
        ps = [test.tested.p for test in tests if test and test.tested]
        for place, test, p in zip(places, tests, holm(ps), strict=True):
            made[place] = replace(made[place], test=replace(test, p_holm=p) if test else None)
    return made


def plain(one: Judged) -> dict[str, object]:
    """Return a judged number as JSON: columns of its CSV, verdict, interval, and test; None in place of NaN."""

    def finite(values: dict[str, object]) -> dict[str, object]:
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()
        }

    test = None
    if one.test:
        tested = finite(asdict(one.test.tested)) if one.test.tested else {}
        if one.test.tested and one.test.tested.seeds < 2:  # one seed says nothing about others
            tested |= {"p": None, "p_randomisation": None}
        test = {"baseline": one.test.baseline, **tested, "p_holm": one.test.p_holm, "note": one.test.note}
    return {
        **{name: value for name, value in asdict(one.printed).items() if name not in ("columns", "heading", "beside", "asked")},
        "verdict": one.verdict,
        "reason": one.reason,
        "ours": finite(asdict(one.ours)) if one.ours else None,
        "values": list(one.values),
        "scale": one.scale.scale,
        "items": one.items,
        "test": test,
    }
