"""Faults: SIGKILL at every point of every step, a full disk, a read-only store, a clock set back, a storage that vanishes."""

import datetime
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ISOLATED, PROJECT
from killed import resumed
from running import small_corpus

from phrasemodels.data.store.gc import collect, lease, leased_keys
from phrasemodels.data.store.shared import ObjectStorage
from phrasemodels.data.store.store import Job, Step, Store

SETTINGS = ("train.steps=10", "train.evaluate_every=5", "train.checkpoint_every=5", "train.batch_tokens=600",
            *small_corpus(60, 10, 10))  # fmt: skip

# One process imports everything and forks a child for each kill, so that a kill does not cost the time of imports.
MATRIX = """
import hashlib, json, os, signal, sys
from pathlib import Path
from phrasemodels.data.store import store as stores
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.tasks.train import trainer as train

root, points = Path(sys.argv[1]), []
chosen = experiment("000/table1/sample/phrase-k2", sys.argv[3:])

def reached(step, point):
    points.append([step, point])
    if [step, point] == victim:
        os.kill(os.getpid(), signal.SIGKILL)

def watch():
    # the points: before a step, after its files are written, after its manifest is written, after it is published
    make, write, replace, save = stores.Store._make, stores.write_durably, os.replace, train.save
    stack = []
    def _make(self, step, *rest):
        stack.append(step.label)
        reached(step.label, "before write")
        made = make(self, step, *rest)
        reached(stack.pop(), "after commit")
        return made
    def write_durably(path, text):
        if path.name == stores.MANIFEST:
            reached(stack[-1], "after write")
        write(path, text)
        if path.name == stores.MANIFEST:
            reached(stack[-1], "before commit")
    def saving(folder, model, best, optimiser, progress, key, **others):
        save(folder, model, best, optimiser, progress, key, **others)
        reached(stack[-1], f"checkpoint {progress.step}")
    stores.Store._make, stores.write_durably, train.save = _make, write_durably, saving

def run(folder, kill, points_file=None):
    # run the pipeline in a child that is killed at a point; return the child's wait status
    global victim
    if (child := os.fork()) == 0:
        victim = kill
        watch()
        stores.Store(folder).open().run(chosen.steps(0).scored)
        if points_file:
            points_file.write_text(json.dumps(points))
        os._exit(0)
    return os.waitpid(child, 0)[1]

def content(folder):
    return {f"{a.manifest['step']} {a.key} {name}": file["sha256"] for a in stores.Store(folder).artifacts()
            for name, file in a.manifest["files"].items() if name != "history.json"}

assert run(root / "undisturbed", None, root / "points") == 0
matrix = json.loads((root / "points").read_text())
some = [int(share * (len(matrix) - 1) / 3) for share in range(4)] if sys.argv[2] == "some" else range(len(matrix))
matrix = [matrix[place] for place in some]
for step, point in matrix:
    ended = run(root / "killed", [step, point])
    print(f"{'killed' if ended == signal.SIGKILL else f'ended {ended}':>9}  {point:<14} {step}", flush=True)
    assert ended == signal.SIGKILL, (step, point)
assert run(root / "killed", None) == 0
assert content(root / "killed") == content(root / "undisturbed")
left = [p for p in (root / "killed" / "work").iterdir()]
assert not left, left
print(len(matrix), "kills,", len(content(root / "killed")), "files, the same bytes")
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("points", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_a_pipeline_killed_at_every_point_ends_with_the_same_bytes(points: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MATRIX, str(tmp_path), points, *SETTINGS]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=3000)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("killed") >= (4 if points == "some" else 20)
    steps = {line.split()[3] for line in done.stdout.splitlines() if line.split()[1:3] == ["after", "commit"]}
    assert points == "some" or len(steps) >= 5, "generation, vocabulary, phrases, training, translation, scores"


WRITE = """
import sys
from pathlib import Path
from phrasemodels.data.store.store import Step
from phrasemodels.data.store.store import Store
def write(job, settings):
    (job.out / "text").write_bytes(b"x" * int(sys.argv[2]))
    return {}
