"""The record of a table in MLflow: its run and the runs of its trainings.

Runs of trainings are below the run of the table. Each run of a flow also leaves a record in the store. The next run
finds dead runs and marks them everywhere.
"""

import contextlib
import datetime
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import phrasemodels.infra.environment  # noqa: F401  before prefect
from phrasemodels.config import to_json
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import MANIFEST, Artifact
from phrasemodels.data.store.store import Step, Store, digest_of
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.results import records
from phrasemodels.flows.results.judged import problem_of
from phrasemodels.flows.results.records import RUNNING, commit, leased_steps, write
from phrasemodels.flows.run.plan import Plan
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.signals import STOPPING
from phrasemodels.infra.tracking import (
    ATTEMPT,
    CANCELLED,
    COMPLETED,
    DEAD,
    DIVERGED,
    FAILED,
    STOPPED,
    Tracker,
    TrainingRun,
    as_set,
)
from phrasemodels.saved import first_line
from phrasemodels.tasks.train.trainer import DivergedError, history

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


FINAL = ("parameters", "train_seconds", "peak_memory_mib")  # metrics of a training that has ended


@dataclass(frozen=True)
class Record:
    """Writes a table and its trainings to MLflow.

    attempt: the id of the Prefect run, if there is one.
    """

    plan: Plan
    store: Store
    tracker: Tracker
    attempt: str = ""

    @cached_property
    def table_run(self) -> str:
        """The id of the MLflow run of the table, in the experiment of its problem and corpus."""
        # by the keys of the scores: a rerun that changes nothing opens the same run again
        key = digest_of([self.plan.table.title, [p.scored.key for p in self.plan.pipelines]])
        first, title = self.plan.table.experiments[0], self.plan.table.title
        about = {"mlflow.note.content": title, **_about(first), "phrasemodels.kind": "table"}
        # as the names of its experiments begin: a list of runs shows some twenty letters
        name = f"{first.sibling('')[:-1]}{title.partition(f'profile {first.profile}')[2]}"
        run = self.tracker.open_run(first.recipe.name, name, key, {**about, ATTEMPT: self.attempt, **_code()})
        own = [_settings_of(p).items() for p in self.plan.pipelines if p.trains]
        self.tracker.parameters(run, dict(set.intersection(*map(set, own))) if own else {})
        return run

    @property
    def link(self) -> str:
        """The address of the table's run in MLflow: a page of a server, or the database and the id."""
        if not self.tracker.uri.startswith("http"):
            return f"{self.tracker.uri}, run {self.table_run}"
        experiment = self.tracker.client().get_run(self.table_run).info.experiment_id
        return f"{self.tracker.uri.rstrip('/')}/#/experiments/{experiment}/runs/{self.table_run}"

    def run_of(self, pipeline: Pipeline) -> TrainingRun:
        """The MLflow run of one experiment and seed. It may not have begun."""
        e = pipeline.experiment
        tags = {
            "mlflow.parentRunId": self.table_run,
            "phrasemodels.kind": "trial" if "tuning" in self.plan.table.how else "training",
            ATTEMPT: self.attempt,
            **_code(),
            **_about(e),
            "mlflow.note.content": f"{e.name}, seed {pipeline.seed}: {e.system} {e.variant}",
            "row": e.row,
            "system": f"{e.system} {e.variant}",
            "experiment": e.name,
            "seed": str(pipeline.seed),
        }
        # what differs between the runs of a table; the rows of a sweep are called by it
        alike = [one for one in self.plan.table.experiments if one.row == e.row]
        own = [text for text in e.changed if any(text not in one.changed for one in alike)]
        name = ", ".join([e.row, *own, f"seed {pipeline.seed}"])
        return TrainingRun(self.tracker, e.recipe.name, name, pipeline.trained.key, tags, _settings_of(pipeline))

    def training_run(self, pipeline: Pipeline) -> str:
        """The id of the MLflow run of one experiment and seed, with its parameters.

        A new run of a training in the store began when the training did.
        """
        trained = self.store.find(pipeline.trained, verify=False)
        began = ended_at(trained) - float(trained.manifest["seconds"]) if trained else None
        return self.run_of(pipeline).open(began)

    @contextlib.contextmanager
    def training(self, pipeline: Pipeline) -> Iterator[TrainingRun]:
        """Yield the MLflow run of a training. Its worker opens it. Mark it if the training fails or is stopped."""
        run = self.run_of(pipeline)
        try:
            yield run
        except BaseException as error:
            with contextlib.suppress(Exception):  # the error of the training is the one to show
                run.fail(state_after(error, self.attempt), first_line(error))
            raise

    def finish(self, pipeline: Pipeline, scored: Artifact) -> None:
        """Log final metrics with the digest of their test set, the configuration and predictions."""
        if self.tracker.is_finished(run_id := self.training_run(pipeline)):
            return
        trained, predicted = self.store.find(pipeline.trained), self.store.find(pipeline.predicted)
        assert trained is not None and predicted is not None, "a score depends on weights and predictions"
        rows = pipeline.trained.inputs["train"]
        data = self.store.find(rows, verify=False) if isinstance(rows, Step) else None
        curves = {name for row in history(trained) for name in row}
        scores = scored.meta["scores"].items()
        metrics = {f"test/{name}" if name in curves else name: score["value"] for name, score in scores}
        metrics |= _training_metrics(trained)
        tags = {
            "test_set": digest_of([s["content"] for s in scored.meta["test_set"]]),
            "data": digest_of([s["content"] for s in data.meta["shards"]]) if data else "",
            "score": scored.key,
            "licences": ", ".join(scored.meta["licences"]),
            "workers": " then ".join(map(str, trained.meta["workers"])),
            "devices": " then ".join(trained.meta["devices"]),
        }
        files = [trained.file("config.json"), *sorted(scored.path.glob("*.json")), *sorted(scored.path.glob("*.arrow"))]
        files = [file for file in files if file.name != MANIFEST]
        if scored.meta["redistributable"]:
            shards = sorted(predicted.path.glob("*.arrow"))
            files += shards
            self.tracker.preview(run_id, [read_shard(file) for file in shards])
        # if another attempt had the run before
        self.tracker.history(run_id, self.attempt, history(trained), ended_at(trained))
        self.tracker.finish(run_id, metrics, files, tags, trained.meta["train_seconds"])

    def end_trials(self) -> None:
        """End the runs of a tuning: of the table, and of each finished trial."""
        for pipeline in self.plan.pipelines:
            if trained := self.store.find(pipeline.trained, verify=False):
                metrics = _training_metrics(trained)
                self.tracker.finish(self.training_run(pipeline), metrics, [], {})
        self.tracker.finish(self.table_run, {}, [], {})

    def close(self, comparison: Artifact, report: Path | None) -> None:
        """End the run of the table with its means, verdicts and report (None: it failed)."""
        short = {e.name: e.row for e in self.plan.table.experiments}
        metrics, verdicts = dict[str, float](), dict[str, dict[str, str]]()
        for row in comparison.meta["rows"]:
            own, name = row["intervals"][row["metric"]], f"{short[row['experiment']]}/{row['metric']}"
            found = {name: own["mean"], f"{name}/half_width": own["half_width"], f"{name}/seeds": len(row["seeds"])}
            found[f"{name}/diverged"] = len(row["diverged"]) or None
            metrics |= {one: value for one, value in found.items() if value is not None}
            verdicts.setdefault(row["experiment"], {"verdict": row["verdict"], "reason": row["reason"]})
        for pipeline in self.plan.pipelines:
            if pipeline.trains and pipeline.experiment.name in verdicts:
                self.tracker.tag(pipeline.trained.key, verdicts[pipeline.experiment.name])
        files = [comparison.file("verdicts.json"), *([report] if report else [])]
        self.tracker.finish(self.table_run, metrics, files, {"verdicts": comparison.key, **self._claims(comparison)})

    def _claims(self, comparison: Artifact) -> dict[str, str]:
        """Return tags with the answers of the table to claims of its paper."""
        from phrasemodels.flows.results.claims import answered_claims
        from phrasemodels.flows.results.results import stored_results

        found = [result for result in stored_results(self.store, {}) if result.source == comparison.key]
        answers = answered_claims(found, self.store, self.plan.table.paper)
        whole = {one["id"]: one["verdict"] for one in answers if one["readings"]}
        small = {one["id"]: one["elsewhere"][0]["verdict"] for one in answers if one["elsewhere"]}
        return {f"claim {name}": verdict for name, verdict in (small | whole).items()}


