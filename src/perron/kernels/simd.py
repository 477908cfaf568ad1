"""SIMD vectors of eight lanes for numba kernels.

Numba vectorizes a loop only if it is long, and checks before each loop that its arrays
do not overlap. For short texts this costs more than the arithmetic. With the intrinsics
here, a kernel is vectorized explicitly: `load` eight numbers from an array, compute
with ``+ - * /`` and `where_less`, and `store` the result. LLVM maps the vectors to the
instruction set of the CPU. None of these functions can be called from plain Python.

Vectorized `exp` and `math.tanh` are at the end.
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

_FMA_FLAGS = ("contract",)  # allow fusing a multiplication and an addition


class Vec8(types.Type):
    """Numba type of a vector of eight floating-point numbers."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vec8({dtype})")


@extending.register_model(Vec8)
class _Vec8Model(models.PrimitiveModel):
    """Data model of `Vec8`: one LLVM vector, held in registers."""

    def __init__(self, dmm: Any, fe_type: Vec8) -> None:
        number = dmm.lookup(fe_type.dtype).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(number, LANES))


def _pointer(context: Any, builder: Any, array: Any, value: Any, index: Any) -> Any:
    data = context.make_array(array)(context, builder, value).data
    vector = context.get_value_type(Vec8(array.dtype)).as_pointer()
    return builder.bitcast(builder.gep(data, [index], inbounds=True), vector)


def _resize(builder: Any, value: Any, kind: Any) -> Any:
    if value.type == kind:
        return value
    wider = isinstance(kind.element, ir.DoubleType)
    return builder.fpext(value, kind) if wider else builder.fptrunc(value, kind)


def _build_splat(builder: Any, number: Any) -> Any:
    value = cgutils.get_null_value(ir.VectorType(number.type, LANES))
    for lane in range(LANES):
        index = ir.Constant(ir.IntType(32), lane)
        value = builder.insert_element(value, number, index)
    return value


