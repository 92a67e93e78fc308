"""MLflow: runs. They are found by a tag with their key, so nothing is logged twice."""

import atexit
import contextlib
import getpass
import json
import os
import posixpath
import random
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

# A client of a server prints two lines to stdout for each run that ends. Not in infra/environment.py: its variables are part of
# the keys of steps.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

KEY = "phrasemodels.key"
SQLITE = "sqlite:///"
TABLES = {"experiments", "runs", "metrics", "latest_metrics", "params", "tags"}  # that hold what is asked for
LONGEST_TAG, PREVIEW = 5000, "predictions.json"
LONGEST = 250  # characters of the name of a metric, or of a run, which Postgres refuses and SQLite does not
ATTEMPT = "phrasemodels.attempt"  # the Prefect flow run that logs metrics to the MLflow run
AT_WORK = f"{ATTEMPT}."  # begins the names of tags of all flow runs at work on the MLflow run; their values are the ids
STATE, REASON = "phrasemodels.state", "phrasemodels.reason"  # tags: how a run ended, in our words, and why
COMPLETED, DIVERGED, FAILED = "completed", "diverged", "failed"
STOPPED, CANCELLED, DEAD = "stopped", "cancelled", "dead"
STATUS = {  # MLflow's words for ours
    COMPLETED: "FINISHED", DIVERGED: "FAILED", FAILED: "FAILED", STOPPED: "KILLED", CANCELLED: "KILLED", DEAD: "KILLED",
}  # fmt: skip
KIND_OF_EXPERIMENT = {"mlflow.experimentKind": "custom_model_development"}  # its page has runs, not traces
PREVIEWED = 100  # rows of predictions
PART = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # a function or class: module:name
AGAIN = ("RESOURCE_DOES_NOT_EXIST", "BAD_REQUEST", "TEMPORARILY_UNAVAILABLE")  # errors of MLflow that may pass


def _reading(path: Path) -> "contextlib.closing[sqlite3.Connection]":
    """Return a connection to a database that closes after a block, and writes nothing."""
    return contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True))


def _no_database(path: Path) -> str:
    """Return why a path holds no database of MLflow. It is an empty text if it may be one.

    MLflow would wait for such a file or make its tables anew.
    """
    if not path.is_file():
        return "is not a file"
    if not path.stat().st_size:
        return "is empty"
    try:
        with _reading(path) as connection:
            tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    except sqlite3.Error:  # damaged, or another process writes
        return ""
    lost = sorted(TABLES - tables)
    return f"has no table {lost[0]}" if lost else ""


def _unusable(path: str, why: str) -> str:
    return (
        f"{path} {why}: runs and curves of MLflow are missing in answers, results of the store are not; move it "
        "away, and `phrasemodels reproduce` of a table writes its runs again from the store"
    )


@cache
def _warn_once(text: str) -> None:
    """Print a line to stderr, once."""
    print(text, file=sys.stderr)


