"""The verdict on one printed number, by the values of one's own seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np

from phrasemodels.verdicts.printed import digits, half_unit, prints_as
from phrasemodels.verdicts.significance import SeedGroup, seed_group


@dataclass(frozen=True)
class Verdict:
    """The verdict on a published number: not run, not comparable, reproduced, higher or lower; and its reason."""

    verdict: str
    reason: str


def judge(printed: str, ours: SeedGroup | Sequence[float] | None, reason_not: str = "", exact: bool = False) -> Verdict:
    """Return the verdict on a number as it is printed (empty: the paper has none) by our seeds (None: there is no run).

    A printed number stands for every value that rounds to it, so half a unit of its last digit belongs to the interval.
    ours: one value a seed, or their summary. reason_not: why the numbers cannot be compared, such as stand-in data or a smaller
    size; empty if they can be. exact: the value does not vary by seed, like a count: one run is enough, and it has to print
    the same. ValueError: `printed` is no finite number, or values of ours are given as a list that is empty or not finite.
    """
    if ours is None:
        return Verdict("not run", "no run of this experiment is in the store")
    group = ours if isinstance(ours, SeedGroup) else _summary(ours)
    if not printed:
        return Verdict("not comparable", "; ".join(filter(None, ("the paper prints no such number", reason_not))))
    published = _number(printed)
    if reason_not:
        return Verdict("not comparable", reason_not)
    if exact and not group.deviation > 0:  # NaN of one run
        return _exactly(printed, group.mean)
    if group.warning:
        return Verdict("not comparable", group.warning)
    beyond = abs(published - group.mean) - group.half_width
    if beyond <= half_unit(printed):
        rounded = ", give or take half a unit of its last digit," if beyond > 0 else ""
        ours_is = " ± ".join(f"{value:.{max(2, digits(printed))}f}" for value in (group.mean, group.half_width))
        said = f"the published value{rounded} lies in our 95 % interval over {group.n} seeds, {ours_is}"
        return Verdict("reproduced", said)
    direction = "higher" if group.mean > published else "lower"
    apart = f"{abs(group.mean - published):.{max(2, digits(printed))}f}"
    return Verdict(direction, f"our mean is {apart} {direction} than the published value")


def qualified(verdict: Verdict, caveat: str) -> Verdict:
    """Return a verdict on compared numbers with a caveat in its reason; other verdicts, or without a caveat, as they are."""
    if not caveat or verdict.verdict in ("not comparable", "not run"):
        return verdict
    return Verdict(verdict.verdict, f"{verdict.reason}; but {caveat}")


def _summary(values: Sequence[float]) -> SeedGroup:
    """Return the summary of one value a seed. ValueError: there is none, or one is not finite."""
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(f"the values of the seeds must be finite numbers, one for each seed, not {list(values)[:3]}")
    return seed_group(values)


def _number(printed: str) -> float:
    """Return a printed number. ValueError: the text is no finite number."""
    try:
        value = Decimal(printed)
    except InvalidOperation:
        raise ValueError(f"{printed[:40]!r} is no printed number") from None
    if not value.is_finite():
        raise ValueError(f"{printed[:40]!r} is no finite number")
    return float(printed)


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
