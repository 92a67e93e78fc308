"""How kernels are compiled, and how long what numba keeps of them on disk counts.

numba compares only the file that a kernel stands in, but the kernels of this folder that it calls are compiled into it.
So what is kept also bears the digest of this folder, and counts, and is overwritten, as if its own file had changed.
"""

import hashlib
from pathlib import Path
from typing import Any

from numba.core.caching import CacheImpl

COMPILE: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True, "cache": True}
FOLDER = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()


def _of_the_folder(locator: Any) -> Any:
    """One of numba's ways to keep functions, for those of this package: as fresh as their file and this folder."""

    class Locator(locator):
        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            ours = function.__module__.split(".")[0] == __name__.split(".")[0]
            return super().from_function(function, file) if ours else None

        def get_source_stamp(self) -> Any:
            return FOLDER, super().get_source_stamp()

    return Locator


CacheImpl._locator_classes[:0] = [_of_the_folder(locator) for locator in CacheImpl._locator_classes]
