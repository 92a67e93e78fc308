"""Models are saved, loaded and uploaded by the methods that users of the Hugging Face Hub know; the hub is at 127.0.0.1."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from loopback_hub import Hub, serving
from torch.nn import functional as F

import phrasemodels
from phrasemodels import LoadedModel, Parser
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.psan import PsanConfig
from phrasemodels.inference.problems import Tagging, Translation
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.parsing.saved import ABOUT, ENGLISH, _parts
from phrasemodels.saved import LIBRARY, readme

SENTENCE = "The red house doesn't sleep."


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as served:
        yield served


def tiny(**card: object) -> LoadedModel:
    """Return a translator of three words that says how it answers."""
    torch.manual_seed(0)
    config = TranslationConfig(HypernodeEncoderConfig(8, 2, 1, 8, longest=2), 7, 7, 1, 8)
    entries = ["<pad>", "<unk>", "<s>", "</s>", "red", "house", "sleeps"]
    how = Translation("spaces", "en", "adjacent", 2, True, "en", search={"beam": 2})
    return LoadedModel(config.build().eval(), config, {"source": entries, "target": entries}, card, predictor=how)


def test_a_model_made_in_memory_is_saved_and_loaded(tmp_path: Path) -> None:
    model = tiny(name="tiny")
    again = LoadedModel.from_pretrained(model.save_pretrained(tmp_path / "a"))
    texts = ["red house", "sleeps"]
    assert again.predict(texts) == model.predict(texts) and again.card["name"] == "tiny"
    with pytest.raises(ValueError, match=r"exists: name another place, .*force=True"):
        model.save_pretrained(tmp_path / "a")


def test_an_encoder_alone_is_saved_with_its_configuration(tmp_path: Path) -> None:
    config = PsanConfig(d=8, levels=2, dropout=0.0)
    encoder = config.build().eval()
    again = LoadedModel.from_pretrained(LoadedModel(encoder, config).save_pretrained(tmp_path / "encoder"))
    inputs = torch.randn(1, 3, 8), torch.tensor([3]), torch.zeros(1, 2, 3, dtype=torch.long)
    assert again.config == config and torch.equal(again.module(*inputs), encoder(*inputs))
    with pytest.raises(ValueError, match="nothing says how it answers"):
        again.predict(["a"])


def test_weights_that_were_trained_further_are_saved_without_the_manifests_of_the_others(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path / "a")
    (tmp_path / "a" / "model" / "manifest.json").write_text("{}")
    model = phrasemodels.load(tmp_path / "a")
    assert (model.save_pretrained(tmp_path / "b") / "model" / "manifest.json").is_file()
    with torch.no_grad():
        next(model.module.parameters()).add_(1)
    assert not (model.save_pretrained(tmp_path / "c") / "model" / "manifest.json").exists()
    changed = phrasemodels.load(tmp_path / "c").module.parameters()
    assert torch.equal(next(changed), next(model.module.parameters()))
    with torch.no_grad():
        next(model.module.parameters())[0] = float("nan")
    with pytest.raises(ValueError, match="are not finite"):
        model.save_pretrained(tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_model_travels_over_a_hub(hub: Hub, tmp_path: Path) -> None:
    model = tiny(licences=["CC0-1.0"], redistributable=True)
    pushed = model.push_to_hub("user/tiny", endpoint=hub.url, token="hf_secret")
    assert pushed.startswith(f"{hub.url}/user/tiny/commit/") and "Bearer hf_secret" in hub.tokens
    files = {"library.json", "card.json", "README.md", "model/model.safetensors", "vocabulary/source.txt"}
    assert files <= hub.repositories["user/tiny"].keys()
    hub.repositories["user/tiny"]["evil.py"] = b"raise SystemExit"
    again = LoadedModel.from_pretrained("user/tiny", endpoint=hub.url, cache_dir=tmp_path / "cache")
    assert again.predict(["red house sleeps"]) == model.predict(["red house sleeps"])
    assert again.folder is not None and not list(again.folder.rglob("*.py")), "no code is downloaded"


def test_the_table_of_scores_has_five_columns_whatever_a_signature_holds() -> None:
    score = {"value": 26.0, "mean": 25.0, "half_width": 1.5, "seeds": 3, "how": "nrefs:1|case:lc"}
    page = readme({"experiment": "a", "scores": {"bleu": score}}, "", "translation")
    assert "| bleu | 26.00 | 25.00 ± 1.50 | 3 | nrefs:1\\|case:lc |" in page


def test_a_parser_travels_over_a_hub(hub: Hub, tmp_path: Path) -> None:
    parser = Parser.load()
    parser.push_to_hub("user/english", endpoint=hub.url, token="hf_x")
    (found,) = Parser.from_pretrained("user/english", endpoint=hub.url, cache_dir=tmp_path / "cache").parse(SENTENCE)
    (expected,) = parser.parse(SENTENCE)
    assert found == expected


def test_a_model_whose_data_may_not_be_passed_on_needs_a_private_repository(hub: Hub) -> None:
    model = tiny(licences=["LDC"], redistributable=False)
    with pytest.raises(ValueError, match=r"licences: LDC\): push_to_hub\('user/tiny', private=True\)"):
        model.push_to_hub("user/tiny", endpoint=hub.url, token="hf_x")
    model.push_to_hub("user/tiny", endpoint=hub.url, token="hf_x", private=True)
    assert hub.private == {"user/tiny": True}
    hub.private["user/tiny"] = False
    with pytest.raises(ValueError, match="user/tiny is public: make it private"):
        model.push_to_hub("user/tiny", endpoint=hub.url, token="hf_x", private=True)


def test_a_repository_that_is_not_there_or_holds_another_model_is_one_line(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not here"):
        LoadedModel.from_pretrained("user/none", endpoint=hub.url, cache_dir=tmp_path)
    hub.repositories["user/other"] = {"config.json": b"{}"}
    with pytest.raises(ValueError, match=f"there is no {LIBRARY}"):
        LoadedModel.from_pretrained("user/other", endpoint=hub.url, cache_dir=tmp_path)


WITHOUT = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "huggingface_hub pyarrow duckdb ray prefect mlflow pydantic scipy typer tokenizers".split():
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
from phrasemodels import LoadedModel, load
print(load(sys.argv[1]).predict(["red house"]))
try:
    LoadedModel.from_pretrained("user/model")
except ValueError as error:
    print(error)
"""


