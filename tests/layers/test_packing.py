"""Packed rows give the losses, gradients and states of the padded computation."""

import dataclasses

import pytest
import torch
from plain_000 import members

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig, softmax_hadamard
from phrasemodels.encoders.transformer import NgramEncoderConfig, TransformerEncoderConfig
from phrasemodels.layers import blocks
from phrasemodels.layers.attention import MultiHeadAttention, attention_probe, softmax_attention, softmax_with_dropout
from phrasemodels.layers.blocks import BEGIN, GROUPS, PAD, Packing, PreNorm, token_mask
from phrasemodels.layers.phrases import MeanInit
from phrasemodels.models.translation import TranslationConfig, smoothed_cross_entropy, token_loss

SIZE = {"d": 32, "heads": 4, "layers": 2, "d_ff": 48, "dropout": 0.0}
ENCODERS = {
    "transformer": TransformerEncoderConfig(**SIZE),
    "pre-norm": TransformerEncoderConfig(**SIZE, residual=PreNorm),
    "hypernodes": HypernodeEncoderConfig(**SIZE, longest=3),
    "hypernodes, means": HypernodeEncoderConfig(**SIZE, longest=3, initialise=MeanInit),
    "hypernodes, printed": HypernodeEncoderConfig(**SIZE, longest=3, attend=softmax_hadamard),
    "hypernodes, pre-norm": HypernodeEncoderConfig(**SIZE, longest=3, residual=PreNorm),
    "n-grams": NgramEncoderConfig(**SIZE, gram_sizes=(0, 0, 2, 3), phrase_layers=(1, 2)),
}
LENGTHS = torch.tensor([17, 3, 12, 1, 9, 40, 2, 5])


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(blocks, "LEAST_SAVED", 0)


def sentences() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    source, target = torch.randint(4, 30, (8, 40)), torch.randint(4, 33, (8, 20))
    source.masked_fill_(~token_mask(LENGTHS, 40), PAD)
    target[:, 0] = BEGIN
    target.masked_fill_(~token_mask(LENGTHS.flip(0).clamp(2, 20), 20), PAD)
    return source, LENGTHS, members(tuple(LENGTHS.tolist()), 3), target


@pytest.mark.parametrize("name", ENCODERS)
def test_losses_and_gradients_equal_those_of_one_sentence_at_a_time(name):
    """A sentence alone has no padding, so this is the padded computation without what padding could spoil."""
    torch.manual_seed(0)
    model = TranslationConfig(ENCODERS[name], 30, 33, 2, 48).build()
    source, lengths, phrases, target = sentences()
    packed = token_loss(model, source, lengths, phrases, target, 0.1)
    packed.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    losses = []
    for row, n in enumerate(lengths.tolist()):
        gold = target[row][target[row] != PAD]
        here = phrases[row][(phrases[row] >= 0).any(1)]
        scores = model(source[row, None, :n], lengths[row, None], here[None], gold[None, :-1])
        losses.append(smoothed_cross_entropy(scores[0], gold[1:], 0.1))
    alone = torch.stack(losses).sum()
    alone.backward()
    torch.testing.assert_close(packed, alone, rtol=3e-7, atol=0)
    for found, p in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(found, p.grad, rtol=0, atol=5e-5 * max(1.0, float(p.grad.abs().max())))


@pytest.mark.parametrize("name", ["transformer", "hypernodes"])
def test_bfloat16_follows_float32(name):
    torch.manual_seed(0)
    model = TranslationConfig(ENCODERS[name], 30, 33, 2, 48).build()
    exact = token_loss(model, *sentences(), 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        short = token_loss(model, *sentences(), 0.1)
    torch.testing.assert_close(short, exact, rtol=0.005, atol=0)


def test_attention_in_groups_equals_attention_in_one():
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(16, 2), torch.randn(8, 40, 16)
    rows, results = Packing.of(LENGTHS, 40), []
    for rows.best_groups in (1, GROUPS):
        results.append(attention.packed(rows.pack(x), rows, causal=True))
        results.append(attention.packed(rows.pack(x), rows))
    padded = attention(x, x, token_mask(LENGTHS, 40)[:, None, None])
    torch.testing.assert_close(results[2], results[0])
    torch.testing.assert_close(results[3], results[1])
    torch.testing.assert_close(results[1], rows.pack(padded))


def test_a_probe_sees_all_sentences_of_a_batch():
    torch.manual_seed(0)
    model = TranslationConfig(ENCODERS["hypernodes"], 30, 33, 1, 48).build().eval()
    source, lengths, phrases, target = sentences()
    inputs = source, lengths, phrases, target[:, :-1]
    expected = model(*inputs)
    assert Packing.of(lengths, 40).best_groups == GROUPS
    with attention_probe(model) as found:
        torch.testing.assert_close(model(*inputs), expected)
    for weights in found.values():
        assert len(weights) == len(lengths)
    with attention_probe(model) as alone:
        model(*(x[5:6] for x in inputs))
    torch.testing.assert_close(found["encoder.layers.1.inside"][5], alone["encoder.layers.1.inside"][0])
    torch.testing.assert_close(model(*inputs), expected, rtol=0, atol=0)


def test_packing_and_padding_are_inverse_and_each_others_gradients():
    real = torch.tensor([[True, False, True], [False, False, False]])
    rows, x = Packing(real), torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    packed = rows.pack(x)
    assert torch.equal(packed, x[real])
    assert torch.equal(rows.pad(packed), x * real.unsqueeze(2))
    assert torch.autograd.gradcheck(rows.pack, [x])
    assert torch.autograd.gradcheck(rows.pad, [packed.detach().requires_grad_()])


@pytest.mark.parametrize("attend", [softmax_with_dropout(0.5), HypernodeEncoderConfig(**SIZE, attention_dropout=0.5)])
def test_attention_weights_drop_out_in_training_alone(attend):
    torch.manual_seed(0)
    if isinstance(attend, HypernodeEncoderConfig):
        encoder, without = attend.build(), dataclasses.replace(attend, attention_dropout=0.0).build()
        without.load_state_dict(encoder.state_dict())
        inputs = torch.randn(8, 40, 32), LENGTHS, members(tuple(LENGTHS.tolist()), 2)
        assert not torch.allclose(encoder(*inputs), without(*inputs))
        torch.testing.assert_close(encoder.eval()(*inputs), without(*inputs))
    else:
        q = torch.randn(64, 2, 9, 8)
        allowed = torch.ones(9, 9, dtype=torch.bool).tril()
        expected = softmax_attention(q, q, q, allowed)
        torch.testing.assert_close(
            torch.stack([attend(q, q, q, allowed) for _ in range(2000)]).mean(0), expected, rtol=0.2, atol=0.2
        )
        assert torch.equal(attend.eval()(q, q, q, allowed), expected)
