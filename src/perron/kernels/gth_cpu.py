"""Grassmann-Taksar-Heyman (GTH) elimination on the CPU: planning and kernel calls.

The notation follows `docs/mathematics.md`. Both kernels first pack the n valid
tokens, so padding costs nothing. They scale the rates by a power of two, which keeps
products of small rates out of the slow and inexact subnormal range. Both store the same
factors of K = diag(1ᵀA) - A for the backward pass, each in its own layout:

    W[i, k], i < k    P_ik, the probability that a jump from k to {0..k-1} goes to i
    W[k, j], j < k    rate j -> k of the chain censored to {0..k}
    W[k, k], k > 0    s_k, the rate of leaving k for {0..k-1}
    W[0, 0]           exponent of the scale

If a rate is negative, infinite or NaN, the exponent and the weights of its text are
NaN.
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from perron.kernels.compile import Array, jit, parallel_for
from perron.kernels.gth_long import adjoint_long, solve_long
from perron.kernels.gth_short import adjoint_short, solve_short
from perron.kernels.gth_torch import MAX_LEVEL, MIN_RATE, SCALE_EXPONENT
from perron.kernels.simd import LANES

SHORT_LIMIT = 64  # longest text, in tokens, that is solved in a group of eight

_NO_MASK = np.empty((0, 0), np.bool_)


class Plan(NamedTuple):
    """Batching plan: short texts in groups of eight, long texts one by one."""

    order: Array  # texts sorted by length, groups first; also the order of the factors
    group_work: Array  # multiply-adds per group
    single_work: Array  # multiply-adds per text outside the groups


def forward(
    edges: Tensor,
    mask: Tensor | None,
    keep_factors: bool,
    *,
    short_limit: int = SHORT_LIMIT,
) -> tuple[Tensor, Tensor, Plan]:
    """Return the weights (B, N), the factors (B, N, N) or (0, N, N), and the plan.

    Args:
        edges: (B, N, N) rates.
        mask: (B, N), True on valid tokens. Defaults to all tokens.
        keep_factors: Whether to return the factors that `backward` needs.
        short_limit: Longest text, in tokens, that is solved in a group of eight.
    """
    texts, tokens, _ = edges.shape
    weights = edges.new_empty(texts, tokens)
    factors = edges.new_empty(texts if keep_factors else 0, tokens, tokens)
    mask_array = _array(mask)
    plan = _plan(texts, tokens, mask_array, short_limit)
    inputs = (_array(edges), mask_array, weights.numpy())
    limits = _scale_limits(edges.dtype)
    if len(plan.group_work):
        flat = factors.view(-1).numpy()
        parallel_for(solve_short, plan.group_work, plan.order, *inputs, flat, *limits)
    if len(plan.single_work):
        order, grouped = plan.order, texts - len(plan.single_work)
        outputs = (factors.numpy(), *limits)
        parallel_for(solve_long, plan.single_work, order, grouped, *inputs, *outputs)
    return weights, factors, plan


def backward(
    grad: Tensor,
    factors: Tensor,
    mask: Tensor | None,
    plan: Plan | None = None,
    *,
    short_limit: int = SHORT_LIMIT,
) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N), the factors and their plan.

    Without a plan, ``short_limit`` must be the one used in the forward pass.
    """
    texts, tokens = grad.shape
    grad_edges = factors.new_empty(texts, tokens, tokens)
    mask_array = _array(mask)
    plan = plan or _plan(texts, tokens, mask_array, short_limit)
    gamma, saved = _array(grad), _array(factors)
    outputs = (mask_array, grad_edges.numpy(), *_grad_limits(factors.dtype))
    if len(plan.group_work):
        flat = saved.reshape(-1)
        parallel_for(adjoint_short, plan.group_work, plan.order, gamma, flat, *outputs)
    if len(plan.single_work):
        order, grouped = plan.order, texts - len(plan.single_work)
        work = plan.single_work / 4
        parallel_for(adjoint_long, work, order, grouped, gamma, saved, *outputs)
    return grad_edges


def _array(tensor: Tensor | None) -> Array:
    """Convert a tensor to a contiguous array; None becomes a mask with no rows."""
    return _NO_MASK if tensor is None else tensor.contiguous().numpy()


def _plan(texts: int, tokens: int, mask: Array, short_limit: int) -> Plan:
    if len(mask) == 0:
        return _full_plan(texts, tokens, short_limit)
    return Plan(*_sort(mask, short_limit))


@lru_cache(maxsize=64)
def _full_plan(texts: int, tokens: int, short_limit: int) -> Plan:
    """Return the plan for a batch without padding."""
    return Plan(*_sort(np.ones((texts, tokens), np.bool_), short_limit))


@cache
def _scale_limits(dtype: torch.dtype) -> tuple[int, Any]:
    """Return the exponent of the scale and the smallest rate."""
    scalar = np.float32 if dtype == torch.float32 else np.float64
    return SCALE_EXPONENT[dtype], scalar(MIN_RATE[dtype])


@cache
def _grad_limits(dtype: torch.dtype) -> tuple[int, float, float]:
    """Return the exponent of the scale, the highest level and the largest gradient."""
    exponent = SCALE_EXPONENT[dtype]
    return exponent, MAX_LEVEL * 2.0**-exponent, torch.finfo(dtype).max


@jit(entry=True)
def _sort(mask: Array, short_limit: int) -> tuple[Array, Array, Array]:
    """Sort the texts by length, and form as many full groups of short ones as possible.

    Returns the order, the work per group, and the work per remaining text.
    """
    texts, tokens = mask.shape
    counts = np.empty(texts, np.int64)
    order = np.empty(texts, np.int64)
    starts = np.empty(tokens + 2, np.int64)  # first index in order of each length
    for length in range(tokens + 2):
        starts[length] = 0
    short = 0
    for text in range(texts):
        n = 0
        for token in range(tokens):
            n += mask[text, token]
        counts[text] = n
        starts[n + 1] += 1
        short += n <= short_limit
    for length in range(tokens + 1):
        starts[length + 1] += starts[length]
    for text in range(texts):
        order[starts[counts[text]]] = text
        starts[counts[text]] += 1
    groups = short // LANES
    group_work = np.empty(groups)
    single_work = np.empty(texts - LANES * groups)
    for index in range(texts):
        size = np.float64(counts[order[index]])
        work = size * size * size / 3
        if index >= LANES * groups:
            single_work[index - LANES * groups] = work
        elif index % LANES == LANES - 1:  # the longest of its group
            group_work[index // LANES] = LANES * work
    return order, group_work, single_work
