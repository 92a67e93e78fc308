"""Results of `train --local --data` as kept results: equal to those of the store, and none that was changed on the way."""

import json
import shutil

import pytest
from running import run_cli

from phrasemodels.data.store.artifacts import with_digest
from phrasemodels.data.store.store import key_of
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.experiments.catalogue import experiment as find
from phrasemodels.flows.results.keep import keep
from phrasemodels.flows.results.records import open_store
from phrasemodels.flows.run.local import prepare_folder, train_experiment, train_prepared
from phrasemodels.flows.run.plan import Plan
from phrasemodels.flows.run.trained import keep_trained
from phrasemodels.infra.settings import Settings

SMALL = (
    "recipe.corpus.train=40", "recipe.corpus.dev=7", "recipe.corpus.test=9", "train.steps=2", "train.evaluate_every=2",
    "model.encoder.d=16", "model.encoder.d_ff=16",
)  # fmt: skip
ROWS = "transformer", "phrase-k2"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the trainings of two rows and two seeds, and the plan of the same table in a store."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHRASEMODELS_STORE", str(folder / "store"))
        plan = Plan(Request("000", "1", "sample", 2, SMALL, ROWS).resolve())
        for experiment in plan.table.experiments:
            prepared = prepare_folder(experiment, folder / experiment.row)
            for seed in (0, 1):
                train_prepared(experiment, seed, prepared, folder / "out", SMALL)
        yield folder, plan


def rows_of(file):
    """Return the rows of a kept result, without what no two trainings have in common."""
    rows = json.loads(file.read_text())["rows"]
    for row in rows:
        assert [run["seed"] for run in row["runs"]] == row["seeds"] and all(run["commit"] for run in row["runs"])
        del row["runs"]
        row["training"] = {k: v for k, v in row["training"].items() if k not in ("train_seconds", "peak_memory_mib")}
    return rows


def test_they_equal_what_is_kept_of_the_store(made, tmp_path):
    folder, plan = made
    for experiment in plan.table.experiments:
        for seed in (0, 1):
            train_experiment(experiment, seed, True)
    store = open_store(Settings())
    own = keep(store, plan.table, plan.pipelines, plan.comparison, tmp_path / "own", "")
    found = keep_trained(folder / "out", tmp_path / "found", "")
    assert rows_of(found) == rows_of(own)
    assert json.loads(found.read_text())["title"] == json.loads(own.read_text())["title"]
    shutil.copytree(folder / "out", tmp_path / "one")
    for file in (tmp_path / "one").glob("objects/score*/*/manifest.json"):
        if json.loads(file.read_text())["about"]["seed"]:
            shutil.rmtree(file.parent)
    joined = keep_trained(tmp_path / "one", tmp_path / "joined", "a")
    assert [row["seeds"] for row in rows_of(joined)] == [[0], [0]]
    for _ in range(2):
        keep_trained(folder / "out", tmp_path / "joined", "b")
    assert rows_of(joined) == rows_of(own)
    joined, found = (json.loads(file.read_text()) for file in (joined, found))
    assert joined["note"] == "a; b"
    assert [row["training"] for row in joined["rows"]] == [row["training"] for row in found["rows"]]


def changed(path, change):
    """Change a manifest, with its digest and its key; move the artifact to the place of its key."""
    manifest = json.loads(path.read_text())
    change(manifest)
    manifest["key"] = key_of(manifest)
    path.write_text(json.dumps(with_digest(manifest)))
    path.parent.rename(path.parent.with_name(manifest["key"]))


