"""A store with shared storage: a real S3 server, and a folder that several nodes share."""

import contextlib
import dataclasses
import errno
import http.server
import json
import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from serving import serving
from steps import OLD, Text, age, chain, write

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store import shared as shared_storage
from phrasemodels.data.store.artifacts import Artifact, damage_of, describe
from phrasemodels.data.store.gc import DAY, artifact_bytes, damage, lease, trim, trimmed
from phrasemodels.data.store.shared import LEASE_SECONDS, ObjectStorage
from phrasemodels.data.store.store import Executor, Job, LostFileError, Step, Store, digest_of
from phrasemodels.flows.results import sql
from phrasemodels.flows.run.execute import SharedCheckpoints, progress_of
from phrasemodels.infra.services import free_port
from phrasemodels.tasks.prepare.sharded import FIRST_ROWS, SHARD, Shard, map_shards, read_shards, write_shards


def aws(patch: pytest.MonkeyPatch, url: str, **more: str) -> None:
    """Name the S3 server at this URL to all clients."""
    pytest.importorskip("s3fs")
    names = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y", "DEFAULT_REGION": "us-east-1"}
    for name, value in {**names, "EC2_METADATA_DISABLED": "true", **more}.items():
        patch.setenv(f"AWS_{name}", value)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URL of a bucket on an S3 server that is started here."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port := free_port(), verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        aws(patch, f"http://127.0.0.1:{port}")
        server.start()
        ObjectStorage("s3://phrases").files.mkdir("phrases")
        yield "s3://phrases"
        server.stop()


