"""Parsing end to end: a treebank as numbers, trained weights to trees, and text to trees."""

import dataclasses
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plain_004 as plain
import pyarrow as pa
import pytest
import torch
from built import misfits
from running import small_corpus

from phrasemodels.data.corpora.samples import Entailment, Treebank
from phrasemodels.data.formats.shards import SENTENCES, TREES, read_shard, write_shard
from phrasemodels.data.formats.trees import joint
from phrasemodels.data.formats.trees import parse as read_tree
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job, Step, Store
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.results.models import Model, load
from phrasemodels.inference.inputs import penn_treebank
from phrasemodels.models.parser import phrases_alone
from phrasemodels.parsing.ids import Ids, reunited
from phrasemodels.parsing.parser import Parser
from phrasemodels.tasks.metrics.parseval import match_brackets
from phrasemodels.tasks.parsers.parse import models_of
from phrasemodels.tasks.parsers.shipped import ShippedParser, by_shipped_parser, shipped, shipped_card
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards, shards, write_shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.our_parser import ByOurParser, OurParser, WithPhrases, add_phrases
from phrasemodels.tasks.problems.parsing import (
    PARSES,
    ParseScoring,
    _counts,
    score_parses,
)
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.trainer import HISTORY

ROW = "004/table3/sample/3-ff-drop"


