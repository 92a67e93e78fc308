"""PSAN and its baselines (paper 001) equal plain transcriptions, do not depend on the batch, and learn."""

import dataclasses

import plain_001 as plain
import pytest
import torch
from torch import nn

from phrasemodels.encoders.baselines import (
    AdaSentConfig,
    BiLSTMMaxConfig,
    DisanConfig,
    HConvNetConfig,
    MultiHeadConfig,
    TbcnnConfig,
)
from phrasemodels.encoders.psan import (
    Concatenated,
    GatedMemory,
    HighwayMemory,
    PsanConfig,
    Stacked,
    SteadyMemory,
    as_numbered,
    fine_to_coarse,
    recompute_activations,
)
from phrasemodels.layers.blocks import dropout, max_with_padding
from phrasemodels.layers.multidim import attend_blocks, attend_within, itself
from phrasemodels.models.sentence_pair import LinearClassifier, SentencePairConfig

D = 6
LENGTHS = (7, 1, 4, 0, 2)
# the phrases of each sentence, level by level, coarse to fine
LEVELS = (
    ([[0, 1, 2, 3], [4, 5, 6]], [[0], [1, 2, 3], [4, 5, 6]], [[0], [1], [2, 3], [4, 5], [6]]),
    ([[0]], [[0]], [[0]]),
    ([[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0, 1], [2], [3]]),
    ([], [], []),
    ([[0, 1]], [[0], [1]], [[0], [1]]),
)


def level_tensor() -> torch.Tensor:
    """Return LEVELS as the number of each token's phrase, (B, 3, n)."""
    out = torch.full((len(LENGTHS), 3, max(LENGTHS)), -1)
    for row, levels in enumerate(LEVELS):
        for level, phrases in enumerate(levels):
            for number, phrase in enumerate(phrases):
                out[row, level, phrase] = number
    return out


def edge_tensor() -> torch.Tensor:
    """Return heads and random relations, (B, 2, n)."""
    generator = torch.Generator().manual_seed(0)
    heads = torch.tensor([[0, 1, 1, 3, 3, 5, 2], [0] * 7, [2, 0, 2, 3, 0, 0, 0], [0] * 7, [2, 0] + [0] * 5])
    return torch.stack([heads, torch.randint(0, 3, heads.shape, generator=generator)], 1)


def weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


def spread(module: nn.Module) -> nn.Module:
    """Return the module in float64, in eval mode, with parameters from N(0, 0.25)."""
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double().eval()


