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

from perron.kernels.compile import Array, jit, used_words
from perron.kernels.gth_parts import lost, write_slopes
from perron.kernels.simd import (
    LANES,
    any_less,
    put,
    spread,
    take,
    turn,
    where_less,
    wide,
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
    words = weights.shape[1]
    keep = factors.shape[0] > 0
    scratch = np.empty(0 if keep else LANES * words * words, edges.dtype)
    used = np.empty((LANES, words), np.int64)
    counts = np.empty(LANES, np.int64)
    exponents = np.empty(LANES, edges.dtype)
    x = np.empty(LANES * words)
    for group in range(first, last):
        texts = order[LANES * group : LANES * (group + 1)]
        for t in range(LANES):
            counts[t] = used_words(mask, texts[t], used[t])
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
    total, least = spread(0.0), spread(W.dtype.type(0))
    for place in range(0, LANES * n * n, LANES):
        rates = take(W, place)
        total += wide(rates)
        least = where_less(rates, least, rates, least)
    room = np.empty((3, LANES), W.dtype)
    totals = np.empty(LANES)
    put(totals, 0, total)
    put(room[0], 0, least)
    for t in range(LANES):
        if totals[t] == np.inf:  # perhaps only the sum is
            totals[t] = W[t : LANES * n * n : LANES].max()
        sound = room[0, t] == 0 and totals[t] < np.inf
        exponents[t] = math.frexp(totals[t])[1] if sound else np.nan
        shift = top - int(exponents[t]) if sound else 0
        # Two factors, because one may be out of range.
        room[1, t] = math.ldexp(1.0, shift // 2)
        room[2, t] = math.ldexp(1.0, shift - shift // 2)
        if not sound:
            W[t : LANES * n * n : LANES] = 1
    half, rest, low = take(room[1], 0), take(room[2], 0), spread(floor)
    for place in range(0, LANES * n * n, LANES):
        rates = take(W, place) * half * rest
        put(W, place, where_less(rates, low, low, rates))  # NaN stays NaN
    for t in range(LANES):
        for a in range(n if counts[t] < n else 0):
            for b in range(0 if a >= counts[t] else counts[t], n):
                W[LANES * (n * a + b) + t] = 0


@jit
def _eliminate(W: Array, n: int) -> None:
    """Censor the chain to {0..k-1} for k = n-1 .. 1, four words in one go.

    s_k = Σ_{i<k} W_ik;  P_ik = W_ik / s_k;  W_ij += P_ik W_kj.  No subtraction.
    """
    row = LANES * n
    for last in range(n - 1, 0, -4):
        first = max(last - 3, 1)
        for k in range(last, first - 1, -1):
            for m in range(last, k, -1):  # what the block's earlier words do to k
                to_k = take(W, row * k + LANES * m)
                from_k = take(W, row * m + LANES * k)
                for j in range(k):
                    kj, jk = row * k + LANES * j, row * j + LANES * k
                    mj, jm = row * m + LANES * j, row * j + LANES * m
                    put(W, kj, take(W, kj) + to_k * take(W, mj))
                    put(W, jk, take(W, jk) + take(W, jm) * from_k)
            _leave(W, n, k)
        if last > 3:
            _update(W, n, first)


@jit
def _leave(W: Array, n: int, k: int) -> None:
    """W_kk = s_k; W_ik = P_ik for i < k."""
    row, at = LANES * n, LANES * k
    zeros, ones = spread(W.dtype.type(0)), spread(W.dtype.type(1))
    rate = zeros
    for i in range(k):
        rate += take(W, row * i + at)
    rate = where_less(zeros, rate, rate, ones)  # one for padding
    put(W, row * k + at, rate)
    share = ones / rate
    for i in range(k):
        put(W, row * i + at, take(W, row * i + at) * share)


@jit
def _update(W: Array, n: int, first: int) -> None:
    """W_ij += Σ_m P_im W_mj for i, j < first and the four words m from ``first`` on."""
    row, to = LANES * n, LANES * first
    for i in range(0, row * (first - 1), 2 * row):
        # Two rows in one go: what is loaded of W_mj serves twice.
        h = i + row
        i0, i1, i2, i3 = _take_four(W, i + to, LANES)
        h0, h1, h2, h3 = _take_four(W, h + to, LANES)
        for j in range(0, to, LANES):
            m0, m1, m2, m3 = _take_four(W, row * first + j, row)
            put(W, i + j, take(W, i + j) + i0 * m0 + i1 * m1 + i2 * m2 + i3 * m3)
            put(W, h + j, take(W, h + j) + h0 * m0 + h1 * m1 + h2 * m2 + h3 * m3)
    if first % 2:
        i = row * (first - 1)
        i0, i1, i2, i3 = _take_four(W, i + to, LANES)
        for j in range(0, to, LANES):
            m0, m1, m2, m3 = _take_four(W, row * first + j, row)
            put(W, i + j, take(W, i + j) + i0 * m0 + i1 * m1 + i2 * m2 + i3 * m3)


@jit
def _take_four(W: Array, place: int, step: int) -> Any:
    return (
        take(W, place),
        take(W, place + step),
        take(W, place + 2 * step),
        take(W, place + 3 * step),
    )


@jit
def _balance(W: Array, n: int, x: Array) -> None:
    """x_0 = 1, s_k x_k = Σ_{j<k} W_kj x_j, then x to sum one."""
    row = LANES * n
    total = spread(1.0)
    put(x, 0, total)
    for k in range(1, n):
        flow = spread(0.0)
        for j in range(k):
            flow += wide(take(W, row * k + LANES * j)) * take(x, LANES * j)
        share = flow / wide(take(W, row * k + LANES * k))
        put(x, LANES * k, share)
        total += share
        if any_less(spread(1e150), total):
            _shrink(x, k + 1, total)
            total = spread(1.0)
    _shrink(x, n, total)


@jit
def _shrink(x: Array, n: int, total: Any) -> None:
    """Divide the first n words of x by the total."""
    share = spread(1.0) / total
    for k in range(0, LANES * n, LANES):
        put(x, k, take(x, k) * share)


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
    words = grad.shape[1]
    used = np.empty((LANES, words), np.int64)
    counts = np.empty(LANES, np.int64)
    gamma, alpha = np.empty(LANES * words), np.empty(LANES * words)
    u, rest = np.empty(LANES * words), np.empty(LANES * words)
    solution = np.empty((3, words))
    for group in range(first, last):
        texts = order[LANES * group : LANES * (group + 1)]
        for t in range(LANES):
            counts[t] = used_words(mask, texts[t], used[t])
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
    zeros = spread(0.0)
    most = _relative_to_chief(alpha, gamma, n) * spread(highest)
    mean = zeros
    for k in range(0, row, LANES):
        mean += take(gamma, k) * take(alpha, k)
        put(u, k, zeros)
    for k in range(n - 1, 0, -1):  # u gathers what came from above, then holds c
        at = LANES * k
        c = (take(gamma, at) - mean + take(u, at)) / wide(take(W, row * k + at))
        c = where_less(c, zeros - most, zeros - most, where_less(most, c, most, c))
        put(u, at, c)
        for j in range(0, at, LANES):
            put(u, j, take(u, j) + wide(take(W, row * k + j)) * c)
    put(u, 0, zeros)
    put(rest, 0, zeros)
    for k in range(1, n):
        at = LANES * k
        total, near, off = zeros, zeros, zeros
        for i in range(k):
            rng = wide(take(W, row * i + at))
            total += rng
            near += rng * take(u, LANES * i)
        total = where_less(zeros, total, total, spread(1.0))  # one for padding
        near /= total
        for i in range(k):
            level = (take(u, LANES * i) - near) + take(rest, LANES * i)
            off += wide(take(W, row * i + at)) * level
        small = off / total + take(u, at)
        put(u, at, near + small)
        put(rest, at, lost(near, small))


@jit
def _relative_to_chief(alpha: Array, gamma: Array, n: int) -> Any:
    """Subtract from γ that of the heaviest word; return the largest that remains."""
    weight, chief, most = take(alpha, 0), take(gamma, 0), spread(0.0)
    for k in range(LANES, LANES * n, LANES):
        own = take(alpha, k)
        chief = where_less(weight, own, take(gamma, k), chief)
        weight = where_less(weight, own, own, weight)
    for k in range(0, LANES * n, LANES):
        value = take(gamma, k) - chief
        put(gamma, k, value)
        size = where_less(value, spread(0.0), spread(0.0) - value, value)
        most = where_less(most, size, size, most)
    return most
