"""Options of the numba compiler, and a cache of compiled kernels that notices changes in other files.

numba's cache on disk compares only the file of a kernel, although kernels of other files are compiled into it. So the stamp
of a cached kernel also contains the digest of the files that its file imports; if that changes, the kernel is compiled again
and overwritten.

The cache is in the folder that NUMBA_CACHE_DIR names, beside the code, or in the user's folder of caches. Where none of them
can be written to, as in a container of another user, every process compiles the kernels that it calls.
"""

import hashlib
import logging
import re
from functools import cache
from pathlib import Path
from typing import Any

from phrasemodels.structs.private import cache_locators, is_cached, replace_damaged_caches

PACKAGE = Path(__file__).parents[2]
_IMPORT = re.compile(rf"^from {PACKAGE.name}\.([\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE)

_KERNEL = re.compile("^@njit", re.MULTILINE)


@cache
def imported(file: Path) -> frozenset[Path]:
    """Return the files with compiled functions that a file imports from, directly or not."""
    found: set[Path] = set()
    for module, names in _IMPORT.findall(file.read_text()):
        folder = PACKAGE.joinpath(*module.split("."))
        for path in (folder.with_suffix(".py"), *(folder / f"{name}.py" for name in re.findall(r"\w+", names))):
            if path != file and path.is_file() and _KERNEL.search(path.read_text()):
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


def _can_be_cached() -> bool:
    """Whether numba finds a place for the compiled functions of every folder that has some."""
    folders = (PACKAGE / name for name in ("structs", "structs/kernels", "layers", "tasks/prepare", "tasks/problems"))
    files = [str(folder / "__init__.py") for folder in folders if folder.is_dir()]  # the library may be there alone
    return all(any(place.from_function(announce, file) for place in cache_locators()) for file in files)


CACHED: bool
COMPILE: dict[str, Any]


def __getattr__(name: str) -> Any:
    """Return CACHED, whether kernels are cached on disk, and COMPILE, the options of the compiler; the first time, import numba."""
    if name not in ("CACHED", "COMPILE"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return cached() if name == "CACHED" else options()


@cache
def cached() -> bool:
    """Return whether compiled kernels are kept on disk, where numba looks for them by `_of_the_folder` from now on."""
    replace_damaged_caches()
    cache_locators()[:0] = [_of_the_folder(locator) for locator in cache_locators()]
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
