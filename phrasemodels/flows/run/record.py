"""The record of a table in MLflow: a run of the table, a run of each training below it, and the registered models.

Each run of a flow also leaves a record in the store; the next run finds the runs that died and marks them everywhere.
"""

import contextlib
import datetime
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import phrasemodels.infra.environment  # noqa: F401  before prefect
from phrasemodels.data.store.artifacts import MANIFEST, Artifact
from phrasemodels.data.store.store import OutOfTimeError, Step, Store, digest_of
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.experiments.names import file_name
from phrasemodels.flows.report.templates import render
from phrasemodels.flows.results import records
from phrasemodels.flows.results.records import COMPLETED, DEAD, FAILED, RUNNING, commit, leased_steps
from phrasemodels.flows.run.plan import Plan
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import (
    ATTEMPT,
    DEV_LOSS,
    KEY,
    SETTING,
    StepMetrics,
    Tracker,
    UsedData,
    flatten,
    register,
)
from phrasemodels.tasks.train.trainer import history

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


SERVED = Path(__file__).with_name("served.py")
FINAL = ("parameters", "train_seconds", "peak_memory_mib")  # metrics of a training that has ended


@dataclass(frozen=True)
class Record:
    """Writes a table and its trainings to MLflow. attempt: the id of the Prefect run, if there is one. system_metrics: also log
    load and memory of this machine while a training runs."""

    plan: Plan
    store: Store
    tracker: Tracker
    attempt: str = ""
    system_metrics: bool = False

    @cached_property
    def table_run(self) -> str:
        """The id of the MLflow run of the table, in the experiment of its problem and corpus."""
        key = digest_of([self.plan.table.title, [p.scored.key for p in self.plan.pipelines]])
        tags = {"phrasemodels.kind": "table", ATTEMPT: self.attempt, **_code()}
        return self.tracker.open_run(self.plan.table.experiments[0].recipe.name, self.plan.table.title, key, tags)

    def training_run(self, pipeline: Pipeline) -> str:
        """The id of the MLflow run of one experiment and seed, with its parameters."""
        e = pipeline.experiment
        tags = {
            "mlflow.parentRunId": self.table_run,
            "phrasemodels.kind": "training",
            ATTEMPT: self.attempt,
            **_code(),
            "paper": e.paper,
            "system": f"{e.system} {e.variant}",
            "corpus": e.recipe.corpus.name,
            "profile": e.profile,
            "experiment": e.name,
            "seed": str(pipeline.seed),
        }
        run_id = self.tracker.open_run(e.recipe.name, f"{e.name} seed {pipeline.seed}", pipeline.trained.key, tags)
        self.tracker.parameters(run_id, flatten(pipeline.trained.parts["settings"]))
        return run_id

    @contextlib.contextmanager
    def training(self, pipeline: Pipeline) -> Iterator[Callable[[Any], None]]:
        """While a training runs: yield what its metrics are reported to; mark its MLflow run if it fails."""
        run_id = self.training_run(pipeline)
        monitored = self.tracker.monitored(run_id) if self.system_metrics else contextlib.nullcontext()
        try:
            with monitored:
                yield StepMetrics(self.tracker, run_id, self.attempt)
        except BaseException as error:
            stopped = isinstance(error, OutOfTimeError) or not isinstance(error, Exception)
            self.tracker.fail(run_id, "KILLED" if stopped else "FAILED")
            raise

    def finish(self, pipeline: Pipeline, scored: Artifact) -> None:
        """Log final metrics with the digest of their test set, configuration, predictions and learning curve."""
        from phrasemodels.flows.report.plots import learning_curve

        if self.tracker.is_finished(run_id := self.training_run(pipeline)):
            return
        trained, predicted = self.store.find(pipeline.trained), self.store.find(pipeline.predicted)
        assert trained is not None and predicted is not None, "a score depends on weights and predictions"
        metrics = {f"test/{name}": score["value"] for name, score in scored.meta["scores"].items()}
        metrics |= _training_metrics(trained)
        tags = {
            "test_set": digest_of([s["content"] for s in scored.meta["test_set"]]),
            "data": self._data(pipeline),
            "score": scored.key,
            "licences": ", ".join(scored.meta["licences"]),
            "workers": " then ".join(map(str, trained.meta["workers"])),
            "devices": " then ".join(trained.meta.get("devices", [])),  # earlier versions did not record them
        }
        files = [trained.file("config.json"), *sorted(scored.path.glob("*.json")), *sorted(scored.path.glob("*.arrow"))]
        files = [file for file in files if file.name != MANIFEST]
        if scored.meta["redistributable"]:
            files += sorted(predicted.path.glob("*.arrow"))
        with tempfile.TemporaryDirectory() as folder:
            files.append(Path(folder) / "learning-curve.png")
            learning_curve(history(trained), files[-1])
            StepMetrics(self.tracker, run_id, self.attempt)(history(trained))  # if another attempt had the run before
            self.tracker.datasets(run_id, self._used(pipeline, scored))
            self.tracker.finish(run_id, metrics, files, tags)

    def stop(self) -> None:
        """Mark the run of a table whose time was up before all rows were done; the next run opens it again."""
        self.tracker.fail(self.table_run, "KILLED")

    def end_trials(self) -> None:
        """End the runs of a tuning: of the table, and of each trial that was trained to its end."""
        for pipeline in self.plan.pipelines:
            if trained := self.store.find(pipeline.trained, verify=False):
                metrics = _training_metrics(trained)
                self.tracker.finish(self.training_run(pipeline), metrics, [], {})
        self.tracker.finish(self.table_run, {}, [], {})

    def close(self, comparison: Artifact, report: Path | None) -> None:
        """End the run of the table with its means, verdicts and report (None: it failed), and register the best model of each row."""
        short = {e.name: e.row for e in self.plan.table.experiments}
        metrics = {
            f"{short[row['experiment']]}/{row['metric']}": row["intervals"][row["metric"]]["mean"]
            for row in comparison.meta["rows"]
        }
        files = [comparison.file("verdicts.json"), *([report] if report else [])]
        self.tracker.finish(self.table_run, metrics, files, {"verdicts": comparison.key})
        self._register()

    def _data(self, pipeline: Pipeline) -> str:
        """Return the digest of the records that a model was trained on, whatever was made of them."""
        train = pipeline.trained.inputs["train"]
        artifact = self.store.find(train, verify=False) if isinstance(train, Step) else None
        return digest_of([shard["content"] for shard in artifact.meta["shards"]]) if artifact else ""

    def _used(self, pipeline: Pipeline, scored: Artifact) -> Iterator[UsedData]:
        """Yield the data of a run: what it was trained, chosen and tested on, with the digest of the content."""
        corpus = pipeline.experiment.recipe.corpus.name
        for context in ("train", "dev"):
            step = pipeline.trained.inputs.get(context)
            artifact = self.store.find(step, verify=False) if isinstance(step, Step) else None
            if artifact and "shards" in artifact.meta:
                yield _used_data(corpus, context, artifact.key, artifact.meta["shards"])
        yield _used_data(corpus, "test", scored.key, scored.meta["test_set"])

    def _register(self) -> None:
        """Register the best seed of each row, if models of its problem can answer single inputs."""
        from phrasemodels.flows.results.lineage import Lineage, setting
        from phrasemodels.flows.results.models import best_of, stored

        lineage, runs = Lineage(self.store), self.tracker.keys()
        for experiment in self.plan.table.experiments:
            if not experiment.recipe.answers_inputs:
                continue
            own = [p for p in self.plan.pipelines if p.experiment == experiment]
            model = stored(lineage, best_of([a for p in own if (a := self.store.find(p.trained))]))
            tags = {
                KEY: model.weights.key,
                SETTING: digest_of(setting(model.weights)),
                DEV_LOSS: repr(float(model.weights.meta["dev_loss"])),
                "experiment": experiment.name,
                "licences": ", ".join(model.weights.meta["licences"]),
                **_code(),
            }
            with tempfile.TemporaryDirectory() as folder:
                exported = model.export(Path(folder) / "exported")
                register(self.tracker, file_name(experiment.name), exported, SERVED, runs[model.weights.key], tags)


def _used_data(corpus: str, context: str, key: str, shards: list[dict[str, Any]]) -> UsedData:
    """Return the data of some shards of a corpus; key: of the artifact that has them, or was made from them."""
    source = json.dumps({"corpus": corpus, "artifact": key})
    rows = sum(shard.get("rows", 0) for shard in shards)
    return UsedData(f"{corpus} {context}", context, digest_of([shard["content"] for shard in shards]), source, rows)


def _code() -> dict[str, str]:
    return {"commit": commit(), "mlflow.source.git.commit": commit()}


def _training_metrics(trained: Artifact) -> dict[str, float]:
    """Return the metrics of a training that has ended; the last `dev_loss` of its history may not be of the kept weights."""
    return {"best_dev_loss": float(trained.meta["dev_loss"]), **{name: float(trained.meta[name]) for name in FINAL}}


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
