"""Records of runs: what each was asked for, when it ran, and how it ended.

ROOT/runs/ID.json    state: running, completed, failed, dead
ROOT/runs/ID.html    a page for people: the report of the run's table, or the record itself
"""

import datetime
import json
import math
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any
from uuid import UUID

from phrasemodels.data.store.artifacts import NotAFileError, read_regular, write_durably
from phrasemodels.data.store.gc import DAY, Waste
from phrasemodels.data.store.leases import is_alive
from phrasemodels.data.store.store import Store

RUNNING, COMPLETED, FAILED, DEAD, DAMAGED = "running", "completed", "failed", "dead", "damaged"


def page_of(store: Store, run: str) -> Path:
    """Return the path of the page of a run."""
    return store.root / "runs" / f"{run}.html"


def write(store: Store, record: dict[str, Any], page: str | None) -> None:
    """Write a record and its page; None: the page is there already."""
    path = page_of(store, record["id"])
    path.parent.mkdir(exist_ok=True)
    if page is not None:
        write_durably(path, page)
    write_durably(path.with_suffix(".json"), json.dumps(record | {"report": str(path)}, indent=1))


def records(store: Store) -> list[dict[str, Any]]:
    """Return the records of all runs, oldest first. A run that is recorded as running but holds no lease is dead."""
    read = [_read(path) for path in (store.root / "runs").glob("*.json")]
    read = [r | {"state": DEAD} if r["state"] == RUNNING and not is_alive(store, r["id"]) else r for r in read]
    return sorted(read, key=lambda record: str(record["started"]))


def _read(path: Path) -> dict[str, Any]:
    """Return a record; of a damaged one only its name."""
    damaged = {"id": path.stem, "title": "", "started": "", "state": DAMAGED}
    try:
        record = json.loads(read_regular(path))
        UUID(record["id"])
        return record if all(isinstance(record[name], str) for name in damaged) else damaged
    except (ValueError, NotAFileError, KeyError, TypeError, AttributeError, RecursionError):
        return damaged


def remove_old(store: Store, days: float, verdicts: Collection[str], dry: bool = False) -> list[Waste]:
    """Remove the records and pages of runs that ended so many days ago, but keep the newest run of each of these verdicts.

    dry: only return what would be removed.
    """
    known = records(store)
    newest = {str(record.get("verdicts")): record["id"] for record in known if record["state"] == COMPLETED}
    stay = {run for verdict, run in newest.items() if verdict in verdicts}
    before, removed = time.time() - days * DAY, []
    for record in known:
        if record["id"] not in stay and _ended(record) < before:
            page = page_of(store, record["id"])
            paths = [
                path for path in (page, page.with_suffix(".json")) if path.exists()
            ]  # the record is removed last, because it leads here
            removed.append(Waste(paths[-1], sum(path.stat().st_size for path in paths), f"run of {record['title']}"))
            for path in () if dry else paths:
                path.unlink(missing_ok=True)
    return removed


def _ended(record: dict[str, Any]) -> float:
    """Return the time (seconds since 1970) at which a run ended or was marked as dead; infinity if the record lacks it."""
    try:
        return datetime.datetime.fromisoformat(record.get("marked") or record["ended"]).timestamp()
    except (KeyError, ValueError, TypeError, ArithmeticError):
        return math.inf
