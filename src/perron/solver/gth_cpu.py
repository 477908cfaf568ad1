"""Grassmann-Taksar-Heyman elimination on the CPU: which kernel, with which numbers.

The letters are those of `docs/mathematics.md`. Both kernels first pack the n words in
use together, so that padding and holes cost nothing, and scale the rates by a power of
two, so that products of small numbers stay clear of the slow, inexact end of the number
range. Both leave the same factors of K = diag(1ᵀA) - A behind for the gradient:

    W[i, k], i < k    P_ik, the chance that a walker leaving k for {0..k-1} goes to i
    W[k, j], j < k    the rate j -> k when only {0..k} are left
    W[k, k], k > 0    s_k, the rate at which a walker leaves k for {0..k-1}
    W[0, 0]           the exponent of the scale

in the layout each of them likes; a rate that is negative, infinite or undefined makes
the exponent and the weights of its text NaN.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from perron.solver.compiled import Array, jit, share_out
from perron.solver.gth_long import adjoint_long, solve_long
from perron.solver.gth_short import adjoint_short, solve_short
from perron.solver.gth_torch import FLOOR, HIGHEST, TOP
from perron.solver.lanes import LANES

_SHORT = 64  # words up to which texts are solved eight at a time


def forward(edges: Tensor, mask: Tensor, keep_factors: bool) -> tuple[Tensor, Tensor]:
    """Return the weights (B, N) and the factors (B, N, N), or none of these."""
    texts, words = mask.shape
    weights = edges.new_empty(texts, words)
    factors = edges.new_empty(texts if keep_factors else 0, words, words)
    arrays = (edges.contiguous(), mask.contiguous(), weights, factors)
    arguments: list[Any] = [tensor.numpy() for tensor in arrays]
    arguments += TOP[edges.dtype], arguments[0].dtype.type(FLOOR[edges.dtype])
    order, short, long = _plan(arguments[1], _SHORT)
    share_out(solve_short, short, order, *arguments)
    share_out(solve_long, long, order, texts - len(long), *arguments)
    return weights, factors


def backward(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N) and the factors."""
    grad_edges = factors.new_empty(*mask.shape, mask.shape[1])
    arrays = (grad.contiguous(), factors.contiguous(), mask.contiguous(), grad_edges)
    arguments: list[Any] = [tensor.numpy() for tensor in arrays]
    top = TOP[factors.dtype]
    arguments += top, HIGHEST * 2.0**-top, torch.finfo(factors.dtype).max
    order, short, long = _plan(arguments[2], _SHORT)
    share_out(adjoint_short, short, order, *arguments)
    share_out(adjoint_long, long / 4, order, len(order) - len(long), *arguments)
    return grad_edges


@jit
def _plan(mask: Array, longest_short: int) -> tuple[Array, Array, Array]:
    """Return the texts in order of length, the work of each group, and of each other.

    As many short texts as fill groups come first in that order; all others follow. The
    factors of a text are kept at its place in the order.
    """
    texts, words = mask.shape
    counts = np.zeros(texts, np.int64)
    for text in range(texts):
        for word in range(words):
            counts[text] += mask[text, word]
    starts = np.zeros(words + 2, np.int64)
    for text in range(texts):
        starts[counts[text] + 1] += 1
    starts = np.cumsum(starts)
    order = np.empty(texts, np.int64)
    short = 0
    for text in range(texts):
        order[starts[counts[text]]] = text
        starts[counts[text]] += 1
        short += counts[text] <= longest_short
    groups = short // LANES
    work = counts[order].astype(np.float64) ** 3 / 3
    return (
        order,
        LANES * work[LANES - 1 : LANES * groups : LANES],
        work[LANES * groups :],
    )
