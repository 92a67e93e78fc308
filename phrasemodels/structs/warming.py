"""Compilation of all kernels ahead of the first call."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any


def warm(on_progress: Callable[[str, float], None] = lambda name, seconds: None, only: str = "") -> float:
    """Compile every kernel of structured inference for float32 and float64, or load it from the cache on disk; return seconds.

    The cache lies in the folders of the kernels, or where NUMBA_CACHE_DIR says. Then no first call compiles anything, in
    this and in later processes. on_progress(function, seconds) is called after each function. only: a module, as "chain".
    """
    import torch

    from phrasemodels.structs.calls import waiting

    begin = time.perf_counter()
    with waiting(), torch.inference_mode(False), torch.enable_grad():
        for dtype in (torch.float32, torch.float64):
            for name, run in _first_calls(dtype).items():
                if not name.startswith(only):
                    continue
                start = time.perf_counter()
                result = run()
                values = [x for x in (result if isinstance(result, tuple) else (result,)) if x.requires_grad]
                if values:
                    sum(x.sum() for x in values).backward()
                on_progress(f"{name}, {str(dtype).removeprefix('torch.')}", time.perf_counter() - start)
    return time.perf_counter() - begin


def _first_calls(dtype: Any) -> dict[str, Callable[[], Any]]:
    """Return calls that use every kernel, by name, on the smallest scores."""
    import torch

    from phrasemodels.structs import chain, eisner, joint, nonprojective, spans
    from phrasemodels.structs.semimarkov import segmentations

    def scores(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, requires_grad=True)

    unary, pairs, arcs, labels = scores(1, 2, 2), scores(2, 2), scores(1, 3, 3), scores(1, 2, 2, 2)
    eisner_trees, all_trees = eisner.multi_root, nonprojective.multi_root
    calls: dict[str, Callable[[], Any]] = {
        f.__name__: partial(f, unary, pairs)
        for f in (chain.log_partition, chain.marginals, chain.pair_marginals, chain.entropy, chain.argmax)
    }
    calls = {f"chain.{name}": run for name, run in calls.items()} | {
        "chain.sample": partial(chain.sample, unary, pairs, 1),
        "chain.topk": partial(chain.topk, unary, pairs, 1),
        "joint.argmax": partial(joint.argmax, labels, arcs),
        "derivations.marginals": partial(segmentations.marginals, scores(1, 2, 2, 2), pairs),
        "derivations.topk": partial(segmentations.topk, scores(1, 2, 2, 2), pairs, k=1),
        "derivations.sample": partial(segmentations.sample, scores(1, 2, 2, 2), pairs, k=1),
    }
    for kind, trees in (("eisner", eisner_trees), ("nonprojective", all_trees)):
        for name in ("log_partition", "marginals", "entropy", "argmax"):
            calls[f"{kind}.{name}"] = partial(getattr(trees, name), arcs)
        calls[f"{kind}.sample"] = partial(trees.sample, arcs, 1)
        calls[f"{kind}.topk"] = partial(trees.topk, arcs, 1)
    for name in ("log_partition", "marginals", "argmax"):
        calls[f"spans.{name}"] = partial(getattr(spans, name), labels)
    for module, given in ((spans, (labels,)), (joint, (labels, arcs))):
        for name in ("marginals", "topk", "sample"):
            more = {} if name == "marginals" else {"k": 1}
            calls[f"{module.__name__.split('.')[-1]}.{name}"] = partial(getattr(module, name), *given, **more)
    return calls
