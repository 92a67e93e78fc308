"""What may be read in two ways judges nothing: it is said, with what to write."""

import json

import pytest
from test_tables import judged, of_seeds

from phrasemodels.verdicts import Names, judge_gains
from phrasemodels.verdicts.cells import plain, value_of

AB = "| Model | Accuracy |\n|---|---|\n| A | 80.0 |\n| B | 82.0 |\n"


def of_a(*runs: dict[str, object]) -> dict[str, str]:
    """A file of JSON for each run of system A; SCORE is its score."""
    return {f"A/seed{n}.json": json.dumps(run).replace('"SCORE"', str(0.8 + n / 1000)) for n, run in enumerate(runs)}


def csv_of(header: str, *rows: str) -> dict[str, str]:
    return {f"A/seed{n}.csv": f"{header}\n{row}\n" for n, row in enumerate(rows)}


def verdict_of(folder, files, table=AB, names=None, name="t.md"):
    """The verdict on the first number, how many runs judge it, and all that is said."""
    both, found = judged(folder, (name, table, names or Names()), files)
    return found[0].verdict, len(found[0].values), " ".join([*both.unread, found[0].reason])


@pytest.mark.parametrize(
    ("files", "verdict", "said"),
    [(of_a(*[{"eval/accuracy": 0.9, "test/accuracy": "SCORE"}] * 3), "reproduced", ""),
     (of_a(*[{"eval": {"accuracy": 0.9}, "test": {"accuracy": "SCORE"}}] * 3), "reproduced", ""),
     (of_a(*[{"eval_accuracy": 0.9, "predict_accuracy": "SCORE", "val_accuracy": 0.9}] * 3), "reproduced", ""),
     (csv_of("eval_accuracy,test_accuracy", "90,80.0", "90,80.1", "90,80.2"), "reproduced", ""),
     (of_a(*[{"eval_accuracy": "SCORE"}] * 3), "not comparable", "say --same eval"),
     (of_a(*[{"accuracy": 0.99, "test_accuracy": "SCORE"}] * 3), "not comparable", "take one away, or rename it"),
     (of_a(*[{"val/accuracy": "SCORE"}] * 3), "not run", ""),
     (of_a(*[{"SST_eval_accuracy": "SCORE"}] * 3), "not run", "")],
)  # fmt: skip
def test_scores_of_another_split_answer_no_number_of_the_test_set(files, verdict, said, tmp_path):
    found = verdict_of(tmp_path, files)
    assert found[0] == verdict and said in found[2], found


@pytest.mark.parametrize("extra", [{"early_stopped": True}, {"optimizer": "adam"}, {"host": "node0"}, {"backbone": "B"}, {"git": None}])
def test_a_setting_is_no_name_of_a_system(extra, tmp_path):
    plain = {"accuracy": "SCORE"}
    assert verdict_of(tmp_path / "1", of_a(plain | extra, plain | extra, plain | extra))[:2] == ("reproduced", 3)
    files = {name.removeprefix("A/"): text for name, text in of_a(*[plain | {"backbone": "A"}] * 3).items()}
    with pytest.raises(ValueError, match="column 'backbone' has names of printed systems: call it system if these are the systems"):
        verdict_of(tmp_path / "2", files)


@pytest.mark.parametrize(
    "last",
    [{"accuracy": "NaN", "loss": 0.3}, {"accuracy": None, "loss": 0.3}, {"accuracy": 0.5, "diverged": True}, {"accuracy": "failed", "n": 1},
     {"accuracy": 0.5, "status": "diverged"}],
)  # fmt: skip
def test_a_run_that_diverged_or_has_no_score_never_vanishes(last, tmp_path):
    found = verdict_of(tmp_path, of_a(*[{"accuracy": "SCORE", "loss": 0.3}] * 3, last))
    assert found[0] in ("inconclusive", "not comparable"), found


