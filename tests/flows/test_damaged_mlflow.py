"""A damaged database of MLflow: what is in the store is answered, and what is lost is said in one line."""

import contextlib
import json
import os
import sqlite3
from pathlib import Path

import pytest
from running import run_cli

from phrasemodels.infra import tracking
from phrasemodels.infra.tracking import Tracker

DAMAGES = {"no database": b"x" * 5000, "a cut header": b"SQLite format 3\0", "a page": None}


def without_a_table(file: Path) -> None:
    Tracker(f"sqlite:///{file}").open_run("e", "n", "k", {})
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("drop table metrics")


NO_DATABASES = {
    "empty": Path.touch,
    "not a file": Path.mkdir,
    "not a file ": os.mkfifo,
    "not a file  ": lambda f: f.symlink_to("/dev/zero"),
    "without a table": without_a_table,
}


@pytest.fixture(params=DAMAGES)
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path))
    (tmp_path / "objects").mkdir()
    file = tmp_path / "mlflow" / "mlflow.db"
    file.parent.mkdir()
    content = DAMAGES[request.param]
    if content is None:
        Tracker(f"sqlite:///{file}").open_run("e", "n", "k", {})
        whole = file.read_bytes()
        content = whole[:4096] + b"\xff" * (len(whole) - 4096)
    file.write_bytes(content)
    tracking._warn_once.cache_clear()
    return file


def test_questions_are_answered_and_the_damage_is_said_once(database: Path) -> None:
    for question in ("select count(*) as n from verdicts", "select 400 + count(*) as n from runs"):
        done = run_cli("sql", question, "--json")
        assert done.exit_code == 0 and json.loads(done.stdout)[0]["n"] >= 400
    done = run_cli("store", "verify")
    assert done.exit_code == 1 and f"DAMAGED  MLflow  []: {database} is damaged" in done.output


def test_a_run_that_cannot_be_recorded_says_so_in_one_line(database: Path) -> None:
    with pytest.raises(OSError, match=r"mlflow\.db is damaged: .* move it away") as raised:
        Tracker(f"sqlite:///{database}").open_run("e", "n", "k", {})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("why", NO_DATABASES)
def test_what_is_no_database_is_not_opened(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path))
    (tmp_path / "objects").mkdir()
    (tmp_path / "mlflow").mkdir()
    NO_DATABASES[why](database := tmp_path / "mlflow" / "mlflow.db")
    tracking._warn_once.cache_clear()
    done = run_cli("sql", "select 400 + count(*) as n from runs", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)[0]["n"] >= 400
    why = {"without a table": "has no table metrics"}.get(why, f"is {why.strip()}")
    assert f"{database} {why}: runs and curves of MLflow are missing" in done.stderr
    assert run_cli("store", "verify").exit_code == 1
    with pytest.raises(OSError, match=rf"mlflow\.db {why}: .* move it away"):
        Tracker(f"sqlite:///{database}").open_run("e", "n", "k", {})
