"""A tiny pretrained encoder below an encoder of sentences: pieces aligned to words, a training, its export and its answers."""

import dataclasses
from pathlib import Path

import pytest
import torch
from tiny_pretrained import WORDS, save

import phrasemodels
from phrasemodels.data.corpora.samples import Polarity
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.store import Executor, Store, with_dependencies
from phrasemodels.encoders.inputs import PretrainedConfig
from phrasemodels.encoders.psan import PsanConfig
from phrasemodels.encoders.transformer import PooledEncoderConfig, TransformerEncoderConfig
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.results import models
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.inference.inputs import Levels
from phrasemodels.models.pretrained_words import PieceVectors, PretrainedWordsConfig, aligned
from phrasemodels.models.sentence_pair import ClassifierConfig
from phrasemodels.project import StudyFile
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.classification import ClassificationRecipe
from phrasemodels.tasks.train.config import TrainConfig

SMALL = TransformerEncoderConfig(d=8, heads=2, layers=1, d_ff=8, dropout=0.0)
PHRASES = PooledEncoderConfig(SMALL, longest=2, dropout=0.0)


def test_pieces_stand_between_marks_and_words_have_the_place_of_their_last_one() -> None:
    words = torch.tensor([[[5.0, -1.0], [6.0, 7.0], [0.0, 0.0]], [[8.0, 9.0], [10.0, -1.0], [11.0, -1.0]]])
    pieces, last, counts = aligned(words, torch.tensor([2, 3]), (2, 3))
    assert pieces.tolist() == [[2, 5, 6, 7, 3, 0], [2, 8, 9, 10, 11, 3]]
    assert last[0, :2].tolist() == [1, 3] and last[1].tolist() == [2, 3, 4] and counts.tolist() == [5, 6]


def test_words_are_read_as_the_pieces_of_the_encoders_tokeniser(tmp_path: Path) -> None:
    vectors = PieceVectors(StudyFile(save("bert", tmp_path / "bert")), 3)
    found = {word: row.tolist() for word, row in vectors.read({"abcd", "a", "\u65e5"}, ())}
    ids = [WORDS.index(piece) for piece in ("a", "##b", "##c")]
    assert found == {"abcd": ids, "a": [ids[0], -1, -1], "\u65e5": [1, -1, -1]}
    assert vectors.of_unknown(2).tolist() == [[1, -1, -1]] * 2


@pytest.mark.parametrize("over", [PHRASES, PsanConfig(d=8, levels=3, dropout=0.0)], ids=["phrases", "levels"])
def test_a_state_of_a_word_is_that_of_its_last_piece_in_any_batch(over: object, tmp_path: Path) -> None:
    config = PretrainedWordsConfig(over, StudyFile(save("bert", tmp_path / "bert")), 3)
    model = config.build().eval()
    a, b = WORDS.index("a"), WORDS.index("##b")
    words = torch.tensor([[[a, b, -1], [a, -1, -1], [a, b, b]], [[a, -1, -1], [a, b, -1], [0, 0, 0]]]).float()
    lengths, structure = torch.tensor([3, 2]), torch.zeros(2, 3, 3).long()
    both = model(words, lengths, structure)
    alone = model(words[1:, :2], lengths[1:], structure[1:, :, :2])
    torch.testing.assert_close(both[1:], alone, atol=1e-5, rtol=1e-4)
    before, after = both[0], model(words[:, [1, 0, 2]], lengths, structure)[0]
    assert not torch.allclose(before, after), "the order of words counts"


def test_a_classifier_over_a_pretrained_encoder_is_trained_exported_and_answers_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bert"
    config = PretrainedWordsConfig(PHRASES, StudyFile(save("bert", folder)), 6)
    corpus = SampleCorpus(60, 10, 20, records=Polarity())
    row = dataclasses.replace(
        experiment("001/table3/sample/psan"),
        recipe=ClassificationRecipe(corpus, Levels(trees="none"), vectors=config.vectors),
        model=ClassifierConfig(config, hidden=8, dropout=0.0),
        train=TrainConfig(steps=20, batch_tokens=300, learning_rate=1e-2, evaluate_every=10),
    )
    store = Store(tmp_path / "store").open()
    steps = row.steps(0)
    for step in with_dependencies([steps.predicted]):
        store.run(step, Executor(sources=Sources(())))
    monkeypatch.setattr(models, "find_experiment", lambda _: row)
    model = models.stored(Lineage(store), store.find(steps.trained), row)
    texts = [record["text"] for record in read_shards(store.run(row.recipe.test_rows())).to_pylist()]
    answers = model.predict(texts)
    exported = model.export(tmp_path / "out")
    folder.rename(tmp_path / "gone")
    assert phrasemodels.load(exported).predict(texts) == answers
    pretrained = phrasemodels.load(exported).module.encoder.encoder
    assert not torch.equal(
        pretrained.embeddings.word_embeddings.weight,
        PretrainedConfig(str(tmp_path / "gone"), offline=True).encoder().embeddings.word_embeddings.weight,
    ), "the pretrained weights are trained further"


def test_another_file_of_the_encoder_is_another_training(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    save("bert", folder)
    keys = []
    for text in ("{}", '{"a": 1}'):
        (folder / "notes.json").write_text(text)
        config = PretrainedWordsConfig(PHRASES, StudyFile(str(folder)))
        recipe = ClassificationRecipe(
            SampleCorpus(60, 10, 20, records=Polarity()), Levels(trees="none"), vectors=config.vectors
        )
        row = dataclasses.replace(experiment("001/table3/sample/psan"), recipe=recipe, model=ClassifierConfig(config))
        keys.append(row.steps(0).trained.key)
    assert keys[0] != keys[1]


@pytest.mark.parametrize("name", ["./bert", "bert/small/x", "here/bert", "/nowhere/bert", "~/bert"])
def test_a_path_is_never_asked_for_at_a_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="there is no such folder, and a path is never asked for at the hub"):
        PretrainedConfig(name).encoder()
