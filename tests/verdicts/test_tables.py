"""Tables as papers and tools have them: how each is read, and the verdicts that follow. Ours are runs whose answer is known."""

import gzip
import json
import os
import zipfile
from pathlib import Path

import pytest
from conftest import PROJECT
from running import run_cli

from phrasemodels.flows.results.exchange import read_both
from phrasemodels.verdicts import Names, judge_gains, judge_table
from phrasemodels.verdicts.cells import MOST_BYTES_OF_EXCEL, grids, uses_decimal_commas, value_of

SEEDS = "system,seed,accuracy\nBase,0,82.2\nBase,1,82.4\nBase,2,82.3\nOurs,0,60.0\nOurs,1,60.2\nOurs,2,60.1\n"
BASE_OURS = {"Base": "reproduced", "Ours": "lower"}
ACCURACY = Names(metric="accuracy")
WIDE = "system,seed,MR,CR\nBase,0,79.8,84.5\nBase,1,79.9,84.6\nBase,2,80.0,84.7\nOurs,0,70.0,71.0\nOurs,1,70.1,71.1\nOurs,2,70.2,71.2\n"
UAS_LAS = "model,seed,UAS,LAS\nBase,0,95.1,93.0\nBase,1,95.2,93.1\nBase,2,95.3,93.2\nOurs,0,96.0,80.0\nOurs,1,96.1,80.1\nOurs,2,95.9,80.2\n"
LONG = "paper,table,row,dataset,metric,value\np,1,Base,d,accuracy,82.3\np,1,Ours,d,accuracy,84.1\n"
SHARES = SEEDS.replace(",8", ",0.8").replace(",60.", ",0.60").replace("0.82.", "0.82")


def lines() -> str:
    """JSON lines of two systems and two seeds."""
    return "\n".join(json.dumps({"model": m, "seed": s, "acc": v}) for m, s, v in (
        ("Base", 0, 82.2), ("Base", 1, 82.4), ("Base", 2, 82.3), ("Ours", 0, 60.0), ("Ours", 1, 60.2), ("Ours", 2, 60.1)
    ))  # fmt: skip


