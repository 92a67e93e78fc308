"""The verdict on a published number by our mean over seeds and its interval."""

from dataclasses import dataclass

from phrasemodels.tasks.metrics.significance import SeedGroup


@dataclass(frozen=True)
class Verdict:
    """The verdict on a published number: not run, not comparable, reproduced, higher or lower; and its reason."""

    verdict: str
    reason: str


def judge(published: float | None, ours: SeedGroup | None, reason_not: str) -> Verdict:
    """Return the verdict on a published number (None: the paper has none) by our seeds (None: there is no run).

    reason_not: why the numbers cannot be compared, such as stand-in data or a smaller size; empty if they can be.
    """
    if ours is None:
        return Verdict("not run", "no run of this experiment is in the store")
    if published is None:
        return Verdict("not comparable", "; ".join(filter(None, ("the paper prints no such number", reason_not))))
    if reason_not:
        return Verdict("not comparable", reason_not)
    if ours.warning:
        return Verdict("not comparable", ours.warning)
    if abs(published - ours.mean) <= ours.half_width:
        return Verdict("reproduced", f"the published value lies in our 95 % interval over {ours.n} seeds")
    direction = "higher" if ours.mean > published else "lower"
    return Verdict(direction, f"our mean is {abs(ours.mean - published):.2f} {direction} than the published value")
