"""Exported models for torch alone: a configuration as JSON, the weights, and the entries of the vocabularies.

A configuration names classes and functions of the library, or of the caller's own that are passed in; so a file can
neither import nor run anything else. Weights are compared with the model before they are used, so that none is broadcast or
cast unasked.
"""

import dataclasses
import functools
import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from phrasemodels.earlier_names import present_name

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}  # of safetensors
Form = tuple[tuple[int, ...], torch.dtype | None]  # shape and type; None: no floating point numbers


def check_fit(own: Mapping[str, Tensor], given: Mapping[str, Form]) -> None:
    """Raise a ValueError unless weights of these shapes and types are those of the parameters `own`, by name."""
    if own.keys() != given.keys():
        raise ValueError(
            f"the weights do not fit the model: {sorted(own.keys() ^ given.keys())[:5]} are only in one of the two"
        )
    for name, parameter in own.items():
        wanted = (tuple(parameter.shape), parameter.dtype)
        if given[name] != wanted:
            (shape, dtype), (its, kind) = wanted, given[name]
            raise ValueError(f"the weights do not fit the model: {name} is {kind} {its}, not {dtype} {shape}")


def check_header(build: Callable[[], nn.Module], file: Path, cast: bool = False) -> None:
    """Raise a ValueError unless a file of weights has the names, shapes and types of the model, which gets no memory.

    A model with many more parameters than the file has tensors is not built to its end. cast: other types of floating
    point numbers are the model's, too.
    """
    with safe_open(file, "pt") as weights:
        given = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118  it has no other iterator
        shapes = {name: (tuple(part.get_shape()), DTYPES.get(part.get_dtype())) for name, part in given.items()}
    left = 4 * len(shapes) + 100

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"the configuration asks for more weights than the {len(shapes)} of the file")

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            own = dict(build().named_parameters())
    finally:
        hook.remove()
    if cast:
        shapes = {n: (shape, own[n].dtype if dtype and n in own else dtype) for n, (shape, dtype) in shapes.items()}
    check_fit(own, shapes)


def finite(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a trained model. ValueError: one of them is not finite."""
    if wrong := [name for name, weight in weights.items() if not weight.isfinite().all()]:
        raise ValueError(f"the weights {wrong[:5]} are not finite; train the model again")
    return weights


LIBRARY = "library.json"
_OURS = re.compile(r"phrasemodels\.(?:models|encoders|layers|structs)(?:\.\w+)*:\w+")
# Functions of torch that configurations of the library name, by the names that exported folders have.
TORCH = {f"{f.__module__}:{f.__qualname__}": f for f in (torch.sigmoid, torch.zeros_like, nn.init.xavier_uniform_)}
DAMAGED = (
    LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, AssertionError, ImportError, OSError,
    SafetensorError,
)  # fmt: skip


def describe(config: Any, folders: Mapping[str, Path], answers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what LIBRARY holds: a model's configuration as JSON, and how it answers (`Predictor.described`). folders: the
    parts of the exported folder by name; a path below one of them is written relative to it."""
    plain = _plain(config, {name: str(path) for name, path in folders.items()})
    return {"config": plain, **({"predictor": answers} if answers else {})}


def _plain(value: Any, folders: Mapping[str, str]) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _plain(getattr(value, f.name), folders) for f in dataclasses.fields(value) if f.init}
        return {"part": name_of(type(value)), "fields": fields}
    if isinstance(value, functools.partial):
        return {"part": name_of(value.func), "arguments": _plain((value.args, value.keywords), folders)}
    if callable(value):
        return {"part": name_of(value)}
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


def name_of(part: Any) -> str:
    return f"{part.__module__}:{part.__qualname__}"


def restored(saved: Any, folder: Path, own: Mapping[str, Any]) -> Any:
    if isinstance(saved, list):
        return tuple(restored(item, folder, own) for item in saved)
    if not isinstance(saved, dict):
        return saved
    if "file" in saved:
        path = folder / saved["file"]
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{saved['file']} is outside of the folder")
        return str(path)
    if "mapping" in saved:
        return {name: restored(item, folder, own) for name, item in saved["mapping"].items()}
    part = own.get(saved["part"]) or _part_of_ours(saved["part"])
    if "arguments" in saved:
        positional, named = restored(saved["arguments"], folder, own)
        return functools.partial(part, *positional, **named)
    if "fields" not in saved:
        return part
    if not dataclasses.is_dataclass(part):
        raise ValueError(f"{saved['part']} is no configuration")
    made: Any = part
    return made(**{name: restored(value, folder, own) for name, value in saved["fields"].items()})


def _part_of_ours(name: str) -> Any:
    """Return a class or function of the library, or one of TORCH. ValueError: it is of another package."""
    if name in TORCH:
        return TORCH[name]
    if not _OURS.fullmatch(name):
        raise ValueError(
            f"its part {name} is not of this library; pass the class: load(folder, {name.partition(':')[2]})"
        )
    name = present_name(name)
    module, attribute = name.split(":")
    part = getattr(importlib.import_module(module), attribute)
    if getattr(part, "__module__", None) != module:
        raise ValueError(f"{name} is not defined there")
    return part
