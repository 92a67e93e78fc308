"""Leakage of test records, and the levels of a treebank by SQL."""

import numpy as np
import pytest

from phrasemodels.data.corpora.readers import Leak
from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.results.sql import TABLE_1, query
from phrasemodels.flows.run.plan import planned
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.prepare.constituents import Divide, divide
from phrasemodels.tasks.prepare.corpora import SampleCorpus, leaks
from phrasemodels.tasks.prepare.sharded import shards


def test_the_query_of_table_1_counts_phrases_and_words(store: Store) -> None:
    """Paper 001's Table 1 is one query: phrases a sentence, words a phrase."""
    corpus = SampleCorpus(train=60, dev=5, test=5, records=Treebank())
    made = store.run(Step(divide, "divide sample", Divide(), {"rows": corpus.split("train")}))
    columns, rows = query(store, None, TABLE_1)
    assert columns == ["label", "level", "phrases", "words", "published_phrases", "published_words", "key"]
    assert {row[-1] for row in rows} == {made.key}
    trees = [parse(t) for t in read_shard(shards(store.run(corpus.split("train")))[0].path)["tree"].to_pylist()]
    words = sum(len(tree.tokens) for tree in trees)
    levels = read_shard(shards(made)[0].path)["levels"].to_pylist()
    for (label, level, phrases, per_phrase, *published, _), place in zip(rows, range(3), strict=True):
        counts = [row[-1][place] + 1 for row in levels]
        assert (label, level, published) == ("divide sample", place + 1, [None, None])
        assert phrases == pytest.approx(np.mean(counts), abs=0.006)
        assert per_phrase == pytest.approx(words / sum(counts), abs=0.006)


def test_the_query_of_table_1_finds_the_published_numbers(store: Store) -> None:
    corpus = SampleCorpus(train=5, dev=5, test=5, records=Treebank())
    for split, label in (("train", "divide senteval SST2.test by x"), ("dev", "divide senteval SICK.test by x")):
        store.run(Step(divide, label, Divide(), {"rows": corpus.split(split)}))
    store.run(Step(divide, "divide SST2s", Divide(), {"rows": corpus.split("test")}))
    beside = {(row[0], row[1]): row[4:6] for row in query(store, None, TABLE_1)[1]}
    assert beside["divide senteval SST2.test by x", 1] == (1.95, 5.53)
    assert beside["divide senteval SICK.test by x", 3] == (4.92, 1.97)
    assert beside["divide SST2s", 1] == (None, None) and len(beside) == 9


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