CHANGES = {
    "a score": (
        "score*",
        lambda m: m["meta"]["scores"]["bleu"].update(value=34.6),
        r"bleu is 34\.6, and .* by its pred",
    ),
    "an override": ("score*", lambda m: m["about"]["overrides"].append("train.learning_rate=1.0"), "are not those"),
    "the name": ("score*", lambda m: m["about"].update(experiment="000/table1/sample/linear-k2"), "are not those"),
    "the seed": ("score*", lambda m: m["about"].update(seed=7), "its settings are not those"),
    "an input": ("score*", lambda m: m["parts"]["inputs"].update(predictions="0"), "it was made from, .* is missing"),
    "inputs": ("score*", lambda m: m["parts"]["inputs"].clear(), "its settings are not those"),
    "the code": ("score*", lambda m: m["parts"]["source"].clear(), "other code of a step trained or scored it"),
    "a type": ("score*", lambda m: m["about"].update(seed=[]), "no result of"),
    "no overrides": ("score*", lambda m: m["about"].pop("overrides"), "no result of"),
    "a number": ("train", lambda m: m["meta"].update(train_seconds="long"), "no result of"),
    "a huge number": ("train", lambda m: m["meta"].update(steps=10**400), "no result of"),
    "no number": ("train", lambda m: m["meta"].update(train_seconds=float("nan")), "it was changed"),
    "a digest": ("translate", lambda m: m["files"].clear(), "a file is missing or damaged"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_result_that_was_changed_is_refused(made, tmp_path, what):
    step, change, message = CHANGES[what]
    shutil.copytree(made[0] / "out", tmp_path / "out")
    changed(next((tmp_path / "out" / "objects").glob(f"{step}/*/manifest.json")), change)
    with pytest.raises(ValueError, match=message):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    assert not (tmp_path / "kept").exists()


def test_damaged_predictions_and_empty_folders_are_refused(made, tmp_path, monkeypatch):
    shutil.copytree(made[0] / "out", tmp_path / "out")
    file = next((tmp_path / "out" / "objects").glob("translate/*/*.arrow"))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match="is missing or damaged; copy the folder again"):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    for file in (tmp_path / "out").glob("objects/*/*/manifest.json"):
        file.write_text("{" * 100_000)
    with pytest.raises(ValueError, match="is missing or damaged; copy the folder again"):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    monkeypatch.setattr("phrasemodels.flows.results.keep.commit", lambda: "c")
    run = run_cli("keep", "mine", "--trained", str(tmp_path / "nowhere"))
    assert isinstance(run.exception, ValueError)
    assert "no result of `phrasemodels train --local --data` is there" in str(run.exception)


def test_a_number_that_changed_on_the_way_and_a_lost_step_are_refused(made, tmp_path):
    shutil.copytree(made[0] / "out", tmp_path / "out")
    file = next((tmp_path / "out" / "objects").glob("train/*/manifest.json"))
    text = file.read_text()
    file.write_text(text.replace('"steps": 2', '"steps": 3'))
    with pytest.raises(ValueError, match=r"train/\w+: a file is missing or damaged; copy the folder again"):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    shutil.rmtree(file.parent)
    with pytest.raises(ValueError, match=r"made from, train/\w+, is missing; copy the folder again"):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    assert not (tmp_path / "kept").exists()


def test_of_a_training_that_is_there_twice_the_newest_counts(made, tmp_path):
    shutil.copytree(made[0] / "out", tmp_path / "out")
    file = next((tmp_path / "out" / "objects").glob("score*/*/manifest.json"))
    shutil.copytree(file.parent, file.parent.with_name("older"))

    def older(manifest):
        manifest["parts"]["source"].clear()
        manifest["finished"] = "2024-01-01T00:00:00+00:00"

    changed(file.parent.with_name("older") / file.name, older)
    rows = rows_of(keep_trained(tmp_path / "out", tmp_path / "kept", ""))
    assert [row["seeds"] for row in rows] == [[0, 1], [0, 1]]


FEW = *SMALL[:3], "train.steps=2", "train.evaluate_every=2"


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("002/table2/sample/atis-transformer", ["logic", "exact", "dev/logic", "dev/exact", "parameters", "speed"]),
        ("001/table2/sample/hconvnet", ["accuracy"]),
    ],
)
def test_the_weights_are_not_needed_and_scores_that_were_not_made_are_left_out(tmp_path, monkeypatch, name, metrics):
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    few = find(name, FEW)
    train_prepared(few, 0, prepare_folder(few, tmp_path / "prepared"), tmp_path / "out", FEW)
    next((tmp_path / "out" / "objects").glob("train/*/model.safetensors")).unlink()
    rows = rows_of(keep_trained(tmp_path / "out", tmp_path / "kept", ""))
    assert {row["metric"] for row in rows} <= {*metrics} <= rows[0]["values"].keys()
