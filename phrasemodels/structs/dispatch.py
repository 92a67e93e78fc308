"""Where structured inference meets torch and numba: the types of scores, lengths, first calls, and private parts of both libraries.

Sums are float64, whatever the type of the scores: a mask of -1e9 leaves no digit of a sum in float32. Results have the type that torch
promotes the scores to, but log Z stays float32, as 280.01 is 280 in bfloat16. A score below -1e12 forbids as -inf does.

The first call of a kernel compiles it, and logs one line. Compiled kernels are cached on disk: in the folder that NUMBA_CACHE_DIR
names, beside the code, in the user's folder of caches, or in a temporary folder of the user. numba compares only the file of a
kernel, although kernels of other files are compiled into it. So the stamp of a cached kernel has the digest of the files that its
file imports, too.

Private parts of torch and numba fail with one line if a version lacks one. torch has no public way to ask whether a transform of
`torch.func` is active, nor to leave it for a call. Its public `torch.compiler.disable` imports the compiler, which takes a second.
numba has none to change the stamp of a cached kernel, nor to ask whether a kernel is in the cache on disk.
"""

import functools
import gc
import hashlib
import importlib
import logging
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

# (B,) numbers of positions or words, or a mask (B, n) that is true inside of sentences
Lengths = Tensor | Sequence[int] | None
Function = TypeVar("Function", bound=Callable[..., Any])
# kinds of kernels that may run: see `kernels.only`
ALLOWED: ContextVar[tuple[str, ...]] = ContextVar("kernels_allowed", default=("numba", "triton"))


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
_forward_mode = _part("torch.autograd.forward_ad", "_set_fwd_grad_enabled")
_leave_transforms = _part("torch._functorch.pyfunctorch", "temporarily_clear_interpreter_stack")
_functorch = _part("torch._C", "_functorch")
_is_tracked, _is_batched, _unwrapped = (
    _part("torch._C", "_functorch", name) for name in ("is_gradtrackingtensor", "is_batchedtensor", "get_unwrapped")
)
_nest, _unnest = (_part("torch._C", f"_vmapmode_{way}_nesting") for way in ("increment", "decrement"))
_without_batch, _with_batch = (_part("torch", f"_{way}_batch_dim") for way in ("remove", "add"))
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


