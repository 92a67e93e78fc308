"""Mistakes of users in a study, its files and its parts: each is one line, before anything is trained."""

import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.experiments import catalogue, comparability, overrides, published
from phrasemodels.flows.experiments.catalogue import PAPERS, Request, made_by
from phrasemodels.flows.experiments.experiment import Cell
from phrasemodels.flows.experiments.paper_000 import table_1
from phrasemodels.flows.experiments.published import TAKEN
from phrasemodels.flows.results import claims
from phrasemodels.flows.results.verdicts import not_run, verdicts
from phrasemodels.study import table
from phrasemodels.tasks.metrics import scores
from phrasemodels.tasks.metrics.compare import verdict_on
from phrasemodels.tasks.metrics.scores import check_metrics
from phrasemodels.verdicts.claims import Claim, gain_of_values, judge_gain
from phrasemodels.verdicts.judgement import judge
from phrasemodels.verdicts.rule import PrintedValue


def exact(references: list[str], answers: list[str]) -> float:
    return 0.0


def other(name: str) -> Callable[..., float]:
    def made(references: list[str], answers: list[str]) -> float:
        return 0.0

    made.__name__ = name
    return made


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        (exact, "no tuple of functions"),
        ((len,), "no function of references and answers"),
        ((partial(exact, []),), "no function"),
        ((other,), "'other' takes no .references, answers.: too many positional arguments"),
        ((exact, other("exact")), "two functions are called 'exact'"),
    ],
)
def test_metrics_that_cannot_be_called_or_told_apart_are_named(metrics: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_metrics(metrics)


def nothing(references: list[str], answers: list[str]) -> Any:
    return math.nan


def several(references: list[str], answers: list[str]) -> Any:
    return [1.0, 2.0]


def raising(references: list[str], answers: list[str]) -> Any:
    return 1 / 0


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (nothing, "metric 'nothing' returned nan: it has to return one finite number"),
        (several, r"metric 'several' returned \[1.0, 2.0\]: it has to"),
        (raising, "metric 'raising' fails on the test set: ZeroDivisionError: division by zero"),
    ],
)
def test_a_metric_without_a_finite_number_is_named(metric: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        scores._score(metric, ["a"], ["b"])


def failing(profile: str) -> list[Any]:
    return [1 / 0]


def twice(profile: str) -> list[Any]:
    return [*table_1(profile), *table_1(profile)]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (failing, "ZeroDivisionError: division by zero"),
        (lambda profile: None, "has to return a list of Experiment"),
    ],
)
def test_a_table_that_fails_is_named(make: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "tables_of", lambda paper: {"1": make})
    monkeypatch.setattr("phrasemodels.project.parts", lambda group: {"mine": "study"} if group == "papers" else {})
    with pytest.raises(ValueError, match=says):
        made_by("mine", "1", "sample")


def test_two_rows_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "tables_of", lambda paper: {"1": twice})
    with pytest.raises(ValueError, match="several rows are called 'transformer'; give each its own slug"):
        Request("000", "1").resolve()


HEADER = "table,row,aspect,setting,value,by,source\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tables,row\n", "no column 'table'"),
        (f"{HEADER}table1,*,data\n", "line 2: too few or too many columns"),
        (f"{HEADER}table1,*,size,a,1,unlke,here\n", "line 2: by 'unlke' is none of paper, code"),
        (f"{HEADER}table1,*,sise,a,1,paper,here\n", "line 2: aspect 'sise' is none of data, size"),
        (f"\ufeff{HEADER}table1,*,size,a,1,paper,here\n", ""),
    ],
)
def test_wrong_lines_of_settings_are_named(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.csv").write_text(text)
    monkeypatch.setattr("phrasemodels.project.parts", lambda group: {"mine": "study"})
    monkeypatch.setattr("phrasemodels.project.beside", lambda paper, file: tmp_path / file)
    read = comparability.published_settings.__wrapped__
    if says:
        with pytest.raises(ValueError, match=re.escape(says)):
            read("mine")
    else:
        assert read("mine")[0]["table"] == "table1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("table,system,variants,metric,value\n", "'variants'"),
        ("table,system,metric,value\n1,A,bleu,nan\n", "'nan' is no"),
    ],
)
def test_wrong_printed_numbers_are_named(text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "printed.csv").write_text(text)
    monkeypatch.setattr("phrasemodels.project.beside", lambda paper, file: tmp_path / file)
    with pytest.raises(ValueError, match=says):
        list(published._added("mine"))


class NoParser:
    def __init__(self, language: str) -> None: ...


