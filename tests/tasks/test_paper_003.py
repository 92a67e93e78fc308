"""The tables of paper 003: their cells, the way from records to scores, and the protocol of bAbI."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from running import small_corpus

from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, Job, Step, Store
from phrasemodels.encoders.parents import NoParentsConfig
from phrasemodels.flows.experiments.catalogue import PROFILES, experiment, tables_of
from phrasemodels.flows.results.verdicts import verdicts
from phrasemodels.inference.inputs import as_written, characters, letters
from phrasemodels.layers.blocks import SPECIAL, UNKNOWN
from phrasemodels.models.sentence_pair import DecomposableConfig
from phrasemodels.tasks.metrics.scores import length_to_failure
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.answering import ANSWERS, score_answers, words
from phrasemodels.tasks.problems.decomposition import (
    DecompositionObjective,
    PairNumbers,
    PairVocabulary,
    pair_vocabulary,
    pairs,
)
from phrasemodels.tasks.problems.sentence_data import VectorFile
from phrasemodels.tasks.train.batches import token_batches
from phrasemodels.tasks.train.config import halved_after_rise, halved_on_plateau

TINY = ("train.steps=12", "train.evaluate_every=6", "train.checkpoint_every=12", *small_corpus(60, 10, 20))  # fmt: skip
ROWS = {
    "nmt/sample/char-structured": "bleu",
    "babi/sample/binary-facts2": "fact",
    "babi-readings/sample/memn2n-facts2": "fact",
    "snli/sample/hard": "accuracy",
    "snli/sample/structured": "accuracy",
    "trees/sample/structured": "failure/depth2",
}


@pytest.mark.parametrize("profile", PROFILES)
def test_every_cell_names_one_published_number_and_every_row_has_its_own_name(profile):
    made = {table: make(profile) for table, make in tables_of("003").items()}
    assert all(a.cell is None or a.cell.published >= 0 for table in made.values() for e in table for a in e.answers)
    assert all(len({e.row for e in table}) == len(table) for table in made.values())
    if profile == "paper":
        assert {name: len(table) for name, table in made.items()} == {
            "nmt": 6, "babi": 36, "babi-readings": 60, "snli": 4, "snli-start": 4, "trees": 3,
        }  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, marks=pytest.mark.slow if "nmt" in row else ()) for row in ROWS])
def test_a_small_training_of_each_problem_is_scored(row, tmp_path):
    chosen = experiment(f"003/table{row}", TINY)
    store = Store(tmp_path).open()
    scored = store.run(chosen.steps(0).scored)
    assert ROWS[row] in scored.meta["scores"] and scored.meta["stand_in"]
    sentences = read_shard(scored.file("sentences.arrow"))
    for answer in chosen.answers:
        assert answer.statistic.column in sentences.column_names
    assert len(sentences) == 20


def test_the_verdict_on_a_printed_average_names_the_average_of_its_tasks():
    found = {(r["system"], r["metric"]): r for r in verdicts([], "003") if r["dataset"].endswith("AVERAGE")}
    assert len(found) == 6
    line = found["MemN2N", "fact sequence accuracy"]
    assert line["verdict"] == "suspect" and "36.65" in line["reason"], "it leaves task 19 out"
    line = found["Binary CRF", "fact sequence accuracy"]
    assert line["verdict"] == "not run" and "0 of 10 tasks were run" in line["reason"] and "53.74" in line["reason"]
    line = found["Unary CRF", "answer accuracy"]
    assert "0 of 12 tasks were run" in line["reason"] and "73.80" in line["reason"], "7 and 8 are in the full paper"


def test_answers_are_scored_for_the_best_start_and_facts_for_the_best_few(tmp_path):
    facts = {0: [[1, 0], [2, 1]], 1: [[0, 1], [2, 1]], 2: [[1, 0], [1, 2]]}  # by start; the support is 1 0 and 2 1
    rows = [
        {"restart": start, "id": i, "group": "", "answer": "a", "predicted": "ab"[start > 0 and i], "support": support, "facts": found}
        for start, places in facts.items()
        for i, (support, found) in enumerate(zip(([1, 0], [2, 1]), places, strict=True))
    ]  # fmt: skip
    write_shard(tmp_path / "predictions.arrow", pa.Table.from_pylist(rows, schema=ANSWERS))
    metas = {"predictions": {}, "stories": {"shards": []}}
    inputs = {name: Artifact(tmp_path, {"meta": meta, "key": ""}) for name, meta in metas.items()}
    job = Job(tmp_path, tmp_path, inputs, Store(tmp_path), Executor(), "")
    values = {name: score["value"] for name, score in score_answers(job, 2)["scores"].items()}
    assert values == {"answer": 100.0, "fact": 75.0, "answer/mean": pytest.approx(200 / 3)}
    assert json.loads((tmp_path / "scores.json").read_text())["fact"]["signature"].startswith("mean of the best 2 of 3")
    missing = [row | dict.fromkeys(("answer", "predicted"), SPECIAL[UNKNOWN]) for row in rows]  # train lacks the answer
    write_shard(tmp_path / "predictions.arrow", pa.Table.from_pylist(missing, schema=ANSWERS))
    assert score_answers(job, 2)["scores"]["answer"]["value"] == 0


def test_starts_are_ranked_by_held_out_answers(tmp_path):
    chosen = experiment("003/tablebabi/sample/binary-facts2", (*TINY, "recipe.restarts=3", "train.learning_rate=0.1"))
    store = Store(tmp_path).open()
    trained = store.run(chosen.steps(1).trained)
    losses = [start["dev_loss"] for start in trained.meta["restarts"]]
    assert losses == sorted(losses) and trained.meta["dev_loss"] == losses[0]
    assert sorted(start["seed"] for start in trained.meta["restarts"]) == [3, 4, 5]
    assert trained.meta["workers"] == [1]
    assert (trained.path / "model.safetensors").read_bytes() == (trained.path / "restart-0.safetensors").read_bytes()
    again = dataclasses.replace(chosen, row="another-name")
    assert store.find(again.steps(1).trained) is not None


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        ("a b c", "a b c", 100),
        ("a b", "a b c d", 50),
        ("", "a b", 0),
        ("a x c", "a b c d", 25),
        ("a b c", "a b", 200 / 3),
    ],
)
def test_length_to_failure(hypothesis, reference, expected):
    assert length_to_failure(hypothesis.split(), reference.split()) == pytest.approx(expected)


def test_the_rate_is_halved_at_every_evaluation_after_the_first_rise():
    losses = [3.0, 2.0, 2.5, 1.0, 1.5]
    assert [halved_after_rise(losses[:n]) for n in range(6)] == [1, 1, 1, 0.5, 0.25, 0.125]


def test_the_rate_is_halved_on_a_plateau() -> None:
    losses = [1.0] * 4 + [0.5] + [0.7] * 75
    assert [halved_on_plateau(losses[:n]) for n in (4, 8, 31, 32, 55, 56, 80)] == [1, 1, 1, 0.5, 0.5, 0.25, 0.125]


def test_words_of_stories_and_characters_of_sentences():
    assert words("Where is Mary's red-blue cup?") == ["where", "is", "mary's", "red-blue", "cup"]
    assert characters("私 は 学生 。", "ja") == list("私は学生。") and characters("I am .", "en") == ["I", "am", "."]
    assert letters("a cat", "en") == list("acat") and letters("eine katze", "de") == ["eine", "katze"]


def test_words_have_vectors_of_norm_one_and_words_without_one_share_a_hundred(tmp_path):
    pair = {"premise": ["A dog sleeps", "dogs"], "hypothesis": ["a Dog", "A zyx"], "label": ["neutral", "neutral"]}
    rows = {**pair, "id": [0, 1], "group": ["", ""], "premise_tree": ["", ""], "hypothesis_tree": ["", ""]}
    folder = tmp_path / "rows"
    folder.mkdir()
    terms = {"licences": [], "redistributable": True, "stand_in": True}
    made = Artifact(folder, {"key": "rows", "meta": {**write_shards(folder, pa.table(rows)), **terms}})
    supplied = tmp_path / "supplied" / "glove"
    supplied.mkdir(parents=True)
    lines = [
        "A 3 4",
        "dog 0 2",
        ". . 1 2 3",
        "dogs 1 0",
        "unseen 1 1",
    ]  # the third is of two words, as some of 840B are
    (supplied / "vectors.txt").write_text("".join(f"{line}\n" for line in lines))
    sources = Sources((tmp_path / "supplied",))
    chosen = VectorFile("glove/vectors.txt", 2)
    store = Store(tmp_path / "store").open()
    inputs = dict.fromkeys(("train", "dev", "test"), made)
    words = Step(pair_vocabulary, "w", PairVocabulary(1, as_written, chosen), inputs)
    known = store.run(words, Executor(sources=sources))
    entries = read_words(known, "words")
    assert sorted(entries[4:7]) == ["A", "dog", "dogs"] and len(entries) == 4 + 3 + 100
    numbered = read_shards(store.run(Step(pairs, "n", PairNumbers(as_written), {"rows": made, "vocabulary": known})))
    first, second = numbered["premise_ids"].to_pylist()[0], numbered["hypothesis_ids"].to_pylist()[0]
    assert first[1:3] == [entries.index("A"), entries.index("dog")] and min(first[3], *second[1:]) >= 7
    model = DecompositionObjective().configure(DecomposableConfig(NoParentsConfig(2)), known).build()
    assert not model.embed.weight.requires_grad
    assert model.embed.weight[entries.index("A")].tolist() == pytest.approx([0.6, 0.8])
    assert model.embed.weight.norm(dim=1).tolist() == pytest.approx([1.0] * len(entries))


class Lengths:
    """Rows that have lengths alone."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)


@pytest.mark.parametrize("sides", [1, 2])
def test_batches_of_equal_lengths_hold_each_row_once_and_no_padding(sides):
    data = Lengths(np.random.default_rng(0).integers(1, 5, (200, 2)))
    batches = token_batches(data, 10**9, seed=0, epoch=0, max_rows=8, equal_sides=sides)
    assert sorted(np.concatenate(batches)) == list(range(200))
    assert all(len(rows) <= 8 and (np.ptp(data.lengths[rows, :sides], axis=0) == 0).all() for rows in batches)
    assert len(batches) < len(token_batches(data, 10**9, 0, 0, 1, equal_sides=sides)) == 200
