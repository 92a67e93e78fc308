"""The rule for a claim of a paper: one row is better than another one, by a printed gain G.

[low, high] is the 90 % interval of our gain. It has the chance of seeds and of test items. Without items it is Student's over
pairs of seeds, or Welch's if the rows have other seeds.

    confirmed       low > 0 and high ≥ G/2: there is a gain, and half of the printed one isn't excluded
    smaller         low > 0 and high < G/2
    not confirmed   low ≤ 0 ≤ high and high < G/2
    contradicted    high < 0
    open            all else, and fewer than three seeds of a row
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path

import numpy as np

from phrasemodels.verdicts.rule import (
    LARGEST_RATIO,
    MOST_FURTHER,
    PrintedValue,
    factor_of,
    factor_of_ours,
    margin_of,
    read_number,
    worst_end,
)
from phrasemodels.verdicts.significance import FEWEST_SEEDS, Array, two_level_error, two_level_parts
from phrasemodels.verdicts.tables import csv_rows

CONFIRMED, SMALLER, NOT_CONFIRMED, CONTRADICTED, OPEN = ANSWERS = (
    *("confirmed", "smaller", "not confirmed", "contradicted", "open"),
)
WEAKEST = (CONTRADICTED, NOT_CONFIRMED, OPEN, SMALLER, CONFIRMED)  # the weakest answer first
ELSEWHERE = {CONFIRMED: "supported", NOT_CONFIRMED: "not supported"}  # words for a small size, or other data
EQUAL, NO_WORSE, ALL, RESOURCE = "equal", "no worse", "all", "resource"
KINDS = ("main", "ablation", "comparison", "implied", EQUAL, NO_WORSE, ALL, RESOURCE)
RESAMPLES = 1000
NOISE = 0.02  # by which another resampling moves an end of an interval, as a share of its length


SEVERAL = " | "  # between the rows that a claim is about


@dataclass(frozen=True)
class Claim:
    """A claim of a paper in your own words, and its two printed numbers.

    Raises:
        ValueError: The kind is unknown.
    """

    id: str
    paper: str
    claim: str
    table: str
    better: str
    """Row of the better number; of kind `all` several rows, with ` | ` between them."""
    than: str
    """Row of the other number."""
    metric: str
    dataset: str = ""
    kind: str = "main"
    split: str = ""
    than_table: str = ""
    """Table of the other number, if it is another one."""
    lower_is_better: bool = False
    where: str = ""
    """Place in the paper."""
    note: str = ""
    stand_ins: str = ""
    """Rows of ours that stand for the other row where its own is not run; with ` | ` between them. They answer no paper."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"claim {self.id[:40]!r}: kind {self.kind[:20]!r} is none of {', '.join(KINDS)}")

    @property
    def rows(self) -> list[str]:
        """The better rows."""
        return self.better.split(SEVERAL)


def read_claims(path: Path, paper: str = "") -> list[Claim]:
    """Return the claims of a CSV. Its columns are the fields of `Claim`. paper: of rows without one.

    Raises:
        ValueError: A column or a value is wrong, or an id stands there twice. The message names it.
    """
    known = {field.name: field.default for field in fields(Claim)}
    found: dict[str, Claim] = {}
    for number, row in enumerate(csv_rows(path), 1):
        row = row | {"paper": row.get("paper") or paper}
        if unknown := sorted(row.keys() - known.keys()):
            raise ValueError(f"{path}: unknown column {unknown[0][:40]!r}; columns: {', '.join(known)}")
        if lacking := [name for name, default in known.items() if default is MISSING and not row.get(name)]:
            raise ValueError(f"{path}, row {number}: no {lacking[0]}")
        less = row.get("lower_is_better", "")
        if less not in ("", "yes", "no"):
            raise ValueError(f"{path}, row {number}: lower_is_better={less[:20]!r}: must be yes or no")
        given = {name: text for name, text in row.items() if text} | {"lower_is_better": less == "yes"}
        one = Claim(**given)  # type: ignore[arg-type]
        if one.id in found:
            raise ValueError(f"{path}, row {number}: claim {one.id!r} stands there twice")
        found[one.id] = one
    return list(found.values())


