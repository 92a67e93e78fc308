"""Transfer by SentEval's protocols: gradients, folds, counters, correlations, and a whole suite on generated sentences."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from phrasemodels.data.corpora.samples import Entailment as EntailmentRecords
from phrasemodels.data.corpora.samples import Polarity
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.encoders.baselines import BiLSTMMaxConfig, DisanConfig
from phrasemodels.encoders.psan import PsanConfig
from phrasemodels.flows.experiments.catalogue import experiment, resolved
from phrasemodels.flows.experiments.experiment import Experiment, TableName
from phrasemodels.flows.experiments.paper_001 import CASED, as_published
from phrasemodels.inference.inputs import Levels
from phrasemodels.models.sentence_pair import BUCKETS, SentencePairConfig, as_built
from phrasemodels.tasks.metrics.scores import pearson, spearman
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems import transfer
from phrasemodels.tasks.problems.entailment import (
    EntailmentObjective,
    EntailmentRecipe,
    PairExamples,
    TransferTask,
    every_map,
)
from phrasemodels.tasks.problems.sentence_data import SentenceText, VectorFile, WordListSettings, hashed, word_list
from phrasemodels.tasks.problems.transfer import (
    FOLDS,
    NESTED,
    OFFICIAL,
    PUBLISHED,
    STRENGTHS,
    LogisticConfig,
    TransferSettings,
    fit,
)
from phrasemodels.tasks.train.batches import stream
from phrasemodels.tasks.train.checkpoints import Progress
from phrasemodels.tasks.train.config import TrainConfig, adadelta, constant, shrunk_without_gain
from phrasemodels.tasks.train.trainer import HISTORY, is_finished


@pytest.mark.parametrize("optimiser", [transfer.Adam, transfer.RmsProp])
def test_our_gradients_and_optimisers_are_those_of_torch(optimiser):
    torch.manual_seed(0)
    x, y = torch.randn(64, 5), torch.randint(0, 3, (64,))
    rows = np.arange(64)
    setting = LogisticConfig(batch=64, passes=3, most_passes=2, optimiser=optimiser, reduction=transfer.averaged)
    found = fit(x, y, [(rows, rows)], [1e-2], setting, 0).weights[0, 0]
    layer = torch.nn.Linear(5, 3)
    start = torch.rand(1, 6, 3, generator=torch.Generator().manual_seed(stream(0, "logistic")))
    start = (start * 2 - 1)[0] / 5**0.5
    with torch.no_grad():
        layer.weight.copy_(start[:-1].T)
        layer.bias.copy_(start[-1])
    theirs = torch.optim.Adam if optimiser is transfer.Adam else torch.optim.RMSprop
    made = theirs(layer.parameters(), weight_decay=1e-2)
    for _ in range(3):
        made.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        made.step()
    expected = torch.cat([layer.weight.T, layer.bias[None]]).detach()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_folds_are_stratified_and_keep_their_best_weights():
    torch.manual_seed(1)
    x, y = torch.randn(90, 4), torch.randint(0, 2, (90,))
    parts = transfer.stratified(y.numpy(), 3, 0)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(90))
    shares = [y.numpy()[part].mean() for part in parts]
    assert max(shares) - min(shares) < 0.05
    folds = [(transfer.without(np.arange(90), part), part) for part in parts]
    found = fit(x, y, folds, STRENGTHS, LogisticConfig(batch=90, most_passes=8), 0)
    assert found.weights.shape == (3, 4, 5, 2)
    for f, (_, part) in enumerate(folds):
        for r in range(4):
            right = (found.predict(x[part], f, r) == y[part]).float().mean()
            assert right == found.accuracy[f, r]


def test_one_counter_is_reset_and_the_other_is_not():
    better = [True, False, False, True, False]
    counts = {}
    for rule in (transfer.since_the_best, transfer.in_all):
        count = torch.zeros(1, dtype=torch.long)
        for value in better:
            count = rule(count, torch.tensor([value]))
        counts[rule] = int(count)
    assert counts == {transfer.since_the_best: 1, transfer.in_all: 3}
    train, dev = transfer.held_out(np.arange(100), 0)
    assert len(dev) == 5 and not set(train) & set(dev)


def test_separable_classes_are_learned():
    torch.manual_seed(2)
    y = torch.arange(3000) % 3
    x = torch.nn.functional.one_hot(y, 3).float() + 0.1 * torch.randn(3000, 3)
    rows = np.arange(3000)
    assert fit(x, y, [(rows[:2000], rows[2000:])], STRENGTHS, PUBLISHED, 0).accuracy.max() > 0.98


def test_relatedness_and_similarity_on_known_answers():
    assert torch.allclose(transfer.targets(np.array([1.0, 3.6])), torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 0.4, 0.6, 0]]))
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 3, generator=generator)
    scores = (1 + 4 * x[:, 0]).double().numpy()
    found = transfer.relatedness((x[:100], scores[:100]), (x[100:150], scores[100:150]), (x[150:], scores[150:]), 0)
    assert found["pearson"] > 0.9 and found["mse"] < scores[150:].var()
    assert pearson(np.array([1.0, 2, 3]), np.array([2.0, 4, 6])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2, 9]), np.array([3.0, 2, 1])) == pytest.approx(-1)
    assert pearson(np.ones(3), np.arange(3.0)) == 0
    u = torch.tensor([[1.0, 0], [1, 0], [1, 0], [1, 0], [1, 0]])
    v = torch.tensor([[1.0, 0], [1, 1], [0, 1], [1, 0], [0, 1]])
    groups = np.array(["a", "a", "a", "b", "b"])
    found = transfer.similarity(u, v, np.array([5.0, 3, 1, 0, 5]), groups)
    assert found["spearman"] == pytest.approx(0) and found["spearman by rows"] == pytest.approx(0.2)


def test_micro_and_macro_are_means_of_dev_accuracies():
    found = {
        "big": [{"accuracy": 0.0, "dev": 90.0, "rows": 300, "learned": 2700}],
        "small": [{"accuracy": 0.0, "dev": 50.0, "rows": 100, "learned": 100}],
    }
    tasks = dict.fromkeys(found, (OFFICIAL, ()))
    scores = transfer.summary(found, TransferSettings(tasks, PUBLISHED))
    assert scores["micro"].value == pytest.approx(80) and scores["macro"].value == pytest.approx(70)
    apart = found | {"apart": [{"accuracy": 0.0, "dev": 10.0, "rows": 1000, "learned": 1000}]}
    again = transfer.summary(apart, TransferSettings(tasks | {"apart": (OFFICIAL, ())}, PUBLISHED, apart=("apart",)))
    assert again["dev/apart"].value == 10 and {again[name] == scores[name] for name in ("micro", "macro")} == {True}


PRINTED_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E")


def test_printed_averages_are_of_the_tasks_of_conneau_by_the_published_protocol():
    recipe = experiment("001/table2/paper/psan").recipe
    settings = recipe.stages(SentencePairConfig(PsanConfig()), TrainConfig(), 0)["transfer"].settings
    classes = [name for name, (protocol, _) in settings.tasks.items() if protocol.classes]
    assert tuple(name for name in classes if name not in settings.apart) == PRINTED_TASKS
    assert settings.setting.counter is transfer.in_all and settings.setting.folds == 10


def test_words_and_vectors_come_from_a_file_of_word_vectors(store: Store, tmp_path):
    (given := tmp_path / "v.txt").write_text("the 1 2\nunseen 3 4\ndog 5 6\n", encoding="utf-8")
    file = VectorFile("v.txt", 2).locate((tmp_path,))
    assert file is not None and VectorFile("absent.txt", 2).locate((tmp_path,)) is None
    rows = SampleCorpus(20, 2, 2, records=EntailmentRecords()).split("train")
    step = Step(word_list, "words", WordListSettings({"a": SentenceText()}, vectors=file), {"a": rows})
    given.write_text("the 1 2\nunseen 3 4\ndog 5 7\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"v.txt: the file has changed since the run was planned"):
        store.run(step, Executor(sources=Sources((tmp_path,), True)))
    given.write_text("the 1 2\nunseen 3 4\ndog 5 6\n", encoding="utf-8")
    made = store.run(step, Executor(sources=Sources((tmp_path,), True)))
    assert read_words(made, "words") == ["the", "dog"]
    config = EntailmentObjective().configure(SentencePairConfig(PsanConfig(2), hidden=4), made)
    model = config.build()
    assert model.embed.weight.shape == (2 + BUCKETS, 2) and model.embed.weight[:2].tolist() == [[1, 2], [5, 6]]
    assert not any(name.startswith("embed") for name, _ in model.named_parameters())


def with_glove(row: str, folder: Path, file: str, *words: str) -> Experiment:
    """Return a row of Table 2 at the paper's size, with a file of these words in the format of GloVe."""
    (folder / "glove").mkdir()
    vectors = "".join(f"{word}{' 0.5' * 300}\n" for word in ("<s>", "</s>", "man", "sleeps", *words))
    (folder / "glove" / f"glove.{file}.300d.txt").write_text(vectors, encoding="utf-8")
    return resolved(experiment(f"001/table2/paper/{row}"), Sources((folder,)))


