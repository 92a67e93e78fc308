"""Exported models and packed parsers are read as data: a file names listed parts alone, and values of the right type."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import phrasemodels
from phrasemodels.config import Decoder, File, from_template, to_json
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.experiments.catalogue import experiments
from phrasemodels.inference.inputs import tokeniser
from phrasemodels.inference.problems import Translation, predictor
from phrasemodels.models.parser import ParserConfig
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.parsing.saved import ABOUT, ENGLISH, WEIGHTS
from phrasemodels.parsing.saved import load as load_parser
from phrasemodels.saved import (
    LIBRARY,
    PARTS,
    TORCH,
    check_finite,
    check_fit,
    check_header,
    describe,
    part_of_library,
    restored,
)

FORMS = (  # in which a configuration may name a part
    lambda name: name,
    lambda name: {"type": name},
    lambda name: {"partial": [name, [], {}]},
)
SMALL = TranslationConfig(TransformerEncoderConfig(8, 2, 1, 8), 5, 5, 1, 8)


@cache
def callables() -> frozenset[str]:
    """Return the names of all callables that are found in modules of the package, and of the methods of their classes."""
    found = {"os:system", "builtins:eval", "subprocess:run", "torch:load", "pickle:loads", "importlib:import_module"}
    for info in pkgutil.walk_packages(phrasemodels.__path__, "phrasemodels."):
        if "__main__" in info.name:
            continue
        try:
            with warnings.catch_warnings(action="ignore"):  # MLflow's, of the class that it serves
                module = importlib.import_module(info.name)
        except ImportError:  # of a library that is not installed
            continue
        for name, value in list(vars(module).items()):
            if callable(value):
                found |= {
                    f"{info.name}:{name}",
                    f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}",
                }
            if inspect.isclass(value) and value.__module__ == info.name:
                found |= {f"{info.name}:{name}.{inner}" for inner, one in vars(value).items() if callable(one)}
    return frozenset(found)


def listed() -> set[str]:
    return {f"{module}:{name}" for module, names in PARTS.items() for name in names.split()} | TORCH.keys()


def test_no_callable_of_the_package_but_the_listed_ones_can_be_named(tmp_path: Path) -> None:
    assert len(callables()) > 5000
    for name in callables() - listed():
        for form in FORMS:
            with pytest.raises(ValueError, match=r"none that a file may name|is no configuration"):
                restored(form(name), Callable, tmp_path)


def test_every_part_of_an_experiment_is_listed_and_every_listed_one_exists() -> None:
    missing = [name for name in listed() if part_of_library(name) is None]
    named = set()
    for one in experiments():
        text = json.dumps(to_json(one.model, {}))
        named |= {name for name in callables() if f'"{name}"' in text}
    assert not missing and named - listed() == {"phrasemodels.encoders.inputs:PretrainedConfig"}


def test_to_make_a_listed_part_runs_nothing_and_opens_nothing(tmp_path: Path) -> None:
    """In a process that refuses to open files for writing, connections and other programs, and to unpickle."""
    code = f"""
import importlib, sys, typing
from pathlib import Path
from typing import Any
from phrasemodels.saved import PARTS, part_of_library, restored
for module in PARTS: importlib.import_module(module)
refused = ("socket.", "subprocess.", "os.system", "os.exec", "pickle.find_class", "urllib.", "ctypes.dlopen", "exec", "compile")
def refuse(event, arguments):
    if event in ("exec", "compile") and sys._getframe(1).f_code.co_filename == typing.__file__:
        return  # an annotation of ours that is a text
    if event.startswith(refused) or (event == "open" and "w" in str(arguments[1])):
        print("REFUSED", event, arguments); sys.stdout.flush(); raise SystemExit(3)
