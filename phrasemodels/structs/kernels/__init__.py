"""Compiled CPU kernels. They give what the reference gives for CPU tensors of float32 and float64, only faster.

Charts of sums are float64 whatever the scores are. Nothing here is called by users: `chain`, `eisner`, `spans` and
`joint` choose kernels themselves. `reference_only()` switches the choice off, for tests and comparisons.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numba
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


@contextmanager
def torch_threads() -> Iterator[None]:
    """Run kernels on as many threads as torch uses, so that `torch.set_num_threads` governs both."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def reference_vjp(function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor) -> list[Tensor | None]:
    """vᵀJ of a reference function, itself differentiable: what kernels answer with when a graph is asked for."""
    wanted = [x for x in inputs if x.requires_grad]
    with torch.enable_grad(), reference_only():
        found = iter(torch.autograd.grad(function(*inputs), wanted, grad, create_graph=True, materialize_grads=True))
    return [next(found) if x.requires_grad else None for x in inputs]