def test_a_baseline_of_infersent_reads_and_starts_as_its_authors_had_it(store: Store, tmp_path):
    chosen = with_glove("bilstm-max", tmp_path, "840B", "The")
    rows = SampleCorpus(20, 2, 2, records=EntailmentRecords())
    recipe = dataclasses.replace(chosen.recipe, corpus=rows, suite=())
    made = store.run(recipe.data()["train"], Executor(sources=Sources((tmp_path,), True)))
    words = store.run(recipe.data()["vocabulary"], Executor(sources=Sources((tmp_path,), True)))
    known = read_words(words, "words")
    ids = [[known[i] for i in row] for row in read_shards(made)["premise_ids"].to_pylist()]
    assert {(row[0], row[-1]) for row in ids} == {("<s>", "</s>")} and max(map(len, ids)) < 9, "without unknown words"
    assert CASED.words("The man") == ["<s>", "The", "man", "</s>"]
    model = dataclasses.replace(chosen.model, encoder=BiLSTMMaxConfig(300, 2), hidden=4)
    built = recipe.stages(model, chosen.train, 0)["model"].settings.objective.configure(model, words).build()
    assert all(layer.weight.abs().max() <= layer.in_features**-0.5 for layer in built.classify), "PyTorch's own start"


@pytest.mark.parametrize(
    ("row", "file", "encoder"),
    [("bilstm-max", "840B", BiLSTMMaxConfig(300, 4)), ("disan", "6B", DisanConfig(300, 0.25, 4))],
)
def test_baselines_at_the_papers_size_run_on_files_of_the_same_format(store: Store, tmp_path, row, file, encoder):
    chosen = with_glove(row, tmp_path, file, "the")
    rows = SampleCorpus(90, 20, 20, records=EntailmentRecords())
    small = dataclasses.replace(
        chosen,
        recipe=dataclasses.replace(chosen.recipe, corpus=rows, suite=()),
        model=dataclasses.replace(chosen.model, encoder=encoder, hidden=4),
        train=dataclasses.replace(chosen.train, steps=4, evaluate_every=2, checkpoint_every=4),
    )
    pipeline, executor = small.steps(0), Executor(sources=Sources((tmp_path,), True))
    scores = store.run(pipeline.scored, executor).meta["scores"]
    assert 0 <= scores["accuracy"]["value"] <= 100
    trained = load_file(store.run(pipeline.trained, executor).file("model.safetensors"))
    assert ("embed.weight" in trained) == (row == "disan")
    if row == "disan":
        assert not (trained["embed.weight"][:3] == 0.5).all(), "word vectors are tuned"


