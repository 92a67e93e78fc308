"""All parts as processes of their own: Postgres, Prefect and MLflow servers on it, S3, a Ray cluster, a worker.

Deployments run as on a schedule, and processes die. What is started here ends here, by process id.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PROJECT

from infra.services import free_port

TINY = ["train.steps=10", "train.evaluate_every=5", "train.checkpoint_every=5", "train.batch_tokens=600",
        "recipe.corpus.train=100", "recipe.corpus.dev=10", "recipe.corpus.test=10"]  # fmt: skip
LONG = ["train.steps=100000", *TINY[1:]]

NODES = ("node-1", "node-2")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("postgres") is None, reason="needs Postgres"),
]


def until(true: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if found := true():
                return found
        time.sleep(0.3)
    raise TimeoutError(true)


class Place:
    """Processes with one environment, all logs in a folder; the folder is short for Ray's sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = os.environ | {"PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}
        self.started: dict[str, tuple[list[str], str | None, subprocess.Popen]] = {}

    def start(self, name: str, *command: str, user: str | None = None) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, cwd=self.folder, stdout=log, stderr=log, user=user
            )
        self.started[name] = (list(command), user, process)

    def kill(self, name: str) -> None:
        """SIGKILL, and start it again."""
        command, user, process = self.started[name]
        process.kill()
        process.wait()
        self.start(name, *command, user=user)

    def run(self, *command: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment, cwd=self.folder, capture_output=True, text=True,
                              timeout=400, user=user)  # fmt: skip

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "prefect", "--no-prompt", *arguments)

    def ended(self) -> None:
        for *_, process in reversed(self.started.values()):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    pytest.importorskip("moto")
    pytest.importorskip("psycopg2")
    folder = Path(tempfile.mkdtemp(prefix="pm-"))
    here = Place(folder)
    try:
        begin(here)
        yield here
    finally:
        here.ended()
        if "KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)


