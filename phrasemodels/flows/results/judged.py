"""The verdicts on all printed numbers, remembered while neither the store nor results/ change, and their counts."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from phrasemodels.data.store.remembered import contents, remembered
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.published import VERDICTS
from phrasemodels.flows.results.records import folders
from phrasemodels.infra.tracking import Tracker


def judged(store: Store, tracker: Tracker, paper: str = "") -> list[dict[str, Any]]:
    """Return what `verdicts` says of the results in the store and of the kept ones. ValueError: there is no such paper."""
    run_ids = tracker.keys()

    def make() -> list[dict[str, Any]]:
        from phrasemodels.flows.results.results import kept_results, stored_results
        from phrasemodels.flows.results.verdicts import verdicts

        return verdicts([*stored_results(store, run_ids), *kept_results()], paper)

    present = list(map(str, store.present()))
    return list(remembered("verdicts", [paper, run_ids, present, _kept()], make))


def remembered_values() -> list[tuple[str, dict[str, list[float]]]]:
    """Return what `kept_values` yields."""

    def make() -> list[Any]:
        from phrasemodels.flows.results.results import kept_values

        return list(kept_values())

    return [(name, values) for name, values in remembered("kept values", _kept(), make)]


def _kept() -> list[dict[str, str]]:
    return [contents(folder) for folder in folders()]


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
