"""The record of a table in MLflow: a run of the table, a run of each training below it, and the registered models."""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from phrasemodels.data.store.artifacts import MANIFEST, Artifact
from phrasemodels.data.store.step import OutOfTimeError, Step, digest_of
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.experiments.names import file_name
from phrasemodels.flows.results.commit import commit
from phrasemodels.flows.run.plan import Plan
from phrasemodels.infra.registry import DEV_LOSS, SETTING, register
from phrasemodels.infra.tracking import ATTEMPT, KEY, StepMetrics, Tracker, UsedData, flatten
from phrasemodels.tasks.train.loop import history

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

    def close(self, comparison: Artifact, report: Path) -> None:
        """End the run of the table with its means, verdicts and report, and register the best model of each row."""
        short = {e.name: e.row for e in self.plan.table.experiments}
        metrics = {
            f"{short[row['experiment']]}/{row['metric']}": row["intervals"][row["metric"]]["mean"]
            for row in comparison.meta["rows"]
        }
        files = [comparison.file("verdicts.json"), report]
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
    """Return the metrics of a training that has ended; the last `dev_loss` of its history is not that of the kept weights."""
    return {"best_dev_loss": float(trained.meta["dev_loss"]), **{name: float(trained.meta[name]) for name in FINAL}}
