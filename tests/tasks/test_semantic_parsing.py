"""Semantic parsing from corpus to scores: byte pairs, vocabularies, matches, tables."""

import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from conftest import PROJECT
from running import executed, prepared, small_corpus

from phrasemodels.data.corpora.samples import LogicalForms
from phrasemodels.data.formats.shards import BITEXT, read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, Job, Step, Store
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.flows.experiments.paper_002 import (
    ATIS,
    GEO,
    MODELS,
    OFFICIAL_CODE,
    PAPERS,
    Place,
    changed,
    profile_of,
)
from phrasemodels.flows.experiments.paper_002 import experiment as row_of
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.models import champion, load
from phrasemodels.flows.results.results import stored_results
from phrasemodels.flows.results.verdicts import verdicts
from phrasemodels.inference.inputs import (
    Pieces,
    no_phrases,
    spaces,
    underscores_as_spaces,
    underscores_as_tokens,
    without_pieces,
)
from phrasemodels.infra.settings import Settings
from phrasemodels.layers.attention import attention_probe
from phrasemodels.layers.blocks import BEGIN, END, UNKNOWN, AddNorm, PreNorm
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.metrics.logic_match import structure
from phrasemodels.tasks.prepare.phrases import Phrases, phrases
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards
from phrasemodels.tasks.prepare.vocabulary import (
    LearnBpe,
    VocabularySettings,
    learn_bpe,
    read_words,
    vocabulary,
)
from phrasemodels.tasks.problems.semantic_parsing import Forms, SemanticParsingObjective, _in_train
from phrasemodels.tasks.problems.sentence_data import PhraseBatch
from phrasemodels.tasks.problems.translation import with_source_words

FORM = "( lambda ?x ( mso:film.film.art_director tom_sanders_(_1974_) ?x ) )"
TERMS = {"licences": [], "redistributable": True, "stand_in": True}


def artifact(folder: Path, **columns: list) -> Artifact:
    """Rows as a stage of the store."""
    folder.mkdir()
    made = write_shards(folder, pa.table(columns))
    return Artifact(folder, {"key": folder.name, "meta": {**made, **TERMS}})


def learned(folder: Path, rows: Artifact, merges: int) -> Path:
    folder.mkdir()
    learn_bpe(Job(folder, folder, {"rows": rows}, None, None, "key"), LearnBpe(merges))
    return folder / "bpe.json"


def test_entities_are_divided_at_underscores():
    words = ["tom", "sanders"]
    assert underscores_as_spaces(FORM, "lf")[5:11] == [*words, "(", "1974", ")", "?x"]
    apart = underscores_as_tokens(FORM, "lf")
    assert apart[5:12] == ["tom", "_", "sanders", "_", "(", "_", "1974"]
    assert " ".join(apart).replace(" _ ", "_") == FORM
    assert "mso:film.film.art_director" in apart
    assert spaces(FORM, "lf") == FORM.split()


def test_the_most_frequent_pairs_are_merged_first_and_pieces_join_to_words(tmp_path):
    rows = artifact(tmp_path / "rows", source=[["low"] * 5 + ["lower"] * 2], target=[["newest"] * 6 + ["widest"] * 3])
    found = learned(tmp_path / "four", rows, 4)
    # e-s 9 times, es-t 9 times, then l-o and the end of low, as in section 3.2 of Sennrich et al. (2016)
    divide = Pieces(found)
    assert divide(["widest"]) == ["w@@", "i@@", "d@@", "est"]
    assert divide(["lowest"]) == ["lo@@", "w@@", "est"]
    assert divide(["löwest"]) == ["l@@", "ö@@", "w@@", "est"], "an unknown letter is kept"
    for word in ("lower", "newest", "ß", "widow"):
        assert without_pieces(divide([word])) == word
    assert without_pieces(divide(["low", "widest"])) == "low widest"
    assert learned(tmp_path / "again", rows, 4).read_bytes() == found.read_bytes()
    assert Pieces(learned(tmp_path / "none", rows, 0))(["low"]) == ["l@@", "o@@", "w"]


