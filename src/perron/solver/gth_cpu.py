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

import numpy as np
import torch
from torch import Tensor

from perron.solver.compiled import Array, share_out
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
    weights = torch.zeros_like(mask, dtype=edges.dtype)
    factors = edges.new_empty(edges.shape if keep_factors else (0, words, words))
    numbers = (_TOP[edges.dtype], _FLOOR[edges.dtype])
    arrays = (edges.contiguous(), mask.contiguous(), weights, factors)
    a = tuple(tensor.numpy() for tensor in arrays)
    counts = _counts(mask)
    if _side_by_side(counts):
        order, groups, work = _groups(counts)
        share_out(solve_short, work, order, groups, *a, *numbers)
    else:
        share_out(solve_long, counts**3 / 3, *a, *numbers)
    return weights, factors


def backward(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N) and the factors."""
    grad_edges = torch.zeros_like(factors)
    numbers = (_TOP[factors.dtype], _HUGE, torch.finfo(factors.dtype).max)
    arrays = (grad.contiguous(), factors, mask.contiguous(), grad_edges)
    a = tuple(tensor.numpy() for tensor in arrays)
    counts = _counts(mask)
    if _side_by_side(counts):
        order, groups, work = _groups(counts)
        share_out(adjoint_short, work, order, groups, *a, *numbers)
    else:
        share_out(adjoint_long, 8 * counts**2, *a, *numbers)
    return grad_edges


def _counts(mask: Tensor) -> Array:
    counts: Array = mask.sum(-1).numpy().astype(np.float64)
    return counts


def _side_by_side(counts: Array) -> bool:
    return len(counts) >= _WORTH_A_GROUP and bool(counts.max() <= _SHORT)


def _groups(counts: Array) -> tuple[Array, Array, Array]:
    """Sort the texts by length; return the order, the groups' bounds and their work."""
    order = np.argsort(counts, kind="stable")
    groups = np.append(np.arange(0, len(counts), _GROUP), len(counts))
    longest = counts[order[groups[1:] - 1]]
    return order, groups, np.diff(groups) * longest**3 / 3
