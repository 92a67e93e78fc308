"""`phrasemodels parsers`, in this process."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import CORPORA, PARSERS
from running import run_cli
from typer.testing import Result

from phrasemodels import Parser
from phrasemodels.flows.cli import parse
from phrasemodels.flows.results.lineage import UnknownNameError


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "PHRASEMODELS_STORE": str(tmp_path / "store"),
        "PHRASEMODELS_MIRROR": str(CORPORA),
        "PHRASEMODELS_PARSERS": str(PARSERS),
        "PHRASEMODELS_OFFLINE": "true",
    }


def run(environment: dict[str, str], *arguments: str) -> Result:
    return run_cli("parsers", *arguments, env=environment)


def test_what_is_not_there_is_said(environment: dict[str, str]) -> None:
    rows = json.loads(run(environment, "list", "--json").stdout)
    assert rows[0] == dict(rows[0], name="gum", licence="LicenseRef-GUM", stand_in=True, there=False)
    assert [(row["name"], row["there"]) for row in rows] == [*(("gum", False), ("english", True), ("stanford", False))]
    assert "did you mean 'gum'" in str(run(environment, "fetch", "gumm").exception)
    nowhere = environment | {"PHRASEMODELS_PARSERS": "/nowhere"}
    assert "the folder that PHRASEMODELS_PARSERS names" in str(run(nowhere, "fetch", "gum").exception)
    assert "did you mean 'gum'" in str(run(environment, "score", "english", "gumm").exception)
    assert str(run(environment | {"PHRASEMODELS_SUPPLIED": "/nowhere"}, "fetch", "stanford").exception).startswith(
        "the Stanford parser is not here: put stanford-"
    )


def test_an_unknown_parser_is_named_with_what_is_near_and_what_to_do(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, says in (
        (
            UnknownNameError("'germn' is no label: did you mean 'german'?"),
            r"did you mean 'german'\?.*`phrasemodels parsers train ",
        ),
        (ValueError("the store is broken"), "^the store is broken$"),
    ):
        monkeypatch.setattr(parse, "find_model", Mock(side_effect=error))
        with pytest.raises(ValueError, match=says):
            parse.reader(["germn"])
    monkeypatch.undo()
    found = str(run_cli("parse", "germn", __file__, env=environment).exception)
    assert found.startswith("no parser 'germn' here: 'germn' is not in the store, which is empty")


def test_a_treebank_becomes_a_parser_that_reads_raw_text(cli, tmp_path: Path) -> None:
    (tmp_path / "phrasemodels.toml").touch()
    words = ("1", "Il", "PRON", 2, "nsubj"), ("2", "va", "VERB", 0, "root"), ("3", "à", "ADP", 5, "case")
    words += ("4", "le", "DET", 5, "det"), ("5", "pré", "NOUN", 2, "obl")
    rows = [f"{number}\t{form}\t{form}\t{tag}\t_\t_\t{head}\t{name}\t_\t_" for number, form, tag, head, name in words]
    rows = ["# text =Il va au pré", *rows[:2], "3-4\tau" + 8 * "\t_", *rows[2:], "", ""]
    (tmp_path / "UD_X-Y").mkdir()
    for split, count in (("train", 40), ("dev", 5), ("test", 5)):
        (tmp_path / "UD_X-Y" / f"x_y-ud-{split}.conllu").write_text("\n".join(rows) * count, encoding="utf-8")
    (tmp_path / "corpora").mkdir(exist_ok=True)
    (tmp_path / "corpora" / "x.vec").write_text("2 3\nva 1 2 3\nvoilà 4 5 6\n", encoding="utf-8")
    given = ("parsers", "train", "UD_X-Y", "x", "--updates", "2", "--minutes", "0.2", "--vectors")
    assert "no file y.vec in the folders of this project" in cli(*given, "y.vec").stderr
    done = cli(*given, "x.vec")
    assert "raw text of the test set: sentences" in done.stderr, done.stderr
    assert "dev: 5 of 5 sentences are also in train" in done.stderr and "test: 5 of 5" in done.stderr
    # what is kept after a kill comes before what is not
    assert done.stderr.index("on dev") < done.stderr.index("words and sentences learned")
    assert done.stderr.endswith("next: phrasemodels parse x - --format conllu\n")
    assert "las" in cli("parsers", "score", "x", "ud_x_y", "--split", "dev").stdout
    parser = Parser.load(tmp_path / "x")
    assert parser.card["scores"]["test set, raw text"]["words"] > 50 and "voilà" in parser.entries["words"]
    assert "| test set, gold words: uas |" in (parser.save_pretrained(tmp_path / "y") / "README.md").read_text()


@pytest.mark.needs_mirror("corpora", "parsers")
def test_fetch_and_score(environment: dict[str, str]) -> None:
    fetched = run(environment, "fetch", "gum")
    assert (Path(fetched.stdout.strip()) / "en" / "pos" / "gum.pt").is_file()
    assert json.loads(run(environment, "list", "--json").stdout)[0]["there"]
    scores = json.loads(run(environment, "score", "gum", "gum", "--head", "60", "--json").stdout)
    assert scores["upos"] > 85 and scores["las"] > 50 and scores["f1"] > 55 and scores["sentences_per_second"] > 1
