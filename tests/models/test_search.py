"""Beam search finds what exhaustive search finds."""

import itertools

import pytest
import torch
from plain_000 import members

from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.blocks import BEGIN, END
from phrasemodels.models.translation import BeamSearch, TranslationConfig, beam_search

VOCABULARY = 6  # PAD, UNKNOWN, BEGIN, END and two words
LENGTHS = (5, 2, 1)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = TranslationConfig(
        TransformerEncoderConfig(d=8, heads=2, layers=1, d_ff=8), 9, VOCABULARY, 1, 8, tied=False
    )
    model = config.build().double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.9)
    return model


@pytest.fixture(scope="module")
def inputs():
    torch.manual_seed(4)
    return torch.randint(4, 9, (3, 5)), torch.tensor(LENGTHS), members(LENGTHS, 2)


def exhaustive(model, source, limit: int, penalty: float) -> tuple[list[int], float]:
    """Return the best of all hypotheses of at most `limit` tokens with END; those of `limit` tokens may lack END."""
    best: tuple[list[int], float] = ([], float("-inf"))
    for length in range(1, limit + 1):
        for words in itertools.product((4, 5, END), repeat=length):
            if END in words[:-1] or (words[-1] != END and length < limit):
                continue
            target = torch.tensor([[BEGIN, *words]])
            scores = model(
                source, torch.tensor([source.shape[1]]), torch.zeros(1, 0, 2, dtype=torch.long), target[:, :-1]
            )
            scores[..., [0, 1, 2]] = float("-inf")
            total = scores.log_softmax(-1)[0].gather(1, target[0, 1:, None]).sum().item() / length**penalty
            if total > best[1]:
                best = ([w for w in words if w != END], total)
    return best


def test_answers_reach_as_far_as_targets_of_train_allow(model, inputs):
    search = BeamSearch(beam=2, growth=0.0, extra=100, reach=1.5)
    assert search.within(4).extra == 6 and search.within(400).extra == 100 and search.within(0) == search
    model.project.bias = torch.nn.Parameter(torch.tensor([0.0, 0, 0, -100, 0, 0], dtype=torch.float64))
    found = beam_search(model, *inputs, search.within(4))
    model.project.bias = None
    assert [len(tokens) for tokens, _ in found] == [6, 6, 6], "a model that never ends"


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_hypothesis(model, inputs, penalty):
    source, lengths, phrases = inputs
    search = BeamSearch(beam=64, length_penalty=penalty, growth=0.0, extra=5)
    for row, (tokens, score) in enumerate(beam_search(model, source, lengths, phrases, search)):
        expected, total = exhaustive(model, source[row : row + 1, : LENGTHS[row]], 5, penalty)
        assert tokens == expected
        assert score == pytest.approx(total)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_does_not_depend_on_the_batch(model, inputs, beam):
    source, lengths, phrases = inputs
    search = BeamSearch(beam=beam, extra=4)
    together = beam_search(model, source, lengths, phrases, search)
    for row, n in enumerate(LENGTHS):
        alone = beam_search(model, source[row : row + 1, :n], lengths[row : row + 1], members((n,), 2), search)[0]
        assert alone[0] == together[row][0]
        assert alone[1] == pytest.approx(together[row][1])


def test_a_beam_of_one_is_greedy_search(model, inputs):
    source, lengths, phrases = inputs
    best, _ = beam_search(model, source[:1], lengths[:1], phrases[:1], BeamSearch(beam=1, growth=0.0, extra=6))[0]
    tokens = [BEGIN]
    while len(tokens) <= 6:
        scores = model(source[:1], lengths[:1], phrases[:1], torch.tensor([tokens]))[0, -1]
        scores[[0, 1, 2]] = float("-inf")
        tokens.append(int(scores.argmax()))
        if tokens[-1] == END:
            break
    assert best == [t for t in tokens[1:] if t != END]


def test_decoding_with_the_cache_equals_one_pass_over_the_target(model, inputs):
    source, lengths, phrases = inputs
    target = torch.randint(4, VOCABULARY, (3, 6))
    whole = model(source, lengths, phrases, target)
    cache = model.start(model.encode(source, lengths, phrases), lengths)
    steps = [model.project(model.advance(target[:, i : i + 1], cache)) for i in range(6)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)
