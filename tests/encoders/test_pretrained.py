"""Parsers over encoders of the transformers library, here tiny ones with random weights on disk."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_pretrained import WORDS, save

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.store.store import Store
from phrasemodels.encoders.inputs import ParserInput, PretrainedConfig, TagsConfig, content_of
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.models.parser import Jointly
from phrasemodels.parsing.ids import Pieces, as_written
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.problems.parse_data import ParsingObjective


def test_an_encoder_whose_files_changed_since_its_digest_was_taken_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    save("bert", folder)
    config = PretrainedConfig(f"bert@{content_of(folder)}", str(folder))
    config.build(4)
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(known | {"layer_norm_eps": 0.1}))
    for load in (lambda: config.build(4), lambda: Pieces(config.name, config.folder)(["a"])):
        with pytest.raises(ValueError, match=r"bert: its files differ from bert@.*'s; put those there again"):
            load()


@pytest.mark.parametrize("kind", ["bert", "xlnet", "modernbert"])
def test_a_pretrained_encoder_is_trained_further(kind: str, tmp_path: Path) -> None:
    name = save(kind, tmp_path / kind)
    divide = Pieces(name)
    assert divide(["ab", "", "c"]) == {"pieces": [2, *(WORDS.index(w) for w in ("a", "##b")), 1, WORDS.index("c"), 3],
                                       "last": [0, 2, 3, 4, 5]}  # fmt: skip
    known = experiment("004/table3/sample/3-ff-drop")
    corpus = SampleCorpus(train=20, dev=5, test=5, records=Treebank())
    recipe = dataclasses.replace(known.recipe, corpus=corpus, divide=divide, problem=ParsingObjective())
    store = Store(tmp_path / "store").open()
    data = {what: store.run(step) for what, step in recipe.data().items()}
    model = dataclasses.replace(known.model, inputs=(PretrainedConfig(name), TagsConfig()))
    parser = recipe.problem.configure(model, data["vocabulary"]).build()
    examples = recipe.problem.examples([shard.path for shard in shards(data["train"])])
    batch = examples.batch(np.arange(3))

    parser.eval()
    alone = [examples.batch(np.array([row])).sentences for row in range(3)]
    together = parser.encode(batch.sentences)[1]
    for row, one in enumerate(alone):
        n = int(one.lengths)
        torch.testing.assert_close(together[row, : n + 1], parser.encode(one)[1][0], atol=1e-4, rtol=1e-4)

    parser.train()
    optimiser = torch.optim.Adam(parser.parameters(), 5e-3)
    losses = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = parser.loss(batch.sentences, batch.gold)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    trained = [
        p for name, p in parser.inputs[0].encoder.named_parameters() if ".layer" in name or name.startswith("layers.")
    ]
    assert trained and any(p.grad is not None and p.grad.abs().max() > 0 for p in trained)
    assert parser.eval().parse(batch.sentences, Jointly()).heads.shape == batch.gold.heads.shape


def test_brackets_and_quotes_of_treebanks_are_those_of_running_text(tmp_path: Path) -> None:
    divide = Pieces(save("bert", tmp_path / "bert"))
    treebank, written = ["``", "-LRB-", "do", "n't", "''", "-rcb-"], ['"', "(", "do", "n't", '"', "}"]
    assert divide(treebank) == divide(written) and divide(["(", '"'])["pieces"] == [
        2,
        *(WORDS.index(w) for w in '("'),
        3,
    ]
    assert as_written("1\\/2") == "1/2"


def test_missing_special_pieces_and_too_long_sentences_are_refused(tmp_path: Path) -> None:
    name = save("bert", tmp_path / "bert", cls_token=None)
    with pytest.raises(ValueError, match="its tokeniser lacks a CLS"):
        Pieces(name)(["a"])
    long = torch.zeros(1, 513, dtype=torch.int64)
    sentence = ParserInput(*[long[:, :3]] * 4, torch.tensor([1]), long, torch.tensor([513]), long[:, :3])
    with pytest.raises(ValueError, match="513 pieces, but this encoder reads 512"):
        PretrainedConfig(name).build(4)(sentence)


@pytest.mark.parametrize("part", ["encoder", "tokeniser"])
def test_code_in_the_folder_of_an_encoder_is_never_run(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "yes")
    folder = tmp_path / "bert"
    name = save("bert", folder)
    for file in ("config.json", "tokenizer_config.json"):
        theirs = {"model_type": "theirs", "tokenizer_class": "Theirs"}
        named = {"AutoConfig": "theirs.C", "AutoModel": "theirs.M", "AutoTokenizer": ["theirs.T", None]}
        content = json.loads((folder / file).read_text()) | theirs | {"auto_map": named}
        (folder / file).write_text(json.dumps(content))
    (folder / "theirs.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    with pytest.raises(ValueError, match=r"bert: .*custom code.*; put its folder, .* without code of its own"):
        PretrainedConfig(name).build(4) if part == "encoder" else Pieces(name)(["a"])
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", ""),
        ("model.safetensors", "no weights at all"),
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", '{"model_type": "bert", "hidden_size": "x"}'),
        ("config.json", '{"model_type": "bert", "hidden_size": 24}'),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "["),
    ],
)
def test_a_damaged_encoder_is_refused_in_one_line(file: str, content: str, tmp_path: Path) -> None:
    name = save("bert", tmp_path / "bert")
    (tmp_path / "bert" / file).write_text(content)
    with pytest.raises(ValueError, match=r"bert: .+; put its folder, as transformers saves it") as error:
        Pieces(name)(["a"]) if file.startswith("tokenizer") else PretrainedConfig(name).build(4)
    assert "\n" not in str(error.value)


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install '.\[pretrained\]'"):
        PretrainedConfig("x").build(4)
