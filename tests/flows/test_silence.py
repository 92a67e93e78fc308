"""Nothing goes wrong in silence: names say what was changed, views of SQL can be joined, one seed has no p-value."""

import json
import re
from dataclasses import replace

import pyarrow as pa
import pytest
from running import executed, prepared, run_cli, small_corpus

from phrasemodels.data.download import manifest
from phrasemodels.data.store.artifacts import MANIFEST
from phrasemodels.flows.cli import models
from phrasemodels.flows.cli.results import _is_named
from phrasemodels.flows.cli.terminal import print_table
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.flows.experiments.published import divided, file_name, plain_reason
from phrasemodels.flows.report import templates
from phrasemodels.flows.report.page import write_report
from phrasemodels.flows.report.table import conclusion
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.models import champion, find
from phrasemodels.flows.results.results import stored_results
from phrasemodels.flows.results.sql import VIEWS, query
from phrasemodels.inference.inputs import moses_lower
from phrasemodels.infra.services import start_mlflow
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.metrics import compare
from phrasemodels.verdicts.significance import Statistic

ROW = "000/table1/sample/transformer"
SMALL = (
    "train.steps=4",
    "train.evaluate_every=2",
    *small_corpus(30, 5, 8),
)


def test_a_name_says_each_change_once_and_in_one_way():
    made = experiment(ROW, ("train.steps=7", "train.learning_rate=2e-3", "train.steps=3", "train.threads=2"))
    assert made.name == f"{ROW}+train.learning_rate=0.002+train.steps=3"
    assert experiment(made.name) == replace(made, train=replace(made.train, threads=1)), (
        "the name leads to the settings"
    )
    assert experiment(made.name, (f"train.steps={experiment(ROW).train.steps}",)).train.steps == 600
    assert divided(made.name) == (ROW, made.changed)
    assert experiment(ROW, (f"train.steps={experiment(ROW).train.steps}",)).name == ROW, "nothing is changed"
    long = [file_name(f"{ROW}+{'x' * 200}{end}") for end in "ab"]
    assert long[0] != long[1] and len(long[0]) == 120


@pytest.mark.parametrize("text", ["recipe.corpus.name=mine", "train.steps=2"])
def test_a_table_with_changes_has_a_report_of_its_own(text):
    own, changed = (Request("002", "2", "laptop", set=sets).resolve() for sets in ((), (text,)))
    assert own.slug == "002-table2-laptop" and changed.slug == f"002-table2-laptop+{text}"
    assert changed.title == f"{own.title}, {text}"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """A smoke test of a row, in this process, as a user makes it after the real run."""
    settings = Settings(store=tmp_path_factory.mktemp("names") / "store")
    start_mlflow(settings)
    return executed(prepared(settings, Request("000", "1", "sample", 1, SMALL, ("transformer",))))


def test_a_smoke_test_is_found_by_its_own_name_alone(smoke):
    (pipeline,) = smoke.plan.pipelines
    name = pipeline.experiment.name
    assert champion(Lineage(smoke.store), name).weights.key == pipeline.trained.key
    with pytest.raises(ValueError, match=r"transformer is not trained here .* with other settings: .*\+train\.steps=4"):
        find(smoke.store, ROW, {})
    assert [result.row["experiment"] for result in stored_results(smoke.store, {})] == [name]
    assert write_report(smoke.finished()).name == f"{smoke.plan.table.slug}.html"


def test_a_model_that_took_the_rows_name_before_is_not_the_row(smoke):
    """Earlier versions named a smoke test, or a training on another corpus, as the row."""
    (pipeline,) = smoke.plan.pipelines
    path = smoke.store.find(pipeline.trained).path / MANIFEST
    before = path.read_text()
    manifest = json.loads(before)
    try:
        path.write_text(json.dumps(manifest | {"about": {**manifest["about"], "experiment": ROW}}))
        assert champion(Lineage(smoke.store), ROW) is None
    finally:
        path.write_text(before)


def asked(smoke, question):
    return query(smoke.store, smoke.record.tracker, question)[1]


def test_views_are_listed_with_their_columns(smoke):
    assert {name for (name,) in asked(smoke, "show tables")} == VIEWS.keys()
    described = {name: rest for name, *rest in asked(smoke, "describe published")}
    assert described["value"] == ["double", "", "the printed number"]
    assert described["number"][:2] == ["bigint", "key"] and all(meaning for *_, meaning in described.values())