@contextmanager
def outer_forward_modes(saved: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield what a jvp saved, without the tangents of its own forward mode, and switch those around it on: torch has them off."""
    with _forward_mode(True):
        yield [_forward_ad.unpack_dual(x).primal for x in saved]


def forward_mode() -> bool:
    """Return whether forward-mode differentiation is active."""
    return not torch.compiler.is_compiling() and _forward_ad._current_level >= 0


def each_gradient(backward: Function) -> Function:
    """Let a backward pass take gradients that `torch.autograd.grad` batches (`is_grads_batched`, `vectorize=True`): one by one."""

    @functools.wraps(backward)
    def backwards(ctx: Any, *grads: Tensor | None) -> Any:
        if not (level := _batch_level()):
            return backward(ctx, *grads)
        rows = [None if x is None else _without_batch(x, level, 1, 0) for x in grads]
        size = max(len(x) for x in rows if x is not None)
        given = [[None] * size if x is None else x.expand(size, *x.shape[1:]) for x in rows]
        found = zip(*(backward(ctx, *each) for each in zip(*given, strict=True)), strict=True)
        return tuple(None if x[0] is None else _with_batch(torch.stack(x), 0, level) for x in found)

    return backwards  # type: ignore[return-value]


def untracked(x: Tensor) -> Tensor:
    """Return the tensor that transforms of `torch.func` have wrapped. ValueError: it is a batch of vmap."""
    while _is_tracked(x):
        x = _unwrapped(x)
    if _is_batched(x):
        raise ValueError("torch.func.vmap: this function cannot be a part of it; use its batch dimension instead")
    return x


UNTRACED = "structs: torch.jit and torch.export cannot follow compiled kernels; export what computes the scores"


def not_traced(function: Function) -> Function:
    """Return the function, which `torch.compile` now calls between two compiled graphs, instead of tracing its loops."""
    _set_strategy(function.__code__, _skip)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = UNTRACED  # type: ignore[attr-defined]
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


Calls = Sequence[Callable[..., Any]]
FIRST_CALLS: dict[
    str, list[tuple[Calls, tuple[tuple[int, ...], ...]]]
] = {}  # by module: functions, and shapes of scores
# they register themselves
MODULES = ("chain", "semimarkov", "alignment", "pcfg", "eisner", "nonprojective", "spans", "joint")
FORBIDS = -1e12  # a score below it forbids; sums of numbers above it keep their digits in float64


def run(function: Callable[..., Any], scores: tuple[Tensor, ...], lengths: Tensor, rounded: bool = True) -> Any:
    """Return function(scores, lengths), with scores of one type. Kernels of the CPU take float32, too, as their sums are float64.

    Results have the type that torch promotes the scores to, or at least float32 unless `rounded`.
    """
    # numpy's view of a parameter would keep FSDP from freeing its memory
    scores = tuple(s.clone() if type(s) is nn.Parameter else s for s in scores)
    types = {s.dtype for s in scores}
    wanted = common_type(types)
    inner = torch.float64 if _sums_in_type(scores) else at_least_float32(wanted)
    if types == {inner}:
        return function(tuple(map(forbidding, scores)), lengths)
    result = function(tuple(forbidding(s.to(inner)) for s in scores), lengths)
    wanted = wanted if rounded else at_least_float32(wanted)
    return tuple(to_type(x, wanted) for x in result) if isinstance(result, tuple) else to_type(result, wanted)


def _sums_in_type(scores: tuple[Tensor, ...]) -> bool:
    """Return whether results are summed in the type of the scores. Apple's GPUs have no float64."""
    by_numba = scores[0].is_cpu and "numba" in ALLOWED.get()
    return not by_numba and scores[0].device.type != "mps"


def forbidding(scores: Tensor) -> Tensor:
    """Return the scores with -inf for those below FORBIDS, as masks of large finite numbers have them."""
    if scores.is_cpu and not transformed() and (not scores.numel() or scores.detach().amin() >= FORBIDS):
        return scores
    return scores.masked_fill(scores < FORBIDS, -torch.inf)


def refuse_tracing() -> None:
    """RuntimeError: the call is being traced, where compiled kernels would leave constants, or reads tangents that are batched."""
    if _is_tracing() or torch.compiler.is_exporting():
        raise RuntimeError(UNTRACED)
    if _forward_ad._current_level >= 0 and _batch_level():
        raise RuntimeError("structs: torch.autograd.functional has no strategy='forward-mode' for them; use torch.func.jacfwd")


def _batch_level() -> int:
    """Return how many batches of gradients or tangents `torch.autograd` is in; those of `torch.func` do not count."""
    level: int = _nest() - 1
    _unnest()
    return level


class Unscripted(nn.Module):
    """A module that calls structs, which torch.jit.script refuses in one line."""

    def __prepare_scriptable__(self) -> nn.Module:
        raise RuntimeError(UNTRACED)


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


def register(module: str, functions: Calls, *shapes: tuple[int, ...]) -> None:
    """Register functions of a module whose calls, on scores of the smallest shapes, compile its kernels."""
    FIRST_CALLS.setdefault(module, []).append((functions, shapes))


def run_first_calls(module: str, on_progress: Callable[[str, float], None] = lambda name, seconds: None) -> None:
    """Compile the kernels of a module for float32 and float64, or load them from the cache."""
    with _without_collections(), torch.inference_mode(False), torch.enable_grad():
        for dtype in (torch.float32, torch.float64):
            for functions, shapes in FIRST_CALLS[module]:
                scores = [torch.zeros(shape, dtype=dtype).requires_grad_() for shape in shapes]
                for function in functions:
                    start, result = time.perf_counter(), function(*scores)
                    values = [x for x in (result if isinstance(result, tuple) else (result,)) if x.requires_grad]
                    if values:
                        sum(x.sum() for x in values).backward()
                    name = f"{module}.{getattr(function, 'func', function).__name__}"
                    on_progress(f"{name}, {str(dtype).removeprefix('torch.')}", time.perf_counter() - start)


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


def is_integer(x: Tensor) -> bool:
    """Return whether a tensor has an integer type."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def as_numbers(lengths: Any) -> Tensor:
    """Return lengths as a tensor. ValueError: they are none."""
    try:
        return torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        given = f"a {type(lengths).__name__}"
        raise ValueError(f"lengths must be integers, a tensor or a list, or a mask of booleans, not {given}") from None


def check_lengths(lengths: Lengths, batch: int, longest: int, device: torch.device) -> Tensor:
    """Return lengths (batch, 1) as int64 on the device; None: all are `longest`. ValueError: a length is not in 0..longest, or a mask has
    gaps.

    The lengths that are a batch of a transform of `torch.func` are not checked.
    """
    if lengths is None:
        return torch.full((batch, 1), longest, dtype=torch.int64, device=device)
    lengths = as_numbers(lengths)
    if lengths.dtype == torch.bool and lengths.shape == (batch, longest):
        mask, lengths = lengths, lengths.sum(1)
        if not transformed() and (mask != (torch.arange(longest, device=mask.device) < lengths[:, None])).any():
            raise ValueError(
                "lengths: a mask must be true from the first word of a sentence to its last, and false after it"
            )
    if lengths.shape != (batch,) or (batch and not is_integer(lengths)):  # an empty list has no type
        wanted = f"{(batch, longest)}" if lengths.dtype == torch.bool else "bool: mask.bool()"
        hint = f"; a mask must be {wanted}" if lengths.dim() == 2 else ""
        raise ValueError(f"lengths must be {batch} integers, not {tuple(lengths.shape)} of {lengths.dtype}{hint}")
    if batch and not transformed() and ((lengths < 0) | (lengths > longest)).any():  # a GPU is waited for once
        raise ValueError(f"lengths must be in 0..{longest}, not {lengths.min().item()}..{lengths.max().item()}")
    return (lengths.clone() if lengths.is_inference() else lengths).to(device=device, dtype=torch.int64)[:, None]


PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(rf"^from {PACKAGE.name}\.([\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE)

_KERNEL = re.compile("^@njit", re.MULTILINE)


@cache
def imported(file: Path) -> frozenset[Path]:
    """Return the files with compiled functions that a file imports from, directly or not."""
    found: set[Path] = set()
    for module, names in _IMPORT.findall(file.read_text(encoding="utf-8")):
        folder = PACKAGE.joinpath(*module.split("."))
        for path in (folder.with_suffix(".py"), *(folder / f"{name}.py" for name in re.findall(r"\w+", names))):
            if path != file and path.is_file() and _KERNEL.search(path.read_text(encoding="utf-8")):
                found |= {path, *imported(path)}
    return frozenset(found)


@cache
def digest(file: Path) -> str:
    """Return the digest of the files that a file imports."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(imported(file)))).hexdigest()


ONCE = "once for this installation; `phrasemodels doctor --compile` does so ahead of time"
EACH_TIME = "in every process: set NUMBA_CACHE_DIR to a folder that can be written to"
LOG = logging.getLogger("phrasemodels.structs")
_announced: set[Any] = set()


def announce(kernel: Any) -> None:
    """Log, once for a kernel, that it is about to be compiled, if neither this process nor the cache on disk has it."""
    if kernel in _announced:
        return
    if not kernel.overloads and not (cached() and is_cached(kernel)):
        name = f"{kernel.py_func.__module__.split('.')[-1]}.{kernel.__name__.lstrip('_')}"
        LOG.warning("compiling %s, %s", name, ONCE if cached() else EACH_TIME)
    _announced.add(kernel)


def _of_the_folder(locator: Any) -> Any:
    """Return a numba cache locator for the functions of this package, whose stamp contains the digest of what their file imports."""

    class Locator(locator):
        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            ours = function.__module__.split(".")[0] == __name__.split(".")[0]
            found = super().from_function(function, file) if ours else None
            if found:
                found.imports = digest(Path(file))
            return found

        def get_source_stamp(self) -> Any:
            return self.imports, super().get_source_stamp()

    return Locator


COMPILED = ("structs", "structs/kernels", "layers", "tasks/problems", "tasks/train")  # folders with compiled functions


def _can_be_cached() -> bool:
    """Whether numba finds a place for the compiled functions of every folder that has some."""
    folders = [PACKAGE / name for name in COMPILED]
    files = [str(folder / "__init__.py") for folder in folders if folder.is_dir()]  # the library may be there alone
    return all(any(place.from_function(announce, file) for place in cache_locators()) for file in files)


CACHED: bool
COMPILE: dict[str, Any]


def __getattr__(name: str) -> Any:
    """Return CACHED, whether kernels are cached on disk, and COMPILE, the options of the compiler; the first time, import numba."""
    if name not in ("CACHED", "COMPILE"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return cached() if name == "CACHED" else options()


def _in_temporary_folder() -> list[Any]:
    """Return a numba cache locator for a temporary folder of this user, if no other user can write to it."""
    folder = Path(tempfile.gettempdir(), f"phrasemodels-{os.getuid()}")
    try:
        folder.mkdir(0o700, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return []
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        return []
    in_tree = _part("numba.core.caching", "InTreeCacheLocator")

    class Locator(in_tree):  # type: ignore[misc, valid-type]
        def get_cache_path(self) -> str:
            return str(folder / self.get_suitable_cache_subpath(self._py_file))

    return [Locator]


@cache
def cached() -> bool:
    """Return whether compiled kernels are kept on disk, where numba looks for them by `_of_the_folder` from now on."""
    replace_damaged_caches()
    cache_locators()[:0] = [_of_the_folder(locator) for locator in (*cache_locators(), *_in_temporary_folder())]
    return _can_be_cached()


@cache
def options() -> dict[str, Any]:
    """Return the options of the compiler."""
    return {
        "fastmath": {"contract"},
        "error_model": "numpy",
        "nogil": True,
        "cache": cached(),
        "no_cfunc_wrapper": True,
    }