@pytest.fixture(params=["file", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStorage:
    url = f"file://{tmp_path}/shared" if request.param == "file" else request.getfixturevalue("s3")
    return ObjectStorage(f"{url}/{tmp_path.name}")


@pytest.fixture
def folder(tmp_path: Path) -> ObjectStorage:
    """Shared storage in a folder."""
    return ObjectStorage((tmp_path / "shared").as_uri())


@pytest.fixture
def nodes(shared: ObjectStorage, tmp_path: Path) -> list[Store]:
    return [Store(tmp_path / name, shared).open() for name in ("one", "two")]


def test_a_folder_with_other_things_is_not_taken_for_a_store(tmp_path: Path) -> None:
    (tmp_path / "passwd").touch()
    with pytest.raises(OSError, match=r"this folder holds something else than a store; name an empty one"):
        ObjectStorage(tmp_path.as_uri()).open()
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]
    for _ in range(2):
        ObjectStorage((tmp_path / "new").as_uri()).open()


def test_a_node_finds_the_artifacts_of_another_node(nodes: list[Store]) -> None:
    steps = chain(nodes[0], "table", "a")
    for step in steps:
        found = nodes[1].find(step)
        assert found.file("text").read_bytes() == nodes[0].find(step).file("text").read_bytes()
        assert found.path.is_relative_to(nodes[1].root)
    assert not list(nodes[1].root.glob("work/*"))


def test_what_another_node_made_is_known_here_and_downloaded_when_a_file_is_asked_for(nodes: list[Store]) -> None:
    one, two = nodes
    steps = [*chain(one, "table", "a"), *chain(two, "table", "b")]
    keys, theirs = ([artifact.key for artifact in store.all_artifacts()] for store in (one, two))
    assert keys == theirs and {*keys} == {step.key for step in steps} == {place.name for place in two.present()}
    assert one.present() == two.present()
    elsewhere = next(artifact for artifact in two.all_artifacts() if artifact.key == steps[0].key)
    assert not elsewhere.path.exists() and elsewhere.manifest == one.find(steps[0]).manifest
    assert elsewhere.file("text").read_bytes() == one.find(steps[0]).file("text").read_bytes()
    lost = next(artifact for artifact in two.all_artifacts() if artifact.key == steps[1].key)
    shutil.rmtree(one.where(steps[1].name, steps[1].key))
    one.shared.files.rm(one.shared.path("manifests"), recursive=True)
    assert {artifact.key for artifact in two.all_artifacts()} == {steps[0].key, *(step.key for step in steps[3:])}
    with pytest.raises(OSError, match="the shared storage has it no longer"):
        lost.file("text")


def racing(job: Job, settings: Text) -> dict:
    """While this node makes the step, another node makes the same step with other bytes."""
    (job.out / "text").write_text(job.key if job.store.root.name == "two" else "mine")
    if job.store.root.name == "one":
        Store(job.store.root.parent / "two", job.store.shared).run(Step(racing, "race"))
    return {}


def test_if_two_nodes_make_a_key_both_use_the_bytes_of_the_first(nodes: list[Store]) -> None:
    step = Step(racing, "race")
    assert nodes[0].run(step).file("text").read_text() == step.key
    assert nodes[1].find(step).file("text").read_text() == step.key


@pytest.mark.parametrize("kind", ["flip", "delete", "manifest", "another's"])
def test_a_damaged_artifact_in_the_storage_is_not_used_and_is_made_again(nodes: list[Store], kind: str) -> None:
    step = Step(write, "step", Text("abc"))
    shared = nodes[0].shared
    nodes[0].run(step)
    (blob,), (manifest,) = shared.listed("blobs"), shared.listed("manifests")
    if kind == "delete":
        shared.files.rm_file(blob)
    elif kind == "another's":
        other = nodes[0].run(Step(write, "other", Text("abd")))
        shared.files.pipe_file(manifest, (other.path / "manifest.json").read_bytes())
        assert [found.key for found, *_ in shared.damage()] == [step.key]
    else:
        shared.files.pipe_file(*((blob, b"abd") if kind == "flip" else (manifest, b"{")))
    if kind == "flip":  # it has the right size, so it is noticed when it is read
        with pytest.raises(LostFileError, match="has it no longer, or damaged"):
            nodes[1].find(step).file("text")
    assert nodes[1].find(step) is None
    assert nodes[1].run(step).file("text").read_text() == "abc"
    shutil.rmtree(nodes[0].root)
    assert nodes[0].open().find(step).file("text").read_text() == "abc"


ROWS = 2 * FIRST_ROWS + 1


def numbers(job: Job, settings: None) -> dict[str, Any]:
    terms = {"licences": ["MIT"], "redistributable": True, "stand_in": False}
    return {**terms, **write_shards(job.out, pa.table({"n": range(ROWS)}))}


def square(job: Job, settings: None) -> dict[str, Any]:
    return map_shards(job, square_shard)


def square_shard(job: Job, settings: None) -> dict[str, Any]:
    found = read_shard(job.inputs["shard"].path)["n"].to_numpy() ** 2
    return {"dropped": 0, **write_shard(job.out / SHARD, pa.table({"n": found}))}


def total(job: Job, settings: None) -> dict[str, Any]:
    return {"total": sum(read_shards(job.inputs["rows"])["n"].to_pylist())}


def on(node: Store) -> Executor:
    """Return an executor that runs the shards of a step on another node, whose store would have the same path there."""

    def there(value: Shard) -> Shard:
        return dataclasses.replace(value, path=node.root.joinpath(*value.path.parts[-4:]))

    def call(function: Callable[..., Any], store: Store, step: Step) -> Artifact:
        moved = dataclasses.replace(step, inputs={name: there(value) for name, value in step.inputs.items()})
        found = pickle.loads(pickle.dumps(function(node, moved)))  # ours
        return dataclasses.replace(found, path=store.root.joinpath(*found.path.parts[-3:]), store=store)

    return Executor(map=lambda function, items: [call(function, *item) for item in items])


def files_in(node: Store, kind: str) -> list[str]:
    return sorted(path.name for path in node.root.glob(f"objects/{kind}/*/*.arrow"))


def test_no_byte_of_a_shard_passes_the_node_that_fans_out(nodes: list[Store]) -> None:
    driver, worker = nodes
    rows = Step(numbers, "numbers")
    worker.run(rows)
    shutil.rmtree(worker.root / "objects")
    squares = Step(square, "squares", inputs={"rows": rows})
    made = driver.run(squares, on(worker))
    assert not list(driver.root.glob("objects/*/*/*.arrow")) and files_in(worker, "square_shard") == ["shard.arrow"] * 3
    assert files_in(worker, "numbers") == ["00000.arrow", "00001.arrow", "00002.arrow"], "each shard by itself"
    assert driver.find(squares).manifest == made.manifest and driver.shared.damage() == damage(driver) == []
    assert artifact_bytes(driver.find(squares)) == 0 < artifact_bytes(worker.find(squares.inputs["rows"]))
    assert read_shard(made.file("00002.arrow"))["n"].to_pylist() == [(ROWS - 1) ** 2]
    assert files_in(driver, "square") == ["00002.arrow"], "what was asked for"
    alone = Store(driver.root.parent / "alone").open().run(squares)
    assert alone.manifest["files"] == made.manifest["files"] and damage_of(alone) is None


@pytest.mark.parametrize("lost", [0, 1])
def test_a_shard_that_the_storage_lost_is_made_again(nodes: list[Store], lost: int) -> None:
    """lost: the rows, or what was made from them; the driver's cache and the worker's know nothing of it."""
    driver, worker = nodes
    squares = Step(square, "squares", inputs={"rows": Step(numbers, "numbers")})
    steps = [squares.inputs["rows"], squares, Step(total, "total", inputs={"rows": squares})]
    driver.run(squares, on(worker))
    blob = driver.find(steps[lost]).manifest["files"]["00001.arrow"]
    shutil.rmtree(worker.root / "objects")
    for file in driver.root.glob("objects/*/*/*.arrow"):
        file.unlink()
    driver.shared.files.pipe_file(driver.shared.path("blobs", blob["sha256"][:2], blob["sha256"]), b"?" * blob["bytes"])
    if lost == 0:
        steps[2] = Step(total, "total", inputs={"rows": steps[0]})
    assert driver.run(steps[2], on(worker)).meta["total"] == sum(n ** (lost + 1) for n in range(ROWS))
    assert driver.shared.damage() == []


UNUSABLE = ["", ".", "..", "a/..", "/a", "a//b", "\\u0000", "\\ud800", "x" * 300, "x/" * 1200, "manifest.json/x"]
HARM = [
    *(('"text": {', f'"{name}": {{') for name in UNUSABLE),
    ('"text": {', f'"text/a": {{"bytes": 3, "sha256": "{"0" * 64}"}}, "text": {{'),
    ('"sha256": "', '"sha256": "abc", "was": "'),
    ('"sha256": "', '"sha256": "../../x", "was": "'),
    ('"label": "', '"label": "\\ud800'),
]


@pytest.mark.parametrize(("old", "new"), HARM)
def test_an_artifact_with_an_invalid_manifest_is_made_again(
    folder: ObjectStorage, tmp_path: Path, old: str, new: str
) -> None:
    step = Step(write, "step", Text("abc"))
    one, two, three = (Store(tmp_path / name, folder) for name in ("one", "two", "three"))
    one.open().run(step)
    (manifest,) = map(Path, folder.listed("manifests"))
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new, 1))
    assert [what for _, what, _ in folder.damage()] == [f"{manifest}: no manifest of its own"]
    assert two.open().run(step).file("text").read_text() == "abc"
    assert not list(two.root.glob("work/*"))
    assert three.open().find(step)


