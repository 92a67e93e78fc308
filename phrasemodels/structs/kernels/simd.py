# mypy: disallow-untyped-defs=False
"""A numba type for a vector of LANES float64, or of twice as many float32.

Kernels that use it read like scalar code, do not depend on LLVM's vectoriser, and compile in a fraction of the time. LLVM
maps the vector to the registers of the processor. Vectors and floats can be combined by `+ - * /`; the functions below do
the rest. A position in an array is the index into its flat memory; arrays are C-contiguous.

**Weights** m · 2^e, with m in [1, 2) and e an integer stored as float64, have sums of products that never overflow or vanish.
Sums over structures multiply exponentials of scores. As plain numbers, these leave the range of float64 if scores spread
widely. As logarithms, each addition costs an exponential. Here each term of a sum of products costs one product of
mantissas and one power of two, which is a shift of bits:

    Σ_k m_k 2^e_k n_k 2^f_k = 2^top Σ_k (m_k n_k) 2^(e_k + f_k − top),    top = max_k (e_k + f_k)

So one path serves scores of any spread, without logarithms and special cases. Proof: every exponent is an integer below
2^53 in size, so sums of exponents are exact. A term is left out only if e_k + f_k − top ≤ -1023, when it is below 2^-1021
of the sum. The terms are ≤ 4 and one is ≥ 1, so nothing overflows. What remains is the rounding of float64, relative to
each weight, however small it is beside others.

Zero is 2^FORBIDDEN, which is less than any product of other weights, so that it needs no special case either. Scores beyond
± FORBIDDEN · ln 2, about ± 7e14, are clamped. A sum whose products all contain FORBIDDEN is below 2^(FORBIDDEN / 2), which
`possible` tests.

`exp32` is exp of float32, or of vectors of it. It has no branch, table or call, so that LLVM can vectorise it. Range reduction is
by ln 2 and a polynomial (Cody and Waite 1980). Adding 1.5·2^23 rounds to an integer and leaves it in the low bits, which a
shift makes an exponent; so this must not be compiled with `reassoc`. Its relative error, measured against libm over the whole
range, is ≤ 8e-8.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import int64, njit
from numba.core import types
from numba.extending import intrinsic, models, overload, register_model

from phrasemodels.structs.dispatch import COMPILE as COMPILE

INNER = COMPILE | {"no_cpython_wrapper": True}  # of functions that only compiled ones call
INLINE = INNER | {"forceinline": True}
LANES = 4  # one AVX register; small batches would not fill more lanes, and could not be divided among threads

_BITS = ir.VectorType(ir.IntType(64), LANES)
_ROUND = 6755399441055744.0  # 1.5 · 2^52; its sum with a small integer has that integer in its low bits


class Lanes(types.Type):
    """A vector of LANES · 64 bits of one float type."""

    def __init__(self, real):
        super().__init__(name=f"Lanes({real})")
        self.real = real
        part = ir.DoubleType() if real == types.float64 else ir.FloatType()
        self.vector = ir.VectorType(part, LANES * 64 // real.bitwidth)


lanes = Lanes(types.float64)


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.vector)


def _constant(value):
    return ir.Constant(lanes.vector, [value] * LANES)


def _bits(value):
    return ir.Constant(_BITS, [value] * LANES)


def _address(context, builder, kind, array, position):
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), Lanes(kind.dtype).vector.as_pointer())


@intrinsic
def load(context, array, position):
    """Return the vector of numbers of `array` from `position` on."""

    def generate(context, builder, signature, args):
        value = builder.load(_address(context, builder, signature.args[0], *args))
        value.align = signature.return_type.real.bitwidth // 8
        return value

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def number(context, array, position):
    """Return the number of `array` at `position`."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [args[1]]))

    return array.dtype(array, types.intp), generate


@intrinsic
def store(context, array, position, x):
    """Write the vector x to `array` from `position` on."""

    def generate(context, builder, signature, args):
        to = _address(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], to).align = signature.args[2].real.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, x), generate


@intrinsic
def spread(context, x):
    """The float x in every lane."""

    def generate(context, builder, signature, args):
        vector = signature.return_type.vector
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
        return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)

    return Lanes(x)(x), generate


def _binary(build):
    @intrinsic
    def operation(context, x, y):
        return x(x, y), lambda context, builder, signature, args: build(builder, *args)

    return operation


def _unary(build):
    @intrinsic
    def operation(context, x):
        return x(x), lambda context, builder, signature, args: build(builder, *args)

    return operation


def _either(compare):
    return lambda b, x, y: b.select(b.fcmp_ordered(compare, x, y), x, y)


def _larger(b, x, y):
    # not a comparison and a select, which LLVM may turn into a masked store, very slow on some processors
    kind = ir.FunctionType(x.type, [x.type, x.type])
    name = f"llvm.maxnum.v{x.type.count}f{64 if x.type.element == ir.DoubleType() else 32}"
    return b.call(b.module.declare_intrinsic(name, fnty=kind), [x, y], fastmath=("nnan", "nsz"))


larger = _binary(_larger)  # undefined for NaN; maximum and minimum return y if x or y is NaN
maximum, minimum = _binary(_either(">")), _binary(_either("<"))