@pytest.mark.parametrize(
    ("one", "other", "rows"),
    [
        ("runs", "predictions", 8),
        ("runs", "seeds", None),
        ("runs", "compared", 1),
        ("predictions", "seeds", None),
        ("verdicts", "seeds", None),
    ],
)
def test_views_have_one_key(smoke, one, other, rows):
    smoke.record.training_run(smoke.plan.pipelines[0])
    ((found,),) = asked(smoke, f"select count(*) from {one} natural join {other}")
    assert found == rows if rows is not None else found > 0


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            "select half_widht from verdicts",
            '"half_widht" not found in FROM clause! Candidate bindings: "half_width"',
        ),
        (
            "select v.experimant from runs v",
            'does not have a column named "experimant", in: select v.experimant from runs v; `show tables` lists the views',
        ),
        ("select 1 from verdict", 'Table with name verdict does not exist! Did you mean "verdicts"?'),
        ("select qqqqqqq from runs", '"qqqqqqq" not found in FROM clause!'),
        ("selec 1", "syntax error"),
    ],
)
def test_a_wrong_name_in_a_question_leads_to_the_nearest(smoke, question, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        asked(smoke, question)
    assert len(str(error.value)) < 250 and "\n" not in str(error.value)


def row_of(seeds):
    """Two systems on the same ten sentences; one answers more of them right."""
    tables = [[pa.table({"id": range(10), "group": [""] * 10, "right": [[int(i + s < n)] for i in range(10)]})
               for s in range(seeds)] for n in (3, 9)]  # fmt: skip
    statistic = Statistic("right", lambda sums: sums[..., 0] * 10.0)
    rows = [
        compare.TestedRow(name, "accuracy", "t", statistic, own)
        for name, own in zip(("x/1/laptop/a", "x/1/laptop/b"), tables, strict=True)
    ]
    found = compare.differences(rows)[1]
    group = {"mean": 90.0, "deviation": 1.0, "half_width": 1.0 if seeds > 1 else None, "n": seeds}
    return {"system": "b", "variant": "", "metric": "accuracy", "experiment": "x/1/laptop/b", "published": 88.0, "against": found,
            "intervals": {"accuracy": group}, "seeds": list(range(seeds)), "verdict": "lower", "reason": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("seeds", "has_p", "warned"),
    [(1, False, "1 seed"), (2, True, "2 seeds"), (3, True, "")],
    ids=["one", "two", "three"],
)
def test_one_seed_has_no_p_and_two_have_a_warning_beside_it(seeds, has_p, warned, capsys):
    row = row_of(seeds)
    found = row["against"]["differences"]["accuracy"]
    assert [found[name] is not None for name in ("p", "p_holm", "p_randomisation")] == [has_p] * 3
    assert found["warning"].startswith(warned) and bool(found["warning"]) == bool(warned)
    print_table({"title": "t", "rows": [row], "leaks": {}, "stages": {}, "seconds": 1.0, "report": "r"})
    shown = next(line for line in capsys.readouterr().out.splitlines() if "90.00" in line)
    assert (" p ." in shown or " p <" in shown) == has_p and (f"({warned}" in shown) == bool(warned)
    macros = templates().from_string(
        "{% import 'macros.jinja' as m %}{{ m.tests(rows, {'accuracy': 10}, {'accuracy': said}) }}"
    )
    page = macros.render(rows=[row], said=conclusion([row], "accuracy"))
    assert bool(re.search(r"\d\*", page)) == (has_p and found["p_holm"] < 0.05)
    assert ('class="few"' in page) == bool(warned) and warned in page and ("One seed: no test" in page) == (not has_p)


@pytest.mark.parametrize(("p", "randomised", "said"), [
    (0.20, 0.001, "ignores how other seeds would differ"), (0.01, 0.30, "resamples no seeds"), (0.01, 0.02, ""), (None, None, "")
])  # fmt: skip
def test_two_p_values_that_disagree_have_a_word_beside_them(p, randomised, said):
    row = row_of(3)
    row["against"]["differences"]["accuracy"] |= {"p": p, "p_randomisation": randomised}
    page = templates().from_string(
        "{% import 'macros.jinja' as m %}{{ m.tests(rows, {'accuracy': 10}, {'accuracy': ''}) }}"
    )
    shown = page.render(rows=[row])
    assert said in shown and ("disagrees" in shown) == bool(said)


@pytest.mark.parametrize(
    ("number", "found", "whole"),
    [
        ("000/table1/phrasetransformer/k=2", ["PhraseTransformer", "Linear PhraseTransformer"], ["PhraseTransformer"]),
        ("000/table1/phrase/k=2", ["PhraseTransformer", "Linear PhraseTransformer"], []),
        ("000/table1/linearphrasetransformer", ["Linear PhraseTransformer"], ["Linear PhraseTransformer"]),
        ("000/table2/phrasetransformer", [], []),
    ],
)
def test_whole_names_of_a_number_go_before_parts(number, found, whole):
    names = {"table": "Table 1", "variant": "k=2", "dataset": "Multi30k", "split": "test", "metric": "BLEU"}
    rows = [{"system": system, **names} for system in ("PhraseTransformer", "Linear PhraseTransformer")]
    assert [row["system"] for row in rows if _is_named(row, number)] == found
    assert [row["system"] for row in rows if _is_named(row, number) and _is_named(row, number, whole=True)] == whole


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (
            "a stand-in, not the paper's data; not the paper's data, size and model: 13 settings (phrasemodels compare-settings ROW)",
            "another corpus than the paper's; 13 settings differ, of data, size and model (phrasemodels compare-settings ROW)",
        ),
        (
            "so; but other than published: 8 settings (phrasemodels compare-settings X); the paper leaves open, and ours is: "
            "3 settings (phrasemodels compare-settings X)",
            "so; but 8 settings are not as published, and the paper leaves 3 open (phrasemodels compare-settings X)",
        ),
        (
            "so; but the paper leaves open, and ours is: train.seed is 1",
            "so; but chosen by us, as the paper leaves it open: train.seed is 1",
        ),
        ("not the paper's size; trees by Stanza", "settings differ, of size; trees by Stanza"),
        ("not the paper's size: model.d is 50, not 20", "not the paper's size: model.d is 50, not 20"),
        ("", ""),
    ],
)
def test_a_reason_is_shown_as_a_sentence(reason, shown):
    assert plain_reason(reason) == shown