def test_the_cache_is_trimmed_to_its_limit_and_no_artifact_is_lost(nodes: list[Store]) -> None:
    steps = [Step(write, str(n), Text(str(n) * 1000)) for n in range(5)]
    for step in steps:
        nodes[0].run(step)
    age(nodes[0])
    for number, step in enumerate(steps):
        os.utime(nodes[0].where(step.name, step.key) / "manifest.json", (1.7e9 + number,) * 2)
    nodes[0].bring(nodes[0].where(steps[4].name, steps[4].key))
    with lease(nodes[0], [steps[0].key]), nodes[1].shared.lease([steps[1].key]):
        with pytest.raises(ValueError, match="no"), trimmed(nodes[0], 3500):
            raise ValueError("no")
        assert [step for step in steps if not nodes[0].load(nodes[0].where(step.name, step.key))] == steps[2:4]
        assert trim(nodes[0], 0) == [], "leased on this node, leased on another node, and just used"
    assert {a.key for a in trim(nodes[0], 1000)} == {step.key for step in steps[:2]}
    assert [nodes[0].find(step).file("text").read_text()[0] for step in steps] == list("01234")


@pytest.mark.parametrize("name", ["a[1]", "a*", "a b", "ä", "100%"])
def test_special_characters_in_a_file_url_name_the_right_folder(tmp_path: Path, name: str) -> None:
    shared = ObjectStorage((tmp_path / name / "shared").as_uri())
    first, *_ = chain(Store(tmp_path / "one", shared).open(), "table", "a")
    assert Store(tmp_path / "two", shared).open().find(first)
    with shared.lease([first.key]):
        assert shared.leased_keys() == {first.key: 1}
    assert len(shared.artifacts()) == 3
    assert (tmp_path / name / "shared" / "manifests").is_dir()


