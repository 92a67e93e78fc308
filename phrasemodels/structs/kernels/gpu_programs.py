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
def _shares(x, possible):
    """Return exp x divided by its sum; 0 unless `possible`."""
    weights = _exact(x, tl.max(x))
    total = tl.sum(weights)
    return tl.where(possible, weights / tl.where(total == 0, 1.0, total), 0.0)


@triton.jit
def _highest(a):
    """Return the largest of some log weights, 0 if all are -inf."""
    top = tl.max(a, 0)
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def chain_forward(unary, pairwise, lengths, alpha, log_z, T, C, by_sequence, by_position, BLOCK: tl.constexpr):
    """Fill alpha (B, T, C), the log weights of beginnings less the highest of each position, and log Z (B,)."""
    b = tl.program_id(0).to(tl.int64)  # offsets of large charts exceed 32 bits
    n = tl.load(lengths + b)
    c = tl.arange(0, BLOCK)
    inside, row = c < C, b * T * C + c
    pairs = c[:, None] * C + c[None, :]
    both = inside[:, None] & inside[None, :]
    a = tl.load(unary + row, mask=inside, other=-float("inf"))
    shift = _highest(a)
    a -= shift
    sums = shift.to(tl.float64)  # of what is subtracted, which grows with the length
    tl.store(alpha + row, a, mask=inside)
    for t in range(1, n):
        at = pairwise + b * by_sequence + (t - 1) * by_position
        x = a[:, None] + tl.load(at + pairs, mask=both, other=-float("inf"))
        top = tl.max(x, 0)
        a = _log(tl.sum(_exact(x, top[None, :]), 0), top)
        a += tl.load(unary + row + t * C, mask=inside, other=-float("inf"))
        shift = _highest(a)
        a -= shift
        sums += shift.to(tl.float64)
        tl.store(alpha + row + t * C, a, mask=inside)
    top = tl.max(a, 0)
    tl.store(log_z + b, (_log(tl.sum(_exact(a, top), 0), top).to(tl.float64) + sums).to(alpha.dtype.element_ty))


@triton.jit
def chain_backward(
    unary, pairwise, lengths, alpha, log_z, p, pair_p, T, C, by_sequence, by_position,
    PAIRS: tl.constexpr, SUMMED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill the marginals p (B, T, C), and if PAIRS those for transitions, (B, T-1, C, C), or their sums (B, C, C) if SUMMED; all are 0
    before."""
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + b)
    c = tl.arange(0, BLOCK)
    inside, row = c < C, b * T * C + c
    pairs = c[:, None] * C + c[None, :]
    both = inside[:, None] & inside[None, :]
    possible = tl.load(log_z + b) != -float("inf")
    a = tl.load(alpha + row + (n - 1) * C, mask=inside, other=-float("inf"))
    tl.store(p + row + (n - 1) * C, _shares(a, possible), mask=inside)
    after = tl.load(unary + row + (n - 1) * C, mask=inside, other=-float("inf"))
    total = tl.zeros([BLOCK, BLOCK], alpha.dtype.element_ty)
    for step in range(1, n):
        t = n - 1 - step
        at = pairwise + b * by_sequence + t * by_position + pairs
        x = tl.load(at, mask=both, other=-float("inf")) + after[None, :]
        a = tl.load(alpha + row + t * C, mask=inside, other=-float("inf"))
        # each position is divided by its own sum: exp(a + x − log Z) loses the digits of log Z, which grows with the length
        q = _shares(a[:, None] + x, possible)
        if PAIRS and not SUMMED:
            tl.store(pair_p + (b * (T - 1) + t) * C * C + pairs, q, mask=both)
        if PAIRS and SUMMED:
            total += q
        tl.store(p + row + t * C, tl.sum(q, 1), mask=inside)
        top = tl.max(x, 1)
        after = _log(tl.sum(_exact(x, top[:, None]), 1), top)
        after += tl.load(unary + row + t * C, mask=inside, other=-float("inf"))
        after -= _highest(after)
    if PAIRS and SUMMED:
        tl.store(pair_p + b * C * C + pairs, total, mask=both)


@triton.jit
def _mean(weights, total, x):
    """Return the mean of x over axis 0 by weights with these sums; 0 where a sum is 0."""
    return tl.sum(weights * x, 0) / tl.where(total == 0, 1.0, total)


@triton.jit
def _covariance(q, x):
    """Return q ∘ (x − E_q x): the derivative of the shares q in the direction x of their logarithms."""
    return q * (x - tl.sum(q * x))


@triton.jit
def chain_forward_tangent(
    unary, pairwise, lengths, alpha, u, v, alpha_u, T, C, by_sequence, by_position, v_by_sequence, v_by_position,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill alpha_u (B, T, C), the derivatives of alpha in the direction u (B, T, C) of unary and v of pairwise."""
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + b)
    c = tl.arange(0, BLOCK)
    inside, row = c < C, b * T * C + c
    pairs = c[:, None] * C + c[None, :]
    both = inside[:, None] & inside[None, :]
    moved = tl.load(u + row, mask=inside, other=0.0)
    tl.store(alpha_u + row, moved, mask=inside)
    for t in range(1, n):
        x = tl.load(alpha + row + (t - 1) * C, mask=inside, other=-float("inf"))[:, None]
        x += tl.load(pairwise + b * by_sequence + (t - 1) * by_position + pairs, mask=both, other=-float("inf"))
        weights = _exact(x, tl.max(x, 0)[None, :])
        moves = moved[:, None] + tl.load(v + b * v_by_sequence + (t - 1) * v_by_position + pairs, mask=both, other=0.0)
        moved = _mean(weights, tl.sum(weights, 0), moves) + tl.load(u + row + t * C, mask=inside, other=0.0)
        tl.store(alpha_u + row + t * C, moved, mask=inside)


