"""From a small real run to answers: tests against the baseline, verdicts, pages, lineage, trained models."""

import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import torch
from browser import chromium
from conftest import CLI, PROJECT
from running import check_keys, executed, prepared, small_corpus

from phrasemodels.config import from_template
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import MANIFEST, sha256_of, with_digest
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.flows.report.page import write_overview, write_report
from phrasemodels.flows.report.plots import attention_figures, write_attention
from phrasemodels.flows.report.table import table_text
from phrasemodels.flows.results.keep import join, keep
from phrasemodels.flows.results.lineage import Lineage, difference, parts_of
from phrasemodels.flows.results.models import champion, find, load, named
from phrasemodels.flows.results.records import COMPLETED, KEPT, TESTS, records, seal
from phrasemodels.flows.results.records import write as write_record
from phrasemodels.flows.results.results import all_results, kept_results, key_of, stored_results
from phrasemodels.flows.results.results import tested as with_tests
from phrasemodels.flows.results.sql import Answers, query
from phrasemodels.flows.results.verdicts import verdicts
from phrasemodels.flows.run.execute import Execution
from phrasemodels.flows.run.plan import Plan, outlined
from phrasemodels.flows.run.reproduce import replay_finished_run
from phrasemodels.infra.services import start_mlflow
from phrasemodels.infra.settings import Settings
from phrasemodels.layers.attention import MultiHeadAttention, attention_probe
from phrasemodels.tasks.metrics.compare import differences
from phrasemodels.tasks.train.trainer import history

SMALL = ("train.steps=20", "train.evaluate_every=10", "train.batch_tokens=600",
         *small_corpus(200, 20, 40))  # fmt: skip
PLAIN, ROW = (experiment(f"000/table1/sample/{row}", SMALL).name for row in ("transformer", "phrase-k2"))
DEFINED = "000/table1/sample/phrase-k2"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Execution:
    """Two rows with two seeds, compared, in this process."""
    settings = Settings(store=tmp_path_factory.mktemp("answers") / "store")
    start_mlflow(settings)
    return executed(prepared(settings, Request("000", "1", "sample", 2, SMALL, ("transformer", "phrase-k2"))))


@pytest.fixture(scope="module")
def pages(session: Execution) -> list[Path]:
    """The page of the table, that of all papers, and the attention of a sentence."""
    model = champion(Lineage(session.store), ROW)
    of_table = write_report(session.finished())
    run = {"id": str(uuid4()), "title": session.plan.table.title, "started": "", "state": COMPLETED}
    write_record(session.store, run | {"report": str(of_table)})
    to = session.store.root / "reports" / "attention.html"
    return [of_table, write_overview(session.store, session.record.tracker),
            write_attention(model.card(), model.attend("<script>alert(1)</script> the woman ."), to)]  # fmt: skip


def test_each_row_is_tested_against_the_first(session):
    first, second = session.finished().comparison.meta["rows"]
    assert first["against"] is None
    assert second["against"]["baseline"] == PLAIN
    found = second["against"]["differences"]
    assert found.keys() == {"bleu", "bleu/idiom", "bleu/plain"}
    means = [row["intervals"]["bleu"]["mean"] for row in (second, first)]
    assert found["bleu"]["difference"] == pytest.approx(means[0] - means[1])
    assert found["bleu"]["p_holm"] == found["bleu"]["p"], "one comparison needs no correction"
    assert sum(found[f"bleu/{group}"]["sentences"] for group in ("idiom", "plain")) == 40


def test_every_printed_number_has_a_verdict_and_a_reason(session):
    rows = verdicts(stored_results(session.store, {}))
    assert len(rows) == 470
    assert all(row["reason"] for row in rows)
    answered = {(row["table"], row["variant"]): row for row in rows if row["seeds"]}
    assert answered.keys() == {
        ("Table 1", "baseline"),
        ("Table 1", "k=2"),
        ("abstract", "baseline"),
        ("abstract", "k=2"),
    }
    trained = {run["train"] for run in answered["Table 1", "k=2"]["runs"]}
    assert trained == {p.trained.key for p in session.plan.pipelines if p.experiment.name == ROW}