sys.addaudithook(refuse)
values = [0, -1, 2**40, 1e300, True, None, "", "x", "/etc/passwd", [], [1, 2], {{}}, {{"file": "/etc/passwd"}}, {{"file": "../x"}}]
for module, names in PARTS.items():
    for name in names.split():
        part = part_of_library(f"{{module}}:{{name}}")
        fields = getattr(part, "__dataclass_fields__", {{}})
        for place, value in enumerate(values):
            for field in list(fields or ["d", "n"])[place % 3 :: 3]:
                full = f"{{module}}:{{name}}"
                for form in ({{"type": full, field: value}}, {{"partial": [full, [value], {{field: value}}]}}):
                    try: restored(form, Any, Path({str(tmp_path)!r}))
                    except ValueError: pass
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("encoder", "d"), "8", "config.encoder.d: '8' is not int"),
        (("encoder", "d"), 8.0, "config.encoder.d: '8.0' is not int"),
        (("encoder", "d"), True, "config.encoder.d: 'True' is not int"),
        (("encoder", "d"), 7, "config.encoder.heads=2: must be a divisor of d=7"),
        (("encoder", "dropout"), float("nan"), "config.encoder.dropout: 'nan' is not float"),
        (("encoder", "dropout"), 1.0, "config.encoder.dropout=1.0: must be at least 0 and below 1"),
        (("encoder", "residual"), "phrasemodels.layers.blocks:max_over_tokens", "config.encoder.residual: .* is not type"),
        (("encoder", "residual"), "phrasemodels.encoders.psan:Stacked", "config.encoder.residual: .* is not type"),
        (("encoder",), {"type": "phrasemodels.encoders.inputs:WordsConfig"}, "config.encoder: .* is not EncoderConfig"),
        (("encoder",), "phrasemodels.layers.attention:identity", "config.encoder: .* is not EncoderConfig"),
        (("encoder", "unknown"), 1, "config.encoder: TransformerEncoderConfig has no field 'unknown'"),
        (("start",), "phrasemodels.layers.blocks:max_over_tokens", "config.start: .* is not a function of other arguments"),
        (("start",), None, "config.start: 'None' is not"),
        (("shared",), 1, "config.shared: '1' is not bool"),
        (("decoder_layers",), [1], "config.decoder_layers"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_or_out_of_range_is_refused(
    path: tuple[str, ...], value: Any, message: str, tmp_path: Path
) -> None:
    saved = json.loads(json.dumps(describe(SMALL, {})["config"]))
    place = saved
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        restored(saved, Any, tmp_path)


@pytest.mark.parametrize(
    ("kind", "saved", "wanted"),
    [
        (int | None, None, None),
        (int | None, 3, 3),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, float], [1, 2], (1, 2)),
        (dict[str, tuple[int, ...]], {"a": [1]}, {"a": (1,)}),
        (File, "", ""),
        (Any, {"a": [1, "b", None]}, {"a": (1, "b", None)}),
    ],
)
def test_plain_values_are_read_by_type(kind: Any, saved: Any, wanted: Any) -> None:
    assert Decoder(part_of_library).read(saved, kind, "it") == wanted


@pytest.mark.parametrize(
    ("kind", "saved"),
    [(int, 1.5), (float, "1"), (float, float("inf")), (str, 1), (tuple[int, int], [1]), (tuple[int, ...], 1),
     (dict[str, int], [1]), (File, "/etc/passwd"), (File, {"file": "x"}), (type, "x:y"), (int | None, "x")],
)  # fmt: skip
def test_plain_values_of_another_type_are_refused(kind: Any, saved: Any) -> None:
    with pytest.raises(ValueError, match=r"^it|may name no files"):
        Decoder(part_of_library).read(saved, kind, "it")


def test_a_file_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    config = to_json(TaggerConfig(TransformerEncoderConfig(8, 2, 1, 8), 5, 5), {})
    for name in ("/etc/passwd", "../x", "in/../../x", "link/passwd"):
        with pytest.raises(ValueError, match="is outside of the folder"):
            restored({**config, "vectors": {"file": name}}, Any, tmp_path)
    assert restored({**config, "vectors": {"file": "in/x"}}, Any, tmp_path).vectors == str(tmp_path / "in" / "x")


