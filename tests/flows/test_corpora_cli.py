"""`phrasemodels corpora`, in this process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import CORPORA
from running import run_cli
from typer.testing import Result

from phrasemodels import project
from phrasemodels.data.download.manifest import MANIFESTS, load


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "PHRASEMODELS_STORE": str(tmp_path / "store"),
        "PHRASEMODELS_MIRROR": str(tmp_path / "mirror"),
        "PHRASEMODELS_OFFLINE": "true",
    }


def run(environment: dict[str, str], *arguments: str) -> Result:
    return run_cli("corpora", *arguments, env=environment)


def test_list_has_a_stable_schema(environment: dict[str, str]) -> None:
    rows = json.loads(run(environment, "list", "--json").stdout)
    assert {row["name"] for row in rows} >= {"multi30k", "babi", "penn_treebank"}
    keys = ["name", "title", "schema", "splits", "licence", "redistributable", "stand_in", "by_hand", "fetched"]
    assert all(list(row) == keys for row in rows)
    assert "600 / - / 280" in run(environment, "list").stdout


def test_what_is_missing_is_named(environment: dict[str, str]) -> None:
    assert "did you mean 'geoquery'" in str(run(environment, "show", "geoqery").exception)
    fetched = run(environment, "fetch", "penn_treebank")
    assert fetched.exit_code == 1
    assert "penn_treebank: wsj must be supplied by the user: Copy" in fetched.stderr
    assert run(environment, "verify", "atis").exit_code == 1


def test_a_broken_manifest_stops_no_other(environment: dict[str, str], tmp_path: Path, monkeypatch) -> None:
    for name, text in (("geoquery", ""), ("broken", "x = ["), ("other", "")):
        text = text or (MANIFESTS / "geoquery.toml").read_text()
        (tmp_path / f"{name}.toml").write_text(text)
    monkeypatch.setattr("phrasemodels.data.download.manifest.MANIFESTS", tmp_path)
    for arguments in (("list",), ("verify",)):
        found = run(environment, *arguments)
        assert found.exit_code == 1
        assert (
            "broken.toml" in found.stderr
            and "other.toml: name is 'geoquery', but the file is called 'other'" in found.stderr
        )
        assert "geoquery" in found.stdout or "geoquery: not fetched" in found.stderr


def test_a_file_of_a_user_that_cannot_be_read_stops_no_other_corpus(
    environment: dict[str, str], tmp_path: Path
) -> None:
    for section in ("A", "b"):
        path = tmp_path / "mirror" / "penn_treebank" / section / "wsj/00/wsj_0001.mrg"
        path.parent.mkdir(parents=True)
        path.write_text("( (S (NN a) ))")
    for command in ("list", "verify"):
        found = run(environment, command)
        assert found.exit_code == 1 and "penn_treebank: " in found.stderr and "are both" in found.stderr
        assert "geoquery" in found.stdout + found.stderr


def test_fetch_verify_show(environment: dict[str, str], mirror: Path) -> None:
    environment |= {"PHRASEMODELS_MIRROR": str(mirror)}
    rows, leak = (280, "115 of 280 records (41%)") if mirror == CORPORA else (12, "6 of 12 records (50%)")
    place = run(environment, "fetch", "geoquery").stdout.split("\t")[1].strip()
    assert (Path(place) / "train.nl").is_file()
    verified = run(environment, "verify", "geoquery")
    assert verified.exit_code == 0
    assert f"geoquery\ttest\t{rows} rows, {leak} stand verbatim in train" in verified.stdout
    shown = json.loads(run(environment, "show", "geoquery", "--split", "test", "--head", "2", "--json").stdout)
    assert [record["id"] for record in shown["head"]] == [0, 1]
    assert shown["fetched"]
    exported = run(environment, "export", "geoquery", str(Path(place).parents[3] / "out"), "--split", "test")
    table = pq.read_table(exported.stdout.strip())
    assert table.num_rows == rows and table["source"][0].as_py() == shown["head"][0]["source"]
    assert table.schema.metadata[b"licence"].decode() == load("geoquery").licence
    (Path(place) / "train.nl").write_text("changed\n")
    assert run(environment, "verify", "geoquery").exit_code == 1


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A project folder, as if this process had begun in it."""
    (tmp_path / "phrasemodels.toml").touch()
    monkeypatch.setattr("phrasemodels.project.folder", lambda: tmp_path)
    forget()
    yield
    forget()


