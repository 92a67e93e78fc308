"""A batch of one in structured inference, against plain compiled loops: `python benchmarks/structs_single.py`. One thread.

The loops are what one writes with numba for one sentence: forward-backward with rescaled probabilities, and Eisner's inside and
outside passes with logarithms. Both return marginals; ours is called as users call it, with its checks.
"""

from functools import partial

import numpy as np
import torch
from numba import njit
from structs import compare

from phrasemodels.structs import chain, eisner


@njit(error_model="numpy", fastmath={"contract"})
def chain_loop(unary, pairwise):
    """Return p(z_t = c), (T, C), by forward-backward whose rows are rescaled to sum to 1."""
    T, C = unary.shape
    weights, forward, p = np.exp(pairwise), np.empty((T, C)), np.empty((T, C))
    each = np.exp(unary - unary.max())
    backward, row = np.ones(C), np.empty(C)
    for t in range(T):
        for k in range(C):
            total = 1.0
            if t > 0:
                total = 0.0
                for j in range(C):
                    total += forward[t - 1, j] * weights[j, k]
            forward[t, k] = total * each[t, k]
        forward[t] /= forward[t].sum()
    for t in range(T - 1, -1, -1):
        p[t] = forward[t] * backward
        p[t] /= p[t].sum()
        for j in range(C):
            row[j] = 0.0
            for k in range(C):
                row[j] += weights[j, k] * each[t, k] * backward[k]
        backward[:] = row / row.sum()
    return p


@njit(error_model="numpy", fastmath={"contract"})
def _add(x, y):
    """Return log (eˣ + eʸ)."""
    if x < y:
        x, y = y, x
    return x if y == -np.inf else x + np.log1p(np.exp(y - x))


@njit(error_model="numpy", fastmath={"contract"})
def eisner_loop(arcs):
    """Return p(h is the head of m), (n+1, n+1), by the inside pass of Eisner (1996) and its reverse."""
    N = len(arcs)
    I, C = np.full((N, N), -np.inf), np.full((N, N), -np.inf)  # noqa: E741  [head, other end]: incomplete, complete
    for i in range(N):
        C[i, i] = 0.0
    for width in range(1, N):
        for i in range(N - width):
            j, total = i + width, -np.inf
            for k in range(i, j):
                total = _add(total, C[i, k] + C[j, k + 1])
            I[i, j], I[j, i] = total + arcs[i, j], (total + arcs[j, i] if i > 0 else -np.inf)
            for k in range(i + 1, j + 1):
                C[i, j] = _add(C[i, j], I[i, k] + C[k, j])
            for k in range(i, j):
                C[j, i] = _add(C[j, i], C[k, i] + I[j, k])
    dI, dC, p = np.zeros((N, N)), np.zeros((N, N)), np.zeros((N, N))
    dC[0, N - 1] = 1.0
    for width in range(N - 1, 0, -1):
        for i in range(N - width):
            j = i + width
            for k in range(i + 1, j + 1):
                x = dC[i, j] * np.exp(I[i, k] + C[k, j] - C[i, j]) if dC[i, j] > 0 else 0.0
                dI[i, k] += x
                dC[k, j] += x
            for k in range(i, j):
                x = dC[j, i] * np.exp(C[k, i] + I[j, k] - C[j, i]) if dC[j, i] > 0 else 0.0
                dC[k, i] += x
                dI[j, k] += x
            p[i, j], p[j, i] = dI[i, j], dI[j, i]
            both = dI[i, j] + dI[j, i]
            top = I[i, j] - arcs[i, j]
            for k in range(i, j):
                x = both * np.exp(C[i, k] + C[j, k + 1] - top) if both > 0 else 0.0
                dC[i, k] += x
                dC[j, k + 1] += x
    return p


def main() -> None:
    torch.manual_seed(0)
    unary, pairwise = torch.randn(1, 50, 20), torch.randn(20, 20)
    loop = partial(chain_loop, unary[0].numpy(), pairwise.numpy())
    torch.testing.assert_close(
        torch.from_numpy(loop()).float(), chain.marginals(unary, pairwise)[0], rtol=1e-3, atol=1e-5
    )
    compare("chain marginals 1x50 C=20", {"ours": partial(chain.marginals, unary, pairwise), "loop": loop}, 1)
    for n in (25, 80):
        arcs = torch.randn(1, n + 1, n + 1)
        plain = partial(eisner_loop, arcs[0].numpy())
        torch.testing.assert_close(
            torch.from_numpy(plain()).float(), eisner.multi_root.marginals(arcs)[0], rtol=1e-3, atol=1e-5
        )
        compare(f"Eisner marginals 1x{n}", {"ours": partial(eisner.multi_root.marginals, arcs), "loop": plain}, 1)


if __name__ == "__main__":
    main()
