"""The encoder of paper 000 equals a plain transcription of the paper and its own plain form, and learns."""

import dataclasses
import itertools

import plain_000 as plain
import pytest
import torch

from phrasemodels.encoders.hypernode import (
    HypernodeEncoder,
    HypernodeEncoderConfig,
    Nodes,
    softmax_hadamard,
    softmax_within,
)
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.attention import identity, sigma_on_heads, sigma_on_projection
from phrasemodels.layers.blocks import Replace
from phrasemodels.layers.phrases import LengthEmbedding, MeanInit, ZeroInit, phrase_graph
from phrasemodels.models.translation import TranslationConfig, token_loss

D, HEADS = 12, 3
SMALL = HypernodeEncoderConfig(d=D, heads=HEADS, layers=2, d_ff=20, dropout=0.0, longest=3)
LENGTHS = (7, 4, 1)


def attention_weights(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    names = {"q": layer.query, "k": layer.key, "v": layer.value, "o": layer.output}
    return {n: m.weight for n, m in names.items()} | {f"{n}_b": m.bias for n, m in names.items()}


def plain_parameters(encoder: HypernodeEncoder) -> list[dict]:
    out = []
    for layer in encoder.layers:
        one = {"phase1": attention_weights(layer.across), "phase2": attention_weights(layer.inside)}
        if isinstance(layer.feed_forward, torch.nn.Sequential):
            ffn = layer.feed_forward
            one["ffn"] = {"w1": ffn[0].weight, "b1": ffn[0].bias, "w2": ffn[2].weight, "b2": ffn[2].bias}
            for index, residual in enumerate(layer.residuals, 1):
                one[f"norm{index}"] = {"weight": residual.norm.weight, "bias": residual.norm.bias}
        out.append(one)
    return out


SWITCHES = list(
    itertools.product(
        [("neg_inf", softmax_within), ("hadamard", softmax_hadamard)],
        [torch.sigmoid, identity],
        [("heads", sigma_on_heads), ("projection", sigma_on_projection)],
        [("block", {}), ("literal", {"residual": Replace, "d_ff": 0})],
        [("zeros", ZeroInit), ("mean", MeanInit), ("length_embedding", LengthEmbedding)],
    )
)


@pytest.mark.parametrize(("mask", "sigma", "place", "style", "init"), SWITCHES)
def test_encoder_and_its_plain_form_equal_the_transcription(mask, sigma, place, style, init):
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, attend=mask[1], sigma=sigma, readout=place[1], initialise=init[1], **style[1])
    encoder = config.build().double().eval()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    words = torch.randn(len(LENGTHS), max(LENGTHS), D, dtype=torch.float64)
    inputs = words, torch.tensor(LENGTHS), plain.members(LENGTHS, 3)
    states, by_equations = encoder(*inputs), encoder.plain(*inputs)
    table = encoder.initialise.table.weight if init[0] == "length_embedding" else None
    for row, n in enumerate(LENGTHS):
        expected = plain.encode(
            words[row, :n],
            plain_parameters(encoder),
            HEADS,
            3,
            init[0],
            table,
            style[0],
            mask[0],
            None if sigma is identity else sigma,
            place[0],
        )
        torch.testing.assert_close(states[row, :n], expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(by_equations[row, :n], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("attend", [softmax_within, softmax_hadamard])
@pytest.mark.parametrize("initialise", [ZeroInit, MeanInit])
@pytest.mark.parametrize("n", [5, 40])  # without and with lists of neighbours
def test_gradients_of_the_fast_form_are_those_of_the_plain_form(n, initialise, attend):
    torch.manual_seed(0)
    encoder = dataclasses.replace(SMALL, attend=attend, initialise=initialise).build().double()
    words = torch.randn(2, n, D, dtype=torch.float64, requires_grad=True)
    inputs, weight = (words, torch.tensor([n, 3]), plain.members((n, 3), 3)), torch.randn(2, 3, D)
    gradients = [
        torch.autograd.grad(
            (run(*inputs)[:, :3] * weight).sum(), [words, *encoder.parameters()], materialize_grads=True
        )
        for run in (encoder, encoder.plain)
    ]
    for fast, by_equations in zip(*gradients, strict=True):
        torch.testing.assert_close(fast, by_equations, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_phrase_graph_equals_containment_by_brute_force(n, k):
    phrases = plain.phrases(n, k)
    graph = phrase_graph(plain.members((n, 9), k), torch.tensor([n, 9]), 9)
    here = [*range(n), *range(9, 9 + len(phrases))]
    assert torch.equal(graph.related[0][here][:, here], plain.adjacency(n, phrases))
    assert graph.valid[0].sum() == n + len(phrases)
    padding = [i for i in range(graph.valid.shape[1]) if i not in here]
    assert not graph.related[0][here][:, padding].any(), "a node is related to padding"
    if n >= k - 1:
        assert len(phrases) == sum(n - size + 1 for size in range(2, k + 1))


PAIR = torch.tensor([[[0, 1]]])


def test_hypernodes_are_equal_after_phase_1_and_differ_after_phase_2():
    torch.manual_seed(0)
    encoder = SMALL.build().eval()
    words, lengths, phrases = torch.randn(1, 6, D), torch.tensor([6]), plain.members((6,), 3)
    graph = phrase_graph(phrases, lengths, 6)
    layer = encoder.layers[0]
    states = torch.cat([words, words.new_zeros(1, phrases.shape[1], D)], 1)
    first = layer.across(states, states, graph.valid[:, None, None, :])
    torch.testing.assert_close(first[:, 6:], first[:, 6:7].expand_as(first[:, 6:]))
    nodes, packed, shared = Nodes(graph), states[0], states[0, :7]
    one = nodes.shared()
    torch.testing.assert_close(one.spread(layer.across.packed(shared, one.packing)), first[0])
    second = layer(states, graph)
    torch.testing.assert_close(layer.packed(packed, nodes, nodes.each, words_only=False), second[0])
    torch.testing.assert_close(layer.packed(shared, nodes, one, words_only=False), second[0])
    torch.testing.assert_close(layer.packed(shared, nodes, one, words_only=True), second[0, :6])
    assert torch.pdist(second[0, 6:]).min() > 1e-4


def _subclass(module: torch.nn.Module) -> None:
    kind = type(module)
    module.__class__ = type(kind.__name__, (kind,), {"forward": lambda self, *x: _shifted(kind.forward(self, *x))})


def _patch(module: torch.nn.Module) -> None:
    forward = module.forward
    module.forward = lambda *x: _shifted(forward(*x))


def _shifted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.linspace(0, 1, x.shape[-1])


@pytest.mark.parametrize("change", [_subclass, _patch, lambda m: m.register_forward_hook(lambda *x: _shifted(x[2]))])
@pytest.mark.parametrize(
    "part", ["initialise", "layers.0", "layers.0.across.query", "layers.0.inside", "layers.1.residuals.1"]
)
def test_a_changed_part_is_called(part, change):
    encoder, inputs = SMALL.build().eval(), (torch.randn(1, 6, D), torch.tensor([6]), plain.members((6,), 3))
    before = encoder(*inputs)
    change(encoder.get_submodule(part))
    after = encoder(*inputs)
    assert (after - before).abs().max() > 1e-3
    torch.testing.assert_close(after, encoder.plain(*inputs))


def test_a_gradient_is_changed_by_a_hook_and_a_projection_needs_no_bias():
    encoder, inputs = (
        SMALL.build(),
        (torch.randn(1, 6, D, requires_grad=True), torch.tensor([6]), plain.members((6,), 3)),
    )
    across = encoder.layers[0].across
    across.key = torch.nn.Linear(D, D, bias=False)
    across.query.register_full_backward_pre_hook(lambda module, grads: tuple(torch.zeros_like(g) for g in grads))
    encoder(*inputs).square().sum().backward()
    assert not across.query.weight.grad.any() and across.key.weight.grad.any()


@pytest.mark.parametrize("dropout", [{"attention_dropout": 0.5}, {"dropout": 0.5}])
def test_hypernodes_do_not_share_what_drops_out(dropout):
    config = dataclasses.replace(SMALL, layers=1, **dropout)
    assert config.build().eval().layers[0].keeps_rows_equal
    assert not config.build().layers[0].keeps_rows_equal


def test_both_readings_of_the_mask_give_different_states():
    torch.manual_seed(0)
    one = SMALL.build().eval()
    other = dataclasses.replace(SMALL, attend=softmax_hadamard).build().eval()
    other.load_state_dict(one.state_dict())
    inputs = torch.randn(1, 6, D), torch.tensor([6]), plain.members((6,), 3)
    assert (one(*inputs) - other(*inputs)).abs().max() > 1e-3


def test_linear_variant_has_as_many_parameters():
    count = [
        sum(p.numel() for p in dataclasses.replace(SMALL, sigma=s).build().parameters())
        for s in (torch.sigmoid, identity)
    ]
    assert count[0] == count[1]


def test_a_phrase_too_long_for_the_length_embedding_is_refused():
    encoder = dataclasses.replace(SMALL, initialise=LengthEmbedding, longest=2).build()
    with pytest.raises(ValueError, match="longest=2: a phrase has 3 words"):
        encoder(torch.randn(1, 4, D), torch.tensor([4]), plain.members((4,), 3))


ENCODERS = [
    TransformerEncoderConfig(d=D, heads=HEADS, layers=2, d_ff=20),
    SMALL,
    dataclasses.replace(SMALL, attend=softmax_hadamard),
]


@pytest.mark.parametrize("encoder", ENCODERS, ids=["transformer", "hypernode", "hadamard"])
def test_scores_do_not_depend_on_the_batch_and_gradients_are_finite(encoder):
    torch.manual_seed(0)
    model = TranslationConfig(encoder, 20, 23, 2, 16).build().double().eval()
    source, target, lengths = torch.randint(4, 20, (3, 7)), torch.randint(4, 23, (3, 5)), torch.tensor(LENGTHS)
    together = model(source, lengths, plain.members(LENGTHS, 3), target)
    for row, n in enumerate(LENGTHS):
        alone = model(source[row : row + 1, :n], lengths[row : row + 1], plain.members((n,), 3), target[row : row + 1])
        torch.testing.assert_close(together[row], alone[0], rtol=1e-10, atol=1e-10)
    model.train()
    model(source, lengths, plain.members(LENGTHS, 3), target).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("encoder", ENCODERS, ids=["transformer", "hypernode", "hadamard"])
def test_four_sentences_are_memorised(encoder):
    torch.manual_seed(0)
    model = TranslationConfig(dataclasses.replace(encoder, d=24, dropout=0.0), 20, 23, 1, 32).build()
    source, lengths = torch.randint(4, 20, (4, 7)), torch.tensor([7, 5, 4, 2])
    target = torch.cat([torch.full((4, 1), 2), torch.randint(4, 23, (4, 6)), torch.full((4, 1), 3)], 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(150):
        loss = token_loss(model, source, lengths, plain.members((7, 5, 4, 2), 3), target, 0.0) / 28
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.01


@pytest.mark.parametrize(
    ("words", "lengths", "members", "said"),
    [
        (
            torch.zeros(4, 8),
            torch.tensor([4]),
            PAIR,
            r"words must be a floating-point tensor \(B, n, 8\), not \(4, 8\)",
        ),
        (torch.zeros(1, 4, 6), torch.tensor([4]), PAIR, r"words must be \(B, n, 8\), not \(1, 4, 6\)"),
        (torch.zeros(1, 4, 8), [4.0], PAIR, r"lengths must be 1 integers, not \(1,\) of torch.float32"),
        (torch.zeros(1, 4, 8), torch.ones(1, 4, dtype=torch.int64), PAIR, r"a mask must be bool: mask.bool\(\)"),
        (torch.zeros(1, 4, 8), torch.tensor([5]), PAIR, "lengths: 5 to 5 words, but there are 4 positions"),
        (torch.zeros(1, 4, 8), torch.tensor([4]), None, "members must be an integer tensor .* not a NoneType"),
        (torch.zeros(1, 4, 8), torch.tensor([4]), PAIR[:0], "members of 0 sentences, but lengths of 1"),
    ],
)
def test_an_input_of_another_shape_is_one_line_that_names_it(words, lengths, members, said):
    with pytest.raises(ValueError, match=said):
        HypernodeEncoderConfig(d=8, heads=2, layers=1, d_ff=8).build()(words, lengths, members)