def test_a_joint_vocabulary_is_the_same_on_both_sides(tmp_path):
    rows = artifact(tmp_path / "rows", source=[["a", "b"], ["a"]], target=[["a", "x"], ["x"]])
    (tmp_path / "out").mkdir()
    job = Job(tmp_path / "out", tmp_path, {"rows": rows}, None, None, "key")
    assert vocabulary(job, VocabularySettings(2, joint=True)) == {"source": 6, "target": 6, "longest": 2}
    made = Artifact(tmp_path / "out", {})
    assert read_words(made, "source") == read_words(made, "target") == ["<pad>", "<unk>", "<s>", "</s>", "a", "x"]
    vocabulary(job, VocabularySettings(2))
    assert read_words(made, "target")[4:] == ["x"]


def test_the_dev_criterion_counts_wrong_words():
    class Fixed(torch.nn.Module):
        def forward(self, source, lengths, members, target):
            scores = torch.zeros(*target.shape, 9)
            scores[..., 5] = 1.0
            return scores

    target = torch.tensor([[2, 5, 6, 3], [2, 5, 3, 0]])
    batch = PhraseBatch(torch.ones(2, 3), torch.tensor([3, 3]), torch.empty(2, 0, 2), target)
    assert SemanticParsingObjective().criterion(Fixed(), batch) == 3  # 6, END and END


def small(name: str):
    return experiment(name, ("train.steps=4", "train.evaluate_every=2", *small_corpus(300, 20, 40)))


@pytest.mark.parametrize("merges", [0, 40])
def test_scores_of_a_small_training(store, merges):
    chosen = small("002/table2/sample/atis-model-5")
    forms = dataclasses.replace(chosen.recipe.forms, merges=merges)
    chosen = dataclasses.replace(chosen, recipe=dataclasses.replace(chosen.recipe, forms=forms))
    found = run(store, chosen.steps(0).scored)
    scores = found.meta["scores"]
    assert {a.metric for a in chosen.answers} <= scores.keys()
    assert scores["exact"]["value"] <= scores["logic"]["value"]
    assert scores["exact"]["sentences"] == 40
    assert scores["dev/exact"]["sentences"] == 20
    assert scores["exact/new"]["sentences"] == 40, "splits of the grammar are disjoint"
    assert scores["parameters"]["value"] > 0


def run(store: Store, step: Step) -> Artifact:
    """Run a step in this process, with what it rests on."""
    for value in step.inputs.values():
        if isinstance(value, Step):
            run(store, value)
    return store.run(step)


def test_logical_forms_of_the_sample_are_well_formed():
    forms = LogicalForms().tables({"train": 200})["train"]
    assert forms.schema == BITEXT
    assert all(structure(form) for form in forms["target"].to_pylist())


def test_presets_differ_where_paper_and_released_scripts_do():
    rows = (changed(MODELS[3], preset=preset) for preset in (PAPERS, OFFICIAL_CODE))
    one, two = (row_of(Place("2", "table2", "paper"), ATIS, row, (), "x") for row in rows)
    assert (one.train.betas, two.train.betas) == ((0.9, 0.998), (0.9, 0.98))
    assert (one.train.smoothing, two.train.smoothing) == (0.0, 0.1)
    assert two.train.batch_tokens == 8 * one.train.batch_tokens
    assert (one.model.shared, two.model.shared) == (one.recipe.forms.joint, two.recipe.forms.joint) == (True, False)
    assert two.model.residual is two.model.encoder.residual is PreNorm


def test_the_papers_size_is_trained_as_released_and_other_sizes_as_before():
    trained, before = (experiment(f"002/table2/{profile}/atis-model-4") for profile in ("paper", "laptop"))
    assert trained.comparable and not before.comparable
    assert trained.model.encoder.inner_dropout == trained.model.inner_dropout == 0.1
    forms = trained.recipe.forms
    assert (forms.min_count, forms.marks, trained.recipe.search.unknown) == (3, False, True)
    assert before.recipe.forms == Forms() and not before.recipe.search.unknown
    assert before.model.encoder.inner_dropout == 0 and before.model.residual is AddNorm
    readings = Request("002", "presets", "paper", 1).resolve().experiments
    names = ("paper", "official_code", "paper-rnn", "released")
    assert {e.row for e in readings} >= {f"model-4-{name}" for name in names}


