"""Compiled CPU kernels, which compute what the reference computes, for CPU tensors of float32 and float64, but faster; and the functions of
autograd by which kernels and reference are differentiated.

Users do not call them: each `structure.Structure` names the `Kernel`s that serve it, unless `reference_only()` forbids them for tests and
comparisons. Sums are float64 for scores of either type; `simd` says why they are exact at any spread.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs.dispatch import (
    ALLOWED,
    announce,
    each_gradient,
    outer_forward_modes,
    transformed,
    without_transforms,
)

if TYPE_CHECKING:
    from phrasemodels.structs.kernels import decode as decode
    from phrasemodels.structs.kernels import engine as engine
    from phrasemodels.structs.kernels import gpu as gpu
    from phrasemodels.structs.kernels import labels as labels
    from phrasemodels.structs.structure import Structure

Scores = tuple[Tensor, ...]
Gradient = Callable[[Tensor], Scores]

NONE = -1  # where there is no part, score or word
_MODULES = ("decode", "engine", "gpu", "labels")


def __getattr__(name: str) -> Any:
    """Import a module of kernels at its first use, and numba with it."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextmanager
def only(*kinds: str) -> Iterator[None]:
    """Make every function of `structs` use kernels of these kinds only in this context: "numba" (CPU), "triton" (GPU)."""
    token = ALLOWED.set(kinds)
    try:
        yield
    finally:
        ALLOWED.reset(token)


def allowed(*kinds: str) -> bool:
    """Return whether kernels of one of these kinds may be used."""
    return any(kind in ALLOWED.get() for kind in kinds)


def reference_only() -> AbstractContextManager[None]:
    """Make functions of `structs` run the reference in this context: all but k best, and the choices among crossing trees."""
    return only()


def can_run_kernel(*scores: Tensor) -> bool:
    """Return whether the kernels take these scores: on the CPU, all float32 or all float64, not empty, and neither in a transform of
    `torch.func` nor in a graph of `torch.compile`."""
    dtype = scores[0].dtype
    return (
        not torch.compiler.is_compiling()  # first: the compiler cannot read what follows
        and dtype in (torch.float32, torch.float64)
        and all(s.is_cpu and s.dtype == dtype and s.numel() > 0 for s in scores)
        and allowed("numba")
        and not transformed()
    )


