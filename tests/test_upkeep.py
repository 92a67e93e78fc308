"""Upkeep of a store, and a store that several nodes share, against a real S3 server and a folder."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import PROJECT

from data.artifacts import describe
from data.remote import ObjectStorage
from data.store import Job, Step, Store, digest_of
from data.upkeep import collect, damage, lease, leased, trim, usage, waste
from flows.nodes import SharedCheckpoints
from infra.services import free_port

OLD = 30 * 86400


@dataclass(frozen=True)
class Text:
    text: str


def write(job: Job, settings: Text) -> dict:
    (job.out / "text").write_text("".join(job.inputs[n].file("text").read_text() for n in job.inputs) + settings.text)
    return {}


def compare(job: Job, settings: Text) -> dict:
    return write(job, settings)


def chain(store: Store, title: str, text: str) -> list[Step]:
    """Three steps that rest on one another, the last of which is a comparison; all are made."""
    first = Step(write, f"first {text}", Text(text))
    second = Step(write, f"second {text}", Text("b"), {"before": first})
    last = Step(compare, title, Text(title), {"row": second})
    store.run(last)
    return [first, second, last]


def age(store: Store, year: int = 2020) -> None:
    """Make everything in the store old: made in that year, if lately, and last used a month ago."""
    then = time.time() - OLD
    for path in store.root.rglob("*"):
        if path.name == "manifest.json":
            manifest = json.loads(path.read_text())
            if manifest["finished"] > "2022":
                path.write_text(json.dumps(manifest | {"finished": f"{year}-01-01T00:00:00+00:00"}))
        os.utime(path, (then, then))


def test_what_a_verdict_rests_on_stays_and_the_rest_goes(store: Store) -> None:
    steps = chain(store, "table", "a")
    orphan = store.run(Step(write, "orphan", Text("x")))
    (store.workspace("dead") / "checkpoints").mkdir(parents=True)
    (store.workspace("dead") / "checkpoints" / "weights").write_text("1234")
    torn = store.root / "objects" / "write" / "torn"
    torn.mkdir()
    age(store)
    assert {w.path for w in collect(store)} == {orphan.path, store.workspace("dead"), torn}
    assert all(store.find(step) for step in steps)
    assert not orphan.path.exists()
    assert not list(store.root.glob("work/*"))
    assert collect(store) == []


def test_what_was_made_or_used_lately_stays(store: Store) -> None:
    step = Step(write, "orphan", Text("x"))
    store.run(step)
    assert waste(store) == []
    age(store)
    assert len(waste(store)) == 1
    store.find(step)
    assert waste(store) == []
    assert len(waste(store, days=0)) == 1


def test_only_the_newest_verdicts_of_a_table_count_if_asked(store: Store) -> None:
    old = chain(store, "table", "a")
    age(store, 2020)
    new, other = chain(store, "table", "z"), chain(store, "another table", "a")
    age(store, 2021)
    assert waste(store) == []
    # of the old verdict only itself: what it rested on, another table's verdict rests on too
    assert {thing.path for thing in collect(store, newest=1)} == {store.where(old[-1].name, old[-1].key)}
    assert all(store.find(step) for step in [*new, *other])


HOLDER = """
import sys, time
from pathlib import Path
from data.store import Store
from data.upkeep import lease
with lease(Store(Path(sys.argv[1])), [sys.argv[2]]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_run_under_way_keeps_what_it_needs_until_it_is_killed(store: Store) -> None:
    step = Step(write, "orphan", Text("x"))
    store.run(step)
    age(store)
    command = [sys.executable, "-c", HOLDER, str(store.root), step.key]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "held\n"
        assert collect(store, days=0) == []
        run.kill()
    assert leased(store) == set()
    assert len(collect(store, days=0)) == 1


def test_usage_counts_bytes_and_damage_names_the_verdict(store: Store) -> None:
    first, *_ = chain(store, "table", "a")
    rows = {row["what"]: row for row in usage(store)}
    assert rows["write"]["artifacts"] == rows["write"]["kept"] == 2
    assert damage(store) == []
    store.find(first).file("text").write_text("A")
    ((artifact, what, resting),) = damage(store)
    assert (artifact.key, resting) == (first.key, ["table"])
    assert "digest" in what


def test_the_command_line_says_what_it_would_do_and_does_it(cli, tmp_path: Path) -> None:
    store = Store(tmp_path / "store").open()
    chain(store, "table", "a")
    store.run(Step(write, "orphan", Text("x")))
    age(store)
    rows = json.loads(cli("store", "gc", "--dry-run", "--json").stdout)
    assert [row["label"] for row in rows] == ["orphan"]
    assert cli("store", "verify").returncode == 0
    assert "1 things" in cli("store", "gc").stdout
    assert "1 things" not in cli("store", "gc").stdout
    next(store.root.rglob("text")).write_text("damaged")
    done = cli("store", "verify")
    assert done.returncode == 1
    assert "verdicts rest on it: table" in done.stdout
    assert "compare" in cli("store", "du").stdout


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a bucket on a server of our own."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    port, log = free_port(), tmp_path_factory.mktemp("s3") / "log"
    variables = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y",
                 "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with pytest.MonkeyPatch.context() as patch, log.open("wb") as out:
        for name, value in variables.items():
            patch.setenv(name, value)
        server = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            import boto3

            client = boto3.client("s3")
            until = time.monotonic() + 60
            while True:
                try:
                    client.create_bucket(Bucket="phrases")
                    break
                except Exception:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.1)
            yield "s3://phrases"
        finally:
            server.kill()
            server.wait()


