# mypy: ignore-errors
"""Triton programs: one for each sequence or sentence, in log space and in the type of the scores.

Recursions are as in `chain` and `eisner`. A chart is (5, N, N): complete spans to the right and to the left, incomplete ones,
and what both incomplete ones share, at [kind, i, j] for the words i..j; the chart of probabilities is alike.
"""

import triton
import triton.language as tl


@triton.jit
def _exact(x, top):
    """Return exp(x − top) for x ≤ top, 0 if x is -inf, NaN if x is NaN."""
    below = x - tl.where(top == -float("inf"), 0.0, top)
    return tl.exp(tl.where(below > 0, 0.0, below))


@triton.jit
def _log(total, top):
    """Return log total + top, -inf if the total is 0."""
    return tl.where(
        total == 0, -float("inf"), tl.log(tl.where(total == 0, 1.0, total)) + tl.where(total == 0, 0.0, top)
    )


@triton.jit
def chain_forward(unary, pairwise, lengths, alpha, log_z, T, C, by_sequence, by_position, BLOCK: tl.constexpr):
    """Fill alpha (B, T, C), the log weights of beginnings, and log Z (B,)."""
    b = tl.program_id(0)
    n = tl.load(lengths + b)
    c = tl.arange(0, BLOCK)
    inside, row = c < C, b * T * C + c
    pairs = c[:, None] * C + c[None, :]
    both = inside[:, None] & inside[None, :]
    a = tl.load(unary + row, mask=inside, other=-float("inf"))
    tl.store(alpha + row, a, mask=inside)
    for t in range(1, n):
        at = pairwise + b * by_sequence + (t - 1) * by_position
        x = a[:, None] + tl.load(at + pairs, mask=both, other=-float("inf"))
        top = tl.max(x, 0)
        a = _log(tl.sum(_exact(x, top[None, :]), 0), top)
        a += tl.load(unary + row + t * C, mask=inside, other=-float("inf"))
        tl.store(alpha + row + t * C, a, mask=inside)
    top = tl.max(a, 0)
    tl.store(log_z + b, _log(tl.sum(_exact(a, top), 0), top))


@triton.jit
def chain_backward(
    unary, pairwise, lengths, alpha, log_z, p, pair_p, T, C, by_sequence, by_position, BLOCK: tl.constexpr
):
    """Fill the marginals p (B, T, C) and pair_p (B, T-1, C, C), which are 0 before."""
    b = tl.program_id(0)
    n = tl.load(lengths + b)
    c = tl.arange(0, BLOCK)
    inside, row = c < C, b * T * C + c
    pairs = c[:, None] * C + c[None, :]
    both = inside[:, None] & inside[None, :]
    z = tl.load(log_z + b)
    a = tl.load(alpha + row + (n - 1) * C, mask=inside, other=-float("inf"))
    possible = z != -float("inf")
    tl.store(p + row + (n - 1) * C, tl.where(possible, _exact(a, z), 0.0), mask=inside)
    after = tl.load(unary + row + (n - 1) * C, mask=inside, other=-float("inf"))
    for step in range(1, n):
        t = n - 1 - step
        x = (
            tl.load(pairwise + b * by_sequence + t * by_position + pairs, mask=both, other=-float("inf"))
            + after[None, :]
        )
        a = tl.load(alpha + row + t * C, mask=inside, other=-float("inf"))
        q = tl.where(possible, _exact(a[:, None] + x, z), 0.0)
        tl.store(pair_p + (b * (T - 1) + t) * C * C + pairs, q, mask=both)
        tl.store(p + row + t * C, tl.sum(q, 1), mask=inside)
        top = tl.max(x, 1)
        after = _log(tl.sum(_exact(x, top[:, None]), 1), top)
        after += tl.load(unary + row + t * C, mask=inside, other=-float("inf"))


@triton.jit
def _sum_over_splits(here, one, other, i, N, start, shift, d, inside, zero):
    """Return log Σ_k of the products of spans [one, i, i + k + start] and [other, i + k + shift, i + d], over d splits."""
    M = N * N
    top, total = zero - float("inf"), zero
    for k in range(0, d):
        x = tl.load(here + one * M + i * N + i + k + start, mask=inside, other=-float("inf"))
        x += tl.load(here + other * M + (i + k + shift) * N + i + d, mask=inside, other=-float("inf"))
        higher = tl.maximum(top, x)
        total = total * _exact(top, higher) + _exact(x, higher)
        top = higher
    return _log(total, top)


