"""`store forget`: a row is what it is made of, and its names of then and today are labels."""

import pytest

from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.results import records
from phrasemodels.infra.tracking import Tracker


def made(job, settings):
    write_durably(job.out / "text", str(settings))
    return {"rows": [{"experiment": name} for name in settings]} if isinstance(settings, list) else {}


def compare(job, settings):
    return made(job, settings)


@pytest.fixture
def trained(tmp_path):
    """A store with data, the trainings of two rows, their scores, and a comparison, under the names of then."""
    store = Store(tmp_path / "store")
    data = Step(made, "data", 0)
    keys = {"data": data.key}
    scores = {}
    for row in ("mine", "base"):
        about = {"experiment": f"s/table1/sample/{row}", "seed": 0}
        model = Step(made, f"train {row}", row, {"rows": data}, about)
        scores[row] = Step(made, f"score {row}", f"{row} scored", {"model": model}, about)
        keys |= {row: model.key, f"score {row}": scores[row].key}
    names = [f"s/table1/sample/{row}" for row in scores]
    table = Step(compare, "table", names, scores, root=True)
    store.run(table, Executor())
    return store, Tracker(f"sqlite:///{tmp_path}/mlflow.db"), keys | {"table": table.key}


def left(store):
    return {artifact.key for artifact in store.artifacts()}


def forget(trained, monkeypatch, name, today, live, dry=False):
    store, tracker, keys = trained
    monkeypatch.setattr(records, "_keys_today", lambda *_: tuple({keys[key] for key in some} for some in (today, live)))
    return records.remove_row(store, tracker, f"s/table1/sample/{name}", Sources(), dry)


MINE, BASE = ("data", "mine", "score mine"), ("data", "base", "score base")


def test_a_row_goes_with_its_comparison_and_the_other_row_stays(trained, monkeypatch):
    store, _, keys = trained
    forget(trained, monkeypatch, "mine", MINE, BASE, dry=True)
    assert left(store) == set(keys.values())
    forget(trained, monkeypatch, "mine", MINE, BASE)
    assert left(store) == {keys[key] for key in BASE}


def test_a_new_row_under_an_old_name_takes_nothing_of_the_renamed_one(trained, monkeypatch):
    store, _, keys = trained
    with pytest.raises(ValueError, match="other rows of today share"):
        forget(trained, monkeypatch, "mine", (), MINE + BASE)
    assert left(store) == set(keys.values())


def test_a_renamed_row_goes_by_its_name_of_today(trained, monkeypatch):
    store, _, keys = trained
    forget(trained, monkeypatch, "phrase-means", MINE, BASE)
    assert left(store) == {keys[key] for key in BASE}


def test_a_deleted_row_goes_by_its_label(trained, monkeypatch):
    store, _, keys = trained
    forget(trained, monkeypatch, "mine", (), BASE)
    assert left(store) == {keys[key] for key in BASE}


def test_keys_of_today_are_those_of_the_steps_by_row():
    name = "000/table1/sample/phrase-k2"
    changed, others = records._keys_today(f"{name}+train.steps=2", {0, 1}, Sources())
    steps = [experiment(name, ["train.steps=2"]).steps(seed).stages for seed in (0, 1)]
    assert {step.key for some in steps for step in some.values()} <= changed
    plain = experiment(name).steps(1).trained.key
    assert steps[1]["model"].key not in others and plain in others and plain not in changed
