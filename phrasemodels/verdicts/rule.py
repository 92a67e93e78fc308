"""The rule for a verdict on one printed number P, by the values x of one's own runs.

Around P lies a margin P ± δ, around our mean its 90 % interval m ± c. The interval inside of the margin: *reproduced* (two
one-sided tests at 5 %; Schuirmann 1987). Outside, and one further run would not print P either: *higher* or *lower*. Across an
edge: *inconclusive*, with the least number of further seeds that would decide. docs/decisions has what the rule leaves open,
benchmarks/verdict_rule.py its rates of error.

    n, ν    runs of ours, and n − 1        r   runs that P is the mean of
    d, s    m − P, and the deviation of x   k   runs of which the best r were taken
    c = t(0.95, ν) s √(1/n)                 R = t(0.975, ν) s √(1/n + 1/r), the chance of one further result of r runs
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np

from phrasemodels.verdicts.printed import Printed, digits, half_unit
from phrasemodels.verdicts.scales import OUT_OF_REACH, TOLERANCE, known
from phrasemodels.verdicts.scores import INFINITY

Scale = str  # percent, share, positive, count, or empty
LARGEST_MARGIN = 2.0  # points of a percentage
LARGEST_RATIO = 1.1  # of two positive numbers without an upper end
PRINTED_SPREAD = 0.6  # of the margin: the largest deviation of the printed value's runs with which P is no lucky hit
MOST_FURTHER = 200  # seeds


@dataclass(frozen=True)
class PrintedValue:
    """How a printed number was made, as far as the paper says.

    scale: percent (0 to 100), share (0 to 1, judged in percent), positive (without an upper end, judged by ratios) or count (varies
    by seed); empty: only a stated margin can judge it. margin: δ, in the unit of the number; None: by the scale. items: test items,
    one of which is the least step of a share; 0: unknown. runs: r. of: k; 0: as many as r. deviation: printed standard deviation
    over the runs; None: none. bound: the number is a bound, ">" or "<". lower_is_better: the worst end of the scale is the upper
    one. ours_percent: our values are known to be percentages, also if the number is a share. ValueError: a value that none of these can be.
    """

    scale: Scale = "percent"
    margin: float | None = None
    items: int = 0
    runs: int = 0
    of: int = 0
    deviation: float | None = None
    bound: str = ""
    lower_is_better: bool = False
    ours_percent: bool = False

    def __post_init__(self) -> None:
        if self.scale not in ("percent", "share", "positive", "count", ""):
            raise ValueError(f"scale={self.scale!r}: must be percent, share, positive, count or empty")
        if self.margin is not None and not 0 < self.margin < math.inf:
            raise ValueError(f"margin={self.margin}: must be positive and finite")
        if min(self.items, self.runs, self.of) < 0 or (self.of and self.of < max(1, self.runs)):
            raise ValueError(
                f"items={self.items}, runs={self.runs}, of={self.of}: must not be negative, nor runs above of"
            )
        if self.deviation is not None and not 0 <= self.deviation < math.inf:
            raise ValueError(f"deviation={self.deviation}: must be a finite number from 0 on")
        if self.bound not in ("", ">", "<"):
            raise ValueError(f"bound={self.bound!r}: must be >, < or empty")


def how_made(one: Printed, scale: Scale, items: int = 0, lower_is_better: bool | None = None) -> PrintedValue:
    """Return how a printed number was made, as far as its line says.

    Args:
        one: The number.
        scale: Its scale. A gain in percentage points has none: it may be off by half of itself, by 2 points at most.
        items: Test items.
        lower_is_better: Whether less is better, by its metric.
    """
    margin = one.margin
    if margin is None and one.columns.get("unit") == "percentage points":
        scale, margin = "", max(2 * half_unit(one.digits), min(LARGEST_MARGIN, abs(float(one.digits)) / 2))
    lower = bool(lower_is_better if one.lower_is_better is None else one.lower_is_better)
    return PrintedValue(scale, margin, items, one.runs, one.best_of, one.deviation, one.bound, lower)


def deviation_apart(one: Printed, scale: Scale) -> str:
    """Say that a printed deviation is in another unit than its number, by its size and digits; empty if it isn't."""
    if not one.deviation or scale not in ("percent", "share"):
        return ""
    value, spread, places = abs(float(one.digits)), one.deviation, digits(one.digits)
    finer = digits(f"{spread:.10g}") - places
    said = f"the deviation {spread:g} of {one.value} may be"
    if scale == "share":
        inner = min(max(value, half_unit(one.digits)), 1 - half_unit(one.digits))
        most = 1 - inner**2 if known(one.metric).kind == "correlation" else inner * (1 - inner)  # a variance
        if spread**2 <= most and not (finer < 0 and spread >= 0.1):
            return ""
        percent = f"{100 * value:.{max(1, places - 2)}f}%"
        return f"{said} in points: write both in percent, {percent} ± {spread:g}% or ± {100 * spread:g}%"
    if finer <= 0 or spread >= 0.1 or 100 * spread > min(value, 100 - value):
        return ""
    return f"{said} a share: write ± {100 * spread:g}, or both with as many digits, {value:.{places + finer}f} ± {spread:g}"