def test_a_folder_is_loaded_and_answers_without_any_other_library(tmp_path: Path) -> None:
    model = tiny()
    folder = model.save_pretrained(tmp_path / "a")
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(folder)], capture_output=True, text=True)
    answers, said = done.stdout.splitlines()
    assert answers == str(model.predict(["red house"])), done.stderr
    assert said == "names on a hub need huggingface_hub: pip install huggingface_hub, or give a folder"


@pytest.mark.parametrize(
    "wrong",
    [{"problem": "os:system"}, {"problem": "Translation", "tokeniser": "x", "evil": 1}, {}, [], "x", {"problem": ["Translation"]}],
    ids=str,
)  # fmt: skip
def test_what_a_folder_says_of_its_answers_is_checked(wrong: object, tmp_path: Path) -> None:
    folder = tiny().save_pretrained(tmp_path / "a")
    about = json.loads((folder / LIBRARY).read_text())
    (folder / LIBRARY).write_text(json.dumps(about | {"predictor": wrong}))
    with pytest.raises(ValueError, match="this model cannot be read"):
        phrasemodels.load(folder)


def test_a_size_beyond_all_memory_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tiny().save_pretrained(tmp_path / "a")
    library = (folder / LIBRARY).read_text()
    (folder / LIBRARY).write_text(library.replace('"source_vocabulary": 7', f'"source_vocabulary": {10**25}'))
    with pytest.raises(ValueError, match="this model cannot be read") as error:
        phrasemodels.load(folder)
    assert "\n" not in str(error.value)


def test_a_vocabulary_that_is_missing_or_too_short_is_refused(tmp_path: Path) -> None:
    folder = tiny().save_pretrained(tmp_path / "a")
    file = folder / "vocabulary" / "target.txt"
    file.write_text(file.read_text().removesuffix("\n").rpartition("\n")[0] + "\n")
    with pytest.raises(ValueError, match=r"target has 6 entries, target_vocabulary of the model is 7"):
        phrasemodels.load(folder)
    file.unlink()
    with pytest.raises(ValueError, match="target has 0 entries"):
        phrasemodels.load(folder)


