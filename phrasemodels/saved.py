"""Exported models for torch alone: a configuration as JSON, the weights, and the entries of the vocabularies.

A configuration names classes and functions of the library, or of the caller's own that are passed in; so a file can
neither import nor run anything else.
"""

import dataclasses
import functools
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from phrasemodels.layers.ids import SPECIAL, UNKNOWN
from phrasemodels.layers.weights import check_header, finite

LIBRARY = "library.json"
_OURS = re.compile(r"phrasemodels\.(?:models|encoders|layers|structs)(?:\.\w+)*:\w+")
# Functions of torch that configurations of the library name, by the names that exported folders have.
_TORCH = {f"{f.__module__}:{f.__qualname__}": f for f in (torch.sigmoid, torch.zeros_like, nn.init.xavier_uniform_)}
_DAMAGED = (
    LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, AssertionError, ImportError, OSError,
    SafetensorError,
)  # fmt: skip


@dataclass(frozen=True)
class LoadedModel:
    """A trained model for use. module: ready to predict. words: the entries of each vocabulary, by id. card: its training,
    corpus and licences."""

    module: nn.Module
    config: Any
    words: Mapping[str, Sequence[str]]
    card: Mapping[str, Any]

    @functools.cached_property
    def _ids(self) -> dict[str, dict[str, int]]:
        return {side: {w: k for k, w in enumerate(entries) if w not in SPECIAL} for side, entries in self.words.items()}

    def ids(self, tokens: Sequence[str], side: str = "source") -> list[int]:
        """Return the ids of tokens in a vocabulary; an unknown token has the id of all unknown ones."""
        return [self._ids[side].get(token, UNKNOWN) for token in tokens]


def describe(config: Any, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Return what LIBRARY holds: a model's configuration as JSON. folders: the parts of the exported folder by name; a
    path below one of them is written relative to it."""
    return {"config": _plain(config, {name: str(path) for name, path in folders.items()})}


def _plain(value: Any, folders: Mapping[str, str]) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name), folders) for f in dataclasses.fields(value) if f.init}
        return {"part": _name(type(value)), "fields": fields}
    if isinstance(value, functools.partial):
        return {"part": _name(value.func), "arguments": _plain((value.args, value.keywords), folders)}
    if callable(value):
        return {"part": _name(value)}
    if isinstance(value, Mapping):
        return {"mapping": {name: _plain(item, folders) for name, item in value.items()}}
    if isinstance(value, tuple | list):
        return [_plain(item, folders) for item in value]
    if isinstance(value, str | Path):
        for name, path in folders.items():
            if Path(value).is_relative_to(path):
                return {"file": Path(name, Path(value).relative_to(path)).as_posix()}
        return str(value)
    return value


def _name(part: Any) -> str:
    return f"{part.__module__}:{part.__qualname__}"


def _restored(saved: Any, folder: Path, own: Mapping[str, Any]) -> Any:
    if isinstance(saved, list):
        return tuple(_restored(item, folder, own) for item in saved)
    if not isinstance(saved, dict):
        return saved
    if "file" in saved:
        path = folder / saved["file"]
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{saved['file']} is outside of the folder")
        return str(path)
    if "mapping" in saved:
        return {name: _restored(item, folder, own) for name, item in saved["mapping"].items()}
    part = own.get(saved["part"]) or _part_of_ours(saved["part"])
    if "arguments" in saved:
        positional, named = _restored(saved["arguments"], folder, own)
        return functools.partial(part, *positional, **named)
    if "fields" not in saved:
        return part
    if not dataclasses.is_dataclass(part):
        raise ValueError(f"{saved['part']} is no configuration")
    made: Any = part
    return made(**{name: _restored(value, folder, own) for name, value in saved["fields"].items()})


def _part_of_ours(name: str) -> Any:
    """Return a class or function of the library, or one of _TORCH. ValueError: it is of another package."""
    if name in _TORCH:
        return _TORCH[name]
    if not _OURS.fullmatch(name):
        raise ValueError(
            f"its part {name} is not of this library; pass the class: load(folder, {name.partition(':')[2]})"
        )
    module, attribute = name.split(":")
    part = getattr(importlib.import_module(module), attribute)
    if getattr(part, "__module__", None) != module:
        raise ValueError(f"{name} is not defined there")
    return part


def load_folder(folder: str | Path, *parts: Any) -> Any:
    """Load a packed parser as `Parser`, an exported model as LoadedModel. parts: one's own classes and functions that its
    configuration names. ValueError: it is neither, or damaged."""
    from phrasemodels.parsing.parser import Parser
    from phrasemodels.parsing.saved import ABOUT

    place = Path(folder)
    if (place / ABOUT).is_file():
        return Parser.load(place)
    if not (place / LIBRARY).is_file():
        raise ValueError(
            f"{place}: neither {ABOUT} nor {LIBRARY} is there; write it with `phrasemodels export` or `pack`"
        )
    try:
        about = json.loads((place / LIBRARY).read_text(encoding="utf-8"))
        config = _restored(about["config"], place, {_name(part): part for part in parts})
        weights = place / "model" / "model.safetensors"
        check_header(config.build, weights)
        module: nn.Module = config.build()
        _fill(module, weights)
        words = {
            path.stem: path.read_text(encoding="utf-8").split("\n")[:-1]
            for path in sorted((place / "vocabulary").glob("*.txt"))
        }
        card = json.loads((place / "card.json").read_text(encoding="utf-8"))
        return LoadedModel(module.eval(), config, words, card)
    except _DAMAGED as error:
        raise ValueError(f"{place}: this model cannot be read ({error}); export it again") from error


@torch.no_grad()
def _fill(module: nn.Module, file: Path) -> None:
    weights = finite(load_file(file))
    for name, parameter in module.named_parameters():
        parameter.copy_(weights[name])
