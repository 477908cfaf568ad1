"""Triton kernels of the elimination for graphs that do not fit into registers.

Words are eliminated in panels of `PANEL`, from the last one to the first. The kernels
of a panel are launched in sequence:

    prepare        scaled rates W, and the exponent of the scale
    factor_panel   the diagonal block of the factors
    update_panel   the rows and columns of the factors, and W without the panel
    solve_long     the weights, from the factors of all panels
    adjoint_long   u and α, from the factors of all panels
    edge_grads     (u_i - u_j) α_j

The notation is the same as in `gth_triton_kernels`.
"""

import triton
import triton.language as tl

from perron.kernels.gth_triton_kernels import (
    BIG,
    CUT_OFF,
    MAX_FLOAT32,
    PANEL,
    SCALE_EXPONENT,
    _clamp,
    _column,
    _exponent,
    _flows,
    _load_rates,
    _power64,
    _row,
    _scale,
    _slopes,
    _spread,
)

PART = tl.constexpr(4)  # columns of a panel at a time in registers


@triton.jit
def _element(vector, i, k):
    """Return element k of a vector over i."""
    return tl.sum(tl.where(i == k, vector, 0.0))


@triton.jit(do_not_specialize=["n"])
def prepare(edges, mask, W, exponents, n, BLOCK: tl.constexpr):
    """Write the scaled rates W; the exponent of an invalid graph is NaN."""
    graph = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    used = tl.load(mask + graph * n + i, mask=i < n, other=0) != 0
    largest = tl.zeros((BLOCK,), tl.float32)
    flaws = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, n, PANEL):
        rows = start + tl.arange(0, PANEL)
        rates, pairs = _load_rates(edges, mask, used, rows, i, n)
        valid = (rates >= 0) & (rates < float("inf"))
        flaws = tl.maximum(flaws, tl.max(tl.where(valid, 0, 1), axis=0))
        largest = tl.maximum(largest, tl.max(rates, axis=0))
    exponent = _exponent(tl.max(largest, axis=0))
    sound = tl.max(flaws, axis=0) == 0
    header = tl.where(sound, exponent.to(tl.float32), float("nan"))
    tl.store(exponents + graph, header)
    for start in range(0, n, PANEL):
        rows = start + tl.arange(0, PANEL)
        rates, pairs = _load_rates(edges, mask, used, rows, i, n)
        place = graph * n * n + rows[:, None] * n + i[None, :]
        inside = (rows[:, None] < n) & (i[None, :] < n)
        tl.store(W + place, _scale(rates, pairs, exponent), mask=inside)


@triton.jit(do_not_specialize=["begin", "n"])
def factor_panel(W, factors, exponents, begin, n, TILE: tl.constexpr):
    """Eliminate the words of a panel from its diagonal block.

    c_k is the rate from word k to all words before the panel.
    """
    graph = tl.program_id(0).to(tl.int64)
    r = tl.arange(0, PANEL)
    c = tl.zeros((PANEL,), tl.float64)
    for start in range(0, begin, TILE):
        i = start + tl.arange(0, TILE)
        above = tl.load(
            W + graph * n * n + i[:, None] * n + (begin + r)[None, :],
            mask=(i[:, None] < begin) & (begin + r < n)[None, :],
            other=0.0,
        )
        c += tl.sum(above.to(tl.float64), axis=0)
    rows = r[:, None]
    columns = r[None, :]
    inside = (begin + rows < n) & (begin + columns < n)
    place = graph * n * n + (begin + rows) * n + begin + columns
    D = tl.load(W + place, mask=inside, other=0.0)
    s = tl.zeros((PANEL,), tl.float32)
    for step in range(0, PANEL):
        k = PANEL - 1 - step
        column = _column(D, k, PANEL)
        inner = tl.where(rows < k, column, 0.0)
        outer = _element(c, r, k)
        total = outer + tl.sum(tl.sum(inner, axis=1).to(tl.float64), axis=0)
        leaving = tl.where(total == 0, 1.0, total).to(tl.float32)
        share = tl.div_rn(1.0, leaving)
        P = inner * share
        row = tl.where(columns < k, _row(D, k, rows), 0.0)
        c += outer * share * tl.sum(row, axis=0).to(tl.float64)
        D = tl.where(columns == k, P + (column - inner), D + P * row)
        s = tl.where(r == k, leaving, s)
    header = tl.load(exponents + graph)
    s = tl.where(begin + r == 0, header, s)
    tl.store(factors + place, tl.where(rows == columns, s[None, :], D), mask=inside)


