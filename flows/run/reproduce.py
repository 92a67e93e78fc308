"""The flow `reproduce`: every step of a table as a Prefect task, then the comparison with the paper and a report."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from prefect import flow, runtime, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner

import phrasemodels.infra.environment  # noqa: F401  before prefect
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.report.page import write_report
from phrasemodels.flows.results.records import page_of
from phrasemodels.flows.run.again import shown
from phrasemodels.flows.run.attempts import attempt
from phrasemodels.flows.run.execute import Execution
from phrasemodels.flows.run.plan import Plan
from phrasemodels.flows.run.preflight import planned
from phrasemodels.flows.run.progress import Watch
from phrasemodels.infra.services import services, stop_ray
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.signals import Stopped, stoppable

OPTIONS: dict[str, Any] = {
    "name": "reproduce",
    "task_runner": ThreadPoolTaskRunner(max_workers=12),
    "persist_result": False,
}


@flow(**OPTIONS)
def reproduce(
    paper: str = "000",
    table: str = "1",
    profile: str = "sample",
    seeds: int = 2,
    set: list[str] | None = None,
    rows: list[str] | None = None,
) -> dict[str, Any]:
    """Run a table of a paper from raw corpora to verdicts.

    paper, table: which numbers to reproduce. profile: sample, laptop or paper. seeds: how many of each row.
    set: overrides of every experiment, like ["train.steps=200"]. rows: only these rows, like ["phrase-k2"].
    """
    settings = Settings()
    request = Request(paper, table, profile, seeds, set or [], rows or [])
    return run_table(request, *planned(request, settings), settings)


def reproduce_plan(request: Request, plan: Plan, store: Store, settings: Settings) -> dict[str, Any]:
    """Run a plan that has been made already as a flow run of `reproduce`, for the command line."""

    @flow(**OPTIONS)
    def run(paper: str, table: str, profile: str, seeds: int, set: list[str], rows: list[str]) -> dict[str, Any]:
        return run_table(request, plan, store, settings)

    return run(**asdict(request))


def run_table(request: Request, plan: Plan, store: Store, settings: Settings) -> dict[str, Any]:
    """Inside a flow run: run all steps of a plan, write the report, and return what the command prints."""
    started = time.monotonic()
    execution = Execution.of(plan, store, settings, str(runtime.flow_run.id or ""))
    record = execution.record
    asked = runtime.flow_run.parameters
    with services(settings), attempt(record, settings, asked) as entry, Watch(execution) as watch:
        ready = time.monotonic() - started
        execution.check()
        run_steps(execution, watch)
        finished = execution.finished()
        report = write_report(finished, page_of(store, record.attempt) if record.attempt else None)
        entry |= {"verdicts": finished.comparison.key, "stages": watch.stages()}
        record.close(finished.comparison, report)
        rows = finished.comparison.meta["rows"]
        name = f"verdicts-{request.paper}-table{request.table}-{request.profile}"
        create_table_artifact(key=name, table=[_flat(row) for row in rows])
    seconds = {"seconds": time.monotonic() - started, "services_seconds": ready}
    return shown(plan.table.title, rows, finished.leaks, report, watch.stages(), seconds)


def run_steps(execution: Execution, watch: Watch) -> None:
    """Submit every step as a Prefect task after the steps that it depends on; raise the first failure."""
    steps = {step.key: step for step in execution.plan.steps}

    @task(task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False)
    def run_step(key: str, label: str) -> None:
        with watch.step(steps[key]):
            execution.run(steps[key])

    submit: Callable[..., Any] = run_step.submit
    futures: dict[str, Any] = {}
    for key, step in steps.items():
        before = [futures[value.key] for value in step.inputs.values() if value.key in futures]
        futures[key] = submit(key=key, label=step.label, wait_for=before)
    with stoppable():
        try:
            failures = [future for future in futures.values() if _failed(future)]
        except Stopped:  # without Ray, the threads that wait for it end at once
            stop_ray()
            raise
    if failures:
        failures[0].result()


def _failed(future: Any) -> bool:
    future.wait()
    return bool(future.state.is_failed() or future.state.is_crashed())


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of verdicts as one level of columns, for Prefect's page."""
    ours = row["intervals"][row["metric"]]
    return {
        "system": f"{row['system']} {row['variant']}",
        "published": row["published"],
        "ours": ours["mean"],
        "half width": ours["half_width"],
        "seeds": len(row["seeds"]),
        "verdict": row["verdict"],
        "reason": row["reason"],
    }
