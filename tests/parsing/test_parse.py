"""The parse step: the real Stanza pipeline on real models, and sentences that cannot be parsed."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from conftest import PARSERS

from phrasemodels.data.corpora.readers import reasons
from phrasemodels.data.corpora.samples import Entailment
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.download.manifest import load_parser as load_parser
from phrasemodels.data.formats.shards import BITEXT, PAIRS, TREES, build
from phrasemodels.data.formats.trees import parse as read_tree
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.inference.inputs import moses_lower
from phrasemodels.tasks.parsers.parse import (
    AddTrees,
    Analysis,
    add_trees,
    flat,
    in_batches,
    models_of,
    sentences,
    trees,
    with_trees,
)
from phrasemodels.tasks.parsers.stanza import Stanza, fetched, load_pipeline
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards

PLACES = Executor(sources=Sources((PARSERS,), offline=True))
needs_models = pytest.mark.needs_mirror("parsers")
SENTENCES = [
    "The cat sleeps .",
    "",
    "Dogs",
    "A man ( in a red hat ) gives his dog a bone near the old house .",
    "word " * 40,
    "Who knows ?",
]


def write(job, settings) -> dict[str, object]:
    """A step that writes sentences as BITEXT."""
    table = build(BITEXT, "here", {"source": list(settings), "target": list(settings)}, len(settings))
    return {"licences": ["CC0-1.0"], "redistributable": True, "stand_in": False, **write_shards(job.out, table)}


def write_pairs(job, settings) -> dict[str, object]:
    """A step that writes premises as PAIRS without trees."""
    terms = {"licences": ["CC0-1.0"], "redistributable": True, "stand_in": False}
    return {**terms, **write_shards(job.out, stage_table_of_pairs(*settings))}


def rows() -> Step:
    return Step(write, "rows", tuple(SENTENCES))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return Store(tmp_path_factory.mktemp("models")).open().run(fetched("gum"), PLACES)


@dataclass(frozen=True)
class Flat:
    """A parser whose trees are flat."""

    def analyse(self, table: pa.Table, column: str, models: object) -> pa.Table:
        return trees(table, [flat(words, "") for words in sentences(table, column)])


@needs_models
def test_stanza_parses_and_says_why_a_row_has_no_parse(store: Store, models: Artifact) -> None:
    read = read_shards(store.run(rows()))
    with pytest.raises(ValueError, match="give the step an input `models`"):
        Stanza().analyse(read, "source", {})
    before = torch.get_num_threads()
    table = Stanza(longest=30).analyse(read, "source", {"models": models.path})
    assert torch.get_num_threads() == before
    assert table.schema.equals(TREES)
    assert reasons(table) == {"more than 30 words": 1, "no words": 1}
    for text, row in zip(SENTENCES, table.to_pylist(), strict=True):
        assert row["tokens"] == text.split()
        if row["tokens"]:
            assert list(read_tree(row["tree"]).tokens) == row["tokens"], "brackets in words are kept"
        if not row["reason"]:
            assert row["heads"].count(0) == 1 and len(row["tags"]) == len(row["universal"]) == len(row["tokens"])
    assert table["tags"].to_pylist()[0][:2] == ["DT", "NN"]
    assert table["tree"].to_pylist()[4].startswith("(ROOT (X word) (X word)")


@needs_models
def test_trees_do_not_depend_on_the_batch(models: Artifact) -> None:
    texts = SampleCorpus(train=30, dev=1, test=1).records.tables({"test": 30})["test"]["source"].to_pylist()
    table = build(BITEXT, "here", {"source": texts, "target": texts}, len(texts))
    whole, single = (Stanza(batch=size).analyse(table, "source", {"models": models.path}) for size in (100, 1))
    assert whole.equals(single)


def test_a_sentence_that_fails_does_not_stop_the_others() -> None:
    tried = []

    def fragile(some: list[list[str]]) -> list[Analysis]:
        tried.append(len(some))
        if any("bad" in words for words in some):
            raise RuntimeError("no")
        return [Analysis(words, tree="ok") for words in some]

    tokens = [["a"], ["bad"], ["b"], [], ["c"], ["w"] * 9]
    found = in_batches(fragile, tokens, 3, 5)
    assert [a.reason for a in found] == ["", "the parser failed: RuntimeError", "", "no words", "", "more than 5 words"]
    assert tried == [3, 1, 1, 1, 1]

    def without_memory(some: list[list[str]]) -> list[Analysis]:
        raise torch.OutOfMemoryError("1 GiB")

    with pytest.raises(RuntimeError, match="a sentence of 1 words cannot be parsed on this device: 1 GiB"):
        in_batches(without_memory, tokens, 3, 5)
    assert flat(["(", "a"], "x").tree == "(ROOT (X -LRB-) (X a))"


@needs_models
def test_the_key_of_models_depends_on_their_content_alone(models: Artifact, tmp_path: Path) -> None:
    other = Store(tmp_path).open().run(fetched("gum"), PLACES)
    assert models_of(other).key == models_of(models).key, "not where they lie"
    damaged = dict(other.manifest)
    damaged["files"] = other.manifest["files"] | {"resources.json": {"sha256": "0", "bytes": 1}}
    assert models_of(Artifact(other.path, damaged)).key != models_of(models).key


def test_missing_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No server has these files"):
        Store(tmp_path / "s").open().run(fetched("gum"), Executor(sources=Sources((), offline=True)))
    with pytest.raises(OSError, match="has no models of 'en'"):
        load_pipeline("en", ("pos",), 100, str(tmp_path))
    with pytest.raises(ValueError, match="did you mean 'gum'"):
        load_parser("gun")


def test_a_corpus_without_rows_is_parsed(store: Store) -> None:
    nothing = Step(write_pairs, "none", ())
    made = store.run(Step(add_trees, "p", AddTrees(Flat()), {"rows": nothing}))
    assert made.meta["rows"] == 0 and made.meta["shards"] == [] and made.meta["unusable"] == {}


def test_columns_of_tokens_are_not_split() -> None:
    table = pa.table({"tokens": [["a b", "c"]], "text": ["a b c"]})
    assert sentences(table, "tokens") == [["a b", "c"]] and sentences(table, "text") == [["a", "b", "c"]]


class Recorder:
    """A parser whose trees are flat, and that records the sentences."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def analyse(self, table: pa.Table, column: str, models: object) -> pa.Table:
        self.asked += sentences(table, column)
        return trees(table, [flat(words, "") for words in sentences(table, column)])


