"""Grassmann-Taksar-Heyman elimination, compiled, for short texts: a group at a time.

The last axis of every array runs over the L texts of a group, and so does every inner
loop: the loops of one text would be too short to be worth a vector instruction. A text
shorter than the longest of its group is padded with words that nobody walks to, whose
rates are all zero. With at most 64 words the errors of the elimination are so small
that the last step of `gth_long`, evening them out, would not pay.

Letters and factors are those of `gth_cpu`. The factors of a group lie as one (n, n, L)
block where the (N, N) blocks of as many texts would.
"""

import math
from typing import Any

import numpy as np

from perron.solver.compiled import (
    Array,
    jit,
    lost,
    used_words,
    within,
    write_slopes,
)


@jit
def solve_short(
    first: int,
    last: int,
    order: Array,
    groups: Array,
    edges: Array,
    mask: Array,
    weights: Array,
    factors: Array,
    top: int,
    floor: Any,
) -> None:
    """Write the weights of the groups ``first`` to ``last - 1``, and their factors."""
    words = mask.shape[1]
    for group in range(first, last):
        texts = order[groups[group] : groups[group + 1]]
        L = len(texts)
        used = np.empty((L, words), np.int64)
        counts = np.empty(L, np.int64)
        for t in range(L):
            counts[t] = used_words(mask[texts[t]], used[t])
        n = counts[L - 1]
        if n == 0:
            for t in range(L):
                weights[texts[t]] = 0
            continue
        if factors.shape[0] > 0:
            W = _block(factors, groups[group], n, L)
        else:
            W = np.empty((n, n, L), edges.dtype)
        exponents = _pack(edges, texts, used, counts, W)
        _scale(W, counts, exponents, top, floor)
        _eliminate(W)
        W[0, 0] = exponents
        x = np.empty((n, L))
        _balance(W, x)
        for t in range(L):
            weights[texts[t]] = 0
            for a in range(counts[t]):
                weights[texts[t], used[t, a]] = (
                    np.nan if np.isnan(exponents[t]) else x[a, t]
                )


@jit
def _block(factors: Array, first: int, n: int, L: int) -> Array:
    size = factors.shape[1] * factors.shape[2]
    start = first * size
    return factors.reshape(-1)[start : start + n * n * L].reshape(n, n, L)


@jit
def _pack(edges: Array, texts: Array, used: Array, counts: Array, W: Array) -> Array:
    """Copy the rates between words in use to W; return the exponents of their sums.

    A negative, infinite or undefined rate makes that exponent NaN, and its text's rates
    all one.
    """
    n, L = W.shape[0], W.shape[2]
    in_a_row = counts[0] > 0  # each text's words, as most texts have them
    for t in range(L):
        m = counts[t]
        if m > 0:
            in_a_row &= used[t, m - 1] - used[t, 0] == m - 1
            in_a_row &= used[t, 0] + n <= edges.shape[1]
    total = np.zeros(L)
    flaws = np.zeros(L, W.dtype)
    for a in range(n):
        for t in range(L):
            if in_a_row:
                start = used[t, 0]
                row = edges[texts[t], min(start + a, edges.shape[1] - 1)]
                row = row[start : start + n]
                for b in range(n):
                    W[a, b, t] = row[b]
            elif a < counts[t]:
                for b in range(counts[t]):
                    W[a, b, t] = edges[texts[t], used[t, a], used[t, b]]
        W[a, a] = 0
        for b in range(n):
            if max(a, b) >= counts[0]:  # the shortest text
                for t in range(L):
                    if max(a, b) >= counts[t]:
                        W[a, b, t] = 0
            for t in range(L):
                rate = W[a, b, t]
                total[t] += rate
                flaws[t] += abs(rate) - rate  # exactly zero for a rate
    exponents = np.empty(L, W.dtype)
    for t in range(L):
        if flaws[t] == 0 and total[t] < np.inf:
            exponents[t] = math.frexp(total[t])[1]
        else:
            exponents[t] = np.nan
            W[:, :, t] = 1
    return exponents


