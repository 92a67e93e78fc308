"""Transfer by SentEval's protocols: gradients, folds, counters, correlations, and a whole suite on generated sentences."""

import json
import math

import numpy as np
import pytest
import torch

from phrasemodels.data.download.mirrors import Sources
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.samples.records import Entailment as EntailmentRecords
from phrasemodels.data.samples.records import Polarity
from phrasemodels.data.store.step import Executor, Step
from phrasemodels.data.store.store import Store
from phrasemodels.encoders.psan import PsanConfig
from phrasemodels.flows.experiments.experiment import Experiment, TableName
from phrasemodels.models.sentence_pair import BUCKETS, SentencePairConfig
from phrasemodels.tasks.metrics.correlation import pearson, spearman
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.levels import Levels
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.prepare.user_text import user_texts
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.entailment.data import SentenceText, VectorFile, WordListSettings, word_list
from phrasemodels.tasks.problems.entailment.logistic import (
    PUBLISHED,
    STRENGTHS,
    Adam,
    LogisticConfig,
    RmsProp,
    averaged,
    fit,
    held_out,
    in_all,
    since_the_best,
    stratified,
    without,
)
from phrasemodels.tasks.problems.entailment.objective import EntailmentObjective, PairExamples
from phrasemodels.tasks.problems.entailment.recipe import EntailmentRecipe, TransferTask
from phrasemodels.tasks.problems.entailment.relatedness import relatedness, similarity, targets
from phrasemodels.tasks.problems.entailment.transfer import FOLDS, NESTED, OFFICIAL, TransferSettings, summary
from phrasemodels.tasks.train.batches import stream
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import HISTORY
from phrasemodels.tasks.train.optimisers import adadelta, constant


@pytest.mark.parametrize("optimiser", [Adam, RmsProp])
def test_our_gradients_and_optimisers_are_those_of_torch(optimiser):
    torch.manual_seed(0)
    x, y = torch.randn(64, 5), torch.randint(0, 3, (64,))
    rows = np.arange(64)
    setting = LogisticConfig(batch=64, passes=3, most_passes=2, optimiser=optimiser, reduction=averaged)
    found = fit(x, y, [(rows, rows)], [1e-2], setting, 0).weights[0, 0]
    layer = torch.nn.Linear(5, 3)
    start = torch.rand(1, 6, 3, generator=torch.Generator().manual_seed(stream(0, "logistic")))
    start = (start * 2 - 1)[0] / 5**0.5
    with torch.no_grad():
        layer.weight.copy_(start[:-1].T)
        layer.bias.copy_(start[-1])
    made = {Adam: torch.optim.Adam, RmsProp: torch.optim.RMSprop}[optimiser](layer.parameters(), weight_decay=1e-2)
    for _ in range(3):
        made.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        made.step()
    expected = torch.cat([layer.weight.T, layer.bias[None]]).detach()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_folds_are_stratified_and_keep_their_best_weights():
    torch.manual_seed(1)
    x, y = torch.randn(90, 4), torch.randint(0, 2, (90,))
    parts = stratified(y.numpy(), 3, 0)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(90))
    shares = [y.numpy()[part].mean() for part in parts]
    assert max(shares) - min(shares) < 0.05
    folds = [(without(np.arange(90), part), part) for part in parts]
    found = fit(x, y, folds, STRENGTHS, LogisticConfig(batch=90, most_passes=8), 0)
    assert found.weights.shape == (3, 4, 5, 2)
    for f, (_, part) in enumerate(folds):
        for r in range(4):
            right = (found.predict(x[part], f, r) == y[part]).float().mean()
            assert right == found.accuracy[f, r]


def test_one_counter_is_reset_and_the_other_is_not():
    better = [True, False, False, True, False]
    counts = {}
    for rule in (since_the_best, in_all):
        count = torch.zeros(1, dtype=torch.long)
        for value in better:
            count = rule(count, torch.tensor([value]))
        counts[rule] = int(count)
    assert counts == {since_the_best: 1, in_all: 3}
    train, dev = held_out(np.arange(100), 0.05, 0)
    assert len(dev) == 5 and not set(train) & set(dev)


def test_separable_classes_are_learned():
    torch.manual_seed(2)
    y = torch.arange(3000) % 3
    x = torch.nn.functional.one_hot(y, 3).float() + 0.1 * torch.randn(3000, 3)
    rows = np.arange(3000)
    assert fit(x, y, [(rows[:2000], rows[2000:])], STRENGTHS, PUBLISHED, 0).accuracy.max() > 0.98


def test_relatedness_and_similarity_on_known_answers():
    assert torch.allclose(targets(np.array([1.0, 3.6])), torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 0.4, 0.6, 0]]))
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 3, generator=generator)
    scores = (1 + 4 * x[:, 0]).double().numpy()
    found = relatedness((x[:100], scores[:100]), (x[100:150], scores[100:150]), (x[150:], scores[150:]), 0)
    assert found["pearson"] > 0.9 and found["mse"] < scores[150:].var()
    assert pearson(np.array([1.0, 2, 3]), np.array([2.0, 4, 6])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 9]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert pearson(np.ones(3), np.arange(3.0)) == 0
    u = torch.tensor([[1.0, 0], [1, 0], [1, 0], [1, 0], [1, 0]])
    v = torch.tensor([[1.0, 0], [1, 1], [0, 1], [1, 0], [0, 1]])
    groups = np.array(["a", "a", "a", "b", "b"])
    found = similarity(u, v, np.array([5.0, 3, 1, 0, 5]), groups)
    assert found["spearman"] == pytest.approx(0) and found["spearman by rows"] == pytest.approx(0.2)


