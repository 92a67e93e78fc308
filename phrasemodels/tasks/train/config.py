"""How a model is trained: the settings that are the same for every problem."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from phrasemodels.layers.checks import at_least, not_negative, one_of, positive, share
from phrasemodels.tasks.train.batches import Arrange, by_length
from phrasemodels.tasks.train.optimisers import adam, inverse_sqrt, undecayed


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training. ValueError: a value is out of its range.

    steps: updates. batch_tokens: padded tokens of all sides in a batch over all workers; batch_rows: its rows at most
    (0: any number). arrange: which rows are in a batch together, by_length or at_random. equal_sides: rows
    of a batch have equal lengths on so many sides, from the first, as programs without masks need it. evaluate_every,
    checkpoint_every: in updates. patience: evaluations without a better one after which the training ends (0: it goes on to
    the last step).
    schedule: factor of the learning rate, of (step, warmup, steps). decay: another factor, of the dev losses so far; the
    training ends when it is 0.
    clip: largest norm of the gradient (infinity: any). smoothing: of labels.
    precision: dtype of matrix products, by autocast; weights stay float32. workers: processes (0 is one). threads: of
    torch in each worker; they change sums in their last bits. gpus: of each worker; a fraction lets several trainings
    share one GPU. pieces: into which a worker divides its rows of a batch, to compute one after another and add their
    gradients: memory is that of one.
    """

    steps: int = 1000
    batch_tokens: int = 2048
    learning_rate: float = 1e-3
    warmup: int = 100
    batch_rows: int = 0
    arrange: Arrange = by_length
    schedule: Callable[[int, int, int], float] = inverse_sqrt
    decay: Callable[[Sequence[float]], float] = undecayed
    optimiser: Callable[[Iterable[nn.Parameter], "TrainConfig"], torch.optim.Optimizer] = adam
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    clip: float = 1.0
    smoothing: float = 0.1
    precision: str = "float32"
    evaluate_every: int = 100
    checkpoint_every: int = 200
    patience: int = 0
    workers: int = 0
    threads: int = 1
    gpus: float = 0.0
    equal_sides: int = 0
    pieces: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "steps", "batch_tokens", "warmup", "evaluate_every", "checkpoint_every", "threads", "pieces")
        at_least(self, 0, "batch_rows", "patience", "workers", "equal_sides")
        not_negative(self, "gpus")
        positive(self, "learning_rate", "epsilon")
        share(self, "smoothing")
        one_of(self, "precision", ("float32", "bfloat16"))  # float16 would need scaled losses
        if self.gpus > 1 and self.gpus % 1:
            raise ValueError(f"gpus={self.gpus}: must be a share of one GPU, or a whole number of them")
        if not self.clip > 0:  # infinity: gradients are not clipped
            raise ValueError(f"clip={self.clip}: must be above 0")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}: must be two numbers from 0 up to, but not including, 1")
        for name in ("schedule", "decay", "optimiser"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)}: must be a function of tasks/train/optimisers.py")