def test_a_configuration_takes_only_parts_of_its_template_and_keeps_what_was_not_saved() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own:
        d: int = 1
        folder: str = dataclasses.field(default="", compare=False)
        added: float = 0.5

    template = Own(2, "here")
    kind = f"{Own.__module__}:{Own.__qualname__}"
    with pytest.raises(ValueError, match="has no name of its own"):
        from_template(template, {"type": kind, "d": 3}, "it")
    parser = ParserConfig()
    assert from_template(parser, to_json(dataclasses.replace(parser, hidden=9)), "it").hidden == 9
    with pytest.raises(ValueError, match=r"it\.positions: the model was made with .*LearnedPositions"):
        from_template(parser, {**to_json(parser), "positions": "phrasemodels.models.parser:LearnedPositions"}, "it")


def exported(folder: Path, config: Any) -> Any:
    """Write what `export` writes of a small model; return the model."""
    model = config.build()
    (folder / "model").mkdir(parents=True)
    (folder / "vocabulary").mkdir()
    save_file({name: p.detach() for name, p in model.named_parameters()}, folder / "model" / "model.safetensors")
    (folder / "card.json").write_text("{}")
    (folder / LIBRARY).write_text(json.dumps(describe(config, {"encoder": folder / "encoder"})))
    return model.eval()