def test_a_lease_is_renewed_and_ends_soon_after_its_owner(folder: ObjectStorage, monkeypatch) -> None:
    assert LEASE_SECONDS <= 3600
    monkeypatch.setattr(shared_storage, "LEASE_SECONDS", 0.6)
    with folder.lease(["key"]):
        (path,) = folder.listed("leases")
        text = folder.texts_of([path])[path]
        time.sleep(0.8)
        assert folder.leased_keys() == {"key": 1}
    folder.files.pipe_file(path, text)  # its owner has died
    time.sleep(0.7)
    assert folder.leased_keys() == {}


@pytest.mark.parametrize("hours", [-5, 5, 50_000])
def test_a_lease_by_a_wrong_clock_holds_while_it_is_renewed(folder: ObjectStorage, hours: float) -> None:
    path = folder.path("leases", "x.json")
    folder.files.pipe_file(path, json.dumps({"keys": ["a"], "until": time.time() + hours * 3600}).encode())
    assert folder.leased_keys() == {"a": 1}
    os.utime(path, (time.time() - 4000,) * 2)
    assert folder.leased_keys() == {}


def test_the_progress_of_a_training_on_another_node_is_seen(folder: ObjectStorage, tmp_path: Path) -> None:
    there, here = (SharedCheckpoints(folder, "key", tmp_path / name / "work" / "key" / "checkpoints") for name in "ab")
    assert here.progress() is None
    there.folder.mkdir(parents=True)
    (there.folder / "progress.json").write_text('{"step": 7, "steps": 9}')
    with there.sharing_progress():
        (there.folder / "progress.json").write_text('{"step": 8, "steps": 9}')
    assert progress_of(Store(tmp_path / "b", folder), "key")["step"] == 8


def test_a_cache_is_trimmed_once_in_a_pause(folder: ObjectStorage, tmp_path: Path) -> None:
    store, step = Store(tmp_path / "one", folder).open(), Step(write, "step", Text("abc"))
    mark, left = store.root / "trimmed", []
    for last in (None, time.time(), 0.0):  # when the cache was last trimmed
        store.run(step).file("text")
        age(store)
        if last is not None:
            os.utime(mark, (last, last))
        with trimmed(store, 0, pause=3600.0):
            assert store.load(store.where(step.name, step.key))
        left.append(store.load(store.where(step.name, step.key)) is not None)
    assert left == [False, True, False]


