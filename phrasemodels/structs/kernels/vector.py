# mypy: disallow-untyped-defs=False
"""exp and log that LLVM can vectorise: no branches, no table, no call.

Range reduction by ln 2 and a polynomial, after Cody and Waite (1980). Adding 1.5·2^52 (or 1.5·2^23) rounds to an
integer and leaves it in the low bits, from where a shift makes it an exponent; so these functions must not be compiled
with `reassoc`. Measured against libm over their range: relative error ≤ 4e-16 (exp64, log64) and ≤ 8e-8 (exp32).
"""

from typing import Any

import numba as nb
import numpy as np
from numba.extending import intrinsic

COMPILE: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True, "cache": True}


@intrinsic
def _bits(context, x):
    integer = nb.int64 if x == nb.float64 else nb.int32

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(signature.return_type))

    return integer(x), generate


@intrinsic
def _float(context, x):
    real = nb.float64 if x == nb.int64 else nb.float32

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(signature.return_type))

    return real(x), generate


@nb.njit(**COMPILE)
def exp64(x):
    """exp x for x ≤ 700; 0 below -708, so that every result is a normal number or 0."""
    under = x < -708.0
    x = -708.0 if under else x
    t = x * 1.4426950408889634 + 6755399441055744.0
    k = t - 6755399441055744.0
    r = x - k * 0.6931471805599453
    r = r - k * 2.3190468138462996e-17
    p = 1 / 479001600.0
    p = p * r + 1 / 39916800.0
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
    p = p * r + 1.0
    return 0.0 if under else _float(_bits(p) + (_bits(t) << 52))


_f = np.float32


@nb.njit(**COMPILE)
def exp32(x):
    """exp x in float32 for x ≤ 80; 0 below -87."""
    under = x < _f(-87.0)
    x = _f(-87.0) if under else x
    t = x * _f(1.4426950408889634) + _f(12582912.0)
    k = t - _f(12582912.0)
    r = x - k * _f(0.693145752)
    r = r - k * _f(1.42860677e-6)
    p = _f(1 / 5040.0)
    p = p * r + _f(1 / 720.0)
    p = p * r + _f(1 / 120.0)
    p = p * r + _f(1 / 24.0)
    p = p * r + _f(1 / 6.0)
    p = p * r + _f(0.5)
    p = p * r + _f(1.0)
    p = p * r + _f(1.0)
    return _f(0.0) if under else _float(nb.int32(_bits(p) + (_bits(t) << 23)))


@nb.njit(**COMPILE)
def log64(x):
    """log x for normal x; -inf below them."""
    bits = _bits(x)
    # the exponent e that leaves a mantissa in [√½, √2)
    e = np.uint64(bits + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD)) >> np.uint64(52)
    m = _float(np.int64(bits - np.int64(e << np.uint64(52)) + 0x3FF0000000000000))
    k = _float(np.int64(e | np.uint64(0x4330000000000000))) - 4503599627371519.0
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = 2 / 21.0
    p = p * z + 2 / 19.0
    p = p * z + 2 / 17.0
    p = p * z + 2 / 15.0
    p = p * z + 2 / 13.0
    p = p * z + 2 / 11.0
    p = p * z + 2 / 9.0
    p = p * z + 2 / 7.0
    p = p * z + 2 / 5.0
    p = p * z + 2 / 3.0
    return -np.inf if x < 2.3e-308 else k * 0.6931471805599453 + (s * 2.0 + s * z * p)