def test_an_exported_model_that_names_the_loader_of_encoders_runs_and_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pickle in the folder would make a file; the name would be looked up on a hub."""
    asked: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **_: asked.append(a) or [])
    exported(tmp_path / "m", SMALL)

    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "ran"), "w")

    (tmp_path / "m" / "encoder").mkdir()
    torch.save({"w": Evil()}, tmp_path / "m" / "encoder" / "pytorch_model.bin")
    (tmp_path / "m" / "encoder" / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    loader, options = "phrasemodels.encoders.inputs:load_pretrained", {"weights_only": False, "use_safetensors": False}
    saved = json.loads((tmp_path / "m" / LIBRARY).read_text())
    for start in (
        {"partial": [loader, ["AutoModel", "evil/model"], options]},
        {"type": "phrasemodels.encoders.inputs:PretrainedConfig", "name": "evil/model"},
        {"type": "phrasemodels.encoders.inputs:PretrainedConfig", "name": str(tmp_path / "m" / "encoder")},
    ):
        saved["config"]["start"] = start
        (tmp_path / "m" / LIBRARY).write_text(json.dumps(saved))
        with pytest.raises(ValueError, match=r"config\.start: its part .* is none that a file may name"):
            phrasemodels.load(tmp_path / "m")
    assert not asked and not (tmp_path / "ran").exists()


WRONG_PARSERS = {
    "decode": ({"type": "phrasemodels.models.parser:Jointly", "weight": 2.0}, "weight=2.0: must be from 0 to 1"),
    "decode of three arguments": (
        "phrasemodels.encoders.hypernode:softmax_within",
        "decode is .* does not find trees|of other arguments",
    ),
    "split": ("phrasemodels.layers.attention:identity", "split is .*, which does not divide text"),
    "card": ([], "has no card"),
    "config": ({"type": "phrasemodels.encoders.inputs:WordsConfig"}, "is not ParserConfig"),
}


@pytest.mark.parametrize("name", WRONG_PARSERS)
def test_a_packed_parser_is_checked_when_it_is_loaded(name: str, tmp_path: Path) -> None:
    value, message = WRONG_PARSERS[name]
    about = json.loads((ENGLISH / ABOUT).read_text(encoding="utf-8"))
    about[name.split()[0]] = value
    (tmp_path / ABOUT).write_text(json.dumps(about))
    shutil.copyfile(ENGLISH / WEIGHTS, tmp_path / WEIGHTS)
    with pytest.raises(ValueError, match=message):
        load_parser(tmp_path)


@pytest.mark.parametrize("form", [0, -1, 2, 1.5, "1", None, []])
def test_a_packed_parser_of_another_form_is_refused(form: Any, tmp_path: Path) -> None:
    about = json.loads((ENGLISH / ABOUT).read_text(encoding="utf-8"))
    shutil.copyfile(ENGLISH / WEIGHTS, tmp_path / WEIGHTS)
    (tmp_path / ABOUT).write_text(json.dumps(about | {"form": form}))
    with pytest.raises(ValueError, match=f"its form is {form!r}, and this version reads 1".replace("[]", r"\[\]")):
        load_parser(tmp_path)


WRONG_SPLITS = {
    "alphabet": [{}, ["ab"], [1], [" ", " "], [""], ["a"]],
    "fused": [[], {"don't": []}, {"don't": "do"}, {"don't": [1]}, {"": ["a"]}, {str(k): ["a"] for k in range(200_000)}],
    "spaces": [1, None, "yes"],
    "threshold": [0.0, 1.0, -0.5, 1, True, "0.5", None],
    "config": [{}, None, {"type": "phrasemodels.parsing.splitter:SplitterConfig", "characters": "x"}],
}


@pytest.mark.parametrize("name", WRONG_SPLITS)
def test_the_splitter_of_a_packed_parser_is_checked(name: str, tmp_path: Path) -> None:
    about = json.loads((ENGLISH / ABOUT).read_text(encoding="utf-8"))
    shutil.copyfile(ENGLISH / WEIGHTS, tmp_path / WEIGHTS)
    right = about["split"][name]
    for wrong in [
        *WRONG_SPLITS[name],
        *([right[:-1], [*right, "犬"], right[:-1] + right[:1]] if name == "alphabet" else []),
    ]:
        about["split"][name] = wrong
        (tmp_path / ABOUT).write_text(json.dumps(about))
        with pytest.raises(ValueError, match=rf"this parser cannot be read \((split\.|.*{name})"):
            load_parser(tmp_path)


@pytest.mark.parametrize("side", ["words", "characters", "tags", "labels", "relations"])
def test_the_vocabularies_of_a_packed_parser_are_checked(side: str, tmp_path: Path) -> None:
    about = json.loads((ENGLISH / ABOUT).read_text(encoding="utf-8"))
    right = about["entries"][side]
    shutil.copyfile(ENGLISH / WEIGHTS, tmp_path / WEIGHTS)
    for wrong in ([*right[:-1], right[-2]], right[:-1], [*right, "more"], [*right[:-1], 3], {}, right[-1]):
        about["entries"][side] = wrong
        (tmp_path / ABOUT).write_text(json.dumps(about))
        with pytest.raises(
            ValueError, match=rf"this parser cannot be read \((entries\.{side}|the configuration is not of)"
        ):
            load_parser(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": "os:system"}, "no problem 'os:system'"),
        ({"batch_tokens": "x"}, r"predictor\.batch_tokens: 'x' is not int"),
        ({"batch_tokens": 1e9}, r"predictor\.batch_tokens: .* is not int"),
        ({"tokeniser": ["spaces"]}, r"predictor\.tokeniser: .* is not str"),
        ({"pieces": 1}, r"predictor\.pieces: '1' is not bool"),
        ({"search": [1]}, r"predictor\.search: .* is not Mapping"),
        ({"code": "x"}, "has no field 'code'"),
        ({"longest": 1}, r"predictor\.longest=1: must be a whole number of at least 2"),
        ({"longest": 10**9}, r"predictor\.longest=1000000000: must be at most 20"),
        ({"batch_tokens": 0}, r"predictor\.batch_tokens=0: must be a whole number of at least 1"),
        ({"batch_tokens": 10**9}, r"predictor\.batch_tokens=1000000000: must be at most 32768"),
        ({"search": {"width": 4}}, "search: BeamSearch has no field 'width'"),
        ({"search": {"type": "os:system"}}, "os:system is no search|has no field 'type'"),
        ({"search": {"beam": 10**9}}, r"beam=1000000000: must be at most 100"),
        ({"search": {"beam": "5"}}, r"search\.beam: '5' is not int"),
        ({"search": {"growth": 1e308}}, r"growth=1e\+308: must be at most 10"),
        ({"search": {"extra": 10**12}}, r"extra=1000000000000: must be at most 2000"),
    ],
)
def test_how_a_model_answers_is_read_by_type(changes: dict[str, Any], message: str) -> None:
    right = Translation("spaces", search={"beam": 4}).described()
    assert predictor(json.loads(json.dumps(right))).described() == right
    with pytest.raises(ValueError, match=message):
        predictor(json.loads(json.dumps(right | changes)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"problem": "Tagging", "tokeniser": "spaces", "batch_tokens": -1},
        {"problem": "Parsing", "decode": "os:system"},
        {"problem": "Parsing", "weight": 9.0},
        {"problem": "Classification", "labels": ["a"], "structure": {"kind": "os:system"}},
        {"problem": "Classification", "labels": ["a"], "structure": {"kind": "Levels", "levels": [0]}},
        {"problem": "Classification", "labels": ["a"], "structure": {"kind": "Levels", "levels": "123"}},
        {"problem": "Entailment", "labels": ["a"], "unknown": "os:system"},
        {"problem": "Entailment", "labels": ["a"], "parser": "../other"},
        {"problem": "Decomposition", "labels": ["a"], "outside": -1},
        {"problem": "Answering", "slots": 0},
        {"problem": "Answering", "most": 0},
    ],
)
def test_how_a_model_answers_has_bounds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|is no|is not"):
        predictor(wrong)


def test_phrases_of_another_kind_are_refused_and_not_left_out() -> None:
    with pytest.raises(ValueError, match="no phrases 'mine': no_phrases or adjacent or subtrees"):
        Translation("spaces", phrases="mine").batch([[1, 2]], [()])


def test_a_tokeniser_is_marked_once() -> None:
    with pytest.raises(ValueError, match="is not of this library"):
        tokeniser("marked " * 9999 + "spaces", {})
    assert tokeniser("marked spaces", {})("a b", "en") == ["<s>", "a", "b", "</s>"]


OWN = {"a": torch.zeros(2, 3), "b": torch.zeros(1)}
FITS = {"a": ((2, 3), torch.float32), "b": ((1,), torch.float32)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": FITS["a"]}, r"\['b'\] are only in one"),
        ({**FITS, "c": FITS["b"], "d": FITS["b"]}, r"\['c', 'd'\] are only in one"),
        ({**FITS, **{f"c{k}": FITS["b"] for k in range(6)}}, r"\['c0', 'c1', 'c2', 'c3', 'c4'\] are only in one"),
        ({**FITS, "a": ((1, 3), torch.float32)}, r"a is torch.float32 \(1, 3\), not torch.float32 \(2, 3\)"),
        ({**FITS, "a": ((3, 3), torch.float32)}, r"a is torch.float32 \(3, 3\), not"),
        ({**FITS, "b": ((1,), torch.float16)}, r"b is torch.float16 \(1,\), not torch.float32 \(1,\); save it after .float"),
        ({f"_orig_mod.{name}": form for name, form in FITS.items()}, r".* in one of the two; give the module inside, `\._orig"),
        ({**FITS, "b": ((1,), None)}, r"b is None \(1,\), not"),
    ],
)
def test_weights_of_another_model_are_named(given: Any, message: str) -> None:
    check_fit(OWN, FITS)
    with pytest.raises(ValueError, match=f"^the weights do not fit the model: {message}"):
        check_fit(OWN, given)


def test_a_configuration_that_asks_for_many_more_weights_is_not_built(tmp_path: Path) -> None:
    """Up to 4 for each tensor of the file, and 100, so that an error names what does not fit."""
    built = []

    def layers(n: int) -> torch.nn.Module:
        return torch.nn.ModuleList([built.append(n) or torch.nn.Linear(1, 1, bias=False) for _ in range(n)])  # type: ignore[func-returns-value]

    save_file({f"{k}.weight": torch.zeros(1, 1) for k in range(2)}, tmp_path / "w")
    check_header(lambda: layers(2), tmp_path / "w")
    with pytest.raises(ValueError, match="are only in one of the two"):
        check_header(lambda: layers(108), tmp_path / "w")
    built.clear()
    with pytest.raises(ValueError, match="asks for more weights than the 2 of the file"):
        check_header(lambda: layers(1000), tmp_path / "w")
    assert len(built) == 109


def test_weights_that_are_not_finite_are_named() -> None:
    model = torch.nn.ParameterDict({f"w{k}": torch.zeros(2) for k in range(9)})
    check_finite(model)
    for k in range(1, 8):
        model[f"w{k}"] = torch.tensor([0, float("inf" if k % 2 else "nan")])
    with pytest.raises(ValueError, match=r"the weights \['w1', 'w2', 'w3', 'w4', 'w5'\] are not finite"):
        check_finite(model)
