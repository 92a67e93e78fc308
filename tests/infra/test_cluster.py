"""Runs on a cluster of real processes (tests/cluster.py): deployments, schedules, killed processes, backups, passwords."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import NODES, Place, alive, begin, children, logs, request, until
from conftest import CLI, PROJECT
from running import small_corpus

from phrasemodels.data.store.store import Store
from phrasemodels.infra.tracking import ATTEMPT, KEY, Tracker
from phrasemodels.tasks.train.trainer import PROGRESS

TINY = ["train.steps=10", "train.evaluate_every=5", "train.checkpoint_every=5", "train.batch_tokens=600",
        *small_corpus(100, 10, 10)]  # fmt: skip
LONG = ["train.steps=400", *TINY[1:]]

WAIT_MINUTES = 0.5  # for which a training waits for a lost node
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("postgres") is None, reason="needs Postgres"),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    pytest.importorskip("moto")
    pytest.importorskip("psycopg2")
    folder = Path(tempfile.mkdtemp(prefix="pm-"))
    here = Place(folder)
    try:
        begin(here)
        prepare(here)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
                patch.setenv(name, here.environment[name])
            yield here
    finally:
        begun = here.processes()
        here.ended()
        if "KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)
    until(lambda: not alive(begun), 30)


def prepare(here: Place) -> None:
    """Create the deployments, and start a worker for them."""
    shutil.copy(PROJECT / "prefect.yaml", here.folder)
    for arguments in (("work-pool", "create", "phrasemodels", "--type", "process"), ("deploy", "--all")):
        done = here.prefect(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    here.environment["PHRASEMODELS_WAIT_MINUTES"] = str(WAIT_MINUTES)
    start_worker(here)


def start_worker(here: Place) -> None:
    here.start(
        "worker", sys.executable, "-m", "prefect", "worker", "start", "--pool", "phrasemodels", "--type", "process"
    )


def deployment(here: Place, *parameters: str, watch: bool = True) -> subprocess.CompletedProcess[str]:
    return run(here, "reproduce/sample", 'rows=["phrase-k2"]', "seeds=1", *parameters, watch=watch)


def run(here: Place, name: str, *parameters: str, watch: bool = True) -> subprocess.CompletedProcess[str]:
    options = ["--watch", "--watch-interval", "1"] if watch else []
    return here.prefect("deployment", "run", name, *options, *(word for p in parameters for word in ("--param", p)))


def table(*settings: str) -> list[str]:
    """Return the command that runs a table of one row."""
    sizes = [word for setting in (*TINY, *settings) for word in ("--set", setting)]
    return [*CLI, "reproduce", "--paper", "000", "--table", "1", "--profile", "sample",
            "--row", "phrase-k2", "--seeds", "1", *sizes]  # fmt: skip


def records(here: Place, store: str = "cache") -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in (here.folder / store / "runs").glob("*.json")]
    return sorted(found, key=lambda record: record["started"])


def runs(here: Place) -> list[Any]:
    return Tracker(here.environment["PHRASEMODELS_MLFLOW_URI"]).runs()


def flow_runs(here: Place) -> list[dict[str, Any]]:
    """Return all flow runs that have begun, oldest first."""
    answer = request(f"{here.environment['PREFECT_API_URL']}/flow_runs/filter", b'{"sort": "START_TIME_ASC"}')
    return [run for run in json.loads(answer) if run["state_type"] != "SCHEDULED"]


def flow_states(here: Place) -> list[str]:
    return [run["state_type"] for run in flow_runs(here)]


def test_a_deployment_that_runs_again_makes_no_artifact_again(place: Place) -> None:
    for _ in range(2):
        done = deployment(place, f"set={json.dumps(TINY)}")
        assert done.returncode == 0, done.stdout + done.stderr + logs(place)
    assert [record["state"] for record in records(place)] == ["completed"] * 2
    assert {run.info.status for run in runs(place)} == {"FINISHED"}
    assert len(runs(place)) == 2  # a table and a training
    shutil.rmtree(place.folder / "cache" / "objects")  # a node with an empty cache finds all artifacts in the storage
    before = time.time()
    assert deployment(place, f"set={json.dumps(TINY)}").returncode == 0
    made = (json.loads(p.read_text()) for p in (place.folder / "cache" / "objects").glob("*/*/manifest.json"))
    assert max(time.strptime(m["finished"][:19], "%Y-%m-%dT%H:%M:%S") for m in made) < time.gmtime(before)


def test_scheduled_deployments_run_tables_report_failures_and_collect_garbage(place: Place) -> None:
    wanted = ('paper="004"', 'table="parser"', "seeds=1")
    refused = run(place, "reproduce/tables", *wanted, f"set={json.dumps([*TINY, 'train.gpus=1'])}")  # as on Sundays
    assert refused.returncode == 1
    done = run(place, "reproduce/tables", *wanted, f"set={json.dumps(TINY)}")
    assert done.returncode == 0, done.stdout + done.stderr + logs(place)
    parts = [record for record in records(place) if record["title"].startswith("Paper 004, Table parser")]
    assert [record["state"] for record in parts] == ["failed", "completed"]
    ended = [{run.info.status for run in runs(place) if run.data.tags[ATTEMPT] == part["id"]} for part in parts]
    assert ended == [{"FAILED"}, {"FINISHED"}]
    assert "workers need" in parts[0]["reason"] and Path(parts[1]["report"]).is_file()
    assert {a.manifest["step"] for a in Store(place.folder / "cache").artifacts()} >= {
        "parse_sentences",
        "score_parses",
    }
    assert run(place, "gc/store", "days=0", "verdicts=1").returncode == 0
    left = {record["id"]: record["state"] for record in records(place)}
    assert parts[1]["id"] in left and {*left.values()} == {"completed"}, "gc keeps the newest run of each verdict"


def test_a_running_deployment_blocks_the_next_run_and_a_killed_one_is_resumed(place: Place) -> None:
    assert deployment(place, f"set={json.dumps(LONG)}", watch=False).returncode == 0
    before = until(lambda: progress(place)["step"] >= 100 and progress(place), 180)
    os.kill(before["pid"], signal.SIGSTOP)  # so that the training does not end meanwhile
    place.kill("prefect")  # the server must not forget the slot of the run
    until(lambda: request(f"{place.environment['PREFECT_API_URL']}/health"))
    deployment(place, f"set={json.dumps(LONG)}")
    assert flow_states(place)[-1] in ("CANCELLED", "RUNNING")
    assert "CANCELLED" in flow_states(place)
    (flow,) = children(place.started["worker"][-1].pid)
    os.kill(flow, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(before["pid"], signal.SIGCONT)
    until(lambda: "CRASHED" in flow_states(place), 60)
    until(lambda: not alive([before["pid"]]), 60)
    made = finished(place)
    assert deployment(place, f"set={json.dumps(LONG)}", watch=False).returncode == 0
    again = until(lambda: (now := progress(place))["pid"] not in (0, before["pid"]) and now, 180)
    assert before["step"] - 10 <= again["step"] < 400, "a checkpoint is made every five updates"
    until(lambda: records(place)[-1]["state"] != "running", 180)
    last, dead = records(place)[-1], [record for record in records(place) if record["state"] == "dead"]
    assert len(dead) == 1
    assert (last["state"], last["found_dead"]) == ("completed", [dead[0]["id"]])
    assert made.items() <= finished(place).items()
    assert {run.info.status for run in runs(place) if run.data.tags[ATTEMPT] == last["id"]} == {"FINISHED"}


def progress(here: Place) -> dict[str, Any]:
    """Return the progress of the training that is running; of none its process is 0."""
    found = [json.loads(path.read_text()) for path in here.folder.glob(f"cache/work/*/checkpoints/{PROGRESS}")]
    return next((one for one in found if alive([one["pid"]])), {"step": -1, "pid": 0})


def finished(here: Place) -> dict[str, str]:
    """Return the keys of all artifacts, with the time at which each was made."""
    return {artifact.key: artifact.manifest["finished"] for artifact in Store(here.folder / "cache").artifacts()}


def test_losing_the_head_node_ends_a_run_in_one_line_and_the_next_run_continues(place: Place) -> None:
    command = table("train.steps=400")
    environment = place.environment | {"PHRASEMODELS_STORE": str(place.folder / "head is lost"),
                                       "PHRASEMODELS_CACHE": str(place.folder / "head is lost")}  # fmt: skip
    begun = subprocess.Popen(command, env=environment, cwd=place.folder, stderr=subprocess.PIPE, text=True)
    until(lambda: list(place.folder.glob("head is lost/work/*/checkpoints/step-*")))
    lose(place, "head")
    assert begun.wait(200) == 1
    assert begun.stderr.read().splitlines()[-1].startswith("phrasemodels: Ray lost a process or a node")
    for node in NODES:
        lose(place, node)
    for node in ("head", *NODES):  # as a supervisor would restart them
        place.kill(node)
        until(lambda log=place.folder / f"{node}.log": "runtime started" in log.read_text())
    assert subprocess.run(command, env=environment, cwd=place.folder).returncode == 0
    assert [record["state"] for record in records(place, "head is lost")] == ["failed", "completed"]


def begun_run(here: Place, *settings: str) -> tuple[str, dict[str, Any]]:
    """Start a run of the deployment; return its id and the progress of its training once that has begun."""
    before = {run["id"] for run in flow_runs(here)}
    assert deployment(here, f"set={json.dumps([*TINY[1:], *settings])}", watch=False).returncode == 0
    return until(lambda: [run["id"] for run in flow_runs(here) if run["id"] not in before])[0], until(
        lambda: (now := progress(here))["step"] > 5 and now, 200
    )


def states(here: Place, run: str) -> tuple[str, set[str], str, set[str]]:
    """Return how a run is shown: in Prefect, its tasks there, its record, and its runs of MLflow."""
    (flow,) = (found for found in flow_runs(here) if found["id"] == run)
    asked = json.dumps({"flow_runs": {"id": {"any_": [run]}}}).encode()
    tasks = json.loads(request(f"{here.environment['PREFECT_API_URL']}/task_runs/filter", asked))
    record = next(record for record in records(here) if record["id"] == run)
    own = {found.info.status for found in runs(here) if found.data.tags[ATTEMPT] == run}
    return flow["state_type"], {task["state_type"] for task in tasks}, record["state"], own


def logged(here: Place, run: str) -> str:
    """Return the logs of a run in Prefect."""
    asked = json.dumps({"logs": {"flow_run_id": {"any_": [run]}}}).encode()
    return "\n".join(
        line["message"] for line in json.loads(request(f"{here.environment['PREFECT_API_URL']}/logs/filter", asked))
    )


def ended(here: Place, run: str, seconds: float = 240) -> None:
    """Wait until the record of a run says that it has ended, and Prefect does."""
    until(lambda: any(one["id"] == run and one["state"] != "running" for one in records(here)), seconds)
    until(lambda: any(one["id"] == run and one["state_type"] in FINAL for one in flow_runs(here)), 60)


def test_a_cancelled_run_is_cancelled_in_prefect_in_mlflow_and_in_its_record(place: Place) -> None:
    run, training = begun_run(place, "train.steps=5001")
    assert place.prefect("flow-run", "cancel", run).returncode == 0
    ended(place, run)
    until(
        lambda: states(place, run)[0] == "CANCELLED", 60
    )  # Crashed for some seconds, until the worker says that it was ended
    flow, tasks, record, own = states(place, run)
    assert (flow, record, own) == ("CANCELLED", "cancelled", {"KILLED"}), logged(place, run)
    assert "CANCELLED" in tasks and tasks <= {"COMPLETED", "CANCELLED", "PENDING"}
    until(lambda: not alive([training["pid"]]), 60)


def test_a_killed_worker_of_prefect_ends_no_run(place: Place) -> None:
    run, _ = begun_run(place, "train.steps=301")
    process = place.started["worker"][-1]
    os.kill(process.pid, signal.SIGKILL)  # the worker alone: the process of the run goes on
    process.wait()
    ended(place, run)
    shown = states(place, run)
    start_worker(place)
    assert shown == ("COMPLETED", {"COMPLETED"}, "completed", {"FINISHED"}), logged(place, run)


def test_a_training_of_two_workers_that_loses_a_node_says_what_it_waits_for_and_gives_up(place: Place) -> None:
    run, training = begun_run(place, "train.steps=5002", "train.workers=2")
    lost = time.monotonic()
    lose(place, "node-2")
    until(lambda: "waits for nodes (2 workers need" in logged(place, run), 60)
    assert "gives up at" in logged(place, run)
    ended(place, run)
    assert time.monotonic() - lost < 60 * (WAIT_MINUTES + 2) + 30
    (flow, _, record, own), (written,) = states(place, run), (one for one in records(place) if one["id"] == run)
    assert (flow, record, own) == ("FAILED", "failed", {"FAILED"}), logged(place, run)
    assert "2 workers need" in written["error"] and "add nodes and start again" in written["error"]
    place.kill("node-2")
    until(lambda: "runtime started" in (place.folder / "node-2.log").read_text())
    _, again = begun_run(place, "train.steps=5002", "train.workers=2")
    assert again["step"] >= training["step"] - 5, "a checkpoint is made every five updates"
    assert place.prefect("flow-run", "cancel", flow_runs(place)[-1]["id"]).returncode == 0
    ended(place, flow_runs(place)[-1]["id"])


def lose(here: Place, node: str) -> None:
    """Kill a Ray node with all its processes."""
    lost = [here.started[node][-1].pid]
    for pid in lost:
        lost += children(pid)
    for pid in lost:
        os.kill(pid, signal.SIGKILL)
    (here.folder / f"{node}.log").unlink()


def test_a_worker_ends_with_its_ray_node(place: Place) -> None:
    """Otherwise the worker would hang and start no run; when it ends, its supervisor restarts it and it joins again."""
    environment = place.environment | {"RAY_HEAD": place.environment["PHRASEMODELS_RAY_ADDRESS"],
                                       "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
    command = ["sh", str(PROJECT / "phrasemodels" / "infra" / "join.sh"), sys.executable, "-m", "prefect", "worker", "start",
               "--pool", "phrasemodels", "--type", "process"]  # fmt: skip
    log = place.folder / "joined.log"
    begun = subprocess.Popen(command, env=environment, cwd=place.folder, stdout=log.open("w"), stderr=subprocess.STDOUT)
    until(lambda: "started!" in log.read_text())
    (node,) = [pid for pid in children(begun.pid) if "ray" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(node, signal.SIGKILL)
    assert begun.wait(60) == 128 + signal.SIGKILL
    assert "join.sh: the Ray node ended" in log.read_text()


def test_two_nodes_that_run_one_table_at_once_end_with_the_same_bytes(place: Place) -> None:
    command = table("train.steps=200")
    folders = [place.folder / f"node of {name}" for name in ("one", "another")]
    begun = [
        subprocess.Popen(command, env=place.environment | {"PHRASEMODELS_STORE": "s3://phrases/both",
                         "PHRASEMODELS_CACHE": str(folder)}, cwd=place.folder, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
        for folder in folders
    ]  # fmt: skip
    for process in begun:
        output, _ = process.communicate(timeout=400)
        assert process.returncode == 0, output + logs(place)
    one, another = ({a.key: a for a in Store(folder).artifacts()} for folder in folders)
    both = one.keys() & another.keys()  # a node downloads no shards of a stage that is complete
    assert {one[key].manifest["step"] for key in both} >= {"train", "translate", "score_translations", "compare"}
    assert [key for key in both if one[key].manifest["files"] != another[key].manifest["files"]] == []
    client = Tracker(place.environment["PHRASEMODELS_MLFLOW_URI"]).client()
    for found in runs(place):
        for metric in found.data.metrics:
            steps = [row.step for row in client.get_metric_history(found.info.run_id, metric)]
            assert len(steps) == len(set(steps)), (found.info.run_name, metric, steps)
    assert len({found.data.tags[KEY] for found in runs(place)}) == len(runs(place))


def test_backups_are_restored_by_the_commands_of_the_operating_guide(place: Place) -> None:
    url = place.environment["PREFECT_API_DATABASE_CONNECTION_URL"].replace("+asyncpg", "").removesuffix("/prefect")
    for name in ("mlflow", "prefect"):
        dump, again = str(place.folder / f"{name}.dump"), f"{url}/{name}_again"
        for command in (
            ("pg_dump", "-Fc", "-d", f"{url}/{name}", "-f", dump),
            ("psql", "-d", f"{url}/postgres", "-c", f"create database {name}_again"),
            ("pg_restore", "--exit-on-error", "-d", again, dump),
        ):
            assert (done := place.run(*command)).returncode == 0, done.stderr
    assert place.run(sys.executable, "-m", "mlflow", "db", "upgrade", f"{url}/mlflow_again").returncode == 0
    before, after = runs(place), Tracker(f"{url}/mlflow_again").runs()
    assert before
    assert {run.info.run_id: run.data.metrics for run in before} == {run.info.run_id: run.data.metrics for run in after}
    saved, bucket = place.folder / "objects", "import fsspec; fsspec.filesystem('s3').mkdir('again')"
    saved.mkdir()
    get, put = re.findall(r'"(import fsspec; .*)"', (PROJECT / "phrasemodels" / "infra" / "README.md").read_text())
    for code, name in ((get, "phrases"), (bucket, ""), (put, "again")):
        code = code.replace("phrasemodels/", f"{name}/").replace("/backup/", f"{saved}/")
        assert (done := place.run(sys.executable, "-c", code)).returncode == 0, done.stderr
    settings = {"PHRASEMODELS_STORE": "s3://again/both", "PHRASEMODELS_CACHE": str(place.folder / "again")}
    command = [*CLI, "store", "verify"]
    done = subprocess.run(command, env=place.environment | settings, cwd=place.folder, capture_output=True, text=True)
    assert re.match(r"0 artifacts and [1-9]\d* in the shared storage, 0 damaged", done.stdout), (
        done.stdout + done.stderr
    )


def test_requests_without_the_password_are_refused(place: Place) -> None:
    url = place.environment["PHRASEMODELS_MLFLOW_URI"] + "/api/2.0/mlflow/experiments/search"
    for secret in ("", "admin:wrong"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            request(f"{place.environment['PREFECT_API_URL']}/flow_runs/filter", b"{}", secret)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            request(url, b'{"max_results": 1}', secret)
    assert b"experiments" in request(url, b'{"max_results": 1}')
    join = f"import ray; ray.init(address='{place.environment['PHRASEMODELS_RAY_ADDRESS']}'); print('joined')"
    for variables in ({"RAY_AUTH_TOKEN": "8" * 32}, {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""}):
        stranger = subprocess.run([sys.executable, "-c", join], env=place.environment | variables, capture_output=True,
                                  text=True, timeout=100)  # fmt: skip
        assert stranger.returncode != 0 and "joined" not in stranger.stdout
