"""Grassmann-Taksar-Heyman elimination, compiled, for short texts: eight at a time.

The loops of one short text are too short to be worth vector instructions, so that eight
texts of about one length lie side by side, one in each lane. A text shorter than the
longest of its group is padded with words that nobody walks to, whose rates are all
zero. With at most 64 words the errors of the elimination are so small that the last
step of `gth_long`, evening them out, would not pay.

Letters and factors are those of `gth_cpu`. All arrays are flat: word k of text t is at
``x[8 k + t]``, and the factor W_ik of n words at ``W[8 (n i + k) + t]``.
"""

import math
from typing import Any

import numpy as np

from perron.solver.compiled import Array, jit, used_words
from perron.solver.gth_parts import lost, within, write_slopes
from perron.solver.lanes import (
    LANES,
    add_multiples,
    add_products,
    add_products_off,
    add_two_multiples,
    add_up,
    multiply,
    scale_up,
    turn,
)


@jit
def solve_short(
    first: int,
    last: int,
    order: Array,
    edges: Array,
    mask: Array,
    weights: Array,
    factors: Array,
    top: int,
    floor: Any,
) -> None:
    """Write the weights of the groups ``first`` to ``last - 1``, and their factors."""
    words = mask.shape[1]
    keep = factors.shape[0] > 0
    scratch = np.empty(0 if keep else LANES * words * words, edges.dtype)
    used = np.empty((LANES, words), np.int64)
    counts = np.empty(LANES, np.int64)
    exponents = np.empty(LANES, edges.dtype)
    x = np.empty(LANES * words)
    for group in range(first, last):
        texts = order[LANES * group : LANES * (group + 1)]
        for t in range(LANES):
            counts[t] = used_words(mask[texts[t]], used[t])
            weights[texts[t]] = 0
        n = counts[LANES - 1]  # the longest
        if n == 0:
            continue
        W = _block(factors, group, n) if keep else scratch
        _pack(edges, texts, used, counts, W)
        _scale(W, counts, exponents, top, floor)
        _eliminate(W, n)
        W[:LANES] = exponents
        _balance(W, n, x)
        for t in range(LANES):
            for a in range(counts[t]):
                share = x[LANES * a + t]
                weights[texts[t], used[t, a]] = (
                    np.nan if np.isnan(exponents[t]) else share
                )


@jit
def _block(factors: Array, group: int, n: int) -> Array:
    """Return the place of a group's factors: that of eight texts' (N, N)."""
    start = LANES * group * factors.shape[1] * factors.shape[2]
    return factors.reshape(-1)[start : start + LANES * n * n]


@jit
def _pack(edges: Array, texts: Array, used: Array, counts: Array, W: Array) -> None:
    """Copy the rates between words in use to W, with zeros on the diagonal."""
    n, words = counts[LANES - 1], edges.shape[1]
    if counts[0] < n:
        W[: LANES * n * n] = 0
    in_a_row = True  # as most texts have their words
    places = np.empty(LANES, np.int64)
    for t in range(LANES):
        m = counts[t]
        in_a_row &= m > 0 and used[t, m - 1] - used[t, 0] == m - 1
        places[t] = (texts[t] * words + used[t, 0]) * words + used[t, 0]
    rates = edges.reshape(-1)
    together = counts[0] if in_a_row and counts[0] >= LANES else 0
    for a in range(together):
        for b in range(0, together, LANES):
            b = min(b, together - LANES)  # the last block may overlap the one before
            turn(W, LANES * (n * a + b), rates, places, a * words + b)
    for t in range(LANES):
        graph = edges[texts[t]]
        for a in range(counts[t]):
            place = LANES * n * a + t
            begin = together if a < together else 0
            if begin < counts[t]:
                row = graph[used[t, a]]
                for b in range(begin, counts[t]):
                    W[place + LANES * b] = row[used[t, b]]
            W[place + LANES * a] = 0


