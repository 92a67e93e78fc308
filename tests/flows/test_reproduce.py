"""`phrasemodels reproduce` from end to end, with a Prefect server, Ray, Ray Train, MLflow and DuckDB.

The first run happens in its own network namespace, where every packet that leaves loopback is counted.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import CLI, ISOLATED, PROJECT
from mlflow import MlflowClient
from running import run_cli, small_corpus

from phrasemodels.data.store.artifacts import Artifact, sha256_of
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.sql import VIEWS, Answers, query
from phrasemodels.infra.services import start_mlflow
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import Tracker
from phrasemodels.tasks.train.trainer import PROGRESS

OVERRIDES = ("train.steps=30", "train.evaluate_every=10", "train.checkpoint_every=5", "train.batch_tokens=600",
             *small_corpus(300, 20, 40))  # fmt: skip
TINY = ("--seeds", "1", *(word for override in OVERRIDES for word in ("--set", override)))
ROWS = ("--row", "transformer", "--row", "phrase-k2")


def command(*arguments: str) -> list[str]:
    return [*CLI, *arguments]


def variables(root: Path) -> dict[str, str]:
    return os.environ | {"PHRASEMODELS_STORE": str(root), "PYTHONPATH": str(PROJECT)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Run two rows, one as a Ray task and one on Ray Train; return the folders and the output."""
    folder = tmp_path_factory.mktemp("world")
    isolated = ["bash", str(PROJECT / "tests" / "isolated.sh"), str(folder / "packets")]
    done = subprocess.run([*isolated, *command("reproduce", *TINY, *ROWS)], env=variables(folder / "store"), cwd=folder,
                          capture_output=True, text=True, timeout=500)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {"folder": folder, "store": folder / "store", "stdout": done.stdout, "stderr": done.stderr}


def ask(world: dict, *arguments: str) -> str:
    with contextlib.chdir(world["folder"]):
        done = run_cli(*arguments, env={"PHRASEMODELS_STORE": str(world["store"])})
    assert done.exit_code == 0, done.output
    return done.stdout


def asked(world: dict, question: str) -> list[dict]:
    """Answer a question as `phrasemodels sql` does, in this process."""
    settings = Settings(store=world["store"])
    start_mlflow(settings)
    columns, rows = query(Store(settings.root).open(), Tracker(settings.tracking_uri), question)
    return [dict(zip(columns, row, strict=True)) for row in rows]


READ = """
import json, sys
from typer.testing import CliRunner
from phrasemodels.flows.cli.main import app

for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (arguments, done.exception)
    print(len(done.stdout))
"""
CHANGES = sorted(change for change in OVERRIDES if "checkpoint" not in change)  # which changes no score
TRACED = f"000/table1/sample/phrase-k2+{'+'.join(CHANGES)} seed 0"
READERS = (("sql", "select count(*) from runs, seeds", "--json"), ("trace", TRACED), ("store", "runs"),
           ("store", "verify"), ("verdicts", "--paper", "000"))  # fmt: skip


