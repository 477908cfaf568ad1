"""Compiled Grassmann-Taksar-Heyman elimination for short texts, eight at a time.

The loops over a single short text are too short to benefit from SIMD instructions.
Instead, eight texts of similar length are interleaved, one per SIMD lane. Texts shorter
than the longest of their group are padded with tokens whose rates are all zero. With at
most 64 tokens, the rounding errors of the elimination are so small that the Jacobi
refinement of `gth_long` would not be worth its cost.

Notation and factors are the same as in `gth_cpu`. All arrays are flat. Token k of text
t is at ``x[8 k + t]``, and the factor W_ik of n tokens at ``W[8 (n i + k) + t]``.
"""

import math
from typing import Any

import numpy as np

from perron.kernels.compile import (
    Array,
    jit,
    two_sum_error,
    valid_positions,
    write_edge_grads,
)
from perron.kernels.simd import (
    LANES,
    any_less,
    load,
    splat,
    store,
    transpose,
    where_less,
    widen,
)


@jit(entry=True)
def solve_short(
    first: int,
    last: int,
    order: Array,
    edges: Array,
    mask: Array,
    weights: Array,
    factors: Array,
    scale_exponent: int,
    min_rate: Any,
) -> None:
    """Compute weights and factors of the groups ``first`` to ``last - 1``."""
    tokens = weights.shape[1]
    keep = len(factors) > 0
    scratch = np.empty(0 if keep else LANES * tokens * tokens, edges.dtype)
    positions = np.empty((LANES, tokens), np.int64)
    counts = np.empty(LANES, np.int64)
    exponents = np.empty(LANES, edges.dtype)
    x = np.empty(LANES * tokens)
    for group in range(first, last):
        texts = order[LANES * group : LANES * (group + 1)]
        for t in range(LANES):
            counts[t] = valid_positions(mask, texts[t], positions[t])
            weights[texts[t]] = 0
        n = counts[LANES - 1]  # the longest
        if n == 0:
            continue
        W = scratch
        if keep:
            start = LANES * group * tokens * tokens
            W = factors[start : start + LANES * n * n]
        _pack(edges, texts, positions, counts, W)
        _scale(W, counts, exponents, scale_exponent, min_rate)
        _eliminate(W, n)
        store(W, 0, load(exponents, 0))
        _back_substitute(W, n, x)
        for t in range(LANES):
            for a in range(counts[t]):
                weight = x[LANES * a + t]
                valid = exponents[t] == exponents[t]  # not NaN
                weights[texts[t], positions[t, a]] = weight if valid else np.nan


@jit()
def _pack(
    edges: Array, texts: Array, positions: Array, counts: Array, W: Array
) -> None:
    """Copy the rates between valid tokens to W, with zeros on the diagonal."""
    n, tokens = counts[LANES - 1], edges.shape[1]
    if counts[0] < n:
        W[: LANES * n * n] = 0
    contiguous = True
    starts = np.empty(LANES, np.int64)
    for t in range(LANES):
        m = counts[t]
        contiguous &= m > 0 and positions[t, m - 1] - positions[t, 0] == m - 1
        starts[t] = (texts[t] * tokens + positions[t, 0]) * tokens + positions[t, 0]
    transposed = counts[0] if contiguous and counts[0] >= LANES else 0
    for a in range(transposed):
        for b in range(0, transposed, LANES):
            if b > transposed - LANES:
                b = transposed - LANES  # the last tile may overlap the previous one
            transpose(W, LANES * (n * a + b), edges, starts, a * tokens + b)
    for t in range(LANES):
        graph = edges[texts[t]]
        for a in range(counts[t]):
            offset = LANES * n * a + t
            begin = transposed if a < transposed else 0
            if begin < counts[t]:
                row = graph[positions[t, a]]
                for b in range(begin, counts[t]):
                    W[offset + LANES * b] = row[positions[t, b]]
            W[offset + LANES * a] = 0


