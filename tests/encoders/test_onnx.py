"""Exports of an encoder and of the parser to ONNX, run by the reference evaluator of onnx."""

from pathlib import Path

import pytest
import torch

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.inference.export import export_encoder, export_parser
from phrasemodels.parsing.ids import LETTERS
from phrasemodels.parsing.parser import Parser

onnx = pytest.importorskip("onnx.reference")
pytest.importorskip("onnxscript")


@pytest.mark.slow
def test_an_exported_encoder_has_the_states_of_the_module(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = HypernodeEncoderConfig(d=8, heads=2, layers=1, d_ff=8).build().eval()
    path = export_encoder(encoder, tmp_path / "encoder.onnx")
    assert not any(part.training for part in encoder.modules())
    members = torch.full((3, 4, 2), -1)
    members[0, 0] = torch.tensor([2, 6])
    inputs = torch.randn(3, 7, 8), torch.tensor([7, 2, 1]), members
    names = ("words", "lengths", "members")
    given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
    (states,) = onnx.ReferenceEvaluator(str(path)).run(None, given)
    expected = encoder(*inputs)
    real = torch.arange(7) < inputs[1][:, None]
    assert torch.allclose(torch.from_numpy(states)[real], expected[real], atol=1e-5)


@pytest.mark.slow
def test_an_exported_parser_has_the_attention_and_scores_of_the_parser(tmp_path: Path) -> None:
    parser = Parser.load()
    words = "She said that they left at 10:30 , and that they left .".split()
    export_parser(parser, tmp_path)
    assert not any(part.training for part in parser.original.modules())
    batch = parser._batch([words])
    characters = torch.zeros(len(words) + 2, LETTERS, dtype=torch.int64)
    characters[:, : batch.characters.shape[1]] = batch.characters[batch.forms[0]]
    given = {"words": batch.words[0].numpy(), "characters": characters.numpy()}
    attention, scores = onnx.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, given)
    assert torch.allclose(torch.from_numpy(attention), torch.as_tensor(parser.attention(words)[1]), atol=1e-4)
    with torch.no_grad():
        expected = parser.fused.span_scores(parser.fused.encode(batch)[1])[0]
    upper = torch.ones(len(words), len(words)).triu().bool()
    assert torch.allclose(torch.from_numpy(scores)[upper], expected[upper], atol=1e-4)