@triton.jit
def chain_backward_tangent(
    unary, pairwise, lengths, alpha, log_z, u, v, alpha_u, p_u, pair_u, T, C, by_sequence, by_position, v_by_sequence,
    v_by_position, SUMMED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill the derivatives p_u (B, T, C) and pair_u of the marginals, which are as in `chain_backward`."""
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + b)
    c = tl.arange(0, BLOCK)
    inside, row = c < C, b * T * C + c
    turned = c[None, :] * C + c[:, None]
    both = inside[:, None] & inside[None, :]
    possible = tl.load(log_z + b) != -float("inf")
    a = tl.load(alpha + row + (n - 1) * C, mask=inside, other=-float("inf"))
    moved = tl.load(alpha_u + row + (n - 1) * C, mask=inside, other=0.0)
    tl.store(p_u + row + (n - 1) * C, _covariance(_shares(a, possible), moved), mask=inside)
    after = tl.load(unary + row + (n - 1) * C, mask=inside, other=-float("inf"))
    after_u = tl.load(u + row + (n - 1) * C, mask=inside, other=0.0)
    total = tl.zeros([BLOCK, BLOCK], alpha.dtype.element_ty)
    for step in range(1, n):
        t = n - 1 - step
        # axes [to, from], so that sums over the next tag are over axis 0
        x = tl.load(pairwise + b * by_sequence + t * by_position + turned, mask=both, other=-float("inf"))
        x += after[:, None]
        moves = tl.load(v + b * v_by_sequence + t * v_by_position + turned, mask=both, other=0.0) + after_u[:, None]
        a = tl.load(alpha + row + t * C, mask=inside, other=-float("inf"))
        moved = tl.load(alpha_u + row + t * C, mask=inside, other=0.0)
        q = _covariance(_shares(a[None, :] + x, possible), moved[None, :] + moves)
        if SUMMED:
            total += q
        else:
            tl.store(pair_u + (b * (T - 1) + t) * C * C + turned, q, mask=both)
        tl.store(p_u + row + t * C, tl.sum(q, 0), mask=inside)
        top = tl.max(x, 0)
        weights = _exact(x, top[None, :])
        sums = tl.sum(weights, 0)
        after_u = _mean(weights, sums, moves) + tl.load(u + row + t * C, mask=inside, other=0.0)
        after = _log(sums, top) + tl.load(unary + row + t * C, mask=inside, other=-float("inf"))
        after -= _highest(after)
    if SUMMED:
        tl.store(pair_u + b * C * C + turned, total, mask=both)


@triton.jit
def chain_best(unary, pairwise, lengths, back, best, tags, T, C, by_sequence, by_position, BLOCK: tl.constexpr):
    """Fill the best scores (B,) and tags (B, T), which are -1 before; back (B, T, C): memory for the best tags before each tag."""
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + b)
    c = tl.arange(0, BLOCK)
    inside, row = c < C, b * T * C + c
    pairs = c[:, None] * C + c[None, :]
    both = inside[:, None] & inside[None, :]
    a = tl.load(unary + row, mask=inside, other=-float("inf"))
    wrong = tl.sum(tl.where((a != a) | (a == float("inf")), 1.0, 0.0))  # a maximum may leave out NaN
    for t in range(1, n):
        at = pairwise + b * by_sequence + (t - 1) * by_position
        x = a[:, None] + tl.load(at + pairs, mask=both, other=-float("inf"))
        tl.store(back + row + t * C, tl.argmax(x, 0), mask=inside)
        score = tl.load(unary + row + t * C, mask=inside, other=-float("inf"))
        bad = tl.where((x != x) | (x == float("inf")), 1.0, 0.0)
        wrong += tl.sum(bad) + tl.sum(tl.where((score != score) | (score == float("inf")), 1.0, 0.0))
        a = tl.max(x, 0) + score
    tl.debug_barrier()
    top = tl.max(a, 0)
    tl.store(best + b, tl.where(wrong > 0, float("nan"), top))
    tag = tl.argmax(a, 0).to(tl.int64)
    if (top > -float("inf")) | (wrong > 0):
        tl.store(tags + b * T + n - 1, tag)
        for step in range(1, n):
            t = n - step
            tag = tl.load(back + b * T * C + t * C + tag).to(tl.int64)
            tl.store(tags + b * T + t - 1, tag)


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
    b = tl.program_id(0).to(tl.int64)  # offsets of large charts exceed 32 bits
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
    b = tl.program_id(0).to(tl.int64)  # offsets of large charts exceed 32 bits
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