@pytest.fixture(params=["file", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStorage:
    url = f"file://{tmp_path}/shared" if request.param == "file" else request.getfixturevalue("s3")
    return ObjectStorage(f"{url}/{tmp_path.name}")


@pytest.fixture
def nodes(shared: ObjectStorage, tmp_path: Path) -> list[Store]:
    return [Store(tmp_path / name, shared).open() for name in ("one", "two")]


def test_what_one_node_makes_another_finds(nodes: list[Store]) -> None:
    steps = chain(nodes[0], "table", "a")
    for step in steps:
        found = nodes[1].find(step)
        assert found.file("text").read_bytes() == nodes[0].find(step).file("text").read_bytes()
        assert found.path.is_relative_to(nodes[1].root)
    assert not list(nodes[1].root.glob("work/*"))


def racing(job: Job, settings: Text) -> dict:
    """Another node makes the same thing, with other bytes, while this one is at work."""
    (job.out / "text").write_text(job.key if job.store.root.name == "two" else "mine")
    if job.store.root.name == "one":
        Store(job.store.root.parent / "two", job.store.shared).run(Step(racing, "race"))
    return {}


def test_of_two_nodes_that_make_a_key_at_once_one_wins_for_both(nodes: list[Store]) -> None:
    step = Step(racing, "race")
    assert nodes[0].run(step).file("text").read_text() == step.key
    assert nodes[1].find(step).file("text").read_text() == step.key


@pytest.mark.parametrize("damage", ["flip", "delete", "manifest"])
def test_damage_in_the_storage_is_no_hit_and_is_made_again(nodes: list[Store], damage: str) -> None:
    step = Step(write, "step", Text("abc"))
    shared = nodes[0].shared
    nodes[0].run(step)
    (blob,), (manifest,) = shared.listed("blobs"), shared.listed("manifests")
    if damage == "delete":
        shared.files.rm_file(blob)
    else:
        shared.files.pipe_file(*((blob, b"abd") if damage == "flip" else (manifest, b"{")))
    assert nodes[1].find(step) is None
    assert nodes[1].run(step).file("text").read_text() == "abc"
    shutil.rmtree(nodes[0].root)
    assert nodes[0].open().find(step).file("text").read_text() == "abc"


def test_the_cache_keeps_its_limit_and_nothing_is_lost(nodes: list[Store]) -> None:
    steps = [Step(write, str(n), Text(str(n) * 1000)) for n in range(5)]
    for number, step in enumerate(steps):
        nodes[0].run(step)
        os.utime(nodes[0].where(step.name, step.key) / "manifest.json", (2e9 + number, 2e9 + number))
    with lease(nodes[0], [steps[0].key]):
        assert {a.key for a in trim(nodes[0], 2500)} == {step.key for step in steps[1:4]}
    assert [nodes[0].find(step).file("text").read_text()[0] for step in steps] == list("01234")


def test_the_storage_keeps_verdicts_and_runs_of_other_nodes(nodes: list[Store]) -> None:
    steps = chain(nodes[0], "table", "a")
    shared = nodes[0].shared
    orphan, needed = Step(write, "orphan", Text("x")), Step(write, "needed", Text("y"))
    for step in (orphan, needed):
        nodes[0].run(step)
    with shared.lease([needed.key]):
        assert shared.collect(days=1) == []
        assert len(shared.collect(days=-1, dry=True)) == len(shared.collect(days=-1)) == 2  # a manifest and its blob
    shutil.rmtree(nodes[0].root)
    nodes[0].open()
    assert nodes[0].find(orphan) is None
    assert all(nodes[0].find(step) for step in [*steps, needed])
    assert shared.leased() == set()


def test_checkpoints_travel_and_all_workers_go_on_from_the_same(shared: ObjectStorage, tmp_path: Path) -> None:
    here, there = (SharedCheckpoints(shared, "key", tmp_path / name) for name in ("here", "there"))
    for step in (5, 10):
        checkpoint(here.folder, step)
        here.push()
    checkpoint(there.folder, 15)  # was never kept: the others do not have it
    there.pull()
    assert [path.name for path in there.folder.iterdir()] == ["step-00000010"]
    assert (there.folder / "step-00000010" / "weights").read_text() == "10"
    assert pickle.loads(pickle.dumps(there)) == there
    shared.remove("checkpoints", "key")
    assert shared.listed("checkpoints", "key") == []


def checkpoint(folder: Path, step: int) -> None:
    path = folder / f"step-{step:08d}"
    path.mkdir(parents=True)
    (path / "weights").write_text(str(step))
    state = {"key": "key", "files": {"weights": describe(path / "weights")}, "progress": {"step": step}}
    (path / "state.json").write_text(json.dumps(state | {"digest": digest_of(state)}))


def test_a_storage_that_does_not_work_is_named_and_no_secret_is(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "known")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(OSError, match="object storage s3://nowhere does not work") as error:
        Store(tmp_path, ObjectStorage("s3://nowhere")).open()
    assert "hush-hush" not in str(error.value)
