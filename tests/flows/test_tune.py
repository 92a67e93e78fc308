"""Tuning: the same budget for each row, chosen on dev."""

import dataclasses
import json
import math
import subprocess
from pathlib import Path

import pytest
from running import prepared
from small_training import same, training, weights
from test_reproduce import TINY, command, variables

from phrasemodels.data.store.store import with_dependencies
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.report.table import chosen_settings
from phrasemodels.flows.run.plan import Plan
from phrasemodels.flows.run.tune import (
    SEED,
    Search,
    finished_searches,
    trials_of,
    tuned,
)
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.train.checkpoints import newest
from phrasemodels.tasks.train.trainer import run_training

SMALL = Request("000", "1", "sample", 2, TINY[3::2], ("transformer", "phrase-k2"))


def test_each_row_has_the_same_budget_and_its_draws_are_the_same_again():
    rows = SMALL.resolve().experiments
    searches = [Search.of(row, 5) for row in rows]
    assert [len(search.trials) for search in searches] == [5, 5]
    for row, search in zip(rows, searches, strict=True):
        assert search.trials[0].changed == row.changed and len({t.changed for t in search.trials}) == 5
        assert [t.changed for t in Search.of(row, 5).trials] == [t.changed for t in search.trials]
        own = row.train.learning_rate
        assert all(own / 4 <= t.pipeline.experiment.train.learning_rate <= own * 4 for t in search.trials)
    plan = trials_of(SMALL.resolve(), searches)
    assert {p.seed for p in plan.pipelines} == {SEED} and not any(p.experiment.answers for p in plan.pipelines)
    steps = with_dependencies([pipeline.trained for pipeline in plan.pipelines])
    assert not {"score_translations", "translate"} & {step.name for step in steps}, "test sets are not read"


def test_a_study_adds_its_own_fields_to_the_space(monkeypatch):
    monkeypatch.setattr(
        "phrasemodels.flows.run.tune.space_of", lambda paper: {"train.clip": (1.0, 5.0), "model.encoder.d_ff": 2}
    )
    row = SMALL.resolve().experiments[0]
    drawn = [trial.pipeline.experiment for trial in Search.of(row, 9).trials[1:]]
    assert {one.train.clip for one in drawn} == {1.0, 5.0}
    assert all(row.model.encoder.d_ff / 2 <= one.model.encoder.d_ff <= 2 * row.model.encoder.d_ff for one in drawn)
    monkeypatch.setattr("phrasemodels.flows.run.tune.space_of", lambda paper: {"train.clip": 0.5})
    with pytest.raises(ValueError, match=r"SPACE: train.clip is 0.5: give values to choose from, or a factor above 1"):
        Search.of(row, 2)
    monkeypatch.setattr("phrasemodels.flows.run.tune.space_of", lambda paper: {"model.encoder.gain": (1.0, 2.0)})
    with pytest.raises(ValueError, match=r"SPACE: no row of 000 has a field model.encoder.gain; `phrasemodels exp"):
        Search.of(row, 2)


def test_a_row_of_ones_own_and_a_sweep_stand_beside_the_rows_of_a_table():
    own = Request("000", "1", rows=["mine"], like="phrase-k2", set=["model.encoder.dropout=0.3"]).resolve()
    assert [(e.row, e.changed) for e in own.experiments] == [
        ("transformer", ()), ("phrase-k2", ()), ("mine", ("model.encoder.dropout=0.3",)),
    ]  # fmt: skip
    mine = own.experiments[-1]
    assert mine.name == "000/table1/sample/phrase-k2+model.encoder.dropout=0.3" and not any(
        a.cell for a in mine.answers
    )
    tested = [row.baseline for row in Plan(own).rows_of(mine)]
    assert tested == [""] and (mine.system, mine.variant) == ("mine", "phrase-k2 with model.encoder.dropout=0.3")
    sweep = Request("000", "1", rows=["phrase-k2"], sweep=["model.encoder.dropout=0.1,0.2", "train.clip=1,2"]).resolve()
    assert [e.row for e in sweep.experiments] == [f"phrase-k2-dropout={d}-clip={c}" for d in (0.1, 0.2) for c in (1, 2)]
    assert len({e.name for e in sweep.experiments}) == 4
    for wrong, says in (
        ({"rows": ["mine"], "like": "phrase-k2"}, "nothing differs; say what by --set"),
        ({"like": "phrase-k2", "set": ["train.steps=2"]}, "--like needs a row of your own"),
        ({"sweep": ["train.steps"]}, "write it like train.learning_rate=0.001,0.002"),
        ({"set": ["model.encoder.window=3"]}, "transformer: 'model.encoder.window': no field"),
    ):
        with pytest.raises(ValueError, match=says):
            Request("000", "1", **wrong).resolve()


