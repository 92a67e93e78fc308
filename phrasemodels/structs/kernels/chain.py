# mypy: disallow-untyped-defs=False
"""Linear chains on the CPU: forward-backward over scores that spread little, and best sequences. Vectors hold tags.

Weights are plain numbers, and each forward row is divided by its sum c_t (Rabiner 1989). With w = exp pairwise and x = exp unary,
both up to factors whose logarithms are added to log Z,

    f_t(k) = x_t(k) Σ_j f_t-1(j) w_t-1(j, k) / c_t             y_t(k) = x_t(k) b_t(k) / c_t
    b_t-1(j) = Σ_k w_t-1(j, k) y_t(k),  b of the last is 1     log Z = Σ_t log c_t
    p(z_t = k) = f_t(k) b_t(k)                                 p(z_t-1 = j, z_t = k) = f_t-1(j) w_t-1(j, k) y_t(k)

If no score is -inf, two numbers of a row of f or b differ by a factor of exp(range of unary + range of pairwise scores) at most,
however long a sequence is. Where that is ≤ exp WIDEST, nothing overflows or vanishes, and all is exact up to the rounding of float64.
A score of -inf is the weight 0, and the range is that of the others. Then a row may spread more. As long as all numbers of a row but 0
are above SMALLEST, no product of the next row vanishes; so the passes look at each row, and log Z is NaN after one that has less. The
engine is for the rest. The batch decides, with its padding; the two agree to the last digits.

Best sequences (Viterbi 1967): only best scores are kept; the best predecessor is found again along the best sequence. Sums have the type
of the scores and the order of the torch path, and the first of equal tags is taken, so that the tags equal the torch path's.

Shapes: B sequences, T positions, C tags; S pairwise scores of each of P sequences, or 1. Rows have `width` places, C rounded up to
vectors; `stride` is from the w of one position to the next one's, 0 if all share it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs.dispatch import announce, not_traced
from phrasemodels.structs.kernels import (
    Kernel,
    Scores,
    can_run_kernel,
    doubles,
    factors,
    numbers,
    over_batch,
    possible_scores,
    scratch,
    tensor,
)
from phrasemodels.structs.kernels.simd import (
    COMPILE,
    INLINE,
    INNER,
    LANES,
    above,
    added,
    exponential,
    highest,
    larger,
    load,
    maximum,
    minus_finite,
    number,
    ratio,
    spread,
    store,
    unknown,
)

if TYPE_CHECKING:
    from phrasemodels.structs.structure import Structure

WIDEST = 200.0
SMALLEST = 1e-100  # SMALLEST · exp(−2 WIDEST) is above the smallest number of float64


@njit(**COMPILE)
def _range(scores):
    """Return the largest score minus the smallest but -inf, 0 if all are -inf; NaN if one is NaN or +inf."""
    whole = len(scores) // LANES * LANES
    top, bottom, wrong = spread(-np.inf), spread(-np.inf), spread(0.0)  # bottom: of −score
    for at in range(0, whole, LANES):
        x = load(scores, at)
        top, bottom, wrong = maximum(top, x), maximum(bottom, minus_finite(x)), wrong + unknown(x)
    for at in range(whole, len(scores)):
        x = spread(number(scores, at))
        top, bottom, wrong = maximum(top, x), maximum(bottom, minus_finite(x)), wrong + unknown(x)
    return max(highest(top) + highest(bottom), 0.0) + added(wrong)


@njit(**INLINE)
def _exponentials(scores, rows, C, width, to):
    """Write exp(score − top), with the top of each row, of scores (rows, C) to `to` (rows, width), and 0 after them; return the sum
    of the tops."""
    tops = 0.0
    for row in range(rows):
        top = number(scores, row * C)
        for c in range(1, C):
            top = max(top, number(scores, row * C + c))
        if top == -np.inf:
            top = 0.0
        tops += top
        for c in range(C):
            to[row * width + c] = number(scores, row * C + c) - top
        for c in range(C, width):
            to[row * width + c] = -np.inf
    for at in range(0, rows * width, LANES):
        m, e = exponential(load(to, at))
        store(to, at, m * ratio(e))
    return tops


@njit(**INLINE)
def product(x, at, matrix, begin, C, width, out, to):
    """Write Σ_j x(j) matrix(j, ·) to `width` places of `out` from `to` on: x (C,) from `at` on, matrix (C, width) from `begin` on; of four
    vectors of places at once, which share the numbers x(j)."""
    four = 4 * LANES
    for k in range(0, width - four + 1, four):
        a, b, c, d = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        e, f, g, h = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for j in range(0, C - 1, 2):
            row, y, z = begin + j * width + k, number(x, at + j), number(x, at + j + 1)
            a += load(matrix, row) * y
            b += load(matrix, row + LANES) * y
            c += load(matrix, row + 2 * LANES) * y
            d += load(matrix, row + 3 * LANES) * y
            e += load(matrix, row + width) * z
            f += load(matrix, row + width + LANES) * z
            g += load(matrix, row + width + 2 * LANES) * z
            h += load(matrix, row + width + 3 * LANES) * z
        if C % 2:
            row, y = begin + (C - 1) * width + k, number(x, at + C - 1)
            a += load(matrix, row) * y
            b += load(matrix, row + LANES) * y
            c += load(matrix, row + 2 * LANES) * y
            d += load(matrix, row + 3 * LANES) * y
        store(out, to + k, a + e)
        store(out, to + k + LANES, b + f)
        store(out, to + k + 2 * LANES, c + g)
        store(out, to + k + 3 * LANES, d + h)
    for k in range(width // four * four, width, LANES):
        one, other = spread(0.0), spread(0.0)
        for j in range(0, C - 1, 2):
            one += load(matrix, begin + j * width + k) * number(x, at + j)
            other += load(matrix, begin + (j + 1) * width + k) * number(x, at + j + 1)
        if C % 2:
            one += load(matrix, begin + (C - 1) * width + k) * number(x, at + C - 1)
        store(out, to + k, one + other)


@njit(**INNER)
def weights(pairwise, C, width, w, turned):
    """Write exp(pairwise − top), with the top of each position, of pairwise scores (S, C, C) to w and, with tags exchanged, to
    `turned`; return the sum of the tops."""
    tops = 0.0
    for s in range(len(pairwise)):
        top = -np.inf
        for j in range(C):
            for k in range(C):
                top = max(top, pairwise[s, j, k])
        if top == -np.inf:
            top = 0.0
        tops += top
        for j in range(C):
            for k in range(width):
                w[(s * C + j) * width + k] = pairwise[s, j, k] - top if k < C else -np.inf
    for at in range(0, len(pairwise) * C * width, LANES):
        m, e = exponential(load(w, at))
        store(w, at, m * ratio(e))
    for s in range(len(pairwise)):
        for k in range(C):
            for j in range(width):
                turned[(s * C + k) * width + j] = w[(s * C + j) * width + k] if j < C else 0.0
    return tops


@njit(**INNER)
def forward(unary, n, stride, C, width, w, x, f, c):
    """Compute x and f (T, width) and c (T,) of a sequence of n positions; return log Z without the tops of pairwise scores, NaN if a row
    has a number below SMALLEST."""
    z, factor, small = _exponentials(unary, n, C, width, x), 1.0, spread(0.0)
    for t in range(n):
        row = t * width
        if t > 0:
            product(f, row - width, w, (t - 1) * stride, C, width, f, row)
        total = spread(0.0)
        for k in range(row, row + width, LANES):
            each = load(x, k) * load(f, k) if t > 0 else load(x, k)
            total += each
            store(f, k, each)
        c[t] = added(total)
        if c[t] == 0.0:
            return -np.inf if added(small) == 0.0 else np.nan
        share = 1.0 / c[t]
        for k in range(row, row + width, LANES):
            each = load(f, k) * share
            store(f, k, each)
            small += each - above(each, SMALLEST)
        if c[t] < 1e-100:
            z += np.log(c[t])
            continue
        factor *= c[t]
        if not 1e-100 < factor < 1e100:  # one logarithm for many positions
            z, factor = z + np.log(factor), 1.0
    return z + np.log(factor) if added(small) == 0.0 else np.nan


@njit(**INNER)
def _pairs(n, stride, C, width, w, y, f, scale, shared, pairs):
    """Write scale · p(z_t-1 = j, z_t = k) to [t-1, j, k] of pairs (T-1, C, C); or add scale · f_t-1(j) y_t(k) of all t to [j, k] of
    pairs (C, width) if all positions share the scores, of four t at once, since memory takes most of the time."""
    if not shared:
        for t in range(n - 1, 0, -1):
            for j in range(C):
                before, share = (t - 1) * stride + j * width, scale * f[(t - 1) * width + j]
                for k in range(C):
                    pairs[((t - 1) * C + j) * C + k] = share * w[before + k] * y[t * width + k]
        return
    t = n - 1
    while t >= 4:
        row = t * width
        for j in range(C):
            at, before = j * width, row - width + j
            one, two = scale * f[before], scale * f[before - width]
            three, four = scale * f[before - 2 * width], scale * f[before - 3 * width]
            for k in range(0, width, LANES):
                total = load(pairs, at + k) + load(y, row + k) * one
                total += load(y, row - width + k) * two
                total += load(y, row - 2 * width + k) * three
                total += load(y, row - 3 * width + k) * four
                store(pairs, at + k, total)
        t -= 4
    for left in range(t, 0, -1):
        for j in range(C):
            share = scale * f[(left - 1) * width + j]
            for k in range(0, width, LANES):
                store(pairs, j * width + k, load(pairs, j * width + k) + load(y, left * width + k) * share)


@njit(**INLINE)
def _weigh(w, size, pairs):
    """Multiply sums of f y, which all positions share, by w."""
    for at in range(0, size, LANES):
        store(pairs, at, load(pairs, at) * load(w, at))


@njit(**INNER)
def _backward(n, stride, C, width, w, turned, x, f, c, scale, shared, out, pairs):
    """Write scale · p(z_t = k) to out (T, C), and see `_pairs` unless pairs is empty. y takes the place of x. Return whether no number
    is below SMALLEST, or too large, as of a state that no path reaches."""
    last, b, small = (n - 1) * width, np.empty(width), spread(0.0)
    for k in range(last, last + width, LANES):
        store(x, k, load(x, k) / c[n - 1])
    for k in range(C):
        out[n - 1, k] = scale * f[last + k]
    for t in range(n - 1, 0, -1):
        product(x, t * width, turned, (t - 1) * stride, C, width, b, 0)
        row, share = (t - 1) * width, 1.0 / c[t - 1]
        for j in range(0, width, LANES):
            each = load(b, j)
            y = load(x, row + j) * each * share
            store(x, row + j, y)
            small += each - above(each, SMALLEST) + unknown(y)
        for k in range(C):
            out[t - 1, k] = scale * (f[row + k] * b[k])
    if pairs.size > 0:
        _pairs(n, stride, C, width, w, x, f, scale, shared, pairs)
    return added(small) == 0.0


@njit(**COMPILE)
def _run(first, step, unary, pairwise, shared, each, lengths, scale, log_z, out, pairs):
    """Compute log Z (B,), and unless `out` (B, T, C) is empty, which was 0 before, the marginals times `scale` (B,); and unless it
    is empty, pairs, one row for each of the B sequences, or unless `each` for each block of LANES if all share their scores: see
    `_pairs`."""
    B, T, C = unary.shape
    S, width = max(1, pairwise.shape[1]), -(-C // LANES) * LANES
    stride = C * width if S > 1 else 0
    x, f, c = np.empty(T * width), np.empty(T * width), np.empty(T)
    w, turned = np.empty(S * C * width), np.empty(S * C * width)
    tops, none, ready = 0.0, np.empty(0), False
    for block in range(first * LANES, B, step * LANES):
        for b in range(block, min(block + LANES, B)):
            n = lengths[b]
            if n == 0:
                log_z[b] = 0.0
                continue
            if not shared:
                tops = weights(pairwise[b, : n - 1], C, width, w, turned)
            elif not ready:
                tops, ready = weights(pairwise[0], C, width, w, turned), True
            log_z[b] = forward(unary[b], n, stride, C, width, w, x, f, c) + tops * (n - 1 if shared else 1)
            if out.size > 0 and log_z[b] > -np.inf:  # not NaN
                row = block // LANES if shared and not each else b
                own = pairs[row] if pairs.size > 0 else none
                if not _backward(n, stride, C, width, w, turned, x, f, c, scale[b], shared, out[b], own):
                    log_z[b] = np.nan
        if ready and pairs.size > 0:
            for row in range(block if each else block // LANES, min(block + LANES, B) if each else block // LANES + 1):
                _weigh(w, C * width, pairs[row])


@njit(**INNER)
def _drawn(x, at, y, to, C, least):
    """Return the first of C states at which Σ x y exceeds the share `least` of the whole sum, else the last that is possible."""
    whole = 0.0
    for k in range(C):
        whole += x[at + k] * y[to + k]
    total, found, least = 0.0, 0, least * whole
    for k in range(C):
        each = x[at + k] * y[to + k]
        total += each
        if each > 0.0:
            found = k
        if total > least:
            return k
    return found


@njit(**COMPILE)
def _samples(first, step, unary, pairwise, shared, lengths, draws, known, tags):
    """Write tags (k, B, T), -1 before, from uniform numbers (k, B, T + 1): from the last position on, each given the next. known (B,):
    whether no number is below SMALLEST."""
    B, T, C = unary.shape
    S, width = max(1, pairwise.shape[1]), -(-C // LANES) * LANES
    stride = C * width if S > 1 else 0
    x, f, c, ready = np.empty(T * width), np.empty(T * width), np.empty(T), False
    w, turned, ones = np.empty(S * C * width), np.empty(S * C * width), np.ones(width)
    for b in range(first, B, step):
        n, known[b] = lengths[b], True
        if n == 0:
            continue
        if not shared:
            weights(pairwise[b, : n - 1], C, width, w, turned)
        elif not ready:
            weights(pairwise[0], C, width, w, turned)
            ready = True
        log_z = forward(unary[b], n, stride, C, width, w, x, f, c)
        known[b] = log_z == log_z
        for s in range(len(draws) if log_z > -np.inf else 0):
            tag = _drawn(f, (n - 1) * width, ones, 0, C, draws[s, b, 0])
            tags[s, b, n - 1] = tag
            for t in range(n - 1, 0, -1):
                tag = _drawn(f, (t - 1) * width, turned, (t - 1) * stride + tag * width, C, draws[s, b, n - t])
                tags[s, b, t - 1] = tag


@njit(**INLINE)
def _width(x):
    """Return the number of elements of x that `load` reads."""
    return 32 // x.itemsize


@njit(**INNER)
def _row(C):
    """Return C rounded up to a multiple of 16, so that a row of states has whole vectors."""
    return -(-C // 16) * 16


@njit(**INNER)
def _copy(pairwise, w, C):
    """Copy pairwise scores (C, C) to w as rows of whole vectors; return whether none is NaN or +inf.

    What is between the rows is never read as a state.
    """
    W, known = _row(C), True
    for j in range(C):
        for k in range(C):
            known &= pairwise[j, k] < np.inf
            w[j * W + k] = pairwise[j, k]
    return known


@njit(**INLINE)
def _step(w, before, here, C):
    """Add max_j best(j) + pairwise(j, k) to the unary scores from `here` on, for all k; before: position of the best."""
    W, width = _row(C), _width(w)
    for k in range(0, C, width):
        top = spread(number(w, before)) + load(w, k)
        for j in range(1, C):
            top = larger(spread(number(w, before + j)) + load(w, j * W + k), top)
        store(w, here + k, top + load(w, here + k))


@njit(**INNER)
def _fill(w, unary, pairwise, n, C):
    """Write the best score of a beginning that ends in a state to w (n, row), which follows the pairwise scores;
    return whether no score is NaN or +inf."""
    W, known = _row(C), True
    best = C * W
    for t in range(n):
        here = best + t * W
        for c in range(C):
            known &= unary[t, c] < np.inf
            w[here + c] = unary[t, c]
        if t > 0:
            if len(pairwise) > 1:
                known &= _copy(pairwise[t - 1], w, C)
            _step(w, here - W, here, C)
    return known


@njit(**INNER)
def _follow(w, unary, pairwise, n, C, tags):
    """Write the tags of the best sequence from its last to its first; return its score."""
    W = _row(C)
    best = C * W
    last = best + (n - 1) * W
    state = 0
    for c in range(1, C):
        if w[last + c] > w[last + state]:
            state = c
    tags[n - 1] = state
    score = np.float64(unary[n - 1, state])
    for t in range(n - 2, -1, -1):
        here, pairs = best + t * W, pairwise[t if len(pairwise) > 1 else 0]
        top, before = w[here] + pairs[0, state], 0
        for c in range(1, C):
            x = w[here + c] + pairs[c, state]
            if x > top:
                top, before = x, c
        score += np.float64(pairs[before, state]) + np.float64(unary[t, before])
        state = before
        tags[t] = state
    return score


@njit(**COMPILE)
def _viterbi(first, step, work, unary, pairwise, lengths, score, tags):
    B, _, C = unary.shape
    w, shared = work[first], True
    for b in range(first, B, step):
        n, pairs = lengths[b], pairwise[b if len(pairwise) > 1 else 0]
        if len(pairs) == 1 and (len(pairwise) > 1 or b == first):
            shared = _copy(pairs[0], w, C)
        score[b] = 0.0
        if n == 0:
            continue
        if not _fill(w, unary[b], pairs, n, C) or not (shared or n == 1):
            score[b] = np.nan
            continue
        score[b] = _follow(w, unary[b], pairs, n, C, tags[b])
        if score[b] == -np.inf:
            tags[b] = -1


class NarrowChain(Kernel):
    """Serves log Z, marginals, entropies and samples of chains whose scores but -inf spread little; see `Kernel`. Gradients to marginals,
    which are covariances, are the engine's."""

    def supports(self, structure: "Structure", scores: Scores) -> bool:
        return scores[1].dim() != 3 and can_run_kernel(*scores)

    def marginals(self, structure: "Structure", scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        batch, wanted = _Batch(scores, lengths), scale is not None
        paired = wanted and 1 in which
        if not batch.narrow:
            return structure.kernels[-1].marginals(structure, scores, lengths, scale, which, each)
        by, each = factors(1.0 if scale is None else scale, batch.B), each and batch.shared
        out = np.zeros(batch.unary.shape if wanted else (0, 0, 0))
        log_z, pairs = np.empty(batch.B), batch.pairs(paired, each)
        over_batch(_run, batch.blocks, *batch.scores, each, batch.lengths, by, log_z, out, pairs)
        if np.isnan(log_z).any():
            return structure.kernels[-1].marginals(structure, scores, lengths, scale, which, each)
        found = {0: tensor(out, scores[0].dtype)} | ({1: batch.tensor(pairs, each)} if paired else {})
        return tensor(log_z, scores[0].dtype), tuple(found[i] for i in which) if wanted else ()

    def entropy(self, structure: "Structure", scores: Scores, lengths: Tensor) -> Tensor:
        if not _Batch(scores, lengths).narrow:
            return structure.kernels[-1].entropy(structure, scores, lengths)
        exact = tuple(s.detach().double() for s in scores)
        log_z, (p, pairs) = self.marginals(structure, exact, lengths, 1.0, (0, 1), True)
        unary, pairwise = map(possible_scores, exact)
        mean = (p * unary).sum((1, 2)) + (pairs * pairwise).flatten(1).sum(1)
        return torch.where(log_z == -torch.inf, 0, (log_z - mean).clamp(min=0)).to(scores[0].dtype)

    @not_traced
    def sample(
        self, structure: "Structure", scores: Scores, lengths: Tensor, k: int, generator: torch.Generator | None
    ) -> Tensor:
        batch = _Batch(scores, lengths)
        if batch.narrow:
            draws = torch.rand((k, batch.B, batch.T + 1), generator=generator, dtype=torch.float64)
            known, tags = np.empty(batch.B, np.bool_), np.full((k, batch.B, batch.T), -1)
            over_batch(_samples, batch.B, *batch.scores, batch.lengths, draws.numpy(), known, tags)
            if known.all():
                return torch.from_numpy(tags)
        return structure.kernels[-1].sample(structure, scores, lengths, k, generator)


class _Batch:
    """Scores in the form that the kernels take."""

    def __init__(self, scores, lengths):
        self.pairwise, (self.unary, pairs) = scores[1], map(doubles, scores)
        self.shared = pairs.ndim == 2
        self.scores, self.lengths = (
            (self.unary, pairs[None, None] if self.shared else pairs, self.shared),
            lengths.numpy()[:, 0],
        )
        self.B, self.T, self.C = self.unary.shape
        self.blocks, self.width = -(-self.B // LANES), -(-self.C // LANES) * LANES

    @property
    def narrow(self):
        """Whether weights but 0 are within exp WIDEST of each other, and vectors of tags are faster than vectors of sequences."""
        if self.C < LANES < 2 * self.B:
            return False
        announce(_range)
        return sum(_range(x.reshape(-1)) for x in self.scores[:2]) <= WIDEST  # false if a score is NaN or +inf

    def pairs(self, wanted, each=False):
        """Return memory for what `_pairs` writes, 0; each: of each sequence, also of shared scores."""
        rows, size = self.B if each or not self.shared else self.blocks, max(self.T - 1, 0) * self.C**2
        return np.zeros((rows, self.C * self.width if self.shared else size) if wanted else (0, 0))

    def tensor(self, pairs, each=False):
        """Return what they wrote in the shape and type of the pairwise scores, or with `each` one for each sequence."""
        if self.shared:
            pairs = pairs.reshape(len(pairs), self.C, -1)[:, :, : self.C]
            return tensor(pairs if each else pairs.sum(0), self.pairwise.dtype)
        return tensor(pairs.reshape(self.pairwise.shape), self.pairwise.dtype)


class BestTags(Kernel):
    """Serves `best` of chains; see `Kernel`."""

    def supports(self, structure: "Structure", scores: Scores) -> bool:
        return scores[1].dim() != 3 and can_run_kernel(*scores)

    def best(self, structure: "Structure", scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        unary, pairwise = scores
        B, T, C = unary.shape
        x, pairs = numbers(unary), numbers(pairwise[None, None] if pairwise.dim() == 2 else pairwise)
        score, tags = np.empty(B, x.dtype), np.full((B, T), -1)
        work = scratch(B, (C + T) * _row.py_func(C)).view(x.dtype)
        over_batch(_viterbi, B, work, x, pairs, lengths.numpy()[:, 0], score, tags)
        return torch.from_numpy(score), torch.from_numpy(tags)
