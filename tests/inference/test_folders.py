"""Links out of a folder, pipes, devices and endless texts in folders that others made: one line, no byte of them copied or uploaded."""

import dataclasses
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from every_encoder import ENCODERS, LENGTHS, built
from loopback_hub import serving
from torch import nn

import phrasemodels
from phrasemodels import LoadedModel, Parser, folders, project
from phrasemodels.data.download.manifest import UserFiles, locate
from phrasemodels.data.store import disk_cache
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig, softmax_within
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
from phrasemodels.encoders.psan import PsanConfig
from phrasemodels.flows.cli.parse import texts_of
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.results.keep import join
from phrasemodels.flows.results.models import load as load_exported
from phrasemodels.flows.results.records import read_kept
from phrasemodels.flows.run.local import train_prepared
from phrasemodels.flows.run.trained import keep_trained
from phrasemodels.folders import MOST_TEXT, check_folder
from phrasemodels.layers.attention import identity
from phrasemodels.parsing.parser import ENGLISH
from phrasemodels.saved import MisuseError, copied, fill
from phrasemodels.verdicts import read

SECRET = "id_rsa of the user"


ATTACKS: dict[str, Callable[[Path, Path], object]] = {
    "link": Path.symlink_to,
    "pipe": lambda file, _: os.mkfifo(file),
    "device": lambda file, _: file.symlink_to("/dev/zero"),
    "endless": lambda file, _: (file.touch(), os.truncate(file, MOST_TEXT + 1)),
    "nothing": lambda file, _: file.symlink_to(file),
}


def model(to: Path) -> Path:
    config = PsanConfig(d=8, levels=2, dropout=0.0)
    torch.manual_seed(0)
    return LoadedModel(config.build(), config, {"source": ["a"]}).save_pretrained(to)


@dataclasses.dataclass(frozen=True)
class Activated:
    def build(self) -> nn.Module:
        return nn.Sequential(nn.ReLU(), nn.Dropout(0.1), nn.Linear(2, 2))


def kept(to: Path) -> Path:
    to.mkdir()
    (to / "result.json").write_text("{}")
    return to


OPENED: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "exported model": (model, phrasemodels.load),
    "exported model in the pipeline": (model, load_exported),
    "packed parser": (lambda to: Path(shutil.copytree(ENGLISH, to)), Parser.load),
    "prepared data": (
        kept,
        lambda folder: train_prepared(experiment("000/table2/sample/transformer"), 0, folder, folder),
    ),
    "kept result": (kept, lambda folder: read_kept(folder / "result.json")),
    "result to join": (kept, lambda folder: join(folder, folder)),
    "results of trainings": (kept, lambda folder: keep_trained(folder, folder.with_name("kept"), "")),
    "mirror": (kept, lambda folder: locate(UserFiles(name="text", pattern="more.txt", instructions=""), folder)),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kind", OPENED)
def test_only_regular_files_inside_of_a_folder_are_read(kind: str, attack: str, tmp_path: Path) -> None:
    make, opened = OPENED[kind]
    (secret := tmp_path / "id_rsa").write_text(SECRET)
    folder = make(tmp_path / "folder")
    ATTACKS[attack](folder / "more.txt", secret)
    with pytest.raises(ValueError, match=r"outside of the f|neither a file|leads to no file|bytes, more than") as error:
        opened(folder)
    assert "\n" not in str(error.value) and SECRET not in str(error.value)


def test_a_folder_of_texts_has_no_link_out_of_it(tmp_path: Path) -> None:
    (secret := tmp_path / "id_rsa").write_text(SECRET)
    (folder := tmp_path / "folder").mkdir()
    (folder / "a.txt").write_text("It is.")
    (folder / "b.txt").symlink_to("a.txt")
    assert [path.name for path in texts_of(folder)] == ["a.txt", "b.txt"]
    (folder / "c.txt").symlink_to(secret)
    with pytest.raises(ValueError, match=r"c.txt is a link to .*outside of the folder"):
        texts_of(folder)


def test_a_folder_of_scores_has_no_link_out_of_it(tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    for name in ("folder/a.csv", "b.csv"):
        (tmp_path / name).write_text(f"model,seed,accuracy\n{name},0,0.8\n")
    (folder / "latest").symlink_to(".")
    (folder / "gone.csv").symlink_to("nothing")
    assert [one.row for one in read(folder)] == ["folder/a.csv"]
    (folder / "c.csv").symlink_to(tmp_path / "b.csv")
    with pytest.raises(ValueError, match=r"c.csv is a link to .*outside of the folder"):
        [*read(folder)]


@pytest.mark.timeout(60)
def test_a_folder_whose_links_lead_in_a_circle_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "own.py").write_text("")
    for name in "abcdef":
        (tmp_path / "sub" / name).symlink_to(".")
    monkeypatch.setattr(project, "users_places", lambda: [tmp_path])
    assert len(disk_cache._of_users()[0]) == len(disk_cache.states([tmp_path])[str(tmp_path)]) == 1
    monkeypatch.setattr(folders, "MOST_FILES", 1)
    with pytest.raises(ValueError, match="has more than 1 folders"):
        disk_cache.contents(tmp_path)


