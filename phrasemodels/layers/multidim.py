# mypy: disallow-untyped-defs=False
"""Multi-dimensional attention inside phrases: a weight for every feature of every pair of words (paper 001, Eq 1-2).

The words of all sentences of a batch are packed one after another, and divided into phrases. So nothing is computed for
padding or across phrases, and memory is at most the sum of squared phrase lengths. On a CPU in float32 a compiled kernel
recomputes the weights in the backward pass, and memory is linear.

With s_ij = ELU(u_i + w_j) for j ≠ i, and m_i the largest of them, which is ELU(u_i + max_{j≠i} w_j) since ELU grows:

    z_i = Σ_j exp(s_ij − m_i),    o_i = Σ_j exp(s_ij − m_i) p_j / z_i

Every exponent is ≤ 0 and one of them is 0, so z_i ≥ 1 at any logit. With a_ij = exp(s_ij − m_i) / z_i and g the
gradient to o:  dp_j = Σ_i a_ij g_i,   dx_ij = a_ij g_i (p_j − o_i) ELU'(u_i + w_j),   ELU'(x) = exp(min(x, 0)).

A tile of the kernel is WIDTH features of a phrase. It is copied to a small array, the desk: one row per word, divided into
fields of WIDTH numbers (U, W, P, ...). The desk stays in the L1 cache, and a loop over two of its rows needs a single test of
overlap, so that LLVM vectorises it.

Shapes: B sentences, n tokens, N packed words, d features, P phrases, l words of a phrase.
"""

from collections.abc import Callable

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.layers.blocks import on_device
from phrasemodels.structs import kernels
from phrasemodels.structs.dispatch import COMPILE, each_gradient
from phrasemodels.structs.kernels import over_batch, reference_vjp
from phrasemodels.structs.kernels.simd import exp32

WIDTH = 32
_0, _1 = np.float32(0), np.float32(1)
U, W, P, M, Z, OUT, DU, DW, DP = (field * WIDTH for field in range(9))


@njit(**COMPILE)
def _to_desk(array, first, left, desk, field):
    """Copy a tile of an array (N, d), from word `first` and feature `left` on, to a field of the desk; 0 beyond d."""
    width = min(WIDTH, array.shape[1] - left)
    for i in range(len(desk)):
        row, source = desk[i], array[first + i]
        for f in range(WIDTH):
            row[field + f] = source[left + f] if f < width else _0


@njit(**COMPILE)
def _from_desk(array, first, left, desk, field):
    """Copy a field of the desk to the tile of an array (N, d) that begins at word `first` and feature `left`."""
    width = min(WIDTH, array.shape[1] - left)
    for i in range(len(desk)):
        row, target = desk[i], array[first + i]
        for f in range(width):
            target[left + f] = row[field + f]


@njit(**COMPILE)
def _maxima(desk, top):
    """Compute m_i of every word, from the largest and second largest w_j of each feature, left in `top`; ties count twice."""
    top[:] = -np.inf
    for j in range(len(desk)):
        row = desk[j]
        for f in range(WIDTH):
            x, most = row[W + f], top[f]
            lower = x if x < most else most
            top[WIDTH + f] = lower if lower > top[WIDTH + f] else top[WIDTH + f]
            top[f] = x if x > most else most
    for i in range(len(desk)):
        row = desk[i]
        for f in range(WIDTH):
            # over j ≠ i: the second largest w for the word that has the largest
            x = row[U + f] + (top[WIDTH + f] if row[W + f] == top[f] else top[f])
            row[M + f] = x if x > _0 else exp32(x if x < _0 else _0) - _1


@njit(**COMPILE)
def _add(own, other):
    """Add the terms of one word to the sums z and o of another."""
    for f in range(WIDTH):
        x = own[U + f] + other[W + f]
        a = exp32((x if x > _0 else exp32(x if x < _0 else _0) - _1) - own[M + f])
        own[Z + f] += a
        own[OUT + f] += a * other[P + f]


@njit(**COMPILE)
def _add_gradients(own, other):
    """Add the gradients of one pair of words; the fields M, Z and OUT of `own` hold m, g / z and o."""
    for f in range(WIDTH):
        x = own[U + f] + other[W + f]
        slope = exp32(x if x < _0 else _0)
        ag = exp32((x if x > _0 else slope - _1) - own[M + f]) * own[Z + f]
        dx = ag * (other[P + f] - own[OUT + f]) * slope
        other[DP + f] += ag
        other[DW + f] += dx
        own[DU + f] += dx