@dataclass(frozen=True)
class Gain:
    """The lead of one row over another, with the variances of its interval.

    A gain of shares is in percent. On the scale `positive` it is a difference of logarithms.
    """

    difference: float
    """Mean of the better row minus mean of the other one; positive where the claim holds."""
    seeds: tuple[tuple[float, float, int], ...]
    """Variance over seeds, the part of it that test items alone make, and the number of seeds: of both rows, or of their pairs."""
    items: int = 0
    """Test items; 0: they aren't kept."""
    shared: float = 0.0
    """Variance of the difference over resampled items."""
    rounding: float = 0.0
    """How far the difference may lie from that of scores that aren't rounded."""

    @property
    def fewest(self) -> int:
        """The smaller number of seeds of both rows."""
        return min(n for *_, n in self.seeds)

    def interval(self, further: int = 0) -> tuple[float, float]:
        """Return the 90 % interval, as it would be with so many further seeds of each row."""
        from scipy.special import stdtrit

        more = [(variance, noise, n + further) for variance, noise, n in self.seeds]
        if self.items:
            before, now = (sum(noise / n for _, noise, n in seeds) for seeds in (self.seeds, more))
            error, freedom = two_level_error(self.shared - before + now, self.items, [s for s in more if s[2] > 1])
        else:
            error, freedom = welch([(variance / n, n - 1) for variance, _, n in more])
        half = float(stdtrit(freedom, 0.95)) * error + self.rounding * (1 + 1e-6)
        return self.difference - half, self.difference + half


@dataclass(frozen=True)
class ClaimVerdict:
    """The answer to a claim, and its numbers, on the scale of the gain."""

    verdict: str
    reason: str
    printed: float
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: tuple[int, ...] = ()
    further_seeds: int | None = None
    """Further seeds of each row that would decide an open claim; None: none would, or it is decided."""


