"""Optimisers and schedules of paper 003, beside those of tasks.train."""

from collections.abc import Iterable

import torch
from torch import nn

from tasks.train import TrainConfig


def sgd(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Plain stochastic gradient descent."""
    return torch.optim.SGD(parameters, config.learning_rate)


def adagrad(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Adagrad (Duchi et al. 2011)."""
    return torch.optim.Adagrad(parameters, config.learning_rate)


def constant(step: int, warmup: int, steps: int) -> float:
    """The same learning rate throughout."""
    return 1.0


def halved_thrice(step: int, warmup: int, steps: int) -> float:
    """Half of it after every quarter of the steps: of 100 epochs, every 25 (paper 003, bAbI)."""
    return 0.5 ** (4 * step // steps)
