"""Vectors of eight numbers for kernels: eight texts side by side, one in each lane.

numba turns a loop into vector instructions only if it is long, and proves anew before
each loop that its arrays do not overlap. For short texts that costs more than the
arithmetic. With what is here a compiled kernel says it outright: `take` eight numbers
from an array, compute with them by ``+ - * /`` and `where_less`, `put` them back.
LLVM maps them to whatever the processor has. None of it is callable from plain Python.

Exponentials and hyperbolic tangents of such vectors are at the end.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.core.datamodel import models

from perron.kernels.compile import Array, jit

LANES = 8

intrinsic: Any = extending.intrinsic

_FUSE = ("contract",)  # a multiplication and an addition may become one instruction


class Eight(types.Type):
    """The numba type of eight numbers of one precision."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"Eight({dtype})")


@extending.register_model(Eight)
class _EightModel(models.PrimitiveModel):
    """Eight numbers are one LLVM vector, held in registers."""

    def __init__(self, dmm: Any, fe_type: Eight) -> None:
        number = dmm.lookup(fe_type.dtype).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(number, LANES))


def _pointer(context: Any, builder: Any, array: Any, value: Any, index: Any) -> Any:
    data = context.make_array(array)(context, builder, value).data
    vector = context.get_value_type(Eight(array.dtype)).as_pointer()
    return builder.bitcast(builder.gep(data, [index], inbounds=True), vector)


def _resize(builder: Any, value: Any, kind: Any) -> Any:
    if value.type == kind:
        return value
    wider = isinstance(kind.element, ir.DoubleType)
    return builder.fpext(value, kind) if wider else builder.fptrunc(value, kind)


def _splat(builder: Any, number: Any) -> Any:
    value = cgutils.get_null_value(ir.VectorType(number.type, LANES))
    for place in range(LANES):
        index = ir.Constant(ir.IntType(32), place)
        value = builder.insert_element(value, number, index)
    return value


@intrinsic
def take(typingctx, x, place):
    """Return the eight numbers of the flat array x from ``place`` on."""

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        pointer = _pointer(context, builder, x, *a)
        return builder.load(pointer, align=x.dtype.bitwidth // 8)

    return Eight(x.dtype)(x, types.intp), generate


@intrinsic
def put(typingctx, x, place, value):
    """Write eight numbers to the flat array x from ``place`` on, in its precision."""

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        pointer = _pointer(context, builder, x, *a[:2])
        value = _resize(builder, a[2], context.get_value_type(Eight(x.dtype)))
        builder.store(value, pointer, align=x.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(x, types.intp, value), generate


@intrinsic
def spread(typingctx, number):
    """Return eight times the same number."""

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        return _splat(builder, a[0])

    return Eight(number)(number), generate


@intrinsic
def like(typingctx, value, number):
    """Return eight times the same number, in the precision of ``value``."""

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        kind = context.get_value_type(value.dtype)
        number = a[1] if a[1].type == kind else builder.fptrunc(a[1], kind)
        return _splat(builder, number)

    return value(value, types.float64), generate


@intrinsic
def wide(typingctx, value):
    """Return eight numbers in float64."""
    result = Eight(types.float64)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        return _resize(builder, a[0], context.get_value_type(result))

    return result(value), generate


@intrinsic
def lane(typingctx, value, index):
    """Return one of eight numbers."""

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        return builder.extract_element(*a)

    return value.dtype(value, types.intp), generate


@intrinsic
def with_lane(typingctx, value, index, number):
    """Return eight numbers with one of them replaced."""

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        return builder.insert_element(a[0], a[2], a[1])

    return value(value, types.intp, value.dtype), generate


@intrinsic
def add_lanes(typingctx, value):
    """Return the sum of eight numbers."""

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        total = a[0]
        for half in (4, 2, 1):
            order = [(k + half) % LANES for k in range(LANES)]
            order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), order)
            total = builder.fadd(total, builder.shuffle_vector(total, total, order))
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return value.dtype(value), generate


