# mypy: disallow-untyped-defs=False
"""Exact samples of linear chains and projective trees on the CPU: one inside pass, then each sample from the end.

A sample takes one uniform number for each choice: that of a state given the next one, or of a split given its cell. The
posteriors are those of `sequences` and `trees`. Shapes: B sentences, k samples, T positions, C tags, N tree positions.
"""

import numpy as np
import torch
from llvmlite import ir
from numba import int64, njit, types
from numba.extending import intrinsic
from torch import Tensor

from phrasemodels.structs.kernels import chain, eisner, sequences, trees
from phrasemodels.structs.kernels.chain import open_block
from phrasemodels.structs.kernels.sequences import WEIGHT, pairs_of
from phrasemodels.structs.kernels.simd import COMPILE, INLINE, LANES


@intrinsic
def _double(context, bits):
    """Return the float64 of these bits."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@njit(**INLINE)
def power_of_two(e):
    """Return 2^e for an integer e ≤ 1023, and 0 for e ≤ -1023."""
    return _double(int64(max(e, -1023.0) + 1023.0) << 52)


@njit(**COMPILE)
def choose(p, n, draw):
    """Return the first of n indices at which the sum of p exceeds draw · Σ p; -1 if all p are 0."""
    total = 0.0
    for i in range(n):
        total += p[i]
    upto, last = 0.0, -1
    for i in range(n):
        upto += p[i]
        if p[i] > 0.0:
            last = i
            if upto > draw * total:
                return i
    return last


@njit(**COMPILE)
def _states(w, a, pair, step, C, lane, p):
    """Write the weights of states j, scaled by the largest: a(j) pairwise(j, k), or a(j) if pair < 0.

    a, pair: positions of the weights of state 0 in the lane; step: distance of pairwise(j, k) and pairwise(j + 1, k).
    """
    top = -np.inf
    for j in range(C):
        e = w[a + j * WEIGHT + LANES + lane]
        p[j] = e if pair < 0 else e + w[pair + j * step + LANES + lane]
        top = max(top, p[j])
    for j in range(C):
        m = w[a + j * WEIGHT + lane]
        p[j] = power_of_two(p[j] - top) * (m if pair < 0 else m * w[pair + j * step + lane])


@njit(**COMPILE)
def _tags(first, step, work, order, unary, pairwise, lengths, draws, tags):
    w, z, p = work[first], np.empty(LANES), np.empty(unary.shape[2])
    for block in range(first * LANES, len(order), step * LANES):
        at = open_block(w, block, block > first * LANES, order, unary, pairwise, lengths)
        sequences.forward(w, at, z, False)
        C = at.C
        row = C * WEIGHT
        for lane in range(min(LANES, len(order) - block)):
            b, n = order[block + lane], int(w[at.lengths + lane])
            for s in range(len(draws)):
                pair = -1
                for t in range(n - 1, -1, -1):
                    _states(w, at.a + t * row, pair, row, C, lane, p)
                    k = choose(p, C, draws[s, b, t])
                    tags[s, b, t] = k
                    pair = at.pairwise + (pairs_of(at, t - 1) + k) * WEIGHT


def tags(unary: Tensor, pairwise: Tensor, lengths: Tensor, draws: Tensor) -> Tensor:
    """Return the tags (k, B, T) of `chain.sample` from uniform numbers draws (k, B, T), float64; -1 where all are forbidden."""
    out = np.full(draws.shape, -1)
    chain.Batch(unary, pairwise, lengths).run(_tags, draws.numpy(), out)
    return torch.from_numpy(out)


@njit(**COMPILE)
def _split(w, left, right, e, n, lane, draw, p):
    """Return one of n splits of a cell of exponent e by its probability; left, right: the cells of the first split."""
    for k in range(n):
        a, b = (left + k) * WEIGHT + lane, (right + k) * WEIGHT + lane
        p[k] = w[a] * w[b] * power_of_two(w[a + LANES] + w[b + LANES] - e)
    return choose(p, n, draw)


@njit(**COMPILE)
def _tree(w, N, n, lane, draws, p, todo, heads):
    """Write the heads of a tree of n words; todo (≥ 2N, 3) holds cells: kind, i, j."""
    todo[0, 0], todo[0, 1], todo[0, 2] = trees.RIGHT, 0, n
    size, used = 1, 0
    while size > 0:
        size -= 1
        kind, i, j = todo[size]
        if i == j:
            continue
        part = trees.MEET
        if kind == trees.OPEN_RIGHT:
            heads[j] = i
        elif kind == trees.OPEN_LEFT_T:
            heads[i] = j
        else:
            part = kind
        cell, _, _, left, right = trees.part_of(part, N, i, j)
        k = i + _split(w, left, right, w[cell * WEIGHT + LANES + lane], j - i, lane, draws[used], p)
        used += 1
        one, other, end, start = trees.RIGHT, trees.LEFT, k, k + 1
        if part == trees.RIGHT:
            one, other, end, start = trees.OPEN_RIGHT, trees.RIGHT, k + 1, k + 1
        elif part == trees.LEFT:
            one, other, start = trees.LEFT, trees.OPEN_LEFT_T, k
        todo[size, 0], todo[size, 1], todo[size, 2] = one, i, end
        todo[size + 1, 0], todo[size + 1, 1], todo[size + 1, 2] = other, start, j
        size += 2


@njit(**COMPILE)
def _heads(first, step, work, order, scores, lengths, one_root, draws, heads):
    w, z, longest = work[first], np.empty(LANES), scores.shape[1]
    p, todo = np.empty(longest), np.empty((2 * longest + 2, 3), np.int64)
    for block in range(first * LANES, len(order), step * LANES):
        at = eisner.open_block(w, block, order, scores, lengths)
        trees.inside(w, at, one_root, z)
        for lane in range(min(LANES, len(order) - block)):
            b, n = order[block + lane], int(w[at.lengths + lane])
            for s in range(len(draws) if n > 0 else 0):
                _tree(w, at.N, n, lane, draws[s, b], p, todo, heads[s, b])


def heads(arcs: Tensor, lengths: Tensor, one_root: bool, draws: Tensor) -> Tensor:
    """Return the heads (k, B, N) of `eisner.sample` from uniform numbers draws (k, B, 2N), float64; -1 where all trees are
    forbidden."""
    out = np.full((len(draws), *arcs.shape[:2]), -1)
    eisner.Batch(arcs, lengths, one_root).run(_heads, draws.numpy(), out)
    return torch.from_numpy(out)
