"""The Prefect flows.

`reproduce` runs every step of a table as a task and then compares and reports. `gc` collects garbage. A finished table
or one without trainings is answered without services.
"""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import phrasemodels.infra.environment  # noqa: F401  before prefect

# isort: split
from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelled, Completed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.disk_cache import cached_on_disk
from phrasemodels.data.store.store import Executor, Step, Store, with_dependencies
from phrasemodels.flows.experiments.catalogue import Request, all_papers, counted
from phrasemodels.flows.report.page import drawn, place_page, write_report
from phrasemodels.flows.report.table import chosen_settings
from phrasemodels.flows.results import records
from phrasemodels.flows.results.records import (
    collect_garbage,
    leased_steps,
    open_store,
    sources_of,
    write,
)
from phrasemodels.flows.results.results import FinishedTable
from phrasemodels.flows.run.execute import Execution
from phrasemodels.flows.run.plan import Outline, Plan, outlined, outlined_page, planned
from phrasemodels.flows.run.progress import Watch, log, report_line
from phrasemodels.flows.run.record import attempt, mark_ended, now
from phrasemodels.flows.run.tune import Search, trials_of, tuned
from phrasemodels.infra.services import services, stop_ray
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.signals import STOPPING, ClusterError, Stopped, stoppable, unbroken_output
from phrasemodels.infra.tracking import COMPLETED, SQLITE, Tracker
from phrasemodels.tasks.train.trainer import DivergedError


def replay_finished_run(
    asked: Mapping[str, Any], outline: Outline, store: Store, settings: Settings
) -> dict[str, Any] | None:
    """Return the output of `reproduce` for a finished table with a record of this run.

    Otherwise return None. All steps of the plan must be in the store. An earlier run with these results must have
    completed.
    """
    started, began = time.monotonic(), now()
    found = [step.find(store) for step in outline.steps]
    comparison = found[-1]
    if comparison is None or not all(found):
        return None
    # an earlier run recorded this comparison in MLflow, wrote its report and ended
    ended = (record for record in records.records(store) if record["state"] == COMPLETED)
    if not any(record.get("verdicts") == comparison.key for record in ended):
        return None
    uri = settings.tracking_uri  # a database must be there, and whole; a server is trusted
    if uri.startswith(SQLITE) and (not Path(uri.removeprefix(SQLITE)).exists() or Tracker(uri).damage()):
        return None
    page = outlined_page(asked, settings).find(store) or _drawn(asked, store, settings, comparison)
    if page is None:
        return None
    report = place_page(store, page, outline.slug)
    entry: dict[str, Any] = {
        "id": str(uuid4()),
        "title": outline.title,
        "asked": dict(asked),
        "steps": len(found),
        "found_dead": [],
    }
    entry |= {"started": began, "state": COMPLETED, "verdicts": comparison.key, "stages": {}, "ended": now()}
    write(store, entry | {"report": str(report)})
    result: dict[str, Any] = {"title": outline.title, "rows": comparison.meta["rows"], "leaks": dict(page.meta["leaks"])}
    result |= {"report": str(report), "stages": {}, "diverged": [], "tuning": [], "trials": []}
    result |= {"seconds": round(time.monotonic() - started, 1), "services_seconds": 0.0}
    return result


def _drawn(asked: Mapping[str, Any], store: Store, settings: Settings, comparison: Artifact) -> Artifact | None:
    """Draw the page of a table again, since its code has changed. None: the table's settings have changed, too."""
    plan, _ = planned(Request(**asked), settings)
    if plan.comparison.key != comparison.key:
        return None
    run_ids = Tracker(settings.tracking_uri).keys()
    return drawn(FinishedTable(plan.table, plan.pipelines, store, comparison, run_ids))


# States of tasks: found in the store; a training that diverged, or what needs it.
CACHED, DIVERGED = "Cached", "Diverged"
STOPPED_BY = "Stopped"  # the state of a run that was stopped by a signal, as in the store and in MLflow
MOST_LETTERS = 200  # of a flow run's name