@dataclass(frozen=True)
class Judgement:
    """A verdict on a number that can be compared: reproduced, higher, lower or inconclusive, with all that it rests on.

    margin, interval (c) and prediction (R) are in the unit of the printed number, or natural logarithms of it on the scale
    `positive`. further_seeds: of an inconclusive verdict, the least number that would decide; None: no number would.
    """

    verdict: str
    reason: str
    margin: float
    interval: float
    prediction: float
    runs: int
    of: int
    further_seeds: int | None = None


class _Evidence(NamedTuple):
    """Numbers of the rule on its own scale. shift: e, by which the best r of k runs lie above their mean, in deviations."""

    d: float
    s: float
    n: int
    freedom: int
    margin: float
    half: float
    runs: int
    shift: float
    bound: str
    mean: float

    def widths(self, shift: float) -> tuple[float, float]:
        """Return c and R, with the error of the shift."""
        from scipy.special import stdtrit

        error = 1 / self.n + shift**2 / (2 * self.freedom)
        c = float(stdtrit(self.freedom, 0.95)) * self.s * math.sqrt(error)
        return c, float(stdtrit(self.freedom, 0.975)) * self.s * math.sqrt(error + 1 / self.runs)

    def verdict(self) -> str:
        """Return the verdict on which the number as it is and, for the best r of k, the shifted one agree."""
        said = {self._verdict(shift) for shift in (0.0, self.shift)}
        return said.pop() if len(said) == 1 else "inconclusive"

    def _verdict(self, shift: float) -> str:
        d, (c, prediction) = self.d + shift * self.s, self.widths(shift)
        if self.bound:
            if d - c >= -self.margin:
                return "reproduced"
            return "lower" if d + c < -self.margin and -d - self.half > prediction else "inconclusive"
        if abs(d) + c <= self.margin and self.s / math.sqrt(self.runs) <= PRINTED_SPREAD * self.margin:
            return "reproduced"
        if abs(d) - c > self.margin and abs(d) - self.half > prediction:
            return "higher" if d > 0 else "lower"
        return "inconclusive"

    def further_seeds(self) -> int | None:
        """Return the least number of further seeds that decides, if mean and deviation stay; None if none does."""
        for q in range(1, MOST_FURTHER + 1):
            if self._replace(n=self.n + q, freedom=self.freedom + q).verdict() != "inconclusive":
                return q
        return None


def judge_runs(printed: str, values: Sequence[float], how: PrintedValue | None = None) -> Judgement:
    """Return the verdict on a printed number by one value for each run that was started, also of those that diverged.

    ValueError: the number or the values are none, or the number has neither a known scale nor a stated margin.
    """
    how = how or PrintedValue()
    unit = factor_of_ours(how, values) / factor_of(how)
    number, values = read_number(printed), [_as_infinite(float(value)) * unit for value in values]
    if not values:
        raise ValueError("there are no values: give one for each run")
    factor, runs = factor_of(how), how.runs or (2 if how.deviation is not None else 1)
    of, (margin, step, half) = max(how.of, runs), _margin(printed, number, how)
    scaled = worst_end(np.array(values) * factor, how)
    if scaled is None:
        reason = f"one of {len(values)} runs has no finite value ({_listed(values)}), and the scale has no worst end"
        return Judgement("inconclusive", reason, margin / factor, math.nan, math.nan, runs, of)
    if len(values) == 1:
        reason = f"one run ({_listed(values)}), and how far runs vary is unknown: 1 further seed is needed"
        return Judgement("inconclusive", reason, margin / factor, math.nan, math.nan, runs, of, 1)
    found = _evidence(scaled, number, how, margin, step, half, runs, of)
    verdict = found.verdict()
    if how.bound == "<" and verdict == "lower":
        verdict = "higher"
    c, prediction = found.widths(0.0)
    further = found.further_seeds() if verdict == "inconclusive" else None
    reason = _reason(verdict, printed, number, values, found, how, further, of)
    if not np.isfinite(values).all():
        reason += "; a run that diverged counts as the worst end of the scale"
    return Judgement(verdict, reason, margin / factor, c / factor, prediction / factor, runs, of, further)