def test_kept_results_equal_stored_ones_and_the_larger_profile_answers(session, tmp_path, monkeypatch):
    keep(
        session.store,
        session.plan.table,
        session.plan.pipelines,
        session.plan.comparison,
        tmp_path / "kept",
        "by a test",
    )
    with monkeypatch.context() as only:
        only.setattr("phrasemodels.flows.results.results.kept_files", lambda: [tmp_path / "kept" / "result.json"])
        mine, theirs = list(stored_results(session.store, {})), list(kept_results())
    assert len(theirs) == len(mine) == 2
    for one, other in zip(mine, theirs, strict=True):
        assert all(other.row[name] == one.row[name] for name in ("intervals", "against", "test_set"))
    assert not any("woman" in path.read_text(errors="ignore") for path in tmp_path.glob("kept/*")), "no text is kept"
    rows = verdicts([*mine, *kept_results()], "000")
    shown = {row["source"] for row in rows if row["table"] == "Table 1"}
    assert shown == {"results/000-table1-laptop", "results/000-table1-paper"}, "k=3 was run at the small size alone"


def write_kept(folder: Path, result: dict[str, object]) -> None:
    (folder / "result.json").write_text(json.dumps(result))
    seal(folder)


def test_further_seeds_join_those_of_a_kept_result(session, tmp_path):
    whole, plans = tmp_path / "whole", session.plan.pipelines
    keep(session.store, session.plan.table, plans, session.plan.comparison, whole, "")
    parts = [tmp_path / "first", tmp_path / "second"]
    store = Store(shutil.copytree(session.store.root, tmp_path / "store", symlinks=True))
    for seed, folder in enumerate(parts):
        table = replace(session.plan.table, seeds=(seed,))
        part = Plan(table)
        store.run(part.comparison)
        keep(store, table, part.pipelines, part.comparison, folder, "")
    join(parts[0], parts[1])
    one, both = (json.loads((folder / "result.json").read_text())["rows"] for folder in (whole, parts[0]))
    assert [row["values"] for row in one] == [row["values"] for row in both] and both[0]["seeds"] == [0, 1]
    assert json.loads((whole / TESTS).read_text())["against"] == json.loads((parts[0] / TESTS).read_text())["against"]
    assert both[0]["training"] == pytest.approx(one[0]["training"])
    assert [run["seed"] for run in both[0]["runs"]] == [0, 1] and both[0]["runs"] == one[0]["runs"]
    changed = json.loads((parts[1] / "result.json").read_text())
    changed["rows"][0]["training"]["devices"] = "NVIDIA H200"
    write_kept(parts[1], changed)
    join(parts[0], parts[1])
    assert json.loads((parts[0] / "result.json").read_text())["rows"][0]["training"]["devices"] == "NVIDIA H200, cpu"
    both = json.loads((parts[0] / "result.json").read_text())["rows"]
    changed["rows"][0]["values"]["sacrebleu"][0] += 1
    write_kept(parts[1], changed)
    with pytest.raises(ValueError, match=r"transformer.* seed 1: sacrebleu is .* in one result and .* in the other"):
        join(parts[0], parts[1])
    other = tmp_path / "other"
    shutil.copytree(parts[1], other)
    write_kept(other, changed | {"title": "another"})
    with pytest.raises(ValueError, match="only seeds of one table are joined"):
        join(parts[0], other)
    changed["rows"][0]["settings"]["config"]["learning_rate"] = 1.0
    write_kept(parts[1], changed)
    with pytest.raises(ValueError, match="different settings, so their seeds cannot be joined"):
        join(parts[0], parts[1])
    assert json.loads((parts[0] / "result.json").read_text())["rows"] == both, "nothing was written"


