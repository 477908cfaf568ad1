"""Weighted sums of the words of each text, compiled: the states are read once."""

import numpy as np
from torch import Tensor

from perron.solver.compiled import Array, jit, jit_sums, share_out


def forward(weights: Tensor, states: Tensor, counts: Tensor) -> Tensor:
    """Return v_th = Σ_i α_ih x_i (B, H, D) of α (M, H) and x (M, D)."""
    sums = states.new_empty(len(counts), weights.shape[1], states.shape[1])
    starts, work = _plan(weights, states, counts)
    if len(work):
        arrays = (weights.contiguous(), states.contiguous(), sums)
        share_out(_sum_texts, work, starts, *[t.numpy() for t in arrays])
    return sums


def backward(
    grad: Tensor, weights: Tensor, states: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients to the weights and to the states."""
    to_weights, to_states = (
        weights.new_empty(weights.shape),
        states.new_empty(states.shape),
    )
    starts, work = _plan(weights, states, counts)
    if len(work):
        inputs = (grad.contiguous(), weights.contiguous(), states.contiguous())
        arrays = (*inputs, to_weights, to_states)
        share_out(_adjoint_texts, 3 * work, starts, *[t.numpy() for t in arrays])
    return to_weights, to_states


def _plan(weights: Tensor, states: Tensor, counts: Tensor) -> tuple[Array, Array]:
    """Return where each text starts, and its multiply-adds."""
    own: Array = counts.numpy()
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(own)])
    return starts, own * float(weights.shape[1] * states.shape[1])


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
