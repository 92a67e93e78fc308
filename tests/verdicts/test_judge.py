"""The verdicts of `phrasemodels judge` on papers of others: readers against real logs, statistics, the page."""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import PROJECT
from running import run_cli
from scipy import stats

from phrasemodels.flows.cli.terminal import print_json
from phrasemodels.flows.report.judgement import judgement_text
from phrasemodels.flows.results.exchange import read_scores
from phrasemodels.verdicts import Observation, Printed, collected, judge, judge_table, read, read_printed
from phrasemodels.verdicts.printed import impossible

LOGS = PROJECT / "examples" / "judge"


def number(value: str, row: str = "ours", **more: object) -> Printed:
    return Printed("p", "1", row, more.pop("dataset", "d"), more.pop("metric", "m"), value, **more)  # type: ignore[arg-type]


def runs(means: list[float], n: int = 1000, row: str = "ours") -> list[Observation]:
    """Seeds with these shares of n right items."""
    return [
        Observation(row, "d", "m", str(seed), f"{item:04}", float(item < round(mean * n)))
        for seed, mean in enumerate(means)
        for item in range(n)
    ]


def test_scores_in_percent_are_not_multiplied_and_shares_beside_percentages_are_doubted() -> None:
    def judged(printed: str, values: list[float]):
        observations = [Observation("ours", "d", "m", str(seed), "", value) for seed, value in enumerate(values)]
        return judge_table([number(printed, scale="percent")], collected(observations))[0]

    assert judged("93.1%", [93.0, 93.1, 93.2]).verdict == judged("93.1%", [0.930, 0.931, 0.932]).verdict == "reproduced"
    shares = judged("87.1", [0.870, 0.871, 0.872])
    assert shares.verdict == "reproduced" and shares.reason.endswith("ours are taken as shares, and multiplied by 100")
    errors = judged("1.2", [0.95, 0.97, 0.99])  # percentages that are small
    assert errors.values == (0.95, 0.97, 0.99) and errors.reason.endswith("if ours are shares, give them in percent")


def test_verdicts_need_numpy_and_scipy_alone() -> None:
    code = "import sys; import phrasemodels.verdicts as v; print(v.judge('87.1', [86.9, 87.3, 87.0]).verdict); "
    code += "print({n.split('.')[0] for n in sys.modules} & {'torch', 'pyarrow', 'pydantic', 'matplotlib', 'ray', 'mlflow'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True)
    assert done.stdout.split("\n")[:2] == ["reproduced", "set()"]


def test_a_number_is_judged_by_its_margin_and_the_interval() -> None:
    for value, verdict in (
        ("0.870", "reproduced"),
        ("0.850", "inconclusive"),
        ("0.920", "lower"),
        ("0.80", "higher"),
        ("87%", "reproduced"),
        ("87.0", "reproduced"),
    ):
        (found,) = judge_table([number(value)], collected(runs([0.865, 0.870, 0.875])))
        assert found.verdict == verdict, (value, found)
    reason = judge("0.870", [0.865, 0.870, 0.875]).reason
    assert reason == (
        "our mean 0.870 ± 0.008 (90 %, 3 seeds: 0.865, 0.870, 0.875) lies in the margin 0.870 ± 0.020; printed: 1 run"
    )
    assert judge("87.1", [87.0]).reason.startswith("one run (87.00), and how far runs vary is unknown: 1 further seed")


def test_scores_of_another_number_of_items_are_said_to_be() -> None:
    ours = collected(runs([0.86, 0.87, 0.88], 100))
    said = {n: judge_table([number("0.870", n=n, runs=3)], ours)[0].reason for n in (0, 100, 200)}
    assert said[0] == said[100] and said[200] == f"{said[0]}; but the paper's number is of 200 items, ours of 100"


def test_numbers_that_cannot_be_are_found_with_their_arithmetic() -> None:
    table = [number("80.0", "a"), number("70.0", "b"), number("75.3", "mean", arithmetic="mean of a; b")]
    assert impossible(table[2], table).startswith("75.3 is not the mean of the 2 values")
    assert impossible(number("75.0", "mean", arithmetic="mean of a; b"), table) == ""
    gain = number("9.0", "gain", arithmetic="difference of a; b")
    assert impossible(gain, table) == "9.0 is not 80.0 - 70.0, which is 10.00"
    scores = [
        number("80.0", metric="P"),
        number("60.0", metric="R"),
        number("70.0", metric="F", arithmetic="f1 of P; R"),
    ]
    assert impossible(scores[2], scores) == "precision 80.0 and recall 60.0 have F1 68.57, not 70.0"
    assert impossible(number("68.6", metric="F", arithmetic="f1 of P; R"), scores) == ""
    assert impossible(number("0.871", n=500), []).startswith("87.1 % is no share of 500")
    assert impossible(number("0.871", n=500, runs=2), []) == "" == impossible(number("0.872", n=500), [])
    with pytest.raises(ValueError, match="names no other data sets"):
        impossible(number("1", arithmetic="mean of x"), table)