@jit
def _scale(W: Array, counts: Array, exponents: Array, top: int, floor: Any) -> None:
    """W *= 2**(top - exponent), in two factors because one may be out of range."""
    n, L = W.shape[0], W.shape[2]
    half = np.ones(L, W.dtype)
    rest = np.ones(L, W.dtype)
    low = np.full(L, floor, W.dtype)
    for t in range(L):
        if not np.isnan(exponents[t]):
            shift = top - int(exponents[t])
            half[t] = math.ldexp(1.0, shift // 2)
            rest[t] = math.ldexp(1.0, shift - shift // 2)
    for a in range(n):
        for b in range(n):
            if max(a, b) >= counts[0]:  # the shortest text
                for t in range(L):
                    low[t] = floor if max(a, b) < counts[t] else 0
            for t in range(L):
                rate = W[a, b, t] * half[t] * rest[t]
                W[a, b, t] = low[t] if rate < low[t] else rate
        if a >= counts[0]:
            low[:] = floor


@jit
def _eliminate(W: Array) -> None:
    """Censor the chain to {0..k-1} for k = n-1 .. 1.

    s_k = Σ_{i<k} W_ik;  P_ik = W_ik / s_k;  W_ij += P_ik W_kj.  No subtraction.
    """
    n, L = W.shape[0], W.shape[2]
    share = np.empty(L, W.dtype)
    for k in range(n - 1, 0, -1):
        leaving = W[k, k]
        leaving[:] = 0
        for i in range(k):
            for t in range(L):
                leaving[t] += W[i, k, t]
        for t in range(L):
            if leaving[t] == 0:  # padding
                leaving[t] = 1
            share[t] = 1 / leaving[t]
        for i in range(k):
            P = W[i, k]
            for t in range(L):
                P[t] *= share[t]
            for j in range(k):
                for t in range(L):
                    W[i, j, t] += P[t] * W[k, j, t]


@jit
def _balance(W: Array, x: Array) -> None:
    """x_0 = 1, s_k x_k = Σ_{j<k} W_kj x_j, then x to sum one."""
    n, L = x.shape
    x[0] = 1.0
    total = np.ones(L)
    for k in range(1, n):
        x[k] = 0.0
        for j in range(k):
            for t in range(L):
                x[k, t] += W[k, j, t] * x[j, t]
        for t in range(L):
            x[k, t] /= W[k, k, t]
            total[t] += x[k, t]
        if total.max() > 1e150:
            for t in range(L):
                for j in range(k + 1):
                    x[j, t] /= total[t]
                total[t] = 1.0
    for k in range(n):
        for t in range(L):
            x[k, t] /= total[t]


@jit
def adjoint_short(
    first: int,
    last: int,
    order: Array,
    groups: Array,
    grad: Array,
    factors: Array,
    mask: Array,
    grad_edges: Array,
    top: int,
    huge: float,
    limit: float,
) -> None:
    """Write ∂ℓ/∂A of the groups ``first`` to ``last - 1``."""
    words = mask.shape[1]
    column = np.empty((3, words))
    for group in range(first, last):
        texts = order[groups[group] : groups[group + 1]]
        L = len(texts)
        used = np.empty((L, words), np.int64)
        counts = np.empty(L, np.int64)
        for t in range(L):
            counts[t] = used_words(mask[texts[t]], used[t])
        n = counts[L - 1]
        if n == 0:
            for t in range(L):
                grad_edges[texts[t]] = 0
            continue
        W = _block(factors, groups[group], n, L)
        gamma = np.zeros((n, L))
        for t in range(L):
            for a in range(counts[t]):
                gamma[a, t] = grad[texts[t], used[t, a]]
        alpha = np.empty((n, L))
        _balance(W, alpha)  # not the rounded weights: see `gth_long`
        u = np.empty((n, L))
        rest = np.empty((n, L))
        _adjoint(W, alpha, gamma, u, rest, huge)
        for t in range(L):
            m = counts[t]
            if m < words:
                grad_edges[texts[t]] = 0
            for a in range(m):
                column[0, a] = u[a, t]
                column[1, a] = rest[a, t]
                column[2, a] = alpha[a, t]
            write_slopes(
                column[:, :m],
                used[t, :m],
                top - W[0, 0, t],
                limit,
                grad_edges[texts[t]],
            )


@jit
def _adjoint(
    W: Array, alpha: Array, gamma: Array, u: Array, rest: Array, huge: float
) -> None:
    """Solve Kᵀu = γ - (γᵀα)1 for u + rest with the factors of K, as in `gth_long`."""
    n, L = alpha.shape
    mean = np.zeros(L)
    for t in range(L):
        chief = gamma[np.argmax(alpha[:, t]), t]
        for k in range(n):
            gamma[k, t] -= chief
            mean[t] += gamma[k, t] * alpha[k, t]
    q = np.zeros((n, L))
    for k in range(n - 1, 0, -1):
        for t in range(L):
            u[k, t] = within((gamma[k, t] - mean[t] + q[k, t]) / W[k, k, t], huge)
        for j in range(k):
            for t in range(L):
                q[j, t] += W[k, j, t] * u[k, t]
    u[0] = 0.0
    rest[0] = 0.0
    total = np.empty(L)
    near = np.empty(L)
    off = np.empty(L)
    for k in range(1, n):
        total[:] = 0.0
        near[:] = 0.0
        off[:] = 0.0
        for i in range(k):
            for t in range(L):
                total[t] += W[i, k, t]
                near[t] += W[i, k, t] * u[i, t]
        for t in range(L):
            total[t] = total[t] if total[t] > 0 else 1.0  # padding
            near[t] /= total[t]
        for i in range(k):
            for t in range(L):
                off[t] += W[i, k, t] * ((u[i, t] - near[t]) + rest[i, t])
        for t in range(L):
            small = off[t] / total[t] + u[k, t]
            u[k, t] = near[t] + small
            rest[k, t] = lost(near[t], small)
