"""Hidden units of pairs of tokens: their weighted sum and its gradients.

    h_k = tanh(a_k + b_k) = (A - B) / (A + B),    A = exp(2 a_k),  B = exp(-2 b_k)

This takes one exponential per token instead of one tanh per pair. To avoid cancellation
in A - B, each is stored as an unevaluated sum of two float32 numbers. The result is
accurate to 5 ulps or 1e-14, whichever is larger. A text with |a| or |b| above 40, whose
exponentials are out of the range of float32, falls back to a rational approximation of
tanh, which is also accurate to 5 ulps. In float64, tanh is computed exactly.
"""

import math
from typing import Any

from perron.kernels.compile import Array, jit
from perron.kernels.simd import (
    LANES,
    exp,
    load,
    splat,
    splat_like,
    store,
    sum_lanes,
    where_less,
    widen,
)

EXPONENTIAL, TANH, RELU = range(3)  # methods of computing a hidden unit

_MAX_EXP_INPUT = 40.0  # exp(2 · 40) and its inverse are in the range of float32


@jit()
def fits_exp_range(tokens: Array) -> bool:
    """Return whether the exponentials of tokens (n, 2, width) are in range."""
    zeros = splat(tokens.dtype.type(0))
    outside = zeros
    for token in tokens:
        high = token[0]
        for k in range(0, len(high), LANES):
            x = load(high, k)
            size = where_less(x, zeros, zeros - x, x)
            limit, ones = splat_like(x, _MAX_EXP_INPUT), splat_like(x, 1.0)
            outside += where_less(size, limit, zeros, ones)  # NaN is outside
    return sum_lanes(outside) == 0


@jit()
def exponentiate(tokens: Array, factor: float) -> None:
    """Replace x = tokens[:, 0] with exp(factor x), its low-order part in [:, 1]."""
    for token in tokens:
        high, low = token[0], token[1]
        for k in range(0, len(high), LANES):
            x = widen(load(high, k)) * splat(factor)
            value = exp(x)
            store(high, k, value)
            store(low, k, value - widen(load(high, k)))


@jit()
def score(
    target: Array, sources: Array, n: int, w: Array, method: int, row: Array
) -> None:
    """Compute row_j = Σ_k w_k h_k for n source tokens j.

    Args:
        target: (2, width), the target token and its low-order part.
        sources: (m, 2, width), the source tokens and their low-order parts; m is at
            least n rounded up to a multiple of four.
        n: Number of source tokens.
        w: (width), weights, padded with zeros to a multiple of eight.
        method: Method of computing a hidden unit.
        row: Output, of length at least n rounded up to a multiple of four.
    """
    zeros, width = splat(w.dtype.type(0)), len(w)
    high, low, b = target[0], target[1], sources
    step = 2 * width
    for j in range(0, n, 4):
        s0 = s1 = s2 = s3 = zeros
        p0 = j * step
        p1, p2, p3 = p0 + step, p0 + 2 * step, p0 + 3 * step
        if method == EXPONENTIAL:
            for k in range(0, width, LANES):
                x, r, factor = load(high, k), load(low, k), load(w, k)
                s0 += factor * _unit(x, r, load(b, p0 + k), load(b, p0 + k + width))
                s1 += factor * _unit(x, r, load(b, p1 + k), load(b, p1 + k + width))
                s2 += factor * _unit(x, r, load(b, p2 + k), load(b, p2 + k + width))
                s3 += factor * _unit(x, r, load(b, p3 + k), load(b, p3 + k + width))
        else:
            for k in range(0, width, LANES):
                x, factor = load(high, k), load(w, k)
                s0 += factor * _activate(x + load(b, p0 + k), zeros, method)
                s1 += factor * _activate(x + load(b, p1 + k), zeros, method)
                s2 += factor * _activate(x + load(b, p2 + k), zeros, method)
                s3 += factor * _activate(x + load(b, p3 + k), zeros, method)
        row[j] = sum_lanes(s0)
        row[j + 1] = sum_lanes(s1)
        row[j + 2] = sum_lanes(s2)
        row[j + 3] = sum_lanes(s3)


@jit()
def accumulate_grads(
    target: Array,
    sources: Array,
    n: int,
    method: int,
    grad: Array,
    grad_a: Array,
    grad_b: Array,
    grad_w: Array,
) -> None:
    """Accumulate gradients; the factor w in ``grad_a`` and ``grad_b`` is left out.

    Args:
        target: Target token, as in `score`.
        sources: Source tokens, as in `score`.
        n: Number of source tokens.
        method: Method of computing a hidden unit.
        grad: ∂ℓ/∂s_ij for the n tokens j, padded with zeros to a multiple of two.
        grad_a: (width), gradient of the target token.
        grad_b: (n or more, width), gradients of the source tokens.
        grad_w: (width), gradient of the weights.
    """
    zeros, width = splat(grad.dtype.type(0)), len(grad_w)
    high, low = target[0], target[1]
    b, source_grads = sources, grad_b
    for k in range(0, width, LANES):
        x, r = load(high, k), load(low, k)
        target_grad, weight_grad = load(grad_a, k), load(grad_w, k)
        for j in range(0, n, 2):
            p0 = 2 * j * width + k
            p1 = p0 + 2 * width
            q0 = j * width + k
            q1 = q0 + width
            g0, g1 = splat(grad[j]), splat(grad[j + 1])
            if method == EXPONENTIAL:
                h0 = _unit(x, r, load(b, p0), load(b, p0 + width))
                h1 = _unit(x, r, load(b, p1), load(b, p1 + width))
                s0, s1 = g0 - g0 * h0 * h0, g1 - g1 * h1 * h1
            else:
                y0, y1 = x + load(b, p0), x + load(b, p1)
                h0, h1 = _activate(y0, zeros, method), _activate(y1, zeros, method)
                if method == RELU:
                    s0 = where_less(zeros, y0, g0, zeros)
                    s1 = where_less(zeros, y1, g1, zeros)
                else:
                    s0, s1 = g0 - g0 * h0 * h0, g1 - g1 * h1 * h1
            weight_grad += g0 * h0 + g1 * h1
            target_grad += s0 + s1
            store(source_grads, q0, load(source_grads, q0) + s0)
            store(source_grads, q1, load(source_grads, q1) + s1)
        store(grad_a, k, target_grad)
        store(grad_w, k, weight_grad)


@jit()
def _activate(x: Any, zeros: Any, method: int) -> Any:
    """Return relu(x) or tanh(x)."""
    return where_less(x, zeros, zeros, x) if method == RELU else math.tanh(x)


@jit()
def _unit(a: Any, a_low: Any, b: Any, b_low: Any) -> Any:
    """Return tanh from two exponentials and their low-order parts."""
    return ((a - b) + (a_low - b_low)) / (a + b)