@jit
def _scale(W: Array, counts: Array, exponents: Array, top: int, floor: Any) -> None:
    """Scale each text's rates so that their sum is about 2**top; note the exponents.

    A negative, infinite or undefined rate makes the exponent NaN, and the rates one.
    """
    n = counts[LANES - 1]
    total = np.zeros(LANES)
    least = np.zeros(LANES, W.dtype)
    add_up(total, least, W, 0, LANES, n * n)
    half = np.ones(LANES, W.dtype)
    rest = np.ones(LANES, W.dtype)
    low = np.full(LANES, floor, W.dtype)
    for t in range(LANES):
        if total[t] == np.inf:  # perhaps only the sum is
            total[t] = W[t : LANES * n * n : LANES].max()
        if least[t] == 0 and total[t] < np.inf:
            exponents[t] = math.frexp(total[t])[1]
            shift = top - int(exponents[t])
            # Two factors, because one may be out of range.
            half[t] = math.ldexp(1.0, shift // 2)
            rest[t] = math.ldexp(1.0, shift - shift // 2)
        else:
            exponents[t] = np.nan
            for place in range(n * n):
                W[LANES * place + t] = 1
    scale_up(W, 0, half, rest, low, n * n)
    for t in range(LANES):
        for a in range(n if counts[t] < n else 0):
            for b in range(0 if a >= counts[t] else counts[t], n):
                W[LANES * (n * a + b) + t] = 0


@jit
def _eliminate(W: Array, n: int) -> None:
    """Censor the chain to {0..k-1} for k = n-1 .. 1, two words in one go.

    s_k = Σ_{i<k} W_ik;  P_ik = W_ik / s_k;  W_ij += P_ik W_kj.  No subtraction.
    """
    row = LANES * n
    share = np.empty(LANES, W.dtype)
    ones = np.ones(LANES, W.dtype)
    for k in range(n - 1, 0, -2):
        _leave(W, n, k, share, ones)
        h = k - 1
        if h == 0:
            break
        at_k, at_h = LANES * k, LANES * h
        # Row h and column h first: they are needed to eliminate h.
        add_multiples(W, h * row, LANES, W, k * row, LANES, W, h * row + at_k, h)
        add_multiples(W, at_h, row, W, at_k, row, W, k * row + at_h, h)
        _leave(W, n, h, share, ones)
        for i in range(h):
            y = i * row
            add_two_multiples(W, y, y + at_k, k * row, y + at_h, h * row, h)


@jit
def _leave(W: Array, n: int, k: int, share: Array, ones: Array) -> None:
    """W_kk = s_k; W_ik = P_ik for i < k."""
    row = LANES * n
    pivot = k * row + LANES * k
    for t in range(LANES):
        W[pivot + t] = 0
    add_products(W, pivot, W, LANES * k, row, ones, 0, 0, k)
    for t in range(LANES):
        if W[pivot + t] == 0:  # padding
            W[pivot + t] = 1
        share[t] = 1 / W[pivot + t]
    multiply(W, LANES * k, row, share, 0, k)


@jit
def _balance(W: Array, n: int, x: Array) -> None:
    """x_0 = 1, s_k x_k = Σ_{j<k} W_kj x_j, then x to sum one."""
    total = np.ones(LANES)
    x[:LANES] = 1.0
    for k in range(1, n):
        at, row = LANES * k, LANES * n * k
        largest = 0.0
        for t in range(LANES):
            x[at + t] = 0.0
        add_products(x, at, W, row, LANES, x, 0, LANES, k)
        for t in range(LANES):
            x[at + t] /= W[row + at + t]
            total[t] += x[at + t]
            largest = max(largest, total[t])
        if largest > 1e150:
            _shrink(x, k + 1, total)
    _shrink(x, n, total)


@jit
def _shrink(x: Array, n: int, total: Array) -> None:
    """Divide the first n words of x by the total, which is then one."""
    for t in range(LANES):
        total[t] = 1 / total[t]
    multiply(x, 0, LANES, total, 0, n)
    total[:] = 1.0


@jit
def adjoint_short(
    first: int,
    last: int,
    order: Array,
    grad: Array,
    factors: Array,
    mask: Array,
    grad_edges: Array,
    top: int,
    highest: float,
    limit: float,
) -> None:
    """Write ∂ℓ/∂A of the groups ``first`` to ``last - 1``."""
    words = mask.shape[1]
    used = np.empty((LANES, words), np.int64)
    counts = np.empty(LANES, np.int64)
    gamma, alpha = np.empty(LANES * words), np.empty(LANES * words)
    u, rest = np.empty(LANES * words), np.empty(LANES * words)
    solution = np.empty((3, words))
    for group in range(first, last):
        texts = order[LANES * group : LANES * (group + 1)]
        for t in range(LANES):
            counts[t] = used_words(mask[texts[t]], used[t])
            if counts[t] < words:
                grad_edges[texts[t]] = 0
        n = counts[LANES - 1]
        if n == 0:
            continue
        W = _block(factors, group, n)
        gamma[: LANES * n] = 0.0
        for t in range(LANES):
            for a in range(counts[t]):
                gamma[LANES * a + t] = grad[texts[t], used[t, a]]
        _balance(W, n, alpha)  # not the rounded weights: see `gth_long`
        _adjoint(W, n, alpha, gamma, u, rest, highest)
        for t in range(LANES):
            m = counts[t]
            for a in range(m):
                solution[0, a] = u[LANES * a + t]
                solution[1, a] = rest[LANES * a + t]
                solution[2, a] = alpha[LANES * a + t]
            shift = top - W[t]
            write_slopes(solution, used[t, :m], shift, limit, grad_edges[texts[t]])


@jit
def _adjoint(
    W: Array,
    n: int,
    alpha: Array,
    gamma: Array,
    u: Array,
    rest: Array,
    highest: float,
) -> None:
    """Solve Kᵀu = γ - (γᵀα)1 for u + rest with the factors of K, as in `gth_long`."""
    row = LANES * n
    mean = np.zeros(LANES)
    most = np.zeros(LANES)
    for t in range(LANES):
        heaviest = t
        for place in range(t, row, LANES):
            if alpha[place] > alpha[heaviest]:
                heaviest = place
        chief = gamma[heaviest]
        for place in range(t, row, LANES):
            gamma[place] -= chief
            most[t] = max(most[t], highest * abs(gamma[place]))
    add_products(mean, 0, gamma, 0, LANES, alpha, 0, LANES, n)
    q = np.zeros(row)
    for k in range(n - 1, 0, -1):
        at = LANES * k
        for t in range(at, at + LANES):
            c = (gamma[t] - mean[t - at] + q[t]) / W[row * k + t]
            u[t] = within(c, most[t - at])
        add_multiples(q, 0, LANES, W, row * k, LANES, u, at, k)
    ones = np.ones(LANES)
    sums = np.empty((3, LANES))
    total, near, off = sums[0], sums[1], sums[2]
    u[:LANES] = 0.0
    rest[:LANES] = 0.0
    for k in range(1, n):
        at = LANES * k
        sums[:] = 0.0
        add_products(total, 0, W, at, row, ones, 0, 0, k)
        add_products(near, 0, W, at, row, u, 0, LANES, k)
        for t in range(LANES):
            total[t] = total[t] if total[t] > 0 else 1.0  # padding
            near[t] /= total[t]
        add_products_off(off, W, at, row, u, rest, near, k)
        for t in range(LANES):
            small = off[t] / total[t] + u[at + t]
            u[at + t] = near[t] + small
            rest[at + t] = lost(near[t], small)
