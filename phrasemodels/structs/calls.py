"""Calls of the public functions: one type for all scores, one rule for what is forbidden, and the first call of each kernel.

Scores of several types are computed in the type that torch promotes them to, and scores shorter than float32 in float32; results
have the promoted type, but log Z stays float32, as 280.01 is 280 in bfloat16. A score below -1e12 forbids as -inf does, in every
operation. The first call of a kernel compiles it, and says so in one line.
"""

import functools
import gc
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from phrasemodels.structs.private import is_traced, transformed
from phrasemodels.structs.private import not_traced as not_traced

FIRST_CALLS: dict[str, list[tuple[Any, tuple[tuple[int, ...], ...]]]] = {}  # by module: functions, and shapes of scores
# they register themselves
MODULES = ("chain", "semimarkov", "alignment", "pcfg", "eisner", "nonprojective", "spans", "joint")
EXACT = {torch.float32}, {torch.float64}  # types of scores that are computed as they are
FORBIDS = -1e12  # a score below it forbids; sums of numbers above it keep their digits in float64


def run(function: Callable[..., Any], scores: tuple[Tensor, ...], lengths: Tensor, rounded: bool = True) -> Any:
    """Return function(scores, lengths), with scores of one type, at least float32.

    Results have the type that torch promotes the scores to, or at least float32 unless `rounded`.
    """
    types = {s.dtype for s in scores}
    if types in EXACT:
        return function(tuple(map(forbidding, scores)), lengths)
    wanted = common_type(types)
    result = run(function, tuple(s.to(at_least_float32(wanted)) for s in scores), lengths)
    wanted = wanted if rounded else at_least_float32(wanted)
    return tuple(to_type(x, wanted) for x in result) if isinstance(result, tuple) else to_type(result, wanted)


def forbidding(scores: Tensor) -> Tensor:
    """Return the scores with -inf for those below FORBIDS, as masks of large finite numbers have them."""
    if scores.is_cpu and not transformed() and (not scores.numel() or scores.detach().amin() >= FORBIDS):
        return scores
    return scores.masked_fill(scores < FORBIDS, -torch.inf)


def refuse_tracing() -> None:
    """RuntimeError: the call is being traced, where compiled kernels would leave constants."""
    if is_traced():
        raise RuntimeError(
            "structs: torch.jit.trace and torch.export cannot follow compiled kernels; export what computes the scores"
        )


def common_type(types: set[torch.dtype]) -> torch.dtype:
    """Return the type that torch promotes scores of these types to. ValueError: there are none of floating point."""
    if not types:
        raise ValueError("scores must be of floating point; call .float() on integers")
    return functools.reduce(torch.promote_types, types)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the type to compute in, for scores of a type."""
    return torch.promote_types(dtype, torch.float32)


def to_type(x: Any, dtype: torch.dtype) -> Any:
    """Return a tensor of floating point in a type; anything else as it is."""
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


def register(module: str, functions: Any, *shapes: tuple[int, ...]) -> None:
    """Register first calls of a module, on scores of the smallest shapes, which compile its kernels: all operations of a structure, or one
    function."""
    FIRST_CALLS.setdefault(module, []).append((functions, shapes))


OPERATIONS = ("log_partition", "expected_parts", "entropy", "argmax", "topk", "sample")


def run_first_calls(module: str, on_progress: Callable[[str, float], None] = lambda name, seconds: None) -> None:
    """Compile the kernels of a module for float32 and float64, or load them from the cache."""
    with _without_collections(), torch.inference_mode(False), torch.enable_grad():
        for dtype in (torch.float32, torch.float64):
            for functions, shapes in FIRST_CALLS[module]:
                scores = [torch.zeros(shape, dtype=dtype).requires_grad_() for shape in shapes]
                for name in [x for x in OPERATIONS if hasattr(functions, x)] or [functions.__name__]:
                    start, options = time.perf_counter(), {"k": 1} if name in ("topk", "sample") else {}
                    result = getattr(functions, name, functions)(*scores, **options)
                    values = [x for x in (result if isinstance(result, tuple) else (result,)) if x.requires_grad]
                    if values:
                        sum(x.sum() for x in values).backward()
                    on_progress(f"{module}.{name}, {str(dtype).removeprefix('torch.')}", time.perf_counter() - start)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage in this context: compilers make many objects, in which a collection finds nothing, for a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def warm(on_progress: Callable[[str, float], None] = lambda name, seconds: None) -> float:
    """Compile every kernel of structured inference for float32 and float64, or load it from the cache on disk; return seconds.

    The cache lies in the folders of the kernels, or where NUMBA_CACHE_DIR says. Then no first call compiles anything, in
    this and in later processes. on_progress(function, seconds) is called after each function.
    """
    begin = time.perf_counter()
    for name in MODULES:
        importlib.import_module(f"phrasemodels.structs.{name}")
    for module in FIRST_CALLS:
        run_first_calls(module, on_progress)
    return time.perf_counter() - begin
