"""Export of an encoder to ONNX, run by the reference evaluator of onnx."""

from pathlib import Path

import pytest
import torch

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.inference.onnx import export_encoder

onnx = pytest.importorskip("onnx.reference")
pytest.importorskip("onnxscript")


@pytest.mark.slow
def test_an_exported_encoder_has_the_states_of_the_module(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = HypernodeEncoderConfig(d=8, heads=2, layers=1, d_ff=8).build()
    path = export_encoder(encoder, tmp_path / "encoder.onnx")
    assert encoder.training
    members = torch.full((3, 4, 2), -1)
    members[0, 0] = torch.tensor([2, 6])
    inputs = torch.randn(3, 7, 8), torch.tensor([7, 2, 1]), members
    names = ("words", "lengths", "members")
    given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
    (states,) = onnx.ReferenceEvaluator(str(path)).run(None, given)
    expected = encoder.eval()(*inputs)
    real = torch.arange(7) < inputs[1][:, None]
    assert torch.allclose(torch.from_numpy(states)[real], expected[real], atol=1e-5)
