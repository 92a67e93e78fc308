"""The kill matrix: at every stage, at three moments, SIGKILL to every kind of process of a cluster.

The run, or a later start of it, must end with the bytes of an undisturbed run, and with each row in MLflow once.
PM_RUNS="000: Ray worker" restricts the matrix to one of its runs; PM_STORE=s3://phrases keeps the stores on object storage.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster import Place, begin, logs, until
from conftest import CLI, PROJECT, copy_project
from points import MOMENTS, NODE, PIDS, PLAN
from running import small_corpus

from phrasemodels.data.store.store import Store
from phrasemodels.flows.report.page import PAGE
from phrasemodels.infra.tracking import Tracker
from phrasemodels.tasks.train.trainer import HISTORY


class Work(NamedTuple):
    """A table of one row, and its stages at which processes are killed."""

    command: tuple[str, ...]
    settings: tuple[str, ...]
    stages: tuple[str, ...]

    @property
    def points(self) -> list[str]:
        return [f"{stage}, {moment}" for stage in self.stages for moment in MOMENTS]


TRAIN = ("train.steps=12", "train.evaluate_every=6", "train.checkpoint_every=4")
SIZE = small_corpus(60, 10, 10)
WORK = {
    "000": Work(
        ("--paper", "000", "--table", "1", "--profile", "laptop", "--row", "phrase-k2"),
        (*TRAIN, "train.batch_tokens=600"),
        ("fetch_corpus", "read_split", "tokenise", "tokenise_shard", "vocabulary", "phrases", "phrase_shard", "train",
         "checkpoint", "translate", "score_translations", "log", "compare", "report"),
    ),
    # a parser is trained and adds trees to records, in Ray actors
    "001": Work(
        ("--paper", "001", "--table", "phrases", "--profile", "sample", "--row", "own-parser"),
        (*TRAIN, *SIZE, *(f"recipe.parsed.{setting}" for setting in (*TRAIN, *SIZE))),
        ("tree_numbers", "tree_shard", "train", "add_trees", "add_trees_to_shard"),
    ),
}  # fmt: skip
DEPLOYED = "Prefect worker"  # its runs are those of a deployment
ALONE = ("Ray worker", "Train worker", DEPLOYED, NODE)  # killed at every point of one run
SERVICES = {"raylet": "node-1", "Prefect server": "prefect", "MLflow server": "mlflow", "Postgres": "postgres"}
OTHERS = ("driver", *SERVICES)
# the least number of kills of each run: a worker of Ray is killed only at stages that it runs
KILLS = {"000: Ray worker": 10, "000: Train worker": 3, "001: Ray worker": 3}
# together, the runs kill every victim at every point
RUNS = [
    *KILLS,
    f"000: {DEPLOYED}",
    f"000: {NODE}",
    *(f"{work}: others from {victim}" for work in WORK for victim in OTHERS),
]
LINES = {"train": 60, "val": 10, "test_2016_flickr": 10}
NOBODY, MOST_STARTS = "nobody", 60

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(shutil.which("postgres") is None, reason="needs Postgres"),
]


def plan(name: str) -> dict[str, str]:
    """Return the victim at each point of a run: one kind at every point, or the other victims in turn."""
    work, who = name.split(": ")
    points = WORK[work].points
    if who in ALONE:
        return dict.fromkeys(points, who)
    if who == NOBODY:
        return {}
    first = OTHERS.index(who.removeprefix("others from "))
    return {point: OTHERS[(number + first) % len(OTHERS)] for number, point in enumerate(points)}


def small_project(folder: Path) -> Path:
    """Make a copy of the project with the points built in, and with a Multi30k of a few made-up lines; return its folder."""
    copy_project(folder / "project", "results")
    shutil.copy(PROJECT / "tests" / "sweeps" / "points.py", folder / "project" / "sitecustomize.py")
    manifest = folder / "project" / "phrasemodels" / "data" / "manifests" / "multi30k.toml"
    text = manifest.read_text()
    (folder / "mirror" / "multi30k").mkdir(parents=True)
    for split, count in LINES.items():
        for language, words in (("en", "a man walks two dogs home"), ("de", "ein mann geht zwei hunde heim")):
            name = f"{split}.{language}"
            chosen = words.split()
            lines = "".join(
                " ".join(chosen[(i * k) % 6] for k in range(1, 4 + i % 4)) + f" {i % 7} .\n" for i in range(count)
            )
            (folder / "mirror" / "multi30k" / f"{name}.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
            digest = hashlib.sha256(lines.encode()).hexdigest()
            text = re.sub(
                rf'(name = "{name}"\nsha256 = ")\w+("\nbytes = )\d+', rf"\g<1>{digest}\g<2>{len(lines)}", text
            )
    for rows, count in ((29000, 60), (1014, 10), (1000, 10)):
        text = text.replace(f"rows = {rows}", f"rows = {count}")
    manifest.write_text(text)
    return folder / "project"


class Watchman(threading.Thread):
    """Restarts services that were killed, and writes the ids of those that answer to the file PIDS."""

    def __init__(self, place: Place) -> None:
        super().__init__(daemon=True)
        self.place, self.driver, self.over = place, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            for name in {*self.services.values()}:
                if self.place.started[name][-1].poll() is not None:
                    self.tell({})
                    (self.place.folder / f"{name}.log").unlink(missing_ok=True)
                    if name == "worker":  # its run, which is in its process group, goes on
                        self.place.start(name, *self.place.started[name][0])
                    else:
                        self.place.kill(name)
            pids = {victim: self.pid(victim, name) for victim, name in self.services.items() if self.answers(name)}
            self.tell(pids | {"driver": self.driver})

    @property
    def services(self) -> dict[str, str]:
        """The names of the services that can be killed, by victim; the worker of Prefect is not always there."""
        known = SERVICES | {NODE: "node-2", DEPLOYED: "worker"}
        return {victim: name for victim, name in known.items() if name in self.place.started}

    def tell(self, pids: dict[str, int]) -> None:
        aside = self.place.folder / "points" / "aside"
        aside.write_text(json.dumps(pids))
        os.replace(aside, self.place.folder / "points" / PIDS)

    def pid(self, victim: str, name: str) -> int:
        process = self.place.started[name][-1]
        if victim != "raylet":
            return process.pid
        found = subprocess.run(["pgrep", "-P", str(process.pid), "-x", "raylet"], capture_output=True, text=True).stdout
        return int((found.split() or ["0"])[0])

    def answers(self, name: str) -> bool:
        """Return whether a service answers. While it restarts, its log or its file of process ids is missing or empty."""
        at = {"prefect": f"{self.place.environment['PREFECT_API_URL']}/health",
              "mlflow": f"{self.place.environment['PHRASEMODELS_MLFLOW_URI']}/health"}  # fmt: skip
        try:
            if name.startswith("node"):
                return "runtime started" in (self.place.folder / f"{name}.log").read_text()
            if name == "worker":
                return "started" in (self.place.folder / "worker.log").read_text()
            if name == "postgres":
                return (self.place.folder / "pg" / "postmaster.pid").read_text().split()[-1:] == ["ready"]
            urllib.request.urlopen(at[name], timeout=2).close()
            return True
        except OSError:
            return False


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    pytest.importorskip("moto")
    pytest.importorskip("psycopg2")
    folder = Path(tempfile.mkdtemp(prefix="pm-"))
    here = Place(folder, small_project(folder))
    (folder / "points").mkdir()
    here.environment |= {"PM_POINTS": str(folder / "points"), "PHRASEMODELS_MIRROR": str(folder / "mirror")}
    write_plan(here, f"000: {NOBODY}")
    try:
        begin(here)
        yield here
    finally:
        here.ended()
        if "KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)


def write_plan(here: Place, name: str) -> None:
    (here.folder / "points" / name).mkdir(exist_ok=True)
    (here.folder / "points" / PLAN).write_text(json.dumps({"name": name, "points": plan(name)}))


def completed(here: Place, watchman: Watchman, name: str) -> int:
    """Start a run until it completes; return the number of starts."""
    work = WORK[name.split(": ")[0]]
    command = [*CLI, "reproduce", *work.command, "--seeds", "1", *(w for s in work.settings for w in ("--set", s))]
    folder = store_of(here, name)
    store = f"{os.environ['PM_STORE']}/{folder.name}" if "PM_STORE" in os.environ else str(folder)
    environment = here.environment | {"PHRASEMODELS_STORE": store, "PHRASEMODELS_CACHE": str(folder)}
    if name.endswith(DEPLOYED):
        begin_worker(here, environment)
        command = deployment_of(work)
    for start in range(1, MOST_STARTS):
        until(lambda: len(json.loads((here.folder / "points" / PIDS).read_text())) == len(watchman.services) + 1)
        with (here.folder / f"driver {name}.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, cwd=here.folder, stdout=log, stderr=log)
            watchman.driver = process.pid
            ended = process.wait(400)
            watchman.driver = 0
        if not ended:
            return start
    raise AssertionError(f"killing {name}: it does not end\n{logs(here)}")


def deployment_of(work: Work) -> list[str]:
    """Return the command that runs a work's table as a run of the deployment `sample`."""
    asked = dict(zip(work.command[::2], work.command[1::2], strict=True))
    parameters = {"paper": asked["--paper"], "table": asked["--table"], "profile": asked["--profile"],
                  "rows": [asked["--row"]], "seeds": 1, "set": work.settings}  # fmt: skip
    options = (word for name, value in parameters.items() for word in ("--param", f"{name}={json.dumps(value)}"))
    return [sys.executable, "-m", "prefect", "--no-prompt", "deployment", "run", "reproduce/sample", "--watch",
            "--watch-interval", "1", *options]  # fmt: skip


