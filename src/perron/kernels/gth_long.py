"""Compiled Grassmann-Taksar-Heyman elimination for long texts, one at a time.

The elimination is blocked: a block of rows is eliminated, then the remaining matrix is
updated with the entire block. A large graph is read once per block, not once per token.
Notation and factors are the same as in `gth_cpu`.

The backward pass takes two triangular sweeps with the same factors.
"""

import math
from typing import Any

import numpy as np

from perron.kernels.compile import (
    Array,
    clamp,
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
    sum_lanes,
    where_less,
    widen,
)

# Rows per block. 8 rows of 400 tokens stay in the L1 cache. Times with 4 and 16 rows
# were within 10% from N = 50 to N = 400.
_BLOCK = 8


@jit(entry=True, reassoc=True)
def solve_long(
    first: int,
    last: int,
    order: Array,
    grouped: int,
    edges: Array,
    mask: Array,
    weights: Array,
    factors: Array,
    scale_exponent: int,
    min_rate: Any,
) -> None:
    """Compute weights and factors of a range of the texts that are not in a group."""
    tokens = weights.shape[1]
    keep = factors.shape[0] > 0
    A = np.empty((tokens, tokens), edges.dtype)
    scratch = np.empty((0 if keep else tokens, tokens), edges.dtype)
    positions = np.empty(tokens, np.int64)
    x = np.empty(tokens)
    buffers = np.empty((2, tokens))
    for index in range(grouped + first, grouped + last):
        text = order[index]
        n = valid_positions(mask, text, positions)
        weights[text] = 0
        if n == 0:
            continue
        W = factors[index] if keep else scratch
        total = _pack(edges[text], positions[:n], A)
        if total < np.inf:
            exponent = math.frexp(total)[1]
            _scale(A, W, n, scale_exponent - exponent, min_rate)
            _eliminate(W, n)
            W[0, 0] = exponent
            _back_substitute(W, n, x)
            min_outflow = min_rate * n * 2.0**64
            _jacobi_refine(A, n, x, min_outflow, buffers[0], buffers[1])
        else:
            x[:n] = np.nan
            W[:n, :n] = np.nan
        for a in range(n):
            weights[text, positions[a]] = x[a]


@jit()
def _pack(edges: Array, positions: Array, A: Array) -> float:
    """Copy the rates between valid tokens to A; return their sum.

    If a rate is negative or NaN, the sum is infinite.
    """
    n = len(positions)
    start = positions[0]
    contiguous = positions[n - 1] - start == n - 1
    vector_end = n - n % LANES
    totals, smallest = splat(0.0), splat(A.dtype.type(0))
    total, negative = 0.0, False
    for a in range(n):
        source, row = edges[positions[a]], A[a]
        if contiguous:
            for b in range(n):
                row[b] = source[start + b]
        else:
            for b in range(n):
                row[b] = source[positions[b]]
        row[a] = 0
        for b in range(0, vector_end, LANES):
            rates = load(row, b)
            totals += widen(rates)
            smallest = where_less(rates, smallest, rates, smallest)
        for b in range(vector_end, n):
            total += row[b]
            negative |= row[b] < 0
    total += sum_lanes(totals)
    if negative or any_less(smallest, splat(A.dtype.type(0))) or total != total:
        return np.inf
    if total == np.inf:
        # If the sum overflowed although all rates are finite, use the largest rate.
        total = 0.0
        for a in range(n):
            for b in range(n):
                total = A[a, b] if A[a, b] > total else total
    return total