def test_a_cell_of_a_diverged_run_is_a_score_though_its_file_has_no_other(tmp_path):
    table, mr = "| Model | MR | CR |\n|---|---|---|\n| A | 80.0 | 84.0 |\n", Names(metric="accuracy")
    files = csv_of("model,MR,CR", "A,80.0,84.0", "A,80.1,84.1", "A,79.9,84.2", "A,nan,84.3")
    assert verdict_of(tmp_path / "1", files, table, mr)[:2] == ("inconclusive", 4)
    assert verdict_of(tmp_path / "2", csv_of("accuracy", "80.0", "80.1", "79.9", "nan"))[:2] == ("inconclusive", 4)
    wide = {"s.csv": "model,seed1,seed2,seed3\nA,80.0,80.1,\n"}
    assert verdict_of(tmp_path / "3", wide, names=Names(metric="accuracy"))[0] == "not comparable"
    for name, value, said in (("failed", True, "failed"), ("oom", "yes", "oom"),
                              ("exit_code", 137, "exit code 137"), ("timed_out", 1, "timed"),
                              ("completed", False, "completed: false"), ("error", "CUDA", "error"), ("status", "oom", "oom")):  # fmt: skip
        failed = of_a(*[{"accuracy": "SCORE"}] * 3, {"accuracy": 0.1, name: value})
        found = verdict_of(tmp_path / name, failed)
        assert found[:2] == ("reproduced", 3) and f"its state is '{said}" in found[2]


@pytest.mark.parametrize(
    ("beside", "verdict"),
    [({"dataset": "MR"}, "not run"), ({"split": "dev"}, "not run"), ({"model": "B"}, "not run"),
     ({"time": 3.5, "config": {"lr": 1}}, "reproduced"), ({"data": [{"model": "A", "accuracy": 0.9}]}, "")],
)  # fmt: skip
def test_what_stands_beside_rows_of_json_holds_for_each(beside, verdict, tmp_path):
    table = "| Model | Dataset | Accuracy |\n|---|---|---|\n| A | SST | 80.0 |\n"
    files = {f"A/seed{n}.json": json.dumps(beside | {"results": [{"accuracy": 0.8 + n / 1000}]}) for n in range(3)}
    if not verdict:
        with pytest.raises(ValueError, match="JSON without rows of scores"):
            verdict_of(tmp_path, files, table, Names(dataset="SST"))
    else:
        names = Names() if "dataset" in beside else Names(dataset="SST")
        assert verdict_of(tmp_path, files, table, names)[0] == verdict


DATA = {f"seed{n}.csv": f"model,dataset,accuracy\nBase,SST,80.{n}\nCNN,SST,70.{n}\nCNN,MR,75.{n}\nTree,MR,76.{n}\n" for n in range(3)}


def judged_data(folder, text, end="md"):
    """The verdict on each number of a table by DATA, or what is said where there is none."""
    try:
        both, found = judged(folder, (f"t.{end}", text, Names(metric="accuracy")), DATA)
    except ValueError as error:
        return {}, str(error)
    return {(one.printed.row, one.printed.dataset): one.verdict for one in found}, " ".join(both.unread)


RIGHT = {("Base", "SST"): "reproduced", ("CNN", "MR"): "reproduced"}
HEADS = "| {} | SST |\n|---|---|\n| Base | 80.1 |\n| {} | MR |\n| CNN | 75.1 |\n"
TWO = "{}\n\n| Model | Acc |\n|---|---|\n| Base | 80.1 |\n\n{}\n\n| Model | Acc |\n|---|---|\n| CNN | 75.1 |\n\n{}\n"
TABULAR = "\\begin{{tabular}}{{lc}}Model & Acc \\\\ {} & {} \\\\ \\end{{tabular}}"
BASE, CNN = TABULAR.format("Base", 80.1), TABULAR.format("CNN", 75.1)
MULTIROW = "\\begin{{tabular}}{{llc}} Dataset & Model & Acc \\\\ {} & Base & 80.1 \\\\ " + (
    "{} & CNN & 70.1 \\\\ {} & CNN & 75.1 \\\\ {} & Tree & 76.1 \\\\ \\end{{tabular}}"
)


