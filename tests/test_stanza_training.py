"""Stanza's own training programs on a treebank of ours, and how parses are scored."""

import json
from types import SimpleNamespace

import pytest

from data.grammar.records import Treebank
from data.schemas import TREES, build
from data.shards import read_shard
from data.store import Step, Store
from data.trees import parse as read_tree
from tasks.corpora import SampleCorpus
from tasks.parse import Parse, parse
from tasks.stages import shards, stage_table
from tasks.stanza_constituency import Evaluator
from tasks.stanza_files import conllu, running_text, spaced
from tasks.stanza_parser import Stanza
from tasks.stanza_training import TrainParser, tagged_by, train_parser
from tasks.treebank_scores import treebank_scores


def treebank(**columns: list) -> object:
    return build(TREES, "here", columns, len(columns["tokens"]))


def test_running_text_has_the_spaces_of_a_writer() -> None:
    tokens = ["Do", "n't", "go", "(", "now", ")", ",", "it", "'s", "$", "3", "."]
    assert (
        "".join(t + " " * s for t, s in zip(tokens, spaced(tokens), strict=True)).strip() == "Don't go (now), it's $3."
    )


def test_files_hold_what_the_treebank_has() -> None:
    table = treebank(
        tokens=[["A", "dog", "."], ["no", "heads"]], tags=[["DT", "NN", "."], ["DT", "NNS"]],
        heads=[[2, 0, 2], []], relations=[["det", "root", "punct"], []], tree=["(ROOT (X (DT A)))", ""],
    )  # fmt: skip
    lines = conllu(table).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["1", "2", "3", ""]
    assert lines[1].split("\t") == ["2", "dog", "_", "_", "NN", "_", "0", "root", "_", "SpaceAfter=No"]
    assert running_text(table) == "A dog.\n"


def test_scores_count_what_the_treebank_has() -> None:
    gold = treebank(
        tokens=[["a", "b"], ["c"]], tags=[["DT", "NN"], []], heads=[[2, 0], []], relations=[["det", "root"], []],
        tree=["(ROOT (NP (DT a) (NN b)))", ""],
    )  # fmt: skip
    found = treebank(
        tokens=[["a", "b"], ["c"]], tags=[["DT", "JJ"], ["X"]], heads=[[2, 0], [0]],
        relations=[["nmod", "root:x"], ["root"]], tree=["(ROOT (X (DT a) (JJ b)))", "(ROOT (X c))"],
    )  # fmt: skip
    assert treebank_scores(gold, found) == {"xpos": 50, "uas": 100, "las": 50, "f1": 0}
    assert treebank_scores(gold, gold)["f1"] == 100
    nothing = treebank(tokens=[["a", "b"], ["c"]])
    assert treebank_scores(gold, nothing) == {"xpos": 0, "uas": 0, "las": 0, "f1": 0}
    with pytest.raises(ValueError, match="row 0: other tokens"):
        treebank_scores(gold, treebank(tokens=[["a", "x"], ["c"]]))


def test_the_evaluator_of_the_constituency_trainer() -> None:
    gold = "(ROOT (S (NP (DT a) (NN b)) (VP (VBZ c))))"
    other = "(ROOT (S (DT a) (NN b) (VP (VBZ c))))"
    with Evaluator(kbest=None) as evaluator:
        response = evaluator.process([SimpleNamespace(gold=gold, predictions=[(p, 0.0)]) for p in (gold, other)])
    assert response.f1 == pytest.approx(2 * 5 / (6 + 5)) and response.treeF1 == pytest.approx([1.0, 0.8])
    assert not response.HasField("kbestF1")


@pytest.mark.slow
def test_models_are_trained_and_parse(store: Store) -> None:
    """A minute or so a model on the generated treebank: far better than chance, in Stanza's own pipeline."""
    corpus = SampleCorpus(train=1000, dev=60, test=60, records=Treebank())
    splits = {split: corpus.split(split) for split in ("train", "dev", "test")}
    made = store.run(Step(train_parser, "t", TrainParser(1.2, every=10, scored=60), splits))
    assert (
        made.meta["agreement"]["xpos"] > 80 and made.meta["agreement"]["uas"] > 50 and made.meta["agreement"]["f1"] > 50
    )
    assert json.loads(made.file("resources.json").read_text())["en"]["packages"]["default"]["pos"] == "own"
    own = stage_table(store.run(splits["test"]))
    tagged = tagged_by(own, made.path)
    for row in tagged.to_pylist():
        assert list(read_tree(row["tree"]).tags) == row["tags"] and list(read_tree(row["tree"]).tokens) == row["tokens"]
    parsed = store.run(Step(parse, "p", Parse(Stanza()), {"rows": splits["test"], "models": made}))
    for row in read_shard(shards(parsed)[0].path).to_pylist():
        assert list(read_tree(row["tree"]).tokens) == row["tokens"]
    text = build(TREES, "here", {"tokens": [["x"]]}, 1).append_column("text", [["The dog sleeps. "]])
    assert Stanza(tokenise=True).analyse(text, "text", {"models": made.path})["tokens"].to_pylist()[0][-1] == "."