def _name_of_table_run() -> str:
    """Return the name of a flow run with its table, profile and seeds and all other parameters."""
    asked = runtime.flow_run.parameters
    seeds = f"{asked['seeds']} seed{'' if asked['seeds'] == 1 else 's'}"
    name = f"paper {asked['paper']}, table {asked['table']}, {asked['profile']}, {seeds}"
    other = [text for kind in ("rows", "set", "sweep") for text in asked.get(kind) or []]
    other += [f"{kind} {asked[kind]}" for kind in ("like", "tune", "first_seed") if asked.get(kind)]
    return ", ".join((name, *other))[:MOST_LETTERS]


OPTIONS: dict[str, Any] = {
    "name": "reproduce",
    "flow_run_name": _name_of_table_run,
    # Threads mostly wait for Ray or for other steps: of a pipeline's steps about one in four is at work.
    "task_runner": ThreadPoolTaskRunner(max_workers=max(12, 4 * (os.cpu_count() or 1))),
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
    tune: Annotated[int, Field(ge=0)] = 0,
    first_seed: int = 0,
    like: str = "",
    sweep: list[str] | None = None,
) -> dict[str, Any]:
    """Run a table of a paper from raw corpora to verdicts.

    paper, table: which numbers to reproduce. profile: sample, laptop or paper. seeds: how many of each row, from first_seed
    on. set: overrides of every experiment, like ["train.steps=200"]. rows: only these rows, like ["phrase-k2"]. tune: trials of each
    row before its settings are chosen on dev; 0: as they are defined. like, sweep: as of Request.
    """
    settings = Settings()
    request = Request(paper, table, profile, seeds, set or [], rows or [], first_seed, like, sweep or [])
    with ending_as_prefect_does():
        return run_table(request, *planned(request, settings), settings, tune)


@contextlib.contextmanager
def ending_as_prefect_does() -> Iterator[None]:
    """Raise the stop signal of a deployment's run as Prefect's own. Prefect knows whether somebody cancelled the run."""
    try:
        yield
    except Stopped as reason:
        if runtime.deployment.id:
            raise TerminationSignal(signal.SIGTERM) from reason
        raise


def reproduce_plan(request: Request, plan: Plan, store: Store, settings: Settings, tune: int = 0) -> dict[str, Any]:
    """Run a finished plan as a flow run of `reproduce`, for the command line."""
    stopped: list[Stopped] = []

    @flow(**OPTIONS)
    def run(
        paper: str,
        table: str,
        profile: str,
        seeds: int,
        set: list[str],
        rows: list[str],
        first_seed: int,
        like: str,
        sweep: list[str],
    ) -> dict[str, Any] | State[dict[str, Any]]:
        try:
            return run_table(request, plan, store, settings, tune)
        except Stopped as reason:  # raised here it would be a crash for Prefect
            stopped.append(reason)
            return Cancelled(name=STOPPED_BY, message=str(reason))

    state: State[Any] = run(**asdict(request), return_state=True)
    if stopped:
        raise stopped[0]
    return dict(state.result())


def run_table(request: Request, plan: Plan, store: Store, settings: Settings, tune: int = 0) -> dict[str, Any]:
    """Run all steps of a plan inside a flow run, write the report and return the command's output.

    Args:
        request: The request.
        plan: Its steps.
        store: Where their artifacts are.
        settings: The services.
        tune: Trials of each row. The row runs with the best setting.
    """
    started = time.monotonic()
    with unbroken_output(), services(settings):
        _tag_run([f"paper {plan.table.paper}", f"table {plan.table.number}", plan.table.profile, *plan.table.changed])
        result: dict[str, Any] = {"services_seconds": round(time.monotonic() - started, 1)}
        stages: Counter[str] = Counter()
        if tune:
            plan = Plan(tuned(plan.table, _search(plan, store, settings, tune, stages)))
        result |= _run_rows(plan, store, settings, stages)
    result |= {"stages": dict(stages), "seconds": round(time.monotonic() - started, 1)}
    return result