def test_a_damaged_lease_of_another_node_fails_no_run(folder: ObjectStorage, tmp_path: Path) -> None:
    store, step = Store(tmp_path / "one", folder).open(), Step(write, "step", Text("abc"))
    folder.files.pipe_file(folder.path("leases", "x.json"), b"{}")
    with trimmed(store, 0):
        store.run(step)
    assert store.find(step)


def test_gc_keeps_artifacts_of_verdicts_and_of_leases_of_other_nodes(nodes: list[Store], monkeypatch) -> None:
    steps = chain(nodes[0], "table", "a")
    shared = nodes[0].shared
    orphan, needed = Step(write, "orphan", Text("x")), Step(write, "needed", Text("y"))
    for step in (orphan, needed):
        nodes[0].run(step)
    with shared.lease([needed.key]):
        assert shared.collect(days=1) == []
        later(monkeypatch, 2)
    with shared.lease([needed.key]):  # a lease of two days ago has ended with its owner
        assert len(shared.collect(days=1, dry=True)) == len(shared.collect(days=1)) == 2  # a manifest and its blob
    shutil.rmtree(nodes[0].root)
    nodes[0].open()
    assert nodes[0].find(orphan) is None
    assert all(nodes[0].find(step) for step in [*steps, needed])
    assert not shared.leased_keys()


def test_all_workers_continue_from_the_newest_shared_checkpoint(shared: ObjectStorage, tmp_path: Path) -> None:
    here, there = (SharedCheckpoints(shared, "key", tmp_path / name) for name in ("here", "there"))
    for step in (5, 10):
        checkpoint(here.folder, step)
        here.push()
    checkpoint(there.folder, 15)  # it was never uploaded, so other workers do not have it
    there.pull()
    assert [path.name for path in there.folder.iterdir()] == ["step-00000010"]
    assert (there.folder / "step-00000010" / "weights").read_text() == "10"
    assert pickle.loads(pickle.dumps(there)) == there
    shared.remove("checkpoints", "key")
    assert shared.listed("checkpoints", "key") == []


def test_two_runs_of_one_training_remove_no_checkpoint_of_each_other(
    nodes: list[Store], tmp_path: Path, monkeypatch
) -> None:
    shared = nodes[0].shared
    fast, slow, driver = (SharedCheckpoints(shared, "key", tmp_path / name) for name in ("fast", "slow", "driver"))
    for kept, step in ((fast, 10), (fast, 20), (slow, 5)):
        checkpoint(kept.folder, step)
        kept.push()
    driver.pull()
    assert [path.name for path in sorted(driver.folder.iterdir())] == ["step-00000005", "step-00000020"]
    checkpoint(driver.folder, 30)  # not uploaded yet
    for read, places in ((driver.fetch, 3), (driver.pull, 2)):
        read()
        assert len(list(driver.folder.iterdir())) == places
    with shared.lease(["key", "other"]), shared.lease(["key"]):
        assert shared.leased_keys() == {"key": 2, "other": 1}
    get = shared.files.get_file

    def gone(source: str, target: str) -> None:
        if "step-00000005" in source:
            shared.remove("checkpoints", "key", "step-00000005")
        get(source, target)

    monkeypatch.setattr(shared.files, "get_file", gone)
    shutil.rmtree(driver.folder)
    driver.pull()
    assert [path.name for path in driver.folder.iterdir()] == ["step-00000020"]


def checkpoint(folder: Path, step: int) -> None:
    path = folder / f"step-{step:08d}"
    path.mkdir(parents=True)
    (path / "weights").write_text(str(step))
    state = {"key": "key", "files": {"weights": describe(path / "weights")}, "progress": {"step": step}}
    (path / "state.json").write_text(json.dumps(state | {"digest": digest_of(state)}))


def test_a_broken_storage_is_named_without_its_credentials(tmp_path: Path, monkeypatch) -> None:
    aws(monkeypatch, f"http://127.0.0.1:{free_port()}", SECRET_ACCESS_KEY="hush-hush", MAX_ATTEMPTS="1")
    with pytest.raises(OSError, match="object storage s3://nowhere does not work") as error:
        Store(tmp_path, ObjectStorage("s3://nowhere")).open()
    assert "hush-hush" not in str(error.value)


