"""All parts as processes of their own: Postgres, Prefect and MLflow servers on it, S3, a Ray cluster, a worker.

Deployments run as on a schedule, and processes die. What is started here ends here, by process id.
"""

import json
import os
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
from cluster import NODES, Place, asked, begin, children, told, until
from conftest import PROJECT

from data.store import Store

TINY = ["train.steps=10", "train.evaluate_every=5", "train.checkpoint_every=5", "train.batch_tokens=600",
        "recipe.corpus.train=100", "recipe.corpus.dev=10", "recipe.corpus.test=10"]  # fmt: skip
LONG = ["train.steps=100000", *TINY[1:]]

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
        here.ended()
        if "KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)


def prepare(here: Place) -> None:
    """Deployments and a worker for them."""
    shutil.copy(PROJECT / "prefect.yaml", here.folder)
    for arguments in (("work-pool", "create", "phrasemodels", "--type", "process"), ("deploy", "--all")):
        done = here.prefect(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    here.start(
        "worker", sys.executable, "-m", "prefect", "worker", "start", "--pool", "phrasemodels", "--type", "process"
    )


def deployment(here: Place, *parameters: str, watch: bool = True) -> subprocess.CompletedProcess[str]:
    options = ["--watch", "--watch-interval", "1"] if watch else []
    words = [word for p in ('rows=["phrase-k2"]', "seeds=1", *parameters) for word in ("--param", p)]
    return here.prefect("deployment", "run", "reproduce/sample", *options, *words)


def table(*settings: str) -> list[str]:
    """The command for a table of one row."""
    sizes = [word for setting in (*TINY, *settings) for word in ("--set", setting)]
    return [sys.executable, "-m", "flows.cli", "reproduce", "--paper", "000", "--table", "1", "--profile", "sample",
            "--row", "phrase-k2", "--seeds", "1", *sizes]  # fmt: skip


def records(here: Place, store: str = "cache") -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in (here.folder / store / "runs").glob("*.json")]
    return sorted(found, key=lambda record: record["started"])


def runs(here: Place) -> list[Any]:
    from infra.tracking import Tracker

    return Tracker(here.environment["PHRASEMODELS_MLFLOW_URI"]).runs()


def flow_states(here: Place) -> list[str]:
    """The states of all flow runs, oldest first."""
    answer = asked(f"{here.environment['PREFECT_API_URL']}/flow_runs/filter", b'{"sort": "START_TIME_ASC"}')
    return [run["state_type"] for run in json.loads(answer) if run["state_type"] != "SCHEDULED"]


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
    place.kill("prefect")  # that it forgets nobody's place
    until(lambda: asked(f"{place.environment['PREFECT_API_URL']}/health"))
    deployment(place, f"set={json.dumps(LONG)}")
    assert flow_states(place)[-1] in ("CANCELLED", "RUNNING")
    assert "CANCELLED" in flow_states(place)
    (flow,) = children(place.started["worker"][-1].pid)
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


def test_a_head_node_that_is_lost_ends_the_run_in_a_line_and_the_next_goes_on(place: Place) -> None:
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
    for node in ("head", *NODES):  # as a supervisor does
        place.kill(node)
        until(lambda log=place.folder / f"{node}.log": "runtime started" in log.read_text())
    assert subprocess.run(command, env=environment, cwd=place.folder).returncode == 0
    assert [record["state"] for record in records(place, "head is lost")] == ["failed", "completed"]


def lose(here: Place, node: str) -> None:
    """Kill a Ray node with all its processes."""
    lost = [here.started[node][-1].pid]
    for pid in lost:
        lost += children(pid)
    for pid in lost:
        os.kill(pid, signal.SIGKILL)
    (here.folder / f"{node}.log").unlink()


def test_a_worker_whose_ray_node_ends_does_too(place: Place) -> None:
    """Or it would stand there, and no run could start: whoever restarts it joins again."""
    environment = place.environment | {"RAY_HEAD": place.environment["PHRASEMODELS_RAY_ADDRESS"],
                                       "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
    command = ["sh", str(PROJECT / "infra" / "join.sh"), "sh", "-c", "touch joined; exec sleep 1000"]
    begun = subprocess.Popen(command, env=environment, cwd=place.folder)
    until((place.folder / "joined").exists)
    (node,) = [pid for pid in children(begun.pid) if "ray" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(node, signal.SIGKILL)
    assert begun.wait(30) == 128 + signal.SIGTERM


def test_two_nodes_that_run_the_same_table_at_once_end_with_the_same_bytes(place: Place) -> None:
    command = table("train.steps=200")
    folders = [place.folder / f"node of {name}" for name in ("one", "another")]
    begun = [
        subprocess.Popen(command, env=place.environment | {"PHRASEMODELS_STORE": "s3://phrases/both",
                         "PHRASEMODELS_CACHE": str(folder)}, cwd=place.folder, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
        for folder in folders
    ]  # fmt: skip
    for process in begun:
        said, _ = process.communicate(timeout=400)
        assert process.returncode == 0, said + told(place)
    one, another = ({a.key: a for a in Store(folder).artifacts()} for folder in folders)
    both = one.keys() & another.keys()  # a node brings no shards of a stage that is there
    assert {one[key].manifest["step"] for key in both} >= {"train", "translate", "score_translations", "compare"}
    assert [key for key in both if one[key].manifest["files"] != another[key].manifest["files"]] == []


def test_who_has_no_password_is_refused(place: Place) -> None:
    url = place.environment["PHRASEMODELS_MLFLOW_URI"] + "/api/2.0/mlflow/experiments/search"
    for secret in ("", "admin:wrong"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(f"{place.environment['PREFECT_API_URL']}/flow_runs/filter", b"{}", secret)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(url, b'{"max_results": 1}', secret)
    assert b"experiments" in asked(url, b'{"max_results": 1}')
    join = f"import ray; ray.init(address='{place.environment['PHRASEMODELS_RAY_ADDRESS']}'); print('joined')"
    for variables in ({"RAY_AUTH_TOKEN": "8" * 32}, {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""}):
        stranger = subprocess.run([sys.executable, "-c", join], env=place.environment | variables, capture_output=True,
                                  text=True, timeout=100)  # fmt: skip
        assert stranger.returncode != 0 and "joined" not in stranger.stdout
