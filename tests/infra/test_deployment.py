"""The deployments of prefect.yaml, with a real server, work pool and worker, and `prefect deployment run`."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from conftest import PROJECT
from running import small_corpus

from phrasemodels.infra.services import free_port

pytestmark = pytest.mark.slow  # services start and wait for minutes

TINY = [
    "train.steps=10",
    "train.evaluate_every=5",
    "train.batch_tokens=600",
    *small_corpus(100, 10, 10),
]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Start a Prefect server whose files, and the store, are in a folder; yield what runs `prefect ...` against it."""
    port = free_port()
    environment = os.environ | {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PHRASEMODELS_STORE": str(folder / "store"),
    }
    log = (folder / "log").open("wb")
    started: list[subprocess.Popen] = []

    def start(*arguments: str) -> None:
        command = [sys.executable, "-m", "prefect", *arguments]
        started.append(subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)

    shutil.copy(PROJECT / "prefect.yaml", folder)
    (folder / "phrasemodels").mkdir()
    (folder / "phrasemodels" / "infra").symlink_to(PROJECT / "phrasemodels" / "infra")
    start("server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui")
    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2).close()
            break
        except OSError:
            time.sleep(0.3)
    run.start, run.environment, run.folder = start, environment, folder
    try:
        yield run
    finally:
        for process in reversed(started):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()  # in case it ignores SIGTERM
        log.close()