def _settings_of(pipeline: Pipeline) -> dict[str, str]:
    return as_set({**pipeline.trained.parts["settings"], "recipe": to_json(pipeline.experiment.recipe)})


def _about(experiment: Experiment) -> dict[str, str]:
    """Return the tags of an experiment that all rows of its table share."""
    paper, table = experiment.name.split("/")[:2]
    corpus = problem_of(experiment)[1]
    return {"paper": paper, "table": table, "profile": experiment.profile, "corpus": corpus}


def _code() -> dict[str, str]:
    """Return the tags of the code and of the starter of a run."""
    from prefect import runtime

    deployed = runtime.deployment.name
    source = (
        f"deployment {runtime.flow_run.flow_name}/{deployed}" if deployed else " ".join(["phrasemodels", *sys.argv[1:]])
    )
    return {
        "commit": commit(),
        "mlflow.source.git.commit": commit(),
        "mlflow.source.name": source,
        "mlflow.source.type": "JOB" if deployed else "LOCAL",
    }


def ended_at(artifact: Artifact) -> float:
    """Return when an artifact was made (seconds since 1970)."""
    return datetime.datetime.fromisoformat(artifact.manifest["finished"]).timestamp()


def _training_metrics(trained: Artifact) -> dict[str, float]:
    """Return the metrics of a finished training. The last `dev_loss` of its history may not be of the kept weights."""
    return {"best_dev_loss": float(trained.meta["dev_loss"]), **{name: float(trained.meta[name]) for name in FINAL}}