def test_a_link_that_comes_after_the_loading_is_neither_saved_nor_uploaded(tmp_path: Path) -> None:
    (secret := tmp_path / "id_rsa").write_text(SECRET)
    loaded = LoadedModel.from_pretrained(model(tmp_path / "a"))
    (tmp_path / "a" / "notes.txt").symlink_to(secret)
    (tmp_path / "a" / ".env").write_text(SECRET)
    with pytest.raises(ValueError, match="outside of the folder; copy that file"):
        loaded.save_pretrained(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with serving() as hub:
        with pytest.raises(ValueError, match="outside of the folder"):
            loaded.push_to_hub("user/x", endpoint=hub.url, token="hf_x")
        (tmp_path / "a" / "notes.txt").unlink()
        loaded.push_to_hub("user/x", endpoint=hub.url, token="hf_x")
        assert SECRET.encode() not in b"".join(hub.repositories["user/x"].values())


def test_links_inside_of_a_folder_and_to_the_files_of_a_snapshot_are_read(tmp_path: Path) -> None:
    folder = model(tmp_path / "models--user--x" / "snapshots" / "1")
    (blobs := tmp_path / "models--user--x" / "blobs").mkdir()
    (folder / "card.json").rename(blobs / "0")
    (folder / "card.json").symlink_to(Path("..", "..", "blobs", "0"))
    (folder / "again.json").symlink_to("library.json")
    phrasemodels.load(folder)
    (folder / "card.json").unlink()
    (folder / "card.json").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text(SECRET)
    with pytest.raises(ValueError, match="outside of the folder"):
        check_folder(folder)


@pytest.mark.parametrize(("name", "other"), [("0", nn.Tanh()), ("1", nn.Dropout(0.5)), ("0", nn.Sequential(nn.ReLU()))])
def test_a_layer_without_weights_that_was_replaced_is_not_saved_as_the_first(name, other, tmp_path: Path) -> None:
    config = Activated()
    loaded = LoadedModel(config.build(), config, {"source": ["a"]})
    loaded.save_pretrained(tmp_path / "a")
    setattr(loaded.module, name, other)
    with pytest.raises(ValueError, match=f"^{name} is .*, but the configuration makes"):
        loaded.save_pretrained(tmp_path / "b")
    assert not (tmp_path / "b").exists()


CHANGES = {
    "sigma of layers.0.inside is identity at": lambda m: setattr(m.layers[0].inside, "sigma", identity),
    "attend of layers.0.across is softmax_within at": lambda m: setattr(m.layers[0].across, "attend", softmax_within),
    "hook of layers.0.across.query is .*<lambda> at": lambda m: m.layers[0].across.query.register_forward_hook(lambda *x: x[2] * 2),
    "hook of layers.0 is .*<lambda> at": lambda m: m.layers[0].register_forward_pre_hook(lambda *x: None),
    "forward of the model is .*<lambda> at": lambda m: setattr(m, "forward", lambda *x: x[0]),
    "scale of layers.0.attention is 2.0, but": lambda m: setattr(m.layers[0].attention, "scale", 2),
}  # fmt: skip


@pytest.mark.parametrize("said", CHANGES)
def test_code_that_was_changed_after_the_build_is_not_saved_as_the_first(said: str, tmp_path: Path) -> None:
    size = {"d": 8, "heads": 2, "layers": 1, "d_ff": 8}
    config = PartitionedEncoderConfig(8, 1, 1, 8, d_kv=4, top=None) if "scale" in said else HypernodeEncoderConfig(**size)
    loaded = LoadedModel(config.build(), config)
    loaded.save_pretrained(tmp_path / "a")
    CHANGES[said](loaded.module)
    with pytest.raises(ValueError, match=f"^{said}.*change the configuration, too$"):
        loaded.save_pretrained(tmp_path / "b")


@pytest.mark.parametrize("name", ENCODERS)
def test_a_used_encoder_is_saved(name: str, tmp_path: Path) -> None:
    encoder, structure = built(name)
    encoder.train()(torch.randn(3, 5, 8).requires_grad_(), LENGTHS, *structure).sum().backward()
    LoadedModel(encoder, ENCODERS[name][0]).save_pretrained(tmp_path / "a")


@dataclasses.dataclass(frozen=True)
class Holding:
    dtype: str

    def build(self) -> nn.Module:
        with ThreadPoolExecutor(1) as pool:  # another thread builds a large model meanwhile
            pool.submit(lambda: nn.Sequential(*(nn.Linear(1, 1) for _ in range(200)))).result()
        made = nn.ModuleList([nn.Module(), nn.Linear(2, 2), nn.Module()])
        shared = torch.zeros(1, dtype=getattr(torch, self.dtype)).expand(3)
        for n in (0, 2):
            made[n].register_buffer("x", shared, persistent=n == 2)
        return made


@pytest.mark.parametrize("dtype", ["float32", "complex64", "uint16", "float8_e4m3fn"])
def test_a_buffer_of_any_type_shared_and_expanded_comes_back(dtype, tmp_path: Path) -> None:
    loaded = LoadedModel(Holding(dtype).build(), Holding(dtype))
    fill(loaded.module, copied(loaded.module) | {"2.x": torch.arange(3).to(getattr(torch, dtype))})
    loaded.save_pretrained(tmp_path / "a")
    assert phrasemodels.load(tmp_path / "a", Holding).module[2].x.real.float().tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match=r"x is torch\.complex128, which a file of weights cannot have"):
        LoadedModel(Holding("complex128").build(), Holding("complex128")).save_pretrained(tmp_path / "b")


