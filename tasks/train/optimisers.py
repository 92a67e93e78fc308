"""Optimisers and schedules that papers name, with every constant said: defaults of libraries differ."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from phrasemodels.tasks.train.loop import TrainConfig

RHO, EPSILON = 0.95, 1e-8  # of TensorFlow, which the authors of DiSAN used; PyTorch's are 0.9 and 1e-6


def adadelta(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Adadelta (Zeiler 2012)."""
    return torch.optim.Adadelta(parameters, config.learning_rate, RHO, EPSILON)


def adam_with_decay(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with the L2 penalty of Star-Transformer's tagger, 2e-5 (paper 000, section 4.3: "we follow Guo et al. 2019")."""
    return torch.optim.Adam(
        parameters, config.learning_rate, config.betas, config.epsilon, weight_decay=2e-5, fused=True
    )


def constant(step: int, warmup: int, steps: int) -> float:
    """The peak throughout."""
    return 1.0


def linear_warmup(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up, then the peak."""
    return min(1.0, (step + 1) / warmup)


def sgd(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Plain stochastic gradient descent."""
    return torch.optim.SGD(parameters, config.learning_rate)


def adagrad(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Adagrad (Duchi et al. 2011)."""
    return torch.optim.Adagrad(parameters, config.learning_rate)


def halved_thrice(step: int, warmup: int, steps: int) -> float:
    """Half of it after every quarter of the steps: of 100 epochs, every 25 (paper 003, bAbI)."""
    return 0.5 ** (4 * step // steps)


def halved_after_rise(losses: Sequence[float]) -> float:
    """Half at every evaluation since the first at which the dev loss rose (paper 003, with one evaluation an epoch)."""
    rises = [place for place in range(1, len(losses)) if losses[place] > losses[place - 1]]
    return 0.5 ** (len(losses) - rises[0]) if rises else 1.0


def halved_on_plateau(losses: Sequence[float]) -> float:
    """Half whenever six epochs, of four evaluations each, have brought nothing better (paper 004's released code)."""
    factor, best, without = 1.0, math.inf, 0
    for end in range(4, len(losses) + 1, 4):
        newest = min(losses[:end])
        best, without = (newest, 0) if newest < best else (best, without + 1)
        if without > 5:
            factor, without = factor / 2, 0
    return factor
