# mypy: disallow-untyped-defs=False
"""The entropy of linear chains on the CPU, H = log Z − E[S], with the score S of a sequence.

This is `sequences` with the scores themselves as the gradient g, and a further term h_t(j, k), the pairwise score:

    up to t      e_t(k) = g_t(k) + Σ_j q_t-1(j | k) (e_t-1(j) + h_t-1(j, k))
    after t      d_t(j) = Σ_k q_t(j | k) (d_t+1(k) + p_t+1(k) (g_t+1(k) + h_t(j, k)))

The gradient of H is −Cov[S, part], where a part is a tag or a pair of tags. The pairwise scores of a block lie behind its
layout. Shapes: B sequences, T positions, C tags; S = T − 1 pairwise scores per sequence, or 1 if all positions share them.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.kernels import numbers, possible_scores, reference_vjp, sequences
from phrasemodels.structs.kernels.chain import Batch, close_block, open_block
from phrasemodels.structs.kernels.scaled import ratio
from phrasemodels.structs.kernels.sequences import WEIGHT, pairs_of, some_end
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, LANES, load, spread, store


@njit(**COMPILE)
def _scores(w, block, at, order, unary, pairwise, lengths):
    """Copy unary scores to g and pairwise scores behind the layout, both without -inf, and 0 in the padding."""
    C = at.C
    for lane in range(LANES):
        b = order[min(block + lane, len(order) - 1)]
        n = lengths[b]
        for t in range(at.T):
            for c in range(C):
                w[at.g + (t * C + c) * LANES + lane] = unary[b, t, c] if t < n else 0.0
        pairs = pairwise[b if len(pairwise) > 1 else 0]
        for t in range(at.S):
            for i in range(C * C):
                x = pairs[t, i // C, i % C] if len(pairs) == 1 or t + 1 < n else 0.0
                w[at.size + (t * C * C + i) * LANES + lane] = x


@njit(**INLINE)
def _posterior(w, left, right, s):
    """Return q(j | k) without the factor 1/m of s: left, right, s are the positions of a(j), pairwise(j, k), s(k)."""
    e = load(w, left + LANES) + load(w, right + LANES) - load(w, s + LANES)
    return load(w, left) * load(w, right) * ratio(e)


@njit(**COMPILE)
def _expectations(w, at):
    """Compute e and E[S], after `forward`."""
    C = at.C
    row = C * WEIGHT
    store(w, at.mean, spread(0.0))
    for t in range(at.T):
        for k in range(C):
            here, total = at.e + (t * C + k) * LANES, load(w, at.g + (t * C + k) * LANES)
            if t > 0:
                s, before = at.s + t * row + k * WEIGHT, spread(0.0)
                for j in range(C):
                    pair = pairs_of(at, t - 1) + j * C + k
                    q = _posterior(w, at.a + (t - 1) * row + j * WEIGHT, at.pairwise + pair * WEIGHT, s)
                    before += q * (load(w, at.e + ((t - 1) * C + j) * LANES) + load(w, at.size + pair * LANES))
                total += before * load(w, s)
            store(w, here, total)
            store(w, at.p + (t * C + k) * LANES, spread(0.0))
        if some_end(w, at, t):
            sequences.add_end(w, at, t)
            sequences.add_mean(w, at, t)


@njit(**INLINE)
def _share_out(w, at, t, j, sums):
    """Return p_t(j) and d_t(j), and add the gradients to pairwise_t(j, ·) to `sums`; x and y hold p and d + p g at t+1."""
    row = at.C * WEIGHT
    left = load(w, at.e + (t * at.C + j) * LANES) - load(w, at.mean)
    p, d = spread(0.0), spread(0.0)
    for k in range(at.C):
        s, pair = at.s + (t + 1) * row + k * WEIGHT, pairs_of(at, t) + j * at.C + k
        q = _posterior(w, at.a + t * row + j * WEIGHT, at.pairwise + pair * WEIGHT, s) * load(w, s)
        one = q * load(w, at.x + k * LANES)
        other = q * load(w, at.y + k * LANES) + one * load(w, at.size + pair * LANES)
        p += one
        d += other
        total = sums + k * LANES
        store(w, total, load(w, total) + (one * left + other))
    return p, d


@njit(**COMPILE)
def _covariances(w, at):
    """Write Cov[S, tag] over e, and add Cov[S, pair] to pair_grads, from e and E[S]."""
    C = at.C
    for t in range(at.T - 1, -1, -1):
        here, sums = t * C * LANES, at.pair_grads + pairs_of(at, t) * LANES
        if t + 1 < at.T:
            for k in range(C):
                after = here + (C + k) * LANES
                p = load(w, at.p + after)
                store(w, at.x + k * LANES, p)
                store(w, at.y + k * LANES, load(w, at.d + after) + p * load(w, at.g + after))
        for j in range(C):
            p, d = spread(0.0), spread(0.0)
            if t + 1 < at.T:
                p, d = _share_out(w, at, t, j, sums + j * C * LANES)
            store(w, at.p + here + j * LANES, p)
            store(w, at.d + here + j * LANES, d)
        if some_end(w, at, t):
            sequences.add_end(w, at, t)
        middle = load(w, at.mean)
        for c in range(here, here + C * LANES, LANES):
            store(w, at.e + c, load(w, at.p + c) * (load(w, at.e + c) - middle) + load(w, at.d + c))


@njit(**COMPILE)
def _entropy(first, step, work, order, unary, pairwise, lengths, finite, pairs, entropy, out, pairs_out):
    """Compute the entropy (B,); and, unless `out` is empty, Cov[S, tag] (B, T, C) and Cov[S, pair] (B, S, C · C).

    finite, pairs: unary and pairwise with 0 for -inf.
    """
    w, z = work[first], np.empty(LANES)
    for block in range(first * LANES, len(order), step * LANES):
        at = open_block(w, block, block > first * LANES, order, unary, pairwise, lengths)
        sequences.forward(w, at, z, False)
        _scores(w, block, at, order, finite, pairs, lengths)
        _expectations(w, at)
        for lane in range(min(LANES, len(order) - block)):
            # the difference of almost equal numbers may be below 0
            entropy[order[block + lane]] = max(z[lane] - w[at.mean + lane], 0.0)
        if out.size > 0:
            for i in range(at.pair_grads, at.unary):
                w[i] = 0.0
            _covariances(w, at)
            close_block(w, block, order, at.e, at.T, at.C, out)
            close_block(w, block, order, at.pair_grads, min(at.S, at.T - 1), at.C * at.C, pairs_out)


def entropies(batch: Batch, wanted: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the entropy (B,), and its gradients to the unary (B, T, C) and pairwise scores (B, S, C · C) of each sequence,
    which are empty unless `wanted`."""
    unary, pairwise, _ = batch.scores
    B, S, C = batch.B, pairwise.shape[1], batch.C
    entropy, out = np.empty(B), batch.empty(*((B, batch.T, C) if wanted else (0, 0, 0)))
    pairs = np.empty((B, S, C * C) if wanted else (0, 0, 0))
    finite = [numbers(possible_scores(torch.from_numpy(x))) for x in (unary, pairwise)]
    batch.run(_entropy, *finite, entropy, out, pairs, more=S * C * C)
    if batch.unknown is not None:
        entropy[batch.unknown[:, 0]] = np.nan
        if wanted:
            out[batch.unknown] = np.nan
            pairs[batch.unknown[:, 1:].any(1, keepdims=True) if batch.shared else batch.unknown[:, 1:]] = np.nan
    return torch.from_numpy(entropy).to(batch.dtype), torch.from_numpy(out), torch.from_numpy(pairs)


class Entropy(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → entropy. The gradients are computed with it, as they share most of the work."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference = reference
        entropy, *ctx.covariances = entropies(Batch(unary, pairwise, lengths), any(ctx.needs_input_grad))
        ctx.save_for_backward(unary, pairwise)
        return entropy

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        pairwise, (tags, pairs) = ctx.saved_tensors[1], ctx.covariances
        each = -grad.double()[:, None, None] * pairs
        pair_grad = each.sum(0) if pairwise.dim() == 2 else each
        return None, -grad[:, None, None] * tags, pair_grad.view(pairwise.shape).to(pairwise.dtype), None