@pytest.fixture
def prefect(tmp_path: Path):
    """A server of one test."""
    with served(tmp_path) as run:
        yield run


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory):
    """A server with the deployments of phrasemodels/infra/deploy.sh."""
    with served(tmp_path_factory.mktemp("deployed")) as run:
        written = (PROJECT / "phrasemodels" / "infra" / "kubernetes-pool.yaml").read_text()
        manifests = yaml.safe_load_all(written.replace("phrasemodels:latest", "registry/image:1"))  # as README says
        pod = next(m for m in manifests if m["kind"] == "Deployment")["spec"]["template"]["spec"]
        given = {v["name"]: v["value"] for v in pod["initContainers"][0]["env"] if "value" in v}
        known = {"IMAGE": given["IMAGE"], "PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES": "ours",
                 "HOME": str(run.folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
        for command in (
            pod["initContainers"][0]["command"],
            ["sh", "phrasemodels/infra/deploy.sh", "--type", "process"],
        ):
            done = subprocess.run(command, cwd=run.folder, capture_output=True, text=True, env=run.environment | known)
            assert done.returncode == 0, done.stdout + done.stderr
        yield run


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_schedule_starts_a_run_with_its_own_parameters(prefect, tmp_path):
    deployments = yaml.safe_load((tmp_path / "prefect.yaml").read_text())
    sample = next(d for d in deployments["deployments"] if d["name"] == "sample")
    sample["schedules"] = [{"cron": "* * * * *", "parameters": {"set": TINY, "rows": ["transformer"], "seeds": 1}}]
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(deployments))
    assert prefect("work-pool", "create", "phrasemodels", "--type", "process").returncode == 0
    assert prefect("deploy", "--name", "sample").returncode == 0
    prefect.start("worker", "start", "--pool", "phrasemodels", "--type", "process")
    until = time.monotonic() + 1800
    while not (found := completed(tmp_path)) and time.monotonic() < until:
        time.sleep(1)
    assert prefect("deployment", "schedule", "clear", "reproduce/sample", "--accept-yes").returncode == 0
    assert len(found) == 1, (tmp_path / "log").read_text()[-3000:]
    assert len(list((tmp_path / "store" / "objects" / "train").iterdir())) == 1


def completed(folder: Path) -> list[dict]:
    """Return the records of completed runs."""
    found = [json.loads(path.read_text()) for path in (folder / "store" / "runs").glob("*.json")]
    return [record for record in found if record["state"] == "completed"]


DIES = """
import os, signal, uuid
from pathlib import Path
from prefect import flow, runtime
from phrasemodels.flows.run.record import mark_crashed

@flow
def dies():
    Path("id").write_text(runtime.flow_run.id)
    os.kill(os.getpid(), signal.SIGKILL)

mark_crashed(uuid.UUID(Path("id").read_text())) if Path("id").exists() else dies()
"""


@pytest.mark.slow
def test_a_dead_flow_run_is_marked_as_crashed(deployed, tmp_path):
    environment = deployed.environment | {"PYTHONPATH": str(PROJECT)}
    codes = [subprocess.run([sys.executable, "-c", DIES], env=environment, cwd=tmp_path).returncode for _ in range(2)]
    assert codes == [-signal.SIGKILL, 0]
    with contextlib.closing(sqlite3.connect(deployed.folder / "prefect" / "prefect.db")) as database:
        states = database.execute("select state_type from flow_run join flow on flow.id = flow_id "
                                 "where flow.name = 'dies'").fetchall()  # fmt: skip
    assert states == [("CRASHED",)]


@pytest.mark.slow
def test_the_automation_marks_a_run_without_heartbeats_as_crashed(prefect, tmp_path):
    zombies = (PROJECT / "phrasemodels" / "infra" / "zombies.json").read_text()
    assert '"within": 600' in zombies
    (tmp_path / "zombies.json").write_text(zombies.replace('"within": 600', '"within": 45'))
    assert prefect("automation", "create", "--from-file", "zombies.json").returncode == 0
    alone = "import phrasemodels.infra.environment, time; from prefect import flow; flow(lambda: time.sleep(900), name='alone')()"
    environment = prefect.environment | {"PYTHONPATH": str(PROJECT), "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
    process = subprocess.Popen([sys.executable, "-c", alone], env=environment, cwd=tmp_path)

    def asked(question: str) -> list[tuple[str]]:
        with contextlib.closing(sqlite3.connect(tmp_path / "prefect" / "prefect.db")) as database:
            return database.execute(question).fetchall()

    def until(true: Callable[[], bool]) -> bool:
        end = time.monotonic() + 240
        while not (found := true()) and time.monotonic() < end:
            time.sleep(1)
        return found

    try:
        assert until(lambda: bool(asked("select id from events where event = 'prefect.flow-run.heartbeat'")))
    finally:
        process.kill()
        process.wait()
    assert asked("select state_type from flow_run") == [("RUNNING",)]
    assert until(lambda: asked("select state_type from flow_run") == [("CRASHED",)]), (tmp_path / "log").read_text()


LATE = """
import phrasemodels.infra.environment
from prefect import task
from prefect.client.orchestration import get_client
from prefect.states import Completed, Pending, Running
from phrasemodels.flows.run.record import STOPPING, mark_crashed, mark_ended, untold

with get_client(sync_client=True) as client:
    deployment = client.read_deployment_by_name("reproduce/sample").id
    begun = [client.create_flow_run_from_deployment(deployment).id for _ in range(3)]

    def start(run):
        return client.set_flow_run_state(run, Pending()).state

    held = start(begun[0]).state_details.deployment_concurrency_lease_id
    client.set_flow_run_state(begun[0], Running())
    client.release_concurrency_slots_with_lease(held)  # as Prefect does after five minutes without a heartbeat
    assert start(begun[1]).is_pending()
    mark_crashed(begun[0])
    print(client.read_global_concurrency_limit_by_name(f"deployment:{deployment}").active_slots, start(begun[2]).type)
    client.set_flow_run_state(begun[1], Running())
    tasks = [client.create_task_run(task(lambda: None), begun[1], str(place), state=Running()).id for place in range(2)]
    client.set_task_run_state(tasks[1], Completed(), force=True)
    STOPPING.set()  # by a signal
    mark_ended(str(begun[1]), "terminated")
    print(client.read_flow_run(begun[1]).state.type, *(client.read_task_run(one).state.type for one in tasks))
    tasks.append(client.create_task_run(task(lambda: None), begun[1], "2", state=Pending()).id)
    told = [len(untold([{"id": str(run)} for run in begun]))]
    mark_crashed(begun[1])  # frees its slot for other tests
    print(*told, len(untold([{"id": str(run)} for run in begun])), client.read_task_run(tasks[2]).state.type)
"""


def test_marking_a_run_late_frees_no_slot_of_a_living_run_and_leaves_no_task_under_way(deployed):
    done = subprocess.run([sys.executable, "-c", LATE], env=deployed.environment | {"PYTHONPATH": str(PROJECT)},
                          cwd=deployed.folder, capture_output=True, text=True)  # fmt: skip
    shown = [f"StateType.{state}" for state in ("CANCELLED", "RUNNING", "CANCELLED", "COMPLETED")]
    assert done.stdout.split() == ["1", *shown, "1", "0", "StateType.CRASHED"], done.stdout + done.stderr


def test_the_sample_deployment_runs_on_a_worker(deployed):
    job = json.loads((deployed.folder / "job.json").read_text())["variables"]["properties"]
    assert (job["image"]["default"], job["namespace"]["default"]) == ("registry/image:1", "ours")
    assert "reproduce/tables" in deployed("deployment", "ls").stdout.replace("\n", "")
    (zombies,) = json.loads((PROJECT / "phrasemodels" / "infra" / "zombies.json").read_text())
    assert deployed("automation", "ls").stdout.replace("\n", "").count(zombies["name"][:8]) == 1
    deployed.start("worker", "start", "--pool", "phrasemodels", "--type", "process")
    parameters = (f"set={json.dumps(TINY)}", 'rows=["transformer"]', "seeds=1")
    options = ["--watch", "--watch-interval", "1", *(word for p in parameters for word in ("--param", p))]
    done = deployed("deployment", "run", "reproduce/sample", *options)
    assert done.returncode == 0, done.stdout + done.stderr + (deployed.folder / "log").read_text()[-3000:]
    assert list((deployed.folder / "store" / "reports").glob("000-table1-sample+*.html"))
    refused = deployed("deployment", "run", "reproduce/sample", "--param", "seeds=many")
    assert refused.returncode == 1


@pytest.mark.slow
def test_a_study_is_deployed_from_its_folder(prefect) -> None:
    command = [sys.executable, "-m", "phrasemodels", "init", "my-study"]
    subprocess.run(command, cwd=prefect.folder, env=prefect.environment, check=True, capture_output=True)
    study = prefect.folder / "my-study"
    assert prefect("work-pool", "create", "phrasemodels", "--type", "process").returncode == 0
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(
        command, cwd=study, env=prefect.environment | {"PWD": str(study)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(prefect("deployment", "inspect", "reproduce/my-study", "--output", "json").stdout)
    assert shown["parameters"]["paper"] == "my-study"
    assert shown["job_variables"]["env"]["PHRASEMODELS_PROJECT"] == str(study)