@pytest.mark.parametrize(
    ("text", "end"),
    [(HEADS.format("Model", "Model"), "md"), (HEADS.format("Model", "Method"), "md"), (HEADS.format("", ""), "md"),
     ("model,SST\nBase,80.1\n\nmodel,MR\nCNN,75.1\n", "csv"), ("model,SST,MR\nBase,80.1,\nmodel,SST,MR\nCNN,,75.1\n", "csv"),
     (TWO.format("## SST", "Table 2: MR", ""), "md"), (TWO.format("*Table 1: SST*", "**Table 2: MR**", "A text."), "md"),
     (TWO.format("**SST**", "**MR**", ""), "md"),
     (f"\\begin{{table}}\\begin{{subtable}}{{5cm}}\\caption{{SST}}{BASE}\\end{{subtable}}\\begin{{subtable}}{{5cm}}{CNN}\\caption{{MR}}"
      "\\end{subtable}\\caption{All}\\end{table}", "tex"),
     (f"\\begin{{table}}\\subfloat[SST]{{{BASE}}}\\subfloat[MR]{{{CNN}}}\\caption{{All}}\\end{{table}}", "tex"),
     (f"\\begin{{table*}}\\captionof{{table}}{{SST}}{BASE}\\captionof{{table}}{{MR}}{CNN}\\end{{table*}}", "tex"),
     (f"\\begin{{wraptable}}{{r}}{{5cm}}{BASE}\\caption{{SST}}\\end{{wraptable}}"
      f"\\begin{{table}}{CNN}\\caption{{MR}}\\end{{table}}", "tex")],
)  # fmt: skip
def test_each_table_and_panel_has_its_own_header_and_caption(text, end, tmp_path):
    assert judged_data(tmp_path, text, end)[0] == RIGHT


@pytest.mark.parametrize(
    ("text", "end"),
    [(TWO.format("## SST", "and on MR:", ""), "md"), (TWO.format("", "**SST**", "**MR**"), "md"),
     (TWO.format("# All", "**SST**", "**MR**"), "md"), (TWO.format("", "**MR**", ""), "md"), (BASE + CNN, "tex"),
     (f"\\begin{{table}}\\caption{{SST}}{BASE}{CNN}\\caption{{MR}}\\caption{{All}}\\end{{table}}", "tex")],
)  # fmt: skip
def test_captions_that_may_be_of_two_tables_are_asked_for(text, end, tmp_path):
    found, said = judged_data(tmp_path, text, end)
    assert not found and "several tables have Acc, one without a heading: add a column dataset" in said


def test_prose_captions_name_tables_and_claims_do_not_cross_them(tmp_path):
    text = TWO.format("Table 1: Accuracy on SST", "Table 2: Accuracy on MR", "")
    assert judged_data(tmp_path, text)[0] == {("Base", "Accuracy on SST"): "not run", ("CNN", "Accuracy on MR"): "not run"}
    both = judged(tmp_path, ("t.md", text, Names()), {"seed0.csv": "model,acc\nBase,80\nCNN,75\n"})[0]
    with pytest.raises(ValueError, match="no table has both"):
        judge_gains(both.printed, both.scores, [("CNN", "Base")])


@pytest.mark.parametrize("cells", ["\\multicolumn{2}{c}{82.3}", "\\multirow{2}{*}{82.3} & 82.1", "B2:C2"])
def test_a_number_over_several_cells_counts_for_none(cells, tmp_path):
    if "\\" in cells:
        name, text = "t.tex", f"\\begin{{tabular}}{{lcc}} Model & MR & CR \\\\ A & {cells} \\\\ B & 1 & 1 \\\\ \\end{{tabular}}".encode()
    else:
        book, name = pytest.importorskip("openpyxl").Workbook(), "t.xlsx"
        for row in (("Model", "MR", "CR"), ("A", 82.3, None), ("B", 82.1, 82.1)):
            book.active.append(row)
        book.active.merge_cells(cells)
        book.save(tmp_path / name)
        text = (tmp_path / name).read_bytes()
    both, found = judged(tmp_path, (name, text, Names(metric="accuracy")), {"s.csv": "model,MR,CR\nA,82.3,82.3\nB,82.1,82.1\n"})
    assert not [one for one in found if one.printed.value == "82.3"] and "write it into each that it is of" in " ".join(both.unread)


