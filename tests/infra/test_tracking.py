"""MLflow: concurrent runs, deleted experiments, full disks, missing servers; and errors that are not a service's."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from conftest import ISOLATED, PROJECT
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE

from phrasemodels.flows.cli.main import main
from phrasemodels.flows.results.exchange import from_mlflow
from phrasemodels.infra import tracking
from phrasemodels.infra.services import start_mlflow
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import AT_WORK, ATTEMPT, KEY, STATE, Tracker, TrainingRun

START = """
import sys
import phrasemodels.infra.environment
from phrasemodels.infra.services import start_mlflow
from phrasemodels.infra.settings import Settings
start_mlflow(Settings(store=sys.argv[1]))
"""
DATABASE = ("", ".lock", "-wal", "-shm")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without runs; its tables take most of a second to make."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    assert Tracker(f"sqlite:///{path}").client().search_experiments()
    return path


@pytest.fixture
def tracker(empty: Path, tmp_path: Path) -> Tracker:
    shutil.copy(empty, tmp_path)
    return Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}", str(tmp_path / "artifacts"))


def test_the_preview_has_the_first_predictions_of_all_shards(tracker: Tracker) -> None:
    run = tracker.open_run("x", "run", "key", {})
    tracker.preview(run, [pa.table({"id": [0], "source": [["a", "b"]]}), pa.table({"id": range(200)})])
    found = json.loads(Path(tracker.client().download_artifacts(run, tracking.PREVIEW)).read_text())
    assert found["columns"] == ["id", "source"] and len(found["data"]) == 100
    assert found["data"][:2] == [[0, "a b"], [0, None]]


def test_metrics_may_have_any_group_in_their_names(tracker: Tracker) -> None:
    run = tracker.open_run("x", "run", "key", {})
    names = ["test/exact/" + "g" * 300, "test/exact/" + "g" * 301, "test/exact/<b>'\"%"]
    tracker.finish(run, dict.fromkeys(names, 1.0), [], {})
    assert len(tracker.client().get_run(run).data.metrics) == 3


def test_a_database_may_have_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlflow.db").touch()
    assert Tracker("sqlite:///mlflow.db").keys() == {}


def test_a_store_that_is_copied_or_moved_writes_into_its_new_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def at(store: Path) -> tuple[Tracker, str]:
        settings = Settings(store=store)
        start_mlflow(settings)
        tracker = Tracker(settings.tracking_uri, settings.artifact_location)
        return tracker, tracker.open_run("a corpus", "run", "key", {})

    first, second = tmp_path / "a store", tmp_path / "b"
    (tmp_path / "text").write_text("0")
    tracker, run = at(first)
    tracker.client().log_artifact(run, tmp_path / "text")
    shutil.copytree(first, second)
    tracker, run = at(second)
    assert "the store was file://" in capsys.readouterr().err
    client = tracker.client()
    there = client.get_run(run).info.artifact_uri
    assert there.startswith(second.as_uri()) and Path(unquote(urlsplit(there).path), "text").is_file()
    at(second)
    assert not capsys.readouterr().err, "once"


def test_a_write_is_tried_again_if_the_database_is_locked() -> None:
    errors = [MlflowException("database is locked", TEMPORARILY_UNAVAILABLE)]

    def write() -> None:
        if errors:
            raise errors.pop()

    tracking._despite_others(write)
    assert not errors


def test_runs_are_listed_with_the_tags_of_the_same_moment(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(sqlite3.Connection):
        """Another process adds a run after the first answer."""

        def execute(self, question: str, *values: Any) -> sqlite3.Cursor:
            found = super().execute(question, *values).fetchall()
            if "from tags" in question:
                with contextlib.suppress(sqlite3.OperationalError), sqlite3.connect(database, 0) as other:
                    other.execute("update runs set lifecycle_stage = 'active'")
            return found  # type: ignore[return-value]

    client, run, connect = tracker.client(), tracker.open_run("x", "run", "key", {}), sqlite3.connect
    database = tracker.uri.removeprefix("sqlite:///")
    client.delete_run(run)
    connected = partial(connect, factory=Interrupted)
    monkeypatch.setattr(
        tracking.sqlite3, "connect", lambda *of, **named: (connected if "uri" in named else connect)(*of, **named)
    )
    assert tracker.listed() == []


def test_two_nodes_with_one_training_log_each_row_once_to_one_run(tracker: Tracker) -> None:
    rows = [{"step": step, "seconds": step * 1.0, "dev_loss": 1 / step} for step in (1, 2, 3)]
    slower = [row | {"seconds": row["seconds"] * 3} for row in rows]
    one, other = ({ATTEMPT: name} for name in ("one", "other"))
    run = tracker.open_run("x", "run", "key", one)
    tracker.history(run, "one", rows[:1])
    assert tracker.open_run("x", "run", "key", other) == run
    tracker.history(run, "other", slower[:2])
    tracker.history(run, "one", rows)
    tracker.history(run, "other", slower)
    for _ in range(2):
        tracker.client().update_run(run, "RUNNING")
        tracker.finish(run, {"score": 1.0}, [], {})
    tracker.client().log_metric(run, "score", 1.0, timestamp=tracker.client().get_run(run).info.start_time)
    steps = {name: [row.step for row in tracker.client().get_metric_history(run, name)] for name in (*rows[0], "score")}
    assert steps == {"step": [], "seconds": [1, 2, 3], "dev_loss": [1, 2, 3], "score": [0]}


def test_a_training_is_a_run_once_it_is_at_work_and_its_duration_is_of_its_work(tracker: Tracker) -> None:
    began = time.time()
    run = TrainingRun(tracker, "x", "x seed 0", "key", {ATTEMPT: "one", "mlflow.source.type": "JOB"}, {"d": 8})
    run.fail("stopped")
    assert tracker.run_of("key") is None, "it waited, and was stopped"
    run.begin()
    begun = tracker.run_of("key")
    assert (begun.info.status, begun.data.tags[STATE]) == ("RUNNING", "running")
    run([{"step": 5, "seconds": 1.5, "dev_loss": 2.0}, {"step": 10, "seconds": 3.0, "dev_loss": 1.0}])
    run_id = tracker.run_of("key").info.run_id
    tracker.finish(run_id, {"bleu": 7.0}, [], {}, 3.0)
    ended = tracker.run_of("key")
    assert (ended.info.status, ended.info.end_time - ended.info.start_time) == ("FINISHED", 3000)
    assert ended.data.tags["mlflow.user"] and ended.data.tags["mlflow.source.type"] == "JOB"
    assert not [name for name in ended.data.tags if name.startswith(AT_WORK)]
    first, last = tracker.client().get_metric_history(run_id, "dev_loss")
    assert began <= last.timestamp / 1000 <= time.time() + 1 and last.timestamp - first.timestamp == 1500


@pytest.mark.parametrize("end", ["fail", "end_runs"])
def test_a_run_that_is_cancelled_leaves_the_run_of_a_training_to_another(tracker: Tracker, end: str) -> None:
    rows = [{"step": step, "seconds": float(step), "dev_loss": 1 / step} for step in (1, 2)]
    run, _ = (tracker.open_run("x", "run", "key", {ATTEMPT: name}) for name in ("one", "other"))
    other = partial(tracker.fail, run, "other", "stopped") if end == "fail" else partial(tracker.end_runs, "other")
    other()
    assert tracker.run_of("key").info.status == "RUNNING"
    tracker.history(run, "one", rows)
    assert [m.step for m in tracker.client().get_metric_history(run, "dev_loss")] == [1, 2]
    tracker.end_runs("one")
    assert tracker.run_of("key").info.status == "KILLED"


def test_the_name_of_a_run_fits_into_postgres(tracker: Tracker) -> None:
    name = "Paper 001, Table phrases, " + ", ".join(f"recipe.parsed.train.steps={n}" for n in range(20))
    first, second = (tracker.open_run("x", name + end, f"key {end}", {ATTEMPT: "a"}) for end in "ab")
    names = [tracker.client().get_run(run).info.run_name for run in (first, second)]
    assert all(len(one) == 250 and one.startswith(name[:200]) for one in names) and names[0] != names[1]


def test_keys_read_without_mlflow_are_those_that_mlflow_gives(tracker: Tracker) -> None:
    for experiment, key in (("x", "kept"), ("x", "deleted"), ("gone", "of a deleted experiment"), ("y", "another")):
        tracker.open_run(experiment, key, key, {})
    client = tracker.client()
    client.delete_run(tracker.keys()["deleted"])
    client.delete_experiment(tracker.experiment("gone"))
    assert tracker.keys() == {run.data.tags[KEY]: run.info.run_id for run in tracker.runs()}
    assert tracker.keys().keys() == {"kept", "another"}


def test_two_nodes_that_open_a_run_at_once_get_the_same_run(tracker: Tracker) -> None:
    tracker.experiment("x")
    with ThreadPoolExecutor(2) as pool:
        for key in ("a", "b", "c"):
            opened = {*pool.map(lambda name, key=key: tracker.open_run("x", "run", key, {ATTEMPT: name}), "12")}
            assert opened == {tracker.keys()[key]}
    assert len(tracker.runs()) == 3


@pytest.mark.parametrize("end", ["finish", "end_runs"])
def test_what_another_run_has_just_ended_is_no_error(tracker: Tracker, monkeypatch, end: str) -> None:
    delete, others = MlflowClient.delete_tag, iter([True])
    run = tracker.open_run("x", "run", "key", {ATTEMPT: "one"})

    def late(client: MlflowClient, run: str, name: str) -> None:
        if next(others, False):
            delete(client, run, name)
        delete(client, run, name)

    monkeypatch.setattr(MlflowClient, "delete_tag", late)
    tracker.finish(run, {"bleu": 1.0}, [], {}) if end == "finish" else tracker.end_runs("one")
    ended = tracker.run_of("key")
    assert ended.info.status == ("FINISHED" if end == "finish" else "KILLED")
    assert not any(name.startswith(AT_WORK) for name in ended.data.tags)


def test_a_deleted_experiment_is_named(tracker: Tracker) -> None:
    tracker.client().delete_experiment(tracker.experiment("x"))
    with pytest.raises(ValueError, match="'x' was deleted: `mlflow experiments restore --experiment-id 1`"):
        tracker.experiment("x")


def test_two_runs_that_create_an_experiment_at_once_get_the_same_one(tracker: Tracker, monkeypatch) -> None:
    made, find = tracker.experiment("x"), MlflowClient.get_experiment_by_name
    early = iter([True])
    monkeypatch.setattr(
        MlflowClient, "get_experiment_by_name", lambda self, name: None if next(early, False) else find(self, name)
    )
    assert tracker.experiment("x") == made
    with pytest.raises(MlflowException, match="Invalid"):
        tracker.experiment("")


KILLED = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
left = int(sys.argv[2])
@event.listens_for(Engine, "after_cursor_execute")
def count(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("statements", [3, 1000])
def test_a_process_killed_while_it_makes_the_database_leaves_none(tmp_path: Path, statements: int) -> None:
    command = [sys.executable, "-c", KILLED + START, str(tmp_path), str(statements)]
    assert subprocess.run(command, cwd=PROJECT).returncode == -signal.SIGKILL
    assert not (tmp_path / "mlflow" / "mlflow.db").exists()
    start_mlflow(Settings(store=tmp_path))
    assert {path.name for path in (tmp_path / "mlflow").iterdir()} <= {f"mlflow.db{end}" for end in DATABASE}
    assert not Tracker(f"sqlite:///{tmp_path}/mlflow/mlflow.db").client().search_experiments()  # no empty `Default`


@pytest.mark.skipif(not ISOLATED, reason="needs a mount namespace")
def test_a_full_disk_is_named_and_the_database_is_made_once_there_is_space(tmp_path: Path) -> None:
    start = f'{sys.executable} -c "$START" "{tmp_path}"'
    inside = f'mount -t tmpfs -o size=600k none "{tmp_path}"; {start}; mount -o remount,size=9m "{tmp_path}"; {start}'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", inside], cwd=PROJECT, capture_output=True, text=True,
                          env=os.environ | {"START": START})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"OSError: the disk of {tmp_path} is full: free some space") == 1


def test_a_missing_mlflow_server_is_reported_in_one_line(cli) -> None:
    found = cli("verdicts", PHRASEMODELS_MLFLOW_URI="http://127.0.0.1:9", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    assert found.returncode == 1
    assert found.stderr.startswith("phrasemodels: MLflow request failed: API request to http://127.0.0.1:9/")
    assert found.stderr.count("\n") == 1


def test_an_error_in_a_layer_keeps_its_traceback(monkeypatch) -> None:
    from ray.exceptions import RayTaskError

    def fails(**options: bool) -> None:
        raise RayTaskError("train", "Traceback ...", RuntimeError("shapes differ"))

    monkeypatch.setattr("phrasemodels.flows.cli.main.app", fails)
    with pytest.raises(RayTaskError):
        main()


def test_a_server_gets_no_password_of_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.utils.credentials import get_default_host_creds

    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow" / "credentials").write_text("[mlflow]\nmlflow_tracking_password = hush\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    Tracker("http://127.0.0.1:9").client()
    assert get_default_host_creds("http://127.0.0.1:9").password is None


def test_judge_reads_runs_of_the_project_by_row_and_seed_and_leaves_tables_out(tracker: Tracker) -> None:
    for seed in "01":
        about = {"phrasemodels.kind": "training", "row": "phrase-k2", "seed": seed, ATTEMPT: "a"}
        run = tracker.open_run("x", f"phrase-k2, seed {seed}", f"key {seed}", about)
        tracker.parameters(run, {"train.steps": 20})
        tracker.finish(run, {"bleu/idiom": 1.0 + int(seed)}, [], {})
    table = tracker.open_run("x", "000/table1/sample", "table", {"phrasemodels.kind": "table", ATTEMPT: "a"})
    tracker.finish(table, {"phrase-k2/bleu": 1.5, "phrase-k2/bleu/seeds": 2}, [], {})
    found = from_mlflow(tracker.uri, [])
    assert sorted((one.row, one.metric, one.seed) for one in found) == [("phrase-k2", "bleu/idiom", s) for s in "01"]


@pytest.mark.parametrize(
    ("uri", "own"), [(None, True), ("postgresql://host/mlflow", True), ("sqlite:///m.db", True), ("http://127.0.0.1:9", False)]
)
def test_artifacts_are_in_the_store_unless_a_server_has_its_own_place(uri, own, tmp_path):
    location = Settings(store=tmp_path, mlflow_uri=uri).artifact_location
    assert location == ((tmp_path / "mlflow" / "artifacts").as_uri() if own else None)