def test_rows_are_tested_on_the_same_items_as_by_scipy_and_corrected() -> None:
    rng = np.random.default_rng(0)
    values = {"base": rng.normal(size=(1, 300)), "better": rng.normal(0.2, 1, size=(1, 300))}
    seen = [
        Observation(row, "d", "m", str(s), f"{i:03}", float(x))
        for row, v in values.items()
        for (s, i), x in np.ndenumerate(v)
    ]
    printed = [number("0.0", "base"), number("0.2", "better")]
    test = judge_table(printed, collected(seen))[1].test
    assert test is not None and test.tested is not None and test.p_holm is None, "one seed says nothing of others"
    assert test.tested.p == pytest.approx(stats.ttest_rel(values["better"][0], values["base"][0]).pvalue, abs=0.01)
    alone = [Observation(r, "d", "m", str(s), "", x) for r, xs in (("base", (1.0, 1.1, 1.3)), ("better", (2, 2.2, 2.1)))
             for s, x in enumerate(xs)]  # fmt: skip
    test = judge_table(printed, collected(alone))[1].test
    expected = stats.ttest_ind((2, 2.2, 2.1), (1.0, 1.1, 1.3), equal_var=False).pvalue
    assert test is not None and test.p_holm == pytest.approx(expected, abs=0.003), "without items it is Welch's test"
    others = judge_table(printed, collected([*runs([0.5], 3, "base"), *runs([0.5], 4, "better")]))
    assert others[1].test is not None and others[1].test.note == "not tested: 3 items in common, of 4 and 3"


def test_real_logs_of_lm_evaluation_harness_have_its_own_means() -> None:
    """Written by lm_eval 0.4.13 with its model `dummy`; results_*.json has its means."""
    found = {(s.dataset, s.metric): s for s in read_scores([str(LOGS / "lm-eval")])}
    theirs = [json.loads(p.read_text())["results"]["even"] for p in sorted((LOGS / "lm-eval").rglob("results_*.json"))]
    assert set(found) == {("even", "acc"), ("even", "acc_norm")}
    for (_, metric), scores in found.items():
        assert scores.row == "dummy" and scores.sums.shape == (3, 16, 2)
        assert scores.values() == pytest.approx([one[f"{metric},none"] for one in theirs])


def test_real_logs_of_inspect_have_its_own_means() -> None:
    """Written by inspect_ai 0.3.285 with its model `mockllm`, three epochs; without messages and events."""
    scores = collected(read(LOGS / "inspect"))
    theirs = json.loads(next((LOGS / "inspect").glob("*.json")).read_text())["results"]["scores"]
    assert {s.metric for s in scores} == {one["name"] for one in theirs}
    for one in scores:
        assert (one.row, one.dataset, len(one.seeds), len(one.items)) == ("mockllm/model", "even", 3, 12)
        mean = next(t["metrics"]["accuracy"]["value"] for t in theirs if t["name"] == one.metric)
        assert np.mean(one.values()) == pytest.approx(mean)


@pytest.mark.parametrize("file", ["mlflow.db", "0/meta.yaml", "0/a/meta.yaml"])
@pytest.mark.parametrize("content", ["", "junk: [\n", "junk: 1\n"])
def test_broken_runs_of_mlflow_are_named_in_one_line(
    file: str, content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "0" / "a").mkdir(parents=True)
    about = "artifact_location: x\nexperiment_id: '0'\nlifecycle_stage: active\nname: Default\n"
    (tmp_path / "0" / "meta.yaml").write_text(about)
    (tmp_path / file).write_text(content)
    said: list[str] = []
    try:
        assert read_scores([str(tmp_path)], unread=said) == []
    except ValueError as error:
        said.append(str(error))
    assert said and all(str(tmp_path) in line and "\n" not in line for line in said)
    assert not caplog.records


def test_runs_in_mlflow_are_seeds(tmp_path: Path) -> None:
    import mlflow

    client = mlflow.MlflowClient(uri := f"sqlite:///{tmp_path / 'mlflow.db'}")
    where = client.create_experiment("x")
    for seed, value in enumerate((0.91, 0.93, 0.92)):
        run = client.create_run(where).info.run_id
        for name, text in (("model", "forest"), ("seed", seed), ("dataset", "digits")):
            client.log_param(run, name, text)
        client.log_metric(run, "accuracy", value)
        client.set_terminated(run)
    client.log_metric(client.create_run(where).info.run_id, "accuracy", 0.1)  # still running
    (odd := tmp_path / "ml?x").mkdir()
    shutil.copy(tmp_path / "mlflow.db", odd)
    for source in (uri, str(tmp_path), str(tmp_path / "mlflow.db"), str(odd), f"sqlite:///{odd}/mlflow.db"):
        (found,) = read_scores([source])
        assert (found.row, found.dataset, found.metric) == ("forest", "digits", "accuracy")
        assert sorted(found.values()) == [0.91, 0.92, 0.93]
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "ml?x"}, "no other database is made"