ONE = "| model | accuracy |\n|---|---|\n| A | 82.1 |\n"
HEAD = "| model | accuracy | dev accuracy |\n|---|---|---|\n| A | 82.1 | 1 |\n"
CSV = "model,accuracy\nA,82.1\n"
FLOAT = "\\begin{{table}}{}\\begin{{tabular}}{{lc}} model & accuracy \\\\ A & 82.1 \\\\ \\end{{tabular}}{}\\end{{table}}"
OF_GROUP = "\\begin{{tabular}}{{lc}} model & accuracy \\\\ \\multicolumn{{2}}{{c}}{{{}}} \\\\ A & 82.1 \\\\ \\end{{tabular}}"


@pytest.mark.parametrize(
    ("name", "text", "asked"),
    [*(("t.md", f"{said}\n\n{ONE}", word) for said, word in (
         ("Table 3: validation accuracy", "validation"), ("## Results on dev", "dev"), ("Table 3: Gains over the baseline.", "gains"),
         ("Table 1. Results, best of 5 runs", "best of"), ("**Ablation study**", "ablation"), ("Numbers are relative to A.", "relative to"),
         ("Differences from the baseline (%)", "differences"), ("Oracle results", "oracle"), ("Median over 5 runs", "median"),
         ("Accuracy on the training set", "training set"), ("Standard deviations over 5 runs", "standard deviations"),
         ("Results on COCO val2017", "val2017"), ("Tuning-set accuracy", "tuning-set"), ("Average of 5-fold CV", "cv"),
         ("We run each model five times and report the best", "report the best"), ("Five runs, best reported.", "best reported"),
         ("Numbers are from the best-performing seed", "best-performing seed"), ("Mean of the top 3 of 5 runs", "top 3 of 5 runs"),
         ("Human-normalized scores", "human-normalized scores"), ("Scores of ensembles", "ensembles"),
         ("Dev-set accuracy", "dev"), ("Accuracy, MNLI-dev", "dev"), ("Best-of-5 accuracy", "best of"))),
     ("t.md", f"{ONE}\nTable 1: Accuracy.\n\nAll numbers are the best of five runs.\n", "best of"),
     ("t.tex", FLOAT.format("", "\\end{center}\\begin{tablenotes}\\item All are the best of five runs.\\end{tablenotes}"), "best of"),
     ("t.tex", FLOAT.format("Results on the dev set.", ""), "dev"), ("t.tex", "\\section{Dev results}\n" + FLOAT.format("", ""), "dev"),
     ("t.tex", FLOAT.format("", "").replace("82.1", "82.1\\footnote{On the dev set.}"), "dev"),
     ("t.md", f"{ONE}\nTable 3: validation accuracy\n", "validation"), ("t.md", f"{ONE}\nAll numbers are of the dev set.\n", "dev"),
     ("t.csv", f"Results on dev,\n{CSV}", "dev"), ("t.csv", f"{CSV}all on dev,\n", "dev"),
     ("t.csv", "model,Eval,accuracy\nA,dev,82.1\n", "dev"),
     ("t3_dev.csv", CSV, "dev"),
     ("t.tex", FLOAT.format("\\caption{Dev \\textbf{accuracy}}", ""), "dev"), ("t.tex", FLOAT.format("", "\\caption{Gains.}"), "gains"),
     ("t.tex", FLOAT.format("\\caption{All}", "\\small On the dev set."), "dev"),
     ("t.tex", OF_GROUP.format("Upper bounds"), "upper bounds"),
     *(("t.md", f"{said}\n\n{text}", "") for text, said in (
         (ONE, "Table 2: Results on SST-2 and MR"), (ONE, "Best results are in bold."), (HEAD, "Dev and test accuracy"),
         (ONE, "Test accuracy. Models are selected on the validation set."), (ONE, "† marks significant improvements over the baseline."),
         (ONE, "Our model yields large improvements over CNN."), (ONE, "Mean and standard deviation over 5 runs"),
         (ONE, "Results with relative position encodings"), (ONE, "Development of accuracy"), (ONE, "Results on COCO test-dev"),
         (ONE, "The best accuracy is in bold, the highest F1 underlined"),
         (ONE, "All models are trained on the training set, without ensembles"), (ONE, "Standard deviations are below 0.3"))),
     ("t.md", ONE.replace("accuracy", "Test Accuracy"), ""),
     ("t.tex", FLOAT.format("\\caption{All}\\label{tab:dev}", ""), ""), ("t.tex", OF_GROUP.format("Test set"), ""),
     ("t.tex", OF_GROUP.format("Supervised"), "")],
)  # fmt: skip
def test_text_beside_a_table_is_understood_or_asked_about(name, text, asked, tmp_path):
    ours = csv_of("accuracy", "82.0", "82.1", "82.2")
    found = verdict_of(tmp_path, ours, text, name=name)
    assert found[0] == ("not comparable" if asked else "reproduced") and f"say --same {asked!r}" * bool(asked) in found[2], found
    if asked:
        assert verdict_of(tmp_path, ours, text, Names(same=frozenset((asked,))), name)[0] == "reproduced"