@intrinsic
def fused(typingctx, a, b, c):
    """Return a b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        kind = v[0].type
        name = f"llvm.fma.v{LANES}f{a.dtype.bitwidth}"
        function = ir.FunctionType(kind, [kind] * 3)
        called = cgutils.get_or_insert_function(builder.module, function, name)
        return builder.call(called, v)

    return a(a, b, c), generate


@intrinsic
def times_power(typingctx, value, power):
    """Return the value times 2**k, k the low bits of the power; both are float64."""

    def generate(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        whole = ir.VectorType(ir.IntType(64), LANES)
        bits, power = (builder.bitcast(number, whole) for number in v)
        shift = ir.Constant(whole, [52] * LANES)  # to the exponent's place
        return builder.bitcast(builder.add(bits, builder.shl(power, shift)), v[0].type)

    return value(value, power), generate


@intrinsic
def where_less(typingctx, a, b, then, otherwise):
    """Return, lane by lane, ``then`` if a < b, else ``otherwise`` (also for NaN)."""

    def generate(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", v[0], v[1]), v[2], v[3])

    return then(a, b, then, otherwise), generate


@intrinsic
def any_less(typingctx, a, b):
    """Return whether a < b in any lane."""

    def generate(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        lanes = builder.fcmp_ordered("<", *v)
        bits = builder.bitcast(lanes, ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(a, b), generate


def _arithmetic(instruction: str, *symbols: Callable[[Any, Any], Any]) -> None:
    @intrinsic
    def compute(typingctx, a, b):
        def generate(context: Any, builder: Any, signature: Any, v: Any) -> Any:
            return getattr(builder, instruction)(*v, flags=_FUSE)

        return a(a, b), generate

    def choose(a, b):
        if isinstance(a, Eight) and a == b:
            return lambda a, b: compute(a, b)
        return None

    for symbol in symbols:
        extending.overload(symbol)(choose)


_arithmetic("fadd", operator.add, operator.iadd)
_arithmetic("fsub", operator.sub, operator.isub)
_arithmetic("fmul", operator.mul, operator.imul)
_arithmetic("fdiv", operator.truediv, operator.itruediv)


@intrinsic
def turn(typingctx, y, y0, x, places, shift):
    """Write to y, from y0 on, turned: eight numbers of x from each place + shift on."""
    signature = types.void(y, types.intp, x, places, types.intp)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        starts = context.make_array(places)(context, builder, a[3]).data
        rows = []
        for lane in range(LANES):
            index = ir.Constant(ir.IntType(32), lane)
            start = builder.add(builder.load(builder.gep(starts, [index])), a[4])
            pointer = _pointer(context, builder, x, a[2], start)
            rows.append(builder.load(pointer, align=x.dtype.bitwidth // 8))
        for width in (4, 2, 1):  # swap blocks across the diagonal, ever smaller ones
            for lane in range(LANES):
                if not lane & width:
                    pair = rows[lane], rows[lane + width]
                    for side in (0, width):
                        pick = [
                            (j & ~width | side) + (LANES if j & width else 0)
                            for j in range(LANES)
                        ]
                        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), pick)
                        rows[lane + side] = builder.shuffle_vector(*pair, mask)
        for lane, row in enumerate(rows):
            place = builder.add(a[1], context.get_constant(types.intp, LANES * lane))
            pointer = _pointer(context, builder, y, a[0], place)
            builder.store(row, pointer, align=y.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return signature, generate


# tanh x = x P(x²) / Q(x²) on [-9, 9], beyond which it is ±1 in float32.
_P = (0.999999980414, 0.133828402128, 3.49774092169e-3, 2.06444640146e-5, 1.34037399e-8)
_Q = (1.0, 0.467161564556, 0.0258851777601, 3.28915284022e-4, 7.79662608564e-7)

# Added to a number, it leaves the nearest integer in the low bits.
_MAGIC = 1.5 * 2.0**52
_LN2 = math.log(2)
_LN2_REST = 2.3190468138462996e-17  # what rounding took from it
_TAYLOR = np.array([1 / math.factorial(k) for k in range(13, -1, -1)])  # of exp


@jit
def exponential(x: Any) -> Any:
    """Return exp x of eight float64 numbers within ±700, right to a unit or two."""
    power = x * spread(1 / _LN2) + spread(_MAGIC)
    whole = power - spread(_MAGIC)
    rest = fused(whole, spread(-_LN2), x)  # |rest| < 0.35
    rest = fused(whole, spread(-_LN2_REST), rest)
    value = spread(_TAYLOR[0])
    for k in range(1, len(_TAYLOR)):
        value = fused(value, rest, spread(_TAYLOR[k]))
    return times_power(value, power) + (x - x)  # NaN stays NaN


@extending.overload(math.tanh)
def _choose_tanh(x):  # its signature is the lambdas'
    """`math.tanh` of eight numbers: a fit in float32, exact ones in float64."""
    if not isinstance(x, Eight):
        return None
    if x.dtype == types.float32:
        return lambda x: _fitted_tanh(x)
    return lambda x: _exact_tanh(x)


@jit
def _fitted_tanh(x: Any) -> Any:
    high, low = like(x, 9.0), like(x, -9.0)
    x = where_less(high, x, high, x)
    x = where_less(x, low, low, x)  # NaN stays NaN
    z = x * x
    p, q = like(x, _P[4]), like(x, _Q[4])
    for k in (3, 2, 1, 0):
        p = like(x, _P[k]) + z * p
        q = like(x, _Q[k]) + z * q
    return x * p / q


@jit
def _exact_tanh(x: Any) -> Any:
    for t in range(LANES):
        x = with_lane(x, t, math.tanh(lane(x, t)))
    return x


@jit
def _double(x: Array) -> None:
    put(x, 0, take(x, 0) + take(x, 0))


def check_compiler() -> None:
    """Compile and run a small kernel; raise whatever error prevents that."""
    x = np.ones(LANES)
    _double(x)
    if not (x == 2).all():
        raise RuntimeError("a compiled kernel gave a wrong result")
