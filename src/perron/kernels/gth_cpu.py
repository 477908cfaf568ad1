"""Grassmann-Taksar-Heyman elimination on the CPU: which kernel, with which numbers.

The letters are those of `docs/mathematics.md`. Both kernels first pack the n words in
use together, so that padding and holes cost nothing, and scale the rates by a power of
two, so that products of small numbers stay clear of the slow, inexact end of the number
range. Both leave the same factors of K = diag(1ᵀA) - A behind for the gradient:

    W[i, k], i < k    P_ik, the rng that a walker leaving k for {0..k-1} goes to i
    W[k, j], j < k    the rate j -> k when only {0..k} are left
    W[k, k], k > 0    s_k, the rate at which a walker leaves k for {0..k-1}
    W[0, 0]           the exponent of the scale

in the layout each of them likes; a rate that is negative, infinite or undefined makes
the exponent and the weights of its text NaN.
"""

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from perron.kernels.compile import Array, jit, parallel_for
from perron.kernels.gth_long import adjoint_long, solve_long
from perron.kernels.gth_short import adjoint_short, solve_short
from perron.kernels.gth_torch import FLOOR, HIGHEST, TOP
from perron.kernels.simd import LANES

SHORT_LIMIT = 64  # words up to which texts are solved eight at a time

_EVERY_WORD = np.empty((0, 0), np.bool_)


class Plan(NamedTuple):
    """Who is solved with whom: short texts in groups of eight, all others alone."""

    order: Array  # the texts by length: groups first; factors are kept in this order
    groups: Array  # multiply-adds of each group
    others: Array  # and of each text that is in none


def forward(
    edges: Tensor,
    mask: Tensor | None,
    keep_factors: bool,
    *,
    short_limit: int = SHORT_LIMIT,
) -> tuple[Tensor, Tensor, Plan]:
    """Return the weights (B, N), the factors (B, N, N), or none of these, the plan.

    Args:
        edges: (B, N, N) rates.
        mask: (B, N), True on words in use. Defaults to every word.
        keep_factors: Whether to return the factors that `backward` needs.
        short_limit: Words up to which texts are solved eight at a time.
    """
    texts, words, _ = edges.shape
    weights = edges.new_empty(texts, words)
    factors = edges.new_empty(texts if keep_factors else 0, words, words)
    used = _array(mask)
    plan = _plan(texts, words, used, short_limit)
    arguments: list[Any] = [_array(edges), used, weights.numpy(), factors.numpy()]
    arguments += _floor(edges.dtype)
    if len(plan.groups):
        parallel_for(solve_short, plan.groups, plan.order, *arguments)
    if len(plan.others):
        alone = texts - len(plan.others)
        parallel_for(solve_long, plan.others, plan.order, alone, *arguments)
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

    Without a plan, ``short_limit`` must be that of the forward pass.
    """
    texts, words = grad.shape
    grad_edges = factors.new_empty(texts, words, words)
    used = _array(mask)
    plan = plan or _plan(texts, words, used, short_limit)
    arguments: list[Any] = [_array(grad), _array(factors), used, grad_edges.numpy()]
    arguments += _limits(factors.dtype)
    if len(plan.groups):
        parallel_for(adjoint_short, plan.groups, plan.order, *arguments)
    if len(plan.others):
        alone = texts - len(plan.others)
        parallel_for(adjoint_long, plan.others / 4, plan.order, alone, *arguments)
    return grad_edges


def _array(tensor: Tensor | None) -> Array:
    """Return what kernels read; a mask that is None becomes one without rows."""
    return _EVERY_WORD if tensor is None else tensor.contiguous().numpy()


def _plan(texts: int, words: int, mask: Array, short_limit: int) -> Plan:
    if len(mask) == 0:
        return _even_plan(texts, words, short_limit)
    return Plan(*_sort(mask, short_limit))


@lru_cache(maxsize=64)
def _even_plan(texts: int, words: int, longest_short: int) -> Plan:
    return Plan(*_sort(np.ones((texts, words), np.bool_), longest_short))


@cache
def _floor(dtype: torch.dtype) -> tuple[int, Any]:
    """Return the scale of the factors, and the least rate."""
    number = np.float32 if dtype == torch.float32 else np.float64
    return TOP[dtype], number(FLOOR[dtype])


@cache
def _limits(dtype: torch.dtype) -> tuple[int, float, float]:
    """Return the scale of the factors, the highest level, and the largest slope."""
    return TOP[dtype], HIGHEST * 2.0 ** -TOP[dtype], torch.finfo(dtype).max


@jit
def _sort(mask: Array, longest_short: int) -> tuple[Array, Array, Array]:
    """Sort the texts by length, and as many short ones as fill groups into groups."""
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
