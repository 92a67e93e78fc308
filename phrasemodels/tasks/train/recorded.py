"""Losses and gradients as CUDA graphs: the kernels of a batch are recorded once for each shape, and then replayed.

An update of a Transformer is some two thousand kernels of 5 µs, and a processor takes longer to launch one. A graph is launched as
one. It computes the same for all batches of its shape. So sentences are padded to a few lengths, and padding is computed and
masked.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from phrasemodels.layers.blocks import fixed_shapes
from phrasemodels.tasks.train.batches import Batch

STEP = 8  # short sides of a batch are padded to a multiple of so many tokens
WARM = 2  # passes before a recording: libraries are loaded and choose kernels


def few_sizes(n: int) -> int:
    """Return the next of few sizes, four for each power of two: 8, 16, 24, ..., 64, 80, 96, 112, 128, 160, ..."""
    step = max(STEP, 1 << max(n.bit_length() - 3, 0))
    return -(-n // step) * step


class Recording(NamedTuple):
    """A graph, its loss and its inputs. Inputs are tensors of a batch and the scale of the gradient."""

    graph: Any
    inputs: Sequence[Tensor]
    scale: Tensor
    loss: Tensor


class RecordedPasses:
    """Forward and backward passes of a module on a GPU. They add to the gradients of its parameters.

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
        self.recordings: dict[tuple[torch.Size, ...], Recording] = {}
        self.pool: Any = None  # graphs run one after another, so they share memory

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """Add scale times the gradient of the loss of a batch on the CPU and return the loss."""
        tensors = _tensors(padded := batch.padded_to(few_sizes))
        shape = tuple(x.shape for x in tensors)
        if shape not in self.recordings:
            state = torch.cuda.get_rng_state()  # dropout must not depend on what was recorded before
            before = [(own, own.clone()) for own in self.counted]
            try:
                self.recordings[shape] = self._record(padded, scale)
            except RuntimeError as error:
                reason = next(iter(str(error).splitlines()), type(error).__name__)
                raise ValueError(f"train.graphs: a pass cannot be recorded, train without it: {reason}") from error
            torch.cuda.set_rng_state(state)
            for own, value in before:
                own.copy_(value)
        recording = self.recordings[shape]
        for own, x in zip(recording.inputs, tensors, strict=True):
            own.copy_(x.pin_memory(), non_blocking=True)
        recording.scale.fill_(scale)
        recording.graph.replay()
        return recording.loss.clone()

    def _record(self, batch: Batch, scale: float) -> Recording:
        device = self.weights[0].device
        own, factor = batch.to(device), torch.full((), scale, device=device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM):
                _, gradients = self.gradients(own, factor)
        torch.cuda.current_stream().wait_stream(aside)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            if gradient is not None and weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        del gradients
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            loss, gradients = self.gradients(own, factor)
            used = [
                (w.grad, g)
                for w, g in zip(self.weights, gradients, strict=True)
                if w.grad is not None and g is not None
            ]
            torch._foreach_add_([own for own, _ in used], [new for _, new in used])
        return Recording(graph, _tensors(own), factor, loss)

    def gradients(self, batch: Batch, scale: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the loss of a batch and scale times its gradient. It is None for unused parameters."""
        with fixed_shapes(), self.precision():
            loss = self.module(batch)
        return loss.detach(), torch.autograd.grad(loss * scale, self.weights, allow_unused=True)


def _tensors(batch: Batch) -> list[Tensor]:
    return [getattr(batch, field.name) for field in fields(batch)]