def forget() -> None:
    for known in (project.manifests, project.corpora_folders):
        known.cache_clear()


def test_adding_a_file_says_which_rows_of_test_are_also_in_train(environment, study: None, tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("".join(f"{row % 20}\t{row % 20}\n" for row in range(30)))
    given = "add", str(tmp_path / "pairs.txt"), "--languages", "en-zxx", "--name"
    added = run(environment, *given, "divided")
    assert Path(added.stdout.strip()) == tmp_path / "corpora" / "divided.toml"
    assert "divided\tdev\t3 rows, 1 of 3 records (33%) stand verbatim in train" in added.stderr
    assert 'corpus="divided"' in added.stderr
    forget()
    copy = tmp_path / "corpora" / "divided" / "pairs.txt"
    copy.write_text(copy.read_text() + "31\t31\n")
    for command in ("fetch", "verify"):
        found = run(environment, command, "divided")
        assert found.exit_code == 1 and "has changed since it was added" in found.stderr
    assert "exists" in str(run(environment, *given, "divided").exception)
    assert run(environment, "add", str(copy), "--languages", "en-zxx", "--name", "divided", "--replace").exit_code == 0
    assert run(environment, "fetch", "divided").exit_code == 0
    for shown in run(environment, *given, "together", "--by", "source").stderr.splitlines()[1:-1]:
        assert " 0 of " in shown


def test_bad_lines_are_left_out_and_listed_beside_the_corpus(environment, study: None, tmp_path: Path) -> None:
    lines = [f"{row}\t{row % 7}\n" for row in range(40)]
    (tmp_path / "pairs.txt").write_text("".join([*lines, "\n", *lines[:2], "no target\t\n", "\n"]))
    given = "add", str(tmp_path / "pairs.txt"), "--languages", "en-zxx", "--dev", "4", "--test", "6"
    assert "line 41: empty; remove the line (also line 45); " in str(run(environment, *given).exception)
    assert "3 of 45 lines are bad" in str(run(environment, *given, "--bad-lines", "skip").exception)
    assert not (tmp_path / "corpora").exists()
    added = run(environment, *given, "--bad-lines", "skip", "--max-bad", "0.1")
    assert added.exit_code == 0, added.exception
    assert [line.split(" rows")[0] for line in added.stderr.splitlines()[:3]] == [
        "pairs\ttrain\t32", "pairs\tdev\t4", "pairs\ttest\t6"]  # fmt: skip
    assert "equal an earlier record" in added.stderr or "stand verbatim" in added.stderr
    assert "3 lines are left out, which pairs.txt.bad.tsv lists: 2 empty, 1 no source or no target" in added.stderr
    aside = tmp_path / "corpora" / "pairs" / "pairs.txt.bad.tsv"
    assert aside.read_text() == "41\tempty\t\n44\tno source or no target\tno target\t\n45\tempty\t\n"
    forget()
    assert run(environment, "fetch", "pairs").exit_code == 0
    assert "3 lines are left out" in run(environment, "show", "pairs").stdout
    assert "pairs\ttrain\t32 rows" in run(environment, "verify", "pairs").stdout


LABELS = [("negative", "positive")[row % 2] for row in range(60)]


@pytest.mark.parametrize(
    ("first", "labels", "says"),
    [
        ("sentence\tlabel\n", LABELS, "line 1: names of columns (sentence, label), and no row: remove the line"),
        ("", ["Positive", *LABELS[1:]], "differ in case, spaces or Unicode form alone: Positive (1 rows), "),
        ("", ["caf\u00e9", "cafe\u0301"] * 30, "Unicode form alone: caf\\xe9 (30 rows), cafe\\u0301 (30 rows); write"),
        ("", ["pos", "po\u200bs"] * 30, "Unicode form alone: pos (30 rows), po\\u200bs (30 rows)"),
    ],
)
def test_what_is_no_label_is_an_error(environment, study, tmp_path, first, labels, says) -> None:
    rows = "".join(f"sentence number {row} is good\t{label}\n" for row, label in enumerate(labels))
    (tmp_path / "own.tsv").write_text(first + rows, encoding="utf-8")
    found = run(environment, "add", str(tmp_path / "own.tsv"), "--reader", "labelled", "--dev", "6", "--test", "6")
    assert says in str(found.exception) and not (tmp_path / "corpora").exists()


def test_a_label_that_train_lacks_is_an_error_when_it_is_added(environment, study, tmp_path) -> None:
    seen = set()
    for place in range(12):
        labels = [*LABELS[:place], "neutral", *LABELS[place + 1 : 12]]
        (tmp_path / "own.tsv").write_text("".join(f"{row}\t{label}\n" for row, label in enumerate(labels)))
        given = ("--reader", "labelled", "--dev", "3", "--test", "3", "--replace")
        found = run(environment, "add", str(tmp_path / "own.tsv"), *given)
        seen.add("train has no row of a label" in str(found.exception) if found.exit_code else "listed")
        assert found.exit_code or "label neutral\t1 in train, 0 in dev, 0 in test" in found.stderr
        forget()
    assert seen == {True, "listed"}


def test_a_further_tab_is_seen_as_groups_when_a_corpus_is_added(environment, study, tmp_path) -> None:
    ends = ["\tcomment" if row in (3, 4) else "" for row in range(40)]
    (tmp_path / "pairs.txt").write_text("".join(f"a {row}\tb {row}{end}\n" for row, end in enumerate(ends)))
    said = run(environment, "add", str(tmp_path / "pairs.txt"), "--dev", "5", "--test", "5").stderr
    found = {line.split("\t")[1]: line.split("\t")[2] for line in said.splitlines() if "\tgroup " in line}
    assert list(found) == ["group (none)", "group comment"]
    assert sum(int(part.split()[0]) for part in found["group comment"].split(", ")) == 2


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_of_a_user_is_not_replaced_by_the_copy_of_a_corpus(
    environment, study: None, tmp_path: Path, kind
) -> None:
    (tmp_path / "pairs.txt").write_text("".join(f"{row}\t{row}\n" for row in range(30)))
    (mine := tmp_path / "mine").write_text("mine")
    (copy := tmp_path / "corpora" / "divided" / "pairs.txt").parent.mkdir(parents=True)
    copy.symlink_to(mine) if kind == "link" else copy.write_text("mine")
    given = "add", str(tmp_path / "pairs.txt"), "--name", "divided"
    assert "pairs.txt exists: move it" in str(run(environment, *given).exception)
    assert copy.read_text() == "mine" and not (tmp_path / "corpora" / "divided.toml").exists()
    assert run(environment, *given, "--replace").exit_code == 0
    assert mine.read_text() == "mine" and not copy.is_symlink()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--name", "a" * 250), "a name of more than 200 bytes"),
        (("--option", 'x" = 1, y'), "has no option 'x\" '"),
        (("--languages", 'en-de", x = "y'), "languages.target"),
    ],
)
def test_names_and_options_of_a_corpus_cannot_change_its_manifest(environment, study, tmp_path, options, says) -> None:
    (tmp_path / "pairs.txt").write_text("".join(f"{row}\t{row}\n" for row in range(30)))
    found = run(environment, "add", str(tmp_path / "pairs.txt"), *options)
    assert found.exit_code == 1 and says in str(found.exception) and not (tmp_path / "corpora").exists()


def test_a_wrong_setting_is_said_once_and_not_for_each_corpus(environment: dict[str, str]) -> None:
    found = run(environment | {"PHRASEMODELS_PARSERS": "a" * 300}, "list")
    assert found.exit_code == 1 and isinstance(found.exception, OSError) and not found.output
