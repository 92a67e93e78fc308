"""MLflow: runs found again by a tag that holds their key, so that nothing is logged twice."""

import contextlib
import json
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

KEY = "phrasemodels.key"
LONGEST = 250  # characters of the name of a metric
ATTEMPT = "phrasemodels.attempt"  # the flow run that a run is, or last was, under way in


@dataclass(frozen=True)
class Tracker:
    """An MLflow store, by URI; and where a new experiment keeps its artifacts (None: the server decides)."""

    uri: str
    artifacts: str | None = None

    def client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(self.uri)

    def experiment(self, name: str) -> str:
        """The id of an experiment, which is made if need be."""
        from mlflow.exceptions import MlflowException

        client = self.client()
        found = client.get_experiment_by_name(name)
        if found is None:
            location = f"{self.artifacts}/{name}" if self.artifacts else None
            try:
                return str(client.create_experiment(name, artifact_location=location))
            except MlflowException:
                if (found := client.get_experiment_by_name(name)) is None:  # else another run was faster
                    raise
        if found.lifecycle_stage == "deleted":
            raise ValueError(
                f"MLflow's experiment {name!r} was deleted: `mlflow experiments restore --experiment-id "
                f"{found.experiment_id}`, or `mlflow gc` and all of it is gone"
            )
        return str(found.experiment_id)

    def open_run(self, experiment: str, name: str, key: str, tags: Mapping[str, str]) -> str:
        """The id of the run with this key: found and set running again, or made.

        Of two nodes that make it at once, who sees the other's gives way: MLflow has no key of ours that is unique.
        """
        client, where = self.client(), self.experiment(experiment)
        asked = f"tags.`{KEY}` = {quoted(key)}"
        while not (found := client.search_runs([where], asked, max_results=1)):
            made = str(client.create_run(where, run_name=name, tags={KEY: key, **tags}).info.run_id)
            if len(client.search_runs([where], asked, max_results=2)) == 1:
                return made
            client.delete_run(made)
            time.sleep(random.random())
        run_id = str(found[0].info.run_id)
        if found[0].info.status != "FINISHED":
            client.update_run(run_id, "RUNNING")
            client.set_tag(run_id, ATTEMPT, tags.get(ATTEMPT, ""))
        return run_id

    def runs(self) -> list[Any]:
        """Every run of every experiment; none where nothing has been logged yet."""
        if (path := self.uri.removeprefix("sqlite:///")) != self.uri and not Path(path).exists():
            return []
        client = self.client()
        where = [experiment.experiment_id for experiment in client.search_experiments()]
        runs, token = [], None
        while True:
            page = client.search_runs(where, max_results=1000, page_token=token)
            runs += page
            if not (token := page.token):
                return runs

    def keys(self) -> dict[str, str]:
        """Run ids by the keys that the runs were opened with."""
        return {run.data.tags[KEY]: str(run.info.run_id) for run in self.runs() if KEY in run.data.tags}

    def parameters(self, run_id: str, values: Mapping[str, Any]) -> None:
        """Parameters that the run does not have yet; those of a key never change."""
        from mlflow.entities import Param

        client = self.client()
        have = client.get_run(run_id).data.params
        new = [Param(name, str(value)[:6000]) for name, value in values.items() if name not in have]
        if new:
            client.log_batch(run_id, params=new)

    def finish(self, run_id: str, metrics: Mapping[str, float], files: list[Path], tags: Mapping[str, str]) -> None:
        """Final metrics, artifacts and tags of a run, once."""
        client = self.client()
        run = client.get_run(run_id)
        if run.info.status == "FINISHED":
            return
        for name, value in metrics.items():
            if (name := _metric(name)) not in run.data.metrics:
                # at one time, so that MLflow takes the same value from two nodes as one row
                client.log_metric(run_id, name, value, timestamp=run.info.start_time)
        for name, text in tags.items():
            client.set_tag(run_id, name, text)
        for file in files:
            client.log_artifact(run_id, str(file))
        client.set_terminated(run_id, "FINISHED")

    def dead(self, attempt: str) -> None:
        """Mark the runs that were under way in a flow run that died."""
        client = self.client()
        where = [experiment.experiment_id for experiment in client.search_experiments()]
        asked = f"tags.`{ATTEMPT}` = {quoted(attempt)} and attributes.status = 'RUNNING'"
        for run in client.search_runs(where, asked, max_results=50000) if where else []:
            client.set_terminated(run.info.run_id, "KILLED")

    def fail(self, run_id: str, status: str = "FAILED") -> None:
        """Mark a run that did not end; it goes on as the same run when it is started again."""
        with contextlib.suppress(Exception):
            self.client().set_terminated(run_id, status)


@dataclass(frozen=True)
class StepMetrics:
    """Rows of a training's history to its run, each step once: what was logged before an interruption is skipped, and
    so is all after another attempt has opened the run."""

    tracker: Tracker
    run_id: str
    attempt: str = ""

    def __call__(self, history: list[dict[str, float]]) -> None:
        from mlflow.entities import Metric

        import phrasemodels.infra.environment  # noqa: F401

        client = self.tracker.client()
        if client.get_run(self.run_id).data.tags.get(ATTEMPT, "") != self.attempt:
            return
        logged = client.get_metric_history(self.run_id, "dev_loss")
        last = max((metric.step for metric in logged), default=-1)
        metrics = [
            Metric(name, float(value), int(row["seconds"] * 1000), int(row["step"]))
            for row in history
            if row["step"] > last
            for name, value in row.items()
            if name not in ("step",)
        ]
        for first in range(0, len(metrics), 1000):
            client.log_batch(self.run_id, metrics=metrics[first : first + 1000])


def quoted(text: str) -> str:
    """A string in a filter of MLflow, which knows two kinds of quotes and no escapes; a ValueError if it has both."""
    quote = "'" if "'" not in text else '"'
    if quote in text:
        raise ValueError(f"{text!r} has both kinds of quotes, so MLflow cannot look for it: leave one out")
    return f"{quote}{text}{quote}"


def _metric(name: str) -> str:
    """A name, in which groups and rows may be any text, as MLflow takes it; of a long one, the beginning and a digest."""
    plain = re.sub(r"[^\w.: -]", "_", name.replace("/", "."))
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 17]}-{sha256(name.encode()).hexdigest()[:16]}"


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested JSON as one level, keys joined with dots."""
    if isinstance(value, Mapping):
        pairs = [flatten(item, f"{prefix}{key}.") for key, item in value.items()]
        return {name: item for pair in pairs for name, item in pair.items()}
    return {prefix.rstrip("."): value if isinstance(value, str | int | float) else json.dumps(value)}