def test_a_step_is_published_once_a_lost_endpoint_is_back(tmp_path: Path, monkeypatch) -> None:
    """moto keeps the storage in this process, so it outlives its server."""
    start = partial(pytest.importorskip("moto.server").ThreadedMotoServer, "127.0.0.1", port := free_port(), verbose=False)
    aws(monkeypatch, f"http://127.0.0.1:{port}", MAX_ATTEMPTS="1")
    servers, made = [start()], []

    def cut(job: Job, settings: None) -> dict[str, Any]:
        (job.out / "text").write_text("text")
        made.append(servers[-1].stop())
        return {}

    servers[0].start()
    near, far = (Store(tmp_path / name, ObjectStorage("s3://comes-and-goes/x")) for name in ("near", "far"))
    near.shared.files.mkdir("comes-and-goes")
    with pytest.raises(OSError, match="object storage s3://comes-and-goes/x does not work"):
        near.open().run(Step(cut, "cut"))
    assert not list(near.artifacts()), "an artifact that is not published does not count"
    servers.append(start())
    servers[1].start()
    try:
        assert near.run(Step(cut, "cut")).file("text").read_text() == "text"
        assert far.open().find(Step(cut, "cut"))
    finally:
        servers[1].stop()
    assert len(made) == 1, "the second run only publishes the artifact"


class Answers(http.server.BaseHTTPRequestHandler):
    """An S3 server that answers with the statuses in `left`. Its errors are as MinIO's: they do not name the condition."""

    protocol_version = "HTTP/1.1"
    left: ClassVar[list[int]] = []
    codes: ClassVar = {412: "PreconditionFailed", 409: "ConditionalRequestConflict", 403: "AccessDenied", 404: "NoSuchBucket"}

    def do_PUT(self) -> None:
        assert self.headers["If-None-Match"] == "*"
        self.rfile.read(int(self.headers["Content-Length"]))
        status = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        body = f"<Error><Code>{self.codes.get(status)}</Code><Message>no</Message></Error>".encode() * (status != 200)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as url:
        aws(monkeypatch, url)
        yield


@pytest.mark.parametrize(
    ("answers", "first"),
    [([200], True), ([412], False), ([409, 200], True), ([409, 409, 412], False), ([409], None), ([403], None), ([404], None)],
)  # fmt: skip
def test_publish_reads_the_http_status_of_any_s3_server(answering, monkeypatch, answers: list[int], first: bool | None) -> None:
    monkeypatch.setattr(Answers, "left", answers)
    storage = ObjectStorage(f"s3://bucket/{'-'.join(map(str, answers))}")
    broken = pytest.raises(OSError, match=f"{storage.url} does not work")
    with broken if first is None else contextlib.nullcontext():
        assert storage.publish(Path(), {"step": "step", "key": "key", "files": {}}) == first


def test_a_server_that_lets_the_second_publisher_win_is_refused(answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answers, "left", [200])
    with pytest.raises(OSError, match="ignores If-None-Match"):
        ObjectStorage("s3://bucket/second").open()


def test_settings_of_fsspec_name_no_other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs")
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": "http://127.0.0.1:9"})
    assert ObjectStorage("s3://bucket/settings").files.endpoint_url != "http://127.0.0.1:9"


@pytest.mark.timeout(20)
def test_a_pipe_in_a_shared_folder_is_not_read(folder: ObjectStorage, tmp_path: Path) -> None:
    for name in ("manifests/step/x.json", "leases/x.json", "blobs/ab/x"):
        place = Path(folder.path(name))
        place.parent.mkdir(parents=True)
        os.mkfifo(place)
    assert folder.artifacts() == [] and len(folder.damage()) == 1
    with pytest.raises(ValueError, match=r"x\.json: the lease is damaged"):
        folder.leased_keys()
    assert not folder.fetch(tmp_path / "local" / "objects" / "step" / "x")


