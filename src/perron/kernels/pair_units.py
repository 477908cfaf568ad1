"""The hidden units of a pair of words, eight at a time: their sum, and their slopes.

    h_k = tanh(a_k + b_k) = (A - B) / (A + B),    A = exp(2 a_k),  B = exp(-2 b_k)

so that an exponential for each word does instead of a tanh for each pair. For A - B to
have its digits also where they are nearly the same, both come in two pieces of float32.
The result is right to 5 units of rounding, or to 1e-14 where that is more. A text with
|a| or |b| beyond 40, whose exponentials float32 cannot hold, falls back on a fit to
tanh itself, right to 5 units too; float64 has the exact tanh.
"""

import math
from typing import Any

from perron.kernels.compile import Array, jit
from perron.kernels.simd import (
    LANES,
    add_lanes,
    exponential,
    like,
    put,
    spread,
    take,
    where_less,
    wide,
)

EXPONENTIAL, TANH, RELU = range(3)  # ways to a hidden unit

_FAR = 40.0  # exp(2 · 40) and its inverse are within the range of float32


@jit
def are_near(words: Array) -> bool:
    """Tell whether exponentials of these words (n, 2, width) are within range."""
    zeros = spread(words.dtype.type(0))
    far = zeros
    for word in words:
        high = word[0]
        for k in range(0, len(high), LANES):
            x = take(high, k)
            size = where_less(x, zeros, zeros - x, x)
            far += where_less(size, like(x, _FAR), zeros, like(x, 1.0))  # NaN is far
    return add_lanes(far) == 0


@jit
def to_exponentials(words: Array, factor: float) -> None:
    """Replace x = words[:, 0] by exp(factor x), words[:, 1] by what rounding took."""
    for word in words:
        high, low = word[0], word[1]
        for k in range(0, len(high), LANES):
            x = wide(take(high, k)) * spread(factor)
            value = exponential(x)
            put(high, k, value)
            put(low, k, value - wide(take(high, k)))


@jit
def score(
    target: Array, sources: Array, n: int, w: Array, way: int, row: Array
) -> None:
    """row_j = Σ_k w_k h_k for the n words j, rounded up to a multiple of four.

    Args:
        target: (2, width) the target word, and what rounding took from it.
        sources: (n or more, 2, width) likewise, up to a multiple of four.
        n: how many sources.
        w: weights, zeros up to a multiple of eight.
        way: to the hidden units.
        row: written to.
    """
    zeros, width = spread(w.dtype.type(0)), len(w)
    own, rest, b = target[0], target[1], sources.reshape(-1)
    step = 2 * width
    for j in range(0, n, 4):
        s0 = s1 = s2 = s3 = zeros
        p0 = j * step
        p1, p2, p3 = p0 + step, p0 + 2 * step, p0 + 3 * step
        if way == EXPONENTIAL:
            for k in range(0, width, LANES):
                x, r, factor = take(own, k), take(rest, k), take(w, k)
                s0 += factor * _unit(x, r, take(b, p0 + k), take(b, p0 + k + width))
                s1 += factor * _unit(x, r, take(b, p1 + k), take(b, p1 + k + width))
                s2 += factor * _unit(x, r, take(b, p2 + k), take(b, p2 + k + width))
                s3 += factor * _unit(x, r, take(b, p3 + k), take(b, p3 + k + width))
        else:
            for k in range(0, width, LANES):
                x, factor = take(own, k), take(w, k)
                s0 += factor * _activate(x + take(b, p0 + k), zeros, way)
                s1 += factor * _activate(x + take(b, p1 + k), zeros, way)
                s2 += factor * _activate(x + take(b, p2 + k), zeros, way)
                s3 += factor * _activate(x + take(b, p3 + k), zeros, way)
        row[j] = add_lanes(s0)
        row[j + 1] = add_lanes(s1)
        row[j + 2] = add_lanes(s2)
        row[j + 3] = add_lanes(s3)


@jit
def add_slopes(
    target: Array,
    sources: Array,
    n: int,
    way: int,
    grad: Array,
    grad_a: Array,
    grad_b: Array,
    grad_w: Array,
) -> None:
    """Add to the gradients, all but for the factor w of a's and b's.

    Args:
        target: as in `score`.
        sources: likewise.
        n: likewise.
        way: likewise.
        grad: ∂ℓ/∂s_ij for the n words j, zero up to a multiple of two.
        grad_a: (width) for the target word.
        grad_b: (n or more, width) for the sources.
        grad_w: (width) for the weights.
    """
    zeros, width = spread(grad.dtype.type(0)), len(grad_w)
    own, rest = target[0], target[1]
    b, to_b = sources.reshape(-1), grad_b.reshape(-1)
    for k in range(0, width, LANES):
        x, r = take(own, k), take(rest, k)
        to_own, to_w = take(grad_a, k), take(grad_w, k)
        for j in range(0, n, 2):
            p0 = 2 * j * width + k
            p1 = p0 + 2 * width
            q0 = j * width + k
            q1 = q0 + width
            g0, g1 = spread(grad[j]), spread(grad[j + 1])
            if way == EXPONENTIAL:
                h0 = _unit(x, r, take(b, p0), take(b, p0 + width))
                h1 = _unit(x, r, take(b, p1), take(b, p1 + width))
                s0, s1 = g0 - g0 * h0 * h0, g1 - g1 * h1 * h1
            else:
                y0, y1 = x + take(b, p0), x + take(b, p1)
                h0, h1 = _activate(y0, zeros, way), _activate(y1, zeros, way)
                if way == RELU:
                    s0 = where_less(zeros, y0, g0, zeros)
                    s1 = where_less(zeros, y1, g1, zeros)
                else:
                    s0, s1 = g0 - g0 * h0 * h0, g1 - g1 * h1 * h1
            to_w += g0 * h0 + g1 * h1
            to_own += s0 + s1
            put(to_b, q0, take(to_b, q0) + s0)
            put(to_b, q1, take(to_b, q1) + s1)
        put(grad_a, k, to_own)
        put(grad_w, k, to_w)


@jit
def _activate(x: Any, zeros: Any, way: int) -> Any:
    return where_less(x, zeros, zeros, x) if way == RELU else math.tanh(x)


@jit
def _unit(a: Any, a_low: Any, b: Any, b_low: Any) -> Any:
    return ((a - b) + (a_low - b_low)) / (a + b)