def test_tests_beside_kept_results_are_those_of_the_data_and_code(tmp_path):
    """`phrasemodels verdicts --keep-tests` writes them again."""
    folders = [path.parent for path in KEPT.glob("*/result.json")]
    for folder in folders:
        kept = json.loads((folder / TESTS).read_text())
        assert kept["key"] == key_of(folder, with_tests(folder / "result.json")[0]), folder.name
    several = [folder for folder in folders if any(json.loads((folder / TESTS).read_text())["against"])]
    smallest = min(several, key=lambda folder: sum(file.stat().st_size for file in folder.glob("*.arrow")) or math.inf)
    kept = json.loads((smallest / TESTS).read_text())
    assert differences(with_tests(smallest / "result.json")[1]()) == kept["against"] != [None] * len(kept["against"])


def test_a_run_without_misses_shows_the_recorded_one_and_starts_nothing(session, monkeypatch):
    settings = Settings(store=session.store.root)
    asked = {"paper": "000", "table": "1", "profile": "sample", "seeds": 2, "set": list(SMALL),
             "rows": ["transformer", "phrase-k2"]}  # fmt: skip
    outline = outlined(asked, settings)
    assert [step.key for step in outline.steps] == [step.key for step in session.plan.steps]
    assert replay_finished_run(asked, outline, session.store, settings) is None, "no run was completed"
    report = write_report(session.finished())
    key = session.plan.comparison.key
    before = {"id": str(uuid4()), "title": "", "started": "", "state": COMPLETED, "verdicts": key}
    write_record(session.store, before)
    monkeypatch.setattr(Store, "run", None)  # no step is run again
    shown = replay_finished_run(asked, outline, session.store, settings)
    assert shown["report"] == str(report) and shown["rows"] == session.store.find(session.plan.comparison).meta["rows"]
    assert records(session.store)[-1]["report"] == str(report)


def test_a_changed_row_answers_only_if_no_other_row_does(session):
    mine = next(stored_results(session.store, {}))
    assert mine.experiment.changed == tuple(sorted(SMALL))
    assert replace(mine, experiment=experiment(DEFINED), made="").worth > mine.worth
    assert mine.row["settings"]["config"]["steps"] == mine.experiment.train.steps, "of its training"


def test_a_row_that_is_trained_like_another_has_its_model(session, monkeypatch):
    lineage = Lineage(session.store)
    own = named(lineage)[ROW]
    monkeypatch.setattr("phrasemodels.flows.results.models.named", lambda lineage: {"another": own})
    assert champion(lineage, ROW).weights.key in {artifact.key for artifact in own}
    assert champion(lineage, "001/table1-sizes/laptop/MRPC") is None


def test_the_page_of_all_papers_has_every_number_once(pages):
    page = pages[1].read_text()
    assert len(re.findall(r'<td class="n"[^>]* title=', page)) == 470
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= set(re.findall(r' id="([^"]+)"', page)), "every link leads somewhere"


def test_no_page_or_mlflow_run_has_text_that_is_not_redistributable(session):
    manifests = list(session.store.root.glob("objects/*/*/manifest.json"))
    before = {path: path.read_text() for path in manifests}
    try:
        for path, text in before.items():
            closed = json.loads(text.replace('"redistributable": true', '"redistributable": false'))
            path.write_text(json.dumps(with_digest(closed)))
        page = table_text(session.finished())
        session.record.finish(session.plan.pipelines[-1], session.store.find(session.plan.pipelines[-1].scored))
    finally:
        for path, text in before.items():
            path.write_text(text)
    logged = Path(
        session.record.tracker.client().download_artifacts(session.record.training_run(session.plan.pipelines[-1]), "")
    )
    kept = {path.name: path.read_bytes() for path in logged.rglob("*.*")}
    assert {"scores.json", "sentences.arrow"} <= kept.keys() and "predictions.arrow" not in kept
    test = next(p.predicted for p in session.plan.pipelines)
    for row in read_shard(session.store.find(test).file("predictions.arrow")).to_pylist():
        assert " ".join(row["source"]) not in page
        assert " ".join(row["reference"]) not in page
        assert not any(word.encode() in file for word in row["reference"] if len(word) > 5 for file in kept.values())
    assert "Left out" in page


