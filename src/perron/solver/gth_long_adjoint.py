"""The gradient of `gth_long`: two triangular sweeps with its factors, a text at a time.

Letters and factors are those of `gth_cpu`.
"""

import numpy as np

from perron.solver.compiled import Array, jit, jit_sums, used_words
from perron.solver.gth_long import balance
from perron.solver.gth_parts import lost, within, write_slopes


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