def test_the_command_writes_a_page_that_needs_no_other_file(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run_cli("judge", str(LOGS / "lm-eval.csv"), str(LOGS / "lm-eval"), "--page", str(page), "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["numbers"]
    assert [row["verdict"] for row in rows] == ["inconclusive", "inconclusive", "impossible"]
    text = page.read_text()
    assert "52.6 % is no share of 48" in text and "2 inconclusive, 1 impossible" in text
    assert not re.search(r'src=|<script|url\(http|rel="stylesheet', text)


TABLE = """row,dataset,metric,seed,score
base,d,m,0,0.90
base,d,m,1,0.91
ours,d,m,0,0.93
ours,d,m,1,0.94
ours,d,loss,1,nan

 , , , ,
"""


@pytest.mark.parametrize("lost", ["nan", "inf", "-inf", "1.7976931348623157e308"])
def test_a_run_that_diverged_is_never_reproduced_and_blocks_no_other_number(lost: str) -> None:
    diverged = [*runs([0.90, 0.905], row="base"), Observation("base", "d", "m", "2", "", float(lost))]
    diverged = [one._replace(item="") for one in diverged if one.item in ("", "0")]
    judged = judge_table(
        [number("90.3%", "base", lower_is_better=False), number("93.5%", "ours", lower_is_better=False)],
        collected([*diverged, *runs([0.934, 0.935, 0.936])]),
    )
    assert judged[0].verdict == "inconclusive" and judged[1].verdict == "reproduced"
    assert judged[1].test is not None and judged[1].test.note == "not tested: the score of seed '2' is not finite"


def test_a_table_with_a_run_that_diverged_is_printed_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scores.csv").write_text(TABLE.replace("base,d,m,1,0.91", "base,d,m,1,nan"))
    Path("printed.csv").write_text("paper,table,row,dataset,metric,value\np,1,base,d,m,90.5%\np,1,ours,d,m,93.5%\n")
    done = run_cli("judge", "printed.csv", "scores.csv", "--page", "page.html")
    assert done.exit_code == 0, done.output
    assert "not finite" in done.stdout and "93.5" in done.stdout and "not finite" in Path("page.html").read_text()


def test_items_are_optional_and_other_metrics_may_be_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scores.csv").write_text(TABLE)
    Path("printed.csv").write_text("paper,table,row,dataset,metric,value\np,1,base,d,m,90.5%\np,1,ours,d,m,93.5%\n\n")
    done = run_cli("judge", "printed.csv", "scores.csv", "--json")
    rows = json.loads(done.stdout, parse_constant=pytest.fail)["numbers"]
    assert [(row["ours"]["mean"], row["items"]) for row in rows] == [(pytest.approx(90.5), 1), (pytest.approx(93.5), 1)]
    assert rows[1]["test"]["difference"] == pytest.approx(3)


@pytest.mark.parametrize(
    ("printed", "source", "said"),
    [
        ("none.csv", ".", "none.csv: no such file"),
        (".", ".", "a folder; name a file"),
        (str(LOGS / "lm-eval.csv"), "none.csv", "none.csv: no such file or folder"),
        (str(LOGS / "lm-eval.csv"), "ml?x", "ml?x: no such file or folder"),
        (str(LOGS / "lm-eval.csv"), "sqlite:///none.db", "sqlite:///none.db: no such database"),
        (str(LOGS / "lm-eval.csv"), "file:///none", "file:///none: no such folder"),
        (str(LOGS / "lm-eval.csv"), "ftp://x", "ftp://x: no URI of MLflow"),
        (str(LOGS / "lm-eval.csv"), "postgresql://127.0.0.1:9/x", "MLflow does not answer there"),
    ],
)
def test_a_missing_source_is_one_line_and_leaves_nothing(
    printed: str, source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli("judge", printed, source)
    assert isinstance(done.exception, ValueError) and said in str(done.exception) and "\n" not in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_json_has_null_for_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [math.nan, {"b": -math.inf}], "c": 1.5, "d": Path("x")})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": [None, {"b": None}],
        "c": 1.5,
        "d": "x",
    }


def test_names_of_a_paper_cannot_break_its_page() -> None:
    row = '<script>alert("x")</script>\x1b]0;evil\x07'
    judged = judge_table([number("50.0%", row)], collected(runs([0.5, 0.5, 0.51], 100, row)))
    text = judgement_text(judged)
    assert "<script" not in text and "\x1b" not in text


