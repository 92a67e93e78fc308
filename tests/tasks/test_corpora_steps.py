"""Corpora as steps: every record type, of the samples and of manifests; leakage of test records."""

from pathlib import Path

import pytest
from conftest import CORPORA
from running import small_corpus

from phrasemodels.data.corpora.readers import Leak, read
from phrasemodels.data.corpora.samples import (
    Entailment,
    LogicalForms,
    Polarity,
    Records,
    Stories,
    Translations,
    Treebank,
)
from phrasemodels.data.download.manifest import Sources, digests, load, names
from phrasemodels.data.formats.shards import BITEXT, PAIRS, SENTENCES, STORIES, TREES
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.run.plan import planned
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.prepare.corpora import BitextCorpus, Corpus, SampleCorpus, TakeShare, fetched, leaks, take_share
from phrasemodels.tasks.prepare.sharded import read_shards

SAMPLES = {Translations(): BITEXT, LogicalForms(): BITEXT, Entailment(): PAIRS, Polarity(): SENTENCES, Stories(): STORIES,
           Treebank(): TREES}  # fmt: skip


@pytest.mark.parametrize("records", SAMPLES, ids=lambda r: type(r).__name__)
def test_the_samples_have_every_record_type(store: Store, records: Records) -> None:
    corpus = SampleCorpus(train=40, dev=5, test=10, records=records)
    made = {split: store.run(corpus.split(split)) for split in ("train", "dev", "test")}
    assert {split: artifact.meta["rows"] for split, artifact in made.items()} == {"train": 40, "dev": 5, "test": 10}
    assert read_shards(made["train"]).schema.equals(SAMPLES[records])
    assert made["train"].meta["redistributable"] and made["train"].meta["stand_in"]


def test_sample_trees_and_stories_are_consistent() -> None:
    for row in Treebank().tables({"test": 50})["test"].to_pylist():
        assert list(parse(row["tree"]).tokens) == row["tokens"]
        assert list(parse(row["tree"]).tags) == row["tags"]
        assert row["heads"].count(0) == 1 and len(row["heads"]) == len(row["relations"]) == len(row["tokens"])
    for row in Stories().tables({"test": 20})["test"].to_pylist():
        assert len(row["support"]) == 2 and max(row["support"]) < len(row["facts"]) == len(row["lines"])


@pytest.mark.parametrize(
    ("corpus", "split", "rows"),
    [
        (Corpus("geoquery", "holdout"), "dev", 60),
        (Corpus("babi", "qa15"), "test", 1000),
        (Corpus("snli"), "dev", 1000),
        (Corpus("gum", "tagging"), "test", 1464),
        (Corpus("senteval", "TREC"), "test", 500),
        (Corpus("senteval", "SST2"), "train", 67349),
        (BitextCorpus("small_parallel_enja", reverse=True), "test", 500),
    ],
    ids=lambda c: getattr(c, "name", None),
)
def test_a_corpus_is_a_step(store: Store, mirror: Path, corpus: Corpus, split: str, rows: int) -> None:
    artifact = store.run(corpus.split(split), Executor(sources=Sources((mirror,), offline=True)))
    manifest = load(corpus.name)
    part = getattr(corpus, "part", "")
    name = f"{part}.{split}" if part else split
    table = read(manifest, name, store.run(corpus.split(split).inputs["corpus"]).path)
    assert artifact.meta["rows"] == table.num_rows > 0
    assert mirror != CORPORA or table.num_rows == rows
    assert artifact.meta["licences"] == [manifest.terms(name).licence]
    if isinstance(corpus, Corpus):
        assert read_shards(artifact).equals(table)
    else:
        assert read_shards(artifact)["source"].to_pylist() == table["target"].to_pylist()


def test_the_digests_of_user_files_decide_the_key(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wsj must be supplied by the user"):
        Corpus("penn_treebank").split("train")
    keys = set()
    for word in ("a", "b"):
        for section in (0, 22):
            path = tmp_path / word / "penn_treebank" / f"wsj/{section:02d}/wsj_{section:02d}01.mrg"
            path.parent.mkdir(parents=True)
            path.write_text(f"( (S (NN {word}) ))\n")
        known = digests(load("penn_treebank"), Sources((tmp_path / word,)))
        keys.add(Corpus("penn_treebank", supplied=known).split("dev").key)
    assert len(keys) == 2
    path.unlink()  # after the run was planned
    with pytest.raises(OSError, match=r"wsj_2201\.mrg cannot be found any more"):
        store.run(fetched("penn_treebank", known), Executor(sources=Sources((tmp_path / "b",))))


def test_the_order_of_files_is_in_the_key_and_a_share_has_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = load("senteval")
    keys = []
    for turn in (1, -1):
        split = manifest.split("MPQA")
        turned = split.model_copy(update={"files": dict([*split.files.items()][::turn])})
        own = manifest.model_copy(update={"splits": {**manifest.splits, "MPQA": turned}})
        monkeypatch.setattr("phrasemodels.tasks.prepare.corpora.find_corpus", lambda name, own=own: own)
        keys.append(Corpus("senteval").split("MPQA").key)
    assert len(turned.files) > 1 and len({*keys}) == 2
    rows = SampleCorpus(train=5, dev=1, test=1).split("train")
    with pytest.raises(ValueError, match="no row is held out of 5 by 'id'"):
        store.run(Step(take_share, "none", TakeShare({"start": 5}), {"rows": rows}))


def test_the_key_of_a_corpus_depends_on_its_own_reader_alone() -> None:
    for name in names():
        manifest = load(name)
        files = {file.name for file in manifest.files}
        for split, division in manifest.splits.items():
            if set(division.files.values()) <= files:
                source = Corpus(name).split(split).parts["source"]
                readers = {n.split(":")[0] for n in source if n.startswith("phrasemodels.data.corpora.")}
                readers -= {"phrasemodels.data.corpora.readers"}
                assert len(readers) <= 2 and readers, (name, split, readers)


def test_leaks_are_counted(store: Store) -> None:
    few = SampleCorpus(train=30, dev=5, test=5)
    rows = {"train": few.split("train"), "test": few.split("train")}
    assert store.run(Step(leaks, "leaks all", None, rows)).meta["leak"] == {"shared": 30, "rows": 30}
    assert store.run(Step(leaks, "leaks none", None, rows | {"test": few.split("test")})).meta["leak"]["shared"] == 0


def test_every_experiment_has_its_leakage(tmp_path) -> None:
    plan, store = planned(Request("000", "1", "sample", 1, small_corpus(60, 10, 20)), Settings(store=tmp_path / "store"))
    found = {e.name: str(Leak(**store.run(e.leak).meta["leak"])) for e in plan.table.experiments}
    assert {e.leak.key for e in plan.table.experiments} <= {step.key for step in plan.steps}
    assert set(found.values()) == {"0 of 20 records (0%) stand verbatim in train"}
