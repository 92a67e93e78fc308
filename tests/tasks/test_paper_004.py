"""The paper's rows of paper 004 go from files to scores, here on stand-ins: a generated treebank in the layout of the Penn
Treebank, with predicted tags beside it, and a small XLNet with random weights."""

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_pretrained import save

from phrasemodels.data.corpora import treebank
from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.download import manifest
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.formats.conllu import sentence_to_conllu
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.store import Executor, Store
from phrasemodels.encoders.inputs import PretrainedConfig, TagsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
from phrasemodels.flows.experiments.catalogue import experiment, resolved
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.layers.labels import LabelAttentionConfig
from phrasemodels.models.parser import LearnedPositions, ParserConfig, as_released
from phrasemodels.parsing.ids import PLAIN, Pieces
from phrasemodels.tasks.prepare.sharded import read_shards

SECTIONS = {"train": ("02", 12), "dev": ("22", 3), "test": ("23", 3)}
WRONG = "CD"  # a tag of another program, which the treebank has elsewhere


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """Write a treebank, its dependencies and its predicted tags, and a small XLNet, into a folder that users supply."""
    folder = tmp_path / "supplied" / "penn_treebank"
    tables = Treebank().tables({split: count for split, (_, count) in SECTIONS.items()})
    for split, (section, _) in SECTIONS.items():
        rows = tables[split].to_pylist()
        trees = [row["tree"].replace("(ROOT ", "( ", 1) for row in rows]
        trees[0] = trees[0].replace("(. .)", "(-RRB- -RRB-)")
        rows[0]["tokens"][-1] = re.findall(r" ([^ ()]+)\)", trees[0])[-1]
        (folder / section).mkdir(parents=True)
        (folder / section / f"wsj_{section}01.mrg").write_text("\n".join(trees) + "\n", encoding="utf-8")
        columns = ("tags", "heads", "relations")
        blocks = [sentence_to_conllu(row["tokens"], **{name: row[name] for name in columns}) for row in rows]
        (folder / f"{split}.conllu").write_text("\n".join(blocks) + "\n", encoding="utf-8")
        tags = "".join(" ".join([WRONG, *row["tags"][1:]]) + "\n" for row in rows)
        (folder / f"{split}.tags").write_text(tags, encoding="utf-8")
    save("xlnet", tmp_path / "supplied" / "xlnet-large-cased")
    made = tmp_path / "manifests"
    shutil.copytree(manifest.MANIFESTS, made)
    path = made / "penn_treebank.toml"
    path.write_text(re.sub(r"(?m)^rows = .*\n", "", path.read_text(encoding="utf-8")), encoding="utf-8")
    monkeypatch.setattr(manifest, "MANIFESTS", made)
    return Sources((tmp_path / "supplied",), offline=True)


def small(chosen: Experiment) -> Experiment:
    """The experiment with narrow layers and three updates; all else is the paper's."""
    top = dataclasses.replace(chosen.model.encoder.top, labels=7, d_kv=8, d_out=8, d_ff=16)
    encoder = dataclasses.replace(chosen.model.encoder, d=32, heads=2, d_kv=8, d_ff=16, top=top)
    model = dataclasses.replace(chosen.model, encoder=encoder, hidden=8, arc_hidden=8)
    train = dataclasses.replace(chosen.train, steps=3, batch_rows=5, evaluate_every=3, checkpoint_every=3)
    return dataclasses.replace(chosen, model=model, train=train)


@pytest.mark.parametrize("name", ["004/table2/paper/3-ff-drop", "004/table3/paper/3-ff-released"])
def test_a_row_at_the_papers_size_goes_from_files_to_scores(name: str, sources: Sources, store: Store) -> None:
    with pytest.raises(ValueError, match=r"penn_treebank: .* must be supplied by the user"):
        small(resolved(experiment(name), Sources())).steps(0)
    found = resolved(experiment(name), sources)
    assert found.comparable and found.model.inputs[0].folder
    chosen = small(found)
    executor = Executor(sources=sources)
    made = {stage: store.run(step, executor) for stage, step in chosen.steps(0).stages.items()}
    scores = json.loads(made["scores"].file("scores.json").read_text())
    assert {"f1", "uas", "las", "precision", "recall"} <= scores.keys()
    data = chosen.recipe.data()
    rows, numbers = (read_shards(store.run(data[part], executor)) for part in ("raw", "test"))
    first = {name: {tags[0] for tags in rows[name].to_pylist()} for name in ("predicted", "tags")}
    assert first["predicted"] == {WRONG} != first["tags"]
    entries = store.run(data["vocabulary"], executor).file("tags.txt").read_text().split("\n")
    for ids, tags in zip(numbers["tags"].to_pylist(), rows["predicted"].to_pylist(), strict=True):
        assert [entries[tag] for tag in ids[1:-1]] == tags
    parses = read_shard(made["predictions"].file("predictions.arrow"))["tags"].to_pylist()
    assert parses == rows["predicted"].to_pylist(), "no tagger is trained: a parse has the tags that were read"
    loaded = chosen.recipe.loaded(chosen.model, made | {"vocabulary": store.run(data["vocabulary"], executor)})
    with pytest.raises(ValueError, match=r"reads the column 'predicted' .* take a parser that predicts tags"):
        loaded.predict(["a"])