def begin_worker(here: Place, environment: dict[str, str]) -> None:
    """Create the deployments and start a worker of Prefect, whose runs have these variables."""
    shutil.copy(PROJECT / "prefect.yaml", here.folder)
    for arguments in (("work-pool", "create", "phrasemodels", "--type", "process"), ("deploy", "--all")):
        done = here.prefect(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    here.environment |= {name: environment[name] for name in ("PHRASEMODELS_STORE", "PHRASEMODELS_CACHE")}
    here.start("worker", sys.executable, "-m", "prefect", "worker", "start", "--pool", "phrasemodels")


def store_of(here: Place, name: str) -> Path:
    return here.folder / f"store-{re.sub('[^0-9A-Za-z]+', '-', name)}"


def content(folder: Path) -> dict[str, str]:
    """Return the digest of each file, but for those that have seconds and the page, which names its runs in MLflow."""
    return {f"{a.manifest['step']} {a.key} {name}": file["sha256"] for a in Store(folder).artifacts()
            for name, file in a.manifest["files"].items() if name not in (HISTORY, PAGE)}  # fmt: skip


def rows_once(here: Place) -> None:
    """Check that all runs in MLflow have finished and have each row once; then remove them."""
    client = Tracker(here.environment["PHRASEMODELS_MLFLOW_URI"]).client()
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert sorted(run.data.tags["phrasemodels.kind"] for run in runs) == ["table", "training"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        for metric in run.data.metrics:
            steps = [row.step for row in client.get_metric_history(run.info.run_id, metric)]
            assert len(steps) == len(set(steps)), (metric, steps)
            assert metric not in ("loss", "dev_loss") or set(steps) >= {6, 12}, (metric, steps)
        client.delete_run(run.info.run_id)


def test_a_run_ends_with_the_same_bytes_and_rows_whatever_is_killed_at_any_point(place: Place, monkeypatch) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, place.environment[name])
    watchman = Watchman(place)
    watchman.start()
    chosen = os.environ.get("PM_RUNS", ",".join(RUNS)).split(",")
    assert {*chosen} <= {*RUNS}, f"PM_RUNS: some of {RUNS}"
    cells: dict[tuple[str, str], str] = {}
    try:
        for work in WORK:
            runs = [name for name in chosen if name.startswith(work)]
            for name in (f"{work}: {NOBODY}", *runs) if runs else ():
                seen = one_run(place, watchman, name)
                cells |= {(point, victim): seen.get(point, "not reached") for point, victim in plan(name).items()}
    finally:
        watchman.over.set()
        watchman.join()
        print_matrix(cells)


def one_run(place: Place, watchman: Watchman, name: str) -> dict[str, str]:
    """Run one line of the matrix until it completes; return what happened at each point."""
    work = name.split(": ")[0]
    undisturbed = f"{work}: {NOBODY}"
    write_plan(place, name)
    began = time.monotonic()
    starts = completed(place, watchman, name)
    seen = {path.name: path.read_text() for path in (place.folder / "points" / name).iterdir()}
    assert seen.keys() >= set(WORK[work].points) or name != undisturbed
    rows_once(place)
    assert content(store_of(place, name)) == content(store_of(place, undisturbed)), name
    assert not list((store_of(place, name) / "work").iterdir())
    kills = [*seen.values()].count("killed")
    print(f"{name}: {kills} kills, {starts} starts, {time.monotonic() - began:.0f} s", flush=True)
    assert kills >= KILLS.get(name, len(plan(name)) * 6 // 7), f"{name}: too few kills"
    return seen


def print_matrix(cells: dict[tuple[str, str], str]) -> None:
    """Print the matrix; rows are points, columns victims. x: killed, same result. o: no such process was alive there."""
    marks = {"killed": "x", "nobody": "o", "not reached": "?"}
    victims = (*ALONE, *OTHERS)
    print(f"{'':<32}" + "".join(f"{victim:>16}" for victim in victims))
    for point in dict.fromkeys(point for point, _ in cells):
        print(f"{point:<32}" + "".join(f"{marks.get(cells.get((point, victim), ''), ''):>16}" for victim in victims))
