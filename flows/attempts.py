"""Runs that nobody watches: each leaves a record, and the next one finds those that died and says so everywhere.

ROOT/runs/ID.json    what was asked for, when, how it ended: running, completed, failed, dead
"""

import contextlib
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import infra.environment  # noqa: F401  before prefect
from data.artifacts import write_durably
from data.leases import held
from data.store import Store
from flows.session import Session
from flows.stores import kept

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

RUNNING, COMPLETED, FAILED, DEAD, DAMAGED = "running", "completed", "failed", "dead", "damaged"


@contextlib.contextmanager
def attempt(session: Session) -> Iterator[dict[str, Any]]:
    """While a run is under way: its record, to which the run may add, and a lease on what it needs."""
    with kept(session.store, session.steps, session.settings, session.attempt):
        buried = bury(session)
        record: dict[str, Any] = {
            "id": session.attempt,
            "title": session.table.title,
            "steps": len(session.steps),
            "found_dead": buried,
            "started": _now(),
            "state": RUNNING,
        }
        _write(session.store, record)
        try:
            yield record
        except BaseException as error:
            _write(session.store, record | {"state": FAILED, "error": str(error).split("\n")[0], "ended": _now()})
            raise
        _write(session.store, record | {"state": COMPLETED, "ended": _now()})


def records(store: Store) -> list[dict[str, Any]]:
    """The records of all runs, oldest first; one that runs no longer, but was never marked, is dead."""
    found = [_read(path) for path in (store.root / "runs").glob("*.json")]
    found = [r | {"state": DEAD} if r["state"] == RUNNING and not held(store, r["id"]) else r for r in found]
    return sorted(found, key=lambda record: str(record["started"]))


def bury(session: Session) -> list[str]:
    """Mark runs that died in Prefect, MLflow and their records; returns their ids. What they made is in the store."""
    dead = [r for r in records(session.store) if r["state"] == DEAD and "marked" not in r]
    for record in dead:
        crashed(UUID(record["id"]))
        session.tracker.dead(record["id"])
        _write(session.store, record | {"marked": _now()})
    return [record["id"] for record in dead]


def crashed(flow_run: UUID | None) -> None:
    """Mark a run in Prefect, and the run that it was a part of in the same process, unless the server knows how it ended
    or does not know it."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        while flow_run is not None:
            found = client.read_flow_run(flow_run)
            if found.state is None or not found.state.is_final():
                client.set_flow_run_state(
                    flow_run, Crashed(message="its process died; found by the next run"), force=True
                )
                if found.deployment_id:
                    recount(client, found.deployment_id)
            part = found.parent_task_run_id
            flow_run = client.read_task_run(part).flow_run_id if part else None


def recount(client: "SyncPrefectClient", deployment: UUID) -> None:
    """Set how many places of a deployment are taken. Who is marked late frees a place that by then another run may hold:
    its own was over five minutes after it died."""
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.exceptions import ObjectNotFound

    holding = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
    filters = FlowRunFilter.model_validate({"deployment_id": {"any_": [deployment]}, "state": holding})
    taken = len(client.read_flow_runs(flow_run_filter=filters))
    with contextlib.suppress(ObjectNotFound):  # not limited
        client.update_global_concurrency_limit(
            f"deployment:{deployment}", GlobalConcurrencyLimitUpdate(active_slots=taken)
        )


def _read(path: Path) -> dict[str, Any]:
    """A record; of one that is damaged only its name."""
    known = {"id": path.stem, "title": "", "started": "", "state": DAMAGED}
    try:
        found = json.loads(path.read_bytes())
        UUID(found["id"])
        return found if all(isinstance(found[name], str) for name in known) else known
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return known


def _write(store: Store, record: dict[str, Any]) -> None:
    path: Path = store.root / "runs" / f"{record['id']}.json"
    path.parent.mkdir(exist_ok=True)
    write_durably(path, json.dumps(record, indent=1))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