PRINTED = {  # name: file, its content, options; our results are SEEDS, and the verdicts are BASE_OURS
    "plain": ("t.csv", "system,accuracy\nBase,82.3\nOurs,84.1\n", Names()),
    "one number a line": ("t.csv", LONG, Names()),
    "headers in any case, with synonyms": ("t.csv", "Method,DataSet,Measure,Score\nBase,,Acc.,82.3\nOurs,,Acc.,84.1\n", Names()),
    "plus and minus": ("t.csv", "Model,Acc.\nBase,82.3 ± 0.4\nOurs,**84.1** (0.3)\n", Names()),
    "deviation in a column": ("t.csv", "Model,Acc,Acc std\nBase,82.3,0.4\nOurs,84.1,0.3\n", Names()),
    "marks": ("t.csv", "Model,Acc (%)\nBase†,82.3*\nOurs,84.1‡\n", Names()),
    "percent signs": ("t.csv", "Model,Accuracy\nBase,82.3%\nOurs,84.1 %\n", Names()),
    "shares without zero": ("t.csv", "Model,Accuracy\nBase,.823\nOurs,.841\n", Names()),
    "decimal commas by semicolons": ("t.csv", "Modell;Genauigkeit\nBase;82,3\nOurs;84,1\n", Names()),
    "decimal commas by tabs": ("t.tsv", "Model\tAccuracy\nBase\t82,3\nOurs\t84,1\n", Names()),
    "Excel: sep and empty columns": ("t.csv", "sep=;\r\nSystem;Accuracy;;\r\nBase;82.3;;\r\nOurs;84.1;;\r\n", Names()),
    "Excel: UTF-16": ("t.txt", "System\tAccuracy\r\nBase\t82.3\r\nOurs\t84.1\r\n".encode("utf-16"), Names()),
    "Excel: cp1252": ("t.csv", "System,Accuracy\nBase,82.3 ± 0.4\nOurs,84.1\n".encode("cp1252"), Names()),
    "gzip, capitals": ("T.CSV.gz", gzip.compress(b"system,accuracy\nBase,82.3\nOurs,84.1\n"), Names()),
    "a title above, a footnote below": ("t.csv", "Table 2: results,\nsystem,accuracy\nBase,82.3\nOurs,84.1\n* our own runs,\n", Names()),
    "the index of pandas": ("t.csv", ",system,accuracy\n0,Base,82.3\n1,Ours,84.1\n", Names()),
    "systems as the index of pandas": ("t.csv", ",accuracy\nBase,82.3\nOurs,84.1\n", Names()),
    "Markdown": ("t.md", "Some text.\n\n| Model | Acc |\n|:--|--:|\n| Base | 82.3 |\n| **Ours** | **84.1** |\n", Names()),
    "Markdown without bars at the ends": ("t.txt", "Model | Acc\n--- | ---\nBase | 82.3\nOurs | _84.1_\n", Names()),
    "LaTeX": ("t.tex", "\\begin{tabular}{lc}\n\\toprule\nModel & Acc. \\\\\n\\midrule\nBase~\\cite{a} & 82.3 \\\\\n"
              "Ours & \\textbf{84.1}$^{\\dagger}$ \\\\\n\\bottomrule\n\\end{tabular}\n", Names()),
    "LaTeX with spreads, sections and comments": (
        "t.txt", "\\begin{tabular}{l r} % results\n & \\multicolumn{1}{c}{Acc} \\\\ \\hline\n"
        "\\multicolumn{2}{l}{\\textit{Supervised}} \\\\\n"
        "Base & $82.3_{\\pm 0.4}$ \\\\\n{\\bf Ours} & {\\bf 84.1}{\\scriptsize $\\pm$0.3} \\\\\n\\end{tabular}", Names()),
    "LaTeX without its frame": ("t.txt", "Model & Acc \\\\\nBase & \\SI{82.3}{\\percent} \\\\\n\\textbf{Ours} & 84.1 \\\\\n", Names()),
    "metric by an option": ("t.csv", "system,value\nBase,82.3\nOurs,84.1\n", ACCURACY),
    "systems in columns": ("t.csv", "Metric,Base,Ours\nAccuracy,82.3,84.1\n", Names()),
    "arrows": ("t.csv", "Model,Accuracy ↑\nBase,82.3\nOurs,84.1\n", Names()),
    "dashes for what was not measured": ("t.csv", "Model,Accuracy,F1\nBase,82.3,—\nOurs,84.1,n/a\nOther,–,-\n", Names()),
    "JSON": ("t.json", json.dumps([{"model": "Base", "acc": 82.3}, {"model": "Ours", "acc": 84.1}]), Names()),
    "differences in brackets": ("t.csv", "Model,Acc\nBase,82.3\nOurs,84.1 (+1.8)\n", Names()),
}  # fmt: skip

OURS = {  # name: files of ours; the printed numbers are LONG, and the verdicts are BASE_OURS
    "a column for each metric": {"s.csv": SEEDS},
    "shares": {"s.csv": SHARES},
    "JSON lines": {"s.jsonl": lines()},
    "rows of JSON": {"s.json": "[" + lines().replace("\n", ",") + "]"},
    "a column for each seed": {"s.csv": "system,seed 0,seed 1,seed 2\nBase,82.2,82.4,82.3\nOurs,60.0,60.2,60.1\n"},
    "one file a seed": {f"seed{n}.{end}": f"system,accuracy\nBase,82.{n + 2}\nOurs,60.{n}\n"
                        for n, end in enumerate(("csv", "CSV", "csv"))},
    "one file a seed, in four endings": {
        "run_0.tsv": "system\taccuracy\nBase\t82.2\nOurs\t60.0\n",
        "run_1.csv.gz": gzip.compress(b"system,accuracy\nBase,82.3\nOurs,60.1\n"),
        "run_2.md": "| system | accuracy |\n|---|---|\n| Base | 82.4 |\n| Ours | 60.2 |\n",
    },
    "a folder a system": {f"{name}/seed_{n}/all_results.json": json.dumps({"test_accuracy": value + n / 10, "epoch": 3.0})
                          for name, value in (("Base", 82.2), ("Ours", 60.0)) for n in range(3)},
    "runs of W&B": {f"{name}-{n}/files/{file}": text for name, value in (("Base", 82.2), ("Ours", 60.0)) for n in range(3)
        for file, text in (
        ("wandb-summary.json", json.dumps({"accuracy": value + n / 10, "_runtime": 3})),
        ("config.yaml", f"seed:\n  value: {n}\nmodel:\n  value: {name}\n"))},
    "a table of MLflow": {"runs.csv": "run_id,status,params.model,params.seed,metrics.accuracy\n" + "".join(
        f"{name}{n},FINISHED,{name},{n},{value + n / 10}\n" for name, value in (("Base", 82.2), ("Ours", 60.0)) for n in range(3))},
    "results of lm-evaluation-harness": {f"results_2026-01-0{n + 1}T00-00-0{k}.json": json.dumps(
        {"results": {"d": {"acc,none": (value + n / 10) / 100, "acc_stderr,none": 0.01}}, "config": {}, "model_name": name})
        for k, (name, value) in enumerate((("Base", 82.2), ("Ours", 60.0))) for n in range(3)},
}  # fmt: skip


