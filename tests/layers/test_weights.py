"""Weights from files: none is broadcast, cast, or used although it is not finite; a model without memory tells."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from phrasemodels.inference.inputs import too_long
from phrasemodels.saved import check_finite, check_header, copied
from phrasemodels.tasks.train.checkpoints import load_tensors

WRONG = {
    "broadcast": ({"weight": torch.ones(1, 1)}, r"weight is torch.float32 \(1, 1\), not torch.float32 \(3, 2\)"),
    "cast from integers": ({"weight": torch.ones(3, 2, dtype=torch.int64)}, "weight is .*int64|weight is None"),
    "cast from float64": (
        {"weight": torch.ones(3, 2, dtype=torch.float64)},
        r"weight is torch.float64 .*, not torch.fl",
    ),
    "missing": ({}, r"\['weight'\] are only in one of the two"),
}


@pytest.mark.parametrize("name", WRONG)
def test_weights_of_another_shape_or_type_are_refused_by_file_and_by_tensor(name: str, tmp_path: Path) -> None:
    changed, message = WRONG[name]
    weights: dict[str, Tensor] = {"bias": torch.ones(3), **changed}
    save_file(weights, tmp_path / "w")
    with pytest.raises(ValueError, match=message):
        load_tensors(nn.Linear(2, 3), weights)
    with pytest.raises(ValueError, match=message):
        check_header(lambda: nn.Linear(2, 3), tmp_path / "w")


def test_right_weights_are_read_and_other_floats_only_if_they_are_meant_to_be_cast(tmp_path: Path) -> None:
    save_file(copied(nn.Linear(2, 3)), tmp_path / "w")
    save_file({name: weight.half() for name, weight in copied(nn.Linear(2, 3)).items()}, tmp_path / "half")
    check_header(lambda: nn.Linear(2, 3), tmp_path / "w")
    check_header(lambda: nn.Linear(2, 3), tmp_path / "half", cast=True)
    with pytest.raises(ValueError, match="float16"):
        check_header(lambda: nn.Linear(2, 3), tmp_path / "half")


def test_a_model_far_larger_than_its_file_is_neither_built_nor_given_memory(tmp_path: Path) -> None:
    save_file(copied(nn.Linear(2, 3)), tmp_path / "w")
    with pytest.raises(ValueError, match="more weights than the 2 of the file"):
        check_header(lambda: nn.Sequential(*(nn.Linear(2, 3) for _ in range(10**9))), tmp_path / "w")
    with pytest.raises(ValueError, match="not torch"):
        check_header(lambda: nn.Linear(10**7, 10**7), tmp_path / "w")


def test_weights_that_are_not_finite_are_refused() -> None:
    layer = nn.BatchNorm1d(2)
    layer.register_buffer("mask", torch.tensor([0.0, -torch.inf]))  # a mask is no weight
    check_finite(layer)
    for tensor in (layer.bias, layer.running_mean):
        tensor.data[1] = torch.nan
    with pytest.raises(ValueError, match=r"the weights \['bias', 'running_mean'\] are not finite"):
        check_finite(layer)


@pytest.mark.parametrize(
    ("text", "refused"),
    [("a " * 5, False), ("a " * 6, True), ("a" * 50, False), ("a" * 51, True), ("", False), (" " * 40, False)],
)
def test_a_text_is_limited_in_words_and_characters(text: str, refused: bool) -> None:
    assert bool(too_long(text, 5)) == refused