@intrinsic
def load(typingctx, x, offset):
    """Load eight numbers from the flat array x, starting at ``offset``."""

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        pointer = _pointer(context, builder, x, *a)
        return builder.load(pointer, align=x.dtype.bitwidth // 8)

    return Vec8(x.dtype)(x, types.intp), codegen


@intrinsic
def load_half(typingctx, x, offset):
    """Load eight float16 numbers from the flat array x as float32.

    Numba has no float16 arithmetic on CPUs, so x holds their bits, as uint16.
    """
    result = Vec8(types.float32)

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        data = context.make_array(x)(context, builder, a[0]).data
        pointer = builder.gep(data, [a[1]], inbounds=True)
        halves = ir.VectorType(ir.HalfType(), LANES).as_pointer()
        value = builder.load(builder.bitcast(pointer, halves), align=2)
        return builder.fpext(value, context.get_value_type(result))

    return result(x, types.intp), codegen


@intrinsic
def store(typingctx, x, offset, value):
    """Convert a vector to the dtype of the flat array x and store it at ``offset``."""

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        pointer = _pointer(context, builder, x, *a[:2])
        value = _resize(builder, a[2], context.get_value_type(Vec8(x.dtype)))
        builder.store(value, pointer, align=x.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(x, types.intp, value), codegen


@intrinsic
def splat(typingctx, number):
    """Return a vector with a number in all lanes."""

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        return _build_splat(builder, a[0])

    return Vec8(number)(number), codegen


@intrinsic
def splat_like(typingctx, value, number):
    """Return a vector with a number in all lanes, in the precision of ``value``."""

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        kind = context.get_value_type(value.dtype)
        number = a[1] if a[1].type == kind else builder.fptrunc(a[1], kind)
        return _build_splat(builder, number)

    return value(value, types.float64), codegen


@intrinsic
def widen(typingctx, value):
    """Convert a vector to float64."""
    result = Vec8(types.float64)

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        return _resize(builder, a[0], context.get_value_type(result))

    return result(value), codegen


@intrinsic
def extract_lane(typingctx, value, index):
    """Return the number in a lane."""

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        return builder.extract_element(*a)

    return value.dtype(value, types.intp), codegen


@intrinsic
def insert_lane(typingctx, value, index, number):
    """Return a vector with the number in a lane replaced."""

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        return builder.insert_element(a[0], a[2], a[1])

    return value(value, types.intp, value.dtype), codegen


@intrinsic
def sum_lanes(typingctx, value):
    """Return the sum of all lanes."""

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        total = a[0]
        for half in (4, 2, 1):
            order = [(k + half) % LANES for k in range(LANES)]
            order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), order)
            total = builder.fadd(total, builder.shuffle_vector(total, total, order))
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return value.dtype(value), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """Return a b + c with a single rounding (fused multiply-add)."""

    def codegen(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        kind = v[0].type
        name = f"llvm.fma.v{LANES}f{a.dtype.bitwidth}"
        function = ir.FunctionType(kind, [kind] * 3)
        called = cgutils.get_or_insert_function(builder.module, function, name)
        return builder.call(called, v)

    return a(a, b, c), codegen


@intrinsic
def mul_pow2(typingctx, value, power):
    """Return the value times 2**k, with k in the low bits of power; both float64."""

    def codegen(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        integers = ir.VectorType(ir.IntType(64), LANES)
        bits, power = (builder.bitcast(number, integers) for number in v)
        shift = ir.Constant(integers, [52] * LANES)  # to the bits of the exponent
        return builder.bitcast(builder.add(bits, builder.shl(power, shift)), v[0].type)

    return value(value, power), codegen


@intrinsic
def where_less(typingctx, a, b, then, otherwise):
    """Select ``then`` in lanes with a < b, else ``otherwise`` (also for NaN)."""

    def codegen(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", v[0], v[1]), v[2], v[3])

    return then(a, b, then, otherwise), codegen


@intrinsic
def any_less(typingctx, a, b):
    """Return whether a < b in any lane."""

    def codegen(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        lanes = builder.fcmp_ordered("<", *v)
        bits = builder.bitcast(lanes, ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(a, b), codegen


def _overload(instruction: str, *operators: Callable[[Any, Any], Any]) -> None:
    """Implement operators on vectors with an LLVM instruction."""

    def codegen(context: Any, builder: Any, signature: Any, v: Any) -> Any:
        return getattr(builder, instruction)(*v, flags=_FMA_FLAGS)

    def find_type(context: Any) -> Any:
        def result(a: Any, b: Any) -> Any:
            return a if isinstance(a, Vec8) and a == b else None

        return result

    for function in operators:
        extending.type_callable(function)(find_type)
        extending.lower_builtin(function, Vec8, Vec8)(codegen)


_overload("fadd", operator.add, operator.iadd)
_overload("fsub", operator.sub, operator.isub)
_overload("fmul", operator.mul, operator.imul)
_overload("fdiv", operator.truediv, operator.itruediv)


@intrinsic
def transpose(typingctx, y, y0, x, offsets, shift):
    """Transpose an 8 x 8 tile: row k is x[offsets[k] + shift :], stored at y[y0 :]."""
    signature = types.void(y, types.intp, x, offsets, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        starts = context.make_array(offsets)(context, builder, a[3]).data
        rows = []
        for lane in range(LANES):
            index = ir.Constant(ir.IntType(32), lane)
            start = builder.add(builder.load(builder.gep(starts, [index])), a[4])
            pointer = _pointer(context, builder, x, a[2], start)
            rows.append(builder.load(pointer, align=x.dtype.bitwidth // 8))
        for width in (4, 2, 1):  # swap off-diagonal blocks of decreasing size
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
            offset = builder.add(a[1], context.get_constant(types.intp, LANES * lane))
            pointer = _pointer(context, builder, y, a[0], offset)
            builder.store(row, pointer, align=y.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return signature, codegen


# tanh x ≈ x P(x²) / Q(x²) on [-9, 9]; outside this interval it is ±1 in float32.
_P = (0.999999980414, 0.133828402128, 3.49774092169e-3, 2.06444640146e-5, 1.34037399e-8)
_Q = (1.0, 0.467161564556, 0.0258851777601, 3.28915284022e-4, 7.79662608564e-7)

# Adding this to a number leaves the nearest integer in the low bits.
_MAGIC = 1.5 * 2.0**52
_LN2 = math.log(2)
_LN2_LOW = 2.3190468138462996e-17  # rounding error of _LN2
_TAYLOR = np.array([1 / math.factorial(k) for k in range(13, -1, -1)])  # of exp


@jit()
def exp(x: Any) -> Any:
    """Return exp x for float64 in [-700, 700], accurate to one or two ulps."""
    power = x * splat(1 / _LN2) + splat(_MAGIC)
    integer = power - splat(_MAGIC)
    reduced = fma(integer, splat(-_LN2), x)  # |reduced| < 0.35
    reduced = fma(integer, splat(-_LN2_LOW), reduced)
    value = splat(_TAYLOR[0])
    for k in range(1, len(_TAYLOR)):
        value = fma(value, reduced, splat(_TAYLOR[k]))
    return mul_pow2(value, power) + (x - x)  # NaN stays NaN


@extending.overload(math.tanh)
def _overload_tanh(x):  # must have the same signature as the lambdas
    """Overload `math.tanh`: a rational approximation in float32, exact in float64."""
    if not isinstance(x, Vec8):
        return None
    if x.dtype == types.float32:
        return lambda x: _rational_tanh(x)
    return lambda x: _scalar_tanh(x)


@jit()
def _rational_tanh(x: Any) -> Any:
    high, low = splat_like(x, 9.0), splat_like(x, -9.0)
    x = where_less(high, x, high, x)
    x = where_less(x, low, low, x)  # NaN stays NaN
    z = x * x
    p, q = splat_like(x, _P[4]), splat_like(x, _Q[4])
    for k in (3, 2, 1, 0):
        p = splat_like(x, _P[k]) + z * p
        q = splat_like(x, _Q[k]) + z * q
    return x * p / q


@jit()
def _scalar_tanh(x: Any) -> Any:
    for t in range(LANES):
        x = insert_lane(x, t, math.tanh(extract_lane(x, t)))
    return x


@jit(entry=True)
def _double(x: Array) -> None:
    store(x, 0, load(x, 0) + load(x, 0))


def check_compiler() -> None:
    """Compile and run a small kernel, and raise an error if that fails."""
    x = np.ones(LANES)
    _double(x)
    if not (x == 2).all():
        raise RuntimeError("A compiled kernel returned a wrong result.")
