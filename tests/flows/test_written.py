"""Commands replace nothing that they did not write: every option or argument that names an output is tried."""

import ctypes
import os
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from conftest import PROJECT
from running import run_cli

from phrasemodels.flows.cli.main import app
from phrasemodels.flows.results.keep import keep
from phrasemodels.folders import check_replaceable, writing_folder

JUDGE = str(PROJECT / "examples" / "judge")
OUTPUTS = {  # command and parameter -> arguments in front of the output, and its name
    "sql database": (["sql", "--database"], "mine.duckdb"),
    "sql to": (["sql", "select 1", "--to"], "mine.parquet"),
    "judge page": (["judge", f"{JUDGE}/lm-eval.csv", f"{JUDGE}/lm-eval", "--page"], "mine.html"),
    "draw to": (["draw", "000/table1/sample/phrase-k2", "--text", "a house", "--to"], "mine.html"),
    "export to": (["export", "000/table1/sample/phrase-k2"], "mine"),
    "parsers train to": (["parsers", "train", JUDGE], "mine"),
    "corpora export to": (["corpora", "export", "gum"], "train.parquet"),
    "prepare to": (["prepare", "000/table1/sample/phrase-k2", "--to"], "mine"),
}
ELSEWHERE = {  # outputs that other tests try
    "init folder", "train out", "parse out",
}  # fmt: skip
INPUTS = {"join", "trained", "file", "files", "path", "data", "printed", "card"}


def parameters(application: typer.Typer, name: str = "") -> Iterator[str]:
    """Yield "command parameter" of each parameter that takes a path and is none of INPUTS."""
    for command in application.registered_commands:
        for parameter, kind in typing.get_type_hints(command.callback).items():
            if Path in (kind, *typing.get_args(kind)) and parameter not in INPUTS:
                yield f"{name} {command.name or command.callback.__name__} {parameter}".strip()
    for group in application.registered_groups:
        yield from parameters(group.typer_instance, group.name or "")


def test_every_output_of_every_command_is_tried() -> None:
    found = set(parameters(app))
    assert len(found) > 10 and found <= OUTPUTS.keys() | ELSEWHERE, found - (OUTPUTS.keys() | ELSEWHERE)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_a_user_wrote_is_not_replaced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, output = OUTPUTS[name]
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    mine = tmp_path / "mine"
    mine.mkdir()
    place = mine / output
    if "." in output:
        place.write_text("mine")
    else:
        place.mkdir()
        for own in ("card.json", "manifest.json", "parser.json", "thesis.tex"):
            (place / own).write_text("{}")
    before = snapshot(mine)
    done = run_cli(*arguments, str(mine if name == "corpora export to" else place))
    assert done.exit_code == 1 and "exists: name another place" in str(done.exception or done.output)
    assert snapshot(mine) == before


@pytest.mark.parametrize("name", ["sql database", "sql to", "judge page"])
def test_an_output_is_replaced_with_force(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, output = OUTPUTS[name]
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    place = tmp_path / output
    run = [*arguments, str(place)]
    assert run_cli(*run).exit_code == 0
    place.write_bytes(b"mine")
    assert run_cli(*run).exit_code == 1 and place.read_bytes() == b"mine"
    assert run_cli(*run, "--force").exit_code == 0 and place.read_bytes() != b"mine"


def filled(folder: Path) -> None:
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "x").write_text("x")
    (folder / "y").write_text("y")


def test_a_folder_is_replaced_whole_if_it_is_empty_or_with_force(tmp_path: Path) -> None:
    to = tmp_path / "to"
    to.mkdir()
    with writing_folder(to) as folder:
        filled(folder)
    (to / "z").symlink_to("/etc")
    with pytest.raises(ValueError, match="exists: name another place"), writing_folder(to) as folder:
        filled(folder)
    with writing_folder(to, force=True) as folder:
        filled(folder)
    assert sorted(path.name for path in to.rglob("*")) == ["a", "x", "y"]
    assert [path.name for path in tmp_path.iterdir()] == ["to"]


def test_a_folder_stays_as_it_was_after_an_error_and_if_it_is_written_to_meanwhile(tmp_path: Path) -> None:
    with writing_folder(tmp_path / "to") as folder:
        filled(folder)
    before = snapshot(tmp_path)
    with pytest.raises(OSError, match="full"), writing_folder(tmp_path / "to", force=True):
        raise OSError("full")
    assert snapshot(tmp_path) == before
    (tmp_path / "to").rename(tmp_path / "other")
    (tmp_path / "to").mkdir()
    with pytest.raises(ValueError, match="exists"), writing_folder(tmp_path / "to") as folder:
        Path(tmp_path, "to", "thesis").write_text(folder.name)
    assert (tmp_path / "to" / "thesis").read_text() == "new"


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_a_folder_is_exchanged_or_put_back(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, to = os.rename, tmp_path / "to"
    filled(to)

    def fails(source: Path, target: Path) -> None:
        if Path(source).name == "new":
            raise error
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails)
    with writing_folder(to, force=True) as folder:
        (folder / "b").write_text("b")
    assert [path.name for path in to.iterdir()] == ["b"]
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    with pytest.raises(type(error)), writing_folder(to, force=True):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["to", "b"]
    monkeypatch.setattr(os, "rename", rename)
    with writing_folder(to, force=True) as folder:
        (folder / "c").write_text("c")
    assert [path.name for path in tmp_path.rglob("*")] == ["to", "c"]


def test_what_is_no_file_is_refused_even_with_force(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nothing")
    for place in (Path("/dev/null"), tmp_path / "pipe", tmp_path / "link"):
        with pytest.raises(ValueError, match="name another place"):
            check_replaceable(place, force=True)


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"page\.html: .*notes\.txt is a file, not a folder: name another place$"):
        check_replaceable(tmp_path / "notes.txt" / "a" / "page.html", force=True)


def test_a_loop_of_links_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ValueError, match="is a link to nothing"), writing_folder(tmp_path / "loop"):
        pass


def test_a_kept_result_of_another_table_is_not_replaced(tmp_path: Path) -> None:
    class Table:
        title = "Table 1"

    (tmp_path / "thesis.tex").write_text("mine")
    for content in (None, "{", "[]", '{"title": "Table 2"}'):
        if content is not None:
            (tmp_path / "result.json").write_text(content)
        with pytest.raises(ValueError, match="holds something other than the result of Table 1"):
            keep(None, Table(), [], None, tmp_path, "")  # type: ignore[arg-type]
