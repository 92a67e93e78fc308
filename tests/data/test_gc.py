"""Garbage collection of a store, its disk usage, and the search for damage."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PROJECT
from prefect.exceptions import ParameterTypeError
from running import run_cli
from steps import Text, age, chain, write

from phrasemodels.data.store import gc as upkeep
from phrasemodels.data.store.artifacts import Artifact, with_digest
from phrasemodels.data.store.gc import collect, damage, lease, leased_keys, verdict_keys, waste
from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.results import keep
from phrasemodels.flows.run.reproduce import gc


def test_gc_keeps_what_verdicts_rest_on_and_removes_the_rest(store: Store) -> None:
    steps = chain(store, "table", "a")
    orphan = store.run(Step(write, "orphan", Text("x")))
    (store.workspace("dead") / "checkpoints").mkdir(parents=True)
    (store.workspace("dead") / "checkpoints" / "weights").write_text("1234")
    torn = store.root / "objects" / "write" / ("0" * 32)
    torn.mkdir()
    elsewhere = store.root.parent / "photos" / "2020"
    elsewhere.mkdir(parents=True)
    (store.root / "objects" / "mine").symlink_to(elsewhere.parent)
    (store.root / "objects" / "compare" / ".DS_Store").write_text("not ours")
    age(store)
    assert {w.path for w in collect(store)} == {orphan.path, store.workspace("dead"), torn}
    assert all(store.find(step) for step in steps)
    assert not orphan.path.exists()
    assert not list(store.root.glob("work/*"))
    assert elsewhere.exists()
    assert collect(store) == []


def test_concurrent_gc_never_deletes_a_trash_folder_that_is_being_filled(store: Store, monkeypatch) -> None:
    for text in "ab":
        store.run(Step(write, text, Text(text)))
    age(store)
    replace = os.replace

    def beside_another(path: Path, to: Path) -> None:
        upkeep._empty_trash(store)
        replace(path, to)

    monkeypatch.setattr("phrasemodels.data.store.gc.os.replace", beside_another)
    assert len(collect(store)) == 2
    assert list(store.artifacts()) == []


def test_gc_keeps_recent_and_recently_used_artifacts(store: Store) -> None:
    step = Step(write, "orphan", Text("x"))
    store.run(step)
    assert waste(store) == []
    age(store)
    assert len(waste(store)) == 1
    store.find(step)
    assert waste(store) == []
    assert len(waste(store, days=0)) == 1


def test_a_week_is_what_gc_waits_for_artifacts_and_interrupted_steps(store: Store) -> None:
    old, young = (store.run(Step(write, text, Text(text))) for text in "ab")
    interrupted, recent = (store.workspace(digit * 32) for digit in "01")
    for folder in (interrupted, recent):
        folder.mkdir(parents=True)
    for folder, days in ((old.path, 7.5), (interrupted, 7.5), (young.path, 6.5), (recent, 6.5)):
        then = time.time() - days * 86400
        if (manifest := folder / "manifest.json").exists():
            known = json.loads(manifest.read_text()) | {"finished": "2020-01-01T00:00:00+00:00"}
            manifest.write_text(json.dumps(with_digest(known)))
            os.utime(manifest, (then, then))
        os.utime(folder, (then, then))
    assert {thing.path for thing in waste(store)} == {old.path, interrupted}


def test_gc_can_keep_only_the_newest_verdicts_of_a_table(store: Store) -> None:
    old = chain(store, "table", "a")
    age(store, 2020)
    new, other = chain(store, "table", "z"), chain(store, "another table", "a")
    age(store, 2021)
    assert waste(store) == []
    # only the old verdict itself is removed: a verdict of another table rests on the same inputs
    assert {thing.path for thing in collect(store, newest=1)} == {store.where(old[-1].name, old[-1].key)}
    assert all(store.find(step) for step in [*new, *other])


def test_the_newest_verdicts_of_some_rows_do_not_replace_those_of_all_rows(store: Store) -> None:
    def compared(label: str, finished: str, *rows: str) -> Artifact:
        about = {"step": "compare", "root": True, "label": label, "parts": {"inputs": dict.fromkeys(rows, "key")}}
        return Artifact(Path(f"objects/compare/{finished}"), about | {"key": finished, "finished": finished})

    days = ["2021-01-01", "2021-01-02", "2021-01-03", "9021-01-01"]  # the last by a clock that was ahead
    alike = [["a", "b"], ["b", "a"], ["a"], ["a"]]
    made = [compared("t", day, *rows) for day, rows in zip(days, alike, strict=True)]
    assert verdict_keys({artifact.key: artifact for artifact in made}, 1) == days[1:3]


@pytest.mark.parametrize(("step", "damage"), [(1, "tear"), (1, "remove"), (2, "tear")])
def test_gc_removes_nothing_if_an_input_of_a_verdict_is_lost(store: Store, step: int, damage: str) -> None:
    steps = chain(store, "table", "a")
    age(store)
    folder = store.where(steps[step].name, steps[step].key)
    shutil.rmtree(folder) if damage == "remove" else (folder / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match=f"nothing is removed: {steps[step].key} .*{steps[2].key}.*reproduce"):
        collect(store, days=0)
    assert store.find(steps[0])
    store.run(steps[1])
    store.run(steps[2])
    assert collect(store, days=0) == []


def test_the_scheduled_gc_removes_the_same_as_the_command(store: Store, in_own_store: None) -> None:
    steps = chain(store, "table", "a")
    orphan = store.run(Step(write, "orphan", Text("x")))
    assert gc.fn(days=7, verdicts=0) == []
    age(store)
    would = json.loads(run_cli("store", "gc", "--dry-run", "--json").stdout)
    assert gc.fn(days=7, verdicts=0) == [row["path"] for row in would] == [str(orphan.path)]
    assert all(store.find(step) for step in steps)
    with pytest.raises(ParameterTypeError, match="days"):
        gc.validate_parameters({"days": -1})


HOLDER = """
import sys
from pathlib import Path
from phrasemodels.data.store.store import Store
from phrasemodels.data.store.gc import lease
with lease(Store(Path(sys.argv[1])), [sys.argv[2]]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_gc_keeps_leased_artifacts_until_the_run_is_killed(store: Store) -> None:
    step = Step(write, "orphan", Text("x"))
    store.run(step)
    age(store)
    command = [sys.executable, "-c", HOLDER, str(store.root), step.key]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "held\n"
        assert collect(store, days=0) == []
        run.kill()
    assert leased_keys(store) == set()
    assert len(collect(store, days=0)) == 1


def test_gc_removes_the_locks_and_leases_of_killed_runs_and_no_held_one(store: Store) -> None:
    names = ["0" * 32, "1" * 32]
    for name in names:
        (store.root / "locks" / f"{name}.lock").touch()
    (store.root / "leases").mkdir()
    (store.root / "leases" / "dead.json").write_text("[]")
    with store.lock("2" * 32), store.lock(names[1]):
        assert waste(store) == collect(store) == []
        left = {path.stem for path in store.root.glob("locks/*.lock")} - {"sweep"}
        assert left == {names[1], "2" * 32} and not list((store.root / "leases").iterdir())
    assert not list(store.root.glob(f"locks/{names[1]}*"))


def test_during_a_run_what_was_used_today_stays_because_no_lease_holds_shards(store: Store) -> None:
    shard = store.run(Step(write, "shard", Text("x")))
    with lease(store, ["0" * 32]):
        assert waste(store, days=0) == []
        age(store)
        assert [thing.path for thing in waste(store, days=0)] == [shard.path]
    assert [thing.path for thing in waste(store, days=0)] == [shard.path]


def test_gc_keeps_an_interrupted_step_that_a_process_works_on(store: Store) -> None:
    for name in ("0" * 32, "1" * 32):
        (store.workspace(name) / "out").mkdir(parents=True)
    age(store)
    with store.lock("0" * 32):
        assert [thing.path.name for thing in collect(store)] == ["1" * 32]
    assert [thing.path.name for thing in collect(store)] == ["0" * 32]


def test_damage_names_the_verdict(store: Store) -> None:
    first, *_ = chain(store, "table", "a")
    assert damage(store) == []
    store.find(first).file("text").write_text("A")
    ((artifact, what, resting),) = damage(store)
    assert (artifact.key, resting) == (first.key, ["table"])
    assert "digest" in what


def test_gc_on_the_command_line_removes_what_its_dry_run_lists(in_own_store: None, tmp_path: Path, monkeypatch) -> None:
    store = Store(tmp_path / "store").open()
    chain(store, "table", "a")
    store.run(Step(write, "orphan", Text("x")))
    age(store)
    rows = json.loads(run_cli("store", "gc", "--dry-run", "--json").stdout)
    assert [row["label"] for row in rows] == ["orphan"]
    assert run_cli("store", "verify").exit_code == 0
    assert "1 things" in run_cli("store", "gc").stdout
    assert "1 things" not in run_cli("store", "gc").stdout
    next(store.root.rglob("text")).write_text("damaged")
    monkeypatch.setattr(keep, "kept_files", list)  # they were verified above, which takes seconds
    done = run_cli("store", "verify")
    assert done.exit_code == 1
    assert "verdicts depend on it: table" in done.stdout