@jit()
def _scale(
    W: Array, counts: Array, exponents: Array, scale_exponent: int, min_rate: Any
) -> None:
    """Scale the rates of each text to a sum of about 2**scale_exponent.

    The exponent of the original sum is stored in ``exponents``. If a rate is negative,
    infinite or NaN, the exponent is NaN and all rates of its text are set to one.
    """
    n = counts[LANES - 1]
    total, smallest = splat(0.0), splat(W.dtype.type(0))
    for offset in range(0, LANES * n * n, LANES):
        rates = load(W, offset)
        total += widen(rates)
        smallest = where_less(rates, smallest, rates, smallest)
    buffer = np.empty((3, LANES), W.dtype)
    totals = np.empty(LANES)
    store(totals, 0, total)
    store(buffer[0], 0, smallest)
    for t in range(LANES):
        if totals[t] == np.inf:  # the sum may have overflowed with finite rates
            totals[t] = 0
            for offset in range(t, LANES * n * n, LANES):
                totals[t] = W[offset] if W[offset] > totals[t] else totals[t]
        valid = buffer[0, t] == 0 and totals[t] < np.inf
        exponents[t] = math.frexp(totals[t])[1] if valid else np.nan
        shift = scale_exponent - int(exponents[t]) if valid else 0
        # Two factors, because 2**shift itself may overflow.
        buffer[1, t] = math.ldexp(1.0, shift // 2)
        buffer[2, t] = math.ldexp(1.0, shift - shift // 2)
        if not valid:
            for offset in range(t, LANES * n * n, LANES):
                W[offset] = 1
    half, second_half = load(buffer[1], 0), load(buffer[2], 0)
    low = splat(min_rate)
    for offset in range(0, LANES * n * n, LANES):
        rates = load(W, offset) * half * second_half
        store(W, offset, where_less(rates, low, low, rates))  # NaN stays NaN
    for t in range(LANES):
        for a in range(n if counts[t] < n else 0):
            for b in range(0 if a >= counts[t] else counts[t], n):
                W[LANES * (n * a + b) + t] = 0


@jit()
def _eliminate(W: Array, n: int) -> None:
    """Censor the chain to {0..k-1} for k = n-1 .. 1, in blocks of four tokens.

    s_k = Σ_{i<k} W_ik;  P_ik = W_ik / s_k;  W_ij += P_ik W_kj.  No subtractions.
    """
    row = LANES * n
    for last in range(n - 1, 0, -4):
        first = last - 3 if last > 4 else 1
        for k in range(last, first - 1, -1):
            for m in range(last, k, -1):  # update row and column k
                to_k = load(W, row * k + LANES * m)
                from_k = load(W, row * m + LANES * k)
                for j in range(k):
                    kj, jk = row * k + LANES * j, row * j + LANES * k
                    mj, jm = row * m + LANES * j, row * j + LANES * m
                    store(W, kj, load(W, kj) + to_k * load(W, mj))
                    store(W, jk, load(W, jk) + load(W, jm) * from_k)
            _normalize_column(W, n, k)
        if last > 3:
            _update(W, n, first)


@jit()
def _normalize_column(W: Array, n: int, k: int) -> None:
    """Set W_kk = s_k, and W_ik = P_ik for i < k."""
    row, column = LANES * n, LANES * k
    zeros, ones = splat(W.dtype.type(0)), splat(W.dtype.type(1))
    exit_rate = zeros
    for i in range(k):
        exit_rate += load(W, row * i + column)
    exit_rate = where_less(zeros, exit_rate, exit_rate, ones)  # one for padding
    store(W, row * k + column, exit_rate)
    inverse = ones / exit_rate
    for i in range(k):
        store(W, row * i + column, load(W, row * i + column) * inverse)


@jit()
def _update(W: Array, n: int, first: int) -> None:
    """Compute W_ij += Σ_m P_im W_mj for i, j < first <= m < first + 4."""
    row, to = LANES * n, LANES * first
    for i in range(0, row * (first - 1), 2 * row):
        # Two rows at once, so each loaded W_mj is used twice.
        h = i + row
        i0, i1, i2, i3 = _load_four(W, i + to, LANES)
        h0, h1, h2, h3 = _load_four(W, h + to, LANES)
        for j in range(0, to, LANES):
            m0, m1, m2, m3 = _load_four(W, row * first + j, row)
            store(W, i + j, load(W, i + j) + i0 * m0 + i1 * m1 + i2 * m2 + i3 * m3)
            store(W, h + j, load(W, h + j) + h0 * m0 + h1 * m1 + h2 * m2 + h3 * m3)
    if first % 2:
        i = row * (first - 1)
        i0, i1, i2, i3 = _load_four(W, i + to, LANES)
        for j in range(0, to, LANES):
            m0, m1, m2, m3 = _load_four(W, row * first + j, row)
            store(W, i + j, load(W, i + j) + i0 * m0 + i1 * m1 + i2 * m2 + i3 * m3)


@jit()
def _load_four(W: Array, offset: int, stride: int) -> Any:
    return (
        load(W, offset),
        load(W, offset + stride),
        load(W, offset + 2 * stride),
        load(W, offset + 3 * stride),
    )


@jit()
def _back_substitute(W: Array, n: int, x: Array) -> None:
    """Solve x_0 = 1, s_k x_k = Σ_{j<k} W_kj x_j, then normalize x to sum to one."""
    row = LANES * n
    total = splat(1.0)
    store(x, 0, total)
    for k in range(1, n):
        inflow = splat(0.0)
        for j in range(k):
            inflow += widen(load(W, row * k + LANES * j)) * load(x, LANES * j)
        value = inflow / widen(load(W, row * k + LANES * k))
        store(x, LANES * k, value)
        total += value
        if any_less(splat(1e150), total):
            _divide(x, k + 1, total)
            total = splat(1.0)
    _divide(x, n, total)


@jit()
def _divide(x: Array, n: int, total: Any) -> None:
    """Divide the first n entries of x by the total."""
    inverse = splat(1.0) / total
    for k in range(0, LANES * n, LANES):
        store(x, k, load(x, k) * inverse)


@jit(entry=True)
def adjoint_short(
    first: int,
    last: int,
    order: Array,
    grad: Array,
    factors: Array,
    mask: Array,
    grad_edges: Array,
    scale_exponent: int,
    max_level: float,
    limit: float,
) -> None:
    """Compute ∂ℓ/∂A of the groups ``first`` to ``last - 1``."""
    tokens = grad.shape[1]
    positions = np.empty((LANES, tokens), np.int64)
    counts = np.empty(LANES, np.int64)
    gamma, alpha = np.empty(LANES * tokens), np.empty(LANES * tokens)
    u, low = np.empty(LANES * tokens), np.empty(LANES * tokens)
    solution = np.empty((3, tokens))
    for group in range(first, last):
        texts = order[LANES * group : LANES * (group + 1)]
        for t in range(LANES):
            counts[t] = valid_positions(mask, texts[t], positions[t])
            if counts[t] < tokens:
                grad_edges[texts[t]] = 0
        n = counts[LANES - 1]
        if n == 0:
            continue
        start = LANES * group * tokens * tokens
        W = factors[start : start + LANES * n * n]
        gamma[: LANES * n] = 0.0
        for t in range(LANES):
            for a in range(counts[t]):
                gamma[LANES * a + t] = grad[texts[t], positions[t, a]]
        _back_substitute(W, n, alpha)  # not the rounded weights; see `gth_long`
        _adjoint(W, n, alpha, gamma, u, low, max_level)
        for t in range(LANES):
            m = counts[t]
            for a in range(m):
                solution[0, a] = u[LANES * a + t]
                solution[1, a] = low[LANES * a + t]
                solution[2, a] = alpha[LANES * a + t]
            shift = scale_exponent - W[t]
            out = grad_edges[texts[t]]
            write_edge_grads(solution, positions[t, :m], shift, limit, out)


@jit()
def _adjoint(
    W: Array,
    n: int,
    alpha: Array,
    gamma: Array,
    u: Array,
    low: Array,
    max_level: float,
) -> None:
    """Solve Kᵀu = γ - (γᵀα)1 for u + low with the factors of K, as in `gth_long`."""
    row = LANES * n
    zeros = splat(0.0)
    bound = _subtract_reference(alpha, gamma, n) * splat(max_level)
    mean = zeros
    for k in range(0, row, LANES):
        mean += load(gamma, k) * load(alpha, k)
        store(u, k, zeros)
    for k in range(n - 1, 0, -1):  # u accumulates q, then holds c
        at = LANES * k
        c = (load(gamma, at) - mean + load(u, at)) / widen(load(W, row * k + at))
        c = where_less(c, zeros - bound, zeros - bound, where_less(bound, c, bound, c))
        store(u, at, c)
        for j in range(0, at, LANES):
            store(u, j, load(u, j) + widen(load(W, row * k + j)) * c)
    store(u, 0, zeros)
    store(low, 0, zeros)
    for k in range(1, n):
        at = LANES * k
        total, level, deviation = zeros, zeros, zeros
        for i in range(k):
            probability = widen(load(W, row * i + at))
            total += probability
            level += probability * load(u, LANES * i)
        total = where_less(zeros, total, total, splat(1.0))  # one for padding
        level /= total
        for i in range(k):
            difference = (load(u, LANES * i) - level) + load(low, LANES * i)
            deviation += widen(load(W, row * i + at)) * difference
        small = deviation / total + load(u, at)
        store(u, at, level + small)
        store(low, at, two_sum_error(level, small))


@jit()
def _subtract_reference(alpha: Array, gamma: Array, n: int) -> Any:
    """Subtract the γ of the token with the largest weight; return the largest |γ|."""
    max_weight, reference, max_size = load(alpha, 0), load(gamma, 0), splat(0.0)
    for k in range(LANES, LANES * n, LANES):
        weight = load(alpha, k)
        reference = where_less(max_weight, weight, load(gamma, k), reference)
        max_weight = where_less(max_weight, weight, weight, max_weight)
    for k in range(0, LANES * n, LANES):
        value = load(gamma, k) - reference
        store(gamma, k, value)
        size = where_less(value, splat(0.0), splat(0.0) - value, value)
        max_size = where_less(max_size, size, size, max_size)
    return max_size
