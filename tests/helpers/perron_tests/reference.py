"""Slow reference implementations of the solvers. Imports nothing from src/."""

import mpmath
import numpy as np


def stationary_by_eig(edges: np.ndarray) -> np.ndarray:
    """Return the null vector of diag(1'A) - A of an (N, N) matrix."""
    values, vectors = np.linalg.eig(np.diag(edges.sum(0)) - edges)
    x = vectors[:, np.argmin(abs(values))].real
    return x / x.sum()


def stationary_in_80_digits(edges: np.ndarray) -> np.ndarray:
    """Return the same by Gaussian elimination with 80 digits."""
    n = len(edges)
    with mpmath.workdps(80):
        K = mpmath.matrix(n, n)
        for j in range(n):
            for i in range(n):
                if i != j:
                    K[i, j] = -mpmath.mpf(float(edges[i, j]))
                    K[j, j] += mpmath.mpf(float(edges[i, j]))
        rhs = mpmath.matrix(n, 1)
        for j in range(n):  # replace a redundant balance equation by the sum
            K[n - 1, j] = 1
        rhs[n - 1] = 1
        return np.array([float(value) for value in mpmath.lu_solve(K, rhs)])


def score_gradient_in_80_digits(edges: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """Return d(grad . x) / d(log edges) off the diagonal, with 80 digits."""
    n = len(edges)
    with mpmath.workdps(80):
        A = mpmath.matrix(n, n)
        K = mpmath.matrix(n, n)
        for i, j in np.ndindex(n, n):
            if i != j:
                A[i, j] = mpmath.mpf(float(edges[i, j]))
                K[i, j] -= A[i, j]
                K[j, j] += A[i, j]
        M = K.copy()
        rhs = mpmath.matrix(n, 1)
        rhs[n - 1] = 1
        for j in range(n):
            M[n - 1, j] = 1
        x = mpmath.lu_solve(M, rhs)
        gamma = [mpmath.mpf(float(value)) for value in grad]
        mean = sum(gamma[i] * x[i] for i in range(n))
        M = K.T.copy()
        for i in range(n):
            rhs[i] = gamma[i] - mean
        for j in range(n):  # u_0 = 0 instead of a redundant equation
            M[0, j] = int(j == 0)
        rhs[0] = 0
        u = mpmath.lu_solve(M, rhs)
        rows = [[A[i, j] * x[j] * (u[i] - u[j]) for j in range(n)] for i in range(n)]
        return np.array([[float(value) for value in row] for row in rows])


def gradient_by_differences(
    function, edges: np.ndarray, grad: np.ndarray
) -> np.ndarray:
    """Return d(grad . function(edges)) / d(edges) by central differences."""
    gradient = np.zeros_like(edges)
    for i, j in np.ndindex(edges.shape):
        if i == j:
            continue
        step = 1e-4 * edges[i, j]
        up, down = edges.copy(), edges.copy()
        up[i, j] += step
        down[i, j] -= step
        difference = grad @ (function(up) - function(down))
        gradient[i, j] = difference / (up[i, j] - down[i, j])
    return gradient


def reference_power_iteration(edges: np.ndarray, tol: float, max_iter: int):
    """Run the paper's Algorithm 1; return alpha, theta and the number of iterations."""
    y = np.ones(len(edges), edges.dtype)
    iterations = 0
    while iterations < max_iter:
        iterations += 1
        alpha = y / np.sqrt((y * y).sum())
        y = edges @ alpha
        theta = alpha @ y
        if np.sqrt(((y - theta * alpha) ** 2).sum()) <= tol * abs(theta):
            break
    return alpha, theta, iterations


def kmr_sequential(players: int, p: float, epsilon: float) -> np.ndarray:
    """Return the edges (j -> i) of the sequential Kandori-Mailath-Rob chain.

    The state is the number of players with action 1. One player at a time revises its
    action, at random with probability epsilon, and otherwise as the best response: 1 if
    more than a fraction p of the other players play 1.
    """
    N = players
    P = np.zeros((N + 1, N + 1))

    def reply(fraction: float) -> float:
        best = 1.0 if fraction > p else 0.5 if fraction == p else 0.0
        return epsilon / 2 + (1 - epsilon) * best

    for n in range(N + 1):
        if n < N:
            P[n + 1, n] = (N - n) / N * reply(n / (N - 1))
        if n > 0:
            P[n - 1, n] = n / N * (1 - reply((n - 1) / (N - 1)))
        P[n, n] = 1 - P[:, n].sum()
    return P


def nearly_decomposable(blocks: int, size: int, link: float) -> np.ndarray:
    """Return random positive blocks with weak links; columns sum to one."""
    rng = np.random.default_rng(0)
    n = blocks * size
    edges = link * (0.5 + rng.random((n, n)))
    for b in range(blocks):
        block = slice(b * size, (b + 1) * size)
        edges[block, block] = 0.1 + rng.random((size, size))
    return edges / edges.sum(0)
