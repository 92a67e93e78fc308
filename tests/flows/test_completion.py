"""The shell completes papers, tables, rows, experiments, corpora and settings."""

import pytest
from typer.testing import CliRunner

from phrasemodels.flows.cli.main import app


def completed(line: str) -> list[str]:
    words = line.split(" ")
    shell = {"_PHRASEMODELS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return CliRunner().invoke(app, [], prog_name="phrasemodels", env=shell).stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("phrasemodels reproduce --paper 00", "004"),
        ("phrasemodels reproduce --paper 003 --table ", "nmt"),
        ("phrasemodels reproduce --row phr", "phrase-k2"),
        ("phrasemodels train 000/table1/sample/", "000/table1/sample/transformer"),
        ("phrasemodels reproduce --set train.st", "train.steps=600"),
        ("phrasemodels train 000/table1/sample/phrase-k2 --set model.encoder.he", "model.encoder.heads=2"),
        ("phrasemodels corpora fetch mu", "multi30k"),
        ("phrasemodels sql ver", "verdicts"),
    ],
)
def test_a_word_is_completed(line: str, offered: str) -> None:
    found = completed(line)
    assert offered in found and all(word.startswith(line.split(" ")[-1]) for word in found)
