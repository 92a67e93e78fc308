# mypy: disallow-untyped-defs=False
"""Weights m · 2^e, with m in [1, 2) and e an integer stored as float64: sums of products that never overflow or vanish.

Sums over structures multiply exponentials of scores. As plain numbers, these leave the range of float64 if scores spread
widely; as logarithms, each addition costs an exponential. Here each term of a sum of products costs one product of
mantissas and one power of two, which is a shift of bits:

    Σ_k m_k 2^e_k n_k 2^f_k = 2^top Σ_k (m_k n_k) 2^(e_k + f_k − top),    top = max_k (e_k + f_k)

So one path serves scores of any spread, without logarithms and special cases. Proof: every exponent is an integer below
2^53 in size, so sums of exponents are exact; a term is left out only if e_k + f_k − top ≤ -1023, when it is below 2^-1021
of the sum; the terms are ≤ 4 and one is ≥ 1, so nothing overflows. What remains is the rounding of float64, relative to
each weight, however small it is beside others.

Zero is 2^FORBIDDEN, which is less than any product of other weights, so that it needs no special case either. Scores beyond
± FORBIDDEN · ln 2, about ± 7e14, are clamped. A sum whose products all contain FORBIDDEN is below 2^(FORBIDDEN / 2), which
`possible` tests.
"""

import numpy as np
from llvmlite import ir
from numba import int64, njit, types
from numba.extending import intrinsic

from phrasemodels.structs.kernels.simd import (
    INLINE,
    INNER,
    LANES,
    exponent,
    load,
    mantissa,
    maximum,
    minimum,
    power,
    spread,
    store,
)

FORBIDDEN = -1e15
WEIGHT = 2 * LANES  # m and e of a vector of weights, one after the other in a workspace
LN2 = 0.6931471805599453


@njit(**INLINE)
def exponential(x):
    """Return exp x as m, e with m in [√½, √2]. The relative error is ≤ 4e-16, plus the error of x."""
    x = maximum(minimum(x, spread(-FORBIDDEN * LN2)), spread(FORBIDDEN * LN2))
    # range reduction after Cody and Waite (1980); adding 1.5 · 2^52 rounds to an integer
    e = (x * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0
    r = (x - e * LN2) - e * 2.3190468138462996e-17
    p = r * (1 / 479001600.0) + 1 / 39916800.0
    p = p * r + 1 / 3628800.0
    p = p * r + 1 / 362880.0
    p = p * r + 1 / 40320.0
    p = p * r + 1 / 5040.0
    p = p * r + 1 / 720.0
    p = p * r + 1 / 120.0
    p = p * r + 1 / 24.0
    p = p * r + 1 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    return p * r + 1.0, e


@njit(**INNER)
def exponentials(w, begin, end):
    """Replace scores, stored in place of m, by their weights."""
    for at in range(begin, end, WEIGHT):
        m, e = exponential(load(w, at))
        store(w, at, m)
        store(w, at + LANES, e)


@njit(**INLINE)
def normal(m, e):
    """Return the weight m · 2^e, m > 0, with its mantissa in [1, 2). The exponents of products of zeros are clamped, so
    that they stay exact integers."""
    return mantissa(m), maximum(e + exponent(m), spread(4 * FORBIDDEN))


@njit(**INLINE)
def ratio(e):
    """Return 2^e for integers e ≤ 1023, and 0 for e ≤ -1023."""
    return power(maximum(e, spread(-1023.0)))


@njit(**INLINE)
def possible(e):
    """Return whether a weight with exponent e (of one lane) belongs to a structure that is not forbidden."""
    return e > FORBIDDEN / 2


@njit(**INLINE)
def logarithm(m, e):
    """Return log (m · 2^e) of one lane, -inf for zero."""
    return np.log(m) + e * LN2 if possible(e) else -np.inf


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
