"""The private parts of torch and numba that structured inference uses: all of them are here, and fail with one line if a version lacks one.

torch has no public way to ask whether a transform of `torch.func` is active, nor to leave it for a call, and its public
`torch.compiler.disable` imports the compiler, which takes a second. numba has none to let the stamp of a cached kernel depend on
other files, nor to ask whether a kernel is in the cache on disk.
"""

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from typing import Any, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


def _part(module: str, *names: str) -> Any:
    """Return an attribute of a module, or of an attribute of it. ImportError: this version has none."""
    try:
        found = importlib.import_module(module)
        for name in names:
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        versions = f"torch {torch.__version__} and numba {version('numba')}"
        raise ImportError(
            f"phrasemodels.structs: {versions} have no {'.'.join((module, *names))}; install the versions of constraints.txt"
        ) from error
    return found


_transforms_are_active = _part("torch._C", "_are_functorch_transforms_active")
_forward_ad = _part("torch.autograd.forward_ad")
_forward_ad_level = _part("torch.autograd.forward_ad", "_current_level")  # it is read from the module at each call
_leave_transforms = _part("torch._functorch.pyfunctorch", "temporarily_clear_interpreter_stack")
_functorch = _part("torch._C", "_functorch")
_is_tracked, _is_batched, _unwrapped = (
    _part("torch._C", "_functorch", name) for name in ("is_gradtrackingtensor", "is_batchedtensor", "get_unwrapped")
)
_is_tracing = _part("torch._C", "_is_tracing")
_eval_frame = _part("torch._C._dynamo.eval_frame")
_set_strategy = _part("torch._C._dynamo.eval_frame", "set_code_exec_strategy")
_skip = _eval_frame._FrameExecStrategy(*2 * [_part("torch._C._dynamo.eval_frame", "_FrameAction", "SKIP")])


_left = threading.local()


def transformed() -> bool:
    """Return whether a transform of `torch.func`, or forward-mode differentiation, is active."""
    return (_transforms_are_active() or _forward_ad._current_level >= 0) and not getattr(_left, "all", False)


@contextmanager
def without_transforms() -> Iterator[None]:
    """Leave all transforms of `torch.func`, and forward-mode differentiation, in this context: it has plain tensors alone."""
    before, _left.all = getattr(_left, "all", False), True
    try:
        with _leave_transforms() if _transforms_are_active() else nullcontext():
            yield
    finally:
        _left.all = before


def untracked(x: Tensor) -> Tensor:
    """Return the tensor that transforms of `torch.func` have wrapped. ValueError: it is a batch of vmap."""
    while _is_tracked(x):
        x = _unwrapped(x)
    if _is_batched(x):
        raise ValueError("torch.func.vmap: this function cannot be a part of it; use its batch dimension instead")
    return x


def is_traced() -> bool:
    """Return whether torch.jit or torch.export traces the call."""
    return _is_tracing() or torch.compiler.is_exporting()


def not_traced(function: Function) -> Function:
    """Return the function, which `torch.compile` now calls between two compiled graphs, instead of tracing its loops."""
    _set_strategy(function.__code__, _skip)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def cache_locators() -> list[Any]:
    """Return the list of classes by which numba finds a place for the cache of a function, which can be changed."""
    found: list[Any] = _part("numba.core.caching", "CacheImpl", "_locator_classes")
    return found


def is_cached(kernel: Any) -> bool:
    """Return whether numba's cache on disk has a kernel, for any types of arguments."""
    return bool(kernel._cache._cache_file._load_index())


DAMAGED = EOFError, ValueError, TypeError, KeyError, AttributeError, ImportError, IndexError


def replace_damaged_caches() -> None:
    """Let numba compile a kernel again whose file in the cache is damaged, as by a full disk, in place of an error at each call."""
    files = _part("numba.core.caching", "IndexDataCacheFile")
    load_index, load_data = files._load_index, files._load_data
    damaged = *DAMAGED, _part("numba.core.caching", "pickle").UnpicklingError

    def index(self: Any) -> Any:
        try:
            return load_index(self)
        except damaged:
            return {}

    def data(self: Any, name: str) -> Any:
        try:
            return load_data(self, name)
        except damaged as error:
            raise OSError(f"{name} is damaged") from error  # which numba takes for a file that is not there

    files._load_index, files._load_data = index, data
