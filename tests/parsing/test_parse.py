"""The parse step: gold trees, the real Stanza pipeline on real models, and sentences that cannot be parsed."""

import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from conftest import PARSERS
from serving import serving

from phrasemodels.data.corpora.samples import Entailment, Polarity, Treebank
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.download.manifest import load_parser as load_parser
from phrasemodels.data.formats.shards import BITEXT, PAIRS, TREES, build
from phrasemodels.data.formats.trees import parse as read_tree
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.tasks.parsers.parse import (
    AddTrees,
    Analysis,
    GoldTrees,
    ParseColumn,
    add_trees,
    flat,
    in_batches,
    models_of,
    parse,
    replace_all,
    sentences,
    trees,
    with_trees,
)
from phrasemodels.tasks.parsers.stanza import DownloadParser, Stanza, downloaded, fetched, load_pipeline
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards
from phrasemodels.tasks.prepare.tokenise import moses_lower

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


def rows() -> Step:
    return Step(write, "rows", tuple(SENTENCES))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return Store(tmp_path_factory.mktemp("models")).open().run(fetched("gum"), PLACES)


def test_gold_trees_are_those_of_the_corpus(store: Store) -> None:
    corpus = SampleCorpus(train=30, dev=5, test=5, records=Treebank())
    made = store.run(Step(parse, "p", ParseColumn(GoldTrees()), {"rows": corpus.split("train")}))
    assert read_shards(made).equals(read_shards(store.run(corpus.split("train"))))
    assert made.meta["unusable"] == {}
    for records, column in ((Entailment(), "hypothesis"), (Polarity(), "text")):
        rows_ = SampleCorpus(train=30, dev=5, test=5, records=records).split("train")
        table = read_shards(store.run(Step(parse, "p", ParseColumn(GoldTrees(), column), {"rows": rows_})))
        texts = read_shards(store.run(rows_))[column].to_pylist()
        assert [" ".join(tokens) for tokens in table["tokens"].to_pylist()] == texts
        assert all(list(read_tree(row["tree"]).tokens) == row["tokens"] for row in table.to_pylist())
    with pytest.raises(ValueError, match="no trees in this corpus"):
        store.run(Step(parse, "p", ParseColumn(GoldTrees(), "source"), {"rows": rows()}))
    with pytest.raises(ValueError, match="no column 'txt' to parse"):
        store.run(Step(parse, "p", ParseColumn(GoldTrees(), "txt"), {"rows": rows()}))
    with pytest.raises(ValueError, match="give the parse step an input `models`"):
        store.run(Step(parse, "p", ParseColumn(Stanza(), "source"), {"rows": rows()}))


@needs_models
def test_stanza_parses_and_counts_unusable_rows_by_reason(store: Store, models: Artifact) -> None:
    step = Step(parse, "p", ParseColumn(Stanza(longest=30), "source"), {"rows": rows(), "models": models})
    before = torch.get_num_threads()
    made = store.run(step)
    assert torch.get_num_threads() == before
    table = read_shards(made)
    assert table.schema.equals(TREES)
    assert made.meta["unusable"] == {"more than 30 words": 1, "no words": 1}
    assert made.meta["stand_in"] and made.meta["licences"] == ["CC0-1.0", "LicenseRef-GUM"]
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


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(models: Artifact, tmp_path: Path) -> Iterator[str]:
    """Stanza's server as it would be: a list of resources of this version, and models below the language."""
    from stanza.resources.common import DEFAULT_RESOURCES_VERSION

    folder = tmp_path / "served"
    (folder / "models").mkdir(parents=True)
    resources = json.loads((models.path / "resources.json").read_text())
    (folder / f"resources_{DEFAULT_RESOURCES_VERSION}.json").write_text(json.dumps(resources))
    (folder / "models" / "en").symlink_to(models.path / "en")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))) as url:
        yield url


@needs_models
def test_stanza_downloads_from_a_server(server: str, store: Store, models: Artifact) -> None:
    where = (server, server + "/models/{lang}/{filename}")
    step = downloaded(DownloadParser(processors=("tokenize", "pos"), server=where))
    with pytest.raises(OSError, match="offline: "):
        store.run(step, PLACES)
    made = store.run(step, Executor(sources=Sources()))
    assert sorted(made.manifest["files"]) == [
        "en/pos/gum.pt", "en/pretrain/own.pt", "en/tokenize/gum.pt", "resources.json",
    ]  # fmt: skip
    table = build(BITEXT, "here", {"source": ["The cat sleeps ."], "target": [""]}, 1)
    found = Stanza(processors=("pos",)).analyse(table, "source", {"models": made.path})
    assert found["tags"].to_pylist()[0][:2] == ["DT", "NN"] and found["tree"].to_pylist() == [""]
    gone = downloaded(DownloadParser(server=("http://127.0.0.1:9", where[1])))
    with pytest.raises(OSError, match="is there a network"):
        store.run(gone, Executor(sources=Sources()))


def test_a_corpus_without_rows_is_parsed(store: Store) -> None:
    nothing = Step(write, "none", ())
    made = store.run(Step(parse, "p", ParseColumn(GoldTrees(), "source"), {"rows": nothing}))
    assert made.meta["rows"] == 0 and made.meta["shards"] == []


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
    made = with_trees(pairs, "premise", AddTrees(parser, replace_all, moses_lower), {})
    assert parser.asked == [["it", "'s", "raining", "."], ["a", "dog"], []]
    found = [read_tree(tree).tokens if tree else () for tree in made["premise_tree"].to_pylist()]
    assert found == [("it", "'s", "raining", "."), ("a", "dog"), ("it", "'s", "raining", "."), ()]
    assert made["premise"].equals(pairs["premise"]) and made["hypothesis_tree"].equals(pairs["hypothesis_tree"])


def stage_table_of_pairs(*premises: str) -> pa.Table:
    """PAIRS without trees."""
    return build(PAIRS, "here", {"premise": list(premises), "hypothesis": ["so"] * len(premises)}, len(premises))


@needs_models
def test_rows_without_a_tree_get_one(store: Store, models: Artifact) -> None:
    pairs = SampleCorpus(train=8, dev=1, test=1, records=Entailment()).split("train")
    same = store.run(Step(add_trees, "p", AddTrees(GoldTrees()), {"rows": pairs}))
    assert read_shards(same).equals(read_shards(store.run(pairs))), "nothing was missing"
    table = read_shards(store.run(pairs)).combine_chunks()
    empty = table.set_column(
        table.schema.get_field_index("hypothesis_tree"), table.schema.field("hypothesis_tree"), pa.array([""] * 8)
    )
    parser = Stanza(processors=("pos", "constituency"), longest=6)
    made = with_trees(empty, "hypothesis", AddTrees(parser), {"models": models.path})
    assert made["premise_tree"].equals(table["premise_tree"])
    for row in made.to_pylist():
        assert " ".join(read_tree(row["hypothesis_tree"]).tokens) == row["hypothesis"]
        long = len(row["hypothesis"].split()) > 6
        assert row["reason"] == ("hypothesis: more than 6 words" if long else "")
    with pytest.raises(ValueError, match="no sentence with a tree among the columns"):
        store.run(Step(add_trees, "p", AddTrees(GoldTrees()), {"rows": rows()}))