@pytest.mark.skipif(not ISOLATED, reason="needs a mount namespace")
@pytest.mark.slow
def test_a_store_that_may_only_be_read_is_read(world, tmp_path):
    shutil.copytree(world["store"], tmp_path / "store", symlinks=True)
    inside = f'mount --bind "{tmp_path}/store" "{tmp_path}/store" && mount -o remount,bind,ro "{tmp_path}/store" && exec "$@"'
    asked = ["unshare", "--mount", "sh", "-c", inside, "sh", sys.executable, "-c", READ, json.dumps(READERS)]
    done = subprocess.run(asked, env=variables(tmp_path / "store"), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(int(count) > 10 for count in done.stdout.split()) and len(done.stdout.split()) == len(READERS)


def test_no_packet_leaves_loopback_and_no_socket_listens_beyond_it(world):
    assert (world["folder"] / "packets").read_text().strip() == "0"
    assert not (world["folder"] / "packets.open").read_text()


def test_no_process_and_no_unfinished_work_is_left(world):
    assert not subprocess.run(["pgrep", "-f", str(world["store"])], capture_output=True, text=True).stdout
    assert sorted(os.listdir(world["folder"])) == ["packets", "packets.open", "store"]
    assert not list((world["store"] / "work").iterdir())


def test_the_seconds_of_a_stage_are_those_at_work_without_the_wait_for_a_processor(world):
    stages = records(world)[0]["stages"]
    assert stages["train"] > 0
    for stage, seconds in stages.items():
        manifests = (world["store"] / "objects" / stage).glob("*/manifest.json")
        assert seconds <= sum(json.loads(path.read_text())["seconds"] for path in manifests) + 0.1, stage


def test_the_table_shows_published_and_our_values_with_verdicts(world):
    assert "20.90" in world["stdout"]
    assert "verdicts: 2 not comparable (" in world["stdout"]
    assert "reproduced" not in world["stdout"], "never on stand-in data"
    report = Path(re.search(r"report:\s+(\S+)", world["stdout"])[1])
    page = report.read_text()
    assert "Generated sample corpus" in page
    assert not re.search(r"""(src|(?<!<a )href)=["'](?!data:|#)""", page), "the page loads no other file"


def runs(world: dict) -> list:
    client = MlflowClient(f"sqlite:///{world['store'] / 'mlflow' / 'mlflow.db'}")
    return [run for e in client.search_experiments() for run in client.search_runs([e.experiment_id])]


def records(world: dict) -> list[dict]:
    return json.loads(ask(world, "store", "runs", "--json"))


def test_mlflow_has_every_run_once_with_its_metrics_and_files(world):
    client = MlflowClient(f"sqlite:///{world['store'] / 'mlflow' / 'mlflow.db'}")
    found = {run.info.run_name: run for run in runs(world)}
    assert len(found) == len(runs(world)) == 3
    parent = next(run for run in found.values() if run.data.tags["phrasemodels.kind"] == "table")
    for run in found.values():
        assert run.info.status == "FINISHED"
        if run is parent:
            continue
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.info.run_name == f"{run.data.tags['row']}, seed 0" and run.data.tags["verdict"] == "not comparable"
        assert run.data.params["train.steps"] == parent.data.params["train.steps"] == "30"
        assert [m.step for m in client.get_metric_history(run.info.run_id, "dev_loss")[:3]] == [10, 20, 30]
        assert len(run.data.tags["test_set"]) == 64
        assert {"bleu", "bleu/idiom", "sacrebleu"} <= run.data.metrics.keys()
        artifacts = {a.path for a in client.list_artifacts(run.info.run_id)}
        assert {"config.json", "scores.json", "sentences.arrow", "predictions.arrow", "predictions.json"} <= artifacts
        assert abs(client.get_metric_history(run.info.run_id, "dev_loss")[0].timestamp / 1000 - time.time()) < 86400
        assert (run.info.end_time - run.info.start_time) / 1000 == pytest.approx(
            run.data.metrics["train_seconds"], abs=1e-2
        )
        assert run.data.tags["mlflow.source.name"].startswith("phrasemodels reproduce") and run.data.tags["mlflow.user"]


def test_prefect_has_names_and_tags_that_say_what_was_set_and_the_lines_of_progress(world):
    with contextlib.closing(sqlite3.connect(world["store"] / "prefect" / "prefect.db")) as prefect:
        ((name, tags),) = prefect.execute("select name, tags from flow_run").fetchall()
        said = [line for (line,) in prefect.execute("select message from log order by timestamp")]
    assert name.startswith("paper 000, table 1, sample, 1 seed, ") and "train.steps=30" in name
    assert {"paper 000", "table 1", "sample", "train.steps=30"} <= {*json.loads(tags)}
    assert any(line.startswith("MLflow: sqlite:///") for line in said)
    assert any(re.match(r"train 000/table1/sample/\S+ seed 0: \d+\.\d s", line) for line in said), said


def test_a_second_run_finds_all_steps_in_the_store_and_logs_nothing_twice(world):
    plan = json.loads(ask(world, "plan", *TINY, *ROWS, "--json"))
    assert [step["label"] for step in plan if not step["hit"]] == []
    before, log = len(runs(world)), world["store"] / "prefect" / "server.log"
    written = log.stat().st_size
    again = json.loads(ask(world, "reproduce", *TINY, *ROWS, "--json"))
    assert again["stages"] == {} and log.stat().st_size == written, "no service is started for nothing"
    assert len(runs(world)) == before
    assert [record["report"] for record in records(world)] == [again["report"]] * 2 and Path(again["report"]).is_file()
    test_mlflow_has_every_run_once_with_its_metrics_and_files(world)


def test_the_plan_names_the_setting_that_changed(world):
    lines = ask(world, "plan", *TINY, *ROWS, "--set", "train.learning_rate=0.1").splitlines()
    missed = [line for line in lines if line.startswith("MISS")]
    assert len(missed) == 7
    assert "settings.config.learning_rate" in next(line for line in missed if "train 000" in line)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("select count(*) n from runs where kind = 'training' and status = 'FINISHED'", [{"n": 2}]),
        ("select count(*) n from predictions", [{"n": 80}]),
        ("select distinct grp from predictions order by grp", [{"grp": "idiom"}, {"grp": "plain"}]),
        ("select count(*) n from metrics where metric = 'dev_loss' and step = 20", [{"n": 2}]),
        (
            "select row_verdict, count(*) n from compared where origin = 'store' group by row_verdict",
            [{"row_verdict": "not comparable", "n": 2}],
        ),
        ("select sum(rows) n from shards where step = 'sample_split'", [{"n": 360}]),
        ("select count(*) n from published where paper = '000' and table_ = 'Table 1'", [{"n": 5}]),
    ],
)
def test_sql_answers(world, question, answer):
    assert asked(world, question) == answer


