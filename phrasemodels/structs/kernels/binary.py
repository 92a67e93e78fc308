# mypy: disallow-untyped-defs=False
"""Binary trees of spans on the CPU: inside, outside and covariance passes over LANES sentences, with weights as in `scaled`.

Positions are the words 0..N-1. A chart has the cells of spans at [i, j] (SPAN) and at [j, i] (SPAN_T), so that both factors of
a sum over split points are contiguous; SPLITS is that sum, OWN the weight of the span itself: SPAN = OWN · SPLITS. All other
passes are those of `trees`, with g the gradient to the marginals of spans. Shapes: B sentences.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import numbers, over_batch, scratch, trees
from phrasemodels.structs.kernels.scaled import logarithm, normal, possible
from phrasemodels.structs.kernels.sequences import WEIGHT, exponentials
from phrasemodels.structs.kernels.simd import COMPILE, LANES, above, load, spread, store
from phrasemodels.structs.kernels.trees import Layout

SPAN, SPAN_T, SPLITS, OWN = range(4)


@njit(**COMPILE)
def layout(N):
    """Return the layout for sentences of N words: as that of `trees`, but p, e and d are (2, N, N), and the weights (4, N, N)."""
    n = N * N * LANES
    p = 8 * n
    end = p + 7 * n
    return Layout(N, p, p + 2 * n, p + 4 * n, p + 6 * n, end, end + LANES, end + 2 * LANES)


@njit(**COMPILE)
def _open(w, block, order, scores, factors, lengths):
    """Write factor · exp(score) of the spans of a block to the workspace w, 1 in the padding; return its layout."""
    count = min(LANES, len(order) - block)
    N = lengths[order[block + count - 1]]
    at = layout(N)
    for lane in range(LANES):
        b = order[block + min(lane, count - 1)]
        n = lengths[b] if lane < count else 0
        w[at.lengths + lane] = n
        for i in range(N):
            for j in range(N):
                w[(OWN * N * N + i * N + j) * WEIGHT + lane] = scores[b, i, j] if i <= j < n else 0.0
    exponentials(w, OWN * N * N * WEIGHT, at.p)
    for lane in range(count):
        b = order[block + lane]
        for i in range(lengths[b]):
            for j in range(i, lengths[b]):
                w[(OWN * N * N + i * N + j) * WEIGHT + lane] *= factors[b, i, j]
    return at


@njit(**COMPILE)
def _inside(w, at, log_z):
    """Fill the chart and log Z. The length of a sentence becomes 0 if all its trees are forbidden."""
    N = at.N
    M = N * N
    for j in range(N):
        for i in range(j, -1, -1):
            own = (OWN * M + i * N + j) * WEIGHT
            m, e = load(w, own), load(w, own + LANES)
            if i < j:
                x, y = trees.sum_of(w, i * N + i, SPAN_T * M + j * N + i + 1, j - i)
                trees.put(w, SPLITS * M + i * N + j, x, y)
                m, e = normal(m * x, e + y)
            else:
                m, e = normal(m, e)
            trees.put(w, i * N + j, m, e)
            trees.put(w, SPAN_T * M + j * N + i, m, e)
        for lane in range(LANES):
            if w[at.lengths + lane] == j + 1:
                e_top = w[j * WEIGHT + LANES + lane]
                log_z[lane] = logarithm(w[j * WEIGHT + lane], e_top)
                if not possible(e_top):
                    w[at.lengths + lane] = 0.0


@njit(**COMPILE)
def _outside(w, at):
    """Compute p of all spans at SPAN, and d of all but themselves at SPAN too; d is 0 unless e and g are given."""
    N = at.N
    M = N * N
    for x in range(2 * M * LANES):
        w[at.p + x] = w[at.d + x] = 0.0
    for lane in range(LANES):
        if w[at.lengths + lane] > 0.0:
            w[at.p + (int(w[at.lengths + lane]) - 1) * LANES + lane] = 1.0
    for j in range(N - 1, -1, -1):
        for i in range(j + 1):
            cell, other = (i * N + j) * LANES, (SPAN_T * M + j * N + i) * LANES
            p = above(load(w, at.p + cell) + load(w, at.p + other), trees.NEGLIGIBLE)
            d = load(w, at.d + cell) + load(w, at.d + other)
            store(w, at.p + cell, p)
            store(w, at.d + cell, d)
            if i < j:
                splits = (SPLITS * M + i * N + j) * WEIGHT
                share, e = 1.0 / load(w, splits), load(w, splits + LANES)
                d += p * load(w, at.g + cell)
                trees.spread_both(w, at, e, p * share, d * share, i * N + i, SPAN_T * M + j * N + i + 1, j - i)


@njit(**COMPILE)
def _expectations(w, at):
    """Compute e of all spans, E[Σ g over a span and those inside | the span]."""
    N = at.N
    M = N * N
    for j in range(N):
        for i in range(j, -1, -1):
            total = spread(0.0)
            if i < j:
                splits, left, right = (SPLITS * M + i * N + j) * WEIGHT, i * N + i, SPAN_T * M + j * N + i + 1
                e = load(w, splits + LANES)
                for k in range(j - i):
                    both = load(w, at.e + (left + k) * LANES) + load(w, at.e + (right + k) * LANES)
                    total += trees.posterior(w, left + k, right + k, e) * both
                total = total / load(w, splits)
            total += load(w, at.g + (i * N + j) * LANES)
            store(w, at.e + (i * N + j) * LANES, total)
            store(w, at.e + (SPAN_T * M + j * N + i) * LANES, total)


@njit(**COMPILE)
def _run(first, step, work, order, scores, factors, lengths, grad, log_z, out):
    """Compute log Z (B,); and, unless `out` (B, N, N) is empty, marginals, or with `grad` (B, N, N) their gradient."""
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = _open(w, block, order, scores, factors, lengths)
        N = at.N
        _inside(w, at, z)
        count = min(LANES, len(order) - block)
        for lane in range(count):
            log_z[order[block + lane]] = z[lane]
        if out.size == 0:
            continue
        for i in range(at.e, at.lengths):
            w[i] = 0.0
        if grad.size > 0:
            for lane in range(count):
                n = int(w[at.lengths + lane])
                for i in range(n):
                    for j in range(i, n):
                        w[at.g + (i * N + j) * LANES + lane] = grad[order[block + lane], i, j]
            _expectations(w, at)
        _outside(w, at)
        _close(w, block, at, order, grad.size > 0, out)


@njit(**COMPILE)
def _close(w, block, at, order, gradient, out):
    """Copy marginals, or their gradients p (e − E[G]) + d, to the rows of the block, with 0 in the padding."""
    N = at.N
    for lane in range(min(LANES, len(order) - block)):
        x, n = out[order[block + lane]], int(w[at.lengths + lane])
        x[:] = 0.0
        mean = w[at.e + max(n - 1, 0) * LANES + lane]
        for i in range(n):
            for j in range(i, n):
                cell = (i * N + j) * LANES + lane
                p = w[at.p + cell]
                x[i, j] = p * (w[at.e + cell] - mean) + w[at.d + cell] if gradient else p


def passes(
    scores: Tensor, factors: Tensor, lengths: Tensor, wanted: bool, grad: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return log Z (B,), and the marginals of spans (B, N, N), which are empty unless `wanted`; with `grad` (B, N, N), the
    gradient to the marginals, the gradient to the scores instead. The weight of a span is factor · exp(score), both (B, N, N) and
    float64, with 0 in the padding of scores, and factors > 0; a score that is NaN makes its sentence NaN."""
    B, N, _ = scores.shape
    x, words = numbers(scores), lengths.numpy()
    order = np.argsort(words, kind="stable")  # a block takes as many steps as its longest sentence
    log_z, out = np.empty(B), np.empty((B, N, N) if wanted else (0, 0, 0))
    given = np.empty((0, 0, 0)) if grad is None else numbers(grad)
    blocks = -(-B // LANES)
    over_batch(_run, blocks, scratch(blocks, layout(N).size), order, x, numbers(factors), words, given, log_z, out)
    if not x.max(initial=0) < np.inf:  # a score is NaN or +inf; the padding is 0
        read = np.triu(np.ones((N, N), bool)) & (np.arange(N) < words[:, None, None])
        lost = np.asarray((read & ~(x < np.inf)).any((1, 2)))
        log_z[lost] = np.nan
        if wanted:
            out[read & lost[:, None, None]] = np.nan
    return torch.from_numpy(log_z), torch.from_numpy(out)
