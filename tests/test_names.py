"""What is changed in a row is part of the name of all that is made of it; the row's own name means the row as defined."""

import json
from dataclasses import replace

import pytest
from running import executed, prepared

from phrasemodels.data.store.artifacts import MANIFEST
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.flows.experiments.experiment import divided, file_name
from phrasemodels.flows.report.table import write_report
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.models import champion, find
from phrasemodels.flows.results.results import stored_results
from phrasemodels.infra.registry import ALIAS, DEV_LOSS, SETTING, _better
from phrasemodels.infra.services import start_mlflow
from phrasemodels.infra.settings import Settings

ROW = "000/table1/sample/transformer"
SMALL = ("train.steps=4", "train.evaluate_every=2", "recipe.corpus.train=30", "recipe.corpus.dev=5", "recipe.corpus.test=8")


def test_a_name_says_each_change_once_and_in_one_way():
    made = experiment(ROW, ("train.steps=7", "train.learning_rate=2e-3", "train.steps=3", "train.threads=2"))
    assert made.name == f"{ROW}+train.learning_rate=0.002+train.steps=3"
    assert experiment(made.name) == replace(made, train=replace(made.train, threads=1)), "the name leads to the settings"
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


def test_a_registered_model_is_replaced_by_none_with_changes(smoke):
    (pipeline,) = smoke.plan.pipelines
    smoke.record.training_run(pipeline)
    smoke.record._register()
    client = smoke.record.tracker.client()
    (model,) = client.search_registered_models()
    assert model.name == file_name(pipeline.experiment.name) != file_name(ROW)
    (version,) = client.search_model_versions(f"name = '{model.name}'")
    assert client.get_model_version_by_alias(model.name, "champion").version == version.version
    assert version.tags["commit"] and version.tags["experiment"] == pipeline.experiment.name


def test_a_champion_gives_way_only_to_a_better_seed_of_its_setting(smoke):
    client = smoke.record.tracker.client()
    client.create_registered_model("model")
    client.create_model_version("model", "file:///nowhere", tags={SETTING: "a", DEV_LOSS: "2.0"})
    client.set_registered_model_alias("model", ALIAS, "1")
    stays = {loss: _better(client, "model", {SETTING: "a", DEV_LOSS: loss}) for loss in ("1.0", "2.0", "3.0")}
    assert stays == {"1.0": False, "2.0": False, "3.0": True}
    assert not _better(client, "model", {SETTING: "b", DEV_LOSS: "3.0"}), "the row is defined anew"
