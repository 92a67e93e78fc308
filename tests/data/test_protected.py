"""Manifests and kept results have a digest of themselves: a change is noticed."""

import itertools
import json
import math
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from steps import ROWS, compared

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import (
    MANIFEST,
    Artifact,
    has_own_digest,
    parse_manifest,
    with_digest,
    write_durably,
)
from phrasemodels.data.store.gc import damage
from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.results import keep, records
from phrasemodels.flows.results.records import COMPANIONS, read_kept, seal


@pytest.fixture
def artifact(store: Store) -> Artifact:
    return store.run(Step(compared, "a table", None))


def flips(text: bytes) -> Iterator[bytes]:
    for place, bit in itertools.product(range(len(text)), range(8)):
        yield text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :]


def test_every_flipped_bit_of_a_manifest_is_noticed_or_changes_nothing(artifact: Artifact) -> None:
    text = (artifact.path / MANIFEST).read_bytes()
    right = parse_manifest(text)
    assert right == artifact.manifest and has_own_digest(right)
    read = [found for found in map(parse_manifest, flips(text)) if found is not None]
    assert all(found == right for found in read) and len(read) < len(text)  # of white space


@pytest.mark.parametrize(
    "meta",
    [
        {"a": {2: 0, 10: 1}},
        {"a": (1, (2,))},
        {"a": float("nan"), "b": 1e300, "c": 0.1 + 0.2},
        {"ä": "ö"},
        {"a": {None: 1, True: 2}},
    ],
)
def test_the_digest_is_of_what_is_read_again(meta: dict[str, Any]) -> None:
    assert has_own_digest(json.loads(json.dumps(with_digest({"meta": meta}))))


@pytest.mark.parametrize("drop", [False, True])
def test_a_changed_score_is_damage(store: Store, artifact: Artifact, drop: bool) -> None:
    manifest = {**artifact.manifest, "meta": {"rows": [{**ROWS[0], "verdict": "reproduced"}]}}
    if drop:
        del manifest["digest"]
    (artifact.path / MANIFEST).write_text(json.dumps(manifest))
    assert store.load(artifact.path) is None
    ((found, problem, _),) = damage(store)
    assert found.key == artifact.key and "no manifest of its own" in problem
    assert store.run(Step(compared, "a table", None)).meta["rows"] == ROWS  # it is made again


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a kept result, and of one that has trials, as the only ones that there are."""
    folder = tmp_path / "results" / "mine"
    shutil.copytree(records.KEPT / "000-table1-sigmoid-sample", folder)
    shutil.copy(records.KEPT / "000-table2-tuned-laptop" / "trials.json", folder)
    seal(folder)
    monkeypatch.setattr(keep, "kept_files", lambda: [folder / "result.json"])
    return folder


@pytest.mark.parametrize("name", ["result.json", *COMPANIONS])
@pytest.mark.parametrize("how", ["changed", "cut", "missing", "a pipe", "[]", "[" * 100_000])
def test_a_kept_result_that_was_changed_is_refused(name: str, how: str, kept: Path) -> None:
    assert read_kept(kept / "result.json")["rows"] and keep.damaged_results() == []
    path, content = kept / name, (kept / name).read_bytes()
    path.unlink()
    if how == "a pipe":
        os.mkfifo(path)
    elif how != "missing":
        changed = content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]
        path.write_bytes({"changed": changed, "cut": content[:-3]}.get(how, how.encode()))
    with pytest.raises(ValueError, match=rf"{name} is (damaged, or was changed since it was kept|neither a file)"):
        read_kept(kept / "result.json")
    assert [name for name, _ in keep.damaged_results()] == ["mine"]


def forged(kept: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the content of a kept result, with right digests."""
    result = json.loads((kept / "result.json").read_text())
    change(result)
    (kept / "result.json").write_text(json.dumps(result))
    seal(kept)


def test_values_that_the_statistics_do_not_give_are_damage(kept: Path) -> None:
    forged(kept, lambda result: result["rows"][0]["values"].update({"bleu": [99.0, 99.0, 99.0]}))
    ((_, why),) = keep.damaged_results()
    assert "bleu is 99.0, but its sentences give" in why


