"""Sums and largest of the words of each text, compiled."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from perron.kernels.compile import Array, jit, jit_sums, share_out

_LONG = 256  # words


def forward(weights: Tensor, states: Tensor, counts: Tensor) -> Tensor:
    """Return v_th = Σ_i α_ih x_i (B, H, D) of α (M, H) and x (M, D)."""
    sums = states.new_empty(len(counts), weights.shape[1], states.shape[1])
    starts, work = _plan(counts, weights.shape[1] * states.shape[1])
    if _are_long(weights, counts):
        for text, (first, last) in enumerate(pairwise(starts.tolist())):
            torch.mm(weights[first:last].mT, states[first:last], out=sums[text])
    elif len(work):
        arrays = (weights.contiguous(), states.contiguous(), sums)
        share_out(_sum_texts, work, starts, *[t.numpy() for t in arrays])
    return sums


def backward(
    grad: Tensor, weights: Tensor, states: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients to the weights and to the states."""
    to_weights = weights.new_empty(weights.shape)
    to_states = states.new_empty(states.shape)
    starts, work = _plan(counts, weights.shape[1] * states.shape[1])
    if _are_long(weights, counts):
        for text, (first, last) in enumerate(pairwise(starts.tolist())):
            own = slice(first, last)
            torch.mm(states[own], grad[text].mT, out=to_weights[own])
            torch.mm(weights[own], grad[text], out=to_states[own])
    elif len(work):
        inputs = (grad.contiguous(), weights.contiguous(), states.contiguous())
        arrays = (*inputs, to_weights, to_states)
        share_out(_adjoint_texts, 3 * work, starts, *[t.numpy() for t in arrays])
    return to_weights, to_states


def _are_long(weights: Tensor, counts: Tensor) -> bool:
    """Tell whether a text is worth a matrix product of its own."""
    return weights.shape[1] > 1 and len(weights) > _LONG * len(counts)


def _plan(counts: Tensor, each: int) -> tuple[Array, Array]:
    """Return where each text starts, and its multiply-adds, from those of a word."""
    own: Array = counts.numpy()
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(own)])
    return starts, own * float(each)


@jit
def _sum_texts(
    first: int, last: int, starts: Array, weights: Array, states: Array, sums: Array
) -> None:
    width = states.shape[1]
    for text in range(first, last):
        for head in range(weights.shape[1]):
            out = sums[text, head]
            out[:] = 0
            for i in range(starts[text], starts[text + 1]):
                weight, x = weights[i, head], states[i]
                for d in range(width):
                    out[d] += weight * x[d]


@jit_sums
def _dot(x: Array, y: Array) -> float:
    total = x.dtype.type(0)
    for d in range(len(x)):
        total += x[d] * y[d]
    return total


@jit
def _adjoint_texts(
    first: int,
    last: int,
    starts: Array,
    grad: Array,
    weights: Array,
    states: Array,
    to_weights: Array,
    to_states: Array,
) -> None:
    width = states.shape[1]
    for text in range(first, last):
        for i in range(starts[text], starts[text + 1]):
            out = to_states[i]
            for head in range(weights.shape[1]):
                g, weight = grad[text, head], weights[i, head]
                to_weights[i, head] = _dot(g, states[i])
                if head == 0:
                    for d in range(width):
                        out[d] = weight * g[d]
                else:
                    for d in range(width):
                        out[d] += weight * g[d]


def argmax(x: Tensor, counts: Tensor) -> Tensor:
    """Return the word (B, D) that has the largest x of each text and coordinate.

    An undefined number counts as the largest. Zero for a text without words.
    """
    which = counts.new_zeros(len(counts), x.shape[1])
    starts, work = _plan(counts, 2 * x.shape[1])
    if len(work):
        share_out(_find_texts, work, starts, x.contiguous().numpy(), which.numpy())
    return which


@jit
def _find_texts(first: int, last: int, starts: Array, x: Array, which: Array) -> None:
    width = x.shape[1]
    top = np.empty(width, x.dtype)
    for text in range(first, last):
        begin, end = starts[text], starts[text + 1]
        if begin == end:
            continue
        top[:] = x[begin]
        found = which[text]
        found[:] = begin
        for i in range(begin + 1, end):
            row = x[i]
            for d in range(width):
                larger = row[d] > top[d] or row[d] != row[d]
                top[d] = row[d] if larger else top[d]
                found[d] = i if larger else found[d]