def _run_rows(plan: Plan, store: Store, settings: Settings, stages: Counter[str]) -> dict[str, Any]:
    """Run all rows of a plan and publish the finished ones. Add the seconds of its steps to `stages`."""
    execution = Execution.of(plan, store, settings, str(runtime.flow_run.id or ""))
    record = execution.record
    execution.check()  # before the run has a record
    with attempt(record, settings, runtime.flow_run.parameters) as entry, Watch(execution) as watch:
        log(f"MLflow: {record.link}; records of runs: {store.root / 'runs'}; the store: {settings.store}")
        diverged = run_steps(execution, watch)
        entry["stages"] = watch.stages()
        entry["diverged"] = sorted(set(diverged.values()))
        made = _published(execution.without(diverged), entry)
    stages.update(watch.stages())
    return {
        "title": plan.table.title,
        **made,
        "diverged": entry["diverged"],
        "tuning": chosen_settings(plan.table.trials),
        "trials": plan.table.trials,
    }


def _tag_run(tags: Sequence[str]) -> None:
    """Add tags to the flow run."""
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:  # a tag must never end the run
        client.update_flow_run(UUID(runtime.flow_run.id), tags=[*{*runtime.flow_run.tags, *tags}])


def _search(plan: Plan, store: Store, settings: Settings, budget: int, stages: Counter[str]) -> list[Search]:
    """Search settings for each row of a plan with a budget of trials. Add the seconds of its steps to `stages`."""
    searches = [Search.of(experiment, budget) for experiment in plan.table.experiments]
    trials = trials_of(plan.table, searches)
    prepared, search = (Execution.of(part, store, settings, str(runtime.flow_run.id or "")) for part in (plan, trials))

    def run(execution: Execution, steps: list[Step]) -> None:
        if not steps:
            return
        with Watch(execution) as watch:
            run_steps(execution, watch, steps)
        stages.update(watch.stages())

    with attempt(search.record, settings, runtime.flow_run.parameters, plan.without_models):
        run(prepared, plan.without_models)  # what is missing for the table is missed before the trials
        run(search, with_dependencies([pipeline.trained for pipeline in trials.pipelines]))
        for row in searches:
            row.measure(store)
    search.record.end_trials()
    return searches


def _published(execution: Execution, entry: dict[str, Any]) -> dict[str, Any]:
    """Write the report of finished rows, record them in MLflow and return their output. entry: the record of the run."""
    finished, record = execution.finished(), execution.record
    report = None
    try:
        report = write_report(finished)
    except Exception as error:  # the results are there: a page that cannot be drawn must not withhold them
        _print_failure(f"the page of {execution.plan.table.title}", error)
    entry |= {"verdicts": finished.comparison.key, "report": str(report or "")}
    record.close(finished.comparison, report)
    rows = finished.comparison.meta["rows"]
    judged = ", ".join(f"{row['system']} {row['variant']} {row['verdict']}" for row in rows)
    log(f"verdicts: {judged}; report: {report}")
    return {"rows": rows, "leaks": finished.leaks, "report": str(report or "")}


def _print_failure(name: str, error: BaseException) -> None:
    """Print and log in Prefect a failure beside the results."""
    text = str(error).strip().partition("\n")[0]
    report_line(f"{name} failed: {type(error).__name__}: {text}; the results do not depend on it")


