"""The verdict on one printed number, by the values of one's own seeds; and on all numbers of a paper, by scores of one's own runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches

from phrasemodels.verdicts.printed import COUNT, Printed, impossible, prints_as
from phrasemodels.verdicts.readers import Scores, ratio
from phrasemodels.verdicts.rule import OUT_OF_REACH, PrintedValue, judge_runs, read_number, scale_of
from phrasemodels.verdicts.significance import Array, Difference, SeedGroup, difference, few_seeds, holm, seed_group


@dataclass(frozen=True)
class Verdict:
    """The verdict on a published number: not run, not comparable, reproduced, higher, lower or inconclusive; and its reason.

    further_seeds: of an inconclusive verdict, the least number of further seeds that would decide; None if there is none.
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
    """Return the verdict on a number as it is printed (empty: the paper has none) by one value a seed (None: there is no run).

    reason_not: why the numbers cannot be compared, such as stand-in data or a smaller size; empty if they can be. exact: the
    value does not vary by seed, like a count: one run is enough, and it has to print the same. how: how the printed number was
    made; None: a percentage, or a share if it and our values are at most 1. A run that diverged has a value that is not finite.
    ValueError: `printed` is no finite number, there is no value, or the number has neither a scale nor a margin.
    """
    if ours is None:
        return Verdict("not run", "no run of this experiment is in the store")
    if not printed:
        return Verdict("not comparable", "; ".join(filter(None, ("the paper prints no such number", reason_not))))
    number = read_number(printed)
    if reason_not:
        return Verdict("not comparable", reason_not)
    if not len(ours):
        raise ValueError("the values of the seeds are missing: give one for each seed")
    if exact:
        if math.isfinite(ours[0]) and len({*ours}) == 1:
            return _exactly(printed, ours[0])
        how = PrintedValue("count")
    if how is None:
        usable = [abs(value) for value in ours if abs(value) < OUT_OF_REACH]
        how = PrintedValue("share" if abs(number) <= 1 and max(usable, default=2) <= 1 else "percent")
    found = judge_runs(printed, ours, how)
    return Verdict(found.verdict, found.reason, found.further_seeds)


def qualified(verdict: Verdict, caveat: str) -> Verdict:
    """Return a verdict on compared numbers with a caveat in its reason; other verdicts, or without a caveat, as they are."""
    if not caveat or verdict.verdict in ("not comparable", "not run"):
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; but {caveat}")


def _exactly(printed: str, value: float) -> Verdict:
    """Judge a value that does not vary by seed by the digits that are printed."""
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
    and metric; None of one seed. note: also warns of few seeds.
    """

    __test__ = False  # no test of pytest

    baseline: str
    tested: Difference | None
    p_holm: float | None
    note: str


@dataclass(frozen=True)
class Judged:
    """A printed number with its verdict; ours: the metric over seeds, in the unit of the printed number."""

    printed: Printed
    verdict: str
    reason: str
    ours: SeedGroup | None
    values: tuple[float, ...]
    items: int
    test: Test | None


def judge_table(printed: Sequence[Printed], scores: Sequence[Scores]) -> list[Judged]:
    """Return a verdict on each printed number by the scores that have its names, with a test against its baseline.

    The baseline is the row that the number names, or else the first row of its table, data set and metric. ValueError: two
    scores answer one number, or arithmetic names a number that is not there.
    """
    answers = [_answer(one, scores) for one in printed]
    factors = _factors(printed, answers)
    judged = [_judged(*each, printed, scores) for each in zip(printed, answers, factors, strict=True)]
    by_place = {one.where: place for place, one in enumerate(printed)}
    for place, (one, ours) in enumerate(zip(printed, answers, strict=True)):
        base = by_place.get((*one.where[:2], _baseline(one, printed), *one.where[3:]))
        other = None if base is None else answers[base]
        if base is not None and ours is not None and other is not None and other is not ours:
            judged[place] = replace(judged[place], test=_test(printed[base].row, ours, other, factors[place]))
    return _corrected(judged)


def unused(printed: Sequence[Printed], scores: Sequence[Scores]) -> list[Scores]:
    """Return the scores that answer no printed number."""
    used = {id(_answer(one, scores)) for one in printed}
    return [one for one in scores if id(one) not in used]


def _answer(one: Printed, scores: Sequence[Scores]) -> Scores | None:
    """Return the scores of a printed number: of its row, data set and metric; a name that scores lack fits any."""
    wanted = (one.our_row or one.row, one.our_dataset or one.dataset, one.our_metric or one.metric)
    fitting = [
        s
        for s in scores
        if all(has in ("", want) for has, want in zip((s.row, s.dataset, s.metric), wanted, strict=True))
    ]
    if len(fitting) > 1:
        raise ValueError(
            f"{' / '.join(one.where)[:200]}: {len(fitting)} results have these names; give results data set and metric"
        )
    return fitting[0] if fitting else None


def _judged(
    one: Printed, ours: Scores | None, factor: float, printed: Sequence[Printed], scores: Sequence[Scores]
) -> Judged:
    said = impossible(one, printed)
    if ours is None:
        verdict = Verdict("impossible", said) if said else Verdict("not run", _not_run(one, scores))
        return Judged(one, verdict.verdict, verdict.reason, None, (), 0, None)
    values = tuple(factor * value for value in ours.values())
    group, exact = seed_group(values), one.arithmetic == COUNT
    verdict = qualified(_verdict(one, ours, values, factor, exact), "" if exact else _caveat(one, ours, factor))
    if said:
        verdict = Verdict("impossible", said)
    return Judged(one, verdict.verdict, verdict.reason, group, values, len(ours.items), None)


def _verdict(one: Printed, ours: Scores, values: Sequence[float], factor: float, exact: bool) -> Verdict:
    """Return the verdict on a number; without a scale or a margin it is not comparable, and the others are judged all the same."""
    scale = one.scale or ("percent" if factor > 1 or one.is_percent else "share" if ours.is_share else "")
    scale = scale or (scale_of(one.metric, one.value) if one.value else "")
    if one.value and not (exact or scale or one.margin or one.not_comparable):
        why = f"it is not known how far values of {one.metric!r} may lie apart: give scale (percent, share, positive) or margin"
        return Verdict("not comparable", why)
    how = PrintedValue(
        scale, one.margin, len(ours.items) if ours.is_share else 0, one.runs, one.best_of, one.deviation, one.bound,
        one.lower_is_better,
    )  # fmt: skip
    return judge(one.digits, values, one.not_comparable, exact, how)


def _factors(printed: Sequence[Printed], answers: Sequence[Scores | None]) -> list[float]:
    """Return what the scores of each number are multiplied by: 100 if it is a percentage of which ours are shares, else 1.

    It is one if it has a percent sign and no score exceeds 1, or if numbers of its table and metric exceed 1, and all scores there
    are shares.
    """
    groups: dict[tuple[str, str, str], list[int]] = {}
    for place, one in enumerate(printed):
        groups.setdefault((one.paper, one.table, one.metric), []).append(place)
    factors = [1.0] * len(printed)
    for places in groups.values():
        answered = [(printed[place], ours) for place in places if (ours := answers[place]) is not None]
        large = any(printed[place].value and abs(float(printed[place].digits)) > 1 for place in places)
        shares = large and (all(ours.is_share for _, ours in answered) or _are_shares(answered))
        for place in places:
            ours = answers[place]
            signed = printed[place].is_percent and not (ours and any(value > 1 for value in ours.values()))
            factors[place] = 100.0 if signed or shares else 1.0
    return factors


def _are_shares(answered: Sequence[tuple[Printed, Scores]]) -> bool:
    """Return whether scores without items are shares of printed percentages: at most 1, and less than a tenth of what is printed."""
    return all(
        not one.value
        or (
            (one.scale or scale_of(one.metric, one.value)) == "percent"
            and all(math.isnan(value) or 0 <= value <= min(1, abs(float(one.digits)) / 10) for value in ours.values())
        )
        for one, ours in answered
    )


def _caveat(one: Printed, ours: Scores, factor: float) -> str:
    """Return what makes a verdict doubtful: equal seeds, other units, or another number of items than the paper's; else empty."""
    doubts = []
    if ours.repeats:
        doubts.append(f"all {len(ours.seeds)} runs have the same scores: they may be of one seed")
    if not one.is_percent and one.value and float(one.digits) > 1 and len(ours.items) == 1:
        if factor > 1:
            doubts.append("ours are taken as shares, and multiplied by 100")
        elif all(0 < value <= 1 for value in ours.values()):
            doubts.append(
                "ours lie between 0 and 1, the printed number does not: if ours are shares, give them in percent"
            )
    items, total = len(ours.items), round(float(ours.sums[0, :, 1].sum()))
    if one.n and items > 1 and one.n not in (items, total):
        doubts.append(f"the paper's number is of {one.n} items, ours of {items}")
    return "; ".join(doubts)


