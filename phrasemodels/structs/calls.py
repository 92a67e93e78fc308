"""Calls of the public functions: one type for all scores, plain torch while kernels are being compiled.

Scores of several types are computed in the type that torch promotes them to, and scores shorter than float32 in float32; results
have the promoted type, but log Z stays float32, as 280.01 is 280 in bfloat16.

If a kernel was never compiled on this machine, another process compiles the kernels of its module, which is said in one line, and plain
torch computes the results meanwhile. They are equal up to the rounding of their type, which adds up over long sequences: for
float32, to 3e-4 in a marginal of 1,200 positions. The environment variable STRUCTS_KERNELS=wait makes the call wait instead, so
that all results of a process come from the same code; the commands of the project set it.
"""

import functools
import gc
import importlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from phrasemodels.structs import kernels
from phrasemodels.structs.kernels.compilation import LOG, MissingKernelError, cached, may_be_missing, quiet
from phrasemodels.structs.private import is_traced
from phrasemodels.structs.private import not_traced as not_traced

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FIRST_CALLS: dict[str, list[tuple[Any, tuple[tuple[int, ...], ...]]]] = {}  # by module: functions, and shapes of scores
# they register themselves
MODULES = ("chain", "semimarkov", "alignment", "pcfg", "eisner", "nonprojective", "spans", "joint")
EXACT = {torch.float32}, {torch.float64}  # types of scores that are computed as they are
_waits = threading.local()


def with_kernel_fallback(
    function: Callable[..., Any], module: str, scores: tuple[Tensor, ...], lengths: Tensor, rounded: bool = True
) -> Any:
    """Return function(scores, lengths), with scores of one type, at least float32; by the torch path while kernels of the module are
    being compiled. Results have the type that torch promotes the scores to, or at least float32 unless `rounded`."""
    types = {s.dtype for s in scores}
    if types not in EXACT:
        wanted = common_type(types)
        some = tuple(s.to(at_least_float32(wanted)) for s in scores)
        result = with_kernel_fallback(function, module, some, lengths)
        wanted = wanted if rounded else at_least_float32(wanted)
        return tuple(to_type(x, wanted) for x in result) if isinstance(result, tuple) else to_type(result, wanted)
    if getattr(_waits, "on", False) or os.environ.get("STRUCTS_KERNELS") == "wait":
        return function(scores, lengths)
    if module not in _compilations or not _compilations[module].runs():
        try:
            with may_be_missing():
                return function(scores, lengths)
        except MissingKernelError:
            if not _start(module):
                return function(scores, lengths)
    with kernels.reference_only():
        return function(scores, lengths)


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


@contextmanager
def waiting() -> Iterator[None]:
    """Make calls of this thread wait for their kernels in this context."""
    before, _waits.on = getattr(_waits, "on", False), True
    try:
        yield
    finally:
        _waits.on = before


class _Compilation:
    """The compilation of a module's kernels by another process: one that this process started, or somebody else's, which holds the
    lock."""

    def __init__(self, module: str):
        self.module, self.failed, self._look = module, False, 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def runs(self) -> bool:
        """Return whether it runs; looks twice a second at most, as a call may take less time than a look."""
        if self.failed or time.monotonic() < self._look:
            return not self.failed
        if self.process is None:
            with _lock(self.module) as file:
                running = file is None
        else:
            running = self.process.poll() is None
            self.failed = bool(self.process.returncode)
        self._look = time.monotonic() + 0.5 if running else 0.0
        return running


_compilations: dict[str, _Compilation] = {}
_starting = threading.Lock()


def _start(module: str) -> bool:
    """Start a process that compiles the kernels of a module, unless one runs; return whether one does.

    A process, not a thread: a thread holds the locks of numba and of LLVM, on which a child of a fork would wait for ever, and
    calls of other structures until it has ended.
    """
    with _starting:
        before = _compilations.get(module)
        if before and before.runs():
            return True
        if not cached() or not sys.executable or (before and before.failed):
            return False
        found = _compilations[module] = _Compilation(module)
        path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        code = f"from phrasemodels.structs import calls; calls.compile_module({module!r})"
        with _lock(module) as file:
            if file is None:
                return True
            LOG.warning("compiling the kernels of %s, once for this installation; plain torch serves meanwhile", module)
            try:
                found.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", code],
                    env=os.environ | {"PYTHONPATH": path, "STRUCTS_KERNELS": "wait", "CUDA_VISIBLE_DEVICES": ""},
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    pass_fds=[file.fileno()] if fcntl else [],  # whoever has the file open has the lock
                )  # fmt: skip
            except OSError:
                found.failed = True
        return not found.failed


def _after_fork() -> None:
    """Forget the processes of the parent, which a child cannot wait for; the lock still says whether they run."""
    global _starting
    _starting = threading.Lock()
    for compilation in _compilations.values():
        compilation.process = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def _lock(module: str) -> Iterator[IO[bytes] | None]:
    """Hold the lock of a module's compilation in this context, and yield its file; None: another process has the lock."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(kernels.__file__).parent / "__pycache__")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file: IO[bytes] = (folder / f"structs.{module}.lock").open("wb")
    except OSError:  # numba's cache lies in the user's folder then
        file = tempfile.TemporaryFile()  # noqa: SIM115  closed below
    with file:
        try:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        yield file


def compile_module(module: str) -> None:
    """Compile the kernels of a module without a word: the program of the process above."""
    importlib.import_module(f"phrasemodels.structs.{module}")
    quiet.set(True)
    run_first_calls(module)


def register(module: str, functions: Any, *shapes: tuple[int, ...]) -> None:
    """Register first calls of a module, on scores of the smallest shapes, which compile its kernels: all operations of a structure, or one
    function."""
    FIRST_CALLS.setdefault(module, []).append((functions, shapes))


OPERATIONS = ("log_partition", "expected_parts", "entropy", "argmax", "topk", "sample")


def run_first_calls(module: str, on_progress: Callable[[str, float], None] = lambda name, seconds: None) -> None:
    """Compile the kernels of a module for float32 and float64, or load them from the cache."""
    with waiting(), _without_collections(), torch.inference_mode(False), torch.enable_grad():
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
