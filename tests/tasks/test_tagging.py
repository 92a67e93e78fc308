"""Tagging (paper 000, Table 2): the objective, the accuracy, phrases from trees, and corpora without tags."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.formats.shards import TREES, read_shard
from phrasemodels.data.store.store import Executor, Store
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.flows.experiments.catalogue import Request, resolved
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.experiments.paper_000 import GLOVE
from phrasemodels.layers.blocks import SPECIAL
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.sentence_data import PhraseBatch, VectorFile
from phrasemodels.tasks.problems.tagging import TagColumn, TaggingObjective

CONFIG = TaggerConfig(HypernodeEncoderConfig(16, 2, 2, 32, 0.0), vocabulary=20, tags=9, hidden=12)


def batch(lengths: list[int], n: int) -> PhraseBatch:
    generator = torch.Generator().manual_seed(0)
    source, target = torch.zeros(len(lengths), n, dtype=torch.long), torch.zeros(len(lengths), n, dtype=torch.long)
    members = torch.full((len(lengths), n - 1, 2), -1)
    for row, length in enumerate(lengths):
        source[row, :length] = torch.randint(4, 20, (length,), generator=generator)
        target[row, 1 : length - 1] = torch.randint(4, 9, (length - 2,), generator=generator)
        members[row, : length - 1] = torch.stack([torch.arange(length - 1), torch.arange(1, length)], -1)
    return PhraseBatch(source, torch.tensor(lengths), members, target)


def test_padding_does_not_change_tags_and_loss() -> None:
    model = CONFIG.build().eval()
    short, long = batch([5, 4], 5), batch([5, 4], 9)
    scores = model(short.source, short.lengths, short.members), model(long.source, long.lengths, long.members)
    for row, length in enumerate((5, 4)):
        torch.testing.assert_close(scores[0][row, :length], scores[1][row, :length])
    torch.testing.assert_close(TaggingObjective().loss(model, short, 0.1), TaggingObjective().loss(model, long, 0.1))


def test_four_sentences_can_be_memorised() -> None:
    torch.manual_seed(0)
    model, rows, words = CONFIG.build(), batch([7, 5, 6, 3], 7), 5 + 3 + 4 + 1
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(300):
        optimiser.zero_grad()
        loss = TaggingObjective().loss(model, rows, 0.0) / words
        loss.backward()
        optimiser.step()
    assert loss < 0.01


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict]:
    """A tagger with hypernodes of dependency trees, trained on a little of the sample treebank."""
    (experiment,) = Request("000", "2", "sample", 1, ["train.steps=60"], ["semantic-k2"]).resolve().experiments
    small = dataclasses.replace(experiment.recipe, corpus=SampleCorpus(300, 20, 40, records=Treebank()))
    pipeline = dataclasses.replace(experiment, recipe=small).steps(0)
    store = Store(tmp_path_factory.mktemp("store")).open()
    names = ("train", "raw")
    data = {name: store.run(step) for name, step in small.data().items() if name in names}
    return store, {**data, **{name: store.run(step) for name, step in pipeline.stages.items()}}


def test_accuracy_is_the_share_of_right_tokens(run) -> None:
    _, made = run
    rows = read_shard(made["predictions"].file("predictions.arrow")).to_pylist()
    pairs = [pair for row in rows for pair in zip(row["hypothesis"], row["reference"], strict=True)]
    scores = json.loads(made["scores"].file("scores.json").read_text())
    assert scores["accuracy"]["value"] == pytest.approx(100 * np.mean([a == b for a, b in pairs]))
    assert scores["accuracy"]["value"] > 60, "even a little training is far from chance"
    counts = np.array(read_shard(made["scores"].file("sentences.arrow"))["tag_counts"].to_pylist())
    assert counts.sum(0).tolist() == [sum(a == b for a, b in pairs), len(pairs)]
    gold = read_shards(made["raw"])["tags"].to_pylist()
    assert [row["reference"] for row in rows] == gold


def test_phrases_of_two_words_are_the_edges_of_the_trees(run) -> None:
    store, _ = run
    step = Request("000", "2", "sample", 1, [], ["semantic-k2"]).resolve().experiments[0].recipe.data()
    numbers, raw = read_shards(store.run(step["test"])), read_shards(store.run(step["raw"]))
    for phrases, heads in zip(numbers["phrases"].to_pylist(), raw["heads"].to_pylist(), strict=True):
        edges = {tuple(sorted((word, head))) for word, head in enumerate(heads, 1) if head}
        assert {tuple(phrase) for phrase in phrases} == edges


def test_word_vectors_of_a_file_have_norm_1_and_are_not_trained(tmp_path: Path) -> None:
    """As in Star-Transformer's tagger, which paper 000 follows: a word that the file lacks has a random vector."""
    (tmp_path / "glove").mkdir()
    file = tmp_path / "glove" / "glove.840B.300d.txt"
    file.write_text("the 3 4 0 0\n. . . 1 1 1 1\n. 0 0 5 0\n", encoding="utf-8")  # "." and ". . ." are entries there
    (chosen,) = Request("000", "2", "sample", 1, ["train.steps=2"], ["phrase-k2"]).resolve().experiments
    corpus = SampleCorpus(40, 5, 5, records=Treebank())
    recipe = dataclasses.replace(chosen.recipe, corpus=corpus, vectors=VectorFile(GLOVE.name, 4))
    encoder = dataclasses.replace(chosen.model.encoder, d=4, d_ff=4)
    chosen = dataclasses.replace(chosen, recipe=recipe, model=dataclasses.replace(chosen.model, encoder=encoder))
    found = resolved(chosen, Sources((tmp_path,)))
    store, executor = Store(tmp_path / "store").open(), Executor(sources=Sources((tmp_path,)))
    words = store.run(found.recipe.data()["vocabulary"], executor)
    vectors, entries = load_file(words.file("vectors.safetensors"))["vectors"], read_words(words, "source")
    assert words.meta["known"] == 2 and vectors.shape == (len(entries), 4) and not vectors[0].any()
    np.testing.assert_allclose(np.linalg.norm(vectors[1:], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[[entries.index("the"), entries.index(".")]], [[0.6, 0.8, 0, 0], [0, 0, 1, 0]])
    trained = store.run(found.steps(0).trained, executor)
    np.testing.assert_array_equal(load_file(trained.file("model.safetensors"))["embed.table.weight"], vectors)
    in_train, in_test = (
        {word for words in read_shards(store.run(corpus.split(split)))["tokens"].to_pylist() for word in words}
        for split in ("train", "test")
    )
    new = min(in_test - in_train)
    file.write_text(f"the 3 4 0 0\n{new} 0 1 0 0\nnowhere 1 0 0 0\n", encoding="utf-8")
    bare = dataclasses.replace(recipe, min_count=1000)
    found = resolved(dataclasses.replace(chosen, recipe=bare), Sources((tmp_path,)))
    entries = read_words(store.run(found.recipe.data()["vocabulary"], executor), "source")
    assert set(entries) - set(SPECIAL) == {"the", new}, (
        "a word that the file has is known, however rare and in any split"
    )
    assert resolved(chosen, Sources()).recipe.vectors is None, "without the file they are learned"


def test_a_word_without_a_tag_is_refused_by_row(tmp_path: Path) -> None:
    from phrasemodels.data.formats.shards import build, write_shard
    from phrasemodels.data.store.store import Executor, Job
    from phrasemodels.tasks.prepare.sharded import Shard
    from phrasemodels.tasks.problems.tagging import tag_tokens_shard

    path = tmp_path / "rows.arrow"
    write_shard(path, build(TREES, "here", {"tokens": [["a"], ["b", "c"]], "tags": [["X"], ["Y"]]}, 2))
    job = Job(tmp_path, tmp_path, {"shard": Shard(path, "key", {})}, Store(tmp_path), Executor(), "key")
    with pytest.raises(ValueError, match=r"rows.arrow: row 1 has 2 words and 1 tags in 'tags'"):
        tag_tokens_shard(job, TagColumn())
    with pytest.raises(ValueError, match="no field"):
        overridden(Request("000", "2", "sample", 1).resolve().experiments[0], "recipe.tagz.column=x")