def _not_run(one: Printed, scores: Sequence[Scores]) -> str:
    """Say which name of a printed number no scores have."""
    for kind, want, known in (
        ("row", one.our_row or one.row, {s.row for s in scores}),
        ("data set", one.our_dataset or one.dataset, {s.dataset for s in scores}),
        ("metric", one.our_metric or one.metric, {s.metric for s in scores}),
    ):
        if want not in known and "" not in known:
            near = get_close_matches(want, known, 1, 0.0)
            return f"no results of the {kind} {want!r}" + (f"; the closest is {near[0]!r}" if near else "")
    return "no results of this row, data set and metric together"


def _baseline(one: Printed, printed: Sequence[Printed]) -> str:
    """Return the row that a number is tested against. ValueError: it names one that is not there."""
    group = [other.row for other in printed if (*other.where[:2], *other.where[3:]) == (*one.where[:2], *one.where[3:])]
    if one.baseline and one.baseline not in group:
        raise ValueError(f"{' / '.join(one.where)[:200]}: no row {one.baseline[:60]!r} with this data set and metric")
    return one.baseline or group[0]


def _test(name: str, ours: Scores, base: Scores, factor: float) -> Test:
    """Return the test of a row against its baseline; none where a run of either diverged."""
    if diverged := (*ours.diverged, *base.diverged):
        return Test(name, None, None, f"not tested: the score of seed {diverged[0][:40]!r} is not finite")
    if ours.items != base.items:
        same = len({*ours.items} & {*base.items})
        return Test(name, None, None, f"not tested: {same} items in common, of {len(ours.items)} and {len(base.items)}")
    found = difference(ours.sums, base.sums, _scaled(factor), RESAMPLES)
    if len(ours.items) == 1:  # an exchange of one item is no test
        found = replace(found, p_randomisation=math.nan)
        if found.seeds < 2:
            return Test(name, None, None, "not tested: one seed, and no items")
    return Test(name, found, None, few_seeds(found.seeds))


def _scaled(factor: float) -> Callable[[Array], Array]:
    return lambda sums: factor * ratio(sums)


def _corrected(judged: list[Judged]) -> list[Judged]:
    """Return judged numbers with p values that are corrected over each table and metric; of one seed nothing is known."""
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
        **asdict(one.printed),
        "verdict": one.verdict,
        "reason": one.reason,
        "ours": finite(asdict(one.ours)) if one.ours else None,
        "values": list(one.values),
        "items": one.items,
        "test": test,
    }