@dataclass(frozen=True)
class Tracker:
    """An MLflow server or database by URI. artifacts: the location of new experiments' artifacts (None: the server's)."""

    uri: str
    artifacts: str | None = None

    def client(self) -> Any:
        from mlflow import MlflowClient
        from mlflow.utils import credentials

        credentials._get_credentials_path = lambda: os.devnull  # those in the home folder may be for another server
        return MlflowClient(self.uri)

    def experiment(self, name: str) -> str:
        """Return the id of an experiment. Create the experiment if it is missing."""
        from mlflow.exceptions import MlflowException

        client = self.client()
        found = client.get_experiment_by_name(name)
        if found is None:
            location = f"{self.artifacts}/{name}" if self.artifacts else None
            try:
                return str(client.create_experiment(name, artifact_location=location, tags=KIND_OF_EXPERIMENT))
            except MlflowException:
                if (found := client.get_experiment_by_name(name)) is None:  # else another run has just created it
                    raise
        if found.lifecycle_stage == "deleted":
            raise ValueError(
                f"MLflow's experiment {name!r} was deleted: `mlflow experiments restore --experiment-id "
                f"{found.experiment_id}`, or remove all of it with `mlflow gc`"
            )
        return str(found.experiment_id)

    def open_run(
        self, experiment: str, name: str, key: str, tags: Mapping[str, str], started: float | None = None
    ) -> str:
        """Return the id of the run with this key. Find it and set it running again or create it.

        MLflow has no unique keys. If two nodes create the run at once, each deletes its own run when it sees the other
        one. Then it tries again.

        Args:
            started: When a new run began (seconds since 1970). Default: now.

        Raises:
            OSError: The database is damaged.
        """
        if damage := self.damage():
            raise OSError(damage)
        client, where = self.client(), self.experiment(experiment)
        query = f"tags.`{KEY}` = {quoted(key)}"
        attempt = tags.get(ATTEMPT, "")
        own = {ATTEMPT: attempt, _at_work(attempt): attempt}
        known = {"mlflow.user": _user(), **tags, **own, KEY: key, STATE: "running"}
        start = None if started is None else int(started * 1000)
        while not (found := client.search_runs([where], query, max_results=1)):
            made = str(client.create_run(where, start, run_name=_shortened(name), tags=known).info.run_id)
            if len(client.search_runs([where], query, max_results=2)) == 1:
                return made
            client.delete_run(made)
            time.sleep(random.random())
        run_id = str(found[0].info.run_id)
        if found[0].info.status != "FINISHED":
            client.update_run(run_id, "RUNNING")
            for tag, value in (own | {STATE: "running", REASON: ""}).items():
                client.set_tag(run_id, tag, value)
        return run_id

    def run_of(self, key: str) -> Any:
        """Return the run with this key, or None."""
        return next(iter(self._found(f"tags.`{KEY}` = {quoted(key)}", 1)), None)

    def _found(self, query: str, most: int) -> list[Any]:
        """Return the runs of all experiments that a query finds."""
        client = self.client()
        where = [experiment.experiment_id for experiment in client.search_experiments()]
        return list(client.search_runs(where, query, max_results=most)) if where else []

    def runs(self) -> list[Any]:
        """Return every run of every experiment."""
        client = self.client()
        where = [experiment.experiment_id for experiment in client.search_experiments()]
        runs, token = [], None
        while True:
            page = client.search_runs(where, max_results=1000, page_token=token)
            runs += page
            if not (token := page.token):
                return runs

    def damage(self) -> str:
        """Return one line if the database is damaged, with what to do. Empty if it is whole or on a server."""
        if (path := self.uri.removeprefix(SQLITE)) == self.uri or not Path(path).exists():
            return ""
        why = _no_database(Path(path))
        if not why:
            try:
                with _reading(Path(path)) as connection:
                    why = "is damaged" * (connection.execute("pragma quick_check(1)").fetchall() != [("ok",)])
            except sqlite3.DatabaseError as error:  # an OperationalError: another process writes
                why = "is damaged" * (not isinstance(error, sqlite3.OperationalError))
        return _unusable(path, why) if why else ""

    def listed(self) -> "list[Run]":
        """Return every run with its tags, the newest first. A damaged database is named on stderr.

        A database in the store is read without MLflow's slow import.
        """
        if (path := self.uri.removeprefix(SQLITE)) == self.uri:
            infos = ((run.info, run.data.tags) for run in self.runs())
            return [Run(i.run_id, i.run_name, i.status, i.start_time, i.end_time, tags) for i, tags in infos]
        try:
            return _listed(Path(path))
        except sqlite3.DatabaseError as error:
            _warn_once(self.damage() or _unusable(path, f"cannot be read ({error})"))
            return []

    def keys(self) -> dict[str, str]:
        """Return the ids of all runs by their keys."""
        return {run.tags[KEY]: run.run_id for run in self.listed() if KEY in run.tags}

    def parameters(self, run_id: str, values: Mapping[str, Any]) -> None:
        """Log the parameters that the run lacks. Parameters of a key never change."""
        from mlflow.entities import Param

        client = self.client()
        have = client.get_run(run_id).data.params
        # MLflow refuses to change a parameter, and cuts longer values with a warning
        new = [Param(name, str(value)[:6000]) for name, value in values.items() if name not in have]
        for first in range(0, len(new), 100):  # MLflow's largest batch
            client.log_batch(run_id, params=new[first : first + 100])

    def history(
        self, run_id: str, attempt: str, history: Sequence[Mapping[str, float]], ended: float | None = None
    ) -> None:
        """Log each step of a training's history once to its run with the time of its measurement.

        Steps logged before an interruption are skipped. All steps are skipped once another attempt has opened the run.

        Args:
            ended: Time of the last row in seconds since 1970. Default: now.
        """
        from mlflow.entities import Metric

        import phrasemodels.infra.environment  # noqa: F401

        client = self.client()
        if client.get_run(run_id).data.tags.get(ATTEMPT, "") != attempt:
            return
        last = max((metric.step for metric in client.get_metric_history(run_id, "dev_loss")), default=-1)
        zero = (time.time() if ended is None else ended) - (history[-1]["seconds"] if history else 0.0)
        metrics = [
            Metric(name, float(value), int((zero + row["seconds"]) * 1000), int(row["step"]))
            for row in history
            # MLflow adds a second value of a step to the first one, it does not replace it
            if row["step"] > last
            for name, value in row.items()
            if name != "step"
        ]
        # MLflow's largest batch
        for first in range(0, len(metrics), 1000):
            client.log_batch(run_id, metrics=metrics[first : first + 1000])

    def is_finished(self, run_id: str) -> bool:
        """Whether a run has all of its metrics and files."""
        return bool(self.client().get_run(run_id).info.status == "FINISHED")

    def finish(
        self,
        run_id: str,
        metrics: Mapping[str, float],
        files: list[Path],
        tags: Mapping[str, str],
        work: float | None = None,
    ) -> None:
        """Log final metrics, artifacts and tags and mark the run as finished. A finished run stays as it is.

        Args:
            work: Seconds of work as the run's duration. Default: until now.
        """
        client = self.client()
        run = client.get_run(run_id)
        if run.info.status == "FINISHED":
            return
        # with the same time on every node, so that MLflow merges equal values of two nodes into one row
        ended = None if work is None else run.info.start_time + int(work * 1000)
        for name, value in metrics.items():
            if (name := _metric(name)) not in run.data.metrics:
                client.log_metric(run_id, name, value, timestamp=ended or run.info.start_time)
        for file in files:
            client.log_artifact(run_id, str(file))

        def end() -> None:
            for name in client.get_run(run_id).data.tags:
                if name.startswith(AT_WORK):
                    client.delete_tag(run_id, name)
            for name, text in {**tags, STATE: COMPLETED}.items():
                client.set_tag(run_id, name, text)

        _despite_others(end)
        client.set_terminated(run_id, STATUS[COMPLETED], ended)

    def tag(self, key: str, tags: Mapping[str, str]) -> None:
        """Set tags of the run with this key, if there is one."""
        if run := self.run_of(key):
            for name, value in tags.items():
                self.client().set_tag(run.info.run_id, name, value[:LONGEST_TAG])

    def preview(self, run_id: str, shards: Iterable[Any]) -> None:
        """Log the first PREVIEWED predictions as a table that MLflow's page shows. shards: Arrow tables."""
        rows = list(islice((row for shard in shards for row in shard.slice(0, PREVIEWED).to_pylist()), PREVIEWED))
        names = list(dict.fromkeys(name for row in rows for name in row))
        shown = (" ".join(map(str, v)) if isinstance(v, list) else v for row in rows for v in map(row.get, names))
        data = [list(islice(shown, len(names))) for _ in rows]
        self.client().log_dict(run_id, {"columns": names, "data": data}, PREVIEW)
        self.client().set_tag(run_id, "mlflow.loggedArtifacts", json.dumps([{"path": PREVIEW, "type": "table"}]))

    def end_runs(self, attempt: str, state: str = DEAD, reason: str = "") -> None:
        """End the runs of a flow run that died, was stopped or failed. Runs of another living flow run go on."""
        query = f"tags.`{_at_work(attempt)}` = {quoted(attempt)} and attributes.status = 'RUNNING'"
        for run in self._found(query, 50000):  # MLflow's largest answer
            _despite_others(partial(self._leave, run.info.run_id, attempt, state, reason))

    def fail(self, run_id: str, attempt: str = "", state: str = FAILED, reason: str = "") -> None:
        """Mark a run as ended without a result. A later attempt opens it again.

        A run of another living flow run stays as it is.
        """
        with contextlib.suppress(Exception):
            _despite_others(partial(self._leave, run_id, attempt, state, reason))

    def _leave(self, run_id: str, attempt: str, state: str, reason: str) -> None:
        """End a flow run's work on a run. End also the run if no other flow run works on it."""
        client = self.client()
        own, tags = _at_work(attempt), client.get_run(run_id).data.tags
        others = [value for name, value in tags.items() if name.startswith(AT_WORK) and name != own]
        if own in tags:
            client.delete_tag(run_id, own)
        if others:
            client.set_tag(run_id, ATTEMPT, others[0])
        else:
            client.set_tag(run_id, STATE, state)
            client.set_tag(run_id, REASON, reason)
            client.set_terminated(run_id, STATUS[state])


