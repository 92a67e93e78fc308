"""Encoders under `torch.compile`, `torch.func` and in short types: the states and gradients of the module as it is."""

import pytest
import torch
from every_encoder import ENCODERS, LENGTHS, D, built

from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import AllRows, Packing

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


@pytest.mark.parametrize("name", [*QUICK, "partitioned states", "labels states"])
def test_what_replaces_a_module_or_hangs_on_it_is_called(name: str) -> None:
    """As adapters (LoRA) do, the first, and spectral norm, the second."""
    encoder, structure = built(name)
    x = torch.randn(3, 5, D)
    expected, called = encoder(x, LENGTHS, *structure), set()
    modules = {m for m in encoder.modules() if not isinstance(m, torch.nn.ModuleList | torch.nn.ModuleDict)}
    for module in modules:  # one at a time, as a hook on one can make its parts be called
        with module.register_forward_hook(lambda m, *_: called.add(m)):
            torch.testing.assert_close(encoder(x, LENGTHS, *structure), expected)
    assert called == modules
    with torch.nn.modules.module.register_module_forward_hook(lambda m, *_: called.discard(m)):
        torch.testing.assert_close(encoder(x, LENGTHS, *structure), expected)
    assert not called
    for part in [m for m in encoder.modules() if isinstance(m, MultiHeadAttention)]:
        for place in ("query", "key", "value"):
            setattr(part, place, torch.nn.Sequential(getattr(part, place)))
    torch.testing.assert_close(encoder(x, LENGTHS, *structure), expected)


# torch has no LSTM of a mapped batch; TBCNN gathers the children of each node by their number
UNMAPPED = (*SEVERAL, "TBCNN vectors")


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", [name for name in ENCODERS if name not in UNMAPPED])
def test_gradients_of_each_example_equal_a_loop(name: str) -> None:
    encoder, structure = built(name)
    weights = {name: p.detach().double() for name, p in encoder.named_parameters()}
    given = torch.randn(3, 1, 5, D).double(), LENGTHS[:, None], *(s[:, None] for s in structure)

    def loss(
        weights: dict[str, torch.Tensor], x: torch.Tensor, n: torch.Tensor, *phrases: torch.Tensor
    ) -> torch.Tensor:
        states = torch.func.functional_call(encoder, weights, (x, n, *phrases))
        padding = (torch.arange(5) >= n[:, None])[..., None] if states.dim() == 3 else torch.zeros(()).bool()
        return states.masked_fill(padding, 0).square().sum()

    slopes_of = torch.func.grad(loss, (0, 1))
    found, of_words = torch.func.vmap(slopes_of, in_dims=(None, *(0 for _ in given)))(weights, *given)
    for i in range(3):
        leaves = {name: p.clone().requires_grad_() for name, p in weights.items()}
        x = given[0][i].clone().requires_grad_()
        total = loss(leaves, x, *(other[i] for other in given[1:]))
        slopes = torch.autograd.grad(total, [x, *leaves.values()], allow_unused=True, materialize_grads=True)
        torch.testing.assert_close((of_words[i], *(found[name][i] for name in leaves)), slopes)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ["transformer states", "hypernode states", "PSAN vectors"])
def test_values_drop_out_anew_for_each_mapped_example(name: str) -> None:
    encoder, structure = built(name)
    x, rest = torch.randn(1, 5, D), [part[:1] for part in (LENGTHS, *structure)]
    draw = torch.func.vmap(lambda _: encoder.train()(x, *rest), randomness="different")
    first, second = draw(torch.zeros(2))
    assert first.isfinite().all() and not torch.equal(first, second)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ENCODERS)
def test_jacobians_in_every_way_are_equal(name: str) -> None:
    encoder, structure = built(name)
    x, jacobian = torch.randn(3, 5, D), torch.autograd.functional.jacobian

    def states(x: torch.Tensor) -> torch.Tensor:
        return encoder(x, LENGTHS, *structure)

    expected = jacobian(states, x)
    torch.testing.assert_close(torch.func.jacrev(states)(x), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(jacobian(states, x, vectorize=True), expected, atol=1e-4, rtol=1e-4)
    if any(isinstance(m, torch.nn.LSTM) for m in encoder.modules()):
        with pytest.raises(NotImplementedError, match=r"^Trying to use forward AD with mkldnn_rnn_layer"):  # torch's own
            torch.func.jacfwd(states)(x)
    else:
        torch.testing.assert_close(torch.func.jacfwd(states)(x), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ENCODERS)
def test_a_quantised_encoder_computes_what_its_modules_do(name: str) -> None:
    encoder, structure = built(name)
    x, real = torch.randn(3, 5, D), torch.arange(5) < LENGTHS[:, None]
    small = torch.ao.quantization.quantize_dynamic(encoder, {torch.nn.Linear, torch.nn.LSTM})
    found, expected = (model(x, LENGTHS, *structure) for model in (small, encoder))
    which = real if found.dim() == 3 else slice(None)
    assert (found - expected)[which].abs().max() < 0.1 * expected[which].abs().max()


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "autocast"])
@pytest.mark.parametrize("name", ENCODERS)
def test_short_types_give_the_states_within_their_rounding(name: str, kind: str) -> None:
    encoder, structure = built(name)
    x = torch.randn(3, 5, D)
    exact = encoder(x, LENGTHS, *structure)
    dtype = torch.float32 if kind == "autocast" else getattr(torch, kind)
    given = x.to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        states = encoder.to(dtype)(given, LENGTHS, *structure)
    real = torch.arange(5) < LENGTHS[:, None] if states.dim() == 3 else slice(None)
    size = exact[real].abs().max()
    assert (states.float() - exact)[real].abs().max() < 16 * torch.finfo(torch.bfloat16).eps * size
    assert torch.autograd.grad(states[real].float().sum(), given)[0].isfinite().all()


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
