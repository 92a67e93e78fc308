"""Runs that are stopped, fail or diverge: everything is kept, and another run ends with the same bits."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from running import prepared
from small_training import training
from test_reproduce import TINY, command, progress, started, until_ended, until_step, variables

import phrasemodels.tasks.train.trainer
from phrasemodels.data.store.artifacts import sha256_of
from phrasemodels.data.store.store import Store
from phrasemodels.flows.cli.terminal import print_table
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.report.page import write_report
from phrasemodels.flows.results.keep import keep
from phrasemodels.flows.results.records import read_kept, records
from phrasemodels.flows.results.results import NOT_COUNTED, FinishedTable, contradiction, stored_results
from phrasemodels.flows.results.sql import query
from phrasemodels.flows.run.record import attempt
from phrasemodels.infra.services import start_mlflow
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import STATE, STATUS
from phrasemodels.tasks.train.trainer import DivergedError, run_training

SMALL = Request("000", "1", "sample", 2, TINY[3::2], ("transformer", "phrase-k2"))


def test_a_checkpoint_is_due_after_some_time_whatever_the_number_of_updates(shared, tmp_path, monkeypatch):
    run = training(shared, tmp_path, "train.checkpoint_every=1000")
    monkeypatch.setattr(phrasemodels.tasks.train.trainer, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(phrasemodels.tasks.train.trainer, "SAVING", math.inf)  # it may take all of the time
    saved, save = [], phrasemodels.tasks.train.trainer.save
    monkeypatch.setattr(
        phrasemodels.tasks.train.trainer, "save", lambda *a, **b: saved.append(a[4].step) or save(*a, **b)
    )
    run_training(run)
    assert saved == list(range(1, 41))


@pytest.mark.parametrize(
    ("error", "status"), [(OSError, "FAILED"), (KeyboardInterrupt, "KILLED"), (DivergedError, "FAILED")]
)
def test_a_run_that_fails_or_is_stopped_is_ended_in_mlflow(tmp_path, error, status):
    settings = Settings(store=tmp_path)
    start_mlflow(settings)
    record = dataclasses.replace(prepared(settings, SMALL).record, attempt=str(uuid4()))
    run = record.table_run
    assert record.tracker.client().get_run(run).info.status == "RUNNING"
    with pytest.raises(error), attempt(record, settings, {}):
        raise error
    ended = record.tracker.client().get_run(run)
    (kept,) = records(record.store)
    assert ended.info.status == status == STATUS[kept["state"]] and ended.data.tags[STATE] == kept["state"]


@pytest.mark.parametrize("lost", [{0}, {0, 1}])
def test_a_training_that_diverged_is_a_result_with_the_worst_value(tmp_path, lost):
    execution = prepared(Settings(store=tmp_path), SMALL)
    plan, store = execution.plan, execution.store
    gone = [p for p in plan.pipelines if p.experiment.row == "phrase-k2" and p.seed in lost]
    for step in (p.scored for p in plan.pipelines if p not in gone):
        store.run(step)
    done = execution.without({p.scored.key: "train phrase-k2: the training diverged" for p in gone})
    finished = FinishedTable(done.plan.table, done.plan.pipelines, store, store.run(done.plan.comparison))
    other, row = finished.comparison.meta["rows"]
    assert other["diverged"] == [] and row["diverged"] == sorted(lost) and row["against"] is None
    bleu = row["values"]["bleu"]
    assert (
        len(bleu) == 2 and all(bleu[seed] == 0 for seed in lost) and row["intervals"]["bleu"]["mean"] == sum(bleu) / 2
    )
    question = (
        "select s.n, s.diverged, s.mean, c.diverged from seeds s join compared c using (experiment, metric, origin) "
        f"where metric = 'bleu' and origin = 'store' and experiment = '{row['experiment']}'"
    )
    (own,) = query(store, execution.record.tracker, question)[1]
    assert own == (2, len(lost), row["intervals"]["bleu"]["mean"], len(lost))
    question = f"select distinct n, diverged from seeds where origin = 'store' and experiment = '{row['experiment']}'"
    question += " and higher_is_better"
    assert query(store, execution.record.tracker, question)[1] == [(2, len(lost))], "of every metric with a worst value"
    page = write_report(finished).read_text()
    assert f"2, of which {len(lost)} diverged" in page
    made = plan.as_compared(store)
    assert made.comparison.key == done.plan.comparison.key
    found = next(one.row for one in stored_results(store, {}) if one.row["experiment"] == row["experiment"])
    assert bool(found["settings"]) == (lost == {0}), "of the seed that ended"
    if lost == {0, 1}:
        with pytest.raises(ValueError, match=r"phrase-k2.*: each of its seeds diverged"):
            keep(store, made.table, made.pipelines, made.comparison, tmp_path / "kept", "")
    else:
        kept = read_kept(keep(store, made.table, made.pipelines, made.comparison, tmp_path / "kept", ""))["rows"][1]
        assert (kept["values"]["bleu"], kept["diverged"], kept["sentences"]) == (bleu, [0], [])
        assert kept["runs"][0]["train"] == "" and contradiction(tmp_path / "kept" / "result.json") == ""
    print_table(
        {"title": plan.table.title, "rows": [other, row], "leaks": {}, "stages": {}, "seconds": 0.0, "report": ""}
    )


# Runs two rows of a table, the first with a rate at which it diverges; prints what the run returned.
ONE_DIVERGES = """
import dataclasses, json
import phrasemodels.infra.environment
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.run.plan import Plan
from phrasemodels.flows.run.plan import planned
from phrasemodels.flows.run.reproduce import reproduce_plan
from phrasemodels.infra.settings import Settings

