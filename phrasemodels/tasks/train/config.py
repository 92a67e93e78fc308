"""The settings of a training of any problem: optimisers, schedules and decays of the learning rate.

A schedule is a function of (step, warmup, steps). A decay is a function of the dev losses so far. The learning rate is
multiplied by both. Every constant is written out because the defaults of libraries differ.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from phrasemodels.config import at_least, not_negative, one_of, positive, share
from phrasemodels.tasks.train.batches import Arrange, by_length

RHO, EPSILON = 0.95, 1e-8  # of TensorFlow, which the authors of DiSAN used; PyTorch's are 0.9 and 1e-6
DECAY = 0.999  # of averages of weights: they span the last thousand updates
MICRO_BATCH = 1 << 13  # padded tokens: about 3 GiB with six layers of 512 features on both sides
OPTIONAL = ("batch_rows", "patience", "workers", "equal_sides")  # fields of TrainConfig that may be None

Schedule = Callable[[int, int, int], float]
Decay = Callable[[Sequence[float]], float]


def adam(parameters: Iterable[nn.Parameter], config: "TrainConfig") -> torch.optim.Optimizer:
    """Adam (Kingma and Ba 2015) with the betas and epsilon of the configuration."""
    return torch.optim.Adam(parameters, config.learning_rate, config.betas, config.epsilon, fused=True)


class AveragedAdam(torch.optim.Adam):
    """Adam with a moving average of the weights for evaluation and the best weights (Polyak and Juditsky 1992).

    The average is younger at the start: decay is min(DECAY, (1 + t) / (10 + t)) at update t.
    """

    _updates: float | None = None  # done; None: the state knows

    def load_state_dict(self, state_dict: Any) -> None:
        """Load state, with the number of updates so far."""
        super().load_state_dict(state_dict)
        self._updates = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the weights and their averages."""
        loss = super().step(closure)
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            for p in moved:
                if "average" not in self.state[p]:  # kept in the optimiser's state, so a checkpoint holds them
                    self.state[p]["average"] = p.clone()
            averages = [self.state[p]["average"] for p in moved]
            if moved and group["capturable"]:  # the same of numbers on the GPU, for a graph
                share_of_new = (9 / (10 + self.state[moved[0]]["step"].double())).clamp(min=1 - DECAY)
                change = torch._foreach_sub(moved, averages)
                torch._foreach_mul_(change, share_of_new.to(moved[0].dtype))
                torch._foreach_add_(averages, change)
            elif moved:
                # `step` of a fused Adam is on the GPU, and to read it waits for all work there: once, after a start
                t = float(self.state[moved[0]]["step"]) if self._updates is None else self._updates + 1
                self._updates = t
                # the decay of TensorFlow's ExponentialMovingAverage with num_updates
                torch._foreach_lerp_(averages, moved, 1 - min(DECAY, (1 + t) / (10 + t)))
        return loss

    @contextmanager
    @torch.no_grad()
    def averaged(self) -> Iterator[None]:
        """Put the averages in the place of the weights during the block, also if it ends by an error."""
        pairs = [(p, state["average"]) for p, state in self.state.items() if "average" in state]
        own = [p.clone() for p, _ in pairs]
        for p, average in pairs:
            p.copy_(average)
        try:
            yield
        finally:
            for (p, _), weights in zip(pairs, own, strict=True):
                p.copy_(weights)


def averaged_adam(parameters: Iterable[nn.Parameter], config: "TrainConfig") -> torch.optim.Optimizer:
    """Adam as above, with averaged weights."""
    return AveragedAdam(parameters, config.learning_rate, config.betas, config.epsilon, fused=True)


def averaged_weights(optimiser: torch.optim.Optimizer) -> AbstractContextManager[None]:
    """Return a context with the optimiser's averages as weights, if it keeps any."""
    return optimiser.averaged() if isinstance(optimiser, AveragedAdam) else nullcontext()


def adam_with_decay(parameters: Iterable[nn.Parameter], config: "TrainConfig") -> torch.optim.Optimizer:
    """Adam with the L2 penalty of Star-Transformer's tagger: 2e-5 for matrices, none for biases and norms.

    Paper 000, section 4.3: "we follow the parameters in Guo et al."
    """
    # torch's Adam with weight_decay adds it to the gradient (L2); AdamW would be another optimiser
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in parameters:
        (matrices if parameter.dim() > 1 else others).append(parameter)
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": 2e-5}, {"params": others}]
    return torch.optim.Adam(groups, config.learning_rate, config.betas, config.epsilon, fused=True)


def adadelta(parameters: Iterable[nn.Parameter], config: "TrainConfig") -> torch.optim.Optimizer:
    """Adadelta (Zeiler 2012) with TensorFlow's constants."""
    return torch.optim.Adadelta(parameters, config.learning_rate, RHO, EPSILON)


def adagrad(parameters: Iterable[nn.Parameter], config: "TrainConfig") -> torch.optim.Optimizer:
    """Adagrad (Duchi et al. 2011)."""
    return torch.optim.Adagrad(parameters, config.learning_rate)


def sgd(parameters: Iterable[nn.Parameter], config: "TrainConfig") -> torch.optim.Optimizer:
    """Stochastic gradient descent without momentum."""
    return torch.optim.SGD(parameters, config.learning_rate)


def constant(step: int, warmup: int, steps: int) -> float:
    """No schedule: always 1."""
    return 1.0


def linear_warmup(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up, then 1."""
    return min(1.0, (step + 1) / warmup)


def inverse_sqrt(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up and then 1/√step (Vaswani et al. 2017, Eq 3) with a peak of 1."""
    return min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)


