"""What the two compiled kernels of the elimination share."""

import math

import numpy as np

from perron.kernels.compile import Array, jit


@jit
def within(value: float, limit: float) -> float:
    """Cut a value to ±limit; NaN stays NaN."""
    if value > limit:
        return limit
    if value < -limit:
        return -limit
    return value


@jit
def lost(large: float, small: float) -> float:
    """Return what rounding takes from large + small (Knuth's two-sum, 1969)."""
    total = large + small
    part = total - large
    return (large - (total - part)) + (small - part)


@jit
def write_slopes(
    solution: Array, used: Array, shift: float, limit: float, G: Array
) -> None:
    """G_ij = (u_i - u_j) α_j for the words in use, cut to what the dtype can hold.

    Args:
        solution: u, what rounding took from it, and α, a row each.
        used: the places of the words in G.
        shift: the rates had been scaled by 2**shift; NaN where they were flawed.
        limit: the largest number of G's dtype.
        G: (N, N), written to.
    """
    n = len(used)
    u, rest, alpha = solution[0], solution[1], solution[2]
    half = second_half = np.nan
    if not np.isnan(shift):
        half = math.ldexp(1.0, int(shift) // 2)
        second_half = math.ldexp(1.0, int(shift) - int(shift) // 2)
    highest = heaviest = 0.0
    for a in range(n):
        u[a] *= half
        rest[a] *= half
        alpha[a] *= second_half
        highest = max(highest, abs(u[a]))
        heaviest = max(heaviest, alpha[a])
    tame = 2 * highest * heaviest < limit
    start = used[0] if n else 0
    in_a_row = n > 0 and used[n - 1] - start == n - 1
    for a in range(n):
        if tame and in_a_row:  # as nearly always: a loop of vector instructions
            row = G[used[a]][start : start + n]
            for b in range(n):
                row[b] = ((u[a] - u[b]) + (rest[a] - rest[b])) * alpha[b]
        else:
            for b in range(n):
                slope = ((u[a] - u[b]) + (rest[a] - rest[b])) * alpha[b]
                G[used[a], used[b]] = within(slope, limit)
