"""Grassmann-Taksar-Heyman elimination, compiled, for long texts: one at a time.

Blocks of rows are eliminated and the rest is then updated with all of them, so that a
large graph is read once for each block and not once for each word. Letters and factors
are those of `gth_cpu`.

The gradient takes two triangular sweeps with the same factors.
"""

import math
from typing import Any

import numpy as np

from perron.kernels.compile import Array, jit, jit_sums, used_words
from perron.kernels.gth_parts import lost, within, write_slopes
from perron.kernels.simd import (
    LANES,
    add_lanes,
    any_less,
    put,
    spread,
    take,
    where_less,
    wide,
)

# Rows eliminated before the rest is updated: 8 rows of 400 words stay in the
# first-level cache. 4 and 16 were within 10 % of it from N = 50 to N = 400.
_BLOCK = 8


@jit_sums
def solve_long(
    first: int,
    last: int,
    order: Array,
    grouped: int,
    edges: Array,
    mask: Array,
    weights: Array,
    factors: Array,
    top: int,
    floor: Any,
) -> None:
    """Write weights and factors of this range of the texts after the grouped ones."""
    words = weights.shape[1]
    keep = factors.shape[0] > 0
    A = np.empty((words, words), edges.dtype)
    scratch = np.empty((0 if keep else words, words), edges.dtype)
    used = np.empty(words, np.int64)
    x = np.empty(words)
    spare = np.empty((2, words))
    for place in range(grouped + first, grouped + last):
        text = order[place]
        n = used_words(mask, text, used)
        weights[text] = 0
        if n == 0:
            continue
        W = factors[place] if keep else scratch
        total = _pack(edges[text], used[:n], A)
        if total < np.inf:
            exponent = math.frexp(total)[1]
            _scale(A, W, n, top - exponent, floor)
            _eliminate(W, n)
            W[0, 0] = exponent
            balance(W, n, x)
            _even_out(A, n, x, floor * n * 2.0**64, spare[0], spare[1])
        else:
            x[:n] = np.nan
            W[:n, :n] = np.nan
        for a in range(n):
            weights[text, used[a]] = x[a]


@jit
def _pack(edges: Array, used: Array, A: Array) -> float:
    """Copy the rates between the words in use to A; return their sum.

    A negative or undefined rate makes the sum infinite.
    """
    n = len(used)
    start = used[0]
    side_by_side = used[n - 1] - start == n - 1
    whole = n - n % LANES
    totals, least = spread(0.0), spread(A.dtype.type(0))
    total, flawed = 0.0, False
    for a in range(n):
        source, row = edges[used[a]], A[a]
        if side_by_side:
            for b in range(n):
                row[b] = source[start + b]
        else:
            for b in range(n):
                row[b] = source[used[b]]
        row[a] = 0
        for b in range(0, whole, LANES):
            rates = take(row, b)
            totals += wide(rates)
            least = where_less(rates, least, rates, least)
        for b in range(whole, n):
            total += row[b]
            flawed |= row[b] < 0
    total += add_lanes(totals)
    if flawed or any_less(least, spread(A.dtype.type(0))) or np.isnan(total):
        return np.inf
    # Perhaps only the sum is infinite.
    return total if total < np.inf else A[:n, :n].max()


