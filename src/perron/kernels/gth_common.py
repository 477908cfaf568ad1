"""Functions shared by the two compiled elimination kernels."""

import math

import numpy as np

from perron.kernels.compile import Array, jit


@jit()
def clamp(value: float, limit: float) -> float:
    """Clamp a value to ±limit; NaN stays NaN."""
    if value > limit:
        return limit
    if value < -limit:
        return -limit
    return value


@jit()
def two_sum_error(large: float, small: float) -> float:
    """Return the rounding error of large + small (Knuth's TwoSum, 1969)."""
    total = large + small
    part = total - large
    return (large - (total - part)) + (small - part)


@jit()
def write_edge_grads(
    solution: Array, positions: Array, shift: float, limit: float, G: Array
) -> None:
    """Compute G_ij = (u_i - u_j) α_j for valid tokens, clamped to ±limit.

    Args:
        solution: Rows u, low-order part of u, and α.
        positions: Positions of the valid tokens in G.
        shift: Exponent of the scale 2**shift of the rates. NaN if they were invalid.
        limit: Largest finite number of the dtype of G.
        G: (N, N) output.
    """
    n = len(positions)
    u, low, alpha = solution[0], solution[1], solution[2]
    half = second_half = np.nan
    if shift == shift:
        half = math.ldexp(1.0, int(shift) // 2)
        second_half = math.ldexp(1.0, int(shift) - int(shift) // 2)
    max_u = max_alpha = 0.0
    for a in range(n):
        u[a] *= half
        low[a] *= half
        alpha[a] *= second_half
        size = abs(u[a])
        max_u = size if size > max_u else max_u
        max_alpha = alpha[a] if alpha[a] > max_alpha else max_alpha
    in_range = 2 * max_u * max_alpha < limit
    start = positions[0] if n else 0
    contiguous = n > 0 and positions[n - 1] - start == n - 1
    for a in range(n):
        if in_range and contiguous:  # the common case; this loop is vectorized
            row = G[positions[a]][start : start + n]
            for b in range(n):
                row[b] = ((u[a] - u[b]) + (low[a] - low[b])) * alpha[b]
        else:
            for b in range(n):
                grad = ((u[a] - u[b]) + (low[a] - low[b])) * alpha[b]
                G[positions[a], positions[b]] = clamp(grad, limit)