@pytest.mark.parametrize(
    ("paper", "number", "rows", "sets", "shown"),
    [
        pytest.param(
            "across", "translation", ("levels", "segments"), SMALL, "structured attention", marks=pytest.mark.slow
        ),
        pytest.param(
            "across",
            "entailment",
            ("psan", "hypernodes-k2"),
            ("train.steps=10", "train.evaluate_every=5"),
            "Against the baseline",
            marks=pytest.mark.slow,
        ),
        ("000", "2", ("phrase-k2",), SMALL, "accuracy/idiom"),
        pytest.param(
            "001",
            "2",
            ("psan",),
            ("train.steps=10", "train.evaluate_every=5"),
            "Lengths of sentences",
            marks=pytest.mark.slow,
        ),
        (
            "002",
            "2",
            ("atis-model-4",),
            ("train.steps=10", "train.evaluate_every=5", "recipe.corpus.dev=10", "recipe.corpus.test=40"),
            "of new pairs",
        ),
        pytest.param(
            "003",
            "babi",
            ("binary-facts2",),
            ("train.steps=4", "train.evaluate_every=2"),
            "Time of an epoch",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "003",
            "snli",
            ("simple", "structured"),
            ("train.steps=4", "train.evaluate_every=2"),
            "Simple attention = 1",
            marks=pytest.mark.slow,
        ),
        ("004", "1", ("2",), ("train.steps=4", "train.evaluate_every=2"), "las"),
    ],
)
def test_a_table_of_any_problem_has_a_page(tmp_path, paper, number, rows, sets, shown):
    made = prepared(Settings(store=tmp_path / "store"), Request(paper, number, "sample", 1, sets, rows))
    start_mlflow(made.settings)
    executed(made)
    page = write_report(made.finished()).read_text()
    assert shown in page
    judged = paper != "across"  # whose numbers nobody printed
    assert f"1 seed; a {'verdict' if judged else 'comparison'} needs 2" in page
    assert judged == ("Published value" in page) == ("Not comparable" in page)
    for pipeline in made.plan.pipelines:
        name = pipeline.experiment.name
        assert page.count(f'href="#{name}"') >= len(pipeline.experiment.answers), "each number leads to its runs"
        assert f'id="{name}"' in page and pipeline.trained.key in page
        made.record.finish(pipeline, made.store.run(pipeline.scored))
        assert made.record.tracker.client().get_run(made.record.training_run(pipeline)).data.metrics["parameters"] > 0


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_pages_in_a_browser(pages, tmp_path):
    with chromium("chromium", tmp_path) as browser:
        for page in pages:
            browser.open(page)
            requested = {event["request"]["url"] for event in browser.heard("Network.requestWillBeSent")}
            assert {url for url in requested if not url.startswith("data:")} == {page.as_uri()}
            assert not browser.heard("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
            assert browser.ask("[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))")
            assert browser.ask("document.documentElement.lang === 'en' && document.title.length > 0")
            if browser.ask("document.querySelectorAll('summary').length"):
                browser.press("Tab")
                assert browser.ask("document.activeElement !== document.body"), "reached by keyboard"
            assert browser.ask("document.body.scrollWidth <= innerWidth"), "wide tables scroll by themselves"


def test_lineage_leads_from_a_score_to_its_corpus_and_back(session):
    lineage = Lineage(session.store)
    scored = next(p.scored for p in session.plan.pipelines)
    steps = {found.manifest["step"] for _, _, found, _ in lineage.back(lineage.artifacts[scored.key])}
    assert steps == {"score_translations", "translate", "train", "phrases", "tokenise", "vocabulary", "sample_split"}
    corpus = session.store.find(session.plan.table.experiments[0].recipe.data()["raw"])
    (held,) = lineage.holding(sha256_of(corpus.file("00000.arrow")))
    made = [artifact.manifest["step"] for artifact in lineage.forward(held)]
    assert made.count("score_translations") == 4
    assert made.count("compare") == 1
    with pytest.raises(ValueError, match=f"did you mean '{re.escape(ROW)} seed 1'"):
        lineage.find(f"{ROW} sead 1", {})


def test_the_difference_of_two_seeds_is_the_seed(session):
    trained = [session.store.find(p.trained) for p in session.plan.pipelines if p.experiment.name == ROW]
    names = [name for name, _, _ in difference(*map(parts_of, trained))]
    assert [name for name in names if not name.startswith("result.")] == ["settings.seed"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (
            "select count(*), min(n), max(warning) from seeds "
            "where metric = 'bleu' and paper = '000' and table_name = 'table1' and profile = 'sample' and origin = 'store'",
            (2, 2, "2 seeds, which say little of how much seeds differ; take 3"),
        ),
        (
            "select count(distinct seeds.row), count(distinct value) from seeds join settings using (experiment, origin) "
            "where origin = 'store' and name = 'train.learning_rate' and profile = 'sample'",
            (2, 1),
        ),
    ],
)
def test_sql_views(session, question, answer):
    assert query(session.store, session.record.tracker, question)[1] == [answer]