try:
    store = Store(Path(sys.argv[1])).open()
    print("made", store.run(Step(write, "write")).key)
except OSError as error:
    print(error)
print(sorted(str(p) for p in Path(sys.argv[1]).rglob("text")))
"""


@pytest.mark.skipif(not ISOLATED, reason="needs a mount namespace")
@pytest.mark.parametrize(
    ("options", "size", "message"),
    [
        (
            "size=200k",
            1_000_000,
            "the disk of .* is full: free some space, or choose another folder with PHRASEMODELS_STORE",
        ),
        ("size=200k,ro", 10, "cannot be written to .Read-only file system.*PHRASEMODELS_STORE"),
        ("size=200k", 10, "made"),
    ],
)
def test_a_full_or_read_only_disk_is_named_and_leaves_no_partial_file(tmp_path, options, size, message) -> None:
    script = f'mount -t tmpfs -o {options} none "{tmp_path}" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", WRITE, str(tmp_path), str(size)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    printed, left = done.stdout.splitlines()
    assert re.search(message, printed), done.stdout + done.stderr
    assert (left == "[]") == (message != "made")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("workers", "then", "weights"),
    [(0, 0, "the same bits"), (1, 1, "the same bits"), (2, 2, "the same bits"), (2, 1, "weights differ by")],
)
def test_a_killed_training_resumes_with_the_same_weights(workers: int, then: int, weights: str) -> None:
    right, said = resumed(workers, then, step=18)
    assert right and re.search(rf"killed at step \d+ of 60, went on with .*{weights}", said), said


FORGETFUL = """
from phrasemodels.tasks.train import checkpoints

checkpoints.resume = lambda folder, model, *rest: (checkpoints.Progress(), checkpoints.copied(model))
"""


@pytest.mark.slow
def test_a_training_that_starts_anew_is_noticed_although_its_bits_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FORGETFUL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(PROJECT)]))
    right, said = resumed(0, 0, step=18)
    assert not right and "did not go on, but began at steps 0, with 0: the same bits" in said


def write(job: Job, settings: str) -> dict[str, Any]:
    (job.out / "text").write_text(settings)
    return {}


def test_a_clock_set_back_loses_no_artifact(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Step(write, "first", "a")
    store.run(first)
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3650)

    class Earlier(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return before

    monkeypatch.setattr(datetime, "datetime", Earlier)
    monkeypatch.setattr(time, "time", before.timestamp)
    second = Step(write, "second", "b", {"before": first})
    assert store.run(second).manifest["finished"].startswith(str(before.year))
    assert store.find(first) and store.find(second)
    with lease(store, [first.key]):
        assert leased_keys(store) == {first.key}
        assert collect(store) == [], "artifacts from the future are recent"
    monkeypatch.undo()
    assert store.find(first) and store.find(second)


def test_a_step_whose_storage_vanished_is_published_once_it_is_back(tmp_path: Path) -> None:
    there, gone, made = tmp_path / "s3", tmp_path / "gone", []

    def cut(job: Job, settings: None) -> dict[str, Any]:
        (job.out / "text").write_text("text")
        made.append(there.rename(gone))
        there.write_text("in the way")
        return {}

    store = Store(tmp_path / "near", ObjectStorage(there.as_uri())).open()
    with pytest.raises(OSError, match=r"object storage file:.* does not work"):
        store.run(Step(cut, "cut"))
    assert not list(store.artifacts()), "an artifact that is not published does not count"
    there.unlink()
    gone.rename(there)
    assert store.run(Step(cut, "cut")).file("text").read_text() == "text"
    assert len(made) == 1, "the step ran once; only its publication was repeated"
    other = Store(tmp_path / "far", ObjectStorage(there.as_uri())).open()
    assert other.find(Step(cut, "cut"))