@pytest.mark.parametrize(("paper", "table", "row", "why"), [
    ("002", "figure4", "transformer", "its dev set is a part of train, or test itself"),
    ("002", "1", "", "it trains nothing that could be tuned"),
])  # fmt: skip
def test_no_setting_is_chosen_on_a_test_set_or_for_a_count(paper, table, row, why):
    profile = Request(paper, table, "laptop", 1, (), (row,) if row else ()).resolve()
    with pytest.raises(ValueError, match=why):
        Search.of(profile.experiments[0], 2)


def test_a_warmup_that_a_schedule_ignores_is_not_searched_and_the_title_says_what_was_changed():
    table = Request("003", "snli", "laptop", 1, ("train.steps=200",), ("none",)).resolve()
    search = Search.of(table.experiments[0], 8)
    assert not [text for trial in search.trials for text in trial.changed if "warmup" in text]
    search.trials = search.trials[:1]
    search.trials[0].loss = 1.0
    assert tuned(table, [search]).title.endswith("train.steps=200, tuned by 1 trial a row")


def test_a_training_that_stops_at_updates_goes_on_with_the_same_bits(shared, undisturbed, tmp_path):
    run, stops = training(shared, tmp_path), [0.0]
    for stop in (12, 25, math.inf):
        run_training(dataclasses.replace(run, stop_at=stop))
        progress = newest(tmp_path, "key")[1]["progress"]
        assert progress["step"] == min(stop, 40) and progress["seconds"] > stops[-1]
        stops.append(progress["seconds"])
    assert progress["history"][-1]["seconds"] > stops[-2], "seconds after the last evaluation before a stop are counted"
    assert same(weights(tmp_path), undisturbed)


def test_the_best_trial_on_dev_is_taken_and_one_that_diverged_never(tmp_path):
    execution = prepared(Settings(store=tmp_path), SMALL)
    table = dataclasses.replace(execution.plan.table, experiments=execution.plan.table.experiments[:1])
    search = Search.of(table.experiments[0], 3)
    for trial in search.trials:
        execution.store.run(trial.pipeline.trained)
    search.measure(execution.store)
    assert search.best.loss == min(trial.loss for trial in search.trials)
    (again,) = finished_searches(table, 3, execution.store)
    with pytest.raises(ValueError, match="not in the store: run `phrasemodels reproduce --tune 4`"):
        finished_searches(table, 4, execution.store)
    assert [trial.loss for trial in again.trials] == [trial.loss for trial in search.trials], "found, not trained"
    best = tuned(table, [search])
    (row,) = best.experiments
    assert row.changed == search.best.changed and row.answers == table.experiments[0].answers
    assert best.title.endswith("tuned by 3 trials a row") and len(best.trials[0]["trials"]) == 3
    (told,) = chosen_settings(best.trials)
    assert told["dev loss"] == round(search.best.loss, 4)
    assert told["setting"] == (", ".join(search.best.changed) or "as defined")
    lost = search.best
    lost.loss = math.inf
    assert search.best is not lost and lost.record["loss"] is None
    search.trials = [lost]
    with pytest.raises(ValueError, match="each of 1 trials diverged"):
        _ = search.best


@pytest.mark.slow
def test_a_tuned_table_is_reproduced_and_a_second_run_finds_all_trials(tmp_path):
    arguments = [*TINY, "--row", "transformer", "--row", "phrase-k2", "--tune", "3", "--json"]

    def reproduced() -> dict:
        done = subprocess.run(command("reproduce", *arguments), env=variables(tmp_path), capture_output=True)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        return json.loads(done.stdout)

    first, again = reproduced(), reproduced()
    assert first["tuning"] == again["tuning"] and [row["trials"] for row in first["tuning"]] == [3, 3]
    assert first["title"].endswith("tuned by 3 trials a row") and first["rows"] == again["rows"]
    assert again["stages"].get("train", 0) < first["stages"]["train"] / 4
    (tmp_path / "phrasemodels.toml").touch()  # a project folder, which `keep` writes into
    kept = command("keep", "tuned", "--profile", "sample", *arguments[:-1])
    subprocess.run(kept, env=variables(tmp_path), cwd=tmp_path, check=True)
    trials = json.loads((tmp_path / "results/tuned/trials.json").read_text())
    assert [len(row["trials"]) for row in trials] == [3, 3]
    page = Path(first["report"]).read_text()
    assert "Settings of each row" in page and all(row["setting"] in page for row in first["tuning"])
    assert json.loads((tmp_path / "results/tuned/result.json").read_text())["title"] == first["title"]