@triton.jit(do_not_specialize=["begin", "n"])
def update_panel(W, factors, begin, n, TILE: tl.constexpr):
    """Add Σ_k P_ik W_kj, for words k of a panel, to a tile of the words before it.

    Each program computes P of its rows and W_kj of its columns again, from W before
    the panel and the diagonal block of the factors.
    """
    graph = tl.program_id(0).to(tl.int64)
    base = graph * n * n
    r = tl.arange(0, PANEL)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    j = tl.program_id(2) * TILE + tl.arange(0, TILE)
    panel = begin + r
    place_P = base + i[:, None] * n + panel[None, :]
    place_R = base + panel[:, None] * n + j[None, :]
    place = base + i[:, None] * n + j[None, :]
    inside_P = (i[:, None] < begin) & (panel[None, :] < n)
    inside_R = (panel[:, None] < n) & (j[None, :] < begin)
    inside = (i[:, None] < begin) & (j[None, :] < begin)
    P = tl.load(W + place_P, mask=inside_P, other=0.0)
    R = tl.load(W + place_R, mask=inside_R, other=0.0)
    tile = tl.load(W + place, mask=inside, other=0.0)
    D = factors + base + begin * n + begin
    end = tl.minimum(n - begin, PANEL)
    for step in range(0, end):
        k = end - 1 - step
        share = tl.div_rn(1.0, tl.load(D + k * n + k))
        left = tl.load(D + k * n + r, mask=r < k, other=0.0)
        above = tl.load(D + r * n + k, mask=r < k, other=0.0)
        column = _column(P, k, TILE) * share
        row = _row(R, k, r[:, None])
        P = tl.where(r[None, :] == k, column, P + column * left[None, :])
        R += above[:, None] * row
        tile += column * row
    tl.store(W + place, tile, mask=inside)
    if tl.program_id(2) == 0:
        tl.store(factors + place_P, P, mask=inside_P)
    if tl.program_id(1) == 0:
        tl.store(factors + place_R, R, mask=inside_R)


@triton.jit
def _diagonal_block(factors, begin, n):
    """Return the block of the factors between the words of a panel."""
    r = begin + tl.arange(0, PANEL)
    place = tl.program_id(0).to(tl.int64) * n * n + r[:, None] * n + r[None, :]
    inside = (r[:, None] < n) & (r[None, :] < n)
    return tl.load(factors + place, mask=inside, other=0.0).to(tl.float64)


@triton.jit
def _rows_before(factors, begin, i, n):
    """Return the rows of a panel in the factors, up to the panel."""
    r = begin + tl.arange(0, PANEL)
    place = tl.program_id(0).to(tl.int64) * n * n + r[:, None] * n + i[None, :]
    inside = (r[:, None] < n) & (i[None, :] < begin)
    return tl.load(factors + place, mask=inside, other=0.0).to(tl.float64)


