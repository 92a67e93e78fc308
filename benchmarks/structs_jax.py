"""Chains beside ten jitted lines of JAX and beside scaled torch: `python benchmarks/structs_jax.py`. One thread each.

Each library runs in a process of its own, as JAX's threads would disturb the others; the processes take turns, and times are medians of
CPU time of log Z with its gradient to both scores, float32. JAX is skipped where it is not installed.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

SHAPES = [(B, 40, C) for C in (5, 20, 50, 100) for B in (1, 32)]


def ours(B: int, T: int, C: int) -> Callable[[], object]:
    import torch

    from phrasemodels.structs import chain

    torch.set_num_threads(1)
    scores = [torch.randn(B, T, C).requires_grad_(), torch.randn(C, C).requires_grad_()]
    return lambda: torch.autograd.grad(chain.log_partition(*scores).sum(), scores)


def scaled_torch(B: int, T: int, C: int) -> Callable[[], object]:
    """Forward probabilities that are divided by their sums (Rabiner 1989), by products of matrices."""
    import torch

    torch.set_num_threads(1)
    unary, pairwise = torch.randn(B, T, C).requires_grad_(), torch.randn(C, C).requires_grad_()

    def log_z() -> torch.Tensor:
        top, weights = pairwise.detach().max(), (pairwise - pairwise.detach().max()).exp()
        tops = unary.detach().amax(2, keepdim=True)
        x, total = (unary - tops).exp(), tops.sum((1, 2)) + top * (T - 1)
        forward = x[:, 0]
        for t in range(T):
            forward = (forward @ weights) * x[:, t] if t else forward
            sums = forward.sum(1, keepdim=True)
            forward, total = forward / sums, total + sums[:, 0].log()
        return total

    return lambda: torch.autograd.grad(log_z().sum(), (unary, pairwise))


def jitted_jax(B: int, T: int, C: int) -> Callable[[], object]:
    import jax
    import numpy as np
    from jax import numpy as jnp

    def log_z(unary, pairwise):  # type: ignore[no-untyped-def]
        def step(alpha, x):  # type: ignore[no-untyped-def]
            return jax.nn.logsumexp(alpha[:, :, None] + pairwise, axis=1) + x, None

        alpha, _ = jax.lax.scan(step, unary[:, 0], jnp.swapaxes(unary[:, 1:], 0, 1))
        return jax.nn.logsumexp(alpha, axis=1).sum()

    run = jax.jit(jax.grad(log_z, (0, 1)))
    random = np.random.default_rng(0)
    scores = [jnp.asarray(random.standard_normal(s), jnp.float32) for s in ((B, T, C), (C, C))]
    return lambda: jax.block_until_ready(run(*scores))


def worker(name: str) -> None:
    """Answer lines of shapes by milliseconds of CPU time of one run."""
    runs = {}
    for line in sys.stdin:
        shape = tuple(json.loads(line))
        if shape not in runs:
            runs[shape] = {"ours": ours, "scaled torch": scaled_torch, "JAX": jitted_jax}[name](*shape)
            runs[shape]()
        start = time.process_time()
        count = 0
        while count < 3 or time.process_time() - start < 0.05:
            runs[shape]()
            count += 1
        print((time.process_time() - start) / count * 1e3, flush=True)


def main() -> None:
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", "OMP_NUM_THREADS": "1"}
    names = ["ours", "scaled torch", "JAX"]
    workers = {
        name: subprocess.Popen([sys.executable, __file__, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=os.environ | flags)
        for name in names
    }  # fmt: skip
    for shape in SHAPES:
        taken: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(7):
            for name, process in workers.items():
                assert process.stdin and process.stdout
                try:
                    print(json.dumps(shape), file=process.stdin, flush=True)
                    taken[name].append(float(process.stdout.readline() or "nan"))
                except BrokenPipeError:  # its library is not installed
                    taken[name].append(float("nan"))
        median = {name: statistics.median(t) for name, t in taken.items()}
        ratios = "  ".join(f"{name} {t / median['ours']:.2f}x" for name, t in median.items() if name != "ours")
        print("{}x{} C={}:".format(*shape), f"{median['ours']:.3f} ms ", ratios, flush=True)
    for process in workers.values():
        assert process.stdin
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    worker(sys.argv[1]) if len(sys.argv) > 1 else main()
