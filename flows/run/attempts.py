"""Runs that nobody watches: each leaves a record, and the next one finds those that died and says so everywhere."""

import contextlib
import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import phrasemodels.infra.environment  # noqa: F401  before prefect
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.records import COMPLETED, DEAD, FAILED, RUNNING, records, write
from phrasemodels.flows.results.stores import kept
from phrasemodels.flows.run.session import Session

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


@contextlib.contextmanager
def attempt(session: Session, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """While a run of a table is under way: its record, and a lease on what it needs."""
    with kept(session.store, session.steps, session.settings, session.attempt):
        about = {"steps": len(session.steps), "found_dead": bury(session)}
        with recorded(session.store, session.attempt, session.table.title, asked, about) as record:
            yield record


@contextlib.contextmanager
def recorded(
    store: Store, run: str, title: str, asked: dict[str, Any], about: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """While a run is under way that holds a lease: its record, to which it may add."""
    record = {"id": run, "title": title, "asked": asked, **about, "started": _now(), "state": RUNNING}
    write(store, record)
    try:
        yield record
    except BaseException as error:
        write(store, record | {"state": FAILED, "error": str(error).split("\n")[0], "ended": _now()})
        raise
    write(store, record | {"state": COMPLETED, "ended": _now()})


def bury(session: Session) -> list[str]:
    """Mark runs that died in Prefect, MLflow and their records; returns their ids. What they made is in the store."""
    dead = [r for r in records(session.store) if r["state"] == DEAD and "marked" not in r]
    for record in dead:
        crashed(UUID(record["id"]))
        session.tracker.mark_killed(record["id"])
        write(session.store, record | {"marked": _now()})
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


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
