"""Weights that are read from files: compared with the model before they are used, so that none is broadcast or cast unasked."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

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
