"""Records of runs: their contents, and how long they are kept."""

import contextlib
import datetime
import json
import subprocess
from typing import Any
from uuid import uuid4

import pytest

from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.keep import check_committed
from phrasemodels.flows.results.records import commit_of, place_of_run, records, remove_old, write
from phrasemodels.flows.run.record import recorded


def ended(store: Store, days: float, **values: Any) -> str:
    """Write the record of a run that ended this many days ago; return its id."""
    then = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)).isoformat()
    known = {"id": str(uuid4()), "title": "a table", "started": then, "ended": then, "state": "completed"}
    write(store, record := known | values)
    return record["id"]


def test_the_record_of_a_failed_run_has_its_parameters_and_its_error(store: Store) -> None:
    run, asked = str(uuid4()), {"set": ["train.steps=2"]}
    with contextlib.suppress(OSError), recorded(store, run, "a table", asked, {}):
        raise OSError("no room\nand more")
    (record,) = records(store)
    assert (record["state"], record["reason"], record["asked"]) == ("failed", "no room", asked)


def test_remove_old_keeps_recent_runs_and_the_newest_run_of_each_verdict(store: Store) -> None:
    kept, lost = "1" * 32, "2" * 32
    old = [ended(store, 9, verdicts=kept), ended(store, 8, verdicts=lost), ended(store, 8, state="failed")]
    newest, lately = ended(store, 8, verdicts=kept), ended(store, 6, state="failed")
    runs, dead = store.root / "runs", {"id": str(uuid4()), "title": "", "started": "2020-01-01", "state": "running"}
    write(store, dead)
    (runs / "damaged.json").write_text("{")
    assert len(remove_old(store, 7, {kept}, dry=True)) == 3
    assert {*old} <= {path.stem for path in runs.glob("*.json")}
    assert {thing.path.stem for thing in remove_old(store, 7, {kept})} == {*old}
    left = {path.stem for path in runs.glob("*.json")}
    assert left == {newest, lately, dead["id"], "damaged"}
    assert json.loads((runs / f"{newest}.json").read_text())["verdicts"] == kept


@pytest.mark.parametrize("other", [str.upper, "urn:uuid:{}".format, "{{{}}}".format, lambda own: str(uuid4())])
def test_a_record_with_the_id_of_another_run_is_damaged_and_leads_to_no_files(store: Store, other: Any) -> None:
    path = place_of_run(store, ended(store, 30.0))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id": other(path.stem)}))
    assert [record["state"] for record in records(store)] == ["damaged"]
    assert not remove_old(store, 1.0, []) and path.exists()


def test_results_of_code_that_no_commit_has_are_not_kept(tmp_path, monkeypatch) -> None:
    def git(*command: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True)

    git("init")
    for name in ("code.py", "results/one/result.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "-m", "first")
    clean = commit_of(tmp_path)
    (tmp_path / "results/one/result.json").write_text("2")
    assert commit_of(tmp_path) == clean and len(clean) == 40, "a kept result is no code"
    (tmp_path / "code.py").write_text("2")
    assert commit_of(tmp_path) == clean + "-dirty"
    monkeypatch.setattr("phrasemodels.flows.results.keep.commit", lambda: clean)
    check_committed()
    monkeypatch.setattr("phrasemodels.flows.results.keep.commit", lambda: clean + "-dirty")
    with pytest.raises(ValueError, match="commit the changes"):
        check_committed()