def run_steps(execution: Execution, watch: Watch, chosen: list[Step] | None = None) -> dict[str, str]:
    """Submit every (or every chosen) step of a plan as a Prefect task after its inputs.

    The first failure is raised. A failed check beside the results is printed instead.

    Returns:
        The keys of diverged trainings and of their dependents, with the error.
    """
    order = execution.plan.steps if chosen is None else chosen
    steps = {step.key: step for step in order}
    diverged: dict[str, str] = {}
    stopped = threading.Event()

    @task(
        # the store says what is a hit: Prefect's keys know neither helper functions nor files (docs/explanation/decisions.md)
        task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False, retries=1, retry_delay_seconds=5,
        retry_condition_fn=lambda task, run, state: not stopped.is_set() and _lost_cluster(state),
    )  # fmt: skip
    def run_step(key: str, label: str) -> State[None] | None:
        with watch.step(steps[key]) as outcome:
            needed = [step.key for step in steps[key].inputs.values() if isinstance(step, Step)]
            if why := [diverged[key] for key in needed if key in diverged]:
                diverged[key] = why[0]
                outcome.text = "not begun after "
                return Completed(name=DIVERGED, message=why[0])
            hit = execution.store.find(steps[key], verify=False) is not None
            try:
                try:
                    execution.run(steps[key])
                # Ray raises SystemExit in threads that wait for it when it is shut down
                except (OSError, SystemExit):
                    if not STOPPING.is_set():
                        raise
                    outcome.text = "stopped after "
                    return Cancelled(message="the run was stopped; finished steps and checkpoints are kept")
            except DivergedError as error:
                diverged[key] = f"{label}: {error}"
                outcome.text = "diverged after "
                return Completed(name=DIVERGED, message=str(error))
            return Completed(name=CACHED, message=f"in the store: {key}") if hit else None

    futures: dict[str, Any] = {}
    for key, step in steps.items():
        before = [futures[value.key] for value in step.inputs.values() if value.key in futures]
        # in order: inputs come first, so their futures are known
        table = execution.plan.table
        tags = {step.name, f"paper {table.paper}", f"table {table.number}", table.profile}
        named = run_step.with_options(name=step.name, tags=tags)
        submit: Callable[..., Any] = named.submit
        futures[key] = submit(key=key, label=step.label, wait_for=before)
    with stoppable(partial(mark_ended, execution.record.attempt)):
        try:
            for future in futures.values():
                future.wait()
        except (Stopped, ClusterError):  # without Ray, the threads that wait for it end at once
            stopped.set()
            stop_ray()
            raise
    states = {key: future.state for key, future in futures.items()}
    failures = {key: futures[key] for key, state in states.items() if state.is_failed() or state.is_crashed()}
    checks = {step.key for step in execution.plan.checks}
    for key, future in failures.items():
        if key not in checks:
            future.result()
    for key, future in failures.items():
        _print_failure(steps[key].label, future.result(raise_on_failure=False))
    return diverged


def _lost_cluster(state: State[Any]) -> bool:
    """Return whether a task failed because Ray lost a process or a node. Prefect then runs the task again."""
    try:
        state.result()
    except ClusterError:
        return True
    except BaseException:
        return False
    return False


@flow(name="gc", flow_run_name="keep {days} days", persist_result=False, log_prints=True)
def gc(days: Annotated[float, Field(ge=0)] = 7.0, verdicts: Annotated[int, Field(ge=0)] = 0) -> list[str]:
    """Remove everything that neither a verdict nor a running run needs, and old interrupted work; return the paths.

    days: keep what was made or used within so many days. verdicts: keep so many verdicts of each table (0: all).
    """
    settings = Settings()
    with unbroken_output():
        removed = collect_garbage(open_store(settings), settings, days, verdicts)
        print(f"{len(removed)} things removed, {sum(item.bytes for item in removed)} bytes in this node's folder")
    return [str(item.path) for item in removed]


def count(settings: Settings, corpora: bool) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
    """Run the counted tables without corpora, or all. Yield the title and the rows of each, or why it cannot run.

    A table with a missing corpus or parser does not stop the others.
    """

    def tables() -> list[tuple[str, str, bool]]:
        return [(paper, number, reads) for paper in all_papers() for number, reads in counted(paper).items()]

    for paper, table, reads in cached_on_disk("counted", None, tables):
        if reads and not corpora:
            continue
        asked = {"paper": paper, "table": table, "profile": "sample", "seeds": 1, "set": [], "rows": [], "first_seed": 0}
        try:
            outline, store = outlined(asked, settings), open_store(settings)
            found = [step.find(store) for step in outline.steps]
            made = found[-1] if all(found) else None
            yield outline.title, (made or _made(asked, settings)).meta["rows"], ""
        except OSError as error:
            yield f"Paper {paper}, Table {table}", [], str(error)


def _made(asked: Mapping[str, Any], settings: Settings) -> Artifact:
    """Count a table in this process."""
    plan, store = planned(Request(**asked), settings)
    with leased_steps(store, plan.steps, settings):
        return store.run(plan.comparison, Executor(sources=sources_of(settings)))