BROKEN = {
    "printed.csv": (
        (b"paper,table\np,1\n", "no printed numbers; a table has system"),
        (b"0,1\n1,2\n", "numbers where names of columns belong"),
        (b"paper,table,row,dataset,metric,value\np,1,r,d,m,1e400\n", "is no printed number"),
        (
            b"paper,table,row,dataset,metric,value\np,1,r,d,m,84.9 (4)\n",
            "printed.csv, line 2: '84.9 (4)': '(4)' may be a deviation",
        ),
        (b"paper,table,row,dataset,metric,value,n\np,1,r,d,m,1,-3\n", "is no whole number"),
        (b"paper,table,row,dataset,metric,value\np,1,r,d,m,1\np,1,r,d,m,2\n", "stands there twice"),
        (b"paper,table,row,dataset,metric,value,n,arithmetic\np,1,r,d,m,1,,sum\n", "arithmetic 'sum': must be"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
    ),
    "scores.csv": (
        (b"seed,item\n0,1\n", "no score"),
        (
            b"seed,item,score,total\n0,1,1,nan\n",
            "scores.csv, line 2: seed '0', item '1': score 1.0 of nan is no finite number",
        ),
        (
            b"seed,score\n0,1\n0,2\n",
            "line 3: seed '0': two scores; give them a column system or item, or other seeds",
        ),
        (b"seed,item,score,total\n0,1,1,1e308\n", "score 1.0 of 1e+308 is larger than 1e+15"),
        (b"seed,item,score\n0,1,-1e16\n", "score -1e+16 of 1.0 is larger than 1e+15"),
        (b"seed,score\n0,84,6\n", "scores.csv, line 2: 3 cells, but 2 columns; a number with a comma stands in quotes"),
        (b"seed,score\n,1\n", "line 2: no seed"),
        (b"seed,item,score\n0,1,1\n0,1,0\n", "has two scores"),
        (b"seed,item,score\n0,1,1\n1,2,1\n", "1 of 2 items have no score"),
        (b"seed,item,score\n", "no scores; files that are read"),
    ),
    "samples_x_2026-11-23T02-33-21.568376.jsonl": (
        (b"{}\n", "it has no doc_id"),
        (b'{"doc_id": 1, "acc": 1' + b"0" * 5000 + b"}\n", "no JSON"),
        (b"[" * 100_000, "no JSON"),
    ),
    "x.eval": ((b"PK", "inspect log convert x.eval"),),
    "x.parquet": ((b"PAR1", "no Parquet"),),
    "x.json": ((b'{"eval": {}, "samples": [], "status": "error"}', "ended with 'error'"),),
}


@pytest.mark.parametrize(
    "content",
    ["model,seed,acc,f1\na,0,.5,.4\n", "\ufeffsystem;acc;f1\na;.5;.4\n", "row\tmetric\tscore\na\tacc\t.5\na\tf1\t.4\n"],
)
def test_a_table_of_scores_is_read_as_people_write_it(content: str, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text(content)
    found = read_scores([str(tmp_path / "scores.csv")])
    assert [(one.row, one.metric, one.values()) for one in found] == [("a", "acc", [0.5]), ("a", "f1", [0.4])]


@pytest.mark.parametrize(("name", "content", "said"), [(n, *pair) for n, pairs in BROKEN.items() for pair in pairs])
def test_a_broken_file_is_one_line_that_names_it(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        read_printed(path) if name == "printed.csv" else read_scores([str(path)])
    assert "\n" not in str(error.value)


def test_check_says_which_names_match_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("system,accuracy\nBase,82.3\nOurs,84.1\n")
    Path("s.csv").write_text("system,seed,accuracy\nBase,0,82.2\nBase,1,82.4\nOurz,0,84\n,0,3\n")
    said = json.loads(run_cli("judge", "t.csv", "s.csv", "--check", "--json", "--gain", "Ourz:Base").stdout)
    assert [(one["system"], one["answered"], one["seeds"]) for one in said["systems"]] == [
        ("Base", 1, [2]),
        ("Ours", 0, []),
    ]
    assert "closest is 'Ourz'" in said["systems"][1]["why"][0] and "no table has both" in said["gains"][0]
    assert said["unmatched"][-1].startswith("systems of ours that match no printed one: Ourz, s; printed without results: Ours;")
    for options in (("--check",), ()):
        assert said["unmatched"][-1] in run_cli("judge", "t.csv", "s.csv", *options).output


@pytest.mark.parametrize("ours", ["87", {42: 0.869, 43: 0.873}, []])
def test_the_digits_of_a_text_and_keys_are_no_values_of_seeds(ours) -> None:
    with pytest.raises(ValueError, match="give a list with one for each seed"):
        judge("87.1", ours)
