"""Results of `train --local --data` as kept results: equal to those of the store, and none that was changed on the way."""

import json
import shutil

import pytest
from running import run_cli

from phrasemodels.data.store.artifacts import with_digest
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
    for file in (tmp_path / "one").glob("*-s1.json"):
        file.unlink()
    joined = keep_trained(tmp_path / "one", tmp_path / "joined", "a")
    assert [row["seeds"] for row in rows_of(joined)] == [[0], [0]]
    for _ in range(2):
        keep_trained(folder / "out", tmp_path / "joined", "b")
    assert rows_of(joined) == rows_of(own)
    joined, found = (json.loads(file.read_text()) for file in (joined, found))
    assert joined["note"] == "a; b"
    assert [row["training"] for row in joined["rows"]] == [row["training"] for row in found["rows"]]


def changed(path, change):
    result = json.loads(path.read_text())
    change(result)
    path.write_text(json.dumps(with_digest(result)))


CHANGES = {
    "a score": (lambda r: r["scores"]["bleu"].update(value=34.6), r"bleu is 34\.6, and .* by its predictions"),
    "an override": (
        lambda r: r["provenance"]["overrides"].append("train.learning_rate=1.0"),
        "its settings are not those",
    ),
    "the name": (lambda r: r.update(experiment="000/table1/sample/linear-k2"), "its settings are not those"),
    "the seed": (lambda r: r.update(seed=7), "its settings are not those"),
    "the data": (lambda r: r["provenance"]["data"].update(test="0"), "its settings are not those"),
    "the code": (lambda r: r["provenance"].update(code="0"), "another version of this package trained it"),
    "no stage": (lambda r: r["provenance"].update(stages={}), "its settings are not those"),
    "a path": (lambda r: r["provenance"].update(key="../../x"), "its settings are not those"),
    "a type": (lambda r: r.update(provenance=[]), "no result of"),
    "a number": (lambda r: r.update(train_seconds="long"), "no result of"),
    "a huge number": (lambda r: r.update(steps=10**400, train_seconds=10**400), "no result of"),
    "no number": (lambda r: r.update(train_seconds=float("nan")), "it was changed"),
    "a digest": (
        lambda r: r["provenance"]["stages"]["predictions"]["files"].clear(),
        "a file of .* is missing or damaged",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_result_that_was_changed_is_refused(made, tmp_path, what):
    change, message = CHANGES[what]
    shutil.copytree(made[0] / "out", tmp_path / "out")
    changed(next((tmp_path / "out").glob("*phrase-k2*-s1.json")), change)
    with pytest.raises(ValueError, match=message):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    assert not (tmp_path / "kept").exists()


def test_damaged_predictions_and_empty_folders_are_refused(made, tmp_path, monkeypatch):
    shutil.copytree(made[0] / "out", tmp_path / "out")
    file = next((tmp_path / "out" / "predictions").rglob("*.arrow"))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match="is missing or damaged; copy the folder again"):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    for file in (tmp_path / "out").glob("*.json"):
        file.write_text("{" * 100_000)
    with pytest.raises(ValueError, match="no result of `phrasemodels train --local --data` of this version"):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    monkeypatch.setattr("phrasemodels.flows.results.keep.commit", lambda: "c")
    run = run_cli("keep", "mine", "--trained", str(tmp_path / "nowhere"))
    assert isinstance(run.exception, ValueError)
    assert "no result of `phrasemodels train --local --data` is there" in str(run.exception)


def test_a_number_that_changed_on_the_way_and_a_seed_that_is_there_twice_are_refused(made, tmp_path):
    shutil.copytree(made[0] / "out", tmp_path / "out")
    file = next((tmp_path / "out").glob("*phrase-k2*-s1.json"))
    shutil.copy(file, file.with_name(f"copy-{file.name}"))
    with pytest.raises(ValueError, match="another file has the same seed of 000/table1/sample/phrase-k2"):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    file.write_text(file.read_text().replace('"steps": 2', '"steps": 3'))
    with pytest.raises(ValueError, match=r"-s1\.json: it was changed; copy the folder again"):
        keep_trained(tmp_path / "out", tmp_path / "kept", "")
    assert not (tmp_path / "kept").exists()


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
    shutil.rmtree(tmp_path / "out" / "model")
    rows = rows_of(keep_trained(tmp_path / "out", tmp_path / "kept", ""))
    assert {row["metric"] for row in rows} <= {*metrics} <= rows[0]["values"].keys()
