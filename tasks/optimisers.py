"""Optimisers and schedules that papers name, with every constant said: defaults of libraries differ."""

from collections.abc import Iterable

import torch
from torch import nn

from tasks.train import TrainConfig

RHO, EPSILON = 0.95, 1e-8  # of TensorFlow, which the authors of DiSAN used; PyTorch's are 0.9 and 1e-6


def adadelta(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Adadelta (Zeiler 2012)."""
    return torch.optim.Adadelta(parameters, config.learning_rate, RHO, EPSILON)


def constant(step: int, warmup: int, steps: int) -> float:
    """The peak throughout."""
    return 1.0
