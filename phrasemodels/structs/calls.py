"""Calls of the public functions: as they are in compiled models, and in plain torch while their kernels are being compiled.

If the kernels of a function were never compiled on this machine, a thread compiles those of its module, which is said in one
line, and plain torch computes the results meanwhile. They are equal up to the rounding of their type, which adds up over long
sequences: for float32, to 3e-4 in a marginal of 1,200 positions. Scores shorter than float32 are computed in float32, and the results
have their type. The environment variable
STRUCTS_KERNELS=wait makes the call wait instead, so that all results of a process come from the same code; the commands of
the project set it.
"""

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._dynamo import eval_frame

from phrasemodels.structs import kernels
from phrasemodels.structs.kernels.compilation import LOG, MissingKernelError, may_be_missing, quiet

SHORT = (torch.float16, torch.bfloat16)
Function = TypeVar("Function", bound=Callable[..., Any])
# By module, as "chain": a function from a type to calls that use all kernels of the module, on the smallest scores.
FirstCalls = Callable[[torch.dtype], Mapping[str, Callable[[], Any]]]
FIRST_CALLS: dict[str, FirstCalls] = {}
_compiling: dict[str, threading.Thread] = {}
_waits = threading.local()


def eager(function: Function) -> Function:
    """Return the function for public use; `torch.compile` calls it between two compiled graphs, instead of tracing its loops.

    This is `torch.compiler.disable`, without the second that the import of the compiler takes.
    """
    module = function.__module__.rpartition(".")[2]

    found = False  # whether a call has found its kernels

    @functools.wraps(function)
    def call(*args: Any, **kw: Any) -> Any:
        nonlocal found
        types = {x.dtype for x in (*args, *kw.values()) if isinstance(x, Tensor)}
        if not types.isdisjoint(SHORT):
            result = call(*map(_in_float32, args), **{name: _in_float32(x) for name, x in kw.items()})
            wanted = functools.reduce(torch.promote_types, (t for t in types if t.is_floating_point))
            return tuple(_as(x, wanted) for x in result) if isinstance(result, tuple) else _as(result, wanted)
        if found:
            return function(*args, **kw)
        if module in _compiling and not getattr(_waits, "on", False):
            with kernels.reference_only():
                return function(*args, **kw)
        try:
            with may_be_missing(_falls_back):
                result = function(*args, **kw)
            found = True
            return result
        except MissingKernelError:
            _compile(module)
            with kernels.reference_only():
                return function(*args, **kw)

    skip = eval_frame._FrameAction.SKIP
    given: Any = call
    for code in (function.__code__, given.__code__):
        eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(skip, skip))
    given._torchdynamo_disable = True
    return given


def _in_float32(x: Any) -> Any:
    return x.float() if isinstance(x, Tensor) and x.dtype in SHORT else x


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) if x.is_floating_point() else x


@contextmanager
def waiting() -> Iterator[None]:
    """Make calls of this thread wait for their kernels in this context."""
    before, _waits.on = getattr(_waits, "on", False), True
    try:
        yield
    finally:
        _waits.on = before


def _falls_back() -> bool:
    return not getattr(_waits, "on", False) and os.environ.get("STRUCTS_KERNELS") != "wait"


def _compile(module: str) -> None:
    """Compile the kernels of a module in a thread, unless one does."""
    if module not in _compiling:
        LOG.warning("compiling the kernels of %s, once for this installation; plain torch serves meanwhile", module)
        _compiling[module] = threading.Thread(target=_warm, args=[module], name=f"compile {module}")
        _compiling[module].start()


def _warm(module: str) -> None:
    quiet.set(True)
    try:
        run_first_calls(module)
    finally:
        del _compiling[module]


def registers_kernels(first_calls: FirstCalls) -> FirstCalls:
    """Register the first calls of the module that defines them, as those that compile its kernels."""
    FIRST_CALLS[first_calls.__module__.rpartition(".")[2]] = first_calls
    return first_calls


def run_first_calls(module: str, on_progress: Callable[[str, float], None] = lambda name, seconds: None) -> None:
    """Compile the kernels of a module for float32 and float64, or load them from the cache, by its first calls."""
    with waiting(), torch.inference_mode(False), torch.enable_grad():
        for dtype in (torch.float32, torch.float64):
            for name, run in FIRST_CALLS[module](dtype).items():
                start = time.perf_counter()
                result = run()
                values = [x for x in (result if isinstance(result, tuple) else (result,)) if x.requires_grad]
                if values:
                    sum(x.sum() for x in values).backward()
                on_progress(f"{module}.{name}, {str(dtype).removeprefix('torch.')}", time.perf_counter() - start)