def given(job: Job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    terms = {"licences": ["MIT"], "redistributable": True, "stand_in": True}
    return terms | write_shards(job.out, pa.Table.from_pylist(rows, schema=TREES))


def predicted_parses(job: Job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return write_shard(job.out / "predictions.arrow", pa.Table.from_pylist(rows, schema=PARSES))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store")).open()


@pytest.fixture(scope="module")
def small() -> Experiment:
    changes = ("train.steps=100", "train.warmup=10", "train.evaluate_every=50", "train.checkpoint_every=100")
    return experiment(ROW, (*changes, *small_corpus(300, 20, 30)))


@pytest.fixture(scope="module")
def data(store: Store, small: Experiment) -> dict[str, Artifact]:
    return {name: store.run(step) for name, step in small.recipe.data().items()}


@pytest.fixture(scope="module")
def parser(store: Store, small: Experiment, data: dict[str, Artifact]) -> Parser:
    return small.recipe.parser(small.model, store.run(small.steps(0).trained), data["vocabulary"])


def test_batches_hold_the_trees_of_the_corpus(small: Experiment, data: dict[str, Artifact]) -> None:
    examples = small.recipe.problem.examples([shard.path for shard in shards(data["train"])])
    names = {side: read_words(data["vocabulary"], side) for side in ("labels", "relations", "tags", "words")}
    rows = Treebank().tables({"train": 300, "dev": 20, "test": 30})["train"].to_pylist()
    chosen = in_order(examples, 600)[3]
    batch = examples.batch(chosen)
    for place, index in enumerate(chosen.tolist()):
        row, n = rows[index], len(rows[index]["tokens"])
        spans = {(names["labels"][k], i, j + 1) for i, j, k in batch.gold.cells[place].tolist() if i >= 0}
        chains = {(part, i, j) for label, i, j in spans for part in label.split("::")}
        assert chains == {tuple(span) for span in read_tree(row["tree"]).spans if span.label != "ROOT"}
        assert batch.gold.heads[place, 1 : n + 1].tolist() == row["heads"]
        assert [names["relations"][k] for k in batch.gold.relations[place, 1 : n + 1]] == row["relations"]
        assert [names["tags"][k] for k in batch.gold.tags[place, 1 : n + 1]] == row["tags"]
        assert (batch.gold.tags[place, n + 1 :] == -1).all() and (batch.gold.heads[place, 0] == -1)
        words = [names["words"][k] for k in batch.sentences.words[place, : n + 2]]
        assert all(w in ("<unk>", t.lower()) for w, t in zip(words[1:-1], row["tokens"], strict=True))
        assert (words[0], words[-1]) == ("<s>", "</s>")
        forms = batch.sentences.characters[batch.sentences.forms[place, 1 : n + 1]]
        assert [(form > 0).sum().item() for form in forms] == [min(20, len(t)) for t in row["tokens"]]
    assert (batch.sentences.tags == 1).all()  # not read: they are found


def test_long_words_keep_the_first_and_last_letters() -> None:
    ids = Ids({"words": [], "tags": [], "characters": ["<pad>", "<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]})
    first, word, last = ids.sentence(["abcdefghijklmnopqrstuvwxyz"])["characters"]
    assert (first[:2], last[:2]) == ([2, 0], [3, 0])
    assert word == [*range(4, 14), *range(20, 30)]


def test_a_small_training_is_better_than_chance(store: Store, small: Experiment) -> None:
    pipeline = small.steps(0)
    scored = store.run(pipeline.scored)
    scores = {name: score["value"] for name, score in scored.meta["scores"].items()}
    assert scores["f1"] > 30 and scores["uas"] > 30 and scores["tags"] > 60
    assert scores["las"] <= scores["uas"]


def test_all_scores_of_three_sentences_by_hand(store: Store) -> None:
    """A perfect parse; one with a wrong label, head, relation and tag; none at all. The full stop is left out."""
    tree, words, tags = (
        "(ROOT (S (NP (DT the) (NN cat)) (VP (VBZ sits)) (. .)))",
        "the cat sits .".split(),
        "DT NN VBZ .",
    )
    right = {"tree": tree, "heads": [2, 3, 0, 3], "relations": ["det", "nsubj", "root", "punct"], "tags": tags.split()}
    wrong = {"tree": tree.replace("NP", "ADJP").replace("(VP (VBZ sits))", "(VBZ sits)"), "heads": [3, 3, 0, 1],
             "relations": ["det", "obj", "root", "x"], "tags": ["DT", "NN", "NN", "."]}  # fmt: skip
    none = {"tree": "", "heads": [], "relations": [], "tags": ["X"] * 4}
    same = {"tokens": words, "universal": [], "group": "g", "reason": ""}
    gold = pa.Table.from_pylist([{"id": i, **same, **right} for i in range(3)], schema=TREES)
    found = pa.Table.from_pylist(
        [{"id": i, **same, **row} for i, row in enumerate((right, wrong, none))], schema=PARSES
    )
    inputs = {
        "rows": store.run(Step(given, "gold", gold.to_pylist())),
        "predictions": store.run(Step(predicted_parses, "guess", found.to_pylist())),
    }
    made = store.run(Step(score_parses, "scores", ParseScoring(), inputs))
    scores = {name: score["value"] for name, score in made.meta["scores"].items()}
    # brackets: S, NP, VP of two sentences; the second has S and ADJP
    expected = {"precision": 80, "recall": 400 / 6, "f1": 800 / 11, "failed": 100 / 3, "exact": 50, "uas": 500 / 6,
                "las": 400 / 6, "uas_unicode": 500 / 6, "las_unicode": 400 / 6, "tags": 700 / 12}  # fmt: skip
    assert scores == pytest.approx(expected)
    sentences = read_shard(made.file("sentences.arrow")).to_pylist()
    assert [row["brackets"] for row in sentences] == [[3, 3, 3], [1, 2, 3], [0, 0, 0]]


def test_a_treebank_without_tags_is_scored_in_all_else() -> None:
    row = {"tokens": ["a", "b"], "tags": [], "universal": [], "tree": "", "heads": [2, 0], "relations": ["det", "root"]}
    *_, heads, arcs, _, _, tags = _counts(row, row | {"tags": ["DT", "NN"]}, ParseScoring().punctuation)
    assert (heads, arcs, tags) == ([2, 2], [2, 2], [0, 0])


def test_a_parse_does_not_depend_on_its_batch(parser: Parser) -> None:
    sentences = [["the", "red", "house", "sleeps"], ["who", "sees", "an", "unheard-of", "word", "?"], ["yes"]]
    together = list(parser.parse_tokens(sentences))
    assert together == [next(parser.parse_tokens([words])) for words in sentences]
    assert list(parser.parse_tokens([])) == []
    for words, found in zip(sentences, together, strict=True):
        assert found.tokens == words and found.heads.count(0) == 1
        assert list(read_tree(found.brackets).tokens) == words
        assert found.conllu().count("\n") == len(words) + 2
        assert json.loads(found.json())["heads"] == found.heads


def test_a_served_model_answers_with_the_whole_parse(
    store: Store, small: Experiment, data: dict[str, Artifact], parser: Parser
) -> None:
    model = Model(small, 0, store.run(small.steps(0).trained), data["vocabulary"])
    (answer,) = map(json.loads, model.predict(["the red house sleeps ."]))
    (found,) = parser.parse_tokens([["the", "red", "house", "sleeps", "."]])
    whole = json.loads(found.json())
    assert answer == {name: whole[name] for name in answer} and len(answer["heads"]) == 5


def test_an_export_is_whole_and_never_overwrites_anything_else(
    store: Store, small: Experiment, data: dict[str, Artifact], tmp_path: Path
) -> None:
    model = Model(small, 0, store.run(small.steps(0).trained), data["vocabulary"])
    there, full = tmp_path / "there", tmp_path / "full"
    full.mkdir()
    (full / "notes").touch()
    assert dataclasses.replace(model, bpe=data["vocabulary"]).export(there) == there and (there / "bpe").exists()
    model.export(there, force=True)
    written = {path.name for path in there.iterdir() if not path.name.startswith(".")}
    assert written == {"model", "vocabulary", "card.json", "library.json", "README.md"}
    again, within = load(there), {path.name for path in tmp_path.iterdir()}
    for place, said in (
        (there, "itself"),
        (there / "in", "itself"),
        (tmp_path, "itself"),
        (full, "exists: name another place"),
    ):
        with pytest.raises(ValueError, match=said):
            again.export(place)
    assert load(there) == again and {path.name for path in tmp_path.iterdir()} == within


def test_a_trained_parser_is_a_back_end(store: Store, small: Experiment, data: dict[str, Artifact]) -> None:
    trained = small.steps(0).trained
    parser = OurParser(small.recipe.problem, small.model, longest=8)
    folders = {"weights": store.run(trained).path, "vocabulary": data["vocabulary"].path}
    gold = read_shards(store.run(small.recipe.corpus.split("test")))
    made = parser.analyse(gold, "tokens", folders)
    for row, own in zip(made.to_pylist(), gold.to_pylist(), strict=True):
        assert row["tokens"] == own["tokens"] and list(read_tree(row["tree"]).tokens) == own["tokens"]
        assert row["reason"] == ("" if len(own["tokens"]) <= 8 else "more than 8 words")
        assert len(row["heads"]) == (0 if row["reason"] else len(own["tokens"]))


def test_a_trained_parser_gives_phrases_to_treebanks_of_dependencies(store: Store, small: Experiment) -> None:
    corpus, by = small.recipe.corpus, ByOurParser(small.name, small.recipe, small.model, small.train)
    assert WithPhrases(corpus, by).split("test").key == corpus.split("test").key
    gold = read_shards(store.run(corpus.split("train"))).to_pylist()
    bare = [{**row, "tree": ""} for row in gold]
    crossing = {**bare[1], "tokens": list("abcd"), "tags": ["X"] * 4, "universal": []}
    wanted = [
        gold[0],
        *bare[1:],
        {**crossing, "heads": [3, 4, 0, 3], "relations": ["dep"] * 4},  # crossing arcs
        {**crossing, "heads": [0, 0, 1, 1], "relations": ["dep"] * 4},  # two roots
        {**crossing, "heads": [], "relations": []},
        {**crossing, "tokens": ["a"] * 151, "tags": ["X"] * 151, "heads": [0, *[1] * 150], "relations": ["dep"] * 151},
    ]
    wanted = [{**row, "id": k} for k, row in enumerate(wanted)]
    inputs = {"rows": Step(given, "given", wanted), **by.models}
    made = read_shards(store.run(Step(add_phrases, "phrases", by.parser, inputs))).to_pylist()
    assert [{**row, "tree": ""} for row in made] == [{**row, "tree": ""} for row in wanted]
    assert made[0]["tree"] == gold[0]["tree"] and [row["tree"] for row in made[-4:]] == [""] * 4
    for row in made[1:-4]:
        tree = read_tree(row["tree"])
        assert list(tree.tokens) == row["tokens"] and list(tree.tags) == row["tags"]
        assert not misfits(joint(tree, row["heads"]), row["heads"])  # each phrase has one head, that of its arcs
    counts = [
        match_brackets(*(read_tree(row["tree"]) for row in pair)) for pair in zip(gold[1:], made[1:-4], strict=True)
    ]
    assert sum(count.matched for count in counts) > 0.5 * sum(count.gold for count in counts)


def test_the_history_of_a_training_is_not_in_the_key_of_models(store: Store, small: Experiment) -> None:
    trained = store.run(small.steps(0).trained)

    def key(**changed: dict[str, Any]) -> str:
        return models_of(Artifact(trained.path, trained.manifest | {"files": trained.manifest["files"] | changed})).key

    assert key(**{HISTORY: {"sha256": "0"}}) == key() != key(**{"model.safetensors": {"sha256": "0"}})


def test_a_trained_parser_gives_trees_to_pairs(store: Store, small: Experiment) -> None:
    rows = SampleCorpus(train=20, dev=2, test=2, records=Entailment()).split("train")
    given, made = (
        read_shards(store.run(step))
        for step in (rows, ByOurParser(small.name, small.recipe, small.model, small.train)(rows))
    )
    assert made["premise"].equals(given["premise"]) and not made["premise_tree"].equals(given["premise_tree"])
    for row in made.to_pylist():
        assert not row["reason"] and " ".join(read_tree(row["hypothesis_tree"]).tokens) == row["hypothesis"]


def test_phrases_alone_have_no_heads(parser: Parser) -> None:
    alone = Parser(parser.original, parser.entries, phrases_alone)
    (found,) = alone.parse_tokens([["the", "house", "sleeps"]])
    assert found.tree and not found.heads and "\t_\t" in found.conllu()


def test_label_attention_is_that_of_the_equations(parser: Parser) -> None:
    words = ["the", "red", "house", "sleeps"]
    model, sentence = parser.original, parser.ids.batch([words])
    with torch.no_grad():
        x, _ = model.encoder.below(model.embed(sentence), sentence.lengths + 2)
    weights = plain.below(model.state_dict(), "encoder.top.")
    labels, seen = parser.attention(words)
    expected = [plain.label_weights(x[0], weights, model.encoder.top.scale, k, k)[0] for k in range(len(labels))]
    np.testing.assert_allclose(seen, torch.stack(expected), atol=1e-6)
    assert labels[1:] == list(parser.names.labels)[1:]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cat didn't sit.", "The cat did n't sit ."),
        ('"It\'s 3.5%," Mr. Smith said...', '" It \'s 3.5 % , " Mr. Smith said ...'),
        ("We cannot pay $1,000 (U.S.) at 10:30!", "We can not pay $ 1,000 ( U.S. ) at 10:30 !"),
        ("They'd've gone; I'm well-known", "They 'd 've gone ; I 'm well-known"),
        ("Write to a.b@c.org -- see https://x.org/a?b=1.", "Write to a.b@c.org -- see https://x.org/a?b=1 ."),
        (
            "He said: 'Go away.' Rock 'n' roll in the '90s, 'tis the dogs' day",
            "He said : ' Go away . ' Rock 'n' roll in the '90s , 'tis the dogs ' day",
        ),
        ("The co\u00adoperation of caf\u00e9s, cafe\u0301s", "The cooperation of caf\u00e9s , cafe\u0301s"),
        ("", ""),
    ],
)
def test_text_is_tokenised_as_in_treebanks(text: str, tokens: str) -> None:
    assert penn_treebank(text) == tokens.split()


def test_clitics_are_divided_as_for_pretrained_encoders() -> None:
    assert reunited(["do", "n't", "go"]) == ["don", "'t", "go"]
    assert reunited(["n't"]) == ["n't"]


@pytest.mark.slow
def test_the_command_line_parses(cli: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    sizes = [*small_corpus(200, 10, 10), "train.steps=10"]
    trained = cli("train", ROW, "--local", *(part for size in sizes for part in ("--set", size)))
    assert trained.returncode == 0, trained.stderr
    (tmp_path / "text").write_text("The red house sleeps.\n\nwho knows ?\n")
    name, text, by_line = experiment(ROW, sizes).name, str(tmp_path / "text"), ("--input", "lines")
    lines = cli("parse", name, text, *by_line).stdout.splitlines()
    assert [line.count("(ROOT") for line in lines] == [1, 0, 1]
    rows = [
        json.loads(line) for line in cli("parse", name, text, *by_line, "--format", "json").stdout.split("\n") if line
    ]
    assert rows[0]["tokens"] == ["The", "red", "house", "sleeps", "."]
    (tmp_path / "x.conllu").write_text(cli("parse", name, str(tmp_path / "text"), "--format", "conllu").stdout)
    again = cli("parse", name, str(tmp_path / "x.conllu"))
    assert again.stdout.splitlines() == [line for line in lines if line], again.stderr
    assert "no format 'xml'" in cli("parse", name, str(tmp_path / "text"), "--format", "xml").stderr
    for decode, form in (("phrases", "brackets"), ("arcs", "json"), ("apart", "json")):
        asked = cli("parse", name, text, *by_line, "--decode", decode, "--format", form)
        assert len(asked.stdout.splitlines()) == len(lines) and asked.returncode == 0, asked.stderr
    assert (
        "arcs alone have no brackets"
        in cli("parse", name, str(tmp_path / "text"), "--decode", "arcs", "--format", "brackets").stderr
    )
    page = cli("draw", name, "--text", "The red house sleeps.", "--to", str(tmp_path / "labels.html"))
    assert page.returncode == 0 and "<svg" in (tmp_path / "labels.html").read_text(), page.stderr
    assert cli("export", name, str(tmp_path / "parser")).returncode == 0
    assert cli("parse", str(tmp_path / "parser"), text, *by_line).stdout.splitlines() == lines


def test_the_shipped_parser_is_a_back_end_with_the_terms_and_the_name_of_its_card(store: Store) -> None:
    texts = ["The red house sleeps .", "", "A dog barks", " ".join(["very"] * 301), "tab\there is read as spaces"]
    rows = [
        {"id": row, "text": text, "tree": "", "label": "", "group": "", "reason": ""} for row, text in enumerate(texts)
    ]
    asked = Step(given_sentences, "sentences", rows)
    made = ShippedParser().analyse(read_shards(store.run(asked)), "text", {"models": store.run(shipped()).path})
    for row, found in zip((0, 2), Parser.load().parse_tokens([texts[0].split(), texts[2].split()]), strict=True):
        assert made["tree"][row].as_py() == found.brackets and made["heads"][row].as_py() == found.heads
        assert made["universal"][row].as_py() == list(found.universal)
    assert made["reason"].to_pylist() == ["", "no words", "", "more than 300 words", ""]
    name = shipped_card()["name"]
    step = by_shipped_parser(asked)
    parsed = store.run(step)
    assert parsed.meta["stand_in"] and "CC-BY-SA-4.0" in parsed.meta["licences"] and name in step.label
    assert read_shards(parsed)["tree"][0].as_py() == made["tree"][0].as_py()
    chosen = experiment("001/table2/laptop/psan", ("recipe.parsed=english",))
    assert chosen.recipe.parsed == by_shipped_parser  # type: ignore[attr-defined]
    assert all(f"trees by the {name}; changed: " in chosen.reason_not(answer) for answer in chosen.answers)


def given_sentences(job: Job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    terms = {"licences": ["MIT"], "redistributable": True, "stand_in": False}
    return terms | write_shards(job.out, pa.Table.from_pylist(rows, schema=SENTENCES))