@njit(**COMPILE)
def _forward(begin, step, u, w, p, bounds, z, out):
    longest = np.max(bounds[1:] - bounds[:-1])
    room, top = np.empty((longest, DU), np.float32), np.empty(2 * WIDTH, np.float32)
    for phrase in range(begin, len(bounds) - 1, step):
        first, length = bounds[phrase], bounds[phrase + 1] - bounds[phrase]
        # no other word: `fill_alone` sets its output
        if length == 1:
            z[first], out[first] = _1, _0
            continue
        desk = room[:length]
        for left in range(0, u.shape[1], WIDTH):
            _to_desk(u, first, left, desk, U)
            _to_desk(w, first, left, desk, W)
            _to_desk(p, first, left, desk, P)
            _maxima(desk, top)
            desk[:, Z:DU] = _0
            for i in range(length):
                for j in range(length):
                    if i != j:
                        _add(desk[i], desk[j])
                row = desk[i]
                for f in range(WIDTH):
                    row[OUT + f] /= row[Z + f]
            _from_desk(z, first, left, desk, Z)
            _from_desk(out, first, left, desk, OUT)


@njit(**COMPILE)
def _backward(begin, step, u, w, p, bounds, scale, out, du, dw, dp):
    longest = np.max(bounds[1:] - bounds[:-1])
    room, top = np.empty((longest, DP + WIDTH), np.float32), np.empty(2 * WIDTH, np.float32)
    for phrase in range(begin, len(bounds) - 1, step):
        first, length = bounds[phrase], bounds[phrase + 1] - bounds[phrase]
        if length == 1:
            du[first], dw[first], dp[first] = _0, _0, _0
            continue
        desk = room[:length]
        for left in range(0, u.shape[1], WIDTH):
            _to_desk(u, first, left, desk, U)
            _to_desk(w, first, left, desk, W)
            _to_desk(p, first, left, desk, P)
            _to_desk(scale, first, left, desk, Z)
            _to_desk(out, first, left, desk, OUT)
            _maxima(desk, top)
            desk[:, DU:] = _0
            for i in range(length):
                for j in range(length):
                    if i != j:
                        _add_gradients(desk[i], desk[j])
            _from_desk(du, first, left, desk, DU)
            _from_desk(dw, first, left, desk, DW)
            _from_desk(dp, first, left, desk, DP)


class AttendWithin(torch.autograd.Function):
    """(reference, u, w, p, bounds) -> attended (N, d), as `multidim.attend_within`; only (N, d) arrays are saved."""

    @staticmethod
    def forward(ctx, reference, u, w, p, bounds):
        inputs = [np.ascontiguousarray(x.detach().numpy()) for x in (u, w, p)]
        z, out = np.empty(u.shape, np.float32), np.empty(u.shape, np.float32)
        over_batch(_forward, len(bounds) - 1, *inputs, bounds.numpy(), z, out)
        attended = torch.from_numpy(out)
        ctx.reference = reference
        ctx.save_for_backward(u, w, p, bounds, torch.from_numpy(z), attended)
        return attended

    @staticmethod
    @each_gradient
    def backward(ctx, grad):
        u, w, p, bounds, z, out = ctx.saved_tensors
        # the gradient is itself differentiated, which the kernel cannot be
        if torch.is_grad_enabled():
            return None, *reference_vjp(lambda *x: ctx.reference(*x, bounds), (u, w, p), grad), None
        inputs = [np.ascontiguousarray(x.detach().numpy()) for x in (u, w, p, bounds, grad / z, out)]
        grads = [np.empty(u.shape, np.float32) for _ in range(3)]
        over_batch(_backward, len(bounds) - 1, *inputs, *grads)
        return None, *map(torch.from_numpy, grads), None


def boundaries(level: Tensor, valid: Tensor) -> Tensor:
    """Return the positions of the first words of phrases among the packed words, and N: (P + 1).

    level (B, n): the number of each token's phrase; adjacent tokens with the same number are one phrase. valid (B, n):
    true for tokens.
    """
    fresh = F.pad(level[:, 1:] != level[:, :-1], (1, 0), value=True) & valid
    packed = valid.flatten().cumsum(0)
    return torch.cat([packed[fresh.flatten().nonzero().squeeze(1)] - 1, packed[-1:]])