def _evidence(
    values: np.ndarray, number: float, how: PrintedValue, margin: float, step: float, half: float, runs: int, of: int
) -> _Evidence:
    """Return the numbers of the rule. values: at least two, finite, on the scale of the rule but for its logarithms."""
    logarithmic = how.scale == "positive"
    scaled, target = (np.log(values), math.log(number)) if logarithmic else (values, number * factor_of(how))
    n, mean = len(scaled), float(np.mean(scaled))
    s, freedom = max(float(np.std(scaled, ddof=1)), step / math.sqrt(12)), n - 1
    if how.deviation is not None and not logarithmic:
        s = math.sqrt((freedom * s**2 + (runs - 1) * (how.deviation * factor_of(how)) ** 2) / (freedom + runs - 1))
        freedom += runs - 1
    sign = -1.0 if how.bound == "<" else 1.0
    shift = sign * _shift(runs, of) * (-1.0 if how.lower_is_better else 1.0)
    return _Evidence(sign * (mean - target), s, n, freedom, margin, half, runs, shift, how.bound, mean)


def factor_of(how: PrintedValue) -> float:
    """Return by what numbers are multiplied: shares are judged in percent."""
    return 100.0 if how.scale == "share" else 1.0


def factor_of_ours(how: PrintedValue, values: Iterable[float]) -> float:
    """Return by what our values are multiplied. ValueError: beside a printed share they may be shares or percentages below 1."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if how.ours_percent and how.scale == "share" and 0 < largest <= 1:
        raise ValueError(f"ours of at most {largest:g} may be shares, or percentages below 1: give both in percent")
    return 1.0 if how.ours_percent else factor_of(how)


def read_number(printed: str) -> float:
    """Return a printed number. ValueError: the text is no finite number."""
    try:
        value = Decimal(printed)
    except InvalidOperation:
        raise ValueError(f"{printed[:40]!r} is no printed number") from None
    if not value.is_finite():
        raise ValueError(f"{printed[:40]!r} is no finite number")
    return float(printed)


def _as_infinite(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= INFINITY else value


def worst_end(values: np.ndarray, how: PrintedValue) -> np.ndarray | None:
    """Return the values with the worst end of the scale in place of the values of runs that diverged; None if there is no such end.

    ValueError: a finite value is not of the scale, such as a share of 82.1. Errors can be more than 100 %.
    """
    usable = np.isfinite(values) & (np.abs(values) < OUT_OF_REACH)
    if how.scale in ("percent", "share"):
        reached = values[usable] if how.lower_is_better else np.abs(values[usable])
        end = math.inf if how.lower_is_better else 100.0 + TOLERANCE
        if wrong := [value for value in reached if not -100.0 <= value <= end]:
            raise ValueError(
                f"{wrong[0] / factor_of(how):g} is no {how.scale}: give values in the unit of the printed number"
            )
        return np.where(usable, values, 100.0 if how.lower_is_better else 0.0)
    if how.scale == "positive":
        usable &= values > 0
    return values if bool(usable.all()) else None


def _margin(printed: str, number: float, how: PrintedValue) -> tuple[float, float, float]:
    """Return δ, the least step g of our values, and half a unit of the last digit, on the scale of the rule."""
    factor = factor_of(how)
    half = half_unit(printed) * factor
    unit, target = 2 * half, number * factor
    if how.scale == "positive":
        if number <= 0:
            raise ValueError(
                f"{printed} is not positive: the scale `positive` is for ratios, seconds, bytes and perplexity"
            )
        step, half = math.log((number + unit) / number), math.log((number + half) / number)
        stated = None if how.margin is None else math.log((number + how.margin) / number)
        return stated or math.log(LARGEST_RATIO), step, half
    step = 100.0 / how.items if how.items and how.scale in ("percent", "share") else unit
    if how.margin is not None:
        return how.margin * factor, step, half
    if how.scale in ("percent", "share"):
        if not -100.0 <= target <= 100.0:
            raise ValueError(f"{printed} is no {how.scale}: say its scale, or state a margin")
        end = min(abs(target), 100.0 - abs(target))
        margin = max(unit, min(LARGEST_MARGIN, end / 2))
        return min(margin, max(half, abs(target) / 2)), step, half
    if how.scale == "count":
        return half, step, half
    raise ValueError(f"{printed}: neither a scale (percent, share, positive, count) nor a margin is stated")


def margin_of(printed: str, how: PrintedValue) -> float:
    """Return δ of a printed number, on the scale of the rule."""
    return _margin(printed, read_number(printed), how)[0]


def _shift(runs: int, of: int) -> float:
    """Return e: by how many deviations the mean of the best r of k normal values lies above the mean of all (Blom 1958)."""
    if of <= runs:
        return 0.0
    normal = statistics.NormalDist()
    return statistics.fmean(normal.inv_cdf((i - 0.375) / (of + 0.25)) for i in range(of - runs + 1, of + 1))


def _reason(
    verdict: str,
    printed: str,
    number: float,
    values: Sequence[float],
    found: _Evidence,
    how: PrintedValue,
    further: int | None,
    of: int,
) -> str:
    """Return the reason in words, in the unit of the printed number."""
    places = max(2, digits(printed))
    (c, prediction), mean, factor = found.widths(0.0), found.mean, factor_of(how)

    def shown(x: float) -> str:
        return f"{x / factor:.{places}f}"

    runs = f"{found.runs} run{'s' * (found.runs > 1)}"
    if how.deviation is not None and not how.runs:
        runs = "several runs, counted as 2"
    chosen = f"the best {found.runs} of {of} runs" if of > found.runs else runs
    if how.scale == "positive":
        ours = f"{math.exp(mean):.{places}f}, 90 % interval {math.exp(mean - c):.{places}f} to {math.exp(mean + c):.{places}f}"
        margin = f"{math.exp(-found.margin) * number:.{places}f} to {math.exp(found.margin) * number:.{places}f}"
        chance = f"a factor of {math.exp(prediction):.2f}"
        spread = f"a factor of {math.exp(found.s):.2f}"
    else:
        ours, margin = f"{shown(mean)} ± {shown(c)}", f"{how.bound}{printed} ± {shown(found.margin)}"
        chance, spread = f"± {shown(prediction)}", shown(found.s)
    said = f"our mean {ours} (90 %, {found.n} seeds: {_listed(values, places)})"
    where = {
        "reproduced": f"lies in the margin {margin}",
        "inconclusive": f"neither lies in the margin {margin} nor surely beyond it",
        "higher": f"is above the margin {margin}, and a further run would not print it ({chance})",
        "lower": f"is below the margin {margin}, and a further run would not print it ({chance})",
    }[verdict]
    reason = f"{said} {where}; printed: {chosen}"
    if verdict != "inconclusive":
        return reason
    if further is None:
        endless = found._replace(n=10**9, freedom=10**9, margin=0.999 * found.margin)  # also for a mean on the edge itself
        if endless.verdict() != "inconclusive":
            return f"{reason}; {MOST_FURTHER} further seeds do not decide: our mean is too near to the edge of the margin"
        return f"{reason}; no number of seeds decides: the printed number is of {chosen}, which vary by {spread} each"
    return f"{reason}; {further} further seed{'s' * (further > 1)} would decide"


def _listed(values: Sequence[float], places: int = 2, most: int = 20) -> str:
    shown = [f"{value:.{places}f}" if abs(value) < OUT_OF_REACH else f"{value:.0e}" for value in values[:most]]
    return ", ".join(shown) + (f", … {len(values) - most} more" if len(values) > most else "")
