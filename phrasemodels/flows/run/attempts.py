"""Attempts: each run of a flow leaves a record, and the next one finds runs that died and marks them everywhere."""

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import phrasemodels.infra.environment  # noqa: F401  before prefect
from phrasemodels.data.store.step import Step
from phrasemodels.data.store.store import Store
from phrasemodels.flows.report.templates import render
from phrasemodels.flows.results import records
from phrasemodels.flows.results.records import COMPLETED, DEAD, FAILED, RUNNING
from phrasemodels.flows.results.stores import leased_steps
from phrasemodels.flows.run.record import Record
from phrasemodels.infra.settings import Settings

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


@contextlib.contextmanager
def attempt(
    record: Record, settings: Settings, asked: dict[str, Any], also: Sequence[Step] = ()
) -> Iterator[dict[str, Any]]:
    """While a table runs: lease its steps and others, mark runs that died, and keep a record of the run; if it fails, end its runs
    in MLflow."""
    plan, store = record.plan, record.store
    with leased_steps(store, [*also, *plan.steps], settings, record.attempt):
        about = {"steps": len(plan.steps), "found_dead": mark_dead_runs(record)}
        try:
            with recorded(store, record.attempt, plan.table.title, asked, about) as entry:
                yield entry
        except BaseException:
            with contextlib.suppress(Exception):  # the error of the run is the one to show
                record.tracker.mark_killed(record.attempt)
            raise


@contextlib.contextmanager
def recorded(
    store: Store, run: str, title: str, asked: dict[str, Any], about: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """While a run with a lease is under way: keep its record; the caller may add to it."""
    entry = {"id": run, "title": title, "asked": asked, **about, "started": _now(), "state": RUNNING}
    write(store, entry)
    try:
        yield entry
    except BaseException as error:
        write(store, entry | {"state": FAILED, "error": str(error).split("\n")[0], "ended": _now()})
        raise
    write(store, entry | {"state": COMPLETED, "ended": _now()})


def write(store: Store, entry: dict[str, Any]) -> None:
    """Write a record with its page; the page of a completed table is its report, which is there already."""
    has_report = entry["state"] == COMPLETED and "verdicts" in entry
    records.write(store, entry, None if has_report else render("run.html.jinja", record=entry))


def mark_dead_runs(record: Record) -> list[str]:
    """Mark runs that died in Prefect, in MLflow and in their records; return their ids. Their results are in the store."""
    store = record.store
    dead = [entry for entry in records.records(store) if entry["state"] == DEAD and "marked" not in entry]
    for entry in dead:
        mark_crashed(UUID(entry["id"]))
        record.tracker.mark_killed(entry["id"])
        write(store, entry | {"marked": _now()})
    return [entry["id"] for entry in dead]


def mark_crashed(flow_run: UUID | None) -> None:
    """Mark a flow run, and the run that it was a part of in the same process, as crashed in Prefect, unless the server
    knows how it ended or does not know it at all."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        while flow_run is not None:
            run = client.read_flow_run(flow_run)
            if run.state is None or not run.state.is_final():
                client.set_flow_run_state(
                    flow_run, Crashed(message="its process died; found by the next run"), force=True
                )
                if run.deployment_id:
                    recount_slots(client, run.deployment_id)
            parent = run.parent_task_run_id
            flow_run = client.read_task_run(parent).flow_run_id if parent else None


def recount_slots(client: "SyncPrefectClient", deployment: UUID) -> None:
    """Set how many slots of a deployment are taken to the number of its active runs.

    A run that is marked late frees a slot that another run may hold by then: its own was released five minutes after it
    died.
    """
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.exceptions import ObjectNotFound

    active = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
    filters = FlowRunFilter.model_validate({"deployment_id": {"any_": [deployment]}, "state": active})
    update = GlobalConcurrencyLimitUpdate(active_slots=len(client.read_flow_runs(flow_run_filter=filters)))
    with contextlib.suppress(ObjectNotFound):  # the deployment has no limit
        client.update_global_concurrency_limit(f"deployment:{deployment}", update)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