request = Request(**json.loads({request!r}))
plan, store = planned(request, Settings())
first, second = plan.table.experiments
rows = (overridden(first, "train.learning_rate=1e30"), second)
plan = Plan(dataclasses.replace(plan.table, experiments=rows))
print(json.dumps(reproduce_plan(request, plan, store, Settings())))
"""


@pytest.mark.slow
def test_a_row_that_diverges_does_not_keep_the_others_from_their_report(tmp_path):
    script = ONE_DIVERGES.format(request=json.dumps(dataclasses.asdict(SMALL)))
    done = subprocess.run([sys.executable, "-c", script], env=variables(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    lost, _ = result["rows"]
    assert "/transformer" in lost["experiment"] and lost["diverged"] == [0, 1]
    for seed, why in enumerate(result["diverged"]):
        assert why.startswith("train 000/table1/sample/transformer") and f"seed {seed}: the training diverged" in why
    assert "2, of which 2 diverged" in Path(result["report"]).read_text()
    (record,) = (json.loads(file.read_text()) for file in tmp_path.glob("runs/*.json"))
    assert record["state"] == "completed" and record["diverged"] == result["diverged"]

    alone = command("reproduce", *TINY, "--row", "transformer", "--set", "train.learning_rate=1e30")
    done = subprocess.run(alone, env=variables(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr and "2, 2 diverged" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("train 000/table1/sample/transformer")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_campaign_that_is_stopped_and_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    more = ("--seeds", "1", "--set", "train.steps=6000", *TINY[4:], "--row", "phrase-k2")
    root, other = tmp_path / "store", tmp_path / "other"

    def run(*arguments: str, store: Path = root) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command(*arguments), env=variables(store), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    at = 0
    for sent in (signal.SIGTERM, signal.SIGKILL):  # as `timeout 3h` sends, and as an operator
        with started(root, "reproduce", *more) as process:
            until_step(root, at + 60, process)
            os.kill(process.pid, sent)
            process.wait()
        until_ended(root)
        at = progress(root)["step"]
    assert 60 <= at < 6000
    last = json.loads(run("reproduce", *more, "--json").stdout)
    assert len(last["rows"]) == 1
    run("train", "000/table1/sample/phrase-k2", "--local", *more[2:-2], store=other)
    weights = [
        sha256_of(next(a for a in Store(store).artifacts() if a.manifest["step"] == "train").file("model.safetensors"))
        for store in (root, other)
    ]
    assert weights[0] == weights[1]


# Runs one row of a table whose count of leaks and whose page fail; prints what the run returned.
CHECKS_FAIL = """
import json
import phrasemodels.infra.environment
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.run import reproduce
from phrasemodels.flows.run.plan import planned
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.prepare import corpora

def fail(*arguments):
    raise RuntimeError("broken on purpose")

corpora.leakage, reproduce.write_report = fail, fail
request = Request(**json.loads({request!r}))
print(json.dumps(reproduce.reproduce_plan(request, *planned(request, Settings()), Settings())))
"""


@pytest.mark.slow
def test_a_failed_check_or_page_does_not_withhold_the_table(tmp_path):
    one = dataclasses.replace(SMALL, seeds=1, rows=("phrase-k2",))
    script = CHECKS_FAIL.format(request=json.dumps(dataclasses.asdict(one)))
    done = subprocess.run([sys.executable, "-c", script], env=variables(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert len(result["rows"]) == 1 and not result["report"]
    assert set(result["leaks"].values()) == {NOT_COUNTED}
    for name in ("leaks sample", "the page of Paper 000"):
        (line,) = (line for line in done.stderr.splitlines() if line.startswith(name) and "do not depend" in line)
        assert "failed: RuntimeError: broken on purpose" in line
    again = command("reproduce", *TINY, "--row", "phrase-k2")
    done = subprocess.run(again, env=variables(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stand verbatim in train" in done.stdout
    assert "stand verbatim in train" in next(tmp_path.glob("reports/000*.html")).read_text()