def begin(here: Place) -> None:
    database, s3, prefect, mlflow, gcs = (free_port() for _ in range(5))
    python = (sys.executable, "-m")
    url = f"postgresql://postgres@127.0.0.1:{database}"
    begin_postgres(here, database)
    here.environment |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "PREFECT_HOME": str(here.folder / "prefect"), "PREFECT_API_URL": f"http://127.0.0.1:{prefect}/api",
        "PREFECT_API_DATABASE_CONNECTION_URL": f"{url}/prefect".replace("postgresql:", "postgresql+asyncpg:"),
        "PHRASEMODELS_STORE": "s3://phrases/store", "PHRASEMODELS_CACHE": str(here.folder / "cache"),
        "PHRASEMODELS_MLFLOW_URI": f"http://127.0.0.1:{mlflow}", "PHRASEMODELS_RAY_ADDRESS": f"127.0.0.1:{gcs}",
        "PHRASEMODELS_CLUSTER": "true",
    }  # fmt: skip
    here.start("s3", *python, "moto.server", "-H", "127.0.0.1", "-p", str(s3))
    here.start(
        "prefect", *python, "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(prefect), "--no-ui"
    )
    here.start("mlflow", *python, "mlflow", "server", "--host", "127.0.0.1", "--port", str(mlflow), "--workers", "1",
               "--backend-store-uri", f"{url}/mlflow", "--artifacts-destination", str(here.folder / "artifacts"))  # fmt: skip
    ray = str(Path(sys.executable).parent / "ray")
    at = ("--node-ip-address=127.0.0.1", "--object-store-memory=100000000", "--disable-usage-stats", "--block")
    here.start("head", ray, "start", "--head", f"--port={gcs}", f"--temp-dir={here.folder / 'r'}", "--num-cpus=0",
               "--include-dashboard=false", *at)  # fmt: skip
    until(lambda: urllib.request.urlopen(f"http://127.0.0.1:{s3}", timeout=2).close() is None)
    bucket = "import fsspec; fsspec.filesystem('s3').mkdir('phrases')"
    assert here.run(sys.executable, "-c", bucket).returncode == 0
    for port, path in ((prefect, "/api/health"), (mlflow, "/health")):
        until(lambda at=f"http://127.0.0.1:{port}{path}": urllib.request.urlopen(at, timeout=2).close() is None)
    for node in NODES:  # one after the other: Ray gives each 30 seconds
        here.start(node, ray, "start", f"--address=127.0.0.1:{gcs}", "--num-cpus=1", *at)
        until(lambda log=here.folder / f"{node}.log": "runtime started" in log.read_text())
    shutil.copy(PROJECT / "prefect.yaml", here.folder)
    for arguments in (("work-pool", "create", "local", "--type", "process"), ("deploy", "--all")):
        done = here.prefect(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    here.start("worker", *python, "prefect", "worker", "start", "--pool", "local", "--type", "process")


def begin_postgres(here: Place, port: int) -> None:
    """A cluster of its own on loopback; Postgres refuses to run as root."""
    home = here.folder / "pg"
    programs = Path(os.path.realpath(shutil.which("postgres"))).parent
    user = "postgres" if os.getuid() == 0 else None
    home.mkdir()
    if user:
        here.folder.chmod(0o755)
        shutil.chown(home, user)
    made = here.run(str(programs / "initdb"), "-D", str(home), "-U", "postgres", "-A", "trust", user=user)
    assert made.returncode == 0, made.stderr
    here.start("postgres", str(programs / "postgres"), "-D", str(home), "-p", str(port), "-h", "127.0.0.1", "-k",
               str(home), user=user)  # fmt: skip
    psql = ("psql", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-f", str(PROJECT / "infra/databases.sql"))
    until(lambda: here.run(*psql).stderr.count("already exists") == 2)


def deployment(here: Place, *parameters: str, watch: bool = True) -> subprocess.CompletedProcess[str]:
    options = ["--watch", "--watch-interval", "1"] if watch else []
    words = [word for p in ('rows=["phrase-k2"]', "seeds=1", *parameters) for word in ("--param", p)]
    return here.prefect("deployment", "run", "reproduce/sample", *options, *words)


def told(here: Place) -> str:
    return "\n".join(f"== {log.name}\n{log.read_text()[-2500:]}" for log in sorted(here.folder.glob("*.log")))


def records(here: Place) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in (here.folder / "cache" / "runs").glob("*.json")]
    return sorted(found, key=lambda record: record["started"])


def runs(here: Place) -> list[Any]:
    from infra.tracking import Tracker

    return Tracker(here.environment["PHRASEMODELS_MLFLOW_URI"]).runs()


def flow_states(here: Place) -> list[str]:
    """The states of all flow runs, oldest first."""
    request = urllib.request.Request(
        f"{here.environment['PREFECT_API_URL']}/flow_runs/filter", b'{"sort": "START_TIME_ASC"}',
        {"content-type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [run["state_type"] for run in json.load(answer) if run["state_type"] != "SCHEDULED"]


def test_a_deployment_runs_twice_and_makes_everything_once(place: Place) -> None:
    for _ in range(2):
        done = deployment(place, f"set={json.dumps(TINY)}")
        assert done.returncode == 0, done.stdout + done.stderr + told(place)
    assert [record["state"] for record in records(place)] == ["completed"] * 2
    assert {run.info.status for run in runs(place)} == {"FINISHED"}
    assert len(runs(place)) == 2  # a table and a training
    shutil.rmtree(place.folder / "cache" / "objects")  # a node with an empty folder finds everything in the storage
    before = time.time()
    assert deployment(place, f"set={json.dumps(TINY)}").returncode == 0
    made = (json.loads(p.read_text()) for p in (place.folder / "cache" / "objects").glob("*/*/manifest.json"))
    assert max(time.strptime(m["finished"][:19], "%Y-%m-%dT%H:%M:%S") for m in made) < time.gmtime(before)


def test_a_run_under_way_keeps_the_next_from_starting_and_a_dead_one_is_marked(place: Place) -> None:
    assert deployment(place, f"set={json.dumps(LONG)}", watch=False).returncode == 0
    progress = until(lambda: list(place.folder.glob("cache/work/*/checkpoints/step-*")), 180)
    assert progress
    deployment(place, f"set={json.dumps(LONG)}")
    assert flow_states(place)[-1] in ("CANCELLED", "RUNNING")
    assert "CANCELLED" in flow_states(place)
    (flow,) = flows_under(place.started["worker"][-1].pid)
    os.kill(flow, signal.SIGKILL)
    until(lambda: "CRASHED" in flow_states(place), 60)
    done = deployment(place, f"set={json.dumps(TINY)}")
    assert done.returncode == 0, done.stdout + done.stderr + told(place)
    dead = [record for record in records(place) if record["state"] == "dead"]
    assert len(dead) == 1
    assert records(place)[-1]["found_dead"] == [dead[0]["id"]]
    assert (
        sorted(run.info.status for run in runs(place)).count("KILLED") == 2
    )  # the table of that run, and its training


def flows_under(pid: int) -> list[int]:
    """The processes that a worker has started."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    return [int(line) for line in found.split()]


@pytest.mark.parametrize("victim", ["prefect", "mlflow", "postgres", "node-1"])
def test_a_service_that_dies_costs_nothing(place: Place, victim: str) -> None:
    """The service is killed while a training is under way, and comes back; the run, or the next one, completes."""
    settings = [f"train.learning_rate=0.00{1 + len(victim)}", "train.steps=300", *TINY[1:]]
    before = set(place.folder.glob("cache/work/*/checkpoints/step-*"))
    assert deployment(place, f"set={json.dumps(settings)}", watch=False).returncode == 0
    until(lambda: set(place.folder.glob("cache/work/*/checkpoints/step-*")) - before, 180)
    place.kill(victim)
    ended = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
    until(lambda: set(flow_states(place)) <= ended, 240)
    done = deployment(place, f"set={json.dumps(settings)}")
    assert done.returncode == 0, done.stdout + done.stderr + told(place)
    trainings = [r for r in runs(place) if r.data.params.get("config.learning_rate") == f"0.00{1 + len(victim)}"]
    assert [run.info.status for run in trainings] == ["FINISHED"]
    from infra.tracking import Tracker

    history = Tracker(place.environment["PHRASEMODELS_MLFLOW_URI"]).client().get_metric_history(
        trainings[0].info.run_id, "dev_loss")  # fmt: skip
    assert [metric.step for metric in history if metric.step] == [*range(5, 301, 5)] or len(
        {metric.step for metric in history}
    ) == len(history)