def test_the_view_of_verdicts_is_the_command_and_has_the_key_of_other_views(session):
    def ask(question):
        return query(session.store, session.record.tracker, question)[1]

    lines = verdicts(all_results(session.store, session.record.tracker))
    expected = [(line["paper"], line["table"], line["verdict"], line["reason"]) for line in lines]
    assert ask("select paper, table_, verdict, reason from verdicts order by number") == expected
    assert ask("select count(*) from verdicts natural join published where printed::double = value") == [(470,)]
    ((joined, answered),) = ask(
        "select (select count(*) from verdicts join seeds using (experiment, metric, origin) where abs(ours - mean) < 1e-9), "
        "count(*) from verdicts where metric is not null"
    )
    assert joined == answered > 100


def test_runs_are_joined_each_with_its_own_metrics_and_predictions(session):
    tracker, pipeline = session.record.tracker, session.plan.pipelines[0]
    run = session.record.training_run(pipeline)
    curve = history(session.store.find(pipeline.trained))
    join = "select step, value from runs join metrics using (run_id) where run_id = '{}' and metric = 'dev_loss' order by step"
    assert query(session.store, tracker, join.format(run))[1] == [(row["step"], row["dev_loss"]) for row in curve]
    ask = "select value from metrics where run_id = '{}' and step = 0 and metric = 'bleu'"
    scores = session.store.find(pipeline.scored).meta["scores"]
    assert query(session.store, tracker, ask.format(run))[1] == [(scores["bleu"]["value"],)]
    ask = "select seed, count(*), count(distinct id) from runs r join predictions p using (run_id, seed) where run_id = '{}' group by all"
    assert query(session.store, tracker, ask.format(run))[1] == [(pipeline.seed, 40, 40)]
    ask = "select list_contains(run_ids, '{}') from seeds where experiment = '{}' and metric = 'bleu'"
    assert query(session.store, tracker, ask.format(run, pipeline.experiment.name))[1] == [(True,)]
    with Answers(session.store, tracker) as answers:
        check_keys(answers)