def same_phrase(level: Tensor, valid: Tensor) -> Tensor:
    """Return which other words are of a word's phrase, (B, n, n), as `boundaries` divides them: for a graph of `torch.compile`, which
    cannot know how many words there are."""
    phrase = F.pad(level[:, 1:] != level[:, :-1], (1, 0)).cumsum(1)
    itself = torch.eye(level.shape[1], dtype=torch.bool, device=level.device)
    return (phrase[:, :, None] == phrase[:, None]) & valid[:, :, None] & valid[:, None] & ~itself


def attend_padded(u: Tensor, w: Tensor, p: Tensor, same: Tensor) -> Tensor:
    """Compute `attend_within` for padded words (B · n, d), by all pairs of words of a sentence: memory is B · n² · d."""
    u, w, p = (x.unflatten(0, same.shape[:2]) for x in (u, w, p))
    logits = F.elu(u.unsqueeze(2) + w.unsqueeze(1)).masked_fill(~same[..., None], -torch.inf)
    weights = logits.masked_fill(~same.any(2)[..., None, None], 0).softmax(2).masked_fill(~same[..., None], 0)
    return (weights * p.unsqueeze(1)).sum(2).flatten(0, 1)


def weights_within(u: Tensor, w: Tensor) -> Tensor:
    """Return a_ij = softmax_j(ELU(u_i + w_j)) over j ≠ i for every feature: u, w (P, l, d) -> (P, l, l, d), l > 1."""
    logits = F.elu(u.unsqueeze(2) + w.unsqueeze(1))
    itself = torch.eye(u.shape[1], dtype=torch.bool, device=u.device)[..., None]
    return logits.masked_fill(itself, float("-inf")).softmax(2)


def attend_blocks(u: Tensor, w: Tensor, p: Tensor, bounds: Tensor) -> Tensor:
    """Compute `attend_within` in torch, for all phrases of one length at a time, as a block (P, l, l, d)."""
    known = bounds.cpu()
    starts, lengths = known[:-1], known.diff()
    places, outputs = [], []
    for length in lengths.unique().tolist():
        rows = starts[lengths == length].unsqueeze(1) + torch.arange(length)
        places.append(rows.flatten())
        (rows,) = on_device(u.device, rows)
        own = p[rows]
        inside = torch.zeros_like(own) if length == 1 else (weights_within(u[rows], w[rows]) * own.unsqueeze(1)).sum(2)
        outputs.append(inside.flatten(0, 1))
    return torch.cat(outputs)[on_device(u.device, torch.cat(places).argsort())[0]] if outputs else torch.zeros_like(p)


def attend_within(u: Tensor, w: Tensor, p: Tensor, bounds: Tensor) -> Tensor:
    """Return p̃_i = Σ_j a_ij ∘ p_j over the other words of i's phrase, (N, d); 0 for a phrase of one word.

    u, w, p (N, d): the term of each word in its own logits, its term in the logits of other words, and its value. bounds
    (P + 1) from `boundaries`; or (B, n, n) from `same_phrase`, for padded words.
    """
    if bounds.dim() == 3:
        return attend_padded(u, w, p, bounds)
    if kernels.can_run_kernel(u, w, p) and u.dtype == torch.float32:
        return AttendWithin.apply(attend_blocks, u, w, p, bounds)
    return attend_blocks(u, w, p, bounds)


Alone = Callable[[Tensor], Tensor]


def itself(p: Tensor) -> Tensor:
    """Let a phrase of one word attend to itself. The other choice is torch.zeros_like: it attends to nothing."""
    return p


def fill_alone(attended: Tensor, p: Tensor, bounds: Tensor, alone: Alone) -> Tensor:
    """Replace the outputs of phrases of one word, for which Eq 1 has no key, by alone(p): attended, p (N, d) -> (N, d); `bounds` as in
    `attend_within`."""
    lengths = None if bounds.dim() == 3 else bounds.diff()
    single = (
        ~bounds.any(2).flatten() if lengths is None else (lengths == 1).repeat_interleave(lengths, output_size=len(p))
    )
    return torch.where(single.unsqueeze(1), alone(p), attended)
