"""The flow: every step of a table as a Prefect task, the table compared with the paper, a report."""

import json
import time
from collections.abc import Callable
from typing import Any

from prefect import flow, runtime, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner

import phrasemodels.infra.environment  # noqa: F401  before prefect
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.flows.experiments.catalogue import table as find_table
from phrasemodels.flows.report.table import write_report
from phrasemodels.flows.results.records import page_of
from phrasemodels.flows.run.attempts import attempt
from phrasemodels.flows.run.progress import Watch
from phrasemodels.flows.run.session import Session
from phrasemodels.infra.services import services, stop_ray
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.signals import Stopped, stoppable

RUNNER: Any = ThreadPoolTaskRunner(max_workers=12)


@flow(name="reproduce", task_runner=RUNNER, persist_result=False)
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
    attempted = str(runtime.flow_run.id or "")
    session = Session(find_table(paper, table, profile, seeds, set or [], rows or []), settings, attempted)
    started = time.monotonic()
    if missing := session.missing_files():
        raise OSError("offline, and these files are missing; put each at the place named:\n  " + "\n  ".join(missing))
    with services(settings), attempt(session, runtime.flow_run.parameters) as record, Watch(session) as watch:
        ready = time.monotonic() - started
        session.check()
        run_steps(session, watch)
        with watch.step(session.verdicts):
            verdicts = session.store.run(session.verdicts)
        page = page_of(session.store, session.attempt) if session.attempt else None
        report = write_report(session.finished(verdicts), page)
        record |= {"verdicts": verdicts.key, "stages": watch.stages()}
        session.close(verdicts, report)
        found = verdicts.meta["rows"]
        create_table_artifact(key=f"verdicts-{paper}-table{table}-{profile}", table=[_flat(row) for row in found])
    result = {
        "title": session.table.title,
        "rows": found,
        "leaks": session.leaks(),
        "report": str(report),
        "stages": watch.stages(),
        "seconds": round(time.monotonic() - started, 1),
        "services_seconds": round(ready, 1),
    }
    write_durably(report.with_suffix(".json"), json.dumps(result, indent=1))
    return result


def run_steps(session: Session, watch: Watch) -> None:
    """Submit every step that is not the last, each after those that it rests on; the first failure is raised."""

    @task(task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False)
    def execute(key: str, label: str) -> None:
        with watch.step(steps[key]):
            session.execute(steps[key])

    submit: Callable[..., Any] = execute.submit

    steps = {step.key: step for step in session.steps if step is not session.verdicts}
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
    """A row of verdicts for Prefect's page."""
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
