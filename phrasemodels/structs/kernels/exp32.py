# mypy: disallow-untyped-defs=False
"""exp of float32, or of vectors of it (`simd`): it has no branch, table or call, so that LLVM can vectorise it.

Range reduction by ln 2 and a polynomial, after Cody and Waite (1980). Adding 1.5·2^23 rounds to an integer and leaves it in
the low bits, which a shift makes an exponent; so this must not be compiled with `reassoc`. The relative error, measured
against libm over the whole range, is ≤ 8e-8.
"""

import numba as nb
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from phrasemodels.structs.kernels.simd import INLINE


def _whole(kind):
    """Return the type of integers of 32 bits in the shape of a type of float32."""
    return ir.VectorType(ir.IntType(32), kind.count) if isinstance(kind, ir.VectorType) else ir.IntType(32)


def _constant(kind, value):
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


@intrinsic
def _times_power(context, p, t):
    """p · 2^k, with k in the low bits of t."""

    def generate(context, builder, signature, args):
        bits = [builder.bitcast(x, _whole(x.type)) for x in args]
        shifted = builder.shl(bits[1], _constant(bits[1].type, 23))
        return builder.bitcast(builder.add(bits[0], shifted), args[0].type)

    return p(p, t), generate


@intrinsic
def _unless_under(context, y, x):
    """y, or 0 where x < -87."""

    def generate(context, builder, signature, args):
        under = builder.fcmp_ordered("<", args[1], _constant(args[1].type, -87.0))
        return builder.select(under, _constant(args[0].type, 0.0), args[0])

    return y(y, x), generate


_f = np.float32


@nb.njit(**INLINE)
def exp32(x):
    """Return exp x for x ≤ 80, and 0 for x < -87."""
    t = x * _f(1.4426950408889634) + _f(12582912.0)
    k = t - _f(12582912.0)
    r = x - k * _f(0.693145752)
    r = r - k * _f(1.42860677e-6)
    p = r * _f(1 / 5040.0) + _f(1 / 720.0)
    p = p * r + _f(1 / 120.0)
    p = p * r + _f(1 / 24.0)
    p = p * r + _f(1 / 6.0)
    p = p * r + _f(0.5)
    p = p * r + _f(1.0)
    p = p * r + _f(1.0)
    return _unless_under(_times_power(p, t), x)
