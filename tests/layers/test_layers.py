"""Dropout, and the loss of target tokens, beside torch's own."""

import math

import pytest
import torch
from torch.nn import functional as F

from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.blocks import PAD, Dropout, dropout
from phrasemodels.layers.phrases import members_of
from phrasemodels.models.translation import TranslationConfig, smoothed_cross_entropy, token_loss


@pytest.mark.parametrize("p", [0.0, 1e-3, 0.1, 0.5, 0.9, 1.0])
def test_dropout_drops_that_share_and_keeps_the_mean_and_the_seed(p: float) -> None:
    x = torch.ones(1001, 999, requires_grad=True)
    made = [(torch.manual_seed(3), dropout(x, p, True))[1] for _ in range(2)]
    assert torch.equal(*made) and torch.equal(Dropout(p).eval()(x), x)
    tolerance = 5 * math.sqrt(p * (1 - p) / x.numel())
    assert (made[0] == 0).float().mean().item() == pytest.approx(p, abs=2**-17 + tolerance)
    assert made[0].mean().item() == pytest.approx(float(p < 1), abs=tolerance / (1 - p) if p < 1 else 0)
    (gradient,) = torch.autograd.grad(made[0].sum(), x)
    assert torch.equal(gradient, made[0])


def test_values_drop_out_independently_of_their_neighbours() -> None:
    dropped = (dropout(torch.ones(2**20), 0.3, True) == 0).double()
    for distance in (1, 2, 3, 4, 8, 64, 1024):
        both = (dropped[:-distance] * dropped[distance:]).mean().item()
        assert both == pytest.approx(0.09, abs=5 * math.sqrt(0.09 * 0.91 / 2**20))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_real_tokens_is_that_of_torch_with_its_gradient(smoothing: float) -> None:
    scores, gold = torch.randn(7, 11, dtype=torch.double, requires_grad=True), torch.randint(11, (7,))
    assert torch.autograd.gradcheck(lambda x: smoothed_cross_entropy(x, gold, smoothing), scores)
    expected = F.cross_entropy(scores, gold, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(smoothed_cross_entropy(scores, gold, smoothing), expected)


def test_padding_of_targets_changes_no_loss_and_no_gradient() -> None:
    model = TranslationConfig(TransformerEncoderConfig(d=8, heads=2, layers=1, d_ff=8, dropout=0.0), 9, 9, 1, 8).build()
    source, lengths, phrases = torch.randint(4, 9, (3, 4)), torch.tensor([4, 4, 4]), torch.zeros(3, 0, 2).long()
    target = torch.tensor([[2, 5, 6, 3], [2, 7, 3, PAD], [2, 3, PAD, PAD]])
    losses, gradients = [], []
    for given in (target, F.pad(target, (0, 3), value=PAD)):
        losses.append(token_loss(model, source, lengths, phrases, given, 0.1))
        gradients.append(torch.autograd.grad(losses[-1], list(model.parameters())))
    scores = model(source, lengths, phrases, target[:, :-1]).flatten(0, 1)
    gold = target[:, 1:].flatten()
    losses.append(F.cross_entropy(scores, gold, ignore_index=PAD, reduction="sum", label_smoothing=0.1))
    gradients.append(torch.autograd.grad(losses[-1], list(model.parameters())))
    for loss, gradient in zip(losses[1:], gradients[1:], strict=True):
        torch.testing.assert_close((loss, gradient), (losses[0], gradients[0]))


def test_members_of_spans_are_filled_up() -> None:
    assert members_of([[range(0, 2), range(2, 5)], [], [[3, 1]]]).tolist() == [
        [[0, 1, -1], [2, 3, 4]],
        [[-1, -1, -1]] * 2,
        [[3, 1, -1], [-1, -1, -1]],
    ]
    assert members_of([[], []]).shape == (2, 0, 1)