def linear_decay(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up to 1, then linearly to 0 at the last step."""
    return min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))


def halved_thrice(step: int, warmup: int, steps: int) -> float:
    """Half after each quarter of the steps. Of 100 epochs a quarter is 25 (paper 003, bAbI)."""
    return 0.5 ** (4 * step // steps)


def undecayed(losses: Sequence[float]) -> float:
    """No decay: always 1."""
    return 1.0


def halved_after_rise(losses: Sequence[float]) -> float:
    """Half at every evaluation since the first rise of the dev loss (paper 003, with one evaluation an epoch)."""
    rises = [place for place in range(1, len(losses)) if losses[place] > losses[place - 1]]
    return 0.5 ** (len(losses) - rises[0]) if rises else 1.0


def halved_on_plateau(losses: Sequence[float]) -> float:
    """Half whenever six epochs of four evaluations each have brought no better dev loss (paper 004's released code)."""
    factor, best, without = 1.0, math.inf, 0
    for end in range(4, len(losses) + 1, 4):
        newest = min(losses[:end])
        best, without = (newest, 0) if newest < best else (best, without + 1)
        if without > 5:
            factor, without = factor / 2, 0
    return factor


def shrunk_without_gain(losses: Sequence[float]) -> float:
    """0.99 an epoch and a fifth after each epoch without a better dev loss.

    From 1e-4 on it is 0 and the training ends. This is InferSent's schedule (Conneau et al. 2017, section 3.3) with one
    evaluation an epoch. Its SGD begins with a rate of 0.1 and ends below 1e-5.
    """
    best, without = math.inf, 0
    for loss in losses:
        best, without = (loss, without) if loss < best else (best, without + 1)
    return rate if (rate := 0.99 ** len(losses) * 0.2**without) >= 1e-4 else 0.0


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training. None: not set.

    Raises:
        ValueError: A value is out of its range.
    """

    steps: int = 1000
    """Updates."""
    batch_tokens: int = 2048
    """Padded tokens of all sides in a batch, over all workers, at most."""
    learning_rate: float = 1e-3
    """The learning rate at its peak."""
    warmup: int = 100
    """Updates until the learning rate is at its peak, for schedules with a warm-up."""
    batch_rows: int | None = None
    """Rows in a batch at most; None: as many as `batch_tokens` allows."""
    arrange: Arrange = by_length
    """Which rows are in a batch together: by_length or at_random."""
    schedule: Schedule = inverse_sqrt
    """Factor of the learning rate at an update: a function of (step, warmup, steps)."""
    decay: Decay = undecayed
    """Another factor of the learning rate, a function of the dev losses so far; the training ends when it is 0."""
    optimiser: Callable[[Iterable[nn.Parameter], "TrainConfig"], torch.optim.Optimizer] = adam
    """Makes the optimiser of parameters, by this configuration."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Of Adam: decays of the means of gradients and of their squares."""
    epsilon: float = 1e-9
    """Of Adam: added to the root of the mean square."""
    clip: float = 1.0
    """Largest norm of the gradient; infinity: gradients are not clipped."""
    smoothing: float = 0.1
    """Share of the probability that label smoothing spreads over all labels."""
    precision: str = "float32"
    """How matrix products are computed: float32; tf32, float32 with factors of 10 bits, which GPUs since Ampere multiply on tensor
    cores (elsewhere it is float32); or bfloat16, by autocast. Weights stay float32."""
    evaluate_every: int = 100
    """Updates between two evaluations on dev."""
    checkpoint_every: int = 200
    """Updates between two checkpoints."""
    patience: int | None = None
    """Evaluations without a better one after which the training ends; None: it goes on to the last update."""
    workers: int | None = None
    """Processes that share each batch; None: one, in no group of torch.distributed."""
    threads: int = 1
    """Threads of torch in each worker. They change sums in their last bits."""
    gpus: float = 0.0
    """GPUs of each worker; with a fraction several trainings share one. They change keys, but no name of a result, although a GPU draws
    other random numbers for dropout, as another seed would; a result names its device."""
    graphs: bool = False
    """Updates of translators are recorded as CUDA graphs, passes for each shape of a batch, and replayed: a GPU needs not wait for the
    launch of each kernel. For one worker on one GPU. Dropout draws other random numbers then, so it is no default."""
    equal_sides: int | None = None
    """Rows of a batch have equal lengths on so many sides, from the first, as programs without masks need it; None: any."""
    micro_batch_tokens: int = field(default=MICRO_BATCH, compare=False)
    """Padded tokens of all sides that go through the model at once, at most. A worker sorts its rows of a batch by length and
    cuts them into such micro-batches, and sums up their gradients; dev is read in batches of this size. It bounds memory, and
    is no part of keys, since the update is the same."""
    accumulation_steps: int = field(default=1, compare=False)
    """Micro-batches of a batch at least. No part of keys."""

    def __post_init__(self) -> None:
        at_least(self, 1, "steps", "batch_tokens", "warmup", "evaluate_every", "checkpoint_every", "threads")
        at_least(
            self,
            1,
            "accumulation_steps",
            "micro_batch_tokens",
            *(name for name in OPTIONAL if getattr(self, name) is not None),
        )
        not_negative(self, "gpus")
        positive(self, "learning_rate", "epsilon")
        share(self, "smoothing")
        one_of(self, "precision", ("float32", "tf32", "bfloat16"))  # float16 would need scaled losses
        if self.gpus > 1 and self.gpus % 1:
            raise ValueError(f"gpus={self.gpus}: must be a share of one GPU, or a whole number of them")
        if not self.clip > 0:  # infinity: gradients are not clipped
            raise ValueError(f"clip={self.clip}: must be above 0")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}: must be two numbers from 0 up to, but not including, 1")
        for name in ("schedule", "decay", "optimiser", "arrange"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)}: must be a function, as in tasks/train/config.py")