@contextlib.contextmanager
def attempt(
    record: Record, settings: Settings, asked: dict[str, Any], also: Sequence[Step] = ()
) -> Iterator[dict[str, Any]]:
    """Lease the steps of a table's run and others, mark dead runs and keep a record.

    If the run fails, its MLflow runs are ended.
    """
    plan, store = record.plan, record.store
    with leased_steps(store, [*also, *plan.steps], settings, record.attempt):
        about = {"steps": len(plan.steps), "found_dead": mark_dead_runs(record)}
        with recorded(store, record.attempt, plan.table.title, asked, about) as entry:
            try:
                yield entry
            except BaseException as error:
                # before the record says that the run has ended: if this process is killed here, the next run finds it dead, and
                # ends its runs in MLflow
                with contextlib.suppress(Exception):  # the error of the run is the one to show
                    record.tracker.end_runs(record.attempt, state_after(error, record.attempt), first_line(error))
                raise


def state_after(error: BaseException, run: str = "") -> str:
    """Return the state after an error: diverged, failed, stopped by somebody, or cancelled in Prefect."""
    if isinstance(error, DivergedError):
        return DIVERGED
    if run and STOPPING.is_set() and is_cancelled(run):
        return CANCELLED
    return STOPPED if STOPPING.is_set() or not isinstance(error, Exception) else FAILED