def test_sql_by_command_line(world):
    question = "select row_verdict, count(*) n from compared where origin = 'store' group by row_verdict"
    assert json.loads(ask(world, "sql", question, "--json")) == [{"row_verdict": "not comparable", "n": 2}]


@pytest.mark.parametrize(("limit", "rows"), [(2, 2), (0, 0)])
def test_sql_writes_an_answer_as_parquet(world, tmp_path, limit, rows):
    question = f"select experiment, ours from compared where origin = 'store' limit {limit}"
    ask(world, "sql", question, "--to", str(tmp_path / "answer.parquet"))
    found = pq.read_table(tmp_path / "answer.parquet")
    assert (found.column_names, found.num_rows) == (["experiment", "ours"], rows)


PAGE = (PROJECT / "docs" / "reference" / "sql.md").read_text(encoding="utf-8")
QUESTIONS = re.findall(r"^-- \d+\. (.*)\n(.*);$", PAGE, re.MULTILINE)


def test_the_questions_of_the_documentation_have_answers(world):
    assert len(QUESTIONS) == 20
    assert all(
        re.search(rf"(from|join) {view}\b", " ".join(sql for _, sql in QUESTIONS))
        for view in VIEWS.keys() - {"published"}
    )
    settings = Settings(store=world["store"])
    with Answers(Store(settings.root).open(), Tracker(settings.tracking_uri)) as answers:
        for question, sql in QUESTIONS:
            found = answers.ask(sql, "arrow")
            empty = {
                name
                for name, column in zip(found.column_names, found.columns, strict=True)
                if column.null_count == len(found)
            }
            assert len(found) and empty <= {"failure", "run_id"}, question


@pytest.mark.parametrize(
    "question",
    ["select * from read_csv('/etc/passwd')", "copy (select 1) to 'out.csv'", "install sqlite", "set enable_external_access = true",
     "attach 'x.db'", "select * from nowhere"],
)  # fmt: skip
def test_sql_refuses_files_extensions_and_settings(world, question):
    with pytest.raises(ValueError, match="`show tables` lists the views"):
        asked(world, question)


def test_a_refused_query_ends_in_one_line_and_writes_no_file(world):
    done = subprocess.run(command("sql", "copy (select 1) to 'out.csv'"), env=variables(world["store"]),
                          cwd=world["folder"], capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(world["folder"])) == ["packets", "packets.open", "store"]


def progress(root: Path) -> dict:
    for path in root.glob(f"work/*/checkpoints/{PROGRESS}"):
        with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
            return json.loads(path.read_text())
    return {"step": -1}


def until_step(root: Path, step: int, process: subprocess.Popen) -> dict:
    while process.poll() is None:
        state = progress(root)
        if state["step"] >= step:
            return state
        time.sleep(0.02)
    raise AssertionError(f"it ended before step {step}: {process.returncode}")


def until_ended(root: Path) -> None:
    """Wait until no process has this store in its environment; pytest's timeout ends an endless wait.

    Ray's two agents, which never see the store, may live for a minute longer: when their raylet dies, they try so long to
    report its death to a server that has died too (`report_raylet_error_logs` in ray/_private/process_watcher.py).
    """
    while any(f"PHRASEMODELS_STORE={root}\0".encode() in environment for environment in environments()):
        time.sleep(0.1)