def _despite_others(write: Callable[[], object]) -> None:
    """Call a writer of MLflow. Call it again if another run has just made or removed the same.

    Call it again, too, if another run has the database locked.
    """
    from mlflow.exceptions import MlflowException

    for tries in reversed(range(5)):
        try:
            write()
            break
        except MlflowException as error:
            if not tries or error.error_code not in AGAIN:
                raise


def _at_work(attempt: str) -> str:
    """Return the tag of a flow run at work. Names have letters that an id may lack."""
    return AT_WORK + sha256(attempt.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    """A run of MLflow. Times are milliseconds since 1970. ended: None while it runs."""

    run_id: str
    name: str
    status: str
    started: int | None
    ended: int | None
    tags: Mapping[str, str]


def _listed(database: Path) -> list[Run]:
    """Return the runs in a database with the newest first. There are none without a database."""
    if not database.exists():
        return []
    if _no_database(database):
        raise sqlite3.DatabaseError
    question = (
        "select run_uuid, runs.name, status, start_time, end_time from runs join experiments using (experiment_id) where "
        "runs.lifecycle_stage = 'active' and experiments.lifecycle_stage = 'active' order by start_time desc, run_uuid"
    )
    with _reading(database) as connection:
        connection.execute("begin")  # both answers are of one moment
        tags: dict[str, dict[str, str]] = {}
        for run_id, name, value in connection.execute("select run_uuid, key, value from tags"):
            tags.setdefault(run_id, {})[name] = value
        rows = [(run_id, *rest, tags.get(run_id, {})) for run_id, *rest in connection.execute(question)]
    return [Run(*row) for row in rows]


@dataclass(frozen=True)
class TrainingRun:
    """The run of a training in MLflow. It is opened when the training begins its work, not while it waits.

    tags: with ATTEMPT, the flow run.
    """

    tracker: Tracker
    experiment: str
    name: str
    key: str
    tags: Mapping[str, str]
    parameters: Mapping[str, Any]

    def open(self, started: float | None = None) -> str:
        """Return the id of the run after setting it running with its parameters.

        started: time of a new run in seconds since 1970. None: now.
        """
        run_id = self.tracker.open_run(self.experiment, self.name, self.key, self.tags, started)
        self.tracker.parameters(run_id, self.parameters)
        return run_id

    def begin(self) -> None:
        """In a worker at work, open the run."""
        self.open()

    def __call__(self, history: list[dict[str, float]], ended: float | None = None) -> None:
        """Log a training's history. ended: time of its last row in seconds since 1970. None: now."""
        if run := self.tracker.run_of(self.key):
            self.tracker.history(str(run.info.run_id), self.tags.get(ATTEMPT, ""), history, ended)

    def fail(self, state: str, reason: str = "") -> None:
        """Mark the run as ended without a result, if it has begun and no other flow run works on it."""
        if run := self.tracker.run_of(self.key):
            self.tracker.fail(str(run.info.run_id), self.tags.get(ATTEMPT, ""), state, reason)


def _user() -> str:
    """Return the name of this process's user. A container may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def readable(uri: str) -> str:
    """Return the URI of a database for MLflow. MLflow and SQLite write beside the database.

    It is a copy if the folder is read-only or its name does not fit into a URI. The copy is removed when this process ends.
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
    """Quote a string for a filter of MLflow. ValueError: the string has both kinds of quotes."""
    quote = "'" if "'" not in text else '"'
    if quote in text:
        raise ValueError(f"{text!r} has both kinds of quotes, which MLflow cannot search for; leave one out")
    return f"{quote}{text}{quote}"


def _metric(name: str) -> str:
    """Make a name valid for MLflow: other characters become `_`. A long name is cut and gets a digest."""
    plain = re.sub(r"[^\w.: /-]", "_", name)
    plain = plain if plain == posixpath.normpath(plain) and plain[0] not in "./" else plain.replace("/", ".")
    return _shortened(plain, name)


def _shortened(plain: str, name: str = "") -> str:
    """Cut a name to LONGEST characters and add the digest of `name`, by default its own."""
    digest = sha256((name or plain).encode()).hexdigest()[:16]
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 17]}-{digest}"


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested JSON as one level, keys joined by dots."""
    if isinstance(value, Mapping):
        pairs = [flatten(item, f"{prefix}{key}.") for key, item in value.items()]
        return {name: item for pair in pairs for name, item in pair.items()}
    return {prefix.rstrip("."): value if isinstance(value, str | int | float) else json.dumps(value)}


def as_set(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a training, and of its `recipe`, as `--set` takes them: train.betas is 0.9,0.98."""
    parts = {"train": settings.get("config"), "model": settings.get("model"), "recipe": settings.get("recipe")}
    return {name: text for part, value in parts.items() if value for name, text in _assigned(part, value)}


def _assigned(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of a setting. A nested configuration is also named by its class."""
    if isinstance(value, Mapping):
        if "partial" in value:
            function, _, fixed = value["partial"]
            value = {"type": function, **fixed}
        if "type" in value and "." in name:
            yield name, _text(value["type"])
        for field, own in value.items():
            yield from _assigned(f"{name}.{field}", own) if field != "type" else ()
    else:
        yield name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(one, Mapping | list) for one in value):
        return ",".join(map(_text, value))
    if isinstance(value, bool | list | None):
        return "none" if value is None else json.dumps(value)
    return re.split(r"[:.]", value)[-1] if isinstance(value, str) and PART.fullmatch(value) else str(value)
