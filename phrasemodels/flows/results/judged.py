"""The verdicts on all printed numbers and the values of kept results, remembered while neither the store nor results/ change."""

from typing import Any

from phrasemodels.data.store.remembered import contents, remembered
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.folder import folders
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
