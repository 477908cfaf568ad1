"""Grassmann-Taksar-Heyman elimination as Triton kernels.

Notation and factors are the same as in `gth_torch`, but masked words keep their
positions. A masked word has no edges, so eliminating it changes nothing. Factors are
float32 and vectors are float64. Nothing is subtracted in the forward pass. No kernel
reads memory that its own launch writes.

Up to 64 words, one program solves one graph in registers: `solve_short` and
`adjoint_short`. Kernels for longer graphs are in `gth_triton_long`.

These functions have no annotations besides `tl.constexpr`, because Triton compiles
their source.
"""

import triton
import triton.language as tl

PANEL = tl.constexpr(16)

# See `gth_torch`.
SCALE_EXPONENT = tl.constexpr(96)
MIN_RATE = tl.constexpr(2.0**-126)
CUT_OFF = tl.constexpr(2.0**-62)  # MIN_RATE * 2**64
MAX_LEVEL = tl.constexpr(1e30 * 2.0**-96)
MAX_FLOAT32 = tl.constexpr(3.4028234663852886e38)

# x is scaled down when its sum exceeds BIG. One step multiplies the sum by 2**236 at
# most.
BIG = tl.constexpr(2.0**400)


@triton.jit
def _power32(exponent):
    """Return 2**exponent in float32, for exponents of normal numbers."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _power64(exponent):
    """Return 2**exponent in float64, for exponents of normal numbers."""
    return ((exponent + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _exponent(number):
    """Return the exponent of `frexp` for a number >= 0; 0 for 0."""
    subnormal = number < MIN_RATE
    number = tl.where(subnormal, number * 16777216.0, number)
    biased = number.to(tl.int32, bitcast=True) >> 23
    return tl.where(number > 0, biased - tl.where(subnormal, 150, 126), 0)


@triton.jit
def _scale(rates, pairs, exponent):
    """Scale rates to about 2**SCALE_EXPONENT, by two factors, and clamp them below."""
    shift = SCALE_EXPONENT - exponent
    half = shift >> 1
    rates = rates * _power32(half) * _power32(shift - half)
    return tl.where(pairs, tl.maximum(rates, MIN_RATE), 0.0)


@triton.jit
def _column(tile, k, ROWS: tl.constexpr):
    """Return column k of a tile, (ROWS, 1), with a gather: each row is in one warp."""
    return tl.gather(tile, tl.zeros((ROWS, 1), tl.int32) + k, axis=1)


@triton.jit
def _row(tile, k, rows):
    """Return row k of a tile, (1, columns). A gather would need shared memory."""
    return tl.sum(tl.where(rows == k, tile, 0.0), axis=0, keep_dims=True)


@triton.jit
def _spread(values, places, i):
    """Put values at their positions in a vector over i; zero elsewhere."""
    return tl.sum(tl.where(places[:, None] == i[None, :], values[:, None], 0.0), axis=0)


@triton.jit
def _clamp(value, limit):
    """Clamp to ±limit; NaN stays NaN."""
    value = tl.where(value > limit, limit, value)
    return tl.where(value < -limit, -limit, value)


@triton.jit
def _balance(W, i, first, n, BLOCK: tl.constexpr):
    """Solve x_first = 1, s_k x_k = Σ_{j<k} W_kj x_j; return x and its sum."""
    x = tl.where(i == first, 1.0, 0.0).to(tl.float64)
    total = tl.sum(tl.where(i == 0, 1.0, 0.0).to(tl.float64))
    for k in range(first + 1, n):
        row = tl.sum(tl.where(i[:, None] == k, W, 0.0), axis=0).to(tl.float64)
        leaving = tl.sum(tl.where(i == k, row, 0.0))
        inflow = tl.sum(tl.where(i < k, row * x, 0.0)) / leaving
        x = tl.where(i == k, inflow, x)
        total += inflow
        factor = tl.where(total > BIG, 1 / BIG, 1.0).to(tl.float64)
        x *= factor
        total *= factor
    return x, total


@triton.jit
def _slopes(gamma, alpha, used, i, BLOCK: tl.constexpr):
    """Return γ - γᵀα, with γ relative to the heaviest word, and the largest level."""
    heaviest = tl.min(tl.where(alpha == tl.max(alpha, axis=0), i, BLOCK), axis=0)
    gamma -= tl.sum(tl.where(i == heaviest, gamma, 0.0))
    gamma = tl.where(used, gamma, 0.0)
    slope = tl.where(used, gamma - tl.sum(gamma * alpha), 0.0)
    return slope, tl.max(tl.abs(gamma), axis=0) * MAX_LEVEL


@triton.jit
def _load_rates(edges, mask, used, rows, i, n):
    """Return some rows of rates, and a mask of the rates between valid words."""
    graph = tl.program_id(0).to(tl.int64)
    pairs = tl.load(mask + graph * n + rows, mask=rows < n, other=0) != 0
    pairs = pairs[:, None] & used[None, :] & (rows[:, None] != i[None, :])
    place = rows[:, None] * n + i[None, :]
    rates = tl.load(edges + graph * n * n + place, mask=pairs, other=0.0)
    return rates, pairs


@triton.jit
def _flows(edges, mask, exponent, x, used, i, n, BLOCK: tl.constexpr):
    """Return Σ_j A_ij x_j and Σ_i A_ij of the scaled rates, PANEL rows at a time.

    The rates are loaded again, which needs fewer registers than keeping them.
    """
    inflow = tl.zeros((BLOCK,), tl.float64)
    outflow = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, n, PANEL):
        rows = start + tl.arange(0, PANEL)
        rates, pairs = _load_rates(edges, mask, used, rows, i, n)
        A = _scale(rates, pairs, exponent).to(tl.float64)
        outflow += tl.sum(A, axis=0)
        inflow += _spread(tl.sum(A * x[None, :], axis=1), rows, i)
    return inflow, outflow


@triton.jit(do_not_specialize=["n", "keep"])
def solve_short(edges, mask, weights, factors, n, keep, BLOCK: tl.constexpr):
    """Compute weights and factors of one graph of at most BLOCK words per program."""
    graph = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    used = tl.load(mask + graph * n + i, mask=i < n, other=0) != 0
    rows = i[:, None]
    columns = i[None, :]
    pairs = used[:, None] & used[None, :] & (rows != columns)
    place = rows * n + columns
    rates = tl.load(edges + graph * n * n + place, mask=pairs, other=0.0)
    flaws = tl.where((rates >= 0) & (rates < float("inf")), 0, 1)
    sound = tl.max(tl.max(flaws, axis=0), axis=0) == 0
    exponent = _exponent(tl.max(tl.max(rates, axis=0), axis=0))
    W = _scale(rates, pairs, exponent)
    # Eliminate: s_k = Σ_{i<k} W_ik;  P_ik = W_ik / s_k;  W_ij += P_ik W_kj.
    s = tl.zeros((BLOCK,), tl.float32)
    for step in range(1, n):
        k = n - step
        row = tl.where(columns < k, _row(W, k, rows), 0.0)
        column = _column(W, k, BLOCK)
        above = tl.where(rows < k, column, 0.0)
        below = column - above  # exact: a word is above or not
        leaving = tl.sum(tl.sum(above, axis=1), axis=0)
        leaving = tl.where(leaving == 0, 1.0, leaving)  # a masked word
        P = above * tl.div_rn(1.0, leaving)
        W = tl.where(columns == k, P + below, W + P * row)
        s = tl.where(i == k, leaving, s)
    W = tl.where(rows == columns, s[None, :], W)
    first = tl.min(tl.where(used, i, BLOCK), axis=0)
    x, total = _balance(W, i, first, n, BLOCK)
    if keep != 0:
        header = tl.where(sound, exponent.to(tl.float32), float("nan"))
        W = tl.where((rows == 0) & (columns == 0), header, W)
        # Counted from the end, since places and masks of the beginning would be kept
        # in registers.
        inside = (n - rows > 0) & (columns < n)
        place = (n - rows) * n - columns
        tl.store(factors + (graph + 1) * n * n - place, W, mask=inside)
    inflow, outflow = _flows(edges, mask, exponent, x, used, i, n, BLOCK)
    connected = outflow > n * CUT_OFF
    x = tl.where(connected, inflow / tl.where(connected, outflow, 1.0), x)
    total = tl.sum(x)
    x = (x / tl.where(total == 0, 1.0, total)).to(tl.float32)
    x = tl.where(used, tl.where(sound, x, float("nan")), 0.0)
    tl.store(weights + graph * n + i, x, mask=i < n)


@triton.jit(do_not_specialize=["n"])
def adjoint_short(grad, factors, mask, grad_edges, n, BLOCK: tl.constexpr):
    """Compute the edge gradient of one graph of at most BLOCK words per program."""
    graph = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    used = tl.load(mask + graph * n + i, mask=i < n, other=0) != 0
    W = tl.load(
        factors + graph * n * n + i[:, None] * n + i[None, :],
        mask=(i[:, None] < n) & (i[None, :] < n),
        other=0.0,
    )
    first = tl.min(tl.where(used, i, BLOCK), axis=0)
    alpha, total = _balance(W, i, first, n, BLOCK)
    alpha /= total
    gamma = tl.load(grad + graph * n + i, mask=i < n, other=0.0).to(tl.float64)
    slope, limit = _slopes(gamma, alpha, used, i, BLOCK)
    # Down: c_k = (slope_k + q_k) / s_k;  q_j += W_kj c_k for j < k.
    c = tl.zeros((BLOCK,), tl.float64)
    for step in range(1, n - first):
        k = n - step
        row = tl.sum(tl.where(i[:, None] == k, W, 0.0), axis=0).to(tl.float64)
        leaving = tl.sum(tl.where(i == k, row, 0.0))
        level = _clamp(tl.sum(tl.where(i == k, slope, 0.0)) / leaving, limit)
        c = tl.where(i == k, level, c)
        slope += tl.where(i < k, row * level, 0.0)
    # Up: u_k = c_k + Σ_{i<k} P_ik u_i, in two pieces.
    u = tl.zeros((BLOCK,), tl.float64)
    rest = tl.zeros((BLOCK,), tl.float64)
    for k in range(first + 1, n):
        P = tl.sum(_column(W, k, BLOCK), axis=1).to(tl.float64)
        P = tl.where(i < k, P, 0.0)
        total = tl.sum(P)
        total = tl.where(total == 0, 1.0, total)
        near = tl.sum(P * u) / total
        off = tl.sum(P * ((u - near) + rest))
        small = off / total + tl.sum(tl.where(i == k, c, 0.0))
        level = near + small
        part = level - near
        lost = (near - (level - part)) + (small - part)
        u = tl.where(i == k, level, u)
        rest = tl.where(i == k, lost, rest)
    header = tl.sum(tl.load(factors + graph * n * n + i, mask=i == 0, other=0.0))
    sound = header == header
    shift = SCALE_EXPONENT - tl.where(sound, header, 0.0).to(tl.int32)
    alpha *= tl.where(sound, _power64(shift), float("nan"))
    for start in range(0, n, PANEL):
        rows = start + tl.arange(0, PANEL)
        pairs = tl.load(mask + graph * n + rows, mask=rows < n, other=0) != 0
        pairs = pairs[:, None] & used[None, :]
        own = tl.gather(u, tl.minimum(rows, BLOCK - 1), axis=0)
        own_rest = tl.gather(rest, tl.minimum(rows, BLOCK - 1), axis=0)
        steps = (own[:, None] - u[None, :]) + (own_rest[:, None] - rest[None, :])
        grads = _clamp(steps * alpha[None, :], MAX_FLOAT32).to(tl.float32)
        place = graph * n * n + rows[:, None] * n + i[None, :]
        inside = (rows[:, None] < n) & (i[None, :] < n)
        tl.store(grad_edges + place, tl.where(pairs, grads, 0.0), mask=inside)