@triton.jit
def _balance_long(factors, i, first, n, BLOCK: tl.constexpr):
    """Solve x_first = 1, s_k x_k = Σ_{j<k} W_kj x_j; return x and its sum."""
    r = tl.arange(0, PANEL)
    x = tl.zeros((BLOCK,), tl.float64)
    total = tl.sum(tl.where(i == 0, 1.0, 0.0).to(tl.float64))
    for begin in range(0, n, PANEL):
        y = tl.sum(_rows_before(factors, begin, i, n) * x[None, :], axis=1)
        D = _diagonal_block(factors, begin, n)
        own = tl.where(begin + r == first, 1.0, 0.0).to(tl.float64)
        scale = total * 0.0 + 1.0
        for k in range(0, PANEL):
            row = tl.sum(tl.where(r[:, None] == k, D, 0.0), axis=0)
            inflow = tl.sum(tl.where(r < k, row * own, 0.0)) + _element(y, r, k)
            later = (begin + k > first) & (begin + k < n)
            value = inflow / tl.where(later, _element(row, r, k), 1.0)
            value = tl.where(later, value, 0.0)
            own = tl.where((r == k) & later, value, own)
            total += value
            factor = tl.where(total > BIG, 1 / BIG, 1.0).to(tl.float64)
            total *= factor
            own *= factor
            y *= factor
            scale *= factor
        x = x * scale + _spread(own, begin + r, i)
    return x, total


@triton.jit(do_not_specialize=["n"])
def solve_long(edges, mask, factors, exponents, weights, n, BLOCK: tl.constexpr):
    """Compute the weights of one graph per program."""
    graph = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    used = tl.load(mask + graph * n + i, mask=i < n, other=0) != 0
    first = tl.min(tl.where(used, i, BLOCK), axis=0)
    x, total = _balance_long(factors, i, first, n, BLOCK)
    header = tl.load(exponents + graph)
    sound = header == header
    exponent = tl.where(sound, header, 0.0).to(tl.int32)
    inflow, outflow = _flows(edges, mask, exponent, x, used, i, n, BLOCK)
    connected = outflow > n * CUT_OFF
    x = tl.where(connected, inflow / tl.where(connected, outflow, 1.0), x)
    total = tl.sum(x)
    x = (x / tl.where(total == 0, 1.0, total)).to(tl.float32)
    x = tl.where(used, tl.where(sound, x, float("nan")), 0.0)
    tl.store(weights + graph * n + i, x, mask=i < n)


