# mypy: ignore-errors
"""Triton programs: one for each sequence or sentence, in log space and in the type of the scores.

Recursions are as in `chain`, `eisner` and `spans`. A chart of projective trees is (4, N, N): complete spans to the right and to the
left, incomplete ones to the right and to the left, at [kind, i, j] for the words i..j; of labelled spans it is (N, N). All spans of a
width are filled at once, over tiles of BLOCK spans × TILE splits. `moves` and `moved` are by MEAN: nothing (0); the derivatives of
scores and of a chart in one direction (1); the entropies of labels, and of derivations of each span (2).

`levels_forward` and `levels_backward` run any rule by the steps of `structure.DepthSchedule`: all nodes of a level at once, over tiles of
BLOCK nodes × TILE edges. The arguments are scores (B, P), whose last one is -inf, nodes (B, V), and A edges of all nodes.
"""

import triton
import triton.language as tl


@triton.jit
def _exact(x, top):
    """Return exp(x − top) for x ≤ top, 0 if x is -inf, NaN if x is NaN."""
    below = x - tl.where(top == -float("inf"), 0.0, top)
    return tl.exp(tl.where(below > 0, 0.0, below))


@triton.jit
def _divisor(total):
    """Return sums of weights to divide by: 1 in place of 0, which all weights are then."""
    return tl.where(total == 0, 1.0, total)


@triton.jit
def _log(total, top):
    """Return log total + top, -inf if the total is 0."""
    return tl.where(total == 0, -float("inf"), tl.log(_divisor(total)) + tl.where(total == 0, 0.0, top))


@triton.jit
def _shares(x, possible):
    """Return exp x divided by its sum; 0 unless `possible`."""
    weights = _exact(x, tl.max(x))
    return tl.where(possible, weights / _divisor(tl.sum(weights)), 0.0)


@triton.jit
def _highest(a):
    """Return the largest of some log weights, 0 if all are -inf."""
    top = tl.max(a, 0)
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def _lost(log_z):
    """Return NaN if log Z is, as then all results of a sentence are; else 0."""
    return tl.where(log_z == log_z, 0.0, float("nan"))


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
    value = _log(tl.sum(_exact(a, top), 0), top).to(tl.float64) + sums
    tl.store(log_z + b, tl.where(n == 0, 0.0, value).to(alpha.dtype.element_ty))


@triton.jit
def _mean(weights, total, x):
    """Return the mean of x over axis 0 by weights with these sums; 0 where a sum is 0."""
    return tl.sum(weights * x, 0) / _divisor(total)


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
def chain_entropy(pairwise, lengths, alpha, log_z, entropy, T, C, by_sequence, by_position, BLOCK: tl.constexpr):
    """Fill the entropies (B,) in nats: the entropy of the last tag, and the mean entropy of the tag before each tag."""
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + b)
    c = tl.arange(0, BLOCK)
    inside, row = c < C, b * T * C + c
    pairs = c[:, None] * C + c[None, :]
    both = inside[:, None] & inside[None, :]
    a = tl.load(alpha + row, mask=inside, other=-float("inf"))
    so_far = tl.zeros([BLOCK], alpha.dtype.element_ty)
    for t in range(1, n):
        at = pairwise + b * by_sequence + (t - 1) * by_position + pairs
        below = a[:, None] + tl.load(at, mask=both, other=-float("inf"))
        below -= _highest(below)[None, :]
        weights = _exact(below, tl.max(below, 0)[None, :])
        total = tl.sum(weights, 0)
        surprise = tl.where(weights > 0, so_far[:, None] - below, 0.0)
        so_far = _mean(weights, total, surprise) + tl.log(_divisor(total))
        a = tl.load(alpha + row + t * C, mask=inside, other=-float("inf"))
    a -= _highest(a)
    weights = _exact(a, tl.max(a, 0))
    total = tl.sum(weights, 0)
    value = _mean(weights, total, tl.where(weights > 0, so_far - a, 0.0)) + tl.log(_divisor(total))
    value = tl.where(value < 0, 0.0, value) + _lost(tl.load(log_z + b))
    tl.store(entropy + b, tl.where(n == 0, 0.0, value))