def test_a_line_above_rows_names_their_metric_or_split_and_a_data_set_is_no_other(tmp_path):
    ours = of_seeds("model,MR,CR", "A,82.{},80.{}", "B,82.{},80.{}")
    table = "Model & MR & CR \\\\ {} \\\\ A & 82.1 & 80.1 \\\\ {} \\\\ B & 82.1 & 80.1 \\\\"
    for lines in (("Accuracy", "F1"), ("Test", "Dev")):
        text = table.format(*(f"\\multicolumn{{3}}{{c}}{{{line}}}" for line in lines))
        _, found = judged(tmp_path, ("t.tex", text, Names(metric="accuracy")), ours)
        assert [one.verdict for one in found] == ["reproduced"] * 2 + ["not run"] * 2
    for text in ("model,split,accuracy\nA,dev,82.1\n", "model,dataset,accuracy\nA,MR val,82.1\n"):
        assert verdict_of(tmp_path / "0", csv_of("accuracy", "82", "82.1", "82.2"), text, name="t.csv")[0] == "not run"
    found = verdict_of(tmp_path / "1", csv_of("accuracy", "82", "82.1", "82.2"), f"Results on MR\n\n{ONE}", Names(dataset="SST"))
    assert found[0] == "not comparable" and "says 'mr'" in found[2]
    ours = {f"seed{n}.md": f"## Dev accuracy\n\n{ONE.replace('.1', f'.{n}')}" for n in range(3)}
    found = verdict_of(tmp_path / "2", ours, CSV, name="t.csv")
    assert found[0] == "not comparable" and "--same 'dev'" in found[2]