@triton.jit(do_not_specialize=["n"])
def adjoint_long(grad, factors, mask, vectors, n, BLOCK: tl.constexpr):
    """Compute u in two parts and scaled α, (3, N), of one graph per program."""
    graph = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    r = tl.arange(0, PANEL)
    used = tl.load(mask + graph * n + i, mask=i < n, other=0) != 0
    first = tl.min(tl.where(used, i, BLOCK), axis=0)
    alpha, total = _balance_long(factors, i, first, n, BLOCK)
    alpha /= total
    gamma = tl.load(grad + graph * n + i, mask=i < n, other=0.0).to(tl.float64)
    slope, limit = _slopes(gamma, alpha, used, i, BLOCK)
    # Down: c_k = (slope_k + q_k) / s_k;  q_j += W_kj c_k for j < k.
    c = tl.zeros((BLOCK,), tl.float64)
    for step in range(0, n, PANEL):
        begin = (n - 1) // PANEL * PANEL - step
        D = _diagonal_block(factors, begin, n)
        q = tl.gather(slope, begin + r, axis=0)
        own = tl.zeros((PANEL,), tl.float64)
        for back in range(0, PANEL):
            k = PANEL - 1 - back
            row = tl.sum(tl.where(r[:, None] == k, D, 0.0), axis=0)
            later = (begin + k > first) & (begin + k < n)
            leaving = tl.where(later, _element(row, r, k), 1.0)
            level = tl.where(later, _clamp(_element(q, r, k) / leaving, limit), 0.0)
            own = tl.where(r == k, level, own)
            q += tl.where(r < k, row * level, 0.0)
        slope += tl.sum(_rows_before(factors, begin, i, n) * own[:, None], axis=0)
        c += _spread(own, begin + r, i)
    # Up: u_k = c_k + Σ_{i<k} P_ik u_i, in two pieces. The words before a panel count as
    # one word with weight t, at the level m + d.
    u = tl.zeros((BLOCK,), tl.float64)
    rest = tl.zeros((BLOCK,), tl.float64)
    for begin in range(0, n, PANEL):
        t = tl.zeros((PANEL,), tl.float64)
        m = tl.zeros((PANEL,), tl.float64)
        d = tl.zeros((PANEL,), tl.float64)
        for start in range(0, PANEL, PART):
            some = start + tl.arange(0, PART)
            place = graph * n * n + i[:, None] * n + (begin + some)[None, :]
            inside = (i[:, None] < begin) & (begin + some < n)[None, :]
            P = tl.load(factors + place, mask=inside, other=0.0).to(tl.float64)
            weight = tl.sum(P, axis=0)
            divisor = tl.where(weight == 0, 1.0, weight)
            mean = tl.sum(P * u[:, None], axis=0) / divisor
            P *= (u[:, None] - mean[None, :]) + rest[:, None]
            t += _spread(weight, some, r)
            m += _spread(mean, some, r)
            d += _spread(tl.sum(P, axis=0) / divisor, some, r)
        D = _diagonal_block(factors, begin, n)
        own_c = tl.gather(c, begin + r, axis=0)
        own_u = tl.zeros((PANEL,), tl.float64)
        own_rest = tl.zeros((PANEL,), tl.float64)
        for k in range(0, PANEL):
            inner = tl.sum(tl.where(r[None, :] == k, D, 0.0), axis=1)
            inner = tl.where(r < k, inner, 0.0)
            outer = _element(t, r, k)
            level = _element(m, r, k)
            total = tl.sum(inner) + outer
            total = tl.where(total == 0, 1.0, total)
            near = (tl.sum(inner * own_u) + outer * level) / total
            off = tl.sum(inner * ((own_u - near) + own_rest))
            off += outer * ((level - near) + _element(d, r, k))
            small = off / total + _element(own_c, r, k)
            level = near + small
            part = level - near
            lost = (near - (level - part)) + (small - part)
            own_u = tl.where(r == k, level, own_u)
            own_rest = tl.where(r == k, lost, own_rest)
        u += _spread(own_u, begin + r, i)
        rest += _spread(own_rest, begin + r, i)
    header = tl.load(factors + graph * n * n)
    sound = header == header
    shift = SCALE_EXPONENT - tl.where(sound, header, 0.0).to(tl.int32)
    alpha *= tl.where(sound, _power64(shift), float("nan"))
    place = vectors + graph * 3 * n + i
    tl.store(place, u, mask=i < n)
    tl.store(place + n, rest, mask=i < n)
    tl.store(place + 2 * n, alpha, mask=i < n)


@triton.jit(do_not_specialize=["n"])
def edge_grads(vectors, mask, grad_edges, n, TILE: tl.constexpr):
    """Write one tile of (u_i - u_j) α_j per program, clamped to float32's range."""
    graph = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    j = tl.program_id(2) * TILE + tl.arange(0, TILE)
    used = (tl.load(mask + graph * n + i, mask=i < n, other=0) != 0)[:, None]
    used = used & (tl.load(mask + graph * n + j, mask=j < n, other=0) != 0)[None, :]
    u = vectors + graph * 3 * n
    steps = (
        tl.load(u + i, mask=i < n, other=0.0)[:, None]
        - tl.load(u + j, mask=j < n, other=0.0)[None, :]
    )
    steps += (
        tl.load(u + n + i, mask=i < n, other=0.0)[:, None]
        - tl.load(u + n + j, mask=j < n, other=0.0)[None, :]
    )
    alpha = tl.load(u + 2 * n + j, mask=j < n, other=0.0)
    grads = _clamp(steps * alpha[None, :], MAX_FLOAT32).to(tl.float32)
    place = graph * n * n + i[:, None] * n + j[None, :]
    inside = (i[:, None] < n) & (j[None, :] < n)
    tl.store(grad_edges + place, tl.where(used, grads, 0.0), mask=inside)