def test_equal_sentences_are_parsed_once_with_the_encoders_tokeniser() -> None:
    pairs = stage_table_of_pairs("It's raining.", "A dog", "It's raining.", "")
    parser = Recorder()
    made = with_trees(pairs, "premise", AddTrees(parser, moses_lower), {})
    assert parser.asked == [["it", "'s", "raining", "."], ["a", "dog"], []]
    found = [read_tree(tree).tokens if tree else () for tree in made["premise_tree"].to_pylist()]
    assert found == [("it", "'s", "raining", "."), ("a", "dog"), ("it", "'s", "raining", "."), ()]
    assert made["premise"].equals(pairs["premise"]) and made["hypothesis_tree"].equals(pairs["hypothesis_tree"])


def stage_table_of_pairs(*premises: str) -> pa.Table:
    """PAIRS without trees."""
    return build(PAIRS, "here", {"premise": list(premises), "hypothesis": ["so"] * len(premises)}, len(premises))


@needs_models
def test_rows_get_trees_in_place_of_the_corpuss(store: Store, models: Artifact) -> None:
    pairs = SampleCorpus(train=8, dev=1, test=1, records=Entailment()).split("train")
    table = read_shards(store.run(pairs)).combine_chunks()
    parser = Stanza(processors=("pos", "constituency"), longest=6)
    made = with_trees(table, "hypothesis", AddTrees(parser), {"models": models.path})
    assert made["premise_tree"].equals(table["premise_tree"])
    for row in made.to_pylist():
        assert " ".join(read_tree(row["hypothesis_tree"]).tokens) == row["hypothesis"]
        long = len(row["hypothesis"].split()) > 6
        assert row["reason"] == ("hypothesis: more than 6 words" if long else "")
    with pytest.raises(ValueError, match="no sentence with a tree among the columns"):
        store.run(Step(add_trees, "p", AddTrees(Flat()), {"rows": rows()}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.slice(1), "premise: 2 sentences, but the parser gave 1 trees"),
        (lambda table: table.drop_columns("heads"), "the parser's trees of premise: columns .* do not match"),
    ],
)
def test_a_parser_that_gives_other_rows_is_refused(change, said: str) -> None:
    class Other(Flat):
        def analyse(self, table: pa.Table, column: str, models: object) -> pa.Table:
            return change(super().analyse(table, column, models))

    with pytest.raises(ValueError, match=said):
        with_trees(stage_table_of_pairs("a cat", "a dog"), "premise", AddTrees(Other()), {})
