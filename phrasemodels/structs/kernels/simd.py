# mypy: disallow-untyped-defs=False
"""A vector of LANES float64 as a type of numba's: what a kernel does to one number, it does to LANES sequences at once.

Kernels written with it read like scalar code, need no vectoriser to guess well, and compile in a fraction of the time.
LLVM maps the vector to what the processor has. Arithmetic is `+ - * /` between vectors and with floats; the rest is below.
Positions in arrays are counted in numbers, from the array's first, whatever its shape; arrays are C-contiguous.
"""

import operator

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, overload, register_model

from phrasemodels.structs.kernels.vector import COMPILE as COMPILE

LANES = 4  # one AVX register; with more, small batches would not fill them, nor be divided among threads

_REAL = ir.VectorType(ir.DoubleType(), LANES)
_BITS = ir.VectorType(ir.IntType(64), LANES)
_ROUND = 6755399441055744.0  # 1.5 · 2^52: added to a small integer, it leaves it in the low bits


class Lanes(types.Type):
    """LANES float64."""

    def __init__(self):
        super().__init__(name="Lanes")


lanes = Lanes()


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _REAL)


def _constant(value):
    return ir.Constant(_REAL, [value] * LANES)


def _bits(value):
    return ir.Constant(_BITS, [value] * LANES)


def _address(context, builder, kind, array, position):
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [position]), _REAL.as_pointer())


@intrinsic
def load(context, array, position):
    """The LANES numbers of `array` from `position` on."""

    def generate(context, builder, signature, args):
        value = builder.load(_address(context, builder, signature.args[0], *args))
        value.align = 8
        return value

    return lanes(array, types.intp), generate


@intrinsic
def store(context, array, position, x):
    """Put x where `load` would read it."""

    def generate(context, builder, signature, args):
        builder.store(args[2], _address(context, builder, signature.args[0], *args[:2])).align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def spread(context, x):
    """The float x in every lane."""

    def generate(context, builder, signature, args):
        first = builder.insert_element(ir.Constant(_REAL, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(first, ir.Constant(_REAL, ir.Undefined), zeros)

    return lanes(types.float64), generate


def _binary(build):
    @intrinsic
    def operation(context, x, y):
        return lanes(lanes, lanes), lambda context, builder, signature, args: build(builder, *args)

    return operation


def _unary(build):
    @intrinsic
    def operation(context, x):
        return lanes(lanes), lambda context, builder, signature, args: build(builder, *args)

    return operation


def _either(compare):
    return lambda b, x, y: b.select(b.fcmp_ordered(compare, x, y), x, y)


maximum, minimum = _binary(_either(">")), _binary(_either("<"))


def _operator(python, name):
    apply = _binary(lambda b, x, y: getattr(b, name)(x, y, flags=("contract",)))

    @overload(python)
    @overload(getattr(operator, "i" + python.__name__))
    def overloaded(x, y):
        if isinstance(x, Lanes) and isinstance(y, Lanes):
            return lambda x, y: apply(x, y)
        if isinstance(x, Lanes) and isinstance(y, types.Float):
            return lambda x, y: apply(x, spread(y))
        if isinstance(x, types.Float) and isinstance(y, Lanes):
            return lambda x, y: apply(spread(x), y)
        return None


for _python, _name in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _operator(_python, _name)


def _power(b, x):
    rounded = b.fadd(x, _constant(_ROUND + 1023))
    return b.bitcast(b.shl(b.bitcast(rounded, _BITS), _bits(52)), _REAL)


def _exponent(b, x):
    high = b.or_(b.lshr(b.bitcast(x, _BITS), _bits(52)), _bits(0x4330000000000000))
    return b.fsub(b.bitcast(high, _REAL), _constant(2.0**52 + 1023))


def _mantissa(b, x):
    low = b.and_(b.bitcast(x, _BITS), _bits(0x000FFFFFFFFFFFFF))
    return b.bitcast(b.or_(low, _bits(0x3FF0000000000000)), _REAL)


power = _unary(_power)  # 2^x for integers x in -1023..1023, 0 for -1023
exponent = _unary(_exponent)  # ⌊log2 x⌋ for normal x > 0
mantissa = _unary(_mantissa)  # x / 2^exponent(x), in [1, 2)