def test_predicted_tags_of_another_number_of_words_are_refused(sources: Sources) -> None:
    folder = sources.mirrors[0] / "penn_treebank"
    files = {"brackets": folder / "22", "conllu": folder / "dev.conllu", "tags": folder / "dev.tags"}
    lines = files["tags"].read_text().splitlines()
    files["tags"].write_text("\n".join([lines[0] + " NN", *lines[1:]]))
    with pytest.raises(ValueError, match=r"dev.tags, sentence 1: \d+ tags for \d+ words of the treebank"):
        treebank.read_with_predicted_tags(files, 500)
    files["tags"].write_text(lines[0])
    with pytest.raises(ValueError, match=r"dev.tags: 1 sentences, the treebank has 3"):
        treebank.read_with_predicted_tags(files, 500)


def test_heads_may_come_from_another_file_than_words_and_tags(sources: Sources) -> None:
    folder = sources.mirrors[0] / "penn_treebank"
    table = treebank.read_with_arcs({"brackets": folder / "22", "arcs": folder / "dev.conllu"}, 500)
    both = treebank.read({"brackets": folder / "22", "conllu": folder / "dev.conllu"}, 500)
    assert table["heads"].equals(both["heads"]) and table["relations"].equals(both["relations"])
    assert [rows["tags"][0].as_py()[-1] for rows in (table, both)] == ["-RRB-", "."]


def test_a_sentence_with_wrong_heads_or_other_words_is_left_out(sources: Sources) -> None:
    folder = sources.mirrors[0] / "penn_treebank"
    files = {"brackets": folder / "22", "arcs": folder / "dev.conllu"}
    text = files["arcs"].read_text()
    rows = [line.split("\t") for line in text.splitlines()]
    words = [row for row in rows if row[0].isdigit()]
    ends = [number for number, row in enumerate(words) if row[0] == "1"]
    words[0][1] += "-other"  # the first sentence
    words[ends[1]][6] = "1"  # the second: a word that is its own head
    files["arcs"].write_text("\n".join("\t".join(row) for row in rows) + "\n\n")
    reasons = treebank.read_with_arcs(files, 500)["reason"].to_pylist()
    assert reasons[0] == treebank.OTHER_WORDS and reasons[1] == "cyclic dependencies" and not any(reasons[2:])


def test_brackets_and_quotes_of_treebanks_are_read_as_those_of_text(tmp_path: Path) -> None:
    divide = Pieces(save("xlnet", tmp_path / "xlnet"))
    assert divide(["-LRB-", "a", "-RRB-", "``", "b", "''", "n't"]) == divide(["(", "a", ")", '"', "b", "”", "n't"])
    assert [PLAIN[word] for word in ("-LSB-", "-RSB-", "-LCB-", "-RCB-", "`", "—")] == ["[", "]", "{", "}", "'", "--"]


def deviation(*sizes: int, heads: int) -> float:
    """Xavier's rule with the sizes of a tensor (heads, inputs, outputs) as PyTorch reads them: outputs are a filter's size."""
    inputs, outputs = sizes
    return math.sqrt(2 / (inputs * outputs + heads * outputs))


def test_weights_start_as_released() -> None:
    top = LabelAttentionConfig(labels=112, d_ff=0)
    config = ParserConfig(PartitionedEncoderConfig(layers=1, top=top), (TagsConfig(9),), hidden=6, arc_hidden=7)
    torch.manual_seed(0)
    released = {"positions": LearnedPositions, "tag_weight": 0.0, "start": as_released}
    parser = dataclasses.replace(config, **released, labels=5, relations=4, tags=9).build()
    assert deviation(512, 64, heads=112) == pytest.approx(0.0071, abs=5e-5)
    layer, attention = parser.encoder.top, parser.encoder.layers[0].attention
    for weight in (layer.attend.key.content, layer.attend.value.position):
        assert weight.std().item() == pytest.approx(deviation(512, 64, heads=112), rel=0.01)
    for linear in (attention.query.content, attention.value.position):
        assert linear.weight.std().item() == pytest.approx(deviation(512, 32, heads=8), rel=0.02)
    assert layer.attend.query.std().item() == pytest.approx(math.sqrt(2 / (112 + 64)), rel=0.03)
    bound = 1 / math.sqrt(1024)  # of PyTorch's linear maps
    assert 0.99 * bound < layer.combine.reduce.weight.abs().max().item() <= bound
    assert parser.arc_scores.weight.abs().min() > 0 and parser.relation_scores.weight[:, -1, -1].abs().max() == 0
    assert parser.positions.table.shape == (300, 512) and parser.tag_scores is None


def test_tags_and_words_are_dropped_with_one_mask_a_sentence() -> None:
    chosen = experiment("004/table2/paper/3-ff-drop").model
    assert chosen.inputs == (PretrainedConfig("xlnet-large-cased"), TagsConfig(vector_dropout=0.2))
    torch.manual_seed(0)
    part = dataclasses.replace(TagsConfig(vector_dropout=0.5), size=4).build(50)
    torch.nn.init.ones_(part.table.weight)
    sentences = type("Tags", (), {"tags": torch.from_numpy(np.full((3, 6), 2))})
    dropped = part(sentences)
    assert set(dropped.unique().tolist()) == {0.0, 2.0} and torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert (part.eval()(sentences) == 1).all()