@pytest.mark.parametrize(
    "words", [{"source": ["a", "\n"]}, {"source": ["x\ry"]}, {"../x": []}, {"a/b": ["c"]}, {"": []}]
)
def test_a_vocabulary_that_would_be_read_otherwise_is_refused(words, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^words has '.*': a vocabulary's name|^words\['source'\] has '.*\\[nr].*': an entry is"
    ):
        LoadedModel(Activated().build(), Activated(), words).save_pretrained(tmp_path / "a")
    kept = ["\u2028", "\x85", "\x0b", "", " a ", "\t", ""]
    LoadedModel(Activated().build(), Activated(), {"a.b": kept}).save_pretrained(tmp_path / "a")
    assert phrasemodels.load(tmp_path / "a", Activated).words == {"a.b": kept}


@dataclasses.dataclass(frozen=True)
class Reading:
    on: str | None = None

    def build(self) -> nn.Module:
        made = nn.ModuleList([nn.Linear(1, 1), nn.BatchNorm1d(1)])
        with torch.device(self.on) if self.on else nullcontext():
            return made.append(nn.Dropout(torch.linspace(0, 0.5, 2).tolist()[1]))


def test_what_a_process_or_a_build_prevents_is_said_and_not_to_export_again(tmp_path: Path) -> None:
    says = r"but test_folders\.py:\d+ reads values of tensors: make them .*device\(\"cpu\"\)` \(.*meta tensor"
    with pytest.raises(MisuseError, match=rf"^phrasemodels.load builds .*{says}; no data!\)$"):
        LoadedModel(Reading().build(), Reading()).save_pretrained(tmp_path / "a")
    LoadedModel(Reading("cpu").build(), Reading("cpu")).save_pretrained(tmp_path / "b")
    library = tmp_path / "b" / "library.json"
    library.write_text(library.read_text().replace('"cpu"', "null"))
    with pytest.raises(MisuseError, match=rf"b: .*{says}; no data!\)$"):
        phrasemodels.load(tmp_path / "b", Reading)
    library.write_text(library.read_text().replace("null", '"cpu"'))
    for load in (lambda: phrasemodels.load(tmp_path / "b", Reading), Parser.load):
        with torch.device("meta"), pytest.raises(MisuseError, match=r"load outside of torch\.device\('meta'\)$"):
            load()
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(MisuseError, match=r"default type here: call torch\.set_default_dtype\(torch\.float32\)$"):
            phrasemodels.load(tmp_path / "b", Reading)
    finally:
        torch.set_default_dtype(torch.float32)
    assert phrasemodels.load(tmp_path / "b", Reading).module[2].p == 0.5


def test_a_folder_that_is_gone_and_a_card_of_tensors_are_named(tmp_path: Path) -> None:
    config = PsanConfig(4, levels=1)
    with pytest.raises(ValueError, match=r"^the card has what JSON cannot have \(.* Tensor .*\): give numbers"):
        LoadedModel(config.build(), config, card={"loss": torch.tensor(1.0)}).save_pretrained(tmp_path / "a")
    LoadedModel(config.build(), config, card={"licences": "MIT"}).save_pretrained(tmp_path / "a")
    assert "- Licences of the data: MIT\n" in (tmp_path / "a" / "README.md").read_text()
    loaded = phrasemodels.load(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(ValueError, match=r"a, which this model was loaded from, is gone: load it"):
        loaded.save_pretrained(tmp_path / "c")