def test_a_question_without_marks_has_its_words_alone(tmp_path):
    rows = artifact(tmp_path / "rows", id=[0, 1], source=[["a", "b"], []], target=[["x"], ["x"]], group=["", ""])
    (tmp_path / "words").mkdir()
    made = Artifact(tmp_path / "words", {"key": "words", "meta": TERMS})
    vocabulary(Job(made.path, tmp_path, {"rows": rows}, None, None, "key"), VocabularySettings(joint=True))
    ids = {}
    for marks in (True, False):
        store = Store(tmp_path / f"store{marks}").open()
        step = Step(phrases, "numbers", Phrases(no_phrases, 2, 0, marks), {"rows": rows, "vocabulary": made})
        table = read_shards(store.run(step))
        ids[marks] = table["source"].to_pylist()
        assert table["target"].to_pylist() == [[BEGIN, 4, END]] * 2
    assert ids == {True: [[BEGIN, 5, 6, END], [BEGIN, END]], False: [[5, 6], [END]]}


def test_an_unknown_word_gives_way_to_the_source_word_that_it_attends_to():
    torch.manual_seed(0)
    model = TranslationConfig(TransformerEncoderConfig(d=8, heads=2, layers=1, d_ff=8), 9, 9, 2, 8).build().eval()
    source = ["s0", "s1", "s2"]
    batch = PhraseBatch(torch.tensor([[5, 6, 7]]), torch.tensor([3]), torch.empty(1, 0, 2, dtype=torch.long), source)
    ids = [4, UNKNOWN, 5, UNKNOWN]
    with attention_probe(model) as found:
        model(batch.source, batch.lengths, batch.members, torch.tensor([[BEGIN, *ids[:-1]]]))
    first = found["decoder.1.source"][0, 0].argmax(-1).tolist()
    marked = dataclasses.replace(batch, source=torch.tensor([[2, 5, 6, 7, 3]]), lengths=torch.tensor([5]))
    words = ["a", "<unk>", "b", "<unk>"]
    expected = ["a", source[first[1]], "b", source[first[3]]]
    assert with_source_words(model, batch, ids, words, source) == expected
    assert set(with_source_words(model, marked, ids, words, source)) <= {"a", "b", *source}


def test_the_schedule_follows_the_papers_formula():
    config = profile_of("paper", GEO, PAPERS).train
    for step in (0, 50, 99, 5000):
        expected = 0.1 * 512**-0.5 * min((step + 1) ** -0.5, (step + 1) * 100**-1.5)
        assert config.learning_rate * config.schedule(step, config.warmup, config.steps) == pytest.approx(expected)


def test_tables_have_the_rows_of_the_paper():
    two = Request("002", "2", "paper", 1).resolve().experiments
    assert [e.answers[0].cell.published for e in two][:7] == [87.7, 88.84, 89.51, 89.96, 90.4, 89.51, 87.95]
    cells = [(a.cell, a.why_not) for e in two for a in e.answers if a.cell]
    unknown = [bool(why) for cell, why in cells if cell.dataset.startswith("MSParS") and cell.split == "test"]
    assert len(unknown) == 13 and all(unknown)
    four = Request("002", "4", "paper", 1).resolve().experiments
    assert [e.answers[0].cell.published for e in four] == [88.17, 89.06, 89.29, 90.40, 89.29]
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9}
    for chosen in (*two, *Request("002", "4", "laptop", 1).resolve().experiments):
        assert isinstance(dataclasses.replace(chosen.model, **sizes), TranslationConfig)


def test_a_pair_is_new_if_train_lacks_question_or_form(tmp_path):
    rows = artifact(tmp_path / "rows", source=["a", "b", "c"], target=["x", "y", "z"], group=["", "", "cvt"])
    train = artifact(tmp_path / "train", source=["a", "b"], target=["x", "z"], group=["", ""])
    assert np.array_equal(_in_train(rows, train), [True, False, False])
    assert read_shards(rows).num_rows == 3


