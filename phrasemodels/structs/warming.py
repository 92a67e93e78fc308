"""Compilation of all kernels ahead of the first call."""

import time
from collections.abc import Callable


def warm(on_progress: Callable[[str, float], None] = lambda name, seconds: None) -> float:
    """Compile every kernel of structured inference for float32 and float64, or load it from the cache on disk; return seconds.

    The cache lies in the folders of the kernels, or where NUMBA_CACHE_DIR says. Then no first call compiles anything, in
    this and in later processes. on_progress(function, seconds) is called after each function.
    """
    from phrasemodels.structs import chain, derivations, eisner, joint, nonprojective, spans
    from phrasemodels.structs.calls import run_first_calls

    begin = time.perf_counter()
    for module in (chain, joint, derivations, eisner, nonprojective, spans):
        run_first_calls(module.__name__.rpartition(".")[2], on_progress)
    return time.perf_counter() - begin
