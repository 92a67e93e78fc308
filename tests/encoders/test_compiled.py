"""Encoders under `torch.compile`: one graph, and the states and gradients of the module as it is."""

import pytest
import torch
from test_padding import ENCODERS, LENGTHS, D, built

from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.packing import AllRows, Packing

# whose graphs are several, as the compiler leaves torch's LSTM out
SEVERAL = ("LSTM states", "soft parents states", "BiLSTM-Max vectors")
QUICK = ("transformer states", "n-gram states", "hypernode states")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in ENCODERS])
def test_a_compiled_encoder_is_one_graph_with_the_same_states_and_gradients(name: str) -> None:
    encoder, structure = built(name)
    torch.compiler.reset()
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=name not in SEVERAL)
    x = torch.randn(3, 5, D).masked_fill((torch.arange(5) >= LENGTHS[:, None])[..., None], torch.nan).requires_grad_()
    results = []
    for module in (encoder, compiled):
        states = module(x, LENGTHS, *structure)
        states = states if states.dim() == 2 else states[torch.arange(5) < LENGTHS[:, None]]
        results.append(
            (states, *torch.autograd.grad(states.square().sum(), [x, *encoder.parameters()], allow_unused=True))
        )
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)


def test_dropout_of_a_compiled_encoder_is_drawn_anew_at_each_call() -> None:
    encoder, structure = built("transformer states")
    torch.compiler.reset()
    compiled, x = torch.compile(encoder.train(), backend="aot_eager", fullgraph=True), torch.randn(3, 5, D)
    first, second = (compiled(x, LENGTHS, *structure) for _ in range(2))
    assert first.isfinite().all() and not torch.equal(first, second)


@pytest.mark.parametrize("count", [1, 3])
def test_attention_to_all_rows_equals_attention_to_packed_ones(count: int) -> None:
    real = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]).bool()
    attention, x = MultiHeadAttention(8, 2), torch.randn(4, 4, 8).masked_fill(~real[..., None], torch.nan)
    whole, packed = AllRows(real), Packing(real)
    assert [group.shape[0] for group in whole.groups(count)] == [group.shape[0] for group in packed.groups(count)]
    states = [
        packing.pad(attention.packed_to(own, packing, own, packing))
        for packing in (whole, packed)
        for own in [packing.pack(x)]
    ]
    torch.testing.assert_close(*states)
