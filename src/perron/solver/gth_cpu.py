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
the factors and weights of its text NaN.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from perron.solver.compiled import Array, jit, share_out
from perron.solver.gth_long import adjoint_long, solve_long
from perron.solver.gth_short import adjoint_short, solve_short

# The rates are scaled so that their sum is about 2**_TOP; what is then below _FLOOR
# counts as _FLOOR (see "Zeros" in docs/mathematics.md).
_TOP = {torch.float32: 96, torch.float64: 400}
_FLOOR = {torch.float32: np.float32(2.0**-126), torch.float64: np.float64(2.0**-400)}

_HUGE = 1e180  # keeps the adjoint finite where a graph falls apart

# Up to 64 words, texts are solved side by side, 32 to a group: enough for the loops to
# fill vector instructions, few enough to stay in the second-level cache.
_SHORT = 64
_GROUP = 32
_WORTH_A_GROUP = 8


def forward(edges: Tensor, mask: Tensor, keep_factors: bool) -> tuple[Tensor, Tensor]:
    """Return the weights (B, N) and the factors (B, N, N), or none of these."""
    texts, words = mask.shape
    weights = edges.new_empty(texts, words)
    factors = edges.new_empty(texts if keep_factors else 0, words, words)
    arrays = (edges.contiguous(), mask.contiguous(), weights, factors)
    arguments: list[Any] = [tensor.numpy() for tensor in arrays]
    arguments += _TOP[edges.dtype], _FLOOR[edges.dtype]
    order, groups, work = _plan(arguments[1], _SHORT, _GROUP, _WORTH_A_GROUP)
    if len(groups):
        share_out(solve_short, work, order, groups, *arguments)
    else:
        share_out(solve_long, work, *arguments)
    return weights, factors


def backward(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N) and the factors."""
    grad_edges = torch.empty_like(factors)
    arrays = (grad.contiguous(), factors, mask.contiguous(), grad_edges)
    arguments: list[Any] = [tensor.numpy() for tensor in arrays]
    arguments += _TOP[factors.dtype], _HUGE, torch.finfo(factors.dtype).max
    order, groups, work = _plan(arguments[2], _SHORT, _GROUP, _WORTH_A_GROUP)
    if len(groups):
        share_out(adjoint_short, work, order, groups, *arguments)
    else:
        share_out(adjoint_long, work / 4, *arguments)
    return grad_edges


@jit
def _plan(
    mask: Array, short: int, group: int, worth_a_group: int
) -> tuple[Array, Array, Array]:
    """Return an order of the texts by length, the bounds of groups, and their work.

    If one by one is better, there are no groups, and the work is that of each text.
    """
    texts = mask.shape[0]
    counts = np.zeros(texts, np.int64)
    for text in range(texts):
        for word in range(mask.shape[1]):
            counts[text] += mask[text, word]
    longest = counts.max() if texts else 0
    order = np.empty(texts, np.int64)
    if texts < worth_a_group or longest > short:
        return order, np.empty(0, np.int64), counts.astype(np.float64) ** 3 / 3
    place = 0
    for length in range(longest + 1):  # short texts: few lengths
        for text in range(texts):
            if counts[text] == length:
                order[place] = text
                place += 1
    groups = np.append(np.arange(0, texts, group), texts)
    work = np.empty(len(groups) - 1)
    for g in range(len(work)):
        first, last = groups[g], groups[g + 1]
        work[g] = (last - first) * float(counts[order[last - 1]]) ** 3 / 3
    return order, groups, work
