# mypy: disallow-untyped-defs=False
"""A numba type for a vector of LANES float64, or of twice as many float32.

Kernels that use it read like scalar code, do not depend on LLVM's vectoriser, and compile in a fraction of the time. LLVM
maps the vector to the registers of the processor. Vectors and floats can be combined by `+ - * /`; the functions below do
the rest. A position in an array is the index into its flat memory; arrays are C-contiguous.
"""

import operator

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, overload, register_model

from phrasemodels.structs.kernels.compilation import COMPILE as COMPILE

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
