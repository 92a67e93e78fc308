"""Runs, names and headings in tables of ours and of papers: what is a run, and which number it answers."""

import json
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from conftest import PROJECT
from running import run_cli
from test_tables import ACCURACY, BASE_OURS, BY_SEED, LONG, SEEDS, judged, of_seeds, scores_of

from phrasemodels.flows.results.exchange import read_both
from phrasemodels.verdicts import Names, judge_gains, judge_table
from phrasemodels.verdicts.cells import grids, value_of
from phrasemodels.verdicts.readers import read
from phrasemodels.verdicts.tables import is_value


def test_a_number_has_as_many_digits_as_a_program_writes(tmp_path):
    ours = {"s.csv": "system,seed,accuracy\n" + "".join(f"A,{n},0.81{n}3333333333333{n}\n" for n in range(3))}
    _, found = scores_of(tmp_path, ours, "system,accuracy\nA,0.8113333333333333\n")
    assert found == {("A", "accuracy"): ("reproduced", 3)}


def two_sources(folder: Path, one: dict[str, str], other: dict[str, str]):
    """Judge LONG by two folders of ours."""
    for name, text in {
        "t.csv": LONG,
        **{f"x/{n}": t for n, t in one.items()},
        **{f"y/{n}": t for n, t in other.items()},
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    both = read_both(folder / "t.csv", [str(folder / "x"), str(folder / "y")])
    return both, judge_table(both.printed, both.scores)


def test_a_copy_in_another_folder_is_no_further_run(tmp_path):
    for copy in (
        {"a.csv": BY_SEED["seed0.csv"]},
        BY_SEED,
        {"s.csv": "system,seed,accuracy\nBase,0,82.2\nBase,2,82.4\n"},
    ):
        both, found = two_sources(tmp_path, BY_SEED, copy)
        assert len(found[0].values) == 3 and "not counted" in both.unread[-1]
        shutil.rmtree(tmp_path / "y")
    long = {name: text.replace("82.", "82.123") for name, text in BY_SEED.items()}
    with pytest.raises(ValueError, match=r"seed7\.csv: the same scores as .*; a copy is no further run"):
        two_sources(tmp_path, long, {"seed7.csv": long["seed0.csv"].replace("\n", "\r\n")})


def test_two_runs_with_one_round_score_are_two_runs(tmp_path):
    files = {f"A/seed{n}/scores.json": '{"accuracy": 0.8}' for n in range(3)} | {
        f"A/seed{n}/requirements.txt": "torch\n" for n in range(3)
    }
    _, found = scores_of(tmp_path, files, "system,accuracy\nA,0.8\n")
    assert found[("A", "accuracy")][1] == 3


def test_several_files_of_one_run_are_one_run(tmp_path):
    files = {f"A/run{n}/{kind}_results.json": json.dumps({"model": "A", "eval_accuracy": 0.81 + n / 100, kind: 1})
             for n in range(3) for kind in ("all", "eval")}  # fmt: skip
    both, found = scores_of(tmp_path, files, "system,accuracy\nA,0.82\n", Names(same=frozenset(("eval",))))
    assert found[("A", "accuracy")] == ("reproduced", 3)
    assert any("eval_results.json: not counted" in line for line in both.unread)


def test_a_source_can_be_the_folder_of_a_run(tmp_path):
    for name, text in {f"seed{n}/results.csv": f"system,accuracy\nBase,82.{n}\n" for n in range(3)}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    (tmp_path / "t.csv").write_text(LONG)
    both = read_both(tmp_path / "t.csv", [str(tmp_path / f"seed{n}") for n in range(3)])
    assert len(judge_table(both.printed, both.scores)[0].values) == 3


@pytest.mark.parametrize(
    "files",
    [("a.csv", "test.csv"), ("A/eval.json", "A/predict.json"), ("mr.csv", "cr.csv"), ("best.csv", "last.csv"),
     ("checkpoint-500/r.csv", "checkpoint-1000/r.csv"), ("shard0.csv", "shard1.csv"), ("x/r.csv", "y/r.csv")],
)  # fmt: skip
def test_files_that_name_no_run_are_no_runs(files, tmp_path):
    texts = {name: json.dumps({"accuracy": 82.1 + n}) if name.endswith("json") else f"system,accuracy\nA,{82.1 + n}\n"
             for n, name in enumerate(files)}  # fmt: skip
    _, found = judged(tmp_path, ("t.csv", "system,accuracy\nA,82.0\n", Names()), texts)
    assert found[0].verdict == "not comparable" and "name no run" in found[0].reason
    assert all(name in found[0].reason for name in files)


def test_seeds_of_one_number_differ_by_nothing_but_the_seed(tmp_path):
    for files in (
        {f"lr{n}/seed{n}.csv": f"system,accuracy\nA,82.{n}\n" for n in range(2)},
        {"best_seed0.csv": "system,accuracy\nA,82.1\n", "last_seed1.csv": "system,accuracy\nA,82.2\n"},
        {f"seed{n}.json": json.dumps({"model": "A", "lr": 10**-n, "accuracy": 82.1 + n / 10}) for n in range(2)},
        {"runs.csv": "params.model,params.seed,params.depth,metrics.accuracy\nA,0,2,82.1\nA,1,4,82.2\n"},
        {f"seed{n}.json": json.dumps({"model": "A", "args": {"lr": n + 1}, "accuracy": 82.1 + n / 10}) for n in range(2)},
        {f"seed{n}/{500 * n}/s.csv": f"system,accuracy\nA,82.{n}\n" for n in range(2)},
        *({"runs.csv": f"model,seed,{name},accuracy\nA,0,2,82.1\nA,1,4,82.2\n"}
          for name in ("num_layers", "params_lr", "hparams.lr", "init_lr", "num_beams", "alpha")),
        *({f"{n}/{name}": text.format(n + 1) for n in range(2) for name, text in ((beside, said), ("s.csv", "system,accuracy\nA,82.{}\n"))}
          for beside, said in (
              (".hydra/overrides.yaml", "- seed=3\n- model.width={}\n"), ("hparams.yaml", "a:\n  lr: {}\n"),
              ("args.json", '{{"window": {}}}'), ("config.yaml", "use_crf: {}\n"))),
        *({f"seed{n}.json": json.dumps({"model": "A", "accuracy": 82 + n / 10, name: value}) for n, value in enumerate(values)}
          for name, values in (("pooling", ("max", "mean")), ("use_crf", (True, False)), ("window", (3, 5)), ("keep", (0.5, 0.8)),
                               ("layers", ([64, 64], [128, 64])), ("cell", ({"kind": "gru"}, {"kind": "lstm"})),
                               ("torch_version", ("2.0.0", "2.1.0")))),
        {"s.csv": "model,seed,accuracy,embeddings\nA,0,82.0,GloVe\nA,1,82.1,word2vec\n"},
        {"s.csv": "model,seed,metric,score,use crf\nA,0,accuracy,82.0,yes\nA,1,accuracy,82.1,no\n"},
    ):
        _, found = judged(tmp_path, ("t.csv", "system,accuracy\nA,82.0\n", Names()), files)
        assert found[0].verdict == "not comparable" and "differ by more than the seed" in found[0].reason, files
        shutil.rmtree(tmp_path / "ours")


def test_numbers_that_folders_are_named_by_are_not_always_seeds(tmp_path):
    def ours(*names: str) -> dict[str, str]:
        return {f"{name}/s.csv": f"accuracy\n82.{n}\n" for n, name in enumerate(names)}

    _, found = scores_of(tmp_path / "steps", ours("seed0/500", "seed0/1000"), "system,accuracy\nA,82.0\n", Names(system="A"))
    assert found[("A", "accuracy")][0] == "not comparable"
    _, found = scores_of(tmp_path / "names", ours("vit-s-8", "vit-s-16", "vit-s-32"), "system,accuracy\nvit,82.0\n")
    assert found[("vit", "accuracy")][0] == "not run"
    _, found = scores_of(tmp_path / "data", ours("31", "44", "50"), "system,data,accuracy\nA,31,82.0\n", Names(system="A"))
    assert found[("A", "accuracy")] == ("inconclusive", 1)
    both, _ = scores_of(tmp_path / "said", ours("500", "1000"), "system,accuracy\nA,82.0\n", Names(system="A"))
    assert sum("if they are steps" in line for line in both.unread) == 1
    seeds = {f"{n}/{name}": text for n in range(3) for name, text in (
        (".hydra/overrides.yaml", f"- seed={n}\n- out_dir=x{n}\n"), ("s.csv", f"accuracy\n82.{n}\n"),
        ("args.json", json.dumps({"seed": n, "run_name": f"a{n}", "started": f"2026-01-0{n + 1}"})))}  # fmt: skip
    _, found = scores_of(tmp_path / "hydra", seeds, "system,accuracy\nA,82.1\n", Names(system="A"))
    assert found[("A", "accuracy")] == ("reproduced", 3)
    fields = {"run_name": "a{}", "best_epoch": "1{}", "out": "/x/{}.pt", "when": "2026-01-01 0{}:00", "loss": 0.3, "host": "n{}",
              "id": "{}", "duration": "{}", "global_step": "{}", "exit_code": 0, "SST": "82.{}", "converged": "{}", "predictions": [0, 1],
              "git_commit": "abc{}", "TREC": "92.1{}"}
    rows = {f"{n}.json": json.dumps({"model": "A", "seed": n, "accuracy": 82.1 + n / 10} | {
        name: [n]
        if name == "predictions" else str(value).replace("{}", str(n)) for name, value in fields.items()}) for n in range(3)}  # fmt: skip
    _, found = scores_of(tmp_path / "rows", rows, "system,accuracy\nA,82.1\n")
    assert found[("A", "accuracy")] == ("reproduced", 3)
    wide = of_seeds("model,MR,CR", "A,82,9{}")
    assert judged(tmp_path / "wide", ("t.csv", "system,MR\nA,82\n", ACCURACY), wide)[1][0].verdict == "inconclusive"
    crf = {f"{n}.json": json.dumps({"model": "A", "seed": n, "accuracy": 82.1 + n / 10, "crf": n}) for n in range(3)}
    _, found = scores_of(tmp_path / "same", crf, "system,accuracy\nA,82.1\n", Names(same=frozenset(("crf",))))
    assert found[("A", "accuracy")] == ("reproduced", 3)


@pytest.mark.timeout(20)
def test_hostile_settings_beside_scores_count_as_none(tmp_path):
    """A pipe, a file that is too large, and one that a careless pattern reads for ever."""
    for n in range(4):
        (tmp_path / f"r/seed{n}").mkdir(parents=True)
        (tmp_path / f"r/seed{n}/s.csv").write_text(f"system,accuracy\nBase,82.{n}\n")
    os.mkfifo(tmp_path / "r/seed0/config.json")
    (tmp_path / "r/seed2/args.json").write_text('{"lr": 7, "x": "' + "x" * (1 << 20) + '"}')
    (tmp_path / "r/seed3/config.yaml").write_text("-" * 500_000 + "\n" * 500_000)
    (tmp_path / "t.csv").write_text(LONG)
    both = read_both(tmp_path / "t.csv", [str(tmp_path / "r")])
    assert len(judge_table(both.printed, both.scores)[0].values) == 4


@pytest.mark.parametrize(
    "mean", [{"s.csv": SEEDS + "Base,mean,82.3\n"}, BY_SEED | {"summary.csv": "system,accuracy\nBase,82.3\n"}]
)
def test_a_mean_over_seeds_is_no_seed(mean, tmp_path):
    both, found = scores_of(tmp_path, mean)
    no_run = "summary.csv: not counted: Base / accuracy: no run is named"
    said = no_run if "summary.csv" in mean else "not read: 'mean' is no seed"
    assert found[("Base", "accuracy")] == ("reproduced", 3) and said in both.unread[0]


@pytest.mark.parametrize("pair", ["λ=1|λ=-1", "A|A′", "k=.5|k=5", "A|A#", "CRF|– CRF", "C|C++", "A&B|AB"])
def test_names_that_differ_in_a_sign_are_two_names(pair, tmp_path):
    one, other = pair.split("|")
    ours = "system,seed,accuracy\n" + "".join(f"{one},{n},82.{n}\n" for n in range(3))
    _, found = scores_of(tmp_path, {"s.csv": ours}, f"system,accuracy\n{one},82.1\n{other},60.0\n")
    assert [verdict for verdict, _ in found.values()] == ["reproduced", "not run"]


def test_only_shares_of_items_are_held_against_their_number(tmp_path):
    table = "system,metric,value,n\nA,F1,71.3,277\nA,perplexity,12.3,277\nA,accuracy,71.3,277\nA,acc_norm,71.3,277\n"
    _, found = scores_of(tmp_path, {"s.csv": "system,seed,F1\nB,0,70\n"}, table)
    assert [verdict for verdict, _ in found.values()] == ["not run", "not run", "impossible", "impossible"]
    for metric in ("Balanced accuracy", "accuracy (macro)", "mean per-class accuracy", "token accuracy", "pass@10", "Hits@10"):
        wide = f"Model,{metric},Test items\nA,80.33,100\n"
        assert [verdict for verdict, _ in scores_of(tmp_path, {"s.csv": "system,F1\nB,70\n"}, wide)[1].values()] == ["not run"]


def test_results_of_another_setting_are_no_seeds(tmp_path):
    def results(shots: int, **config: object) -> str:
        return json.dumps(
            {"results": {"d": {"acc,none": 0.8}}, "config": config, "n-shot": {"d": shots}, "model_name": "A"}
        )

    for other, said in (
        (results(5, limit=None), "n-shot"),
        (results(0, limit=10), "a part"),
        (results(0, limit=None, model_args="revision=b"), "model_args"),
    ):
        files = {"results_2026-01-01T00-00-01.json": results(0, limit=None), "results_2026-01-02T00-00-01.json": other}
        _, found = judged(tmp_path, ("t.csv", "system,dataset,acc\nA,d,0.8\n", Names()), files)
        assert found[0].verdict == "not comparable" and said in found[0].reason


@pytest.mark.parametrize(
    ("printed", "ours", "verdict"),
    [("latency (ms)", "latency", "not comparable"), ("memory (GB)", "memory (MB)", "not run"),
     ("memory", "memory_mb", "not comparable"), ("latency (ms)", "latency [ms]", "lower")],
)  # fmt: skip
def test_a_unit_that_one_side_lacks_is_asked_for(printed, ours, verdict, tmp_path):
    text = f"system,seed,{ours}\n" + "".join(f"A,{n},0.012{n}\n" for n in range(3))
    _, found = scores_of(tmp_path, {"s.csv": text}, f"system,{printed}\nA,12.3\n")
    assert [one for one, _ in found.values()] == [verdict]


def test_runs_of_another_split_or_that_crashed_are_no_answer(tmp_path):
    dev = "system,seed,split,accuracy\n" + "".join(f"Base,{n},dev,82.{n}\n" for n in range(3))
    both, found = scores_of(tmp_path, {"s.csv": dev})
    assert found[("Base", "accuracy")] == ("not run", 0)
    crashed = "Name,State,accuracy\nBase,finished,82.2\nBase,crashed,12.0\n"
    both, found = scores_of(tmp_path, {"s.csv": crashed})
    assert found[("Base", "accuracy")][1] == 1 and "its state is 'crashed'" in both.unread[-1]


def test_the_printed_table_among_the_results_is_no_run(tmp_path):
    both, found = scores_of(tmp_path, {"s.csv": SEEDS, "copy.csv": LONG})
    assert found[("Base", "accuracy")] == ("reproduced", 3) and "it is the printed table" in both.unread[0]


def test_a_name_that_is_spelled_in_two_ways_is_one_and_said(tmp_path):
    files = {
        f"seed{n}.csv": f"system,{name}\nBase,82.{n + 2}\n" for n, name in enumerate(("accuracy", "Accuracy", "Acc."))
    }
    both, found = scores_of(tmp_path, files)
    assert (
        found[("Base", "accuracy")] == ("reproduced", 3)
        and "'Acc.' and 'accuracy' of ours are taken as one name" in both.unread
    )
    two = {f"seed{n}.csv": f"system,accuracy\n{'Aa'[n]},82.{n}\n" for n in range(2)}
    both, _ = judged(tmp_path / "two", ("t.csv", "system,accuracy\nA,82\n", Names()), two)
    assert "'a' and 'A' of ours are two names: spell them alike if they are one" in both.unread


def test_printed_names_that_are_nearly_alike_are_answered_by_their_own_spelling(tmp_path):
    for one, other in (("SST-2", "SST.2"), ("X", "x"), ("A (Kim, 2014)", "A (Lee, 2015)"), ("top 1", "Top-1")):
        ours = "system,seed,accuracy\n" + "".join(f'"{one}",{n},82.{n}\n' for n in range(3))
        printed = f'system,accuracy\n"{one}",82.1\n"{other}",60.0\n'
        _, found = judged(tmp_path, ("t.csv", printed, Names()), {"s.csv": ours})
        assert [one.verdict for one in found] == ["reproduced", "not run"], (one, other)


@pytest.mark.parametrize("name", ["A (Kim, 2014)", "A [12]", "A (ours)", "A [3, 4]", "A (Kim et al., 2014b)"])
def test_citations_are_no_names(name, tmp_path):
    ours = {"s.csv": "system,seed,accuracy\n" + "".join(f"A,{n},82.{n}\n" for n in range(3))}
    _, (found,) = judged(tmp_path, ("t.csv", f'system,accuracy\n"{name}",82.1\n', Names()), ours)
    assert found.verdict == "reproduced"


def test_splits_are_data_sets_of_their_own(tmp_path):
    ours = {f"seed{n}.csv": f"model,split,accuracy\nA,dev,90.{n}\nA,test,80.{n}\n" for n in range(3)}
    for table, verdicts in (
        ("model,accuracy\nA,80.1\n", ["reproduced"]),
        ("model,split,accuracy\nA,dev,90.1\nA,test,80.1\n", ["reproduced", "reproduced"]),
        ("model,split,accuracy\nA,dev,80.1\n", ["higher"]),
    ):
        _, found = judged(tmp_path, ("t.csv", table, Names()), ours)
        assert [one.verdict for one in found] == verdicts


def test_a_run_without_any_score_in_its_file_is_never_left_out(tmp_path):
    for row in ("Base,", "Base,n/a"):
        files = BY_SEED | {"seed3.csv": f"system,accuracy\n{row}\nOurs,60.0\n"}
        _, found = scores_of(tmp_path, files)
        assert found[("Base", "accuracy")][0] == "not comparable"


def test_what_files_and_folders_name_is_known_by_the_printed_names(tmp_path):
    files = {f"A/{task}_seed{n}.json": json.dumps({"accuracy": value + n / 10})
             for task, value in (("MR", 80.0), ("CR", 90.0)) for n in range(3)}  # fmt: skip
    _, found = judged(tmp_path, ("t.csv", "Model,MR,CR\nA,80.1,70.0\n", ACCURACY), files)
    assert [one.verdict for one in found] == ["reproduced", "higher"]


def test_a_column_n_beside_metrics_is_no_number_of_test_items(tmp_path):
    both, found = judged(tmp_path, ("t.csv", "Model,N,Accuracy\nBase,16,82.3\n", Names()), {"s.csv": SEEDS})
    assert found[0].verdict == "reproduced" and "column 'N' isn't read" in both.unread[0]
    long = "system,metric,value,n\nBase,F1,71.3,277\n"
    both, _ = judged(tmp_path, ("t.csv", long, Names()), {"s.csv": "system,seed,F1\nBase,0,71\n"})
    assert "n isn't used: F1 is no share of items" in both.unread[0]


def test_raised_digits_of_markdown_are_asked_for(tmp_path):
    table = "| Model | Loss |\n|---|---|\n| A | 2<sup>1</sup> |\n| B | 29¹ |\n| C | 3.2<sup>1</sup> |\n| D | 2.1<sub>0.4</sub> |\n"
    both, found = judged(tmp_path, ("t.md", table, Names()), {"s.csv": "model,loss\nA,2\n"})
    assert [(one.printed.value, one.printed.deviation) for one in found] == [("3.2", None), ("2.1", 0.4)] and len(
        both.unread
    ) == 2


def test_two_metrics_in_one_cell_are_asked_for(tmp_path):
    both, found = judged(
        tmp_path, ("t.csv", "Model,Acc,Accuracy (F1)\nBase,82.3,45.2 (12.1)\n", Names()), {"s.csv": SEEDS}
    )
    assert [one.printed.metric for one in found] == [
        "Acc"
    ] and "may be Accuracy and F1: write both with a slash" in both.unread[0]


def test_rows_of_differences_and_columns_of_ranks_are_no_systems_and_metrics(tmp_path):
    table = "Year,Rank,Model,Acc\n2018,1,Base,0.823\n2019,2,Ours,0.841\n,,Improvement,+1.8\n"
    both, found = judged(tmp_path, ("t.csv", table, Names()), {"s.csv": SEEDS})
    assert {one.printed.row: one.verdict for one in found} == BASE_OURS
    assert any("'Improvement' is a difference" in line for line in both.unread)


def test_a_zero_that_is_printed_blocks_no_other_number(tmp_path):
    ours = {"s.csv": "system,dataset,seed,MSE\n" + "".join(f"A,X,{n},0.001\nA,Y,{n},0.5{n}\n" for n in range(3))}
    _, found = judged(tmp_path, ("t.csv", "system,dataset,MSE\nA,X,0.00\nA,Y,0.51\n", Names()), ours)
    assert [one.verdict for one in found] == ["not comparable", "reproduced"]


def test_a_mean_among_our_scores_is_said_to_be_one_run(tmp_path):
    both, _ = scores_of(tmp_path, {"s.md": "| system | accuracy |\n|---|---|\n| Base | 82.3 ± 0.3 |\n"})
    assert "a mean counts as one run" in both.unread[0]


def test_a_claim_on_one_number_is_no_claim_on_another(tmp_path):
    table = "system,metric,value,gain over\nA,accuracy,80.0,\nB,accuracy,82.0,\nB,F1,71.0,A\n"
    ours = "system,seed,accuracy,F1\n" + "".join(
        f"{s},{n},{v + n / 10},{v - 10}\n" for s, v in (("A", 80), ("B", 82)) for n in range(3)
    )
    both, _ = judged(tmp_path, ("t.csv", table, Names()), {"s.csv": ours})
    (one,) = judge_gains(both.printed, both.scores)
    assert (one.metric, one.answer.verdict) == ("F1", "open") and "A has no printed number" in one.answer.reason


@pytest.mark.parametrize("metric", ["Top-1 err. (%)", "Inference speed (ms)", "Foo (%) ↓", "Top-5 error"])
def test_the_direction_of_a_gain_is_that_of_the_metric(metric, tmp_path):
    ours = f"system,seed,{metric}\n" + "".join(
        f"{s},{n},{v + n / 10}\n" for s, v in (("A", 25.0), ("B", 20.0)) for n in range(3)
    )
    both, _ = judged(tmp_path, ("t.csv", f"system,{metric}\nA,25.1\nB,20.1\n", Names()), {"s.csv": ours})
    answers = [one.answer for one in judge_gains(both.printed, both.scores, [("B", "A"), ("A", "B")])]
    assert [one.verdict for one in answers] == ["confirmed", "open"] and "less is better" in answers[1].reason


@pytest.mark.parametrize("metric", ["LPIPS", "1-accuracy", "speed", "throughput (ms)"])
def test_a_direction_that_is_not_known_is_asked_for(metric, tmp_path):
    ours = {"s.csv": f"system,seed,{metric}\n" + "".join(
        f"{s},{n},{v + n / 10}\n" for s, v in (("A", 25.0), ("B", 20.0)) for n in range(3)
    )}  # fmt: skip
    both, _ = judged(tmp_path, ("t.csv", f"system,{metric}\nA,25.1\nB,20.1\n", Names()), ours)
    name, scales = both.printed[0].metric, {both.printed[0].metric: "positive"}
    for pair in (("A", "B"), ("B", "A")):
        both = read_both(tmp_path / "t.csv", [str(tmp_path / "ours")], scales=scales)
        (one,) = judge_gains(both.printed, both.scores, [pair])
        assert one.answer.verdict == "open" and f"--better '{name}=lower'" in one.answer.reason
    for way, verdict in (("lower", "confirmed"), ("higher", "open")):
        both = read_both(tmp_path / "t.csv", [str(tmp_path / "ours")], scales=scales, better={name: way})
        assert judge_gains(both.printed, both.scores, [("B", "A")])[0].answer.verdict == verdict


def test_an_arrow_is_above_the_name_of_a_metric(tmp_path):
    both, _ = judged(tmp_path, ("t.csv", "system,accuracy ↓\nBase,82.3\nOurs,60.1\n", Names()), {"s.csv": SEEDS})
    assert judge_gains(both.printed, both.scores, [("Ours", "Base")])[0].answer.verdict == "confirmed"


def test_two_systems_with_the_same_scores_answer_no_claim(tmp_path):
    ours = "system,seed,accuracy\n" + "".join(f"{s},{n},82.{n}3\n" for s in ("Base", "Ours") for n in range(3))
    both, _ = judged(tmp_path, ("t.csv", LONG, Names()), {"s.csv": ours})
    answer = judge_gains(both.printed, both.scores, [("Ours", "Base")])[0].answer
    assert answer.verdict == "open" and "one may be a copy" in answer.reason
    assert "Base has the same scores, of which one may be a copy" in judged(tmp_path, ("t.csv", LONG, Names()), {})[1][1].reason


def test_copies_of_rounded_runs_confirm_no_claim(tmp_path):
    ours = {f"seed{n}.csv": f"system,accuracy\nBase,82.{n % 3}\nOurs,84.{n % 3}\n" for n in range(6)}
    both, found = judged(tmp_path, ("t.csv", LONG, Names()), ours)
    answer = judge_gains(both.printed, both.scores, [("Ours", "Base")])[0].answer
    assert answer.verdict == "open" and all("may be copies" in reason for reason in (answer.reason, found[0].reason))


def test_systems_with_other_items_answer_no_claim(tmp_path):
    ours = "system,seed,item,accuracy\n" + "".join(
        f"{s},{n},{i},{int(i % 9 > n)}\n" for s, first in (("Base", 0), ("Ours", 20)) for n in range(3) for i in range(first, 40)
    )
    both, _ = judged(tmp_path, ("t.csv", LONG, Names()), {"s.csv": ours})
    answer = judge_gains(both.printed, both.scores, [("Ours", "Base")])[0].answer
    assert answer.verdict == "open" and "20 items in common, of 20 and 40" in answer.reason


def test_columns_name_a_seed_and_a_metric(tmp_path):
    table = "system,accuracy\nA,82.1\n"
    for head in ("seed0 accuracy,seed1 accuracy,seed2 accuracy,mean accuracy", "accuracy_seed0,accuracy_seed1,accuracy_seed2,accuracy"):
        both, found = scores_of(tmp_path, {"s.csv": f"system,{head}\nA,82.0,82.1,82.2,82.1\n"}, table)
        assert found[("A", "accuracy")] == ("reproduced", 3) and "not counted: A / accuracy: no run is named" in both.unread[-1]
        shutil.rmtree(tmp_path / "ours")
    runs = {"A": {f"seed_{n}": {"accuracy": 82 + n / 10} for n in range(3)} | {"mean": {"accuracy": 82.1}}}
    assert scores_of(tmp_path, {"s.json": json.dumps(runs)}, table)[1][("A", "accuracy")] == ("reproduced", 3)


def test_gains_in_place_of_numbers_are_asked_for(tmp_path):
    for cell in ("+1.8", "**+1.8**", "↑1.8", "▲ 1.8"):
        both, found = judged(tmp_path, ("t.csv", f"system,accuracy\nBase,82.3\nOurs,{cell}\n", Names()), {"s.csv": SEEDS})
        assert [one.printed.row for one in found] == ["Base"] and "may be a gain over another row" in both.unread[0]
    long = "system,metric,value\nBase,accuracy,82.3\nOurs,accuracy gain,+1.8\n"
    assert len(judged(tmp_path, ("t.csv", long, Names()), {"s.csv": SEEDS})[1]) == 2


def test_units_that_nobody_names_are_doubted(tmp_path):
    for metric, printed, ours, said in (("MAPE", "12.3", "0.12{}", "reproduced"), ("Time", "3.2", "0.0032{}", "about 1/1000 of")):
        table = f"model,{metric}\nA,{printed}\n"
        _, (one,) = judged(tmp_path, ("t.csv", table, Names()), of_seeds(f"model,{metric}", f"A,{ours}"))
        assert said in f"{one.verdict} {one.reason}"


@pytest.mark.parametrize(
    ("printed", "ours", "verdict"),
    [("accuracy\nA,0.9\n", "accuracy\nA,{}%\n", "lower"), ("accuracy\nA,0.9\n", "accuracy (%)\nA,{}\n", "lower"),
     ("error (%)\nA,5.5\n", "error (%)\nA,{}\n", "lower"), ("accuracy\nA,0.9%\n", "accuracy\nA,{}%\n", "reproduced"),
     ("accuracy\nA,90\n", "accuracy\nA,{}\n", "reproduced")],
)  # fmt: skip
def test_the_unit_that_ours_state_is_theirs(printed, ours, verdict, tmp_path):
    files = {f"seed{n}.csv": "system," + ours.format(0.89 + n / 100) for n in range(3)}
    _, (found,) = judged(tmp_path, ("t.csv", f"system,{printed}", Names()), files)
    assert found.verdict == verdict


def test_percent_in_some_of_ours_alone_is_asked_for(tmp_path):
    files = {"seed0.csv": "system,accuracy\nA,90.1%\n", "seed1.csv": "system,accuracy\nA,90.2\n"}
    _, (found,) = judged(tmp_path, ("t.csv", "system,accuracy\nA,90.0\n", Names()), files)
    assert found.verdict == "not comparable" and "mark all or none" in found.reason


@pytest.mark.parametrize("cell", ["1.2 × 10<sup>-3</sup>", "1.2×10⁻³", "1.2 · 10^-3", "$1.2\\cdot10^{-3}$"])
def test_powers_of_ten_are_no_footnotes(cell):
    assert (
        value_of(cell).text == "0.0012"
        and value_of(cell.replace("1.2", "", 1).lstrip(" ×·").replace("$\\cdot", "$")).text == "0.001"
    )


def test_results_have_systems_in_columns_too(tmp_path):
    files = {f"seed{n}.csv": f"metric,Base,Ours\naccuracy,82.{n + 2},60.{n}\n" for n in range(3)}
    assert scores_of(tmp_path, files)[1] == {
        ("Base", "accuracy"): ("reproduced", 3),
        ("Ours", "accuracy"): ("lower", 3),
    }


@pytest.mark.parametrize(
    ("printed", "ours", "verdict"),
    [("accuracy\nA,87.1", of_seeds("model,accuracy,total", "A,0.87{},1000"), "reproduced"),
     ("perplexity\nA,87.1", of_seeds("model,perplexity,total", "A,87.{},82000"), "reproduced"),
     ("accuracy\nA,87.1", of_seeds("model,metric,score,total", "A,accuracy,87.{},1000"), "reproduced"),
     ("accuracy\nA,87", of_seeds("model,metric,item,score,total", "A,accuracy,1,0.8{},9", "A,accuracy,2,0.9,9"), "not comparable"),
     ("log PPL\nA,3.1", of_seeds("model,ppl", "A,22.{}"), "not run"), ("Oracle F1\nA,88.1", of_seeds("model,F1", "A,88.{}"), "not run"),
     ("data,log PPL\nA,d,3.1", of_seeds("model,data,ppl", "A,d,22.{}"), "not run"),
     ("accuracy\nA,53.0", of_seeds("model,accuracy,total", "A,8{},164"), "not comparable"),
     ("accuracy\nA,80.0", of_seeds("model,accuracy,total", "A,80.{},164"), "reproduced"),
     ("errors\nA,37", of_seeds("model,errors", "A,3{}"), "not comparable"),
     ("errors\nA,1.1", of_seeds("model,errors", "A,1.{}"), "reproduced"),
     ("hits@10\nA,37", of_seeds("model,hits@10", "A,36.{}"), "reproduced"),
     *((f"solved\nA,{printed}", of_seeds("model,item,solved", "A,1,0.0{}", "A,2,1", "A,3,1", "A,4,0"), verdict)
       for printed, verdict in (("53", "not comparable"), ("50.0", "inconclusive"))),
     ("metric,value\nA,accuracy gain,1.8",
      of_seeds("model,metric,item,score", "A,accuracy gain,1,0.0{}", "A,accuracy gain,2,1"), "not comparable"),
     ("Normalized accuracy\nA,55.1", of_seeds("model,accuracy,acc_norm", "A,0.421,0.55{}"), "reproduced")],
)  # fmt: skip
def test_a_metric_is_what_its_whole_heading_and_row_say(printed, ours, verdict, tmp_path):
    _, (found,) = judged(tmp_path, ("t.csv", f"model,{printed}\n", Names()), ours)
    assert found.verdict == verdict, found.reason


@pytest.mark.parametrize("label", ["Std. dev.", "SEM", "1-3", "ensemble", "± sd", "moyenne", "last"])
def test_beside_numbers_of_seeds_a_word_is_no_seed(label, tmp_path):
    both, found = scores_of(
        tmp_path, {"s.csv": f"seed,Base,Ours\n0,82.2,60\n1,82.3,60.1\n2,82.4,60.2\n{label},—,0.1\n"}
    )
    assert found[("Base", "accuracy")] == ("reproduced", 3)
    assert f"{label!r} is no seed, as others are numbers" in both.unread[-1]


@pytest.mark.parametrize("labels", ["3f2a 7 c1d0", "7 af 3b", "deadbeef 12345678 a3f2c1d9", "init-1 init-2 init-3 SEM"])
def test_an_id_is_a_run_beside_numbers_and_a_word_is_none_beside_words_with_numbers(labels, tmp_path):
    runs = [f"{label},82.{n + 2}\n" for n, label in enumerate(labels.split())]
    _, found = scores_of(tmp_path, {"s.csv": "seed,Base\n" + "".join(runs)})
    assert found[("Base", "accuracy")] == ("reproduced", 3)


def test_files_of_runs_are_named_by_ids(tmp_path):
    for ids in ("a3f2c1d9 12345678 b00be5c", "run-a3f2c1d9 run-12345678 run-b00be5c"):
        files = {f"{ids}/{one}.csv": f"system,accuracy\nBase,82.{n + 2}\n" for n, one in enumerate(ids.split())}
        _, found = scores_of(tmp_path / ids, files)
        assert found[("Base", "accuracy")] == ("reproduced", 3)


@pytest.mark.parametrize(
    ("base", "better", "verdict"),
    [("80 81 82", "81 82 83", "open"), ("80.0 80.1 80.2", "80.1 80.2 80.3", "not confirmed"),
     ("80.0 80.1 80.2", "81.5 81.6 81.7", "confirmed")],
)  # fmt: skip
def test_rounded_scores_widen_the_interval_of_a_gain(base, better, verdict, tmp_path):
    rows = [
        f"{name},{n},{value}\n" for name, of in (("Base", base), ("Ours", better)) for n, value in enumerate(of.split())
    ]
    both, _ = judged(tmp_path, ("t.csv", LONG, Names()), {"s.csv": "system,seed,accuracy\n" + "".join(rows)})
    answer = judge_gains(both.printed, both.scores, [("Ours", "Base")])[0].answer
    assert answer.verdict == verdict and answer.high - answer.low > 0.1


def test_the_tutorial_says_what_the_command_says(tmp_path, monkeypatch):
    text = (PROJECT / "docs/tutorials/judge-a-paper.md").read_text()
    monkeypatch.chdir(tmp_path)
    table, scores, check, command = re.findall(r"^```\n(.*?)^```$", text, re.S | re.M)[:4]
    subprocess.run(["bash", "-c", table + scores], check=True)
    assert run_cli(*shlex.split(check)[1:]).exit_code == 0
    found = json.loads(run_cli(*shlex.split(command)[1:], "--json").stdout)
    assert {one["verdict"] for one in found["numbers"]} == {
        "reproduced"
    } and "All four numbers are *reproduced*" in text
    for gain in found["gains"]:
        assert re.search(rf"The gain on\s{gain['dataset']} is \*{gain['answer']['verdict']}\*", text)


@pytest.mark.timeout(30)
def test_a_cell_without_an_end_costs_no_time_and_is_no_number(tmp_path: Path) -> None:
    for cell in ("7" * 40_000 + " 9", "79.9" + " " * 40_000 + "x", "-" + " " * 3000 + "1"):
        for name, text in (("t.md", f"| Model | MR |\n|---|---|\n| A | {cell} |\n"), ("t.csv", f"Model,MR\nA,{cell}\n"),
                           ("t.tex", f"Model & MR \\\\\nA & {cell} \\\\\n")):  # fmt: skip
            (tmp_path / name).write_text(text)
            (_, line) = grids(tmp_path / name)[0].lines
            with pytest.raises(ValueError, match=r"is no number|number alone"):
                value_of(line.cells[1])
        assert is_value(cell) == (cell[0] != "-")
        with pytest.raises(ValueError, match="is no number"):
            value_of(cell)


def test_tables_under_headings_are_of_the_printed_data_sets_or_refused(tmp_path):
    table = "## {}\n\n| model | accuracy |\n|---|---|\n| {} | {}.{} |\n\n"
    ours = {f"seed{n}.md": table.format("X", "A", 87, n) + table.format("Y", "B", 60, n) for n in range(3)}
    _, found = judged(tmp_path, ("t.csv", "model,data,accuracy\nA,X,87.1\nB,Y,87.1\n", Names()), ours)
    assert [one.verdict for one in found] == ["reproduced", "lower"]
    with pytest.raises(ValueError, match="several tables, one under 'X': add a column dataset"):
        judged(tmp_path, ("t.csv", "model,accuracy\nA,87.1\nB,60.1\n", Names()), ours)
    (tmp_path / "ours" / "seed0.md").write_text((table.format("X", "A", 87, 0) + table.format("Y", "B", 60, 0)).replace("## ", ""))
    with pytest.raises(ValueError, match="several tables, one without a heading"):  # text is none, as in "seed 3 was first"
        read_both(tmp_path / "t.csv", [str(tmp_path / "ours")])


def test_headings_of_the_printed_file_name_data_sets_too(tmp_path):
    row, text = "| model | accuracy |\n|---|---|\n| A | 82.1 |\n\n", "Seeds of Y.\n\n"
    latex = "\\begin{{table}}\\caption{{{}}}\\begin{{tabular}}{{lc}}model & accuracy\\\\A & 82.1\\\\\\end{{tabular}}\\end{{table}}\n"
    ours = of_seeds("model,dataset,accuracy", "A,X,82.{}", "A,Y,60.{}")
    for name, printed in (("t.md", f"## X\n\n{text}{row}**Y**:\n\n{row}"), ("t.tex", latex.format("\\textbf{X}.") + latex.format("Y"))):
        _, found = judged(tmp_path, (name, printed, Names()), ours)
        assert [(one.printed.dataset, one.verdict) for one in found] == [("X", "reproduced"), ("Y", "lower")]
    printed = ("t.md", f"## X\n\n{row}## Y\n\n{row.replace('A', 'B')}", Names())
    _, found = judged(tmp_path / "u", printed, {"s.csv": "model,accuracy\nA,82\n"})
    assert {one.verdict for one in found} == {"not run"} and "--dataset" in found[0].reason


def test_headings_name_metrics_and_two_of_them(tmp_path):
    table = "## {}\n\n| model | MR | CR |\n|---|---|---|\n| A | {}.1 | {}.1 |\n\n"
    ours = {f"seed{n}.md": (table.format("EM", 80, 70) + table.format("F1", 90, 60)).replace(".1", f".{n}") for n in range(3)}
    _, found = judged(tmp_path / "1", ("t.md", table.format("EM", 80, 70) + table.format("F1", 90, 90), Names()), ours)
    assert [one.verdict for one in found] == ["reproduced"] * 3 + ["lower"]
    for heading in ("EM and F1", "EM & F1", "EM, F1"):
        _, found = judged(
            tmp_path / heading, ("t.csv", f'model,"{heading}"\nA,80.1/90.1\n', Names()), of_seeds("model,EM,F1", "A,80.{},60.{}")
        )
        assert [(one.printed.metric, one.verdict) for one in found] == [("EM", "reproduced"), ("F1", "lower")]


@pytest.mark.parametrize("first", ["model", "", "Method"])
def test_systems_with_names_of_metrics_are_systems(first, tmp_path):
    table = f"{first},accuracy\nEM,82.1\npearson,82.1\n"
    _, found = judged(tmp_path, ("t.csv", table, Names()), of_seeds("model,accuracy", "EM,82.{}", "pearson,60.{}"))
    assert [(one.printed.row, one.verdict) for one in found] == [("EM", "reproduced"), ("pearson", "lower")]
    _, found = judged(tmp_path, ("t.csv", table, Names()), of_seeds(f"{first},accuracy", "EM,82.{}", "pearson,60.{}"))
    assert [one.verdict for one in found] == ["reproduced", "lower"]


def test_an_option_that_fits_nothing_is_said(tmp_path):
    ours = of_seeds("model,accuracy", "A,82.{}")
    both, _ = judged(tmp_path, ("t.csv", "model,Filter,accuracy\nA,x,82.1\n", Names(columns={"MR": "F1"})), ours)
    assert "no column 'MR'" in both.unread[0] and "column 'Filter'" in both.unread[1]
    with pytest.raises(ValueError, match="--scale accuracy=share of: must be percent, share"):
        read_both(tmp_path / "t.csv", [str(tmp_path / "ours")], scales={"accuracy": "share of"})
    _, found = judged(tmp_path / "2", ("t.csv", "model,metric,filter,value\nA,accuracy,3,82.1\n", Names()), ours)
    assert found[0].verdict == "reproduced"  # a filter of lm-evaluation-harness is no number


def test_tables_of_lm_eval_and_json_of_sacrebleu_are_read(tmp_path):
    ours = {f"A/seed{n}.md": "|Tasks|Filter|n-shot|Metric|   |Value|\n|---|---|---|---|---|---|\n"
            f"|d|none|5|acc|↑|0.42{n}|\n| |none|5|acc_norm|↑|0.55{n}|\n| |strict|5|em|↑|0.32{n}|\n\n"
            f"|Groups|Filter|n-shot|Metric|   |Value|\n|---|---|---|---|---|---|\n|d|none|5|acc|↑|0.42{n}|\n"
            for n in range(3)}  # fmt: skip
    table = 'model,data,metric,value\nA,d,acc,0.421\nA,d,acc_norm,0.551\nA,d,"em,strict",0.321\n'
    _, found = judged(tmp_path / "1", ("t.csv", table, Names()), ours)
    assert [one.verdict for one in found[:2]] == ["reproduced"] * 2 and len(found[2].values) == 3
    ours = {
        f"A/seed{n}.json": json.dumps([{"name": "BLEU", "score": 27.3 + n / 10}, {"name": "chrF2", "score": 55}])
        for n in range(3)
    }
    _, (one,) = judged(tmp_path / "2", ("t.csv", "system,BLEU\nA,27.4\n", Names()), ours)
    assert one.verdict == "reproduced"


def test_what_is_hidden_in_excel_is_named_and_not_read(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for name in ("seed 0", "seed 1", "seed 2", "seed 3"):
        sheet = book.create_sheet(name)
        for row in (("Model", "Accuracy", "F1"), ("Base", 82.3, 1), ("Base", 10, 1)):
            sheet.append(row)
        sheet.row_dimensions[3].hidden = sheet.column_dimensions["C"].hidden = True
    sheet.sheet_state = "hidden"
    book.save(tmp_path / "s.xlsx")
    both, found = scores_of(tmp_path, {"s.xlsx": (tmp_path / "s.xlsx").read_bytes()})
    assert found[("Base", "accuracy")][1] == 3 and sum("not read" in line for line in both.unread) == 7
    for sheet in book.worksheets:
        sheet.sheet_state = "hidden"
    book.create_sheet("empty")
    book.save(tmp_path / "hidden.xlsx")
    with pytest.raises(ValueError, match="not read: it is hidden; unhide it if it counts"):
        read_both(tmp_path / "hidden.xlsx", [str(tmp_path / "ours")])


@pytest.mark.timeout(30)
def test_a_cell_of_excel_that_is_far_away_costs_no_time(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.merge_cells("A5:B6")
    book.save(tmp_path / "merged.xlsx")
    with zipfile.ZipFile(tmp_path / "merged.xlsx") as made, zipfile.ZipFile(tmp_path / "wide.xlsx", "w") as archive:
        for name in made.namelist():
            archive.writestr(name, made.read(name).replace(b"A5:B6", b"A5:XFD1048576"))
    book.active["XFD1048576"] = 1
    book.save(tmp_path / "far.xlsx")
    for name in ("far", "wide"):
        with pytest.raises(ValueError, match=rf"{name}.xlsx: cells as far as XFD1048576: delete or unmerge"):
            grids(tmp_path / f"{name}.xlsx")
    assert len(grids(tmp_path / "merged.xlsx")) == 1


@pytest.mark.parametrize(
    ("cell", "deviation", "note"),
    [("$81.2_{+9.3}$", None, True), ("81.2$_{\\textcolor{green}{-1.3}}$", None, True), ("81.2 <sub>+1.3</sub>", None, True),
     ("**81.2** <sub>±0.3</sub>", 0.3, False), ("81.2<sup>0.3</sup>", 0.3, False)],
)  # fmt: skip
def test_a_sign_in_a_subscript_is_a_difference(cell, deviation, note):
    found = value_of(cell)
    assert (found.text, found.deviation, "taken as a difference" in found.note) == ("81.2", deviation, note)


def test_copies_count_once_and_what_is_not_counted_is_named(tmp_path):
    for extra, said in (
        ({"s.csv": f"{SEEDS}Base,0,82.2\n"}, "s.csv: counted once: Base / accuracy, seed 0: the same score"),
        ({"b.csv": "system,seed,accuracy\nBase,0,82.2\n"}, "s.csv: not counted: Base / accuracy, seed 0: "),
        ({"b.csv": "system,accuracy\nBase,82.2\n"}, "b.csv: not counted: Base / accuracy: no run is named"),
    ):
        both, found = scores_of(tmp_path, {"s.csv": SEEDS} | extra)
        assert set(found.values()) == {("reproduced", 3), ("lower", 3)} and said in both.unread[-1]
        shutil.rmtree(tmp_path / "ours")
    scores_of(tmp_path, BY_SEED)
    again = read_both(tmp_path / "t.csv", [str(tmp_path / "ours"), str(tmp_path / "ours/seed0.csv")])
    assert [len(one.seeds) for one in again.scores] == [3] and again.unread[-1].endswith("read once: it is there twice")
    shutil.rmtree(tmp_path / "ours")
    items = "system,seed,item,score\n" + "".join(f"Base,0,{i},{i % 2}\n" for i in range(4))
    both, _ = scores_of(tmp_path, {"i.csv": f"{items}Base,0,1,1\n"}, names=ACCURACY)
    assert len(both.scores[0].items) == 4 and "counted once: Base / accuracy, seed 0, 1 items" in both.unread[-1]
    with pytest.raises(ValueError, match="item '1' has two scores"):
        scores_of(tmp_path, {"i.csv": f"{items}Base,0,1,0\n"}, names=ACCURACY)


def test_a_line_of_units_below_the_header_is_no_system(tmp_path):
    ours = {"s.csv": "system,seed,accuracy,time\n,,%,ms\n" + "".join(f"A,{n},82.{n},12.{n}\n" for n in range(3))}
    _, found = scores_of(tmp_path, ours, "system,accuracy,time\n, %, s\nA,82.1,12.1\n")
    assert found == {("A", "accuracy (%)"): ("reproduced", 3), ("A", "time (s)"): ("not run", 0)}
    for table, said in (("accuracy,speed\n,%,tok/s", "'tok/s' is no known unit"), ("metric,value\n,,%", "units below 'value'")):
        with pytest.raises(ValueError, match=said):
            scores_of(tmp_path, ours, f"system,{table}\nA,82.1,3\n")


@pytest.mark.parametrize(
    ("cell", "said"),
    [("0.823 ± 0.4", "may be in points"), ("82.3 ± 0.004", "may be a share"), ("82.3 ± 0.4", ""), ("0.823 ± 0.004", ""),
     ("82 ± 0.3", ""), ("0.5 ± 0.2", ""), ("82.3% ± 0.4%", ""), ("82.300 ± 0.004", "")],
)  # fmt: skip
def test_a_deviation_in_another_unit_than_its_number_is_asked_for(cell, said, tmp_path):
    shares = cell[0] == "0"
    _, (found,) = judged(
        tmp_path,
        ("t.csv", f"system,accuracy\nA,{cell}\n", Names()),
        of_seeds("system,accuracy", "A,0.82{}" if shares else "A,82.{}"),
    )
    assert (found.verdict == "not comparable") == bool(said) and said in found.reason
    with pytest.raises(ValueError, match="write both in one unit"):
        scores_of(tmp_path, {"s.csv": SEEDS}, "system,accuracy,std\nA,0.823,0.4%\n")


@pytest.mark.parametrize(
    ("metric", "ours", "said"),
    [("loss (%)", "loss", "loss is not measured in %"), ("loss", "loss (%)", "--scale loss=positive"),
     ("BLEU (ms)", "BLEU", "not measured in ms"), ("perplexity_ms", "perplexity", "not measured in ms"),
     ("BLEU (%)", "BLEU", ""), ("WER (S)", "WER (S)", ""), ("MAE (s)", "MAE (s)", "")],
)  # fmt: skip
def test_a_unit_that_a_metric_cannot_have_is_asked_for(metric, ours, said, tmp_path):
    _, (found,) = judged(
        tmp_path, ("t.csv", f"system,{metric}\nA,32.1\n", Names()), of_seeds(f"system,{ours}", "A,32.{}")
    )
    assert (found.verdict, said in found.reason) == ("not comparable" if said else "reproduced", True)


def test_numbers_that_a_factor_of_units_divides_are_not_comparable_until_that_is_stated(tmp_path):
    files = of_seeds("model,loss", "A,0.032{}")
    for scales, verdict in (({}, "not comparable"), ({"loss": "positive"}, "lower")):
        judged(tmp_path, ("t.csv", "model,loss\nA,3.2\n", Names()), files)
        both = read_both(tmp_path / "t.csv", [str(tmp_path / "ours")], scales=scales)
        assert judge_table(both.printed, both.scores)[0].verdict == verdict


RAISED = ("BERT<sub>LARGE</sub>", "BERT<sup>+</sup>", "BERT<sup>large</sup>", "BERT$^{+}$", "BERT$^{++}$", "BERT$^{\\prime}$", "BERT$^{a}$",
          "BERT$^{\\text{large}}$", "BERT\\textsuperscript{+}", "BERT⁻")  # fmt: skip
MARKED = ("BERT<sup>*</sup>", "BERT<sup>1,2</sup>", "BERT$^{\\dagger}$", "BERT$^*$", "BERT\\textsuperscript{*}", "[BERT](https://a.org/b)")


@pytest.mark.parametrize("name", RAISED + MARKED)
def test_raised_text_is_part_of_a_name_but_marks_are_none(name, tmp_path):
    for printed, ours in ((name, "BERT"), ("BERT", name)):
        table = f"| Model | Accuracy |\n|---|---|\n| {printed} | 82.3 |\n"
        files = {f"seed{n}.md": f"| model | accuracy |\n|---|---|\n| {ours} | 82.{n + 2} |\n" for n in range(3)}
        _, (found,) = judged(tmp_path, ("t.md", table, Names()), files)
        assert found.verdict == ("reproduced" if name in MARKED else "not run")


PAIRS = ("F1<sub>macro</sub>|F1", "Acc<sub>5</sub>|Acc", "AP<sub>50</sub>|AP", "AP_S|AP", "AP (S)|AP", "mAP_B|mAP", "F1_s|F1", "Acc_H|Acc",
         "accuracy min|accuracy", "R_b|R", "Error (‰)|Error", "chrF++|chrF")  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_a_letter_behind_a_fraction_is_no_unit_but_part_of_its_name(pair, tmp_path):
    one, other = pair.split("|")
    for printed, ours in ((one, other), (other, one)):
        table = f"| Model | {printed} |\n|---|---|\n| A | 62.3 |\n"
        files = {f"seed{n}.md": f"| model | {ours} |\n|---|---|\n| A | 62.{n + 2} |\n" for n in range(3)}
        _, (found,) = judged(tmp_path, ("t.md", table, Names()), files)
        assert found.verdict in ("not run", "not comparable")


FIELDS = {
    ("MR", "SST"): "test_data dataset_name eval_dataset eval_set test_split dev_data average norm prediction_type targets best loss",
    ("/d/mr.tsv", "/d/sst.tsv"): "test_file data_dir data_path model_path",
    (1, 3): "eval_beam max_predictions clip_norm history_len labels max_iter n_test test_size eval_samples support epochs time_limit",
    ("/o/1.pt", "/o/2.pt"): "=output_dir log_file save_path path checkpoint_dir run_name",
    ("2026-01-01 10:00", "2026-01-01 11:00"): "=started time test_date",
    (7, 9): "=best_epoch global_step train_runtime wrong job_id",
}


@pytest.mark.parametrize("values", FIELDS)
def test_a_field_parts_runs_whatever_words_its_name_has_if_it_is_no_measurement(values, tmp_path):
    for field in FIELDS[values].removeprefix("=").split():
        ours = "model,seed,accuracy," + field + "\n" + "".join(f"A,{n},82.{n}1,{value}\n" for n, value in enumerate(values))
        for same in ((), (field,)):
            _, (found,) = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\n", Names(same=frozenset(same))), {"s.csv": ours})
            assert (f"'{field} " in found.reason) == (not same and FIELDS[values][0] != "="), (field, found.reason)


SPLIT = ("dev/seed{}.csv", "dev_seed{}.csv", "seed{}/validation_metrics.csv", "train/seed{}.csv", "seed{}/eval_accuracy",
         "development/seed{}.csv", "seed{}_devset.csv", "val2017/seed{}.csv", "minival/seed{}.csv", "holdout/seed{}.csv")  # fmt: skip


@pytest.mark.parametrize("name", SPLIT)
def test_scores_of_another_split_by_a_name_are_asked_for(name, tmp_path):
    split = next(word for word in "devset development dev validation val2017 minival holdout train eval".split() if word in name)
    for n in range(3):
        path = tmp_path / "r" / name.format(n).replace("eval_accuracy", "s.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"model,{name.partition('/')[2] if split == 'eval' else 'accuracy'}\nA,82.{n}\n")
    (tmp_path / "t.csv").write_text("model,accuracy\nA,82.1\n")
    for source in ("r", *(("r/" + split,) if f"{split}/" in name else ())):
        for same in ("", split):
            both = read_both(tmp_path / "t.csv", [str(tmp_path / source)], Names(same=frozenset((same,))))
            (found,) = judge_table(both.printed, both.scores)
            assert (found.verdict, f"say --same {split}" in found.reason) == (("reproduced", False) if same else ("not comparable", True))


@pytest.mark.parametrize("metric", "WER BLEU perplexity RMSE AUC F1 MCC macro-accuracy accuracy EM MSE".split())
def test_item_scores_are_averaged_only_if_the_metric_is_a_mean_over_items(metric, tmp_path):
    ours = f"model,seed,item,{metric}\n" + "".join(f"A,{n},{i},{(i + n) % 3 / 2 + 0.01}\n" for n in range(3) for i in range(9))
    for same in ((), (metric.casefold(),)):
        _, (found,) = judged(tmp_path, ("t.csv", f"model,{metric}\nA,0.51\n", Names(same=frozenset(same))), {"s.csv": ours})
        assert ("is no mean over items" in found.reason) == (not same and metric not in ("accuracy", "EM", "MSE"))


@pytest.mark.parametrize("name", ["seed3.yaml", "seed3.log", "seed3/train.log", "seed0.log"])
def test_a_file_of_a_run_without_scores_is_a_run_without_a_score(name, tmp_path):
    _, found = scores_of(tmp_path, {name: "x"} | (
        {f"seed{n}/s.csv": text for n, text in enumerate(BY_SEED.values())} if "/" in name else BY_SEED))  # fmt: skip
    assert found[("Base", "accuracy")][0] == ("reproduced" if name == "seed0.log" else "not comparable")


def test_a_transposed_table_is_read_or_what_to_do_is_said(tmp_path):
    ours = of_seeds("model,dataset,accuracy", "A,SST,82.{}")
    table = "| | A | B |\n|---|---|---|\n| Accuracy | 82.1 | 60 |\n| F1 | 70.1 | 60 |\n"
    _, found = judged(tmp_path / "metrics", ("t.md", table, Names()), of_seeds("model,accuracy,F1", "A,82.{},70.{}"))
    assert [one.verdict for one in found] == ["reproduced", "not run"] * 2
    _, found = judged(tmp_path, ("t.md", "| | A | B |\n|---|---|---|\n| SST | 82.1 | 60 |\n", ACCURACY), ours)
    assert "turn the table" in found[0].reason


@pytest.mark.parametrize("said", ["Max accuracy over 5 runs", "Best accuracy over 5 runs", "Peak accuracy", "Top-5 accuracy",
                                  "Error rates (%)", "Numbers are F1 scores", "10-fold cross-validation", "Results on the tuning set",
                                  "macro-averaged", "Results on the held-out development portion",
                                  "=Mean accuracy over 5 runs", "=Accuracy on the test set",
                                  "=Our best model outperforms all others", "=Tuned by cross-validation", "=Error analysis follows",
                                  "=Accuracy of the best system"])  # fmt: skip
def test_text_that_names_another_metric_mean_selection_or_split_is_asked_about(said, tmp_path):
    table = f"Table 2: {said.lstrip('=')}.\n\n| Model | Accuracy |\n|---|---|\n| Base | 82.3 |\n"
    _, (found,) = judged(tmp_path, ("t.md", table, Names()), {"s.csv": SEEDS})
    assert (found.verdict == "reproduced") == (said[0] == "="), found.reason


def test_a_log_of_steps_gives_what_it_has_once_and_a_copy_of_a_file_counts_once(tmp_path):
    log = "epoch,step,train_loss,test_acc\n0,1,0.5,\n1,2,0.4,\n1,2,,0.82{}\n"
    ours = {f"A/seed{n}/metrics.csv": log.format(n) for n in range(3)}
    both, found = scores_of(tmp_path / "log", ours, "model,accuracy\nA,82.1\n")
    assert found == {("A", "accuracy"): ("reproduced", 3)} and any("train_loss: values at several steps" in one for one in both.unread)
    rates = {f"A/seed{n}/metrics.csv": f"epoch,loss,params.lr,test_acc\n0,0.5,0.{n},\n1,0.4,0.{n},0.82{n}\n" for n in range(3)}
    (one,) = scores_of(tmp_path / "rates", rates, "model,accuracy\nA,82.1\n")[1].values()
    assert one[0] == "not comparable", "the settings of a log part its runs"
    ours = {f"{n}.csv": f"epoch,accuracy\n0,81.0\n1,82.{n}\n" for n in range(3)}
    with pytest.raises(ValueError, match=r"accuracy: values at several steps .* keep the line of one step"):
        scores_of(tmp_path / "course", ours, "model,accuracy\nA,82.1\n")
    ours = {f"seed{n}.csv": f"model,accuracy\nA,82.{n}\n" for n in range(3)}
    ours |= {f"seed0{copy}.csv": ours["seed0.csv"] for copy in (" (1)", " - Copy")}
    assert scores_of(tmp_path / "copy", ours, "model,accuracy\nA,82.1\n")[1] == {("A", "accuracy"): ("reproduced", 3)}


@pytest.mark.parametrize(
    ("field", "value", "asked"),
    [("phase", "validation", "validation"), ("evaluated on", "dev1", "dev1"), ("data_file", "data/dev.json", "dev"),
     ("mode", "train", "train"), ("set", "minival", "minival"), ("train_file", "data/train.json", ""), ("monitor", "val_loss", ""),
     ("git_branch", "dev", ""), ("command", "python train.py --dev d.json --x 1", ""), ("notes", "tuned on dev", ""),
     ("set", "test-dev", "")],
)  # fmt: skip
def test_a_field_of_ours_says_which_part_of_the_data_was_evaluated(field, value, asked, tmp_path):
    ours = {"s.json": json.dumps([{"model": "A", "seed": n, field: value, "accuracy": 82 + n / 10} for n in range(3)])}
    for same in ((), (asked,)):
        both, (found,) = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\n", Names(same=frozenset(same))), ours)
        assert not any("say --same" in line for line in both.unread)  # a line for each score would hide the others
        assert (f"its {field} says {asked}: say --same {asked}" in found.reason) == (bool(asked) and not same), found.reason
        assert found.verdict == ("not comparable" if asked and not same else "reproduced")


def test_a_field_that_tells_test_from_dev_divides_the_scores_and_the_folder_of_work_does_not(tmp_path):
    rows = [f"A,{phase},{n},{score + n / 10}" for phase, score in (("dev", 88), ("test", 82)) for n in range(3)]
    ours = {"s.csv": "\n".join(("model,phase,seed,accuracy", *rows))}
    (tmp_path / "dev").mkdir()
    both, (found,) = judged(tmp_path / "dev", ("t.csv", "model,accuracy\nA,82.1\n", Names()), ours)
    assert (found.verdict, len(found.values)) == ("reproduced", 3), (found.reason, both.unread)


@pytest.mark.parametrize(
    ("labels", "same"),
    [("lr=1e-3 lr=1e-4", False), ("bert-lr1e-5 bert-lr3e-5", False), ("d64 d128", False), ("adam sgd", False),
     ("bs16-seed0 bs32-seed1", False), ("epoch1 epoch2", False), ("ckpt-100 ckpt-200", False), ("small large", False), ("0 1", True),
     ("seed0 seed1", True), ("run_a run_b", True), ("swift-sun-12 calm-sea-13", True), ("2026-01-01 2026-01-02", True),
     ("3f9a1c2e 77ab01cd", True), ("bert-seed0 bert-seed1", True)],
)  # fmt: skip
def test_runs_are_seeds_only_if_their_names_are_alike_but_for_the_seed(labels, same, tmp_path):
    for column in ("run", "seed"):
        ours = f"model,{column},accuracy\n" + "".join(f"A,{label},82.{n}\n" for n, label in enumerate(labels.split()))
        for said in ((), (column,)):
            _, (found,) = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\n", Names(same=frozenset(said))), {"s.csv": ours})
            assert ("differ by more than the seed" in found.reason) == (not same and not said), found.reason


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [("params.json", '{{"lr": {}, "seed": 1}}', True), ("sweep.yaml", "lr: {}\n", True), ("config.toml", "lr = {}\n", True),
     (".hydra/config.yaml", "layers: {}\n", True), ("command.txt", "python run.py --lr {} --seed 1\n", True),
     ("run.json", '{{"output_dir": "o/seed{0}", "train_runtime": {0}}}', False), ("loss.json", '{{"loss": {}, "size": 1}}', False)],
)  # fmt: skip
def test_files_without_scores_beside_scores_are_settings_whatever_they_are_called(name, text, parts, tmp_path):
    ours = {f"A/seed{n}/r.csv": f"accuracy\n82.{n}\n" for n in range(3)} | {f"A/seed{n}/{name}": text.format(n + 1) for n in range(3)}
    _, (found,) = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\n", Names()), ours)
    assert ("differ by more than the seed" in found.reason) == parts, found.reason


@pytest.mark.parametrize(
    ("path", "verdict"),
    [("A/{0}00/{0}.csv", "not comparable"), ("A/s{0}00/run{0}.csv", "not comparable"), ("A/fold{0}/seed{0}.csv", "reproduced"),
     ("A/7/{0}.csv", "reproduced")],
)  # fmt: skip
def test_of_two_numbers_in_a_path_one_may_be_no_seed(path, verdict, tmp_path):
    ours = {path.format(n): f"accuracy\n82.{n}\n" for n in range(3)}
    _, (found,) = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\n", Names()), ours)
    assert found.verdict == verdict and ("which number is the seed?" in found.reason) == (verdict != "reproduced")


def test_folders_of_hugging_face_and_lightning_are_read_as_they_are(tmp_path):
    ours = {f"A/seed{n}/{kind}_results.json": json.dumps({f"{kind}_accuracy": 0.9 if kind == "eval" else 0.82 + n / 1000})
            for n in range(3) for kind in ("eval", "predict")}  # fmt: skip
    for n in range(3):
        ours[f"A/seed{n}/all_results.json"] = json.dumps({"eval_accuracy": 0.9, "predict_accuracy": 0.82 + n / 1000})
        ours[f"A/seed{n}/trainer_state.json"] = json.dumps({"best_metric": 0.9, "log_history": [{"eval_accuracy": 0.9}]})
        ours |= {f"B/version_{n}/metrics.csv": f"epoch,test_acc\n9,0.82{n}\n", f"B/version_{n}/hparams.yaml": f"lr: 1\nseed: {n}\n"}
    _, found = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\nB,82.1\n", Names()), ours)
    assert [(one.verdict, len(one.values)) for one in found] == [("reproduced", 3)] * 2, found


@pytest.mark.parametrize("name", ["eval_results.json", "devResults.json", "my dev.json"])
def test_a_file_of_another_split_alone_is_read_and_asked_about(name, tmp_path):
    ours = {name: '[{"model": "A", "seed": 0, "accuracy": 82.0}, {"model": "A", "seed": 1, "accuracy": 82.2}]'}
    both, (found,) = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\n", Names()), ours)
    assert "beside it is of the test set" not in " ".join(both.unread)
    assert found.verdict == ("reproduced" if name.startswith("eval") else "not comparable"), found.reason
    (tmp_path / name).write_text(ours[name])
    assert len(list(read(tmp_path / name))) == 2  # given by itself


@pytest.mark.parametrize(
    ("dev", "test"), [("dev.json", "test.json"), ("val_metrics.json", "test_metrics.json"), ("my dev/m.json", "my test/m.json")]
)
def test_of_a_dev_and_a_test_file_of_a_run_the_test_file_is_read(dev, test, tmp_path):
    files = {f"A/seed{n}/{name}": f'{{"accuracy": {value}.{n}}}' for n in range(3) for name, value in ((dev, 70), (test, 82))}
    files |= {f"A/seed{n}/special_tokens_map.json": '{"unk": "<unk>"}' for n in range(3)}
    _, (found,) = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\n", Names()), files)
    assert found.verdict == "reproduced" and "82.00, 82.10, 82.20" in found.reason, found.reason


def test_runs_of_mlflow_differ_by_their_names_and_places(tmp_path):
    ours = "run_id,artifact_uri,metrics.accuracy,params.model,params.seed,tags.mlflow.runName\n"
    ours += "".join(f"{n}a,s3://b/{n}a/artifacts,82.{n},A,{n},{name}-{n}\n" for n, name in enumerate(("bright-fox", "odd-cod", "tall-elk")))
    _, (found,) = judged(tmp_path, ("t.csv", "model,accuracy\nA,82.1\n", Names()), {"s.csv": ours})
    assert found.verdict == "reproduced", found.reason