def test_a_result_is_replaced_at_once_and_other_files_stay(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kept / "notes.md").write_text("mine")
    result, statistics = keep._read(kept)
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    with monkeypatch.context() as killed:
        killed.setattr(keep, "put_in_place", lambda *_: sys.exit(9))
        with pytest.raises(SystemExit):
            keep.write(kept, result | {"note": "new"}, statistics, over=keep.content_of(kept))
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
    kept.with_name(".mine-new-abcdefgh").mkdir()  # by a killed process
    renewed = keep.keep_tests
    monkeypatch.setattr(keep, "keep_tests", lambda file: ((kept / "late.md").write_text("mine"), renewed(file)))
    (link := kept.with_name("link")).symlink_to(kept)
    keep.write(link, result | {"note": "new"}, statistics, over=keep.content_of(kept))
    assert link.is_symlink() and (kept / "late.md").read_text() == "mine"
    link.unlink()
    assert read_kept(kept / "result.json")["note"] == "new"
    assert {path.name for path in kept.iterdir()} == before.keys() - {"trials.json"} | {"late.md"}
    assert [path.name for path in kept.parent.iterdir()] == ["mine"]


def arrow(table: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        made = table(read_shard(folder / "sentences.arrow"))
        with pa.OSFile(str(folder / "new"), "wb") as sink, pa.ipc.new_file(sink, made.schema) as to:
            to.write_table(made)
        (folder / "new").replace(folder / "sentences.arrow")

    return write


def rows(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: forged(folder, lambda result: [row.update(changes) for row in result["rows"]])


def training(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: forged(folder, lambda result: [row["training"].update(changes) for row in result["rows"]])


JOINED: dict[str, Callable[[Path], object]] = {
    "a file elsewhere": rows(sentences=["/etc/passwd"]),
    "the name of a file": rows(sentences="/etc/passwd"),
    "no such statistics": rows(sentences={"row": "another"}),
    "rows of another table": rows(experiment="004/table1/laptop/parser"),
    "no settings": rows(settings={}),
    "other settings": rows(settings={"a": 1}),
    "settings of another kind": rows(settings={"config": {"steps": "many"}}),
    "seeds twice": rows(seeds=[0, 0, 1]),
    "no seeds": rows(seeds=[]),
    "a seed as text": rows(seeds=["0", "1", "2"]),
    "values as text": rows(values={"bleu": "12"}),
    "an infinite value": rows(values={"bleu": [math.inf, 1.0, 1.0]}),
    "no values": rows(values={}),
    "a training of lists": rows(training={"parameters": []}),
    "other parameters": training(parameters=10**9),
    "more steps than its settings": training(steps=10**9),
    "no steps": training(steps=0),
    "steps as text": training(steps="7"),
    "no rows": lambda folder: forged(folder, lambda result: result.update(rows=[])),
    "rows as text": lambda folder: forged(folder, lambda result: result.update(rows="rows")),
    "another entry": lambda folder: forged(folder, lambda result: result.update(more=1)),
    "a pipe": lambda folder: ((folder / "sentences.arrow").unlink(), os.mkfifo(folder / "sentences.arrow")),
    "no columns": arrow(lambda table: table.select(["row"])),
    "no rows of statistics": arrow(lambda table: table.slice(0, 0)),
    "statistics of text": arrow(lambda table: table.set_column(4, table.column_names[4], table["row"])),
    "fewer statistics": arrow(lambda table: table.slice(0, len(table) - 1)),
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.timeout(60)
def test_a_result_of_others_is_checked_before_it_is_joined(name: str, kept: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(kept, other)
    JOINED[name](other)
    if name != "a pipe":
        seal(other)
    before = (kept / "result.json").read_bytes()
    with pytest.raises(ValueError, match=r"other|results") as refused:
        keep.join(kept, other)
    assert "\n" not in str(refused.value) and (kept / "result.json").read_bytes() == before


def test_what_another_command_keeps_meanwhile_is_not_lost(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(kept, tmp_path / "other")
    own, renewed = keep._read(kept), keep.keep_tests

    def meanwhile(file: Path) -> None:
        forged(kept, lambda result: result.update(note="of another command"))
        renewed(file)

    monkeypatch.setattr(keep, "keep_tests", meanwhile)
    with pytest.raises(ValueError, match="was written by another command meanwhile"):
        keep.join(kept, tmp_path / "other")
    assert json.loads((kept / "result.json").read_text())["note"] == "of another command"
    with pytest.raises(ValueError, match="was written by another command meanwhile"):
        keep.write(kept, *own, over=None)
    monkeypatch.undo()
    keep.join(kept, tmp_path / "other")
    assert [path.name for path in kept.parent.iterdir()] == ["mine"]


def test_the_kept_results_of_the_project_are_as_they_were_kept() -> None:
    assert [read_kept(file)["title"] for file in records.KEPT.glob("*/result.json")]


def test_threads_that_write_the_same_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def write(text: str) -> None:
        try:
            for _ in range(100):
                write_durably(tmp_path / "it", text)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(letter * 5000,)) for letter in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and [path.name for path in tmp_path.iterdir()] == ["it"]
    assert len(set((tmp_path / "it").read_text())) == 1