def test_a_corpus_of_the_users_own_needs_a_manifest_alone(tmp_path, monkeypatch):
    pairs = [f"IN: {verb} {count} OUT: {' '.join([verb.upper()] * n)}" for verb in ("jump", "run", "look", "walk")
             for n, count in enumerate(("once", "twice", "thrice"), 1)]  # fmt: skip
    content = "\n".join(f"{pair} X{i}" for pair in pairs for i in range(3)).encode()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pairs.txt").write_bytes(content)
    readme = (PROJECT / "docs" / "tutorials" / "own-corpus.md").read_text()
    manifest = re.search(r'```toml\n(name = "mine".*?)```', readme, re.S)[1]
    manifest = re.sub(r"\b([12]0)0\b", r"\1", manifest)  # parts of 10 rows
    manifest = manifest.replace("SHA256SUM", hashlib.sha256(content).hexdigest())
    manifest = manifest.replace("bytes = 0", f"bytes = {len(content)}")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "mine.toml").write_text(manifest)
    monkeypatch.setattr("phrasemodels.data.download.manifest.MANIFESTS", tmp_path / "manifests")
    sets = ("recipe.corpus.name=mine", "train.steps=2", "train.evaluate_every=2", "train.batch_tokens=200", "recipe.search.extra=3")
    request = Request("002", "2", "laptop", 1, sets, ("atis-model-4",))
    made = prepared(Settings(store=tmp_path / "s", mirror=tmp_path), request)
    (pipeline,) = made.plan.pipelines
    scores = made.store.run(pipeline.scored, Executor(sources=made.sources)).meta["scores"]
    assert (scores["exact"]["sentences"], scores["dev/exact"]["sentences"]) == (10, 10)
    form = read_shard(made.store.find(pipeline.predicted).file("predictions.arrow"))["reference"][0].as_py()
    assert form[0] in ("JUMP", "RUN", "LOOK", "WALK"), "the prefix is gone and the separator too"

    lineage, name = Lineage(made.store), pipeline.experiment.name
    assert champion(lineage, "002/table2/laptop/atis-model-4") is None, "the paper's row is not this model"
    model = champion(lineage, name)
    assert model.description == f"{name} seed 0: 2 updates, corpus mine"
    assert model.card()["corpus"] == load(model.export(tmp_path / "model")).card()["corpus"] == "mine"

    rows = executed(made).finished().comparison.meta["rows"]
    assert {row["published"] for row in rows} == {None}
    (reason,) = {row["reason"] for row in rows}
    assert reason == f"the paper prints no such number; changed: {', '.join(sorted(sets))}"
    assert made.plan.table.title == f"Paper 002, Table 2, profile laptop, {', '.join(sorted(sets))}"
    monkeypatch.undo()  # results are read without the manifest
    assert not any(row["seeds"] for row in verdicts(list(stored_results(made.store, {})), "002"))


def test_numbers_that_cannot_be_compared_have_a_reason():
    rows = [row for row in verdicts([], "002") if row["dataset"].startswith("MSParS") and row["split"] == "test"]
    rows = [row for row in rows if row["system"].startswith(("PhraseTransformer", "Transformer (ours)"))]
    reason = "cannot be reproduced: the public test set"
    assert len(rows) >= 12 and all(row["reason"].startswith(reason) for row in rows)
    same = ("train.gpus=1.0", "recipe.corpus.name=atis")
    unlike = experiment("002/table2/laptop/atis-transformer").differences
    assert unlike.startswith("not the paper's size, model, training and tuning: ")
    for profile in ("paper", "laptop"):
        sets = ("train.steps=9", "train.clip=1")
        (cut,) = Request("002", "2", profile, 1, sets, ("atis-transformer",)).resolve().experiments
        assert cut.differences and cut.reason_not(cut.answers[0]).startswith(f"{cut.differences}; changed: ")
    for profile, sets, reason in (
        ("paper", same, ""),
        ("laptop", same, unlike),
        ("laptop", ("recipe.corpus.name=geoquery",), "changed: recipe.corpus.name=geoquery"),
    ):
        (chosen,) = Request("002", "2", profile, 1, sets, ("atis-transformer",)).resolve().experiments
        assert chosen.reason_not(chosen.answers[0]) == reason
