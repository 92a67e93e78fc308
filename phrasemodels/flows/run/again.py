"""A run for which nothing is left to do: everything is in the store and was recorded before, so no service is started."""

import datetime
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Store
from phrasemodels.flows.report.place import place_page
from phrasemodels.flows.results import records
from phrasemodels.flows.run.outline import Outline, outlined_page
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import SQLITE


def found_again(asked: Mapping[str, Any], outline: Outline, store: Store, settings: Settings) -> dict[str, Any] | None:
    """Return what `reproduce` prints, with a record and a page of this run, if all steps of a plan are in the store and an
    earlier run with these results was completed; else None."""
    started, began = time.monotonic(), _now()
    found = [step.find(store) for step in outline.steps]
    comparison = found[-1]
    if comparison is None or not all(found) or not _completed(store, comparison) or not _has_mlflow(settings):
        return None
    drawn = outlined_page(asked, settings).find(store) or _drawn(asked, store, settings, comparison)
    run = str(uuid4())
    report = place_page(store, drawn, outline.slug, records.page_of(store, run))
    entry: dict[str, Any] = {
        "id": run,
        "title": outline.title,
        "asked": dict(asked),
        "steps": len(found),
        "found_dead": [],
    }
    entry |= {"started": began, "state": records.COMPLETED, "verdicts": comparison.key, "stages": {}, "ended": _now()}
    records.write(store, entry, None)
    rows, leaks = comparison.meta["rows"], drawn.meta["leaks"]
    return shown(
        outline.title, rows, leaks, report, {}, {"seconds": time.monotonic() - started, "services_seconds": 0.0}
    )


def shown(
    title: str,
    rows: list[dict[str, Any]],
    leaks: Mapping[str, str],
    report: Path,
    stages: Mapping[str, float],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Return what `reproduce` prints, and write it beside the report as JSON."""
    result: dict[str, Any] = {
        "title": title,
        "rows": rows,
        "leaks": dict(leaks),
        "report": str(report),
        "stages": dict(stages),
    }
    result |= {"left": [], "diverged": [], "tuning": [], "trials": []} | {
        name: round(value, 1) for name, value in seconds.items()
    }
    write_durably(report.with_suffix(".json"), json.dumps(result, indent=1))
    return result


def _completed(store: Store, comparison: Artifact) -> bool:
    """Whether an earlier run recorded this comparison in MLflow, wrote its report, and ended."""
    ended = (record for record in records.records(store) if record["state"] == records.COMPLETED)
    return any(record.get("verdicts") == comparison.key for record in ended)


def _has_mlflow(settings: Settings) -> bool:
    """Whether the database of MLflow in the store is still there; a server is trusted."""
    uri = settings.tracking_uri
    return not uri.startswith(SQLITE) or Path(uri.removeprefix(SQLITE)).exists()


def _drawn(asked: Mapping[str, Any], store: Store, settings: Settings, comparison: Artifact) -> Artifact:
    """Draw the page of a table again: its code has changed."""
    from phrasemodels.flows.experiments.catalogue import Request
    from phrasemodels.flows.report.page import drawn
    from phrasemodels.flows.results.finished import FinishedTable
    from phrasemodels.flows.run.preflight import planned
    from phrasemodels.infra.tracking import Tracker

    plan, _ = planned(Request(**asked), settings)
    run_ids = Tracker(settings.tracking_uri).keys()
    return drawn(FinishedTable(plan.table, plan.pipelines, store, comparison, run_ids))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
