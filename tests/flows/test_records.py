"""Records and pages of runs: their contents, and how long they are kept."""

import contextlib
import datetime
import json
import subprocess
from typing import Any
from uuid import uuid4

import pytest

from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.keep import check_committed
from phrasemodels.flows.results.records import commit_of, page_of, records, remove_old
from phrasemodels.flows.run.record import recorded, write


def ended(store: Store, days: float, **values: Any) -> str:
    """Write the record of a run that ended this many days ago; return its id."""
    then = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)).isoformat()
    known = {"id": str(uuid4()), "title": "a table", "started": then, "ended": then, "state": "completed"}
    write(store, record := known | values)
    page_of(store, record["id"]).touch()  # the report of a table
    return record["id"]


def test_the_page_of_a_failed_run_has_its_parameters_and_its_error(store: Store) -> None:
    run = str(uuid4())
    with contextlib.suppress(OSError), recorded(store, run, "a table", {"set": ["train.steps=<b>"]}, {}):
        raise OSError("no <room>\nand more")
    (record,) = records(store)
    assert record["report"] == str(page_of(store, run))
    page = page_of(store, run).read_text()
    assert "<strong>failed</strong>: no &lt;room&gt;<" in page
    assert "train.steps=\\u003cb\\u003e" in page


def test_the_page_of_several_tables_links_to_their_pages(store: Store) -> None:
    run, part = str(uuid4()), str(uuid4())
    with recorded(store, run, "3 tables", {}, {"tables": {}}) as record:
        record["tables"] |= {"one": {"run": part, "report": "x"}, "two": {"error": "too <large>"}, "three": {}}
    page = page_of(store, run).read_text()
    assert f'<a href="{part}.html">one</a></th><td>completed' in page
    assert "two</th><td>too &lt;large&gt;" in page
    assert "three</th><td>under way" in page


@pytest.mark.parametrize(
    "values", [{"asked": [], "tables": 7}, {"tables": {"one": None}}, {"error": [1], "title": "\ud800"}]
)
def test_a_record_with_unexpected_values_has_a_page(store: Store, values: dict[str, Any]) -> None:
    run = ended(store, 0, **values)
    assert page_of(store, run).read_text().count("</html>") == 1


def test_the_report_is_the_page_of_its_run_unless_the_run_fails_afterwards(store: Store) -> None:
    run = str(uuid4())
    with recorded(store, run, "a table", {}, {}) as record:
        page_of(store, run).write_text("the report")
        record["verdicts"] = "1" * 32
    assert page_of(store, run).read_text() == "the report"
    with contextlib.suppress(OSError), recorded(store, run, "a table", {}, {}) as record:
        page_of(store, run).write_text("the report")
        record["verdicts"] = "1" * 32
        raise OSError("MLflow does not answer")
    assert "MLflow does not answer" in page_of(store, run).read_text()


def test_remove_old_keeps_recent_runs_and_the_newest_run_of_each_verdict(store: Store) -> None:
    kept, lost = "1" * 32, "2" * 32
    old = [ended(store, 9, verdicts=kept), ended(store, 8, verdicts=lost), ended(store, 8, state="failed")]
    newest, lately = ended(store, 8, verdicts=kept), ended(store, 6, state="failed")
    runs, dead = store.root / "runs", {"id": str(uuid4()), "title": "", "started": "2020-01-01", "state": "running"}
    write(store, dead)
    (runs / "damaged.json").write_text("{")
    assert len(remove_old(store, 7, {kept}, dry=True)) == 3
    assert {page_of(store, run).stem for run in old} <= {path.stem for path in runs.glob("*.json")}
    assert {thing.path.stem for thing in remove_old(store, 7, {kept})} == {*old}
    left = {path.stem for path in runs.glob("*.json")}
    assert left == {newest, lately, dead["id"], "damaged"}
    assert {path.stem for path in runs.glob("*.html")} == left - {"damaged"}
    assert json.loads((runs / f"{newest}.json").read_text())["verdicts"] == kept


@pytest.mark.parametrize("other", [str.upper, "urn:uuid:{}".format, "{{{}}}".format, lambda own: str(uuid4())])
def test_a_record_with_the_id_of_another_run_is_damaged_and_leads_to_no_files(store: Store, other: Any) -> None:
    path = page_of(store, ended(store, 30.0)).with_suffix(".json")
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