def test_of_two_simultaneous_publishers_one_wins(folder: ObjectStorage, monkeypatch) -> None:
    both = threading.Barrier(2)

    def stopped(call: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options) if call is not os.link else None
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(5)
            return call(*arguments, **options) if call is os.link else result

        return wait

    monkeypatch.setattr(LocalFileSystem, "exists", stopped(LocalFileSystem.exists))
    monkeypatch.setattr(os, "link", stopped(os.link))
    manifests = [{"step": "step", "key": "key", "files": {}, "node": node} for node in (1, 2)]
    with ThreadPoolExecutor(2) as threads:
        won = list(threads.map(lambda manifest: folder.publish(Path(), manifest), manifests))
    assert sorted(won) == [False, True]
    (there,) = folder.listed("manifests")
    assert json.loads(Path(there).read_text()) == manifests[won.index(True)]


@pytest.mark.parametrize("again", [False, True])
def test_a_full_disk_removes_no_blob(folder: ObjectStorage, tmp_path: Path, monkeypatch, again: bool) -> None:
    (tmp_path / "text").write_text("text")
    manifest = {"step": "step", "key": "key", "files": {"text": describe(tmp_path / "text")}}
    folder.publish(tmp_path, manifest)
    (blob,) = map(Path, folder.listed("blobs"))
    if again:
        blob.write_text("te?t")
    before = blob.read_text()
    os.utime(blob, (time.time() - OLD,) * 2)

    def full(source: str, target: str) -> None:
        Path(target).write_text("")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space") if again else contextlib.nullcontext():
        (folder.replace if again else folder.publish)(tmp_path, manifest)
    assert folder.listed("blobs") == [str(blob)]
    assert blob.read_text() == before
    assert again or blob.stat().st_mtime > time.time() - DAY, "it looks new: gc keeps it until its manifest is written"


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + days * DAY)


def test_gc_keeps_files_of_the_last_day_during_a_run(nodes: list[Store], monkeypatch) -> None:
    shared = nodes[0].shared
    nodes[0].run(Step(write, "shard", Text("x")))
    with shared.lease(["the whole of it"]):
        assert shared.collect(days=0) == []
        later(monkeypatch, 2)
        assert len(shared.collect(days=0, dry=True)) == 2, "a manifest and its blob"
    assert len(shared.collect(days=0)) == 2


@pytest.mark.parametrize("inputs", [{}, {"before": Step(write, "nothing", Text(""))}])
def test_gc_keeps_an_artifact_that_is_leased_meanwhile(nodes: list[Store], monkeypatch, inputs: dict) -> None:
    """With inputs: another key with the same bytes."""
    shared, needed = nodes[0].shared, Step(write, "needed", Text("y"), inputs)
    for text in "xyz":
        nodes[0].run(Step(write, text, Text(text)))
    remove, begun = shared.files.rm_file, contextlib.ExitStack()

    def meanwhile(path: str) -> None:
        remove(path)
        monkeypatch.setattr(shared.files, "rm_file", remove)
        begun.enter_context(shared.lease([step.key for step in (needed, *inputs.values())]))
        nodes[1].run(needed)

    later(monkeypatch, 2)
    assert len(shared.collect(days=1, dry=True)) == 6
    monkeypatch.setattr(shared.files, "rm_file", meanwhile)
    with begun:
        shared.collect(days=1)
    assert len(shared.listed("manifests")) == len(shared.listed("blobs")) == 1 + len(inputs)
    shutil.rmtree(nodes[0].root)
    assert nodes[0].open().find(needed).file("text").read_text() == "y"