@triton.jit
def eisner_inside(arcs, lengths, chart, log_z, N, one_root: tl.constexpr, BLOCK: tl.constexpr):
    """Fill the chart (B, 5, N, N) and log Z (B,)."""
    b = tl.program_id(0)
    n = tl.load(lengths + b)
    i = tl.arange(0, BLOCK)
    M = N * N
    here, score = chart + b * 5 * M, arcs + b * M
    zero = tl.zeros([BLOCK], chart.dtype.element_ty)
    tl.store(here + i * N + i, zero, mask=i <= n)
    tl.store(here + M + i * N + i, zero, mask=i <= n)
    tl.debug_barrier()
    for d in range(1, n + 1):
        inside = i + d <= n
        at = i * N + i + d
        meet = _sum_over_splits(here, 0, 1, i, N, 0, 1, d, inside, zero)
        right = meet + tl.load(score + at, mask=inside, other=-float("inf"))
        left = meet + tl.load(score + (i + d) * N + i, mask=inside & (i > 0), other=-float("inf"))
        tl.store(here + 2 * M + at, right, mask=inside)
        tl.store(here + 3 * M + at, left, mask=inside)
        tl.store(here + 4 * M + at, meet, mask=inside)
        tl.debug_barrier()
        right = _sum_over_splits(here, 2, 0, i, N, 1, 1, d, inside, zero)
        left = _sum_over_splits(here, 1, 3, i, N, 0, 0, d, inside, zero)
        tl.store(log_z + b + 0 * i, right, mask=(i == 0) & (i + d == n))
        if one_root:
            right = tl.where((i == 0) & (i + d < n), -float("inf"), right)  # the root would need a second arc
        tl.store(here + at, right, mask=inside)
        tl.store(here + M + at, left, mask=inside)
        tl.debug_barrier()


@triton.jit
def _share_out(here, pp, one, other, i, N, start, shift, d, p, w, inside):
    """Add p times the posterior of each of d splits to both of its spans."""
    M = N * N
    for k in range(0, d):
        left, right = one * M + i * N + i + k + start, other * M + (i + k + shift) * N + i + d
        x = tl.load(here + left, mask=inside, other=-float("inf"))
        x += tl.load(here + right, mask=inside, other=-float("inf"))
        q = tl.where(w == -float("inf"), 0.0, p * _exact(x, w))
        tl.store(pp + left, tl.load(pp + left, mask=inside, other=0.0) + q, mask=inside)
        tl.debug_barrier()
        tl.store(pp + right, tl.load(pp + right, mask=inside, other=0.0) + q, mask=inside)
        tl.debug_barrier()


@triton.jit
def eisner_outside(chart, lengths, probabilities, log_z, N, BLOCK: tl.constexpr):
    """Fill the chart of probabilities (B, 5, N, N), which is 0 before; the probabilities of incomplete spans are the marginals of arcs."""
    b = tl.program_id(0)
    n = tl.load(lengths + b)
    i = tl.arange(0, BLOCK)
    M = N * N
    here, pp = chart + b * 5 * M, probabilities + b * 5 * M
    whole = tl.where(tl.load(log_z + b) == -float("inf"), 0.0, 1.0).to(chart.dtype.element_ty)
    tl.store(pp + n + 0 * i, whole + 0 * i, mask=i == 0)
    tl.debug_barrier()
    for step in range(0, n):
        d = n - step
        inside = i + d <= n
        at = i * N + i + d
        p = tl.load(pp + at, mask=inside, other=0.0)
        w = tl.load(here + at, mask=inside, other=-float("inf"))
        _share_out(here, pp, 2, 0, i, N, 1, 1, d, p, w, inside)
        p = tl.load(pp + M + at, mask=inside, other=0.0)
        w = tl.load(here + M + at, mask=inside, other=-float("inf"))
        _share_out(here, pp, 1, 3, i, N, 0, 0, d, p, w, inside)
        p = tl.load(pp + 2 * M + at, mask=inside, other=0.0) + tl.load(pp + 3 * M + at, mask=inside, other=0.0)
        w = tl.load(here + 4 * M + at, mask=inside, other=-float("inf"))
        _share_out(here, pp, 0, 1, i, N, 0, 1, d, p, w, inside)
