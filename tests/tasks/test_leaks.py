"""Leakage of test records."""

from phrasemodels.data.corpora.readers import Leak
from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.run.plan import planned
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.prepare.corpora import SampleCorpus, leaks


def test_leaks_are_counted(store: Store) -> None:
    few = SampleCorpus(train=30, dev=5, test=5)
    rows = {"train": few.split("train"), "test": few.split("train")}
    assert store.run(Step(leaks, "leaks all", None, rows)).meta["leak"] == {"shared": 30, "rows": 30}
    assert store.run(Step(leaks, "leaks none", None, rows | {"test": few.split("test")})).meta["leak"]["shared"] == 0


def test_every_experiment_has_its_leakage(tmp_path) -> None:
    plan, store = planned(Request("000", "1", "sample", 1), Settings(store=tmp_path / "store"))
    found = {e.name: str(Leak(**store.run(e.leak).meta["leak"])) for e in plan.table.experiments}
    assert {e.leak.key for e in plan.table.experiments} <= {step.key for step in plan.steps}
    assert set(found.values()) == {"0 of 600 records (0%) stand verbatim in train"}