def judged(folder: Path, printed: tuple[str, str | bytes, Names], ours: dict[str, str | bytes]):
    """Write both, read them by the command's door, and judge."""
    for name, text in ({printed[0]: printed[1]} | {f"ours/{name}": text for name, text in ours.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    both = read_both(folder / printed[0], [str(folder / "ours")], printed[2])
    return both, judge_table(both.printed, both.scores)


@pytest.mark.parametrize("name", PRINTED)
def test_printed_tables_are_read_as_a_person_reads_them(name, tmp_path):
    _, found = judged(tmp_path, PRINTED[name], {"s.csv": SEEDS})
    assert {one.printed.row: one.verdict for one in found} == BASE_OURS
    assert [len(one.values) for one in found] == [3, 3]
    if name in ("plus and minus", "deviation in a column", "LaTeX with spreads, sections and comments"):
        assert [one.printed.deviation for one in found] == [0.4, 0.3]


@pytest.mark.parametrize("name", OURS)
def test_results_are_read_in_every_form(name, tmp_path):
    _, found = judged(tmp_path, ("t.csv", LONG, Names()), OURS[name])
    assert {one.printed.row: (one.verdict, len(one.values)) for one in found} == {
        "Base": ("reproduced", 3),
        "Ours": ("lower", 3),
    }


def test_data_sets_and_metrics_are_columns(tmp_path):
    table = "| Model | MR | CR |\n|---|---|---|\n| Base | 79.9 | 84.6 |\n| Ours | 80.0 | — |\n"
    both, found = judged(tmp_path, ("t.md", table, ACCURACY), {"s.csv": WIDE})
    read = {(one.printed.row, one.printed.dataset): one.verdict for one in found}
    assert (
        read == {("Base", "MR"): "reproduced", ("Base", "CR"): "reproduced", ("Ours", "MR"): "lower"}
        and not both.unread
    )
    _, found = judged(
        tmp_path, ("u.csv", "Model,UAS/LAS\nBase,95.2/93.1\nOurs,96.0/94.2\n", Names()), {"s.csv": UAS_LAS}
    )
    assert [(one.printed.metric, one.verdict) for one in found] == [
        ("UAS", "reproduced"), ("LAS", "reproduced"), ("UAS", "reproduced"), ("LAS", "lower"),
    ]  # fmt: skip


def test_two_lines_of_header_and_cells_over_several_rows(tmp_path):
    table = (
        "\\begin{tabular}{llcc}\n & & \\multicolumn{2}{c}{PTB} \\\\\nSize & Model & UAS & LAS \\\\ \\hline\n"
        "\\multirow{2}{*}{small} & Base & 95.2 & 93.1 \\\\\n & Ours & 96.0 & 94.2 \\\\\n\\end{tabular}"
    )
    ours = UAS_LAS.replace("seed,UAS,LAS", "seed,PTB UAS,PTB LAS")
    _, found = judged(tmp_path, ("t.tex", table, Names()), {"s.csv": ours})
    assert [(one.printed.row, one.printed.dataset, one.printed.metric, one.verdict) for one in found] == [
        ("Base", "PTB", "UAS", "reproduced"), ("Base", "PTB", "LAS", "reproduced"),
        ("Ours", "PTB", "UAS", "reproduced"), ("Ours", "PTB", "LAS", "lower"),
    ]  # fmt: skip


def test_excel_files_are_read_with_the_digits_that_they_show(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (("Model", "Accuracy"), ("Base", 0.823), ("Ours", 0.8410001)):
        book.active.append(row)
    for cell in book.active["B"][1:]:
        cell.number_format = "0.0%"
    book.save(tmp_path / "t.xlsx")
    _, found = judged(tmp_path, ("t.xlsx", (tmp_path / "t.xlsx").read_bytes(), Names()), {"s.csv": SEEDS})
    assert [(one.printed.value, one.verdict) for one in found] == [("82.3%", "reproduced"), ("84.1%", "lower")]
    _, (_, one) = judged(tmp_path / "exact", ("t.csv", LONG, Names()), {"seed0.xlsx": (tmp_path / "t.xlsx").read_bytes()})
    assert one.values == pytest.approx([84.10001], 1e-9)


def test_an_excel_file_that_unpacks_to_much_is_refused_and_a_broken_one_is_named(tmp_path):
    pytest.importorskip("openpyxl")
    with zipfile.ZipFile(tmp_path / "large.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(MOST_BYTES_OF_EXCEL + 1))
    (tmp_path / "broken.xlsx").write_bytes(b"PK")
    os.mkfifo(tmp_path / "pipe.xlsx")
    for name, why in (("large", "unpacked it has more than"), ("broken", "no Excel file"), ("pipe", "no regular file")):
        with pytest.raises(ValueError, match=rf"{name}.xlsx: {why}"):
            grids(tmp_path / f"{name}.xlsx")


def test_directions_and_scales_are_shown_and_unknown_ones_are_asked_for(tmp_path):
    table = "system,AUC,WER,FID,latency (ms),checks\nA,0.91,7.3,12.1,120,3\n"
    ours = "system,seed,AUC,WER,FID,latency,checks\n" + "".join(
        f"A,{n},0.9{n},7.{n},12.{n},12{n},3\n" for n in range(3)
    )
    _, found = judged(tmp_path, ("t.csv", table, Names()), {"s.csv": ours})
    assert [(one.scale.scale, one.scale.lower_is_better) for one in found] == [
        ("share", False), ("percent", True), ("positive", True), ("positive", True), ("", None),
    ]  # fmt: skip
    assert [one.verdict for one in found] == ["reproduced"] * 4 + ["not comparable"] and "--scale checks=" in found[
        -1
    ].reason
    both = read_both(tmp_path / "t.csv", [str(tmp_path / "ours")], scales={"checks": "count"})
    assert both.printed[-1].scale == "count"
    with pytest.raises(ValueError, match="no such metric is printed; printed are AUC, WER"):
        read_both(tmp_path / "t.csv", [str(tmp_path / "ours")], scales={"F1": "share"})


def test_metrics_with_another_unit_or_qualifier_are_another_metric(tmp_path):
    for mine, theirs in (
        ("latency (s)", "latency (ms)"),
        ("R@5", "R@1"),
        ("macro F1", "micro F1"),
        ("dev accuracy", "test accuracy"),
    ):
        _, (found,) = judged(
            tmp_path,
            ("t.csv", f"system,{theirs}\nA,12\n", Names()),
            {"s.csv": f"system,seed,{mine}\nA,0,12\nA,1,12.1\n"},
        )
        assert found.verdict == "not run" and mine in found.reason


def test_a_bad_cell_stops_that_cell_alone_and_is_listed(tmp_path):
    table = "Model,Acc,F1\nBase,82.3,81 (4)\nOurs,84.1,80.2\n"
    both, found = judged(tmp_path, ("t.csv", table, Names()), {"s.csv": SEEDS})
    assert [one.verdict for one in found if one.printed.metric == "Acc"] == ["reproduced", "lower"] and len(found) == 3
    assert (
        len(both.unread) == 1
        and "t.csv, line 2, column F1: '81 (4)'" in both.unread[0]
        and "write 81 ± …" in both.unread[0]
    )
    both, found = judged(tmp_path, ("t.csv", LONG, Names()), {"s.csv": SEEDS.replace("82.4", "82.4 ?")})
    assert [one.verdict for one in found] == ["not comparable", "lower"] and "s.csv, line 3" in found[0].reason


def test_a_run_without_a_score_is_never_left_out(tmp_path):
    for cell in ("", "—", "OOM"):
        _, found = judged(tmp_path, ("t.csv", LONG, Names()), {"s.csv": SEEDS.replace("82.4", cell)})
        assert [one.verdict for one in found] == ["not comparable", "lower"] and "s.csv, line 3" in found[0].reason


def test_other_words_and_orders_name_the_same_metric(tmp_path):
    for mine, theirs in (
        ("dev F1", "F1 (dev)"),
        ("Acc.", "accuracy"),
        ("Recall@5", "R@5"),
        ("F1 mean", "F1-score"),
        ("r²", "R2"),
    ):
        ours = {"s.csv": f"system,seed,{mine}\nA,0,0.81\nA,1,0.82\nA,2,0.81\n"}
        _, (found,) = judged(tmp_path, ("t.csv", f"system,{theirs}\nA,0.812\n", Names()), ours)
        assert found.verdict == "reproduced", (mine, theirs, found)
    ours = {"s.csv": "system,seed,BLEU en-de\nA,0,27.2\nA,1,27.3\nA,2,27.4\n"}
    assert judged(tmp_path, ("t.csv", "system,en-de BLEU\nA,27.3\n", Names()), ours)[1][0].verdict == "reproduced"


def test_columns_that_are_no_metric_are_left_out_and_said(tmp_path):
    table = "Year,Model,Acc,Δ,Code\n2018,Base,82.3,,yes\n2019,Ours,84.1,+1.8,no\n"
    both, found = judged(tmp_path, ("t.csv", table, Names()), {"s.csv": SEEDS})
    assert {one.printed.row: one.verdict for one in found} == BASE_OURS
    assert both.unread[0].endswith("t.csv: not read: column 'Δ', 'Code': no metric, data set or seed")


def test_a_folder_is_read_whole_or_not_at_all(tmp_path):
    folder = {"seed0.csv": SEEDS, "notes.log": "x", "README.md": "text"}
    both, _ = judged(tmp_path, ("t.csv", LONG, Names()), folder)
    assert [line.rpartition("/")[2] for line in both.unread] == [
        "notes.log: no file of scores by its name",
        "README.md: no table",
    ]
    (tmp_path / "ours" / "copy.csv").write_text(SEEDS)
    both = read_both(tmp_path / "t.csv", [str(tmp_path / "ours")])
    assert len(both.scores[0].seeds) == 3 and "has the same scores of the same run" in both.unread[-1]
    (tmp_path / "ours" / "copy.csv").write_text("system,accuracy\nBase,82,3\n")
    with pytest.raises(ValueError, match="line 2: 3 cells, but 2 columns"):
        read_both(tmp_path / "t.csv", [str(tmp_path / "ours")])


def test_a_name_that_results_lack_is_never_guessed(tmp_path):
    two = "system,dataset,accuracy\nA,d1,82.3\nA,d2,60.1\n"
    _, found = judged(
        tmp_path, ("t.csv", two, Names()), {"s.csv": "system,seed,accuracy\nA,0,82.2\nA,1,82.3\nA,2,82.4\n"}
    )
    assert {one.verdict for one in found} == {"not run"} and "--dataset" in found[0].reason


def test_json_of_a_folder_is_read_or_an_error(tmp_path):
    runs = {f"run{n}.json": json.dumps({"model": "Base", "metrics": {"accuracy": 0.822 + n / 1000}}) for n in range(3)}
    _, found = judged(tmp_path, ("t.csv", LONG, Names()), runs | {"config.json": '{"name": "x"}'})
    assert (found[0].verdict, len(found[0].values)) == ("reproduced", 3)
    (tmp_path / "ours" / "run3.json").write_text('{"accuracy": [0.8, 0.9]}')
    with pytest.raises(ValueError, match=r"run3\.json: JSON without rows of scores"):
        read_both(tmp_path / "t.csv", [str(tmp_path / "ours")])


def test_a_setting_is_a_part_of_the_system(tmp_path):
    printed = "model,setting,acc\nBase,5-way 1-shot,61.2±0.8\nBase,5-way 5-shot,78.9±0.6\n"
    ours = "model,setting,seed,acc\n" + "".join(
        f"Base,5-way {shots}-shot,{n},{value + n / 10}\n" for shots, value in ((1, 61.1), (5, 70.0)) for n in range(3)
    )
    _, found = judged(tmp_path, ("t.csv", printed, Names()), {"s.csv": ours})
    assert [(one.printed.row, one.verdict) for one in found] == [
        ("Base, 5-way 1-shot", "reproduced"), ("Base, 5-way 5-shot", "lower"),
    ]  # fmt: skip


def test_a_claimed_gain_is_judged_by_an_option_or_a_column(tmp_path):
    same = "system,seed,accuracy\n" + "".join(
        f"{name},{n},82.{36 + n * k}\n" for k, name in enumerate(("Base", "Ours"), 1) for n in range(3)
    )
    both, found = judged(tmp_path, ("t.csv", LONG, Names()), {"s.csv": same})
    assert [one.verdict for one in found] == ["reproduced", "reproduced"]
    noisy = [(0, 80.0, 81.9), (1, 82.0, 83.8), (2, 84.0, 85.7)]  # seeds differ by more than the systems, but both alike
    pairs = "system,seed,accuracy\n" + "".join(f"Base,{n},{a}\nOurs,{n},{b}\n" for n, a, b in noisy)
    others = pairs.replace("Ours,", "Ours,1")  # other seeds
    for text, verdict, by in ((pairs, "confirmed", "3 pairs of seeds"), (others, "open", "3 and 3 seeds")):
        with_seeds, _ = judged(tmp_path, ("t.csv", LONG, Names()), {"s.csv": text})
        (gain,) = judge_gains(with_seeds.printed, with_seeds.scores, [("Ours", "Base")])
        assert gain.answer.verdict == verdict and by in gain.answer.reason
    (gain,) = judge_gains(both.printed, both.scores, [("ours", "base")])
    assert gain.answer.verdict == "not confirmed" and gain.answer.printed == pytest.approx(1.8)
    column = "system,metric,value,gain over\nBase,accuracy,82.3,\nOurs,accuracy,84.1,Base\n"
    both, _ = judged(tmp_path, ("t.csv", column, Names()), {"s.csv": same})
    assert [one.answer.verdict for one in judge_gains(both.printed, both.scores)] == ["not confirmed"]
    with pytest.raises(ValueError, match="gain Ours:None: no table has both; its systems are Base, Ours"):
        judge_gains(both.printed, both.scores, [("Ours", "None")])
    faster = "system,seed,perplexity\n" + "".join(
        f"{n},{s},{v + s / 10}\n" for n, v in (("Base", 20.0), ("Ours", 18.0)) for s in range(3)
    )
    both, _ = judged(tmp_path, ("t.csv", "system,perplexity\nBase,20.1\nOurs,18.1\n", Names()), {"s.csv": faster})
    assert judge_gains(both.printed, both.scores, [("Ours", "Base")])[0].answer.verdict == "confirmed"


@pytest.mark.parametrize(
    "cell",
    [
        "82.3 (4)",
        "82.3 (84.1)",
        "2<sup>1</sup>",
        "29¹",
        "5<sup>-3</sup>",
        "82.3<sub>4</sub>",
        "120 ms",
        "1,23,4",
        "~82",
        "1.2 (0.7)",
        "79/80",
        "0,123.4",
        "0.801 ± 0.2%",
        "82.3 ± ",
    ],
)
def test_what_may_be_two_things_is_no_number(cell):
    with pytest.raises(ValueError, match=r"write|name as many"):
        value_of(cell)


@pytest.mark.parametrize(
    ("cell", "text", "deviation", "bound"),
    [("1,234", "1234", None, ""), ("12,345.6", "12345.6", None, ""), ("1 234", "1234", None, ""), ("−0.30", "-0.30", None, ""),
     ("> 90", "90", None, ">"), ("$\\leq$ 5", "5", None, "<"), ("82.3 [81.0, 83.5]", "82.3", None, ""), ("1.2e-3", "0.0012", None, ""),
     ("$1.2\\times10^{-3}$", "0.0012", None, ""), ("82.3%±0.4%", "82.3%", 0.4, ""), ("<b>82.3</b><sup>1</sup>", "82.3", None, ""),
     ("$80.0^{\\pm 0.3}$", "80.0", 0.3, ""), ("85.0 (5.0↑)", "85.0", None, ""), ("70.1 (↑0.5)", "70.1", None, ""),
     ("70.1 ($\\downarrow$ 0.5)", "70.1", None, ""), ("70.1$_{\\uparrow 0.5}$", "70.1", None, ""), ("80.1 ± 0.2%", "80.1", 0.2, ""),
     ("82.3 +/- 0.4", "82.3", 0.4, ""), ("—", "", None, ""), ("N/A", "", None, ""), ("\\underline{82.3}", "82.3", None, "")],
)  # fmt: skip
def test_cells_are_read_with_their_digits(cell, text, deviation, bound):
    assert value_of(cell)[:3] == (text, deviation, bound)


def test_commas_are_decided_once_for_a_table(tmp_path):
    ours = {"s.csv": "system,seed,memory\nA,0,1234\nA,1,1235\nA,2,1236\n"}
    for text, value in (("system;memory\nA;1.234,5\n", "1234.5"), ('system,memory\nA,"1,234"\n', "1234")):
        assert [one.printed.value for one in judged(tmp_path, ("t.csv", text, Names()), ours)[1]] == [value]
    with pytest.raises(ValueError, match="a comma before decimals or thousands"):
        judged(tmp_path, ("t.csv", "system;memory\nA;1,234\n", Names()), ours)
    for other in ("12.500", "1.5"):
        text = f"system;memory;F1\nA;1,234;{other}\nB;12;81\n"
        both, _ = judged(tmp_path, ("t.csv", text, Names()), ours)
        assert "'1,234': a comma before decimals or thousands" in both.unread[0]


@pytest.mark.parametrize(
    ("cells", "divider", "comma"),
    [("1,234 80,5 12.500", ";", True), ("0,123 1,234", ";", True), ("1,234 1.234,5", "\t", True), ("1,234 12.500", "", None),
     ("1,234 0.5 84,1", ";", None), ("1,234 A=3.5", "", None), ("1,234 1.5", "", False), ("1,234 A=[1,2] [1,2]A 0.5", "", False)],
)  # fmt: skip
def test_a_comma_is_what_clear_numbers_of_its_table_say(cells, divider, comma):
    assert uses_decimal_commas(cells.split(), divider) is comma


def test_ours_with_unclear_commas_are_asked_for(tmp_path):
    ours = {f"seed{n}.csv": f"model;perplexity;n\nA;1,23{n};12.500\n" for n in range(3)}
    _, found = scores_of(tmp_path, ours, "model,perplexity\nA,1.234\n")
    assert found[("A", "perplexity")][0] == "not comparable"


def test_the_command_says_how_it_reads_and_stops_at_check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("system,accuracy\nBase,0.9\nOurs,0.5\n")
    Path("scores.csv").write_text(SEEDS)
    done = run_cli("judge", "table.csv", "scores.csv", "--check")
    assert (
        done.exit_code == 0
        and "How the files are read" in done.stdout
        and "share" in done.stdout
        and "0.01" in done.stdout
    )
    assert not Path("judged.html").exists()
    done = run_cli("judge", "table.csv", "scores.csv", "--gain", "Ours:Base", "--scale", "accuracy=percent")
    assert done.exit_code == 0 and "Ours better than Base" in done.stdout and Path("judged.html").exists()
    done = run_cli("judge", "table.csv", "scores.csv", "--scale", "accuracy", "--force")
    assert isinstance(done.exception, ValueError) and "--scale 'accuracy'" in str(done.exception)


def test_tables_of_this_project_are_read_by_the_same_reader():
    from phrasemodels.verdicts import read_printed

    data = PROJECT / "phrasemodels" / "data" / "published_results.csv"
    unread: list[str] = []
    assert len(read_printed(data, unread=unread)) > 400
    assert len(read_printed(PROJECT / "phrasemodels/flows/cli/template/printed.csv")) == 2


def test_printed_numbers_of_a_study_are_read_by_the_same_reader(tmp_path, monkeypatch):
    from phrasemodels.flows.experiments import published

    (tmp_path / "printed.csv").write_text("table;system;metric;value\nTable 1;A;BLEU;84,1 ± 0,3\nTable 1;B;F1;82,5 %\n")
    monkeypatch.setattr("phrasemodels.project.beside", lambda paper, file: tmp_path / file)
    one, other = published._added("mine")
    assert (one["value"], one["stdev"], one["unit"]) == ("84.1", "0.3", "") and (other["value"], other["unit"]) == (
        "82.5",
        "%",
    )


def scores_of(folder: Path, files: dict[str, str | bytes], printed: str = LONG, names: Names | None = None):
    """Judge files of ours by a printed table; each verdict by row and metric."""
    both, found = judged(folder, ("t.csv", printed, names or Names()), files)
    return both, {(one.printed.row, one.printed.metric): (one.verdict, len(one.values)) for one in found}


BY_SEED = {f"seed{n}.csv": f"system,accuracy\nBase,82.{n + 2}\n" for n in range(3)}


def of_seeds(header: str, *rows: str) -> dict[str, str]:
    """A file for each of three seeds; {} in a row is the seed."""
    return {f"seed{n}.csv": "\n".join((header, *rows)).replace("{}", str(n)) + "\n" for n in range(3)}