@contextlib.contextmanager
def recorded(
    store: Store, run: str, title: str, asked: dict[str, Any], about: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Keep the record of a leased run during the block. The caller may add to it."""
    entry = {"id": run, "title": title, "asked": asked, **about, "started": now(), "state": RUNNING}
    write(store, entry)
    try:
        yield entry
    except BaseException as error:
        write(store, entry | {"state": state_after(error, run), "reason": first_line(error), "ended": now()})
        raise
    reason = "; ".join(entry.get("diverged", []))
    write(store, entry | {"state": COMPLETED, "reason": reason, "ended": now()})


@cache  # each training that is stopped asks, and an answer may take two minutes
def is_cancelled(run: str) -> bool:
    """Return whether somebody has cancelled a flow run in Prefect. False also if Prefect does not say."""
    from prefect.client.orchestration import get_client

    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(run)).state
        return state is not None and (state.is_cancelling() or state.is_cancelled())
    return False


def mark_dead_runs(record: Record) -> list[str]:
    """Mark dead runs in Prefect, in MLflow and in their records and return their ids.

    Their results are in the store. So are runs that ended while Prefect could not be told.
    """
    store, known = record.store, records.records(record.store)
    dead = [entry for entry in known if entry["state"] == DEAD and "marked" not in entry]
    before = time.time() - 300  # one that has just ended may not have said so yet
    for entry in [*dead, *untold([one for one in known if one["state"] != RUNNING and records.ended(one) < before])]:
        mark_crashed(UUID(entry["id"]), entry["state"] == COMPLETED)
        record.tracker.end_runs(entry["id"])
        write(store, entry | {"marked": now()})
    return [entry["id"] for entry in dead]


def untold(ended: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those of the newest records of ended runs that Prefect takes for open: its database was away when they ended."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    newest = {UUID(entry["id"]): entry for entry in ended[-100:]}
    if not newest:
        return []
    own = FlowRunFilter.model_validate({"id": {"any_": [*newest]}, "state": {"type": {"any_": OPEN}}})
    with get_client(sync_client=True) as client:
        return [newest[run.id] for run in client.read_flow_runs(flow_run_filter=own)]


OPEN = ["PENDING", "RUNNING", "CANCELLING"]


def mark_crashed(flow_run: UUID, completed: bool = False) -> None:
    """Mark a flow run and its tasks as crashed, or as completed, in Prefect, unless the server knows how it ended or does not know it."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import State
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Completed, Crashed

    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        run = client.read_flow_run(flow_run)
        if run.state is None or not run.state.is_final():
            ended: State[Any] = (Completed if completed else Crashed)(message="its process has ended; found by the next run")
            client.set_flow_run_state(flow_run, ended, force=True)
            for begun in _open_tasks(client, flow_run, OPEN):
                client.set_task_run_state(begun, ended, force=True)
            if run.deployment_id:
                recount_slots(client, run.deployment_id)


def mark_ended(run: str, reason: str) -> None:
    """Mark the open parts of a flow run before its process is ended.

    They are its running tasks and (unless a signal ended it) the run. After a signal its sender sets the state of the
    run.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelled, Failed

    if not run:
        return
    with contextlib.suppress(httpx.TransportError), get_client(sync_client=True) as client:  # a server that ended has no run
        state = client.read_flow_run(UUID(run)).state
        if not STOPPING.is_set() and (state is None or not state.is_final()):
            client.set_flow_run_state(UUID(run), Failed(message=reason), force=True)
        end = Cancelled if STOPPING.is_set() else Failed
        for begun in _open_tasks(client, UUID(run), ["RUNNING"]):
            client.set_task_run_state(begun, end(message=reason), force=True)


def _open_tasks(client: "SyncPrefectClient", run: UUID, states: list[str]) -> list[UUID]:
    """Return the tasks of a flow run that are in some states."""
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter

    own = FlowRunFilter.model_validate({"id": {"any_": [run]}})
    under_way = TaskRunFilter.model_validate({"state": {"type": {"any_": states}}})
    return [task.id for task in client.read_task_runs(flow_run_filter=own, task_run_filter=under_way)]


def recount_slots(client: "SyncPrefectClient", deployment: UUID) -> None:
    """Set the taken slots of a deployment to the number of its active runs.

    Marking a run late frees a slot that another run may hold by then. Its own was released five minutes after it died.
    """
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.exceptions import ObjectNotFound

    filters = FlowRunFilter.model_validate({"deployment_id": {"any_": [deployment]}, "state": {"type": {"any_": OPEN}}})
    update = GlobalConcurrencyLimitUpdate(active_slots=len(client.read_flow_runs(flow_run_filter=filters)))
    with contextlib.suppress(ObjectNotFound):  # the deployment has no limit
        client.update_global_concurrency_limit(f"deployment:{deployment}", update)


def now() -> str:
    """Return the time of this moment, for a record."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
