"""What may be read in two ways judges nothing: it is said, with what to write."""

import json

import pytest
from test_tables import judged

from phrasemodels.verdicts import Names

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
     (of_a(*[{"eval_accuracy": "SCORE"}] * 3), "reproduced", "though its name says eval"),
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
    failed = of_a(*[{"accuracy": "SCORE"}] * 3, {"accuracy": 0.1, "failed": True})
    assert "its state is 'failed'" in verdict_of(tmp_path / "4", failed)[2]


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
