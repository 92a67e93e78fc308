"""Adapters: spans equal those of a loop, padding changes nothing, every parameter gets a gradient."""

import pytest
import torch

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.transformer import (
    NgramEncoderConfig,
    PooledEncoderConfig,
    PsanTokenEncoderConfig,
    TransformerEncoderConfig,
    adjacent_spans,
)

WIDTHS = {"d": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.0}
POOLED = [
    PooledEncoderConfig(TransformerEncoderConfig(**WIDTHS), 1, 0.0),
    PooledEncoderConfig(HypernodeEncoderConfig(**WIDTHS, longest=3), 3, 0.0),
    PooledEncoderConfig(NgramEncoderConfig(**WIDTHS, gram_sizes=(0, 2), phrase_layers=(1,)), 1, 0.0),
]


@pytest.mark.parametrize(("n", "longest"), [(1, 3), (2, 2), (5, 3), (4, 1)])
def test_adjacent_spans_equal_those_of_a_loop(n, longest):
    lengths = torch.tensor([n, max(1, n - 2)])
    for members, length in zip(adjacent_spans(lengths, n, longest), lengths.tolist(), strict=True):
        spans = {tuple(m for m in row if m >= 0) for row in members.tolist()} - {()}
        assert spans == {tuple(range(i, i + k)) for k in range(2, longest + 1) for i in range(length - k + 1)}


@pytest.mark.parametrize("config", [*POOLED, PsanTokenEncoderConfig(**WIDTHS)])
def test_padding_changes_nothing_and_every_parameter_gets_a_gradient(config):
    torch.manual_seed(0)
    model, lengths = config.build(), torch.tensor([7, 5])
    x = torch.randn(2, 7, 8)
    longer = torch.cat([x, torch.randn(2, 3, 8)], 1)
    expected, padded = model(x, lengths, None), model(longer, lengths, None)
    padded = padded[:, :7] if padded.dim() == 3 else padded
    mask = torch.ones_like(expected) if padded.dim() == 2 else (torch.arange(7) < lengths[:, None])[..., None]
    assert torch.allclose(padded * mask, expected * mask, atol=1e-5)
    (expected * mask * torch.randn_like(expected)).sum().backward()
    assert all(
        p.grad is not None and p.grad.abs().sum() > 0 for n, p in model.named_parameters() if "key.bias" not in n
    )