def environments() -> Iterator[bytes]:
    """Yield the environment of each process of this machine but Ray's agents."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if not (path / "cmdline").read_bytes().startswith((b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")):
                yield (path / "environ").read_bytes()


@contextlib.contextmanager
def started(root: Path, *arguments: str) -> Iterator[subprocess.Popen]:
    with (root.parent / "log").open("ab") as log:
        process = subprocess.Popen(command(*arguments), env=variables(root), cwd=root.parent, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_run_whose_worker_and_driver_were_killed_ends_with_the_same_bits_and_rows(tmp_path):
    more = (*TINY[:2], "--set", "train.steps=400", *TINY[4:], "--row", "phrase-k2")
    root = tmp_path / "store"
    with started(root, "reproduce", *more) as process:
        first = until_step(root, 60, process)
        os.kill(first["pid"], signal.SIGKILL)  # the Ray Train worker
        while (second := until_step(root, 0, process))["pid"] == first["pid"]:
            time.sleep(0.02)
        until_step(root, second["step"] + 60, process)
        lost = f"worker {first['pid']} was lost; worker {second['pid']} continues"
        while lost not in (tmp_path / "log").read_text():
            assert process.poll() is None, "the lost worker is reported while the training goes on"
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)  # the driver
    until_ended(root)
    assert 0 < progress(root)["step"] < 400
    done = subprocess.run(
        command("reproduce", *more, "--json"), env=variables(root), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

    undisturbed = subprocess.run(
        command("train", "000/table1/sample/phrase-k2", "--local", *more[2:-2]),
        env=variables(tmp_path / "other"), cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert undisturbed.returncode == 0, undisturbed.stderr

    def trained(store: Path) -> Artifact:
        (artifact,) = (a for a in Store(store).artifacts() if a.manifest["step"] == "train")
        return artifact

    one, other = (sha256_of(trained(store).file("model.safetensors")) for store in (root, tmp_path / "other"))
    assert one == other
    began, after_worker, after_driver = trained(root).meta["starts"]
    assert began == 0 < after_worker < after_driver
    client = MlflowClient(f"sqlite:///{root / 'mlflow' / 'mlflow.db'}")
    (training,) = (r for r in runs({"store": root}) if r.data.tags["phrasemodels.kind"] == "training")
    assert training.info.status == "FINISHED"
    assert [m.step for m in client.get_metric_history(training.info.run_id, "loss")] == list(range(10, 401, 10))

    first, second = sorted((root / "runs").glob("*.json"), key=lambda path: json.loads(path.read_text())["started"])
    assert [json.loads(path.read_text())["state"] for path in (first, second)] == ["dead", "completed"]
    page = first.with_suffix(".html").read_text()
    assert "<strong>dead</strong>" in page and "train.steps=400" in page
    (report,) = (root / "reports").glob("000-table1-sample+*.html")
    assert second.with_suffix(".html").read_bytes() == report.read_bytes()
    with contextlib.closing(sqlite3.connect(root / "prefect" / "prefect.db")) as prefect:
        states = dict(prefect.execute("select id, state_type from flow_run").fetchall())
        names = {name for (name,) in prefect.execute("select name from flow_run")}
        tasks = prefect.execute(
            "select task_run.name, task_run.state_name, task_run.tags from task_run join flow_run "
            "on task_run.flow_run_id = flow_run.id where flow_run.state_type = 'COMPLETED'"
        ).fetchall()
    assert {str(uuid.UUID(key)): state for key, state in states.items()} == {
        first.stem: "CRASHED", second.stem: "COMPLETED"}  # fmt: skip
    assert all("phrase-k2, train.steps=400" in name for name in names)
    states_of = {name: state for name, state, _ in tasks}
    trained = [state for name, state in states_of.items() if name.startswith("train 000/table1/sample/phrase-k2")]
    assert trained == ["Completed"], "it went on from a checkpoint"
    assert [state for name, state in states_of.items() if name.startswith("vocabulary")] == ["Cached"]
    assert {"train", "paper 000", "table 1", "sample"} in [set(json.loads(tags)) for _, _, tags in tasks]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "number"), [("transformer", signal.SIGINT), ("phrase-k2", signal.SIGTERM)])
def test_a_signal_ends_a_run_and_leaves_no_process(tmp_path, row, number):
    root = tmp_path / "store"
    with started(root, "reproduce", *TINY[:2], "--set", "train.steps=5000", "--row", row) as process:
        until_step(root, 10, process)
        process.send_signal(number)
        assert process.wait() == 1
    said = (tmp_path / "log").read_text()
    assert "goes on from the last checkpoint" in said and "Traceback" not in said
    until_ended(root)
    with contextlib.closing(sqlite3.connect(root / "prefect" / "prefect.db")) as prefect:
        assert prefect.execute("select state_type, state_name from flow_run").fetchall() == [("CANCELLED", "Stopped")]
    (record,) = (json.loads(path.read_text()) for path in (root / "runs").glob("*.json"))
    assert record["state"] == "stopped"


@pytest.mark.slow
def test_more_workers_than_processors_are_refused_at_once(tmp_path):
    started_at = time.monotonic()
    done = subprocess.run(
        command("reproduce", *TINY, "--row", "phrase-k2", "--set", "train.workers=64"),
        env=variables(tmp_path / "store"), cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "64 workers need" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - started_at < 120