@triton.jit
def _endings(pairwise, v, after, after_u, C, f, c, MEAN: tl.constexpr):
    """Return the log weights of endings from tags f to tags c, (F, C), as the highest of each, weights and their sums, and the moves of the
    endings with their means."""
    at = f[:, None] * C + c[None, :]
    some = (f[:, None] < C) & (c[None, :] < C)
    x = tl.load(pairwise + at, mask=some, other=-float("inf")) + after[None, :]
    top = tl.max(x, 1)
    weights = _exact(x, top[:, None])
    total, moves, mean = tl.sum(weights, 1), weights, top
    if MEAN:
        moves = tl.load(v + at, mask=some, other=0.0) + after_u[None, :]
        mean = tl.sum(weights * moves, 1) / _divisor(total)
    return top, weights, total, moves, mean


@triton.jit
def chain_backward(
    unary, pairwise, lengths, alpha, log_z, u, v, alpha_u, p, pair_p, p_u, work, T, C, by_sequence, by_position, v_by_sequence,
    v_by_position, PAIRS: tl.constexpr, SUMMED: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Fill the marginals p (B, T, C), and if PAIRS pair_p, the marginals of transitions, (B, T-1, C, C), or their sums (B, C, C) if
    SUMMED. With MEAN = 1 fill p_u, the derivatives of p in the direction u of unary and v of pairwise; pair_p has derivatives then. All
    are 0 before. work (B, 2, C): memory for the endings, since Triton 3.7 fails to compile them as variables of the loop.

    A position is a distribution over its tag, softmax of alpha + log Σ of endings, and of the next tag given it. So no sum has the
    digits of log Z, which grows with the length. Transitions are read in tiles of TILE tags before × all tags after."""
    b = tl.program_id(0).to(tl.int64)
    words = tl.load(lengths + b)
    n = tl.maximum(words, 1)
    c, tags = tl.arange(0, BLOCK), tl.arange(0, TILE)
    inside, row = c < C, b * T * C + c
    possible, lost = tl.load(log_z + b) != -float("inf"), _lost(tl.load(log_z + b))
    a = tl.load(alpha + row + (n - 1) * C, mask=inside, other=-float("inf"))
    q = _shares(a, possible & (words > 0)) + lost
    tl.store(p + row + (n - 1) * C, q, mask=inside)
    ending = work + b * 2 * C + c
    tl.store(ending, tl.load(unary + row + (n - 1) * C, mask=inside, other=-float("inf")), mask=inside)
    if MEAN:
        moved = tl.load(alpha_u + row + (n - 1) * C, mask=inside, other=0.0)
        tl.store(p_u + row + (n - 1) * C, q * (moved - tl.sum(q * moved)), mask=inside)
        tl.store(ending + C, tl.load(u + row + (n - 1) * C, mask=inside, other=0.0), mask=inside)
    for step in range(1, n):
        t = n - 1 - step
        here = b * T * C + t * C
        at, v_at = pairwise + b * by_sequence + t * by_position, v + b * v_by_sequence + t * v_by_position
        tl.debug_barrier()
        after = tl.load(ending, mask=inside, other=-float("inf"))
        after_u = after
        if MEAN:
            after_u = tl.load(ending + C, mask=inside, other=0.0)
        for first in range(0, C, TILE):
            f = first + tags
            top, weights, total, moves, mean = _endings(at, v_at, after, after_u, C, f, c, MEAN)
            tl.store(p + here + f, _log(total, top), mask=f < C)  # until all are known
            if MEAN:
                tl.store(p_u + here + f, mean, mask=f < C)
        tl.debug_barrier()
        endings = tl.load(p + here + c, mask=inside, other=-float("inf"))
        q = _shares(tl.load(alpha + here + c, mask=inside, other=-float("inf")) + endings, possible) + lost
        endings_u, q_u = endings, q
        if MEAN:
            endings_u = tl.load(p_u + here + c, mask=inside, other=0.0)
            moved = tl.load(alpha_u + here + c, mask=inside, other=0.0) + endings_u
            q_u = q * (moved - tl.sum(q * moved))
        tl.debug_barrier()
        tl.store(p + here + c, q, mask=inside)
        if MEAN:
            tl.store(p_u + here + c, q_u, mask=inside)
        if PAIRS:
            tl.debug_barrier()
            pairs = pair_p + b * C * C if SUMMED else pair_p + (b * (T - 1) + t) * C * C
            for first in range(0, C, TILE):
                f = first + tags
                top, weights, total, moves, mean = _endings(at, v_at, after, after_u, C, f, c, MEAN)
                before = tl.load(p + here + f, mask=f < C, other=0.0)
                shares = weights / _divisor(total)[:, None]
                result = before[:, None] * shares
                if MEAN:
                    before_u = tl.load(p_u + here + f, mask=f < C, other=0.0)
                    result = before_u[:, None] * shares + result * (moves - mean[:, None])
                one, some = f[:, None] * C + c[None, :], (f[:, None] < C) & inside[None, :]
                if SUMMED:
                    result += tl.load(pairs + one, mask=some, other=0.0)
                tl.store(pairs + one, result, mask=some)
        after = endings + tl.load(unary + here + c, mask=inside, other=-float("inf"))
        tl.debug_barrier()
        tl.store(ending, after - _highest(after), mask=inside)
        if MEAN:
            tl.store(ending + C, endings_u + tl.load(u + here + c, mask=inside, other=0.0), mask=inside)


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
    tl.store(best + b, tl.where(n == 0, 0.0, tl.where(wrong > 0, float("nan"), top)))
    tag = tl.argmax(a, 0).to(tl.int64)
    if (n > 0) & ((top > -float("inf")) | (wrong > 0)):
        tl.store(tags + b * T + n - 1, tag)
        for step in range(1, n):
            t = n - step
            tag = tl.load(back + b * T * C + t * C + tag).to(tl.int64)
            tl.store(tags + b * T + t - 1, tag)


@triton.jit
def _splits(i, k, N, one, other, start, shift, d, inside):
    """Return where both spans of the splits k (K,) of the spans i..i+d (I,) are in a chart, (I, K), and whether they exist: spans
    [one, i, i + k + start] and [other, i + k + shift, i + d]."""
    left = one * N * N + i[:, None] * (N + 1) + k[None, :] + start
    right = other * N * N + (i[:, None] + k[None, :] + shift) * N + i[:, None] + d
    return left, right, inside[:, None] & (k[None, :] < d)


@triton.jit
def _over_splits(chart, moved, i, N, one, other, start, shift, d, inside, zero, MEAN: tl.constexpr, TILE: tl.constexpr):
    """Return the highest product of two spans over d splits, log weights (I,), the sum of all divided by it, and by MEAN their mean
    move or the entropy."""
    top, total, mean = zero - float("inf"), zero, zero
    for first in range(0, d, TILE):
        left, right, some = _splits(i, first + tl.arange(0, TILE), N, one, other, start, shift, d, inside)
        x = tl.load(chart + left, mask=some, other=-float("inf")) + tl.load(
            chart + right, mask=some, other=-float("inf")
        )
        higher = tl.maximum(top, tl.max(x, 1))
        weights, before = _exact(x, higher[:, None]), _exact(top, higher)
        if MEAN > 0:
            moves = tl.load(moved + left, mask=some, other=0.0) + tl.load(moved + right, mask=some, other=0.0)
            if MEAN == 2:
                moves -= tl.where(weights > 0, x - higher[:, None], 0.0)
                mean += tl.where(total > 0, total * (higher - top), 0.0)
            mean = mean * before + tl.sum(weights * moves, 1)
        total = total * before + tl.sum(weights, 1)
        top = higher
    if MEAN > 0:
        mean = mean / _divisor(total)
    if MEAN == 2:
        mean += tl.log(_divisor(total))
    return top, total, mean


@triton.jit
def _share_out(
    chart, moved, p_chart, p_moved, i, N, one, other, start, shift, d, p, p_u, inside, zero, MEAN: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Add p times the posterior of each of d splits to both of its spans; with MEAN = 1 also its derivative; p_u is the derivative of p."""
    top, total, mean = _over_splits(chart, moved, i, N, one, other, start, shift, d, inside, zero, MEAN, TILE)
    # posteriors are divided by their own sum: the log of a sum loses the digits of small ones
    share = tl.where(total == 0, 0.0, 1 / _divisor(total))
    p, p_u = p * share, p_u * share
    for first in range(0, d, TILE):
        left, right, some = _splits(i, first + tl.arange(0, TILE), N, one, other, start, shift, d, inside)
        x = tl.load(chart + left, mask=some, other=-float("inf")) + tl.load(
            chart + right, mask=some, other=-float("inf")
        )
        weights = _exact(x, top[:, None])
        q = p[:, None] * weights
        if MEAN == 1:
            moves = tl.load(moved + left, mask=some, other=0.0) + tl.load(moved + right, mask=some, other=0.0)
            q_u = p_u[:, None] * weights + q * (moves - mean[:, None])
            tl.store(p_moved + left, tl.load(p_moved + left, mask=some, other=0.0) + q_u, mask=some)
        tl.store(p_chart + left, tl.load(p_chart + left, mask=some, other=0.0) + q, mask=some)
        tl.debug_barrier()
        if MEAN == 1:
            tl.store(p_moved + right, tl.load(p_moved + right, mask=some, other=0.0) + q_u, mask=some)
        tl.store(p_chart + right, tl.load(p_chart + right, mask=some, other=0.0) + q, mask=some)
        tl.debug_barrier()


@triton.jit
def _unknown(x):
    """Return 1 for scores that are NaN or +inf, which a maximum may leave out; else 0."""
    return tl.where(x < float("inf"), 0.0, 1.0)


@triton.jit
def _best_split(chart, i, N, one, other, start, shift, d, inside, zero, TILE: tl.constexpr):
    """Return the highest product of two spans over d splits, (I,), and its split."""
    top, best = zero - float("inf"), zero.to(tl.int32)
    for first in range(0, d, TILE):
        left, right, some = _splits(i, first + tl.arange(0, TILE), N, one, other, start, shift, d, inside)
        x = tl.load(chart + left, mask=some, other=-float("inf")) + tl.load(
            chart + right, mask=some, other=-float("inf")
        )
        here = tl.max(x, 1)
        best = tl.where(here > top, (first + tl.argmax(x, 1)).to(tl.int32), best)
        top = tl.maximum(top, here)
    return top, best


@triton.jit
def eisner_inside(
    arcs, moves, lengths, chart, moved, log_z, entropy, N, one_root: tl.constexpr, MEAN: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Fill the chart (B, 4, N, N), which is -inf before, log Z (B,), and by MEAN `moved`, which is 0 before, and entropies (B,)."""
    b = tl.program_id(0).to(tl.int64)  # offsets of large charts exceed 32 bits
    n = tl.load(lengths + b)
    i = tl.arange(0, BLOCK)
    M = N * N
    here, move, score, u = chart + b * 4 * M, moved + b * 4 * M, arcs + b * M, moves + b * M
    zero = tl.zeros([BLOCK], chart.dtype.element_ty)
    tl.store(here + i * N + i, zero, mask=i <= n)
    tl.store(here + M + i * N + i, zero, mask=i <= n)
    tl.store(log_z + b + 0 * i, zero, mask=(i == 0) & (n == 0))
    tl.debug_barrier()
    for d in range(1, n + 1):
        inside = i + d <= n
        at, back, word = i * N + i + d, (i + d) * N + i, inside & (i > 0)
        top, total, mean = _over_splits(here, move, i, N, 0, 1, 0, 1, d, inside, zero, MEAN, TILE)
        meet = _log(total, top)
        tl.store(here + 2 * M + at, meet + tl.load(score + at, mask=inside, other=-float("inf")), mask=inside)
        tl.store(here + 3 * M + at, meet + tl.load(score + back, mask=word, other=-float("inf")), mask=inside)
        if MEAN == 1:
            tl.store(move + 2 * M + at, mean + tl.load(u + at, mask=inside, other=0.0), mask=inside)
            tl.store(move + 3 * M + at, mean + tl.load(u + back, mask=word, other=0.0), mask=inside)
        if MEAN == 2:
            tl.store(move + 2 * M + at, mean, mask=inside)
            tl.store(move + 3 * M + at, mean, mask=inside)
        tl.debug_barrier()
        top, total, mean = _over_splits(here, move, i, N, 2, 0, 1, 1, d, inside, zero, MEAN, TILE)
        right, whole = _log(total, top), (i == 0) & (i + d == n)
        tl.store(log_z + b + 0 * i, right, mask=whole)
        if MEAN == 2:
            tl.store(entropy + b + 0 * i, tl.where(mean < 0, 0.0, mean) + _lost(right), mask=whole)
        if MEAN > 0:
            tl.store(move + at, mean, mask=inside)
        if one_root:
            right = tl.where((i == 0) & (i + d < n), -float("inf"), right)  # the root would need a second arc
        tl.store(here + at, right, mask=inside)
        top, total, mean = _over_splits(here, move, i, N, 1, 3, 0, 0, d, inside, zero, MEAN, TILE)
        tl.store(here + M + at, _log(total, top), mask=inside)
        if MEAN > 0:
            tl.store(move + M + at, mean, mask=inside)
        tl.debug_barrier()


@triton.jit
def eisner_outside(
    chart, moved, lengths, p, p_moved, log_z, marginals, N, MEAN: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """Fill the marginals of arcs (B, N, N), or with MEAN = 1 their derivatives; they are 0 before. Memory, 0 before: p (B, 4, N, N), the
    probabilities of spans, where incomplete spans are arcs, and with MEAN = 1 p_moved, their derivatives.

    With one root no span of the root before the last word is complete, and p of it is 0."""
    b = tl.program_id(0).to(tl.int64)  # offsets of large charts exceed 32 bits
    n = tl.load(lengths + b)
    i = tl.arange(0, BLOCK)
    M = N * N
    here, move, pp, pu = chart + b * 4 * M, moved + b * 4 * M, p + b * 4 * M, p_moved + b * 4 * M
    zero = tl.zeros([BLOCK], chart.dtype.element_ty)
    whole = tl.where(tl.load(log_z + b) == -float("inf"), 0.0, 1.0).to(chart.dtype.element_ty)
    lost, result = _lost(tl.load(log_z + b)), marginals + b * M
    tl.store(pp + n + 0 * i, whole + zero, mask=i == 0)
    tl.debug_barrier()
    for step in range(0, n):
        d = n - step
        inside = i + d <= n
        at = i * N + i + d
        q, q_u = tl.load(pp + at, mask=inside, other=0.0), zero
        if MEAN == 1:
            q_u = tl.load(pu + at, mask=inside, other=0.0)
        _share_out(here, move, pp, pu, i, N, 2, 0, 1, 1, d, q, q_u, inside, zero, MEAN, TILE)
        q = tl.load(pp + M + at, mask=inside, other=0.0)
        if MEAN == 1:
            q_u = tl.load(pu + M + at, mask=inside, other=0.0)
        _share_out(here, move, pp, pu, i, N, 1, 3, 0, 0, d, q, q_u, inside, zero, MEAN, TILE)
        right, left = tl.load(pp + 2 * M + at, mask=inside, other=0.0), tl.load(pp + 3 * M + at, mask=inside, other=0.0)
        q = right + left
        if MEAN == 1:
            right = tl.load(pu + 2 * M + at, mask=inside, other=0.0)
            left = tl.load(pu + 3 * M + at, mask=inside, other=0.0)
            q_u = right + left
        tl.store(result + at, right + lost, mask=inside)
        tl.store(result + (i + d) * N + i, left + lost, mask=inside & (i > 0))
        _share_out(here, move, pp, pu, i, N, 0, 1, 0, 1, d, q, q_u, inside, zero, MEAN, TILE)


@triton.jit
def eisner_best(
    arcs, lengths, chart, back, chosen, heads, best, N, one_root: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """Fill the best scores (B,) and heads (B, N), which are -1 before. Memory: a chart as in `eisner_inside`; back (B, 3, N, N), the best
    splits of complete spans and of the incomplete ones; chosen (B, 4, N, N), the spans of the best tree, 0 before."""
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + b)
    i = tl.arange(0, BLOCK)
    M = N * N
    here, score, split, mark, head = (
        chart + b * 4 * M,
        arcs + b * M,
        back + b * 3 * M,
        chosen + b * 4 * M,
        heads + b * N,
    )
    zero = tl.zeros([BLOCK], chart.dtype.element_ty)
    one, unknown, value = tl.full([BLOCK], 1, tl.int8), zero, zero
    tl.store(here + i * N + i, zero, mask=i <= n)
    tl.store(here + M + i * N + i, zero, mask=i <= n)
    tl.debug_barrier()
    for d in range(1, n + 1):
        inside = i + d <= n
        at, word = i * N + i + d, inside & (i > 0)
        meet, k = _best_split(here, i, N, 0, 1, 0, 1, d, inside, zero, TILE)
        tl.store(split + 2 * M + at, k, mask=inside)
        right = tl.load(score + at, mask=inside, other=-float("inf"))
        left = tl.load(score + (i + d) * N + i, mask=word, other=-float("inf"))
        unknown += _unknown(right) + _unknown(left)
        tl.store(here + 2 * M + at, meet + right, mask=inside)
        tl.store(here + 3 * M + at, meet + left, mask=inside)
        tl.debug_barrier()
        right, k = _best_split(here, i, N, 2, 0, 1, 1, d, inside, zero, TILE)
        tl.store(split + at, k, mask=inside)
        found = (i == 0) & (i + d == n)
        value = tl.where(found, right, value)
        tl.store(mark + at, one, mask=found & (right > -float("inf")))
        if one_root:
            right = tl.where((i == 0) & (i + d < n), -float("inf"), right)
        tl.store(here + at, right, mask=inside)
        left, k = _best_split(here, i, N, 1, 3, 0, 0, d, inside, zero, TILE)
        tl.store(split + M + at, k, mask=inside)
        tl.store(here + M + at, left, mask=inside)
        tl.debug_barrier()
    tl.store(best + b + 0 * i, tl.where(tl.sum(unknown) > 0, float("nan"), value), mask=i == 0)
    for step in range(0, n):
        d = n - step
        inside = i + d <= n
        at = i * N + i + d
        on, k = tl.load(mark + at, mask=inside, other=0) > 0, tl.load(split + at, mask=inside, other=0)
        tl.store(mark + 2 * M + at - d + k + 1, one, mask=on)
        tl.store(mark + (i + k + 1) * N + i + d, one, mask=on)
        on, k = tl.load(mark + M + at, mask=inside, other=0) > 0, tl.load(split + M + at, mask=inside, other=0)
        tl.store(mark + M + at - d + k, one, mask=on)
        tl.store(mark + 3 * M + (i + k) * N + i + d, one, mask=on)
        tl.debug_barrier()
        right, left = (
            tl.load(mark + 2 * M + at, mask=inside, other=0) > 0,
            tl.load(mark + 3 * M + at, mask=inside, other=0) > 0,
        )
        tl.store(head + i + d, i.to(tl.int64), mask=right)
        tl.store(head + i, (i + d).to(tl.int64), mask=left)
        on, k = right | left, tl.load(split + 2 * M + at, mask=inside, other=0)
        tl.store(mark + at - d + k, one, mask=on)
        tl.store(mark + M + (i + k + 1) * N + i + d, one, mask=on)
        tl.debug_barrier()


@triton.jit
def spans_inside(
    scores, moves, lengths, chart, moved, log_z, entropy, N, MEAN: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """Fill the chart (B, N, N), which is -inf before, log Z (B,), and by MEAN `moved`, which is 0 before, and entropies (B,); scores and
    moves (B, N, N)."""
    b = tl.program_id(0).to(tl.int64)  # offsets of large charts exceed 32 bits
    n = tl.load(lengths + b)
    i = tl.arange(0, BLOCK)
    here, move, score, u = chart + b * N * N, moved + b * N * N, scores + b * N * N, moves + b * N * N
    zero = tl.zeros([BLOCK], chart.dtype.element_ty)
    tl.store(log_z + b + 0 * i, zero, mask=(i == 0) & (n == 0))
    for d in range(0, n):
        inside, at = i + d < n, i * N + i + d
        x, mean = tl.load(score + at, mask=inside, other=-float("inf")), zero
        if d > 0:
            top, total, mean = _over_splits(here, move, i, N, 0, 0, 0, 1, d, inside, zero, MEAN, TILE)
            x += _log(total, top)
        whole = (i == 0) & (d + 1 == n)
        tl.store(here + at, x, mask=inside)
        tl.store(log_z + b + 0 * i, x, mask=whole)
        if MEAN > 0:
            mean += tl.load(u + at, mask=inside, other=0.0)
            tl.store(move + at, mean, mask=inside)
        if MEAN == 2:
            tl.store(entropy + b + 0 * i, tl.where((mean < 0) | (x == -float("inf")), 0.0, mean) + _lost(x), mask=whole)
        tl.debug_barrier()


@triton.jit
def spans_outside(
    chart, moved, lengths, p, p_moved, log_z, N, MEAN: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr
):
    """Fill p (B, N, N), the probabilities of spans, and with MEAN = 1 their derivatives p_moved; both are 0 before."""
    b = tl.program_id(0).to(tl.int64)  # offsets of large charts exceed 32 bits
    n = tl.load(lengths + b)
    i = tl.arange(0, BLOCK)
    here, move, pp, pu = chart + b * N * N, moved + b * N * N, p + b * N * N, p_moved + b * N * N
    zero = tl.zeros([BLOCK], chart.dtype.element_ty)
    whole = tl.where(tl.load(log_z + b) == -float("inf"), 0.0, 1.0).to(chart.dtype.element_ty)
    lost = _lost(tl.load(log_z + b))
    tl.store(pp + n - 1 + 0 * i, whole + zero, mask=(i == 0) & (n > 0))
    tl.debug_barrier()
    for step in range(1, n + 1):
        d = n - step
        inside, at = i + d < n, i * N + i + d
        q, q_u = tl.load(pp + at, mask=inside, other=0.0), zero
        if MEAN == 1:
            q_u = tl.load(pu + at, mask=inside, other=0.0)
        _share_out(here, move, pp, pu, i, N, 0, 0, 0, 1, d, q, q_u, inside, zero, MEAN, TILE)
        tl.store(pp + at, q + lost, mask=inside)


@triton.jit
def spans_best(scores, lengths, chart, back, chosen, best, N, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Fill the best scores (B,) and `chosen` (B, N, N): 1 for the spans of the best tree; 0 before. Memory: a chart as in `spans_inside`,
    and back (B, N, N), the best splits."""
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + b)
    i = tl.arange(0, BLOCK)
    here, score, split, mark = chart + b * N * N, scores + b * N * N, back + b * N * N, chosen + b * N * N
    zero = tl.zeros([BLOCK], chart.dtype.element_ty)
    one, unknown, value = tl.full([BLOCK], 1, tl.int8), zero, zero
    for d in range(0, n):
        inside, at = i + d < n, i * N + i + d
        x = tl.load(score + at, mask=inside, other=-float("inf"))
        unknown += _unknown(x)
        if d > 0:
            top, k = _best_split(here, i, N, 0, 0, 0, 1, d, inside, zero, TILE)
            tl.store(split + at, k, mask=inside)
            x += top
        whole = (i == 0) & (d + 1 == n)
        tl.store(here + at, x, mask=inside)
        value = tl.where(whole, x, value)
        tl.store(mark + at, one, mask=whole & (x > -float("inf")))
        tl.debug_barrier()
    tl.store(best + b + 0 * i, tl.where(tl.sum(unknown) > 0, float("nan"), value), mask=i == 0)
    for step in range(1, n):
        d = n - step
        inside, at = i + d < n, i * N + i + d
        on, k = tl.load(mark + at, mask=inside, other=0) > 0, tl.load(split + at, mask=inside, other=0)
        tl.store(mark + at - d + k, one, mask=on)
        tl.store(mark + (i + k + 1) * N + i + d, one, mask=on)
        tl.debug_barrier()


@triton.jit
def _level(sizes, level):
    """Return the first node of a level, its nodes, the edges of each, and where they begin."""
    at = sizes + level * 4
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)