def welch(parts: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the standard error of a difference of means and its degrees of freedom.

    Args:
        parts: variance of the mean, and degrees of freedom, of each mean.
    """
    total = sum(variance for variance, _ in parts)
    summed = sum(variance**2 / freedom for variance, freedom in parts if variance)
    return math.sqrt(total), total**2 / summed if summed else 1.0


def gain_of_items(better: Array, than: Array, value: Callable[[Array], Array], sign: float = 1.0) -> Gain:
    """Return a gain by the statistics of test items.

    Args:
        better, than: statistics of both rows on the same items.
        value: metric of sums of statistics.
        sign: −1 if less is better.

    Shape:
        better, than: (seeds, items, statistics).
    """
    if better.shape[1:] != than.shape[1:]:
        raise ValueError(f"the rows were tested on other items: {better.shape[1]} and {than.shape[1]}")
    found, shared, seeds = two_level_parts(better, than, value, RESAMPLES, np.random.default_rng(0))
    return Gain(sign * found, seeds, better.shape[1], shared)


def gain_of_values(
    better: Sequence[float], than: Sequence[float], how: PrintedValue, paired: bool = False, half: float = 0.0
) -> Gain | None:
    """Return a gain by one value a seed. A diverged run has the worst end of the scale. None if there is no such end.

    Args:
        better, than: One value for each started seed.
        how: Scale of the values, and whether less is better.
        paired: Both have the same seeds in the same order.
        half: Half a unit of the last digit of the values, if they are rounded.
    """
    factor = factor_of_ours(how, [*better, *than])
    found = [worst_end(factor * np.array(values, float), how) for values in (better, than)]
    ours, base = (None if one is None else np.log(one) if how.scale == "positive" else one for one in found)
    if ours is None or base is None:
        return None
    apart = [ours - base] if paired else [ours, base]
    unit = factor * half
    rounding = unit / math.exp(ours.mean()) + unit / math.exp(base.mean()) if how.scale == "positive" else 2 * unit
    least = rounding**2 / (6 * len(apart))  # the variance of rounding alone
    seeds = tuple((max(least, float(np.var(one, ddof=1))) if len(one) > 1 else 0.0, 0.0, len(one)) for one in apart)
    return Gain((-1.0 if how.lower_is_better else 1.0) * float(ours.mean() - base.mean()), seeds, rounding=rounding)


def judge_gain(
    better: str, than: str, gain: Gain | None, how: PrintedValue, kind: str = "main", exact: bool = False
) -> ClaimVerdict:
    """Return the answer to a claim about two printed numbers.

    Args:
        better, than: Both printed numbers.
        gain: Ours, or None.
        how: Scale of the numbers, and whether less is better.
        kind: One of KINDS but `all`.
        exact: The values can't vary by seed, so one run is enough.

    Raises:
        ValueError: The printed numbers contradict the claim, or have no scale.
    """
    printed = printed_gain(better, than, how, kind)
    if gain is None:
        return ClaimVerdict(OPEN, f"printed {_signed(printed)}; ours has no finite value", printed)
    margin = _margin(better, than, how, kind)
    decide = _decision(kind, printed, margin)
    seeds = tuple(n for *_, n in gain.seeds)
    if not exact and gain.fewest < 2:
        said = f"printed {_signed(printed)}, ours {_signed(gain.difference)} by one seed"
        return ClaimVerdict(OPEN, said, printed, gain.difference, seeds=seeds, further_seeds=FEWEST_SEEDS - gain.fewest)
    low, high = (gain.difference,) * 2 if exact else gain.interval()
    verdict = decide(low, high) if exact or gain.fewest >= FEWEST_SEEDS else OPEN
    further = _further(gain, decide) if verdict == OPEN and not exact else None
    reason = _reason(printed, gain, low, high, margin, kind)
    if verdict == CONFIRMED and kind == EQUAL and not low <= 0 <= high:
        reason += "; equal by this margin alone, as the interval is on one side of 0"
    noise = NOISE * (high - low)
    ends = [(low + one, high + other) for one in (-noise, 0, noise) for other in (-noise, 0, noise)]
    if gain.items and len({decide(*pair) for pair in ends}) > 1:
        reason += (
            "; an end is so near to a bound of the rule that another resampling of the items may change the answer"
        )
    if further is not None:
        reason += f"; {further} further seed{'s' * (further > 1)} of each would decide"
    elif verdict == OPEN:
        reason += "; no number of seeds decides"
    return ClaimVerdict(verdict, reason, printed, gain.difference, low, high, seeds, further)


def printed_gain(better: str, than: str, how: PrintedValue, kind: str = "main") -> float:
    """Return the printed gain in the claim's direction, of a resource the logarithm of its ratio.

    Raises:
        ValueError: The row called better isn't.
    """
    one, other = (factor_of(how) * read_number(text) for text in (better, than))
    sign = -1.0 if how.lower_is_better else 1.0
    if kind == RESOURCE:
        if min(one, other) <= 0:
            raise ValueError(f"{better} and {than}: a ratio needs positive numbers")
        return sign * math.log(one / other)
    if how.scale == "positive" and min(one, other) > 0:
        one, other = math.log(one), math.log(other)
    if kind not in (EQUAL, NO_WORSE) and sign * (one - other) <= 0:
        raise ValueError(f"{better} is not better than {than}: exchange the rows, or say kind=equal")
    return sign * (one - other)


def _margin(better: str, than: str, how: PrintedValue, kind: str) -> float:
    """Return δ of a claim of equality, of no loss or of a resource, the narrower one of both numbers."""
    if kind == RESOURCE:
        return math.log(LARGEST_RATIO)
    return min(margin_of(text, how) for text in (better, than)) if kind in (EQUAL, NO_WORSE) else 0.0


def _decision(kind: str, printed: float, margin: float) -> Callable[[float, float], str]:
    def gain(low: float, high: float) -> str:
        if low > 0:
            return CONFIRMED if high >= printed / 2 else SMALLER
        return CONTRADICTED if high < 0 else NOT_CONFIRMED if high < printed / 2 else OPEN

    def equal(low: float, high: float) -> str:
        inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
        return CONFIRMED if inside else CONTRADICTED if outside else OPEN

    def no_worse(low: float, high: float) -> str:
        return CONFIRMED if low >= -margin else CONTRADICTED if high < -margin else OPEN

    def resource(low: float, high: float) -> str:
        return CONFIRMED if high + margin >= printed else CONTRADICTED  # in the interval, or ours is better

    return {EQUAL: equal, NO_WORSE: no_worse, RESOURCE: resource}.get(kind, gain)


def _further(gain: Gain, decide: Callable[[float, float], str]) -> int | None:
    """Return the least deciding number of further seeds of each row, if means and deviations stay."""
    needed = range(max(1, FEWEST_SEEDS - gain.fewest), MOST_FURTHER + 1)
    return next((q for q in needed if decide(*gain.interval(q)) != OPEN), None)


def weakest(answers: Iterable[ClaimVerdict]) -> ClaimVerdict:
    """Return the weakest of several answers, the answer to a claim about all of several rows."""
    found = list(answers)
    least = min(found, key=lambda one: WEAKEST.index(one.verdict))
    same = sum(one.verdict == least.verdict for one in found)
    return replace(least, reason=f"{same} of {len(found)} rows {least.verdict}; the first: {least.reason}")


def agreed(readings: Sequence[tuple[str, ClaimVerdict]]) -> ClaimVerdict:
    """Return the answer on which all readings agree, else an open one. Its numbers are those of the first reading.

    Args:
        readings: Name and answer of each reading that votes.
    """
    (_, first), *others = readings
    if not others:
        return first
    said = "; ".join(f"{name or 'main'} {_signed(one.difference or 0.0)} ({one.verdict})" for name, one in readings)
    if len({one.verdict for _, one in readings}) > 1:
        return replace(first, verdict=OPEN, reason=f"readings differ: {said}", further_seeds=None)
    needed = [one.further_seeds for _, one in readings]
    further = max(filter(None, needed)) if all(needed) else None
    return replace(first, reason=f"{first.reason}; all readings agree: {said}", further_seeds=further)


def elsewhere(one: ClaimVerdict, place: str) -> ClaimVerdict:
    """Return an answer in the words for a smaller size or other data. It answers no paper.

    Args:
        place: For example `at a small size` or `on GUM`.
    """
    return replace(one, verdict=f"{ELSEWHERE.get(one.verdict, one.verdict)} {place}")


def _reason(printed: float, gain: Gain, low: float, high: float, margin: float, kind: str) -> str:
    seeds = " and ".join(str(n) for *_, n in gain.seeds)
    pairs = "seeds" if len(gain.seeds) > 1 else "pairs of seeds"
    by = f"{seeds} {pairs}, " + (f"{gain.items} test items" if gain.items else "no items kept")
    if kind == RESOURCE:
        shown = (f"{math.exp(value):.2f}" for value in (printed, gain.difference, low, high))
        return "printed ratio {}, ours {} (90 %: {} to {}; {})".format(*shown, by)
    said = (
        f"printed {_signed(printed)}, ours {_signed(gain.difference)} (90 %: {_signed(low)} to {_signed(high)}; {by})"
    )
    bounds = {EQUAL: f"equal within ± {margin:.2f}", NO_WORSE: f"no worse down to −{margin:.2f}"}
    return f"{said}; {bounds[kind]}, the rule's margin" if kind in bounds else said


def _signed(value: float) -> str:
    shown = f"{value:+.1g}" if 0 < abs(value) < 0.005 else f"{value:+.2f}"
    return shown.replace("-", "−")