def test_vectors_of_a_file_may_be_tuned_and_scores_of_attention_go_without_a_penalty(tmp_path):
    disan = experiment("001/table2/paper/disan")
    save_file({"vectors": torch.ones(BUCKETS + 2, 4)}, tmp_path / "v.safetensors")
    changes = {"encoder": DisanConfig(4), "words": 2, "vectors": str(tmp_path / "v.safetensors"), "hidden": 5}
    model = dataclasses.replace(disan.model, **changes).build()
    assert model.embed.weight.requires_grad and (model.embed.weight == 1).all()
    named = {id(module): name for name, module in model.named_modules()}
    free = {named[id(m)] for m in every_map(model)} - {named[id(m)] for m in disan.recipe.penalised(model)}
    assert free == {f"encoder.{way}.{name}" for way in ("past", "future") for name in ("own", "other")}


def test_infersents_rate_shrinks_without_a_gain_and_ends_the_training():
    assert shrunk_without_gain([]) == 1
    assert shrunk_without_gain([0.5, 0.4, 0.4, 0.3]) == pytest.approx(0.99**4 / 5), "an equal loss is no gain"
    assert shrunk_without_gain([0.5] * 6) > 0 == shrunk_without_gain([0.5] * 7), "0.1 / 5^6 is below 1e-5"
    config = experiment("001/table2/paper/bilstm-max").train
    assert (config.steps, config.steps // config.evaluate_every) == (171_680, 20)
    progress = Progress(step=7 * 8584, best=0.5, best_step=8584, history=[{"dev_loss": 0.5}] * 7)
    younger = dataclasses.replace(progress, history=[{"dev_loss": 0.5}])
    assert is_finished(progress, config) and not is_finished(younger, config)


def test_the_rows_of_other_sizes_and_of_psan_keep_their_training():
    for name in ("001/table2/laptop/disan", "001/table5/laptop/disan", "001/table2/sample/bilstm-max"):
        one = experiment(name)
        assert one.train.learning_rate in (0.003, 1.0) and one.model.start is as_built and one.recipe.unknown is hashed
    psan = experiment("001/table4/paper/full")
    assert as_published(psan) is psan


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
    assert [scores[task]["sentences"] for task in ("P", "PF", "E")] == [120, 120, 40], "a nested task weighs all its rows"
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

    parts = {"model": store.run(made.trained), "vocabulary": store.run(data["vocabulary"])}
    loaded = recipe.loaded(model, parts)
    assert loaded.predict([f"{TREE}\t{TREE}"])[0] in ("entailment", "neutral", "contradiction")
    shown = recipe.attention(loaded, TREE)
    assert [row["module"] for row in shown] == ["attention 1", "attention 2", "attention 3", "summary"]
    assert shown[0]["tokens"] == ["the", "man", "sleeps", "in", "the", "garden"] and shown[0]["shape"] == [1, 6, 6]
    assert [0, 1] in shown[0]["phrases"] and [2, 3, 4, 5] in shown[0]["phrases"], "phrases of the tree"
    assert (shown[3]["shape"], shown[3]["written"]) == ([1, 1, 6], ["sentence"])
    with pytest.raises(ValueError, match="no tree"):
        recipe.attention(loaded, "the man sleeps")