class Kernel:
    """Serves some operations of structures in place of the torch path: the methods that a class overrides.

    Every method takes a structure, its scores and lengths (B, A). What is no structure is -1.
    """

    waits = False
    """Whether a look at a number waits for a device. Then nobody looks at the weights of sentences."""

    def serves(self, operation: Callable[..., Any]) -> bool:
        """Return whether this class has an operation, a method of `Kernel`."""
        return getattr(type(self), operation.__name__) is not operation

    def supports(self, structure: "Structure", scores: Scores) -> bool:
        """Return whether it takes these scores."""
        return can_run_kernel(*scores)

    def marginals(self, structure: "Structure", scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        """Return log Z (B,), and scale times the marginals of the scores `which`.

        Args:
            scale: (B,), or 1.0; None: no marginals.
            each: Also of scores that sentences share, one for each sentence; else their sum.
        """
        raise NotImplementedError

    def log_partition(
        self, structure: "Structure", scores: Scores, lengths: Tensor, which: Sequence[int]
    ) -> tuple[Tensor, Gradient]:
        """Return log Z (B,), and a function from its gradient (B,) to the gradients of the scores `which`."""
        log_z, parts = self.marginals(structure, scores, lengths, 1.0 if which else None, which, self.waits)

        def gradient(grad: Tensor) -> Scores:
            if self.waits:
                weighed = [p * column(grad, p) for p in parts]
                return tuple(p.sum(0) if p.dim() > scores[i].dim() else p for i, p in zip(which, weighed, strict=True))
            if grad.stride(0) == 0 or (grad == grad[:1]).all():  # as of a sum over the batch
                by = grad[0].item()
                return parts if by == 1.0 else tuple(p * by for p in parts)
            if any(scores[i].dim() == structure.shared_dims[i] for i in which):
                # each sentence has a weight of its own in the sums of shared scores, which are not known sentence by sentence
                return self.marginals(structure, scores, lengths, grad, which, False)[1]
            return tuple(p * column(grad, p) for p in parts)

        return log_z, gradient

    def hessian_vector(
        self, structure: "Structure", scores: Scores, lengths: Tensor, grads: Sequence[Tensor | None]
    ) -> Scores:
        """Return the gradients to the scores, with the gradients `grads` to the marginals, or None for some."""
        raise NotImplementedError

    def entropy(self, structure: "Structure", scores: Scores, lengths: Tensor) -> Tensor:
        """Return the entropies in nats, (B,)."""
        raise NotImplementedError

    def best(self, structure: "Structure", scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest scores (B,), and structures (B, ...) that have them."""
        raise NotImplementedError

    def topk(self, structure: "Structure", scores: Scores, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k largest scores (k, B), best first, and their structures (k, B, ...)."""
        raise NotImplementedError

    def sample(
        self, structure: "Structure", scores: Scores, lengths: Tensor, k: int, generator: torch.Generator | None
    ) -> Tensor:
        """Return k independent samples (k, B, ...)."""
        raise NotImplementedError


def column(x: Tensor, like: Tensor) -> Tensor:
    """Return x (B,) with as many dimensions as a tensor (B, ...)."""
    return x.view(-1, *(1 for _ in like.shape[1:]))


def numbers(x: Tensor) -> np.ndarray:
    """Return x as a C-contiguous array, which shares its memory if possible."""
    return np.ascontiguousarray(x.detach().numpy())


def doubles(x: Tensor) -> np.ndarray:
    """Return x as `numbers`, in float64, for kernels that are compiled for that type alone."""
    return np.ascontiguousarray(x.detach().numpy(), np.float64)


def tensor(x: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Return x as a tensor of float32 or float64, which shares its memory if possible."""
    # numpy converts short arrays faster, but the system takes back the memory of long ones after each call
    short = x.size < 2**12 and dtype == torch.float32
    return torch.from_numpy(np.ascontiguousarray(x, np.float32 if short else None)).to(dtype)


def factors(scale: Tensor | float, batch: int) -> np.ndarray:
    """Return factors of the sentences, (batch,), float64: a tensor, or one number for all."""
    return scale.double().numpy() if isinstance(scale, Tensor) else np.full(batch, scale)


def possible_scores(x: Tensor) -> Tensor:
    """Return the scores as terms of an expectation: 0 for a forbidden part, which has probability 0, and for NaN and +inf,
    whose results are replaced by NaN afterwards."""
    return torch.where(x.abs() < LARGEST, x, 0)


LARGEST = 6e14  # kernels of sums take scores below the negative of this for -inf


def on_cpu(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a kernel for tensors on any device and of any type: it gets them on the CPU, at least float32."""
    return kernel(*(_plain(x) if isinstance(x, Tensor) else x for x in arguments))


def _plain(x: Tensor) -> Tensor:
    short = x.dtype in (torch.float16, torch.bfloat16)
    return x.detach().to("cpu", torch.float32 if short else x.dtype)


def over_batch(kernel: Callable[..., None], size: int, *arguments: object) -> None:
    """Run kernel(first, step, *arguments), which processes items first, first + step, ... of `size` items.

    It runs on as many threads as torch uses, so that `torch.set_num_threads` governs both. They are Python threads, as
    kernels release the GIL: unlike OpenMP's they survive a fork, do not spin while idle, and can be shared.
    """
    if not size:
        return
    announce(kernel)
    step = min(torch.get_num_threads(), size)
    others = [_threads().submit(kernel, first, step, *arguments) for first in range(1, step)]
    kernel(0, step, *arguments)
    for other in others:
        other.result()


def scratch(items: int, size: int) -> np.ndarray:
    """Return a float64 workspace (threads, size) for `over_batch` over `items`, valid until this thread calls it again.

    It is reused unless it is large, because the page faults of fresh memory take longer than most kernels.
    """
    threads = max(1, min(torch.get_num_threads(), items))
    wanted = threads * size
    buffer = getattr(_reused, "buffer", None)
    if buffer is None or len(buffer) < wanted:
        buffer = np.empty(wanted)
        if wanted <= LARGEST_SCRATCH:
            _reused.buffer = buffer
    return buffer[:wanted].reshape(threads, size)


LARGEST_SCRATCH = 2**22  # numbers that are reused, 32 MiB
_reused = local()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="structs")


os.register_at_fork(after_in_child=_threads.cache_clear)


def reference_vjp(
    function: Callable[..., Any], inputs: Sequence[Tensor], grad: Tensor | tuple[Tensor, ...]
) -> list[Tensor | None]:
    """Return vᵀJ of a reference function, differentiable again: the backward pass of kernels under create_graph=True."""
    wanted = [x for x in inputs if x.requires_grad]
    with torch.enable_grad(), reference_only():
        grads = iter(torch.autograd.grad(function(*inputs), wanted, grad, create_graph=True, materialize_grads=True))
    return [next(grads) if x.requires_grad else None for x in inputs]


def with_gradient(best: Tensor, rescore: Callable[..., Tensor], *scores: Tensor) -> Tensor:
    """Return `best`, the scores of structures that a kernel chose, with the derivatives of rescore(*scores), their sum."""
    if transformed():
        return rescore(*scores).masked_fill(best == -torch.inf, -torch.inf)
    if torch.is_grad_enabled() and any(s.requires_grad for s in scores):
        return _Chosen.apply(best, rescore, *scores)
    return best


class _Chosen(torch.autograd.Function):
    """(score, rescore, *scores) → score."""

    @staticmethod
    def forward(ctx: Any, best: Tensor, rescore: Callable[..., Tensor], *scores: Tensor) -> Tensor:
        ctx.rescore = rescore
        ctx.save_for_backward(*scores)
        return best

    @staticmethod
    @each_gradient
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *reference_vjp(ctx.rescore, ctx.saved_tensors, grad)


class LogPartition(torch.autograd.Function):
    """(structure, kernel, lengths, *scores) → log Z (B,). The marginals are computed with it, as they share most of the work."""

    @staticmethod
    def forward(ctx: Any, structure: "Structure", kernel: Kernel, lengths: Tensor, *scores: Tensor) -> Tensor:
        ctx.call = structure, lengths
        ctx.save_for_backward(*scores)
        ctx.which = [i for i, needed in enumerate(ctx.needs_input_grad[3:]) if needed]
        log_z, ctx.gradient = kernel.log_partition(structure, scores, lengths, ctx.which)
        return log_z

    @staticmethod
    @each_gradient
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (structure, lengths), scores = ctx.call, ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is itself differentiated
            which = tuple(i for i, x in enumerate(scores) if x.requires_grad)
            weighed = [p * column(grad, p) for p in Parts.apply(structure, which, lengths, *scores)]
            found = [p.sum(0) if p.dim() > scores[i].dim() else p for i, p in zip(which, weighed, strict=True)]
        else:
            which, found = ctx.which, ctx.gradient(grad)
        parts = dict(zip(which, found, strict=True))
        return None, None, None, *(parts.get(i) for i in range(len(scores)))


def over_batches(cls: Any) -> Any:
    """Give a function of autograd its rule for `torch.func.vmap`: the mapped dimension joins the batch."""

    def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
        size = info.batch_size

        def joined(x: Any, dim: int | None) -> Any:
            if not isinstance(x, Tensor):
                return x
            x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.reshape(size * x.shape[1], *x.shape[2:])

        found = cls.apply(*map(joined, given, dims))
        several, axis = isinstance(found, tuple), cls.axis(*given)
        if axis is None:
            raise ValueError("torch.func.vmap: samples cannot be a part of it; use their batch dimension instead")
        each = tuple(
            x.unflatten(axis, (size, x.shape[axis] // size)).movedim(axis, 0) for x in (found if several else (found,))
        )
        return (each, (0,) * len(each)) if several else (each[0], 0)

    cls.vmap = staticmethod(vmap)
    return cls


class _Operation(torch.autograd.Function):
    """The base of what follows: functions (..., lengths, *scores) that every transform of `torch.func` can go through.

    Under a transform each sentence has scores of its own (`Structure._own`), so that results and derivatives have a batch
    dimension, too.
    """

    @staticmethod
    def axis(*given: Any) -> int | None:
        """Return the batch dimension of the results."""
        return 0


@over_batches
class LogZ(_Operation):
    """(structure, lengths, *scores) → log Z (B,), under a transform; `LogPartition` takes less time without one."""

    @staticmethod
    def forward(structure: "Structure", lengths: Tensor, *scores: Tensor) -> Tensor:
        with without_transforms():
            return structure._log_partition(scores, lengths)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.structure, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    @each_gradient
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        lengths, *scores = ctx.saved_tensors
        parts = Parts.apply(ctx.structure, tuple(range(len(scores))), lengths, *scores)
        return None, None, *(column(grad, p) * p for p in parts)

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, *tangents: Tensor | None) -> Tensor:
        with outer_forward_modes(ctx.saved_tensors) as (lengths, *scores):
            which = tuple(i for i, x in enumerate(tangents) if x is not None)
            parts = Parts.apply(ctx.structure, which, lengths, *scores)
            return _inner(parts, [tangents[i] for i in which])


@over_batches
class Parts(_Operation):
    """(structure, which scores, lengths, *scores) → their marginals, also of shared ones for each sentence."""

    @staticmethod
    def forward(structure: "Structure", which: tuple[int, ...], lengths: Tensor, *scores: Tensor) -> Scores:
        with without_transforms():
            return structure._expected_parts(scores, lengths, which)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.structure, ctx.which, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        # a tensor of marginals that is not used has no gradient, and costs nothing
        ctx.set_materialize_grads(False)

    @staticmethod
    @each_gradient
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        lengths, *scores = ctx.saved_tensors
        given = {i: x for i, x in zip(ctx.which, grads, strict=True) if x is not None}
        if not given:
            return None, None, None, *(None for _ in scores)
        found = Covariances.apply(ctx.structure, tuple(given), lengths, len(scores), *scores, *given.values())
        return None, None, None, *found

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, ___: Any, *tangents: Tensor | None) -> Scores:
        with outer_forward_modes(ctx.saved_tensors) as (lengths, *scores):
            given = {i: x for i, x in enumerate(tangents) if x is not None}
            found = Covariances.apply(ctx.structure, tuple(given), lengths, len(scores), *scores, *given.values())
            return tuple(found[i] for i in ctx.which)


THIRD = "torch.func: third derivatives of log Z; torch.autograd.grad has them"


@over_batches
class Covariances(_Operation):
    """(structure, which, lengths, n, *n scores, *numbers g of the scores `which`) → Cov[Σ g, part], in the shapes of the scores: the
    gradient of the marginals."""

    @staticmethod
    def forward(structure: "Structure", which: tuple[int, ...], lengths: Tensor, n: int, *given: Tensor) -> Scores:
        with without_transforms():
            return structure._covariances(given[:n], lengths, dict(zip(which, given[n:], strict=True)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.structure, ctx.which, lengths, ctx.n, *given = inputs
        ctx.save_for_backward(lengths, *given)

    @staticmethod
    @each_gradient
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        structure, which, n = ctx.structure, ctx.which, ctx.n
        lengths, *given = ctx.saved_tensors
        if transformed():
            raise NotImplementedError(THIRD)

        def reference(*x: Tensor) -> Scores:
            parts = structure._expected_parts(x[:n], lengths, which)
            return torch.autograd.grad(parts, x[:n], x[n:], create_graph=True, materialize_grads=True)

        # views: the numbers g may depend on the scores. What needs no gradient is a leaf, as the reference differentiates it
        with torch.enable_grad():
            leaves = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in given]
        found = reference_vjp(reference, leaves, grads)
        return None, None, None, None, *(x if y.requires_grad else None for x, y in zip(found, given, strict=True))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Scores:
        raise NotImplementedError(THIRD)


@over_batches
class Entropy(_Operation):
    """(structure, lengths, *scores) → entropies (B,). Their gradient is minus the covariance of score and part."""

    @staticmethod
    def forward(structure: "Structure", lengths: Tensor, *scores: Tensor) -> Tensor:
        with without_transforms():
            return structure._entropy(scores, lengths)

    setup_context = LogZ.setup_context

    @staticmethod
    @each_gradient
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        lengths, *scores = ctx.saved_tensors
        own = ctx.structure._own(scores)
        given = [-column(grad, s) * possible_scores(s) for s in own]
        found = Covariances.apply(ctx.structure, tuple(range(len(scores))), lengths, len(scores), *scores, *given)
        return None, None, *found

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, *tangents: Tensor | None) -> Tensor:
        with outer_forward_modes(ctx.saved_tensors) as (lengths, *scores):
            given = [possible_scores(s) for s in scores]
            found = Covariances.apply(ctx.structure, tuple(range(len(scores))), lengths, len(scores), *scores, *given)
            which = [i for i, x in enumerate(tangents) if x is not None]
            return -_inner([found[i] for i in which], [tangents[i] for i in which])


@over_batches
class Chosen(_Operation):
    """(operation, batch dimension of its results, lengths, *scores) → what it chooses, without derivatives."""

    @staticmethod
    def axis(*given: Any) -> int | None:
        axis: int | None = given[1]
        return axis

    @staticmethod
    def forward(operation: Callable[..., Any], axis: int | None, lengths: Tensor, *scores: Tensor) -> Any:
        with without_transforms():
            return operation(scores, lengths)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_non_differentiable(*(output if isinstance(output, tuple) else (output,)))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        return None


def _inner(one: Sequence[Tensor], other: Sequence[Any]) -> Tensor:
    """Return Σ one · other of each sentence, (B,)."""
    return torch.stack([(x * y).flatten(1).sum(1) for x, y in zip(one, other, strict=True)]).sum(0)
