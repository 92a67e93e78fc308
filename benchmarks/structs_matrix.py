"""A row for every operation × structure × shape of structured inference: `python benchmarks/structs_matrix.py [structure ...]`.

Beside our time stand, as multiples of it, the vectorised torch path (where it takes less than a minute of cells), and torch's own
loss for `ctc`. One thread, CPU time, medians over interleaved rounds. `first` times the first call in a new process whose
cache is empty. Peers for chains, trees and spans are in `structs.py` and `structs_operations.py`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial

import torch
from structs import Run, compare

from phrasemodels.structs import alignment, chain, eisner, joint, nonprojective, pcfg, spans
from phrasemodels.structs.kernels import reference_only
from phrasemodels.structs.semimarkov import segmentations

SHAPES = [(1, 10), (1, 40), (32, 10), (32, 40), (256, 10)]
TableSizes = Callable[[int, int], list[tuple[int, ...]]]
STRUCTURES: dict[str, tuple[object, TableSizes, int]] = {  # functions, shapes for B and n, the longest n
    "chain": (chain, lambda B, n: [(B, n, 10), (10, 10)], 40),
    "segmentations": (segmentations, lambda B, n: [(B, n, 8, 5), (5, 5)], 40),
    "warping": (alignment.warping, lambda B, n: [(B, n, n)], 40),
    "ctc": (alignment.ctc, lambda B, n: [(B, n, n // 2 + 1), (B, n // 2 + 1, 3)], 40),
    "eisner": (eisner.multi_root, lambda B, n: [(B, n + 1, n + 1)], 40),
    "nonprojective": (nonprojective.multi_root, lambda B, n: [(B, n + 1, n + 1)], 40),
    "spans": (spans, lambda B, n: [(B, n, n, 20)], 40),
    "grammar": (pcfg.trees, lambda B, n: [(B, n, 6), (6, 12, 12), (6,)], 10),
    "joint": (joint, lambda B, n: [(B, n, n, 20), (B, n + 1, n + 1)], 10),
}
OPERATIONS = ("log_partition", "marginals", "entropy", "argmax", "minimum_risk", "topk", "sample")


def operation(functions: object, name: str, scores: list[torch.Tensor]) -> Run:
    """Return a run of an operation; that of log Z also computes the gradient."""
    function = getattr(functions, name)
    if name in ("topk", "sample"):
        return partial(function, *scores, k=8)
    if name != "log_partition":
        return partial(function, *scores)
    leaves = [s.clone().requires_grad_() for s in scores]
    return lambda: torch.autograd.grad(function(*leaves).sum(), leaves)


def in_torch(run: Run) -> Run:
    def referenced() -> object:
        with reference_only():
            return run()

    return referenced


def structure_section(structure: str) -> None:
    functions, sizes, longest = STRUCTURES[structure]
    for B, n in SHAPES:
        if n > longest or (structure == "joint" and B > 32):
            continue
        scores = [torch.randn(size) for size in sizes(B, n)]
        for name in OPERATIONS:
            if not hasattr(functions, name):
                continue
            runs = {"ours": operation(functions, name, scores)}
            if name in ("log_partition", "marginals", "entropy"):
                runs["torch path"] = in_torch(runs["ours"])
            if structure == "ctc" and name == "log_partition":
                runs["torch's loss"] = torch_ctc(B, n)
            compare(f"{structure} {name} {B}x{n}", runs, 1, 0.5)


def torch_ctc(B: int, n: int) -> Run:
    """Return a run of torch's loss and its gradient for as many states: n // 4 labels."""
    log_probs = torch.randn(n, B, 20).log_softmax(-1).requires_grad_()
    targets, frames = torch.randint(1, 20, (B, n // 4)), torch.full((B,), n)
    labels = torch.full((B,), n // 4)
    loss = partial(torch.nn.functional.ctc_loss, log_probs, targets, frames, labels, reduction="sum")
    return lambda: torch.autograd.grad(loss(), log_probs)


FIRST = """
import time, torch
from phrasemodels.structs import chain, eisner, spans
scores = {"chain": (chain, torch.randn(8, 20, 5), torch.randn(5, 5)), "eisner": (eisner.multi_root, torch.randn(8, 11, 11)),
          "spans": (spans, torch.randn(8, 10, 10, 5))}
for name, (functions, *given) in scores.items():
    start = time.perf_counter()
    functions.marginals(*given)
    print(f"first call, {name}: {time.perf_counter() - start:.2f} s", flush=True)
"""


def first_section() -> None:
    """Print the wall times of first calls in a process whose kernels are not compiled."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        subprocess.run([sys.executable, "-c", FIRST], env=environment, check=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    for section in sys.argv[1:] or [*STRUCTURES, "first"]:
        if section == "first":
            first_section()
        else:
            structure_section(section)