def words() -> torch.Tensor:
    return torch.randn(len(LENGTHS), max(LENGTHS), D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


MEMORIES = {"literal": GatedMemory, "highway": HighwayMemory, "concatenated": Concatenated, "stacked": Stacked}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("alone", [("zero", torch.zeros_like), ("self", itself)], ids=lambda a: a[0])
@pytest.mark.parametrize("order", [fine_to_coarse, as_numbered], ids=lambda f: f.__name__)
def test_psan_equals_the_transcription(memory, alone, order):
    encoder = spread(PsanConfig(D, 3, 0.5, alone[1], order, MEMORIES[memory]).build())
    x = words()
    vectors = encoder(x, torch.tensor(LENGTHS), level_tensor())
    weights = {
        "attentions": [weights_of(a) for a in encoder.attentions],
        "memory": weights_of(encoder.memory),
        "summary": weights_of(encoder.summary),
    }
    for row, n in enumerate(LENGTHS):
        if n:
            levels = LEVELS[row][::-1] if order is fine_to_coarse else LEVELS[row]
            expected = plain.psan(list(x[row, :n]), levels, weights, alone[0], memory)
            torch.testing.assert_close(vectors[row], expected)
    assert (vectors[3] == 0).all()


def test_states_check_lengths_as_the_vectors_do():
    encoder, x, levels = PsanConfig(d=D, levels=1).build().eval(), torch.randn(2, 4, D), torch.zeros(2, 1, 4).long()
    mask, states = torch.arange(4) < torch.tensor([[3], [2]]), encoder.states(x, torch.tensor([3, 2]), levels)
    assert torch.equal(encoder.states(x, [3, 2], levels), states) and torch.equal(encoder.states(x, mask, levels), states)
    for function in (encoder, encoder.states):
        with pytest.raises(ValueError, match=r"^lengths: 2 to 7 words"):
            function(x, torch.tensor([7, 2]), levels)


def test_a_start_that_keeps_variance_keeps_it_where_the_printed_gate_shrinks_it():
    torch.manual_seed(0)
    x, lengths = 0.4 * torch.randn(32, 12, 200), torch.full((32,), 12)
    levels = torch.stack([torch.arange(12) * parts // 12 for parts in (2, 4, 6)]).expand(32, 3, 12)
    spread_of = {
        memory: PsanConfig(200, dropout=0.0, memory=memory).build().states(x, lengths, levels).std().item()
        for memory in (GatedMemory, SteadyMemory)
    }
    assert spread_of[GatedMemory] < 0.08 and 0.3 < spread_of[SteadyMemory] < 0.5


def test_disan_adasent_and_tbcnn_equal_their_transcriptions():
    x, lengths = words(), torch.tensor(LENGTHS)
    disan, adasent, tbcnn, narrow = (
        spread(c.build())
        for c in (DisanConfig(D), AdaSentConfig(D, 5), TbcnnConfig(D, relations=3), DisanConfig(D, units=D // 2))
    )
    edges = edge_tensor()
    vectors = [encoder(x, lengths, edges) for encoder in (disan, adasent, tbcnn, narrow)]
    assert vectors[3].shape == (len(LENGTHS), D)
    for row, n in enumerate(LENGTHS):
        if n:
            sentence = list(x[row, :n])
            parts = {name: weights_of(getattr(disan, name)) for name in ("past", "future", "summary")}
            torch.testing.assert_close(vectors[0][row], plain.disan(sentence, parts))
            parts = {name: weights_of(getattr(narrow, name)) for name in ("past", "future", "summary")}
            torch.testing.assert_close(vectors[3][row], plain.disan(sentence, parts))
            torch.testing.assert_close(vectors[1][row], plain.adasent(sentence, weights_of(adasent)))
            convolution = plain.tbcnn(
                sentence,
                edges[row, 0, :n].tolist(),
                edges[row, 1, :n].tolist(),
                {"w.weight": tbcnn.parent.weight, "w.bias": tbcnn.parent.bias},
                [{"w.weight": dependent.weight} for dependent in tbcnn.dependents],
            )
            torch.testing.assert_close(vectors[2][row], convolution)


ENCODERS = {
    "psan": PsanConfig(D),
    "psan-self": PsanConfig(D, alone=itself, memory=HighwayMemory),
    "bilstm": BiLSTMMaxConfig(D, 5),
    "adasent": AdaSentConfig(D, 5),
    "hconvnet": HConvNetConfig(D, 4),
    "tbcnn": TbcnnConfig(D, relations=3),
    "disan": DisanConfig(D),
    "multihead": MultiHeadConfig(D, heads=2),
}


def structure(name: str) -> torch.Tensor:
    return edge_tensor() if name == "tbcnn" else level_tensor()


@pytest.mark.parametrize("name", ENCODERS)
def test_sentences_of_one_or_no_word_give_finite_vectors_and_gradients(name):
    encoder = ENCODERS[name].build()
    x = words().float().requires_grad_()
    out = encoder(x, torch.tensor(LENGTHS), structure(name))
    assert out.shape == (len(LENGTHS), encoder.width) and out.isfinite().all()
    out.square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())
    for row, n in enumerate(LENGTHS):
        assert (x.grad[row, n:] == 0).all()


@pytest.mark.parametrize("name", ENCODERS)
def test_a_sentence_vector_does_not_depend_on_the_batch(name):
    encoder = spread(ENCODERS[name].build())
    x, lengths = words(), torch.tensor(LENGTHS)
    together = encoder(x, lengths, structure(name))
    noisy = x.clone()
    for row, n in enumerate(LENGTHS):
        noisy[row, n:] = 1e3
        if n:
            alone = encoder(x[row : row + 1, :n], lengths[row : row + 1], structure(name)[row : row + 1, :, :n])
            torch.testing.assert_close(alone[0], together[row])
    torch.testing.assert_close(encoder(noisy, lengths, structure(name)), together)


def test_max_with_padding_depends_on_the_batch():
    encoder = spread(BiLSTMMaxConfig(D, 5, max_with_padding).build())
    x, lengths = words(), torch.tensor(LENGTHS)
    alone = encoder(x[2:3, :4], lengths[2:3])
    assert not torch.allclose(alone[0], encoder(x, lengths)[2])


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in module.parameters())


def test_numbers_of_parameters():
    configs = {
        "psan": PsanConfig(),
        "disan": DisanConfig(),
        "tbcnn": TbcnnConfig(),
        "bilstm": BiLSTMMaxConfig(),
        "hconvnet": HConvNetConfig(),
    }
    pair = {name: SentencePairConfig(config) for name, config in configs.items()}
    pair["bilstm"] = dataclasses.replace(pair["bilstm"], classifier=LinearClassifier, hidden=512, dropout=0.0)
    with torch.device("meta"):
        model = {name: config.build() for name, config in pair.items()}
    assert count(model["psan"].encoder) + count(model["psan"].classify) == 1_984_203
    assert count(model["psan"].encoder.attentions[0]) == count(model["psan"].encoder.memory) == 360_600
    assert count(model["disan"].encoder) + count(model["disan"].classify) == 2_344_203
    assert count(model["tbcnn"].encoder) + count(model["tbcnn"].classify) == 3_511_503
    assert count(model["bilstm"].encoder) == 38_502_400
    assert count(model["bilstm"].classify) == 16_384 * 512 + 512 + 512 * 512 + 512 + 512 * 3 + 3
    assert count(model["hconvnet"].encoder) == 300 * 1024 * 3 + 3 * 1024 * 1024 * 3 + 4 * 1024


def packed(scale: float) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return u, w, p (30, 70) and the bounds of phrases of 1, 2, 1, 5 and 21 words; u and w have standard deviation `scale`."""
    generator = torch.Generator().manual_seed(3)
    bounds = torch.tensor([0, 1, 3, 4, 9, 9 + 21])
    return [(torch.randn(30, 70, generator=generator) * s).requires_grad_() for s in (scale, scale, 1.0)], bounds


@pytest.mark.parametrize("scale", [1.0, 30.0, 500.0, 1e4])
def test_kernel_equals_the_reference_for_logits_of_any_size(scale):
    inputs, bounds = packed(scale)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    attended, expected = attend_within(*inputs, bounds), attend_blocks(*exact, bounds)
    reference = attend_blocks(*inputs, bounds)
    # the error of the reference in float32, whose sums are rounded too, sets the tolerance
    tolerance = 2 * (reference - expected).abs().max().item() + 1e-6
    assert (attended - expected).abs().max() <= tolerance
    weight = torch.randn(attended.shape, generator=torch.Generator().manual_seed(4))
    gradients = torch.autograd.grad(attended, inputs, weight)
    wanted = torch.autograd.grad(expected, exact, weight.double())
    rounded = torch.autograd.grad(reference, inputs, weight)
    for ours, theirs, other in zip(gradients, wanted, rounded, strict=True):
        assert (ours - theirs).abs().max() <= 2 * (other - theirs).abs().max() + 1e-5


def test_equal_largest_logits_share_the_weight():
    u, w, p = torch.zeros(4, 3), torch.full((4, 3), 900.0), torch.arange(12.0).view(4, 3)
    attended = attend_within(u, w, p, torch.tensor([0, 4]))
    torch.testing.assert_close(attended, (p.sum(0) - p) / 3)


def test_gradients_of_the_reference_equal_finite_differences():
    inputs, bounds = packed(1.0)
    small = [x.detach()[:9, :3].double().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda *x: attend_within(*x, bounds[:5]), small)


def test_explained_attention_is_positive_inside_phrases_alone():
    encoder = spread(PsanConfig(D).build())
    levels = level_tensor()
    attention = encoder.explain(words()[0], levels[0])
    assert [level.shape for level in attention.levels] == [(7, 7)] * 3 and attention.summary.shape == (7,)
    together = levels[0].flip(0).unsqueeze(2) == levels[0].flip(0).unsqueeze(1)
    for level, same in zip(attention.levels, together, strict=True):
        assert ((level > 0) == (same & ~torch.eye(7, dtype=torch.bool))).all()


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_dropout_has_the_right_rate_mean_and_independence(p):
    torch.manual_seed(0)
    x = torch.ones(1000, 301, requires_grad=True)
    y = dropout(x, p, True)
    gone = y == 0
    assert abs(gone.float().mean() - p) < 0.005 and torch.allclose(y[~gone], torch.tensor(1 / (1 - p)))
    assert (gone.float().mean(0) - p).abs().max() < 0.08, "columns have different rates"
    assert abs((gone[:, 1:] & gone[:, :-1]).float().mean() - p * p) < 0.005, "neighbours are correlated"
    y.sum().backward()
    assert torch.equal(x.grad, y) and dropout(x, p, False) is x


def test_recomputed_activations_give_the_same_gradients_as_saved_ones():
    grads = []
    for run in ({}, {"run": recompute_activations}):
        torch.manual_seed(0)
        encoder = PsanConfig(D, **run).build()
        torch.manual_seed(1)  # for dropout
        encoder(words().float(), torch.tensor(LENGTHS), level_tensor()).square().sum().backward()
        grads.append([p.grad for p in encoder.parameters()])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_six_pairs_are_memorised():
    torch.manual_seed(0)
    config = SentencePairConfig(PsanConfig(16, dropout=0.0), words=10, hidden=16, dropout=0.0)
    model = config.build()
    tokens = torch.randint(0, 10, (12, 5))
    lengths, levels = torch.randint(1, 6, (12,)), torch.randint(0, 3, (12, 3, 5)).sort(-1).values
    gold = torch.tensor([0, 1, 2, 0, 1, 2])
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(tokens, lengths, levels), gold)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.05