@pytest.mark.parametrize(
    ("printed", "ours", "verdict", "same"),
    [("MR,CR,SST,Avg", "MR,CR,Avg", "not comparable", ""), ("MR,CR,SST,Avg", "MR,CR,Avg", "reproduced", "Avg"),
     ("MR,CR,Avg", "MR,CR,SST,Avg", "reproduced", ""), ("MR,TREC,Avg.", "MR,TREC,Avg.", "not comparable", ""),
     ("Average", "Average", "not comparable", ""), ("MR accuracy,TREC accuracy,Avg accuracy", "MR accuracy,CR accuracy,Avg accuracy",
      "not comparable", ""), ("MR accuracy,CR accuracy,Mean accuracy", "MR accuracy,CR accuracy,Mean accuracy", "reproduced", ""),
     *((f"MR,CR,SST,{name}", f"MR,CR,{name}", "not comparable", "")
       for name in ("Average score", "Overall", "Avg. 7", "All", "Ø", "Mittel"))],
)  # fmt: skip
def test_an_average_is_over_the_same_data_sets_or_asked_about(printed, ours, verdict, same, tmp_path):
    numbers = {"MR": "80", "CR": "84", "SST": "82", "TREC": "90"}  # so the average of ours is 82.{} over MR and CR, with SST or without
    row = ",".join(f"{numbers.get(name.split()[0], '82')}.{{}}" for name in ours.split(","))
    names = Names(metric="" if "accuracy" in printed else "accuracy", same=frozenset(filter(None, (same,))))
    _, found = judged(tmp_path, ("t.csv", f"model,{printed}\nA,{row_of(printed)}\n", names), of_seeds(f"model,{ours}", f"A,{row}"))
    assert found[-1].verdict == verdict, found[-1].reason


def row_of(names: str) -> str:
    return ",".join("82.1" for _ in names.split(","))


@pytest.mark.parametrize(
    ("numbers", "ours", "verdicts"),
    [("82.1 84.0 0.83", "82 84 83", "rr?"), ("0.821 0.840 83.0", "0.82 0.84 0.83", "??r"), ("82.1 0.9", "82 1", "rr"),
     ("82.1 84.0 0.83%", "82 84 83", "rrh"), ("82.1 0.5", "82 40", "r?")],
)  # fmt: skip
def test_a_share_among_percentages_is_asked_about(numbers, ours, verdicts, tmp_path):
    rows = [f"S{n},{value}" for n, value in enumerate(numbers.split())]
    mine = [f"S{n},{value}{'' if '.' in value else '.'}{{}}" for n, value in enumerate(ours.split())]
    _, found = judged(tmp_path, ("t.csv", "model,accuracy\n" + "\n".join(rows), Names()), of_seeds("model,accuracy", *mine))
    assert "".join("?" if one.verdict == "not comparable" else one.verdict[0] for one in found) == verdicts, found


def test_columns_of_sizes_are_no_data_sets_and_options_win_over_no_path(tmp_path):
    accuracy = Names(metric="accuracy")
    _, found = judged(tmp_path / "1", ("t.csv", "model,Params (M),MR\nA,110,82.1\n", accuracy), of_seeds("model,Params,MR", "A,66,82.{}"))
    assert [(one.printed.dataset, one.verdict) for one in found] == [("", "not comparable"), ("MR", "reproduced")]
    files = {f"B/seed{n}.csv": f"accuracy\n82.{n}\n" for n in range(3)}
    _, found = judged(tmp_path / "2", ("t.csv", "system,accuracy\nA,82.1\nB,60\n", Names(system="A")), files)
    assert [one.verdict for one in found] == ["not run", "higher"]
    both, _ = judged(tmp_path / "3", ("t.csv", CSV, Names(dataset="SST")), {f"CR/{name}": text for name, text in files.items()})
    assert "its name also says 'CR'" in " ".join(both.unread)


def test_a_name_over_several_rows_is_theirs_wherever_it_stands(tmp_path):
    right = {("Base", "SST"): "reproduced", ("CNN", "SST"): "reproduced", ("CNN", "MR"): "reproduced", ("Tree", "MR"): "reproduced"}
    for names in ("{2}{*}{SST}", "", "{2}{*}{MR}", ""), ("", "{-2}{*}{SST}", "", "{-2}{*}{MR}"):
        cells = [f"\\multirow{name}" * bool(name) for name in names]
        assert judged_data(tmp_path, MULTIROW.format(*cells), "tex")[0] == right
    found, said = judged_data(tmp_path, MULTIROW.format("", "SST", "", "MR"), "tex")
    assert not found and "'SST' may hold for rows above it too: write the name into each row" in said


