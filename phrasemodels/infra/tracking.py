"""MLflow: runs, found by a tag with their key, so that nothing is logged twice; and the registry of the best models, whose
versions are code and safetensors.
"""

import atexit
import contextlib
import json
import os
import random
import re
import shutil
import sqlite3
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

KEY = "phrasemodels.key"
SQLITE = "sqlite:///"
LONGEST = 250  # characters of a metric's name in MLflow
RUNS_A_REQUEST, VALUES_AN_ANSWER = 100, 25000  # limits of MLflow's histories of many runs
ATTEMPT = "phrasemodels.attempt"  # the Prefect flow run that last opened the MLflow run


@dataclass(frozen=True)
class UsedData:
    """Data that a run used. context: what for, such as train. source: where it is from, as JSON. digest: of its content."""

    name: str
    context: str
    digest: str
    source: str
    rows: int


def _unusable(path: str, why: str) -> str:
    return (
        f"{path} {why}: runs and curves of MLflow are missing in answers, results of the store are not; move it "
        "away, and `phrasemodels reproduce` of a table writes its runs again from the store"
    )


@cache
def _tell(text: str) -> None:
    """Print a line to stderr, once."""
    print(text, file=sys.stderr)


@dataclass(frozen=True)
class Tracker:
    """An MLflow server or database by URI. artifacts: the location of new experiments' artifacts (None: the server's)."""

    uri: str
    artifacts: str | None = None

    def client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(self.uri)

    def experiment(self, name: str) -> str:
        """Return the id of an experiment; create it if it does not exist."""
        from mlflow.exceptions import MlflowException

        client = self.client()
        found = client.get_experiment_by_name(name)
        if found is None:
            location = f"{self.artifacts}/{name}" if self.artifacts else None
            try:
                return str(client.create_experiment(name, artifact_location=location))
            except MlflowException:
                if (found := client.get_experiment_by_name(name)) is None:  # else another run has just created it
                    raise
        if found.lifecycle_stage == "deleted":
            raise ValueError(
                f"MLflow's experiment {name!r} was deleted: `mlflow experiments restore --experiment-id "
                f"{found.experiment_id}`, or remove all of it with `mlflow gc`"
            )
        return str(found.experiment_id)

    def open_run(self, experiment: str, name: str, key: str, tags: Mapping[str, str]) -> str:
        """Return the id of the run with this key: find it and set it running again, or create it.

        MLflow has no unique keys. So if two nodes create the run at once, each that sees the other's run deletes its own
        and tries again. OSError: the database is damaged.
        """
        if damage := self.damage():
            raise OSError(damage)
        client, where = self.client(), self.experiment(experiment)
        query = f"tags.`{KEY}` = {quoted(key)}"
        while not (found := client.search_runs([where], query, max_results=1)):
            made = str(client.create_run(where, run_name=name, tags={KEY: key, **tags}).info.run_id)
            if len(client.search_runs([where], query, max_results=2)) == 1:
                return made
            client.delete_run(made)
            time.sleep(random.random())
        run_id = str(found[0].info.run_id)
        if found[0].info.status != "FINISHED":
            client.update_run(run_id, "RUNNING")
            client.set_tag(run_id, ATTEMPT, tags.get(ATTEMPT, ""))
        return run_id

    def runs(self) -> list[Any]:
        """Return every run of every experiment; an empty list if there is no database yet, or a damaged one, which is said."""
        if (path := self.uri.removeprefix(SQLITE)) == self.uri:
            return self._runs()
        if not Path(path).exists():
            return []
        try:
            return self._runs()
        except Exception as error:
            if type(error).__module__.split(".")[0] not in ("sqlalchemy", "sqlite3", "mlflow"):
                raise
            first = (str(error).splitlines() or [type(error).__name__])[0]
            _tell(self.damage() or _unusable(path, f"cannot be read ({first})"))
            return []

    def damage(self) -> str:
        """Return in one line that the database is damaged, and what to do; an empty text if it is whole, or a server's."""
        if (path := self.uri.removeprefix(SQLITE)) == self.uri or not Path(path).exists():
            return ""
        try:
            with contextlib.closing(
                sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
            ) as connection:
                whole = connection.execute("pragma quick_check(1)").fetchall() == [("ok",)]
        except sqlite3.OperationalError:  # another process writes
            return ""
        except sqlite3.DatabaseError:
            whole = False
        if whole:
            return ""
        return _unusable(path, "is damaged")

    def _runs(self) -> list[Any]:
        client = self.client()
        where = [experiment.experiment_id for experiment in client.search_experiments()]
        runs, token = [], None
        while True:
            page = client.search_runs(where, max_results=1000, page_token=token)
            runs += page
            if not (token := page.token):
                return runs

    def histories(self, runs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """Yield (run id, metric) of all values that runs logged, oldest first.

        A database in the store is read by one query. A server gives the last values with the runs, which are all values of
        final metrics, at step 0; the curves of up to 100 runs are one request a name.
        """
        from mlflow.entities import Metric

        if self.uri.startswith(SQLITE):
            known = {run.info.run_id for run in runs}
            for run_id, name, value, is_nan, logged, step in (
                _logged(Path(self.uri.removeprefix(SQLITE))) if runs else ()
            ):
                if run_id in known:
                    yield run_id, Metric(name, float("nan") if is_nan else value, logged, step)
            return
        curves: dict[str, list[str]] = {}  # ids of runs by the name of a metric
        for run in runs:
            for last in run.data.to_proto().metrics:
                if last.step:
                    curves.setdefault(last.key, []).append(run.info.run_id)
                else:
                    yield run.info.run_id, Metric(last.key, last.value, last.timestamp, last.step)
        for name, run_ids in curves.items():
            for first in range(0, len(run_ids), RUNS_A_REQUEST):
                yield from self._curves(name, run_ids[first : first + RUNS_A_REQUEST])

    def _curves(self, name: str, run_ids: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield (run id, metric) of one metric of some runs; run after run if a server's answer would be cut."""
        from mlflow.entities import Metric
        from mlflow.utils.credentials import get_default_host_creds
        from mlflow.utils.rest_utils import http_request_safe

        if len(run_ids) > 1 and self.uri.startswith("http"):
            path, asked = "/ajax-api/2.0/mlflow/metrics/get-history-bulk", {"run_id": run_ids, "metric_key": name}
            answer = http_request_safe(get_default_host_creds(self.uri), path, "GET", params=asked)
            if len(found := answer.json()["metrics"]) < VALUES_AN_ANSWER:
                for one in found:
                    yield one["run_id"], Metric(name, float(one["value"]), one["timestamp"], one["step"])
                return
        for run_id in run_ids:
            for metric in self.client().get_metric_history(run_id, name):
                yield run_id, metric

    def keys(self) -> dict[str, str]:
        """Return the ids of all runs by their keys; of a database in the store without MLflow, which takes long to import."""
        if self.uri.startswith(SQLITE):
            try:
                return _keys(Path(self.uri.removeprefix(SQLITE)))
            except sqlite3.OperationalError:
                pass
            except sqlite3.DatabaseError:
                if damage := self.damage():
                    _tell(damage)
                    return {}
        return {run.data.tags[KEY]: str(run.info.run_id) for run in self.runs() if KEY in run.data.tags}

    def parameters(self, run_id: str, values: Mapping[str, Any]) -> None:
        """Log the parameters that the run does not have yet; parameters of a key never change."""
        from mlflow.entities import Param

        client = self.client()
        have = client.get_run(run_id).data.params
        new = [Param(name, str(value)[:6000]) for name, value in values.items() if name not in have]
        if new:
            client.log_batch(run_id, params=new)

    def datasets(self, run_id: str, used: Iterable[UsedData]) -> None:
        """Log the data that a run used; the same data is logged once."""
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.exceptions import MlflowException

        inputs = [
            DatasetInput(
                Dataset(one.name, one.digest[:36], "phrasemodels", one.source, profile=json.dumps({"rows": one.rows})),
                [InputTag("mlflow.data.context", one.context)],
            )
            for one in used
        ]
        for tries in reversed(range(5)):
            try:
                self.client().log_inputs(run_id, inputs)
                break
            except MlflowException:  # another run may just have logged one of them for the first time
                if not tries:
                    raise

    @contextlib.contextmanager
    def monitored(self, run_id: str, interval: float = 10.0) -> Iterator[None]:
        """In the block, log load, memory and disk of this machine to a run as `system/...`, each `interval` seconds.

        ValueError: psutil, which measures them, is not installed.
        """
        try:
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
        except ImportError as error:
            raise ValueError("system_metrics needs psutil: pip install psutil, or leave the setting out") from error
        monitor = SystemMetricsMonitor(run_id, interval, resume_logging=True, tracking_uri=self.uri)
        monitor.start()
        try:
            yield
        finally:
            monitor.finish()

    def is_finished(self, run_id: str) -> bool:
        """Whether a run has all of its metrics and files."""
        return bool(self.client().get_run(run_id).info.status == "FINISHED")

    def finish(self, run_id: str, metrics: Mapping[str, float], files: list[Path], tags: Mapping[str, str]) -> None:
        """Log final metrics, artifacts and tags, and mark the run as finished; a finished run stays as it is."""
        client = self.client()
        run = client.get_run(run_id)
        if run.info.status == "FINISHED":
            return
        for name, value in metrics.items():
            if (name := _metric(name)) not in run.data.metrics:
                # with the same time on every node, so that MLflow merges equal values of two nodes into one row
                client.log_metric(run_id, name, value, timestamp=run.info.start_time)
        for name, text in tags.items():
            client.set_tag(run_id, name, text)
        for file in files:
            client.log_artifact(run_id, str(file))
        client.set_terminated(run_id, "FINISHED")

    def mark_killed(self, attempt: str) -> None:
        """Mark the runs that were under way in a flow run that died as killed."""
        client = self.client()
        where = [experiment.experiment_id for experiment in client.search_experiments()]
        query = f"tags.`{ATTEMPT}` = {quoted(attempt)} and attributes.status = 'RUNNING'"
        for run in client.search_runs(where, query, max_results=50000) if where else []:
            client.set_terminated(run.info.run_id, "KILLED")

    def fail(self, run_id: str, status: str = "FAILED") -> None:
        """Mark a run as failed; a later attempt opens the same run again."""
        with contextlib.suppress(Exception):
            self.client().set_terminated(run_id, status)


def _keys(database: Path) -> dict[str, str]:
    """Return the ids of the runs in a database by their keys; of an empty one if there is none yet."""
    if not database.exists():
        return {}
    question = (
        "select tags.value, tags.run_uuid from tags join runs using (run_uuid) join experiments using (experiment_id) "
        "where tags.key = ? and runs.lifecycle_stage = 'active' and experiments.lifecycle_stage = 'active' "
        "order by runs.start_time desc, runs.run_uuid"
    )
    with contextlib.closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return dict(connection.execute(question, (KEY,)).fetchall())


def _logged(database: Path) -> list[tuple[str, str, float, bool, int, int]]:
    """Return (run id, metric, value, whether it is NaN, milliseconds since 1970, step) of all values in a database."""
    question = (
        "select run_uuid, key, value, is_nan, timestamp, step from metrics order by run_uuid, key, step, timestamp"
    )
    with contextlib.closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(question).fetchall()


@dataclass(frozen=True)
class StepMetrics:
    """Log rows of a training's history to its run, each step once.

    Steps that were logged before an interruption are skipped, and all steps once another attempt has opened the run.
    """

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


def readable(uri: str) -> str:
    """Return the URI of a database that MLflow can open: a copy of it if its folder may only be read, or has a name that a URI
    cannot hold.

    The copy is removed when this process ends. MLflow, like SQLite, writes beside a database that it reads.
    """
    database = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or not database.is_file():
        return uri
    if os.access(database.parent, os.W_OK) and "?" not in str(database):  # what follows a ? would be options
        return uri
    folder = Path(tempfile.mkdtemp(prefix="pm-mlflow-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as copy:
        try:
            _backup(f"{database.absolute().as_uri()}?mode=ro", copy)
        except sqlite3.OperationalError:  # the files beside it, which a writer makes, are not there
            _backup(f"{database.absolute().as_uri()}?immutable=1", copy)
    return f"sqlite:///{folder / 'mlflow.db'}"


def _backup(uri: str, to: sqlite3.Connection) -> None:
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        database.backup(to)


def quoted(text: str) -> str:
    """Quote a string for a filter of MLflow, which has no escapes. ValueError: the string has both kinds of quotes."""
    quote = "'" if "'" not in text else '"'
    if quote in text:
        raise ValueError(f"{text!r} has both kinds of quotes, which MLflow cannot search for; leave one out")
    return f"{quote}{text}{quote}"


def _metric(name: str) -> str:
    """Return a name that MLflow accepts: other characters become `_`, and a long name is cut and gets a digest."""
    plain = re.sub(r"[^\w.: -]", "_", name.replace("/", "."))
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 17]}-{sha256(name.encode()).hexdigest()[:16]}"


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested JSON as one level, keys joined by dots."""
    if isinstance(value, Mapping):
        pairs = [flatten(item, f"{prefix}{key}.") for key, item in value.items()]
        return {name: item for pair in pairs for name, item in pair.items()}
    return {prefix.rstrip("."): value if isinstance(value, str | int | float) else json.dumps(value)}


ALIAS = "champion"
ARTIFACT = "served"
EXAMPLE = "The red house has a door ."  # an input of a served model
REQUIREMENTS = ("mlflow", "pandas", "torch", "numpy", "numba", "safetensors", "pyarrow", "scipy")  # of a served model
SETTING, DEV_LOSS = "phrasemodels.setting", "phrasemodels.dev_loss"  # tags of a version


def register(tracker: Tracker, name: str, exported: Path, code: Path, run_id: str, tags: Mapping[str, str]) -> str:
    """Register an exported model as a version of model `name` and return the version.

    It becomes the champion, unless the champion has the same setting and a lower loss on dev. tags: among them KEY, the
    key of the weights, SETTING and DEV_LOSS; a version with the same key is used again. Nothing is pickled: the code is a
    file.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode

    client = tracker.client()
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
            raise
    known = client.search_model_versions(f"name = {quoted(name)}")
    version = next((v for v in known if v.tags.get(KEY) == tags[KEY]), None)
    if version is None:
        with tempfile.TemporaryDirectory() as folder:
            client.log_artifacts(run_id, str(_served(exported, code, Path(folder) / ARTIFACT)), ARTIFACT)
        source = f"{client.get_run(run_id).info.artifact_uri}/{ARTIFACT}"
        version = client.create_model_version(name, source, run_id, tags=dict(tags))
    if not _better(client, name, tags):
        client.set_registered_model_alias(name, ALIAS, version.version)
    return str(version.version)


def _better(client: Any, name: str, tags: Mapping[str, str]) -> bool:
    """Return whether the champion has the same setting as these tags, and a lower loss on dev."""
    from mlflow.exceptions import MlflowException

    try:
        champion = client.get_model_version_by_alias(name, ALIAS).tags
    except MlflowException:  # there is none yet
        return False
    if champion.get(SETTING) != tags[SETTING] or DEV_LOSS not in champion:
        return False
    return float(champion[DEV_LOSS]) < float(tags[DEV_LOSS])


def _served(exported: Path, code: Path, to: Path) -> Path:
    """Write an MLflow model folder, whose model maps sentences to answers."""
    import pandas as pd
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    source, answer = (Schema([ColSpec("string", c) for c in columns]) for columns in (["source"], ["answer", "error"]))
    with warnings.catch_warnings():  # MLflow warns of requirements that it would infer otherwise
        warnings.simplefilter("ignore")
        pyfunc.save_model(
            str(to),
            python_model=str(code),
            artifacts={"exported": str(exported)},
            signature=ModelSignature(inputs=source, outputs=answer),
            input_example=pd.DataFrame({"source": [EXAMPLE]}),
            # Not the project, which is installed where it is served: an index may hold another package of its name.
            pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in REQUIREMENTS],
        )
    return to