def test_gc_keeps_a_blob_that_is_renewed_meanwhile(folder: ObjectStorage, tmp_path: Path, monkeypatch) -> None:
    store = Store(tmp_path / "one", folder).open()
    store.run(Step(write, "x", Text("x")))
    for path in map(Path, (*folder.listed("manifests"), *folder.listed("blobs"))):
        os.utime(path, (time.time() - OLD,) * 2)
    remove = folder.files.rm_file
    monkeypatch.setattr(folder.files, "rm_file", lambda path: (remove(path), os.utime(folder.listed("blobs")[0])))
    assert [path.split("/")[-3] for path in folder.collect()] == ["manifests"]
    assert len(folder.listed("blobs")) == 1


def test_gc_removes_nothing_if_an_input_of_a_verdict_is_lost(nodes: list[Store], monkeypatch) -> None:
    first, second, last = chain(nodes[0], "table", "a")
    shared = nodes[0].shared
    later(monkeypatch, 30)
    (path,) = (path for path in shared.listed("manifests") if second.key in path)
    for hurt in (lambda: shared.files.pipe_file(path, b"{"), lambda: shared.files.rm_file(path)):
        hurt()
        with pytest.raises(ValueError, match=f"nothing is removed.*{second.key}.*{last.key}.*reproduce"):
            shared.collect()
    shutil.rmtree(nodes[0].root)
    assert nodes[0].open().find(first)
    nodes[0].run(last.inputs["row"])
    assert shared.collect() == []


@pytest.mark.parametrize(
    ("code", "state"), [(errno.ENOSPC, "full"), (errno.EDQUOT, "full"), (errno.EROFS, "read-only")]
)
def test_an_unwritable_cache_is_not_reported_as_a_broken_storage(nodes, monkeypatch, code: int, state: str) -> None:
    step = Step(write, "step", Text("abc"))
    nodes[0].run(step)

    def get_file(source: str, target: str) -> None:
        raise OSError(code, os.strerror(code), target)

    monkeypatch.setattr(nodes[1].shared.files, "get_file", get_file)
    with pytest.raises(OSError, match=f"^the disk of {nodes[1].root} is {state}: .*PHRASEMODELS_CACHE"):
        nodes[1].find(step).file("text")
    assert not list(nodes[1].root.glob("work/*"))


def test_a_node_with_an_empty_cache_finds_damage_in_the_storage(nodes: list[Store]) -> None:
    first, second, last = chain(nodes[0], "table", "a")
    shared = nodes[0].shared
    assert damage(nodes[1]) == []
    blobs = {Path(path).name: path for path in shared.listed("blobs")}
    shared.files.pipe_file(blobs[nodes[0].find(first).manifest["files"]["text"]["sha256"]], b"b")
    shared.files.rm_file(blobs[nodes[0].find(second).manifest["files"]["text"]["sha256"]])
    found = {a.key: (what.split(" ", 1)[1], of) for a, what, of in damage(nodes[1])}
    assert found == {first.key: ("does not have its digest", ["table"]), second.key: ("is missing", ["table"])}
    (manifest,) = (path for path in shared.listed("manifests") if last.key in path)
    shared.files.pipe_file(manifest, b"{")
    assert last.key in {a.key for a, _, _ in damage(nodes[1])}


def write_records(job: Job, settings: Text) -> dict[str, Any]:
    write_shard(job.out / "test.arrow", pa.table({"id": [0, 1]}))
    return {"shards": [{"file": "test.arrow"}], "licences": ["MIT"], "redistributable": True, "stand_in": False}


def test_shards_on_object_storage_are_named_by_what_they_are_and_read_by_duckdb(s3, store) -> None:
    import duckdb
    import fsspec

    made = store.run(Step(write_records, "records of /x", Text("a")))
    sql.write_shards(store, f"{s3}/records")
    with duckdb.connect() as plain:
        plain.register_filesystem(fsspec.filesystem("s3"))
        name = f"{s3}/records/write_records/records-of--x-{made.key[:8]}/test.parquet"
        assert plain.sql(f"select sum(id)::int from '{name}'").fetchall() == [(1,)]
    with pytest.raises(ValueError, match="holds files already"):
        sql.write_shards(store, f"{s3}/records")
