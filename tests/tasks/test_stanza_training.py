"""Training by Stanza's own programs, their files, and agreement with a treebank."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from cluster import children, until
from conftest import PARSERS, PROJECT

from phrasemodels.data.formats.shards import TREES, build, read_shard
from phrasemodels.data.formats.trees import parse as read_tree
from phrasemodels.data.samples.records import Treebank
from phrasemodels.data.store.store import Step, Store
from phrasemodels.tasks.metrics.parseval import treebank_scores
from phrasemodels.tasks.parsers.parse import ParseColumn, parse
from phrasemodels.tasks.parsers.stanza import Stanza, conllu, running_text, spaced
from phrasemodels.tasks.parsers.stanza_constituency import Evaluator
from phrasemodels.tasks.parsers.stanza_training import LIMITED, TrainParser, tagged_by, train_parser
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import shards

MODELS = PARSERS / "stanza"


def treebank(**columns: list) -> object:
    return build(TREES, "here", columns, len(columns["tokens"]))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a program that was started stays")
def test_a_program_is_killed_with_its_parent(tmp_path: Path) -> None:
    start = "from pathlib import Path; from phrasemodels.tasks.parsers.stanza_training import _program; "
    start += f"_program('http.server', ['0'], 99, Path({str(tmp_path)!r}))"
    ours = subprocess.Popen([sys.executable, "-c", start], cwd=PROJECT)
    until(lambda: (pids := children(ours.pid)) and "http.server" in Path(f"/proc/{pids[0]}/cmdline").read_text())
    (theirs,) = children(ours.pid)
    ours.kill()
    ours.wait()
    until(lambda: not Path(f"/proc/{theirs}").exists() or "Z" in Path(f"/proc/{theirs}/stat").read_text())


def test_running_text_has_the_spaces_of_prose() -> None:
    tokens = ["Do", "n't", "go", "(", "now", ")", ",", "it", "'s", "$", "3", "."]
    assert (
        "".join(t + " " * s for t, s in zip(tokens, spaced(tokens), strict=True)).strip() == "Don't go (now), it's $3."
    )


def test_files_have_the_sentences_with_heads() -> None:
    table = treebank(
        tokens=[["A", "dog", "."], ["no", "heads"]], tags=[["DT", "NN", "."], ["DT", "NNS"]],
        heads=[[2, 0, 2], []], relations=[["det", "root", "punct"], []], tree=["(ROOT (X (DT A)))", ""],
    )  # fmt: skip
    lines = conllu(table).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["1", "2", "3", ""]
    assert lines[1].split("\t") == ["2", "dog", "_", "_", "NN", "_", "0", "root", "_", "SpaceAfter=No"]
    assert running_text(table) == "A dog.\n"


def test_agreement_counts_the_annotations_of_the_treebank() -> None:
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
    unlabelled = gold.set_column(
        gold.column_names.index("relations"), "relations", pa.array([[], []], pa.list_(pa.string()))
    )
    assert (
        treebank_scores(unlabelled, gold).keys() == {"xpos", "uas", "f1"}
        and treebank_scores(unlabelled, gold)["uas"] == 100
    )
    with pytest.raises(ValueError, match="row 0: other tokens"):
        treebank_scores(gold, treebank(tokens=[["a", "x"], ["c"]]))


def test_the_evaluator_gives_f1_of_brackets() -> None:
    gold = "(ROOT (S (NP (DT a) (NN b)) (VP (VBZ c))))"
    other = "(ROOT (S (DT a) (NN b) (VP (VBZ c))))"
    with Evaluator(kbest=None) as evaluator:
        response = evaluator.process([SimpleNamespace(gold=gold, predictions=[(p, 0.0)]) for p in (gold, other)])
    assert response.f1 == pytest.approx(2 * 5 / (6 + 5)) and response.treeF1 == pytest.approx([1.0, 0.8])
    assert not response.HasField("kbestF1")


@pytest.mark.skipif(not MODELS.is_dir(), reason="no mirror of parsers' models")
def test_parsers_are_trained_on_tags_of_the_tagger() -> None:
    own = Treebank().tables(0, {"test": 12})["test"]
    found = tagged_by(own, MODELS)
    tags = Stanza(processors=("pos",)).analyse(own, "tokens", {"models": MODELS})["tags"].to_pylist()
    assert found["tags"].to_pylist() == tags != own["tags"].to_pylist()
    assert found.schema.equals(own.schema) and found["heads"].equals(own["heads"])
    for tree, gold, words, row in zip(
        found["tree"].to_pylist(), own["tree"].to_pylist(), own["tokens"].to_pylist(), tags, strict=True
    ):
        ours, theirs = read_tree(tree), read_tree(gold)
        assert (list(ours.tokens), list(ours.tags), ours.spans) == (words, row, theirs.spans)


@pytest.mark.parametrize("shell", ["sh", "bash"])  # of the two only dash ends when it cannot set a limit
def test_a_program_is_not_run_without_its_limit(shell: str) -> None:
    def run(seconds: str) -> str:
        return subprocess.run([shell, "-c", LIMITED, seconds, "echo", "ran"], capture_output=True, text=True).stdout

    assert (run("60"), run("1e300")) == ("ran\n", "")


@pytest.mark.slow
@pytest.mark.timeout(3600)  # minutes are those of a processor, and there may be others who want it
def test_trained_models_parse_better_than_chance(store: Store) -> None:
    """Two minutes a model on the generated treebank: far better than chance, in Stanza's own pipeline."""
    corpus = SampleCorpus(train=1000, dev=60, test=60, records=Treebank())
    splits = {split: corpus.split(split) for split in ("train", "dev", "test")}
    made = store.run(Step(train_parser, "t", TrainParser(2.0, every=10, scored=60), splits))
    assert (
        made.meta["agreement"]["xpos"] > 80 and made.meta["agreement"]["uas"] > 50 and made.meta["agreement"]["f1"] > 50
    )
    assert json.loads(made.file("resources.json").read_text())["en"]["packages"]["default"]["pos"] == "own"
    parsed = store.run(Step(parse, "p", ParseColumn(Stanza()), {"rows": splits["test"], "models": made}))
    for row in read_shard(shards(parsed)[0].path).to_pylist():
        assert list(read_tree(row["tree"]).tokens) == row["tokens"]
    text = build(TREES, "here", {"tokens": [["x"]]}, 1).append_column("text", [["The dog sleeps. "]])
    assert Stanza(tokenise=True).analyse(text, "text", {"models": made.path})["tokens"].to_pylist()[0][-1] == "."