def test_a_model_answers_text_as_it_answered_the_test_set(session, tmp_path):
    model = champion(Lineage(session.store), ROW)
    losses = {
        p.seed: session.store.find(p.trained).meta["dev_loss"]
        for p in session.plan.pipelines
        if p.experiment.name == ROW
    }
    assert losses[model.seed] == min(losses.values())
    predicted = next(p.predicted for p in session.plan.pipelines if p.trained.key == model.weights.key)
    rows = read_shard(session.store.find(predicted).file("predictions.arrow")).to_pylist()
    answers = model.predict([" ".join(row["source"]) for row in rows])
    assert answers == [" ".join(row["hypothesis"]) for row in rows]
    assert model.predict([]) == []
    first = " ".join(rows[0]["source"])
    assert [(a, bool(e)) for a, e in model.answers([first, "box " * 5000, first])] == [
        (answers[0], False), ("", True), (answers[0], False)]  # fmt: skip
    with pytest.raises(ValueError, match="at most 200 words of 10 characters are answered; divide the text"):
        model.attend("box " * 300)

    exported = model.export(tmp_path / "model")
    command = [*CLI, "predict", str(exported), "-"]
    done = subprocess.run(command, input=" ".join(rows[0]["source"]) + "\n", capture_output=True, text=True, cwd=tmp_path,
                          env=os.environ | {"PYTHONPATH": str(PROJECT), "PHRASEMODELS_STORE": "/proc/none"})  # fmt: skip
    assert done.stdout == answers[0] + "\n", done.stderr
    said = json.loads((exported / "vocabulary" / MANIFEST).read_text())
    (exported / "vocabulary" / MANIFEST).write_text(json.dumps(with_digest(said | {"meta": {}})))
    with pytest.raises(ValueError, match=r"vocabulary: its manifest lacks 'source'; make the model again"):
        load(exported).predict(["x"])
    (exported / "model" / "model.safetensors").write_bytes(b"other")
    with pytest.raises(ValueError, match="not an exported model, or damaged"):
        load(exported)


def test_an_untrained_experiment_is_named_with_its_command(store):
    with pytest.raises(
        ValueError, match=rf"^{DEFINED} is not trained here \(store .*\): phrasemodels train {DEFINED} --local$"
    ):
        find(store, DEFINED, {})


def test_a_misspelt_experiment_and_a_folder_without_a_model_are_named(store, tmp_path):
    with pytest.raises(
        ValueError, match="no experiment '000/table1/sample/phrase-k22': did you mean '000/table1/sample/"
    ):
        find(store, "000/table1/sample/phrase-k22", {})
    with pytest.raises(ValueError, match=rf"^{tmp_path} is no model: name a folder that `phrasemodels export` wrote"):
        find(store, str(tmp_path), {})


def test_a_configuration_is_restored_only_if_its_parts_are_the_same(session):
    model = champion(Lineage(session.store), ROW)
    saved = model.weights.manifest["parts"]["settings"]["model"]
    other = replace(model.experiment.model, encoder=replace(model.experiment.model.encoder, d=32))
    assert from_template(other, saved, "it") == model.experiment.model
    with pytest.raises(ValueError, match=r"it\.encoder\.sigma: the model was made with os:system"):
        from_template(other, {**saved, "encoder": {**saved["encoder"], "sigma": "os:system"}}, "it")
    with pytest.raises(ValueError, match="it: the model was made with os:System"):
        from_template(other, {**saved, "type": "os:System"}, "it")


def test_recorded_attention_weights_are_those_of_the_forward_pass():
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2)
    x, valid = torch.randn(1, 5, 8), torch.tensor([True, True, True, True, False])[None, None, None]
    with attention_probe(attention) as found:
        out = attention(x, x, valid)
    assert torch.equal(out, attention(x, x, valid))
    values = attention.split(attention.value(x))
    assert torch.allclose(attention.output((found[""] @ values).transpose(1, 2).flatten(2)), out, atol=1e-6)
    assert found[""][..., -1].abs().max() == 0


def test_attention_of_a_model_is_over_words_and_phrases(session):
    rows = champion(Lineage(session.store), ROW).attend("the woman took the box .")
    encoder, decoder = ([row for row in rows if (row.get("written") is None) == encodes] for encodes in (True, False))
    for row in encoder:
        assert row["shape"][2] == 8 + 7, "six words between <s> and </s>, and their pairs"
    assert {row["shape"][2] for row in decoder} == {8}, "words alone leave the encoder"
    assert all(np.allclose(np.array(row["weights"]).reshape(row["shape"]).sum(2), 1, atol=1e-4) for row in rows)
    assert (len(encoder), len(decoder)) == (4, 2) and len(attention_figures(rows)) == len(rows)
