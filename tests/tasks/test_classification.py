"""Classification of sentences: a small model learns, an exported one answers as the pipeline, and wrong files are refused."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from phrasemodels.data.corpora.bitext import labelled_blocks
from phrasemodels.data.formats.shards import SENTENCES, build, read_shard
from phrasemodels.data.store.store import Store
from phrasemodels.encoders.baselines import BiLSTMMaxConfig
from phrasemodels.inference.inputs import Levels
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.models.sentence_pair import ClassifierConfig
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.classification import ClassificationObjective, ClassificationRecipe
from phrasemodels.tasks.problems.recipe import Outcome, steps_of
from phrasemodels.tasks.problems.sentence_data import SentenceText
from phrasemodels.tasks.train.checkpoints import load_trained
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class Films:
    """Sentences whose label is one of their words."""

    def tables(self, sizes: Mapping[str, int]) -> dict[str, pa.Table]:
        generator = random.Random(0)
        made = {}
        for split, size in sizes.items():
            labels = [generator.choice(("bad", "good")) for _ in range(size)]
            texts = [f"the {generator.choice(('long', 'new'))} film is {label} today ." for label in labels]
            made[split] = build(SENTENCES, split, {"text": texts, "label": labels}, size)
        return made


MODEL = ClassifierConfig(BiLSTMMaxConfig(16, 16), hidden=16, dropout=0.0)
TRAIN = TrainConfig(steps=60, batch_tokens=400, learning_rate=1e-2, evaluate_every=20, checkpoint_every=60)
CORPUS = SampleCorpus(200, 30, 40, records=Films())
RECIPE = ClassificationRecipe(CORPUS, Levels(trees="none"), text=SentenceText(("text",)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict:
    store = Store(tmp_path_factory.mktemp("store")).open()
    found = {name: store.run(step) for name, step in steps_of("c", RECIPE, MODEL, TRAIN, 0).items()}
    data = RECIPE.data() | {"rows": RECIPE.test_rows()}
    return found | {name: store.run(data[name]) for name in ("vocabulary", "test", "rows")}


def test_it_learns_which_word_the_label_is(made: dict) -> None:
    scores = json.loads(made["scores"].file("scores.json").read_text())
    answers = read_shard(made["predictions"].file("predictions.arrow")).to_pylist()
    right = sum(row["gold"] == row["label"] for row in answers)
    assert scores["accuracy"]["value"] == pytest.approx(100 * right / len(answers))
    assert right / len(answers) > 0.9 and scores["macro_f1"]["value"] > 90


def test_a_model_with_torch_alone_answers_as_the_pipeline(made: dict) -> None:
    module = load_trained(ClassificationObjective(), MODEL, made)
    words = {name: read_words(made["vocabulary"], name) for name in ("words", "labels")}
    predictor = RECIPE.predictor(made["vocabulary"])
    assert predictor is not None
    model = LoadedModel(module.eval(), MODEL, words, predictor=predictor)
    given = [row["text"] for row in read_shards(made["rows"]).to_pylist()]
    pipeline = read_shard(made["predictions"].file("predictions.arrow"))["label"].to_pylist()
    assert model.predict(given) == pipeline


def test_the_report_shows_which_class_is_taken_for_which(made: dict) -> None:
    outcome = Outcome("c", "c", "PSAN", "", 0, RECIPE, MODEL, TRAIN, made["model"], made["predictions"], made["scores"])
    (section,) = RECIPE.sections([outcome], lambda step: made["model"])
    counts = [int(value) for line in section.rows for name, value in line.items() if name != "class"]
    assert len(section.rows) == 2 and sum(counts) == 40


def test_texts_are_parsed_before_a_model_that_reads_trees_answers(made: dict) -> None:
    recipe = replace(RECIPE, structure=Levels())
    model = recipe.loaded(MODEL, {name: made[name] for name in ("model", "vocabulary")})
    (ids,), (structure,), (tokens,) = model.predictor.sentences(model, ["The long film is good today."])
    assert len(structure) == len(ids) == len(tokens) == 6
    assert structure[0].tolist() != structure[-1].tolist(), "two phrases"


@dataclass(frozen=True)
class EachWordApart:
    """A structure of a user's own: each word is a phrase."""

    reads_trees: bool = False

    def __call__(self, tokens: list[str], tree: str) -> np.ndarray:
        return np.arange(len(tokens), dtype=np.int32)[:, None]


def test_a_structure_of_ones_own_is_read_for_texts_and_named_in_no_folder(made: dict) -> None:
    recipe = replace(RECIPE, structure=EachWordApart())
    model = recipe.loaded(MODEL, {name: made[name] for name in ("model", "vocabulary")})
    _, (structure,), _ = model.predictor.sentences(model, ["a good film"])
    assert structure.ravel().tolist() == [0, 1, 2] and not model.predictor.portable
    assert model.predictor.unknown_words(model, ["the zyx film", "zyx"]) == ["zyx"]


def test_lines_are_a_sentence_and_its_label(tmp_path: Path) -> None:
    file = tmp_path / "reviews.tsv"
    file.write_text("a good film\tgood\na bad film\tbad\told\n", encoding="utf-8")
    (table,) = labelled_blocks({"rows": file}, 100)
    rows = [(row["text"], row["label"], row["group"]) for row in table.to_pylist()]
    assert rows == [("a good film", "good", ""), ("a bad film", "bad", "old")]
    file.write_text("a good film\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1"):
        list(labelled_blocks({"rows": file}, 100))