def test_a_tokeniser_of_ones_own_is_passed(tmp_path: Path) -> None:
    model = tiny()
    name = f"{reversed_words.__module__}:{reversed_words.__qualname__}"
    own = dataclasses.replace(model, predictor=dataclasses.replace(model.predictor, tokeniser=name))
    folder = own.save_pretrained(tmp_path / "own")
    with pytest.raises(ValueError, match=r"its tokeniser .* is not of this library; pass the function"):
        phrasemodels.load(folder).predict(["red house"])
    assert phrasemodels.load(folder, reversed_words).predict(["house red"]) == model.predict(["red house"])


def reversed_words(text: str, language: str) -> list[str]:
    return text.split()[::-1]


@dataclasses.dataclass(frozen=True)
class OwnConfig(PsanConfig):
    """A configuration of a user."""

    @dataclasses.dataclass(frozen=True)
    class Nested(PsanConfig):
        """A configuration in a class."""


OWN = OwnConfig(8, 2, 0.0), OwnConfig.Nested(8, 2, 0.0), *(OwnConfig(8, 2, 0.0, f) for f in (torch.tanh, torch.erf, F.gelu))


@pytest.mark.parametrize("config", OWN)
def test_the_readme_has_the_line_that_loads_a_part_of_ones_own(config: OwnConfig, tmp_path: Path) -> None:
    folder = LoadedModel(config.build(), config).save_pretrained(tmp_path / "own")
    code = (folder / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    assert f"from {__name__} import OwnConfig\n" in code
    found: dict[str, object] = {}
    exec(code.replace("FOLDER OR NAME", str(folder)), found)
    assert isinstance(found["model"], LoadedModel) and found["model"].config == config
    again = LoadedModel(config.build(), config).save_pretrained(folder, force=True)
    parts = OwnConfig, OwnConfig.Nested
    if config.alone is torch.erf:  # no part of the library names it
        with pytest.raises(ValueError, match=r"pass it if it is your own: load\(folder, erf\)"):
            phrasemodels.load(again, *parts)
        parts = *parts, torch.erf
    assert phrasemodels.load(again, *parts).config == config


def wrong_models() -> Iterator[tuple[LoadedModel, str]]:
    """Yield models that no folder could bring back, with what is said of each."""
    config = PsanConfig(d=8, levels=2, dropout=0.0)

    @dataclasses.dataclass(frozen=True)
    class Inner(PsanConfig):
        pass

    yield LoadedModel(config.build(), None), "None is no configuration"
    yield LoadedModel(config.build(), PsanConfig), "PsanConfig'> is no configuration"
    yield LoadedModel(PsanConfig(d=16, levels=2).build(), config), "do not fit the model"
    yield LoadedModel(config.build().bfloat16(), config), "bfloat16"
    yield LoadedModel(config.build(), Inner(d=8, levels=2)), "has no name of its own"
    for nameless in (torch.Tensor.tanh, dict.fromkeys, torch.ops.aten.tanh):
        yield LoadedModel(config.build(), dataclasses.replace(config, alone=nameless)), "has no name of its own"


@pytest.mark.parametrize(("model", "said"), wrong_models())
def test_a_model_that_could_not_be_loaded_is_not_saved(model: LoadedModel, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        model.save_pretrained(tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["A\tB", "(S", "x y", "\x1b[2J", "a" * 101])
def test_names_that_could_forge_a_tree_are_refused(name: str) -> None:
    tagging = Tagging("spaces", "en", "adjacent", 2, True)
    with pytest.raises(ValueError, match="a name is printable, without blanks or brackets"):
        tagging.check(None, {"target": [name]})
    for side in ("labels", "relations") if name == "(S" else ("tags", "labels", "relations"):
        about = json.loads((ENGLISH / ABOUT).read_text(encoding="utf-8"))
        about["entries"][side][-1] = name
        with pytest.raises(ValueError, match=rf"entries.{side} has .*: a name is printable"):
            _parts(about, ENGLISH)


def test_tags_may_have_brackets_as_in_german_and_craft() -> None:
    about = json.loads((ENGLISH / ABOUT).read_text(encoding="utf-8"))
    about["entries"]["tags"][-1] = "$(/PUNCT"
    assert _parts(about, ENGLISH)["entries"]["tags"][-1] == "$(/PUNCT"