def _fold(combine):
    """Return an intrinsic that combines all numbers of a vector in pairs, halves first."""

    @intrinsic
    def folded(context, x):
        def generate(context, builder, signature, args):
            numbers, n = args[0], args[0].type.count
            count = n
            while n > 1:
                n //= 2
                turn = ir.Constant(ir.VectorType(ir.IntType(32), count), [(i + n) % count for i in range(count)])
                turned = builder.shuffle_vector(numbers, ir.Constant(numbers.type, ir.Undefined), turn)
                numbers = combine(builder, numbers, turned)
            return builder.extract_element(numbers, ir.Constant(ir.IntType(32), 0))

        return x.real(x), generate

    return folded


highest = _fold(_either(">"))  # the largest number of a vector
added = _fold(lambda builder, x, y: builder.fadd(x, y))  # the sum of a vector


@intrinsic
def unknown(context, x):
    """Return 0 in the lanes where x is below +inf, else NaN."""

    def generate(context, builder, signature, args):
        below = builder.fcmp_ordered("<", args[0], ir.Constant(args[0].type, [np.inf] * args[0].type.count))
        nan, zero = (ir.Constant(args[0].type, [value] * args[0].type.count) for value in (np.nan, 0.0))
        return builder.select(below, zero, nan)

    return x(x), generate


@intrinsic
def minus_finite(context, x):
    """Return −x in the lanes where x is above -inf, else -inf."""

    def generate(context, builder, signature, args):
        low = ir.Constant(args[0].type, [-np.inf] * args[0].type.count)
        minus = builder.fsub(ir.Constant(args[0].type, [0.0] * args[0].type.count), args[0])
        return builder.select(builder.fcmp_ordered(">", args[0], low), minus, low)

    return x(x), generate


@intrinsic
def last(context, x, count):
    """Return x in its last `count` lanes, all if there are fewer, else 0."""

    def generate(context, builder, signature, args):
        x, n, whole = args[0], args[0].type.count, ir.VectorType(args[1].type, args[0].type.count)
        left = builder.insert_element(ir.Constant(whole, ir.Undefined), args[1], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), n), [0] * n)
        left = builder.shuffle_vector(left, ir.Constant(whole, ir.Undefined), zeros)
        kept = builder.icmp_signed(">=", left, ir.Constant(whole, [n - lane for lane in range(n)]))
        return builder.select(kept, x, ir.Constant(x.type, [0.0] * n))

    return x(x, types.intp), generate


@intrinsic
def above(context, x, least):
    """Return x in the lanes where it is above the float `least`, else 0."""

    def generate(context, builder, signature, args):
        bound = ir.Constant(args[0].type, ir.Undefined)
        for lane in range(args[0].type.count):
            bound = builder.insert_element(bound, args[1], ir.Constant(ir.IntType(32), lane))
        zero = ir.Constant(args[0].type, [0.0] * args[0].type.count)
        return builder.select(builder.fcmp_ordered(">", args[0], bound), args[0], zero)

    return x(x, x.real), generate


def _operator(python, name):
    apply = _binary(lambda b, x, y: getattr(b, name)(x, y, flags=("contract",)))

    @overload(python, target="cpu")  # a target is tried before what has none, so before all of numba's own
    @overload(getattr(operator, "i" + python.__name__), target="cpu")
    def overloaded(x, y):
        if isinstance(x, Lanes) and isinstance(y, Lanes):
            return lambda x, y: apply(x, y)
        if isinstance(x, Lanes) and isinstance(y, types.Float):
            return lambda x, y: apply(x, spread(y))
        if isinstance(x, types.Float) and isinstance(y, Lanes):
            return lambda x, y: apply(spread(x), y)
        return None


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


def _power(b, x):
    rounded = b.fadd(x, _constant(_ROUND + 1023))
    return b.bitcast(b.shl(b.bitcast(rounded, _BITS), _bits(52)), lanes.vector)


def _exponent(b, x):
    high = b.or_(b.lshr(b.bitcast(x, _BITS), _bits(52)), _bits(0x4330000000000000))
    return b.fsub(b.bitcast(high, lanes.vector), _constant(2.0**52 + 1023))


def _mantissa(b, x):
    low = b.and_(b.bitcast(x, _BITS), _bits(0x000FFFFFFFFFFFFF))
    return b.bitcast(b.or_(low, _bits(0x3FF0000000000000)), lanes.vector)


power = _unary(_power)  # 2^x for integers x in -1023..1023, 0 for -1023
exponent = _unary(_exponent)  # ⌊log2 x⌋ for normal x > 0
mantissa = _unary(_mantissa)  # x / 2^exponent(x), in [1, 2)


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


def _whole(kind):
    """Return the type of integers of 32 bits in the shape of a type of float32."""
    return ir.VectorType(ir.IntType(32), kind.count) if isinstance(kind, ir.VectorType) else ir.IntType(32)


def _filled(kind, value):
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


@intrinsic
def _times_power(context, p, t):
    """p · 2^k, with k in the low bits of t."""

    def generate(context, builder, signature, args):
        bits = [builder.bitcast(x, _whole(x.type)) for x in args]
        shifted = builder.shl(bits[1], _filled(bits[1].type, 23))
        return builder.bitcast(builder.add(bits[0], shifted), args[0].type)

    return p(p, t), generate


@intrinsic
def _unless_under(context, y, x):
    """y, or 0 where x < -87."""

    def generate(context, builder, signature, args):
        under = builder.fcmp_ordered("<", args[1], _filled(args[1].type, -87.0))
        return builder.select(under, _filled(args[0].type, 0.0), args[0])

    return y(y, x), generate


_f = np.float32


@njit(**INLINE)
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
