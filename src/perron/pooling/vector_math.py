"""Exponentials and hyperbolic tangents of eight numbers, for compiled kernels."""

import math
from typing import Any

import numpy as np
from numba import extending
from numba.core import types

from perron.solver.compiled import jit
from perron.solver.lanes import (
    LANES,
    Eight,
    fused,
    lane,
    like,
    spread,
    times_power,
    where_less,
    with_lane,
)

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
def _choose_tanh(x):  # type: ignore[no-untyped-def]  # its signature is the lambdas'
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
