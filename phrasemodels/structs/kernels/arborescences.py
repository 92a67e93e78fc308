# mypy: disallow-untyped-defs=False
"""All dependency trees on the CPU: log Z, marginals and exact samples, by `elimination`.

A sample goes backward through the eliminations: each arc of the tree over the smaller graph is a path over v with the
probability a. The children of v are then known; its head is one of those words that still hang on the root, or the root, by
the weights w(h, v). Nothing depends on the spread of scores, unlike the time of the random walks of Wilson (1996).

Shapes: B sentences, N positions, the root at 0. A history of one sentence is (N, N, N): graphs before each elimination.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import numbers, over_batch, reference_vjp
from phrasemodels.structs.kernels.elimination import (
    eliminate,
    eliminate_plain,
    make_plain,
    marginals_of,
    marginals_plain,
    read_graph,
)
from phrasemodels.structs.kernels.simd import COMPILE


@njit(**COMPILE)
def _passes(first, step, scores, lengths, one_root, log_z, p):
    """Compute log Z (B,), and marginals (B, N, N), which are 0 before, unless they are empty."""
    longest = scores.shape[1]
    graphs = np.empty((longest, longest, longest))
    order, sums, tops = np.empty(longest, np.int64), np.empty(longest), np.empty(longest)
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        if not read_graph(scores[b], N, graphs[0]):
            log_z[b] = np.nan
            for h in range(N if p.size > 0 else 0):
                for m in range(1, N):
                    p[b, h, m] = np.nan if h != m else 0.0
            continue
        if make_plain(N, graphs[0], tops):
            log_z[b] = eliminate_plain(N, one_root, graphs, sums) + tops[1:N].sum()
            if log_z[b] > -np.inf:
                if p.size > 0:
                    marginals_plain(N, one_root, graphs, sums, p[b])
                continue
            read_graph(scores[b], N, graphs[0])
        log_z[b] = eliminate(N, one_root, graphs, order, sums)
        if p.size > 0 and log_z[b] > -np.inf:
            marginals_of(N, one_root, graphs, order, sums, p[b])


@njit(**COMPILE)
def _tree(N, one_root, graphs, order, draws, left, weight, heads):
    """Write the heads of one sample; draws (N, N) are uniform numbers: [m, v] for the path to m, [0, v] for the head of v."""
    left[:] = False
    last = order[N - 2]
    left[last], heads[last] = True, 0
    for step in range(N - 3, -1, -1):
        w, after, v = graphs[step], graphs[step + 1], order[step]
        heads[v] = -1  # detached: its words do not hang on the root until it has a head
        for m in range(1, N):
            h = heads[m]
            if left[m] and draws[m, v] >= np.exp(w[h, m] - after[h, m]):
                weight[m] = 1.0
            else:
                weight[m] = 0.0
        for m in range(1, N):
            if left[m] and weight[m] > 0.0:
                heads[m] = v
        top, total = -np.inf, 0.0
        for h in range(N):
            weight[h] = -np.inf
            if (h == 0 or left[h]) and _hangs_on_root(heads, h) and not (one_root and h == 0):
                weight[h] = w[h, v]
                top = max(top, weight[h])
        for h in range(N):
            weight[h] = np.exp(weight[h] - top) if top > -np.inf else 0.0
            total += weight[h]
        best, upto = 0, 0.0
        for h in range(N):
            upto += weight[h]
            if weight[h] > 0.0:
                best = h
                if upto > draws[0, v] * total:
                    break
        heads[v] = best
        left[v] = True


@njit(**COMPILE)
def _hangs_on_root(heads, h):
    """Return whether the heads from h on lead to the root, not to a word without a head."""
    while h > 0:
        h = heads[h]
    return h == 0


@njit(**COMPILE)
def _samples(first, step, scores, lengths, one_root, draws, heads):
    longest = scores.shape[1]
    graphs = np.empty((longest, longest, longest))
    order, sums = np.empty(longest, np.int64), np.empty(longest)
    left, weight = np.empty(longest, np.bool_), np.empty(longest)
    for b in range(first, len(lengths), step):
        N = lengths[b] + 1
        if N == 1 or not read_graph(scores[b], N, graphs[0]):
            continue
        if eliminate(N, one_root, graphs, order, sums) > -np.inf:
            for k in range(len(draws)):
                _tree(N, one_root, graphs, order, draws[k, b], left, weight, heads[k, b])


def passes(arcs: Tensor, lengths: Tensor, one_root: bool, wanted: bool) -> tuple[Tensor, Tensor]:
    """Return log Z (B,) and marginals (B, N, N), which are empty unless `wanted`."""
    log_z, p = np.empty(len(arcs)), np.zeros(arcs.shape if wanted else (0, 0, 0))
    over_batch(_passes, len(arcs), numbers(arcs), lengths.numpy(), one_root, log_z, p)
    return torch.from_numpy(log_z).to(arcs.dtype), torch.from_numpy(p).to(arcs.dtype)


def sample(arcs: Tensor, lengths: Tensor, one_root: bool, draws: Tensor) -> Tensor:
    """Return the heads (k, B, N) of `nonprojective.sample` from uniform numbers draws (k, B, N, N), float64."""
    heads = np.full(draws.shape[:3], -1)
    over_batch(_samples, len(arcs), numbers(arcs), lengths.numpy(), one_root, draws.numpy(), heads)
    return torch.from_numpy(heads)


class LogPartition(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → log Z."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        ctx.reference = reference
        ctx.save_for_backward(arcs)
        log_z, ctx.marginals = passes(arcs, lengths, one_root, ctx.needs_input_grad[1])
        return log_z

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
        return None, ctx.marginals * grad[:, None, None], None, None


class Marginals(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → p(arc); the reference computes its derivatives."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        ctx.reference = reference
        ctx.save_for_backward(arcs)
        return passes(arcs, lengths, one_root, True)[1]

    @staticmethod
    def backward(ctx, grad):
        return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