@pytest.mark.parametrize(("kind", "says"), [(NoParser, "give its fields defaults"), (dict, "no frozen dataclass")])
def test_a_parser_that_keys_cannot_name_is_refused(kind: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        overrides._parser(kind, "recipe.parsed=mine")


def test_names_that_a_study_cannot_have_are_known() -> None:
    assert {paper for paper in PAPERS if not paper.isdigit()} == set(TAKEN)


def test_a_study_without_printed_numbers_has_none_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    published.published_results()  # of the five papers, before there is another
    monkeypatch.setattr("phrasemodels.project.parts", lambda group: {"mine": "study"})
    with pytest.raises(ValueError, match=r"'mine' has no number in printed.csv"):
        verdicts([], "mine")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("papers = " + "[" * 10_000, "maximum recursion depth"),
        ("a" + ".a" * 100_000 + " = 1", "a key of more than 50 parts .at line 1."),
        ('[papers]\nx = "a"\n[corpora."b"' + ' . "c"' * 60 + "]", "a key of more than 50 parts .at line 3."),
        *((f'[corpora]\nx = "{part}"', "lines like name") for part in ("os./etc", "../up", "", ".a", "a..b", "a\\nb")),
        ('[papers]\nx = "__main__"', "there is no module __main__"),
        ('[papers]\nx = "leaves"', "cannot be imported: SystemExit: 3 .*leaves.py, line 1"),
    ],
)
def test_wrong_values_of_the_projects_file_are_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "phrasemodels.toml").write_text(text)
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)")
    command = [sys.executable, "-m", "phrasemodels", "experiments"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and re.search(says, done.stderr) and len(done.stderr.splitlines()) == 1


def test_a_table_in_ten_lines_has_the_rows_sizes_and_printed_numbers_that_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"Baseline": TransformerEncoderConfig, "My own (2)": (TransformerEncoderConfig(8, 2, 1, 8), {"clip": 1.0})}
    made = table(rows, corpus="multi30k", printed="printed.csv", metrics=[exact], size={"d": 32}, train={"steps": 7})
    first, second = made.experiments("mine", "3", "sample")
    assert (first.name, second.name) == ("mine/table3/sample/baseline", "mine/table3/sample/my-own-2")
    assert (first.model.encoder.d, second.model.encoder.d) == (32, 8)
    assert (first.train.steps, second.train.steps, second.train.clip) == (7, 7, 1.0) != first.train.clip
    assert [(a.metric, a.cell and (a.cell.table, a.cell.system)) for a in second.answers] == [
        ("bleu", ("Table 3", "My own (2)")), ("exact", ("Table 3", "My own (2)")),
    ]  # fmt: skip
    assert made.experiments("mine", "3", "paper") == []
    with pytest.raises(
        ValueError, match=r"printed='other.csv': printed numbers stand in printed.csv beside the module"
    ):
        table(rows, "multi30k", "other.csv")
    with pytest.raises(ValueError, match="its records are trees"):
        table(rows, "ud_english_ewt").experiments("mine", "1", "sample")


def test_a_row_that_the_paper_does_not_print_has_no_printed_number(monkeypatch: pytest.MonkeyPatch) -> None:
    own = table_1("sample")[0]
    asked = tuple(replace(answer, cell=Cell("mine", "Table 1", "Nobody", "", "BLEU")) for answer in own.answers)
    monkeypatch.setattr(catalogue, "tables_of", lambda paper: {"1": lambda profile: [replace(own, answers=asked)]})
    monkeypatch.setattr("phrasemodels.project.parts", lambda group: {"mine": "study"} if group == "papers" else {})
    monkeypatch.setattr("phrasemodels.flows.experiments.experiment.published_results", lambda: [])
    assert {answer.cell for row in made_by("mine", "1", "sample") for answer in row.answers} == {None}


OWN_PRINTED = """table,system,metric,value
Table 1,Mine,length_ratio,101.5
Table 1,Mine,oddness,1.4
Table 2,Mine,BLEU,91.0
Table 1,mine,BLEU,90.0
Table 1,Mine,bleu,90.0
"""