@pytest.mark.parametrize(
    "cell", ["12†3", "82.7†1", "82.7$^{\\dagger}$1", "82.7§2", "120•5", "82.7**1**", "1_000", "82.7<sup>a</sup>1", "12²3"]
)
def test_digits_beside_a_mark_are_no_digits_of_the_number(cell):
    with pytest.raises(ValueError, match=r"write|name as many"):
        value_of(plain(cell))
    assert value_of("\\phantom{1}82.7").text == "82.7" == value_of("$\\mathbf{82.7}^{\\dagger}$").text


@pytest.mark.parametrize(
    ("printed", "ours", "said", "same"),
    [("Error\nA,19.0\nB,14.0", of_seeds("model,score", "A,81.{}", "B,86.{}"), "ours lie at 100 - Error", "error"),
     ("Accuracy\nA,0.051", of_seeds("model,accuracy", "A,0.95{}"), "ours lie at 1 - Accuracy", "accuracy"),
     ("Error\nA,66.0", of_seeds("model,item,score", "A,1,0.0{}", "A,2,1", "A,3,1"), "counts what is wrong", "error"),
     ("Latency\nA,12.0\nB,8.0", of_seeds("model,latency", "A,0.007{}", "B,0.005{}"), "ours are about 1/2000 of", "latency"),
     ("RMSE\nA,8.1\nB,8.4", of_seeds("model,rmse", "A,0.071{}", "B,0.064{}"), "ours are about 1/100 of", "rmse")],
)  # fmt: skip
def test_ours_of_the_opposite_kind_or_another_unit_are_found_by_all_numbers(printed, ours, said, same, tmp_path):
    text = f"model,{printed}\n"
    _, found = judged(tmp_path, ("t.csv", text, Names()), ours)
    assert {one.verdict for one in found} == {"not comparable"} and all(said in one.reason for one in found), found
    assert "not comparable" not in {one.verdict for one in judged(tmp_path, ("t.csv", text, Names(same=frozenset((same,)))), ours)[1]}


@pytest.mark.parametrize(
    ("text", "metric", "asked"),
    [("Latency in milliseconds.", "latency", "milliseconds"), ("RMSE (×100) on the test set", "RMSE", "×100"),
     ("Memory (GB)", "memory", "gb"), ("Losses, multiplied by 1000", "loss", "multiplied by 1000"),
     ("Latency in milliseconds", "latency (ms)", ""),
     ("BLEU (×100)", "BLEU", ""), ("Perplexity; trained for 3 days, 24 million parameters", "perplexity", "")],
)  # fmt: skip
def test_a_unit_in_the_text_beside_a_table_is_asked_about(text, metric, asked, tmp_path):
    ours = of_seeds(f"model,{metric}", "A,12.{}")
    found = verdict_of(tmp_path, ours, f"{text}\n\n| model | {metric} |\n|---|---|\n| A | 12.1 |\n")
    assert (found[0] == "not comparable") == bool(asked) and f"--same {asked!r}" * bool(asked) in found[2], found


@pytest.mark.parametrize("name", "Best Peak Median Oracle Ensemble".split())
def test_a_column_of_a_statistic_is_no_data_set(name, tmp_path):
    table, ours = f"| model | {name} |\n|---|---|\n| A | 82.1 |\n", of_seeds("model,accuracy", "A,82.{}")
    for same, verdict in ((), "not comparable"), ((name.casefold(),), "reproduced"):
        assert verdict_of(tmp_path, ours, table, Names(metric="accuracy", same=frozenset(same)))[0] == verdict


def test_a_metric_that_the_caption_contradicts_is_asked_about(tmp_path):
    text = "Table 2: Test error (%) on CIFAR.\n\n| model | C10 |\n|---|---|\n| A | 5.1 |\n"
    found = verdict_of(tmp_path, of_seeds("model,C10", "A,5.{}"), text, Names(metric="accuracy"))
    assert found[0] == "not comparable" and "--same 'error'" in found[2]


