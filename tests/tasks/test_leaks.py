"""Leakage of test records, and the levels of a treebank."""

import pytest

from phrasemodels.data.corpora.readers import Leak
from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.cli.parse import _by_level
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.run.plan import planned
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.prepare.constituents import Divide, divide
from phrasemodels.tasks.prepare.corpora import SampleCorpus, leaks
from phrasemodels.tasks.prepare.sharded import shards


@pytest.mark.parametrize(
    ("label", "published"),
    [
        ("divide senteval SST2.test by x", (1, 1.95, 5.53)),
        ("divide senteval SICK.test by x", (3, 4.92, 1.97)),
        ("divide SST2s", (1, None, None)),
    ],
)
def test_levels_stand_beside_those_of_the_paper(label: str, published: tuple[int, float, float], store: Store) -> None:
    rows = SampleCorpus(train=60, dev=5, test=5, records=Treebank()).split("train")
    made = store.run(Step(divide, label, Divide(), {"rows": rows}))
    levels = read_shard(shards(made)[0].path)["levels"].to_pylist()
    found = _by_level(made)
    for place, row in enumerate(found):
        counts = [one[-1][place] + 1 for one in levels]
        assert row["phrases"] == pytest.approx(sum(counts) / len(counts), abs=0.006)
        assert row["words"] == pytest.approx(sum(map(len, levels)) / sum(counts), abs=0.006)
    beside = found[published[0] - 1]
    assert (beside["level"], beside["published_phrases"], beside["published_words"]) == published


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