@triton.jit
def _edges(edges, A, P, begin, i, n, j, wide):
    """Return the tails and scores of edges j of the nodes i of a level, and which are there. What is not there has the weight 0."""
    both = (i < n)[:, None] & (j < wide)[None, :]
    at = edges + begin + i[:, None] * wide + j[None, :]
    left, right = tl.load(at, mask=both, other=0), tl.load(at + A, mask=both, other=0)
    return left, right, tl.load(at + 2 * A, mask=both, other=P - 1), both


@triton.jit
def levels_forward(
    scores,
    nodes,
    moves,
    moved,
    choices,
    sizes,
    own,
    edges,
    P,
    V,
    L,
    A,
    MEAN: tl.constexpr,
    MAX: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    """Fill the log weights of nodes (B, V), level by level, of any rule; `structure.DepthSchedule` has its sizes, own and edges.

    MAX: the largest weights in place of sums, and the number of the edge `choices` (B, V).
    """
    b = tl.program_id(0).to(tl.int64)
    for level in range(L):
        first, n, wide, begin = _level(sizes, level)
        for start in range(0, n, BLOCK):
            i = start + tl.arange(0, BLOCK)
            top = tl.full((BLOCK,), -float("inf"), nodes.dtype.element_ty)
            total, mean, best = tl.zeros_like(top), tl.zeros_like(top), tl.zeros((BLOCK,), tl.int64)
            for e in range(0, wide, TILE):
                j = e + tl.arange(0, TILE)
                left, right, part, _both = _edges(edges, A, P, begin, i, n, j, wide)
                x = tl.load(nodes + b * V + left) + tl.load(nodes + b * V + right) + tl.load(scores + b * P + part)
                higher = tl.maximum(top, tl.max(x, 1))
                weights, kept = _exact(x, higher[:, None]), _exact(top, higher)
                if MAX:
                    best = tl.where(higher > top, e + tl.argmax(x, 1), best)
                if MEAN > 0:
                    step = tl.load(moved + b * V + left) + tl.load(moved + b * V + right)
                    step += (
                        tl.load(moves + b * P + part)
                        if MEAN == 1
                        else -tl.where(weights == 0, 0.0, x - higher[:, None])
                    )
                    # an entropy is of weights less the highest: what is subtracted moves with it
                    if MEAN == 2:
                        mean += total * tl.where(kept == 0, 0.0, higher - top)
                    mean *= kept
                    mean += tl.sum(weights * step, 1)
                total = total * kept + tl.sum(weights, 1)
                top = higher
            score = tl.load(own + first - 1 + i, mask=i < n, other=P - 1)
            value = _log(total, top)
            if MAX:
                value = top + tl.where(total == total, 0.0, total)
                tl.store(choices + b * V + first + i, best, mask=i < n)
            tl.store(nodes + b * V + first + i, value + tl.load(scores + b * P + score), mask=i < n)
            if MEAN > 0:
                mean = mean / _divisor(total)
                mean += tl.load(moves + b * P + score) if MEAN == 1 else tl.log(_divisor(total))
                tl.store(moved + b * V + first + i, mean, mask=i < n)
        tl.debug_barrier()


@triton.jit
def levels_backward(
    scores,
    nodes,
    moves,
    moved,
    choices,
    of_nodes,
    of_scores,
    of_nodes_moved,
    of_scores_moved,
    sizes,
    own,
    edges,
    P,
    V,
    L,
    A,
    MEAN: tl.constexpr,
    MAX: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    """Add the marginals of nodes to of_nodes (B, V), which has those of goals, and of scores to of_scores (B, P)."""
    b = tl.program_id(0).to(tl.int64)
    for back in range(L):
        level = L - 1 - back
        first, n, wide, begin = _level(sizes, level)
        for start in range(0, n, BLOCK):
            i = start + tl.arange(0, BLOCK)
            node = b * V + first + i
            p = tl.load(of_nodes + node, mask=i < n, other=0.0, cache_modifier=".cg")
            score = tl.load(own + first - 1 + i, mask=i < n, other=P - 1)
            tl.atomic_add(of_scores + b * P + score, p, mask=(i < n) & (p != 0))
            live = p != 0  # weights of nodes that a sentence doesn't read may be NaN
            if MEAN == 1:
                p_moved = tl.load(of_nodes_moved + node, mask=i < n, other=0.0, cache_modifier=".cg")
                live |= p_moved != 0
                tl.atomic_add(of_scores_moved + b * P + score, p_moved, mask=i < n)
                move = tl.load(moves + b * P + score) - tl.load(moved + node, mask=i < n, other=0.0)
            top = tl.full((BLOCK,), -float("inf"), nodes.dtype.element_ty)
            total = tl.zeros_like(top)
            # weights are divided by their own sum: the log of a sum of large scores has lost digits
            for e in range(0, 0 if MAX else wide, TILE):
                left, right, part, _both = _edges(edges, A, P, begin, i, n, e + tl.arange(0, TILE), wide)
                x = tl.load(nodes + b * V + left) + tl.load(nodes + b * V + right) + tl.load(scores + b * P + part)
                higher = tl.maximum(top, tl.max(x, 1))
                total = total * _exact(top, higher) + tl.sum(_exact(x, higher[:, None]), 1)
                top = higher
            for e in range(0, wide, TILE):
                j = e + tl.arange(0, TILE)
                left, right, part, both = _edges(edges, A, P, begin, i, n, j, wide)
                if MAX:
                    weights = (tl.load(choices + node, mask=i < n, other=0)[:, None] == j[None, :]).to(
                        scores.dtype.element_ty
                    )
                else:
                    x = tl.load(nodes + b * V + left) + tl.load(nodes + b * V + right) + tl.load(scores + b * P + part)
                    weights = _exact(x, top[:, None]) / _divisor(total)[:, None]
                found = tl.where(both & live[:, None], weights * p[:, None], 0.0)
                some = both & (found != 0)
                tl.atomic_add(of_nodes + b * V + left, found, mask=some)
                tl.atomic_add(of_nodes + b * V + right, found, mask=some)
                tl.atomic_add(of_scores + b * P + part, found, mask=some)
                if MEAN == 1:
                    step = (
                        tl.load(moved + b * V + left) + tl.load(moved + b * V + right) + tl.load(moves + b * P + part)
                    )
                    found = tl.where(both & live[:, None], found * (step + move[:, None]) + weights * p_moved[:, None], 0.0)
                    tl.atomic_add(of_nodes_moved + b * V + left, found, mask=both)
                    tl.atomic_add(of_nodes_moved + b * V + right, found, mask=both)
                    tl.atomic_add(of_scores_moved + b * P + part, found, mask=both)
        tl.debug_barrier()