@jit()
def _scale(A: Array, W: Array, n: int, shift: int, min_rate: Any) -> None:
    """Scale A by 2**shift and copy it to W.

    The scale is applied as two factors, because 2**shift itself may overflow.
    """
    half = A.dtype.type(math.ldexp(1.0, shift // 2))
    second_half = A.dtype.type(math.ldexp(1.0, shift - shift // 2))
    for a in range(n):
        for b in range(n):
            rate = A[a, b] * half * second_half
            rate = rate if rate > min_rate else min_rate
            A[a, b] = rate
            W[a, b] = rate
        A[a, a] = 0
        W[a, a] = 0


@jit(reassoc=True)
def _eliminate(W: Array, n: int) -> None:
    """Censor the chain to {0..k-1} for k = n-1 .. 1, in blocks of rows.

    s_k = Σ_{i<k} W_ik;  P_ik = W_ik / s_k;  W_ij += P_ik W_kj.  No subtractions.
    """
    end = n
    while end > 1:
        begin = end - _BLOCK if end > 2 * _BLOCK else 1
        for k in range(end - 1, begin - 1, -1):
            exit_rate = 0.0
            for i in range(k):
                exit_rate += W[i, k]
            inverse = W.dtype.type(1 / exit_rate)
            for i in range(begin):  # above the block: only the columns of the block
                P = W[i, k] * inverse
                W[i, k] = P
                for j in range(begin, k):
                    W[i, j] += P * W[k, j]
            for i in range(begin, k):  # inside the block: entire rows
                P = W[i, k] * inverse
                W[i, k] = P
                for j in range(k):
                    W[i, j] += P * W[k, j]
            W[k, k] = exit_rate
        if end - begin == _BLOCK:
            _update(W, begin, end)
        end = begin


@jit()
def _update(W: Array, begin: int, end: int) -> None:
    """Compute W_ij += Σ_k P_ik W_kj for i, j < begin <= k < end.

    Tiles of two rows i and four k are kept in registers.
    """
    vector_end = begin - begin % LANES
    for i in range(0, begin - 1, 2):
        one, two = W[i], W[i + 1]
        for k in range(begin, end, 4):
            p0, p1, p2, p3 = one[k], one[k + 1], one[k + 2], one[k + 3]
            q0, q1, q2, q3 = two[k], two[k + 1], two[k + 2], two[k + 3]
            a0, a1, a2, a3 = splat(p0), splat(p1), splat(p2), splat(p3)
            b0, b1, b2, b3 = splat(q0), splat(q1), splat(q2), splat(q3)
            s0, s1, s2, s3 = W[k], W[k + 1], W[k + 2], W[k + 3]
            for j in range(0, vector_end, LANES):
                r0, r1, r2, r3 = load(s0, j), load(s1, j), load(s2, j), load(s3, j)
                store(one, j, load(one, j) + a0 * r0 + a1 * r1 + a2 * r2 + a3 * r3)
                store(two, j, load(two, j) + b0 * r0 + b1 * r1 + b2 * r2 + b3 * r3)
            for j in range(vector_end, begin):
                one[j] += (p0 * s0[j] + p1 * s1[j]) + (p2 * s2[j] + p3 * s3[j])
                two[j] += (q0 * s0[j] + q1 * s1[j]) + (q2 * s2[j] + q3 * s3[j])
    if begin % 2:
        i = begin - 1
        for k in range(begin, end):
            P = W[i, k]
            for j in range(begin):
                W[i, j] += P * W[k, j]


@jit(reassoc=True)
def _back_substitute(W: Array, n: int, x: Array) -> None:
    """Solve x_0 = 1, s_k x_k = Σ_{j<k} W_kj x_j, then normalize x to sum to one."""
    x[0] = 1.0
    total = 1.0
    for k in range(1, n):
        inflow = 0.0
        for j in range(k):
            inflow += W[k, j] * x[j]
        x[k] = inflow / W[k, k]
        total += x[k]
        if total > 1e150:
            for j in range(k + 1):
                x[j] /= total
            total = 1.0
    for k in range(n):
        x[k] /= total


@jit(reassoc=True)
def _jacobi_refine(
    A: Array, n: int, x: Array, min_outflow: float, inflow: Array, outflow: Array
) -> None:
    """Refine x by one Jacobi iteration in float64: x_i = Σ_j A_ij x_j / Σ_j A_ji.

    This averages the relative errors of x with the transition probabilities of the
    reversed chain. The largest error cannot grow, and in a well-connected graph the
    errors nearly cancel. Words whose outflow is below ``min_outflow``, because almost
    all of their edges are zero, are not changed.
    """
    outflow[:n] = 0.0
    unrolled_end = n - n % 4
    for i in range(0, unrolled_end, 4):  # four rows at once, to amortize loop overhead
        t0 = t1 = t2 = t3 = 0.0
        for j in range(n):
            r0, r1 = np.float64(A[i, j]), np.float64(A[i + 1, j])
            r2, r3 = np.float64(A[i + 2, j]), np.float64(A[i + 3, j])
            outflow[j] += (r0 + r1) + (r2 + r3)
            t0 += r0 * x[j]
            t1 += r1 * x[j]
            t2 += r2 * x[j]
            t3 += r3 * x[j]
        inflow[i], inflow[i + 1], inflow[i + 2], inflow[i + 3] = t0, t1, t2, t3
    for i in range(unrolled_end, n):
        t0 = 0.0
        for j in range(n):
            r0 = np.float64(A[i, j])
            outflow[j] += r0
            t0 += r0 * x[j]
        inflow[i] = t0
    total = 0.0
    for i in range(n):
        if outflow[i] > min_outflow:
            x[i] = inflow[i] / outflow[i]
        total += x[i]
    for i in range(n):
        x[i] /= total


@jit(entry=True, reassoc=True)
def adjoint_long(
    first: int,
    last: int,
    order: Array,
    grouped: int,
    grad: Array,
    factors: Array,
    mask: Array,
    grad_edges: Array,
    scale_exponent: int,
    max_level: float,
    limit: float,
) -> None:
    """Compute ∂ℓ/∂A of a range of the texts that are not in a group."""
    tokens = grad.shape[1]
    positions = np.empty(tokens, np.int64)
    gamma = np.empty(tokens)
    solution = np.empty((3, tokens))
    P = np.empty((tokens, tokens), factors.dtype)
    for index in range(grouped + first, grouped + last):
        text = order[index]
        n = valid_positions(mask, text, positions)
        if n < tokens:
            grad_edges[text] = 0
        if n == 0:
            continue
        for a in range(n):
            gamma[a] = grad[text, positions[a]]
        W = factors[index]
        u, low, alpha = solution[0], solution[1], solution[2]
        # Recompute α instead of using the rounded weights. Only the α of these factors
        # makes γ - (γᵀα)1 orthogonal to α, and in a nearly disconnected graph u
        # amplifies any deviation.
        _back_substitute(W, n, alpha)
        _transpose_upper(W, n, P)
        _adjoint(W, P, n, alpha, gamma, u, low, max_level)
        shift = scale_exponent - W[0, 0]
        out = grad_edges[text]
        write_edge_grads(solution[:, :n], positions[:n], shift, limit, out)


@jit()
def _transpose_upper(W: Array, n: int, P: Array) -> None:
    """Copy P[k, i] = W[i, k] for i < k, in tiles that fit in the cache."""
    for row in range(0, n, 8):
        for column in range(row, n, 8):
            for k in range(column, column + 8 if column + 8 < n else n):
                for i in range(row, row + 8 if row + 8 < n else n):
                    P[k, i] = W[i, k]


@jit(reassoc=True)
def _adjoint(
    W: Array,
    P: Array,
    n: int,
    alpha: Array,
    gamma: Array,
    u: Array,
    low: Array,
    max_level: float,
) -> None:
    """Solve Kᵀu = γ - (γᵀα)1 with the factors of K, u_0 = 0.

    Backward sweep: c_k = (γ_k - γᵀα + q_k) / s_k;  q_j += W_kj c_k for j < k.
    Forward sweep:  u_k = c_k + Σ_{i<k} P_ik u_i.

    In a nearly disconnected graph, u has a large and different level in each component,
    and the differences that make up the gradient would be lost to rounding. Therefore
    the forward sweep first computes the level, then the deviation from it, and returns
    u as an unevaluated sum of two doubles, u + low. γ is taken relative to the γ of the
    token with the largest weight; otherwise the difference between that γ and the mean
    would be lost if this token has nearly all the weight. Levels are clamped to
    ``max_level`` times γ, because two doubles hold only 32 digits.
    """
    mean = 0.0
    bound = 0.0
    heaviest = 0
    for k in range(1, n):
        if alpha[k] > alpha[heaviest]:
            heaviest = k
    reference = gamma[heaviest]
    q = np.empty(n)
    for k in range(n):
        gamma[k] -= reference
        mean += gamma[k] * alpha[k]
        level = max_level * abs(gamma[k])
        bound = level if level > bound else bound
        q[k] = 0.0
    for k in range(n - 1, 0, -1):
        c = clamp((gamma[k] - mean + q[k]) / W[k, k], bound)
        u[k] = c
        for j in range(k):
            q[j] += W[k, j] * c
    u[0] = 0.0
    low[0] = 0.0
    for k in range(1, n):
        total = 0.0
        level = 0.0
        for i in range(k):
            total += P[k, i]
            level += P[k, i] * u[i]
        level /= total
        deviation = _sum_deviations(P[k], k, u, low, level)
        small = deviation / total + u[k]
        u[k] = level + small
        low[k] = two_sum_error(level, small)


@jit()
def _sum_deviations(P: Array, k: int, u: Array, low: Array, level: float) -> float:
    """Return Σ_{i<k} P_i ((u_i - level) + low_i), evaluated in this order."""
    a = b = c = d = 0.0
    unrolled_end = k - k % 4
    for i in range(0, unrolled_end, 4):
        a += P[i] * ((u[i] - level) + low[i])
        b += P[i + 1] * ((u[i + 1] - level) + low[i + 1])
        c += P[i + 2] * ((u[i + 2] - level) + low[i + 2])
        d += P[i + 3] * ((u[i + 3] - level) + low[i + 3])
    for i in range(unrolled_end, k):
        a += P[i] * ((u[i] - level) + low[i])
    return (a + b) + (c + d)