MARKED = "| model | accuracy |\n|---|---|\n| A | {} |\n| B | 84.0 |\n\n{}\n"
HARMLESS = ("† marks significant improvements (p < 0.05)", "† our method", "† reimplemented by us", "* p<.05", "† taken from [3]")


@pytest.mark.parametrize(
    ("cell", "text", "asked"),
    [("82.1†", "† indicates results on the validation set.", "validation"), ("82.1*", "\\* best of 5 runs.", "best of"),
     ("82.1*", "*Results marked with * are on the dev set.*", "dev"), ("82.1*", "Note: * denotes dev set results.", "dev"),
     ("82.1[^1]", "[^1]: ensemble of 5", "ensemble"), ("82.1<sup>a</sup>", "<sup>a</sup> trained with extra data", "a"),
     ("82.1‡", "‡ uses external data", "‡"), ("82.1†", "† taken from Smith et al. (2019), who use another split", "†"),
     ("82.1*", "* significant on the test set with p < 0.05", ""), ("82.1$^\\dagger$", "A dagger stands for extra data", "†"),
     ("82.1", "† results on dev", "dev"), *(("82.1†", text, "") for text in HARMLESS)],
)  # fmt: skip
def test_a_mark_asks_about_its_own_numbers_unless_it_is_harmless(cell, text, asked, tmp_path):
    ours = of_seeds("model,accuracy", "A,82.{}", "B,84.{}")
    for same in ((), (asked,)):
        both, found = judged(tmp_path, ("t.md", MARKED.format(cell, text), Names(same=frozenset(same))), ours)
        stopped = [bool(asked and not same), cell == "82.1" and not same]  # without a mark in the table it may be of all
        assert [one.verdict == "not comparable" for one in found] == stopped, found
        assert f"--same {asked!r}" in found[0].reason or not asked or same
        assert "⟦" not in " ".join((*both.unread, found[0].reason, found[0].printed.beside))


TWO_LINES = "\\begin{{tabular}}{{lcc}} {} \\\\ {} \\\\ A & 82.1 & 84.1 \\\\ \\end{{tabular}}"


@pytest.mark.parametrize(
    ("top", "second", "ours"),
    [("Model & \\multicolumn{2}{c}{Accuracy}", "& MR & CR", "MR accuracy,CR accuracy"),
     (" & CoLA & SST-2", " & Mcc & Acc", "CoLA MCC,SST-2 acc"),
     (" & MR & CR", " & Acc & Acc", "MR acc,CR acc"), (" & \\multicolumn{2}{c}{MR}", " & Acc & F1", "MR acc,MR F1")],
)  # fmt: skip
def test_data_sets_and_metrics_in_two_lines_are_read(top, second, ours, tmp_path):
    ours = of_seeds(f"model,{ours}", "A,82.{},84.{}")
    _, found = judged(tmp_path, ("t.tex", TWO_LINES.format(top, second), Names()), ours)
    assert [one.verdict for one in found] == ["reproduced"] * 2, found


def test_systems_of_two_columns_are_named_by_both(tmp_path):
    rows = " \\\\ ".join(("Encoder & Model & MR", "\\multirow{2}{*}{BERT} & base & 82.1", " & large & 84.1", "GRU & base & 70.1"))
    text = f"\\begin{{tabular}}{{llc}} {rows} \\\\ \\end{{tabular}}"
    for header, *mine in (("encoder,model", "BERT,base", "BERT,large", "GRU,base"), ("model", "BERT base", "BERT large", "GRU base")):
        ours = of_seeds(f"{header},MR", *(f"{name},{score}.{{}}" for name, score in zip(mine, (82, 84, 70), strict=True)))
        _, found = judged(tmp_path, ("t.tex", text, Names(metric="accuracy")), ours)
        assert [one.verdict for one in found] == ["reproduced"] * 3, found
