"""A model with a pretrained encoder is exported and read again: weights, architecture and tokeniser, and nothing from a hub."""

import dataclasses
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import phrasemodels
from phrasemodels.data.store.store import Store
from phrasemodels.encoders.inputs import CONFIG, PretrainedConfig, encoder_settings
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.results import models
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.parsing.ids import Pieces

ROW = "004/table1/sample/2-ff-drop"
SENTENCE = "the red house sleeps ."


def bert(folder: Path) -> Path:
    """Write a small BERT as transformers saves it, with a fast tokeniser; return the folder."""
    transformers = pytest.importorskip("transformers")
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefghijklmnopqrstuvwxyz.",
        *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
    ]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=len(pieces), **sizes)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[models.Model]:
    """Train a parser with a small pretrained encoder for two updates; yield its model."""
    folder = tmp_path_factory.mktemp("trained")
    name = str(bert(folder / "bert"))
    row = experiment(ROW, ("train.steps=2", "train.evaluate_every=2"))
    row = dataclasses.replace(
        row,
        model=dataclasses.replace(row.model, inputs=(PretrainedConfig(name, offline=True),)),
        recipe=dataclasses.replace(row.recipe, divide=Pieces(name, offline=True)),
    )
    store = Store(folder / "store").open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "find_experiment", lambda _: row)
        artifact = store.run(row.steps(0).trained)
        yield models.stored(Lineage(store), artifact, row)


@pytest.fixture
def exported(trained: models.Model, tmp_path: Path) -> Path:
    return trained.export(tmp_path / "out")


def test_a_model_with_a_pretrained_encoder_is_exported_and_answers_the_same_without_it(
    trained: models.Model, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = trained.predict([SENTENCE])
    source = Path(trained.config.inputs[0].name)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **_: pytest.fail(f"asked for {a[0]}"))
    source.rename(source.parent / "gone")
    again = models.load(exported)
    assert again.predict([SENTENCE]) == answer
    again.export(tmp_path / "copy")
    assert models.load(tmp_path / "copy").predict([SENTENCE]) == answer
    (source.parent / "gone").rename(source)
    loaded = phrasemodels.load(tmp_path / "copy")
    for name, weight in loaded.module.state_dict().items():
        assert torch.equal(weight, phrasemodels.load(exported).module.state_dict()[name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoModel": "evil.Model"}}, "asks for custom code"),
        ({"quantization_config": {"quant_method": "evil"}}, "asks for custom code"),
        ({"_attn_implementation": "kernels-community/flash"}, "must be eager or sdpa"),
        ({"model_type": "llava"}, "is none of"),
        ({"hidden_size": 1 << 40}, "is no number of at most"),
        ({"num_hidden_layers": 1_000_000}, "the configuration asks for more weights"),
        ({"hidden_size": 32}, "do not fit the model"),
        ({"vocab_size": "x"}, "config.json"),
    ],
)
def test_the_architecture_of_an_exported_encoder_is_checked(
    exported: Path, changes: dict[str, Any], message: str
) -> None:
    file = exported / "encoder" / CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    for load in (models.load, phrasemodels.load):
        with pytest.raises(ValueError, match=message):
            load(exported)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "special_pieces.json"])
@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"cls_token_id": 99999}'])
def test_a_damaged_encoder_is_named(exported: Path, file: str, content: str | None) -> None:
    (exported / "encoder" / file).unlink()
    if content is not None:
        (exported / "encoder" / file).write_text(content)
    with pytest.raises(ValueError, match="out"):
        models.load(exported).predict([SENTENCE])


def test_an_encoder_with_code_of_its_own_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = bert(tmp_path / "bert")
    settings = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(settings | {"auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(ValueError, match="asks for custom code"):
        encoder_settings(folder)
    with pytest.raises(ValueError, match="asks for custom code"):
        PretrainedConfig(str(folder)).encoder()


def test_a_pretrained_encoder_is_read_from_safetensors_alone(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "ran"), "w")

    folder = bert(tmp_path / "bert")
    (folder / "model.safetensors").unlink()
    torch.save({"w": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="safetensors"):
        PretrainedConfig(str(folder), offline=True).encoder()
    assert not (tmp_path / "ran").exists()