def test_micro_and_macro_are_means_of_dev_accuracies():
    found = {
        "big": [{"accuracy": 0.0, "dev": 90.0, "rows": 300}],
        "small": [{"accuracy": 0.0, "dev": 50.0, "rows": 100}],
    }
    tasks = {"big": (OFFICIAL, ()), "small": (OFFICIAL, ())}
    scores = summary(found, TransferSettings(tasks, PUBLISHED))
    assert scores["micro"].value == pytest.approx(80) and scores["macro"].value == pytest.approx(70)


def test_words_and_vectors_come_from_a_file_of_word_vectors(store: Store, tmp_path):
    (tmp_path / "v.txt").write_text("the 1 2\nunseen 3 4\ndog 5 6\n", encoding="utf-8")
    file = VectorFile("v.txt", 2).locate((tmp_path,))
    assert file is not None and VectorFile("absent.txt", 2).locate((tmp_path,)) is None
    rows = SampleCorpus(20, 2, 2, records=EntailmentRecords()).split("train")
    step = Step(word_list, "words", WordListSettings({"a": SentenceText()}, vectors=file), {"a": rows})
    (tmp_path / "v.txt").write_text("the 1 2\nunseen 3 4\ndog 5 7\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"v.txt: the file has changed since the run was planned"):
        store.run(step, Executor(sources=Sources((tmp_path,), True)))
    (tmp_path / "v.txt").write_text("the 1 2\nunseen 3 4\ndog 5 6\n", encoding="utf-8")
    made = store.run(step, Executor(sources=Sources((tmp_path,), True)))
    assert read_words(made, "words") == ["the", "dog"]
    config = EntailmentObjective().configure(SentencePairConfig(PsanConfig(2), hidden=4), made)
    model = config.build()
    assert model.embed.weight.shape == (2 + BUCKETS, 2) and model.embed.weight[:2].tolist() == [[1, 2], [5, 6]]
    assert not any(name.startswith("embed") for name, _ in model.named_parameters())


PAIRS = SampleCorpus(240, 40, 40, records=EntailmentRecords())
CLASSES = SampleCorpus(120, 2, 40, records=Polarity())
ONE = SentenceText(("text",))
TASKS = (
    TransferTask("P", NESTED, CLASSES, ("train",), ONE),
    TransferTask("PF", FOLDS, CLASSES, ("train", "test"), ONE),
    TransferTask("E", OFFICIAL, PAIRS, ("train", "dev", "test"), SentenceText()),
)
TREE = "(ROOT (S (NP (DT the) (NN man)) (VP (VBZ sleeps) (PP (IN in) (NP (DT the) (NN garden))))))"


def test_an_encoder_is_trained_transferred_asked_and_attended_to(store: Store):
    config = TrainConfig(
        steps=150, batch_tokens=600, learning_rate=1.0, schedule=constant, optimiser=adadelta, clip=math.inf,
        smoothing=0.0, evaluate_every=50, checkpoint_every=150,
    )  # fmt: skip
    model = SentencePairConfig(PsanConfig(16, dropout=0.0), hidden=16, dropout=0.0)
    recipe = EntailmentRecipe(PAIRS, Levels(), suite=TASKS, setting=LogisticConfig(folds=3, most_passes=12))
    table = TableName("001", "2", "table2")
    made = Experiment(table, "sample", "psan", "PSAN", "", (), recipe, model, config).steps(0)
    scores = store.run(made.scored).meta["scores"]
    assert {"accuracy", "P", "dev/P", "PF", "E", "micro", "macro"} <= scores.keys()
    history = json.loads(store.run(made.trained).file(HISTORY).read_text())
    assert history[-1]["loss"] < history[0]["loss"] < 1.3

    data = recipe.data()
    meta = store.run(data["train"]).meta
    assert all(x >= 1 for x in meta["phrases_per_sentence"]) and len(meta["words_per_phrase"]) == 3
    table = read_shards(store.run(data["test"]))
    rows = PairExamples([shard.path for shard in shards(store.run(data["test"]))])
    batch = rows.batch(np.arange(5))
    assert batch.tokens.shape[0] == 10 and table.num_rows == len(rows) == 40
    assert (batch.structure[:, :, 0] == 0).all() and batch.lengths[0] == len(table["premise_ids"][0])

    known = {"model": made.trained, "vocabulary": data["vocabulary"]}
    asked = user_texts([f"{TREE}\t{TREE}"])
    answers = read_shard(store.run(recipe.predict_step(model, asked, known)).file("predictions.arrow")).to_pylist()
    assert recipe.as_text(answers[0]) in ("entailment", "neutral", "contradiction")
    looked = store.run(recipe.attention_step(model, user_texts([TREE]), known, 1))
    shown = read_shard(looked.file("attention.arrow")).to_pylist()
    assert [row["module"] for row in shown] == ["attention 1", "attention 2", "attention 3", "summary"]
    assert shown[0]["tokens"] == ["the", "man", "sleeps", "in", "the", "garden"] and shown[0]["shape"] == [1, 6, 6]
    assert [0, 1] in shown[0]["phrases"] and [2, 3, 4, 5] in shown[0]["phrases"], "phrases of the tree"
    assert (shown[3]["shape"], shown[3]["written"]) == ([1, 1, 6], ["sentence"])
    with pytest.raises(ValueError, match="no tree"):
        store.run(recipe.attention_step(model, user_texts(["the man sleeps"]), known, 1))
