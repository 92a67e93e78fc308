"""All verdicts at a glance: how many numbers have which, and with which kinds of reasons."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

VERDICTS = ("reproduced", "higher", "lower", "impossible", "not comparable", "not run")
JUDGED = VERDICTS[:3]


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the counts by paper and verdict; a verdict that nothing has is left out."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        of = counts.setdefault(row["paper"], {})
        of[row["verdict"]] = of.get(row["verdict"], 0) + 1
    return counts


def needed(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return what numbers without a judgement need, and how many need it; the most frequent first."""
    return dict(Counter(row["needs"] for row in rows if row["needs"]).most_common())


def reasons(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return how many numbers have each kind of reason, by verdict; the most frequent first."""
    counts = Counter((row["verdict"], row["kind"]) for row in rows)
    return {
        verdict: {kind: n for (of, kind), n in counts.most_common() if of == verdict}
        for verdict in VERDICTS
        if any(of == verdict for of, _ in counts)
    }