MINE = """name = "mine"
title = "Pairs"
schema = "bitext"
licence = "x"
licence_text = "x"
redistributable = false
citation = "none"
homepage = "https://example.org"
{languages}

[[files]]
name = "a"
mirror = "mine/a"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
bytes = 1

[[files]]
name = "b"
mirror = "mine/b"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
bytes = 1

""" + "".join(f"[splits.{split}]\nfiles = {{{{ {{roles}} }}}}\n" for split in ("train", "dev", "test"))


def planned_with(folder, monkeypatch, languages, roles='en = "a", fr = "b"'):
    """Return what becomes of a sentence of an own corpus, in Table 1 of paper 000, and in which languages it is tokenised."""
    (folder / "mine.toml").write_text(
        MINE.format(languages=f"languages = {{ {languages} }}" * bool(languages), roles=roles)
    )
    monkeypatch.setattr(manifest, "MANIFESTS", folder)
    recipe = experiment("000/table1/laptop/transformer", ("recipe.corpus.name=mine",)).recipe
    step = recipe.data()["tokens"].settings
    return (
        step.tokeniser,
        step.source_language,
        step.target_language,
        recipe.stages(None, None, 0)["scores"].settings.language,
    )


def test_the_manifest_alone_says_the_languages(tmp_path, monkeypatch):
    made = planned_with(tmp_path, monkeypatch, 'source = "en", target = "fr"')
    assert made == (moses_lower, "en", "fr", "fr")
    pair = 'source = "ja", target = "en", tokeniser = "characters"'
    tokeniser, *_ = planned_with(tmp_path, monkeypatch, pair, 'ja = "a", en = "b"')
    assert [tokeniser("猫 is", language) for language in ("ja", "en")] == [["猫", "i", "s"], ["猫", "is"]]


@pytest.mark.parametrize(
    ("languages", "roles", "message"),
    [
        ("", 'en = "a", fr = "b"', "mine: its manifest names no languages; write `languages = "),
        ('source = "en", target = "de"', 'en = "a", fr = "b"', "en and fr, but the languages are de and en"),
        ('source = "ja", target = "en"', 'ja = "a", en = "b"', """'ja' has no spaces between words, which Moses needs; write"""),
        ('source = "en", target = "eo"', 'en = "a", eo = "b"', "Moses has no rules for 'eo'"),
        ('source = "en", target = "en"', 'en = "a", fr = "b"', "source and target are both 'en'"),
    ],
)  # fmt: skip
def test_languages_are_checked_before_a_run(tmp_path, monkeypatch, languages, roles, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        planned_with(tmp_path, monkeypatch, languages, roles)


def test_an_offline_fetch_names_every_missing_file_with_its_place(tmp_path):
    settings = {
        "PHRASEMODELS_STORE": str(tmp_path / "store"),
        "PHRASEMODELS_OFFLINE": "true",
        "PHRASEMODELS_MIRROR": "",
    }
    done = run_cli("corpora", "fetch", "geoquery", env={**settings, "PHRASEMODELS_MIRROR": str(tmp_path)})
    said = done.stderr + str(done.exception)
    assert all(f"{tmp_path}/{file.mirror}" in said for file in manifest.load("geoquery").files)
    done = run_cli("parsers", "fetch", "gum", env=settings)
    said = str(done.exception)
    assert said.count("<the folder that PHRASEMODELS_PARSERS names>/stanza/") == len(manifest.load_parser("gum").files)
    assert "MIRROR" not in said


def test_unknown_words_are_named_on_stderr(smoke, monkeypatch, capsys):
    model = champion(Lineage(smoke.store), smoke.plan.pipelines[0].experiment.name)
    monkeypatch.setattr(models, "find_model", lambda name: model)
    done = run_cli("predict", "it", "-", input="the zebra sleeps , zebra quokka .\n")
    assert "read as one unknown word: zebra, quokka" in done.stderr.replace("sleeps, ", "")
    assert len(done.stdout.splitlines()) == 1
