"""The loss of a translator, on its real tokens alone.

Shapes: B batch, n source tokens, t target tokens, r target tokens that are not PAD, V target vocabulary, d model width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from phrasemodels.layers.ids import PAD


def token_loss(
    model: Any,
    source: Tensor,
    lengths: Tensor,
    members: Tensor,
    target: Tensor,
    smoothing: float,
) -> Tensor:
    """Return the sum over the tokens of target (B, t) after BEGIN, without PAD, of the label-smoothed cross entropy (nats).

    model: a `Translator` or a `RecurrentTranslator`; source (B, n) ids, lengths (B), members (B, m, k). Only the states of
    real tokens are projected to scores, so that padding costs nothing in the widest layer.
    """
    memory = model.encode(source, lengths, members)
    states, gold = model.advance(target[:, :-1], model.start(memory, lengths)), target[:, 1:]
    real = gold != PAD
    return smoothed_cross_entropy(model.project(states[real]).float(), gold[real], smoothing)


def smoothed_cross_entropy(scores: Tensor, gold: Tensor, smoothing: float) -> Tensor:
    """Return the sum over r tokens of the cross entropy (nats) of scores (r, V) at labels gold (r) that give `smoothing` to all V
    words alike (Szegedy et al. 2016, section 7). It can be differentiated once."""
    loss: Tensor = _SmoothedCrossEntropy.apply(scores, gold, smoothing)
    return loss


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes the gradient, softmax - labels, in the memory of log softmax, which `F.cross_entropy` keeps beside it."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        logs = scores.log_softmax(-1)
        at = torch.arange(len(gold), device=gold.device), gold
        loss = -(1 - smoothing) * logs[at].sum()
        each = smoothing / scores.shape[-1]
        if smoothing:
            loss = loss - each * logs.sum()
        gradient = logs.exp_().sub_(each) if smoothing else logs.exp_()
        gradient[at] -= 1 - smoothing
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.saved_tensors[0] * gradient, None, None
