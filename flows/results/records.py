"""Records of runs: what each was asked for, when, how it ended, and a page of it for people.

ROOT/runs/ID.json    state: running, completed, failed, dead
ROOT/runs/ID.html    the report of its table; of a run without one, or of several tables, what the record says
"""

import datetime
import json
import math
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any
from uuid import UUID

from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.gc import DAY, Waste
from phrasemodels.data.store.leases import is_alive
from phrasemodels.data.store.store import Store
from phrasemodels.flows.report.templates import render

RUNNING, COMPLETED, FAILED, DEAD, DAMAGED = "running", "completed", "failed", "dead", "damaged"


def page_of(store: Store, run: str) -> Path:
    """Where the page of a run is, or will be."""
    return store.root / "runs" / f"{run}.html"


def write(store: Store, record: dict[str, Any]) -> None:
    """A record, with its page unless that is the report of a table."""
    path = page_of(store, record["id"])
    path.parent.mkdir(exist_ok=True)
    if record["state"] != COMPLETED or "verdicts" not in record:
        write_durably(path, render("run.html.jinja", record=record))
    write_durably(path.with_suffix(".json"), json.dumps(record | {"report": str(path)}, indent=1))


def records(store: Store) -> list[dict[str, Any]]:
    """The records of all runs, oldest first; one that runs no longer, but was never marked, is dead."""
    found = [_read(path) for path in (store.root / "runs").glob("*.json")]
    found = [r | {"state": DEAD} if r["state"] == RUNNING and not is_alive(store, r["id"]) else r for r in found]
    return sorted(found, key=lambda record: str(record["started"]))


def _read(path: Path) -> dict[str, Any]:
    """A record; of one that is damaged only its name."""
    known = {"id": path.stem, "title": "", "started": "", "state": DAMAGED}
    try:
        found = json.loads(path.read_bytes())
        UUID(found["id"])
        return found if all(isinstance(found[name], str) for name in known) else known
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return known


def forgotten(store: Store, days: float, verdicts: Collection[str], dry: bool = False) -> list[Waste]:
    """Remove the records and pages of runs that ended so many days ago; of each of these verdicts the newest run stays."""
    known = records(store)
    newest = {str(record.get("verdicts")): record["id"] for record in known if record["state"] == COMPLETED}
    stay = {run for verdict, run in newest.items() if verdict in verdicts}
    before, gone = time.time() - days * DAY, []
    for record in known:
        if record["id"] not in stay and _ended(record) < before:
            page = page_of(store, record["id"])
            paths = [
                path for path in (page, page.with_suffix(".json")) if path.exists()
            ]  # the record last: it leads here
            gone.append(Waste(paths[-1], sum(path.stat().st_size for path in paths), f"run of {record['title']}"))
            for path in () if dry else paths:
                path.unlink(missing_ok=True)
    return gone


def _ended(record: dict[str, Any]) -> float:
    """When a run ended or was found dead; one that does not say so has not."""
    try:
        return datetime.datetime.fromisoformat(record.get("marked") or record["ended"]).timestamp()
    except (KeyError, ValueError, TypeError, ArithmeticError):
        return math.inf