@jit
def _scale(A: Array, W: Array, n: int, shift: int, floor: Any) -> None:
    """A *= 2**shift, in two factors because one may be out of range; W = A."""
    half = A.dtype.type(math.ldexp(1.0, shift // 2))
    rest = A.dtype.type(math.ldexp(1.0, shift - shift // 2))
    for a in range(n):
        for b in range(n):
            rate = A[a, b] * half * rest
            rate = rate if rate > floor else floor
            A[a, b] = rate
            W[a, b] = rate
        A[a, a] = 0
        W[a, a] = 0


@jit_sums
def _eliminate(W: Array, n: int) -> None:
    """Censor the chain to {0..k-1} for k = n-1 .. 1, in blocks of rows.

    s_k = Σ_{i<k} W_ik;  P_ik = W_ik / s_k;  W_ij += P_ik W_kj.  No subtraction.
    """
    end = n
    while end > 1:
        begin = end - _BLOCK if end > 2 * _BLOCK else 1
        for k in range(end - 1, begin - 1, -1):
            leaving = 0.0
            for i in range(k):
                leaving += W[i, k]
            share = W.dtype.type(1 / leaving)
            for i in range(begin):  # above the block: only its own columns
                P = W[i, k] * share
                W[i, k] = P
                for j in range(begin, k):
                    W[i, j] += P * W[k, j]
            for i in range(begin, k):  # within the block: whole rows
                P = W[i, k] * share
                W[i, k] = P
                for j in range(k):
                    W[i, j] += P * W[k, j]
            W[k, k] = leaving
        if end - begin == _BLOCK:
            _update(W, begin, end)
        end = begin


@jit
def _update(W: Array, begin: int, end: int) -> None:
    """W_ij += Σ_k P_ik W_kj for i, j < begin <= k < end: two rows, four k at a time."""
    whole = begin - begin % LANES
    for i in range(0, begin - 1, 2):
        one, two = W[i], W[i + 1]
        for k in range(begin, end, 4):
            p0, p1, p2, p3 = one[k], one[k + 1], one[k + 2], one[k + 3]
            q0, q1, q2, q3 = two[k], two[k + 1], two[k + 2], two[k + 3]
            a0, a1, a2, a3 = spread(p0), spread(p1), spread(p2), spread(p3)
            b0, b1, b2, b3 = spread(q0), spread(q1), spread(q2), spread(q3)
            s0, s1, s2, s3 = W[k], W[k + 1], W[k + 2], W[k + 3]
            for j in range(0, whole, LANES):
                r0, r1, r2, r3 = take(s0, j), take(s1, j), take(s2, j), take(s3, j)
                put(one, j, take(one, j) + a0 * r0 + a1 * r1 + a2 * r2 + a3 * r3)
                put(two, j, take(two, j) + b0 * r0 + b1 * r1 + b2 * r2 + b3 * r3)
            for j in range(whole, begin):
                one[j] += (p0 * s0[j] + p1 * s1[j]) + (p2 * s2[j] + p3 * s3[j])
                two[j] += (q0 * s0[j] + q1 * s1[j]) + (q2 * s2[j] + q3 * s3[j])
    if begin % 2:
        i = begin - 1
        for k in range(begin, end):
            P = W[i, k]
            for j in range(begin):
                W[i, j] += P * W[k, j]


@jit_sums
def balance(W: Array, n: int, x: Array) -> None:
    """x_0 = 1, s_k x_k = Σ_{j<k} W_kj x_j, then x to sum one."""
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


@jit_sums
def _even_out(
    A: Array, n: int, x: Array, cut_off: float, inflow: Array, outflow: Array
) -> None:
    """One Jacobi step in double precision: x_i <- Σ_j A_ij x_j / Σ_j A_ji.

    The relative errors of x are averaged with the probabilities of the reversed chain:
    the largest cannot grow, and in a well connected graph they all but cancel. A word
    that nearly only zeros join to the others, its outflow below the cut-off, is left
    alone.
    """
    outflow[:n] = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):  # four rows at a time: short loops cost their start
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
    for i in range(whole, n):
        t0 = 0.0
        for j in range(n):
            r0 = np.float64(A[i, j])
            outflow[j] += r0
            t0 += r0 * x[j]
        inflow[i] = t0
    total = 0.0
    for i in range(n):
        if outflow[i] > cut_off:
            x[i] = inflow[i] / outflow[i]
        total += x[i]
    for i in range(n):
        x[i] /= total


@jit_sums
def adjoint_long(
    first: int,
    last: int,
    order: Array,
    grouped: int,
    grad: Array,
    factors: Array,
    mask: Array,
    grad_edges: Array,
    top: int,
    highest: float,
    limit: float,
) -> None:
    """Write ∂ℓ/∂A of this range of the texts after the grouped ones."""
    words = grad.shape[1]
    used = np.empty(words, np.int64)
    gamma = np.empty(words)
    solution = np.empty((3, words))
    P = np.empty((words, words), factors.dtype)
    for place in range(grouped + first, grouped + last):
        text = order[place]
        n = used_words(mask, text, used)
        if n < words:
            grad_edges[text] = 0
        if n == 0:
            continue
        for a in range(n):
            gamma[a] = grad[text, used[a]]
        W = factors[place]
        u, rest, alpha = solution[0], solution[1], solution[2]
        # Not the rounded weights: only the α of these very factors makes γ - (γᵀα)1
        # orthogonal to α, and in a nearly disconnected graph u magnifies the rest.
        balance(W, n, alpha)
        _turn(W, n, P)
        _adjoint(W, P, n, alpha, gamma, u, rest, highest)
        shift = top - W[0, 0]
        write_slopes(solution[:, :n], used[:n], shift, limit, grad_edges[text])


@jit
def _turn(W: Array, n: int, P: Array) -> None:
    """P[k, i] = W[i, k] for i < k, in tiles that fit the cache."""
    for row in range(0, n, 8):
        for column in range(row, n, 8):
            for k in range(column, min(column + 8, n)):
                for i in range(row, min(row + 8, n)):
                    P[k, i] = W[i, k]


@jit_sums
def _adjoint(
    W: Array,
    P: Array,
    n: int,
    alpha: Array,
    gamma: Array,
    u: Array,
    rest: Array,
    highest: float,
) -> None:
    """Solve Kᵀu = γ - (γᵀα)1 with the factors of K, u_0 = 0.

    Down: c_k = (γ_k - γᵀα + q_k) / s_k;  q_j += W_kj c_k for j < k.
    Up:   u_k = c_k + Σ_{i<k} P_ik u_i.

    Where a graph nearly falls apart, the u of each part has a large level of its own,
    in which the differences that make up the gradient would drown. Therefore the way up
    first finds the level, then what is off it, and returns u in two pieces, u + rest.
    And γ is taken relative to that of the heaviest word, whose own difference to the
    mean would otherwise be lost where this word has nearly all the weight. Levels are
    cut at ``highest`` times γ: two pieces hold 32 digits, and no more.
    """
    mean = 0.0
    most = 0.0
    chief = gamma[np.argmax(alpha[:n])]
    for k in range(n):
        gamma[k] -= chief
        mean += gamma[k] * alpha[k]
        most = max(most, highest * abs(gamma[k]))
    q = np.zeros(n)
    for k in range(n - 1, 0, -1):
        c = within((gamma[k] - mean + q[k]) / W[k, k], most)
        u[k] = c
        for j in range(k):
            q[j] += W[k, j] * c
    u[0] = 0.0
    rest[0] = 0.0
    for k in range(1, n):
        total = 0.0
        near = 0.0
        for i in range(k):
            total += P[k, i]
            near += P[k, i] * u[i]
        near /= total
        off = _off_level(P[k], k, u, rest, near)
        small = off / total + u[k]
        u[k] = near + small
        rest[k] = lost(near, small)


@jit
def _off_level(P: Array, k: int, u: Array, rest: Array, near: float) -> float:
    """Σ_{i<k} P_i ((u_i - near) + rest_i), with the brackets as they stand."""
    a = b = c = d = 0.0
    whole = k - k % 4
    for i in range(0, whole, 4):
        a += P[i] * ((u[i] - near) + rest[i])
        b += P[i + 1] * ((u[i + 1] - near) + rest[i + 1])
        c += P[i + 2] * ((u[i + 2] - near) + rest[i + 2])
        d += P[i + 3] * ((u[i + 3] - near) + rest[i + 3])
    for i in range(whole, k):
        a += P[i] * ((u[i] - near) + rest[i])
    return (a + b) + (c + d)
