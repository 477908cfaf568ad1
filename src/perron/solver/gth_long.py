"""Grassmann-Taksar-Heyman elimination, compiled, for long texts: one at a time.

Blocks of rows are eliminated and the rest is then updated with all of them, so that a
large graph is read once for each block and not once for each word. Letters and factors
are those of `gth_cpu`.
"""

import math
from typing import Any

import numpy as np

from perron.solver.compiled import Array, jit, used_words, within

# Rows eliminated before the rest is updated: 8 rows of 400 words stay in the
# first-level cache. 4 and 16 were within 10 % of it from N = 50 to N = 400.
_BLOCK = 8


@jit(regroup_sums=True)
def solve_long(
    first: int,
    last: int,
    edges: Array,
    mask: Array,
    weights: Array,
    factors: Array,
    top: int,
    floor: Any,
) -> None:
    """Write the weights of the texts ``first`` to ``last - 1``, and their factors."""
    words = mask.shape[1]
    keep = factors.shape[0] > 0
    A = np.empty((words, words), edges.dtype)
    scratch = np.empty((0 if keep else words, words), edges.dtype)
    used = np.empty(words, np.int64)
    x = np.empty(words)
    spare = np.empty((2, words))
    for text in range(first, last):
        n = used_words(mask[text], used)
        if n == 0:
            continue
        W = factors[text] if keep else scratch
        total = _pack(edges[text], used[:n], A)
        if total < np.inf:
            exponent = math.frexp(total)[1]
            _scale(A, W, n, top - exponent, floor)
            _eliminate(W, n)
            W[0, 0] = exponent
            _balance(W, n, x)
            _even_out(A, n, x, spare[0], spare[1])
        else:
            x[:n] = np.nan
            W[:n, :n] = np.nan
        for a in range(n):
            weights[text, used[a]] = x[a]


@jit(regroup_sums=True)
def _pack(edges: Array, used: Array, A: Array) -> float:
    """Copy the rates between the words in use to A; return their sum.

    A negative or undefined rate makes the sum infinite.
    """
    n = len(used)
    start = used[0]
    side_by_side = used[n - 1] - start == n - 1
    total = 0.0
    flaws = 0
    for a in range(n):
        i = used[a]
        if side_by_side:
            for b in range(n):
                A[a, b] = edges[i, start + b]
        else:
            for b in range(n):
                A[a, b] = edges[i, used[b]]
        A[a, a] = 0
        for b in range(n):
            rate = A[a, b]
            total += rate
            flaws += 0 if rate >= 0 else 1
    return total if flaws == 0 else np.inf


@jit(regroup_sums=True)
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


@jit(regroup_sums=True)
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


@jit(regroup_sums=True)
def _update(W: Array, begin: int, end: int) -> None:
    """W_ij += Σ_k P_ik W_kj for i, j < begin <= k < end: two rows, four k at a time."""
    for i in range(0, begin - 1, 2):
        for k in range(begin, end, 4):
            p0, p1, p2, p3 = W[i, k], W[i, k + 1], W[i, k + 2], W[i, k + 3]
            q0, q1 = W[i + 1, k], W[i + 1, k + 1]
            q2, q3 = W[i + 1, k + 2], W[i + 1, k + 3]
            for j in range(begin):
                r0, r1, r2, r3 = W[k, j], W[k + 1, j], W[k + 2, j], W[k + 3, j]
                W[i, j] += (p0 * r0 + p1 * r1) + (p2 * r2 + p3 * r3)
                W[i + 1, j] += (q0 * r0 + q1 * r1) + (q2 * r2 + q3 * r3)
    if begin % 2:
        i = begin - 1
        for k in range(begin, end):
            P = W[i, k]
            for j in range(begin):
                W[i, j] += P * W[k, j]


@jit(regroup_sums=True)
def _balance(W: Array, n: int, x: Array) -> None:
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


@jit(regroup_sums=True)
def _even_out(A: Array, n: int, x: Array, inflow: Array, outflow: Array) -> None:
    """One Jacobi step in double precision: x_i <- Σ_j A_ij x_j / Σ_j A_ji.

    The relative errors of x are averaged with the probabilities of the reversed chain:
    the largest cannot grow, and in a well connected graph they all but cancel.
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
    if n > 1:
        total = 0.0
        for i in range(n):
            x[i] = inflow[i] / outflow[i]
            total += x[i]
        for i in range(n):
            x[i] /= total


@jit(regroup_sums=True)
def adjoint_long(
    first: int,
    last: int,
    grad: Array,
    factors: Array,
    mask: Array,
    grad_edges: Array,
    top: int,
    huge: float,
    limit: float,
) -> None:
    """Write ∂ℓ/∂A of the texts ``first`` to ``last - 1``."""
    words = mask.shape[1]
    used = np.empty(words, np.int64)
    alpha = np.empty(words)
    gamma = np.empty(words)
    u = np.empty(words)
    row = np.empty(words)
    for text in range(first, last):
        n = used_words(mask[text], used)
        if n == 0:
            continue
        G = grad_edges[text]
        W = factors[text]
        if np.isnan(W[0, 0]):
            for a in range(n):
                row[a] = np.nan
                _write_row(row, used[a], used[:n], G)
            continue
        for a in range(n):
            gamma[a] = grad[text, used[a]]
        # Not the rounded weights: only the α of these very factors makes γ - (γᵀα)1
        # orthogonal to α, and in a nearly disconnected graph u magnifies the rest.
        _balance(W, n, alpha)
        _adjoint(W, n, alpha, gamma, u, huge)
        shift = top - int(W[0, 0])
        half = math.ldexp(1.0, shift // 2)
        rest = math.ldexp(1.0, shift - shift // 2)
        for a in range(n):
            u[a] *= half
            alpha[a] *= rest
        for a in range(n):
            for b in range(n):
                row[b] = within((u[a] - u[b]) * alpha[b], limit)
            _write_row(row, used[a], used[:n], G)


@jit(regroup_sums=True)
def _adjoint(
    W: Array, n: int, alpha: Array, gamma: Array, u: Array, huge: float
) -> None:
    """Solve Kᵀu = γ - (γᵀα)1 with the factors of K, u_0 = 0.

    Down: c_k = (γ_k - γᵀα + q_k) / s_k;  q_j += W_kj c_k for j < k.
    Up:   u_k = c_k + Σ_{i<k} P_ik u_i.
    """
    mean = 0.0
    for k in range(n):
        mean += gamma[k] * alpha[k]
    q = np.zeros(n)
    u[0] = 0.0
    for k in range(n - 1, 0, -1):
        c = within((gamma[k] - mean + q[k]) / W[k, k], huge)
        u[k] = c
        for j in range(k):
            q[j] += W[k, j] * c
    for i in range(n):
        rise = u[i]
        for k in range(i + 1, n):
            u[k] += W[i, k] * rise


@jit(regroup_sums=True)
def _write_row(row: Array, i: int, used: Array, G: Array) -> None:
    n = len(used)
    start = used[0]
    if used[n - 1] - start == n - 1:
        for b in range(n):
            G[i, start + b] = row[b]
    else:
        for b in range(n):
            G[i, used[b]] = row[b]
