"""Updates as CUDA graphs: the kernels of a pass are recorded once for each shape of a batch, those of the step once, and then replayed.

An update of a Transformer is some two thousand kernels of 5 µs, and a processor takes longer to launch one. A graph is launched as
one. It computes the same for all batches of its shape. So batches are padded to a few sizes, and padding is computed and masked.
Nothing in an update waits, so the processor makes the next batch while the GPU computes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from phrasemodels.layers.blocks import fixed_shapes
from phrasemodels.tasks.train.batches import Batch

STEP = 8  # rows and short sides of a batch are padded to a multiple of it
MOST = 64  # recordings at once: each takes some MB of the GPU; batches by tokens have half as many shapes
WARM = 2  # passes before a recording: libraries are loaded and choose kernels


def few_sizes(n: int) -> int:
    """Return the next of few sizes, four for each power of two: 8, 16, 24, ..., 64, 80, 96, 112, 128, 160, ..."""
    step = max(STEP, 1 << max(n.bit_length() - 3, 0))
    return -(-n // step) * step


class Recording(NamedTuple):
    """A graph and its inputs, the tensors of a batch."""

    graph: Any
    inputs: Sequence[Tensor]


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"train.graphs: an update cannot be recorded, train without it: {reason}") from error


class RecordedPasses:
    """Forward and backward passes of a module on a GPU. They add to the gradients of its parameters and to `loss`.

    module: batch -> loss, independent of the data while shapes are fixed. precision: makes the context of a pass. ValueError, of a
    call: a pass cannot be recorded.
    """

    def __init__(self, module: nn.Module, precision: Callable[[], AbstractContextManager[Any]]) -> None:
        self.module, self.precision = module, precision
        self.weights = [p for p in module.parameters() if p.requires_grad]
        self.counted = [
            *module.buffers(),
            *(p for p in module.parameters() if not p.requires_grad),
        ]  # passes change them
        self.scale, self.loss = torch.zeros(2, device=self.weights[0].device).unbind()
        self.used: list[bool] = []
        self.recordings: dict[tuple[torch.Size, ...], Recording] = {}  # the one used last is the last
        self.pool: Any = None  # graphs run one after another and leave no results in it, so they share memory

    def __call__(self, batch: Batch, scale: float) -> None:
        """Add the loss of a batch on the CPU to `loss`, and scale times its gradient to those of the weights."""
        tensors = _tensors(padded := batch.padded_to(few_sizes))
        shape = tuple(x.shape for x in tensors)
        recording = self.recordings.pop(shape, None)
        if recording is None:
            if len(self.recordings) >= MOST:
                torch.cuda.synchronize()  # the graph may still run
                del self.recordings[next(iter(self.recordings))]
            state = torch.cuda.get_rng_state()  # dropout must not depend on what was recorded before
            before = [(own, own.clone()) for own in self.counted]
            with _one_line():
                recording = self._record(padded)
            torch.cuda.set_rng_state(state)
            for own, value in before:
                own.copy_(value)
        self.recordings[shape] = recording
        for own, x in zip(recording.inputs, tensors, strict=True):
            own.copy_(x.pin_memory(), non_blocking=True)
        self.scale.fill_(scale)
        recording.graph.replay()

    def taken(self) -> Tensor:
        """Return the loss of all passes since the last call."""
        loss = self.loss.clone()
        self.loss.zero_()
        return loss

    def graph(self, run: Callable[[], None]) -> Any:
        """Return the graph of what runs."""
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            run()
        return graph

    def _record(self, batch: Batch) -> Recording:
        own = batch.to(self.scale.device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM):
                _, gradients = self.gradients(own, self.scale)
        torch.cuda.current_stream().wait_stream(aside)
        used = [gradient is not None for gradient in gradients]
        if self.used not in ([], used):  # Adam leaves an unused weight alone, and moves one whose gradient is 0
            raise ValueError("train.graphs: batches of another shape use other weights, train without it")
        self.used = used
        for weight, gradient in zip(self.weights, gradients, strict=True):
            if gradient is not None and weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        del gradients
        return Recording(self.graph(lambda: self._add(own)), _tensors(own))

    def _add(self, batch: Batch) -> None:
        loss, gradients = self.gradients(batch, self.scale)
        pairs = [
            (w.grad, g) for w, g in zip(self.weights, gradients, strict=True) if w.grad is not None and g is not None
        ]
        torch._foreach_add_([self.loss, *(own for own, _ in pairs)], [loss, *(new for _, new in pairs)])

    def gradients(self, batch: Batch, scale: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the loss of a batch and scale times its gradient. It is None for unused parameters."""
        with fixed_shapes(), self.precision():
            loss = self.module(batch)
        return loss.detach(), torch.autograd.grad(loss * scale, self.weights, allow_unused=True)


class RecordedStep:
    """The step of a fused Adam on a GPU, after any passes, as one graph. Its learning rates become tensors.

    step: clips, updates the weights and sets gradients to 0. The first call makes the optimiser's state and records nothing.
    """

    def __init__(self, optimiser: torch.optim.Optimizer, step: Callable[[], None], passes: RecordedPasses) -> None:
        self.step, self.passes, self.begun = step, passes, False
        self.graph: Any = None
        for group in optimiser.param_groups:
            # the kernel reads a rate of float32
            group |= {
                "capturable": True,
                "lr": torch.tensor(group["lr"], dtype=torch.float32, device=passes.scale.device),
            }

    def __call__(self) -> None:
        if not self.begun:
            self.begun = True
            self.step()
            return
        if self.graph is None:
            with _one_line():
                self.graph = self.passes.graph(self.step)
        self.graph.replay()


def can_be_recorded(optimiser: torch.optim.Optimizer) -> bool:
    """Return whether no number that changes with an update is on the processor, as in a fused Adam."""
    return bool(optimiser.defaults.get("fused")) and "capturable" in optimiser.defaults


def _tensors(batch: Batch) -> list[Tensor]:
    return [getattr(batch, field.name) for field in fields(batch)]
