"""Compiled CPU kernels. They give what the reference gives for CPU tensors of float32 and float64, only faster.

Charts of sums are float64 whatever the scores are; `scaled` says why they are right at any spread. Nothing here is called
by users: `chain`, `eisner`, `spans` and `joint` choose kernels themselves. `reference_only()` switches the choice off, for
tests and comparisons.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import local

import numpy as np
import torch
from torch import Tensor

_enabled = ContextVar("kernels_enabled", default=True)


@contextmanager
def reference_only() -> Iterator[None]:
    """Within it, every function of `structs` runs the reference."""
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


def usable(*scores: Tensor) -> bool:
    """Whether the kernels take these scores: CPU, one dtype, float32 or float64, and not empty."""
    dtype = scores[0].dtype
    return (
        _enabled.get()
        and dtype in (torch.float32, torch.float64)
        and all(s.device.type == "cpu" and s.dtype == dtype and s.numel() > 0 for s in scores)
        and not torch.compiler.is_compiling()
    )


def over_batch(kernel: Callable[..., None], size: int, *arguments: object) -> None:
    """Run kernel(first, step, *arguments), which does items first, first + step, ... of `size`.

    On as many threads as torch uses, so that `torch.set_num_threads` governs both. Python's threads, since kernels
    release the lock: unlike OpenMP's they survive a fork, do not spin while idle, and may be used by several threads.
    """
    step = min(torch.get_num_threads(), size)
    others = [_threads().submit(kernel, first, step, *arguments) for first in range(1, step)]
    kernel(0, step, *arguments)
    for other in others:
        other.result()


def scratch(items: int, size: int) -> np.ndarray:
    """A float64 workspace (threads, size) for `over_batch` over so many items; it lasts until this thread's next call.

    Kept, because fresh pages cost more than what most kernels do with them; but not if it is large.
    """
    threads = max(1, min(torch.get_num_threads(), items))
    wanted = threads * size
    buffer = getattr(_kept, "buffer", None)
    if buffer is None or len(buffer) < wanted:
        buffer = np.empty(wanted)
        if wanted <= LARGEST_SCRATCH:
            _kept.buffer = buffer
    return buffer[:wanted].reshape(threads, size)


LARGEST_SCRATCH = 2**22  # numbers: 32 MiB
_kept = local()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="structs")


os.register_at_fork(after_in_child=_threads.cache_clear)


def reference_vjp(function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor) -> list[Tensor | None]:
    """vᵀJ of a reference function, itself differentiable: what kernels answer with when a graph is asked for."""
    wanted = [x for x in inputs if x.requires_grad]
    with torch.enable_grad(), reference_only():
        found = iter(torch.autograd.grad(function(*inputs), wanted, grad, create_graph=True, materialize_grads=True))
    return [next(found) if x.requires_grad else None for x in inputs]