def test_each_printed_number_of_a_study_is_judged_or_says_which_name_no_row_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "printed.csv").write_text(OWN_PRINTED)
    rows = {"Transformer": TransformerEncoderConfig, "Mine": TransformerEncoderConfig}
    of = table(rows, "multi30k", "printed.csv", [other("length_ratio"), other("oddness"), other("BLEU")])
    monkeypatch.setattr(catalogue, "tables_of", lambda paper: {"1": partial(of.experiments, "mine", "1")})
    monkeypatch.setattr("phrasemodels.project.parts", lambda group: {"mine": "study"} if group == "papers" else {})
    monkeypatch.setattr("phrasemodels.project.beside", lambda paper, file: tmp_path / file)
    printed = published._added("mine")
    for place in ("experiments.published.published_results", "experiments.experiment.published_results"):
        monkeypatch.setattr(f"phrasemodels.flows.{place}", lambda: printed)
    monkeypatch.setattr("phrasemodels.flows.results.verdicts.catalogue", lambda: [])
    cells = {answer.metric: answer.cell for answer in made_by("mine", "1", "sample")[1].answers}
    assert [name for name, cell in cells.items() if cell] == ["length_ratio", "oddness"]
    asked = [answer.cell and answer.cell.metric for answer in of.experiments("mine", "1", "sample")[1].answers]
    assert asked == ["BLEU", "length_ratio", "oddness", None], "BLEU is the problem's own"
    ratio, odd = cells["length_ratio"], cells["oddness"]
    assert ratio and odd and not ratio.unread and "the scale of 'oddness' is unknown" in odd.unread
    assert judge(ratio.printed, [107.8, 107.9, 107.2], how=ratio.how).verdict == "reproduced"
    assert [not_run(row, [row])[1] for row in printed[2:]] == [
        "no table 'Table 2'; there is Table 1",
        "no row 'mine'; there are Mine, Transformer",
        "no metric 'bleu'; there are BLEU, length_ratio, oddness",
    ]


def test_shares_that_a_paper_prints_are_judged_by_our_percentages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "printed.csv").write_text("table,system,metric,value\n1,A,accuracy,0.71\n1,B,accuracy,0.80\n1,A,own,0.5\n")
    monkeypatch.setattr("phrasemodels.project.beside", lambda paper, file: tmp_path / file)
    printed = published._added("mine")
    monkeypatch.setattr(published, "published_results", lambda: printed)
    monkeypatch.setattr("phrasemodels.project.parts", lambda group: {"mine": "study"} if group == "papers" else {})
    how, other, own = map(published.printed_value, printed)
    assert how == other == PrintedValue("share", ours_percent=True) and not own.ours_percent
    found = judge("0.71", [71.2, 70.9, 71.0], how=how)
    assert found.verdict == "reproduced" and "our mean 0.71" in found.reason
    assert judge("0.80", [71.2, 70.9, 71.0], how=how).verdict == "lower"
    gain = gain_of_values([80.1, 80.2, 79.9], [71.2, 70.9, 71.0], how)
    assert gain and judge_gain("0.80", "0.71", gain, how).verdict == "confirmed"
    assert published.printed_value(printed[0] | {"number": replace(printed[0]["number"], metric="token_accuracy")}) != how
    with pytest.raises(ValueError, match="may be shares, or percentages below 1"):  # of an own metric, or of a failed row
        judge("0.80", [0.8, 0.81], how=how)
    with pytest.raises(ValueError, match="may be shares, or percentages below 1"):
        gain_of_values([0.8, 0.81], [0.5, 0.6], how)


@pytest.mark.parametrize(
    ("printed", "scale", "values", "verdict", "says"),
    [
        ("0.80", "share", [80.1, 80.2], "not comparable", "80.1 is no share: .* correct 0.80 in printed.csv"),
        ("80.0", "percent", [0.80, 0.81, 0.80], "lower", "but ours are at most 1 .* let the metric return percentages"),
        ("80.0", "percent", [80.0, 80.1, 79.9], "reproduced", "ours? "),
    ],
)
def test_values_in_another_unit_than_their_number_say_so_and_end_nothing(
    printed: str, scale: str, values: list[float], verdict: str, says: str
) -> None:
    found = verdict_on(printed, values, "", False, PrintedValue(scale))
    assert found.verdict == verdict and re.search(says, found.reason)


def test_a_claim_hears_which_direction_the_printed_numbers_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "table,system,metric,value,scale,lower is better\n1,A,own,85.0,percent,yes\n1,B,own,95.0,percent,yes\n"
    (tmp_path / "printed.csv").write_text(lines)
    monkeypatch.setattr("phrasemodels.project.beside", lambda paper, file: tmp_path / file)
    row, other = published._added("mine")
    claim = Claim("c", "mine", "less", "1", "A", "B", "own")
    how = claims._how(claim, row)
    monkeypatch.setattr(claims, "printed_rows", lambda one: ([row, other], row))
    with pytest.raises(ValueError, match=r"claim c: 85\.0 is not better than 85\.0"):  # as `plan` says it
        claims.printed_gains(claim)
    gain = gain_of_values([80.1, 80.2, 79.9], [90.1, 90.2, 89.9], how)
    assert gain and judge_gain("85.0", "95.0", gain, how).verdict == "confirmed"
    assert judge_gain("85.0", "95.0", gain, how, "no worse").verdict == "confirmed"
