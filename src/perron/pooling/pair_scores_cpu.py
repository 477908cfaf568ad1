"""Scores of all pairs of words, compiled: the hidden layer of a pair is never stored.

    s_ij = Σ_k w_k act(a_ik + b_jk)

The inner loop runs over the K hidden units, which is long enough for vector
instructions. The backward pass computes the hidden units anew. Work is proportional to
the pairs of words that exist.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perron.solver.compiled import Array, jit, jit_sums, share_out, used_words

# Which activation a kernel computes: numba wants a number.
_FAST_TANH, _TANH, _RELU = 0, 1, 2

# tanh x = x P(x²) / Q(x²) on [-9, 9], beyond which it is ±1 in float32. A fit with
# relative error 2e-8; computed in float32 it is right to 5 units of rounding.
_P0, _P1, _P2, _P3, _P4 = (
    np.float32(c)
    for c in (
        0.999999980414,
        0.133828402128,
        3.49774092169e-3,
        2.06444640146e-5,
        1.34037399113e-8,
    )
)
_Q1, _Q2, _Q3, _Q4 = (
    np.float32(c)
    for c in (0.467161564556, 0.0258851777601, 3.28915284022e-4, 7.79662608564e-7)
)
_NINE, _ONE = np.float32(9), np.float32(1)


def forward(a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Return the scores (B, H, N, N), zero where a word is not in use."""
    texts, heads, words, _ = a.shape
    scores = a.new_zeros(texts, heads, words, words)
    arrays = (a.contiguous(), b.contiguous(), w.contiguous(), mask.contiguous(), scores)
    arguments = [tensor.numpy() for tensor in arrays]
    share_out(_score_texts, _work(mask, a), *arguments, _kind(a, activation))
    return scores


def backward(
    grad: Tensor, a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients to a, b and w from that to the scores."""
    grad_a, grad_b = a.new_zeros(a.shape), b.new_zeros(b.shape)
    grad_w = w.new_zeros(len(a), *w.shape)  # each text's own: texts run in parallel
    inputs = (grad.contiguous(), a.contiguous(), b.contiguous(), w.contiguous())
    arrays = (*inputs, mask.contiguous(), grad_a, grad_b, grad_w)
    arguments = [tensor.numpy() for tensor in arrays]
    share_out(_adjoint_texts, 2 * _work(mask, a), *arguments, _kind(a, activation))
    return grad_a, grad_b, grad_w.sum(0)


def _kind(a: Tensor, activation: str) -> int:
    if activation == "relu":
        return _RELU
    return _FAST_TANH if a.dtype == torch.float32 else _TANH


def _work(mask: Tensor, a: Tensor) -> Array:
    """Estimate multiply-adds: a hidden unit of a pair costs some ten."""
    counts: Array = mask.sum(-1).numpy().astype(np.float64)
    return 10 * counts**2 * a.shape[1] * a.shape[3]


@jit_sums
def _tanh(x: Any) -> Any:
    x = x if x < _NINE else _NINE
    x = x if x > -_NINE else -_NINE
    z = x * x
    p = _P0 + z * (_P1 + z * (_P2 + z * (_P3 + z * _P4)))
    return x * p / (_ONE + z * (_Q1 + z * (_Q2 + z * (_Q3 + z * _Q4))))


@jit_sums
def _score_row(a: Array, b: Array, w: Array, kind: int, row: Array) -> None:
    """row_j = Σ_k w_k act(a_k + b_jk)."""
    for j in range(len(b)):
        total = w.dtype.type(0)
        if kind == _RELU:
            for k in range(len(w)):
                x = a[k] + b[j, k]
                total += w[k] * (x if x > 0 else w.dtype.type(0))
        elif kind == _FAST_TANH:
            for k in range(len(w)):
                total += w[k] * _tanh(a[k] + b[j, k])
        else:
            for k in range(len(w)):
                total += w[k] * math.tanh(a[k] + b[j, k])
        row[j] = total


@jit
def _score_texts(
    first: int,
    last: int,
    a: Array,
    b: Array,
    w: Array,
    mask: Array,
    scores: Array,
    kind: int,
) -> None:
    heads, words, hidden = a.shape[1], a.shape[2], a.shape[3]
    used = np.empty(words, np.int64)
    sources = np.empty((words, hidden), a.dtype)
    row = np.empty(words, a.dtype)
    for text in range(first, last):
        n = used_words(mask, text, used)
        for head in range(heads):
            for i in range(n):
                sources[i] = b[text, head, used[i]]
            for i in range(n):
                target = a[text, head, used[i]]
                _score_row(target, sources[:n], w[head], kind, row)
                for j in range(n):
                    scores[text, head, used[i], used[j]] = row[j]


@jit
def _slope_row(
    a: Array,
    b: Array,
    kind: int,
    grad: Array,
    grad_a: Array,
    grad_b: Array,
    grad_w: Array,
) -> None:
    """Add to the gradients, but for the factor w that those of a and b have."""
    for j in range(len(b)):
        g = grad[j]
        if kind == _RELU:
            for k in range(len(a)):
                x = a[k] + b[j, k]
                slope = g if x > 0 else a.dtype.type(0)
                grad_a[k] += slope
                grad_b[j, k] += slope
                grad_w[k] += slope * x
        elif kind == _FAST_TANH:
            for k in range(len(a)):
                h = _tanh(a[k] + b[j, k])
                slope = g - g * h * h
                grad_a[k] += slope
                grad_b[j, k] += slope
                grad_w[k] += g * h
        else:
            for k in range(len(a)):
                h = math.tanh(a[k] + b[j, k])
                slope = g - g * h * h
                grad_a[k] += slope
                grad_b[j, k] += slope
                grad_w[k] += g * h


@jit
def _adjoint_texts(
    first: int,
    last: int,
    grad: Array,
    a: Array,
    b: Array,
    w: Array,
    mask: Array,
    grad_a: Array,
    grad_b: Array,
    grad_w: Array,
    kind: int,
) -> None:
    heads, words, hidden = a.shape[1], a.shape[2], a.shape[3]
    used = np.empty(words, np.int64)
    sources = np.empty((words, hidden), a.dtype)
    to_sources = np.empty((words, hidden), a.dtype)
    to_target = np.empty(hidden, a.dtype)
    row = np.empty(words, a.dtype)
    for text in range(first, last):
        n = used_words(mask, text, used)
        for head in range(heads):
            for i in range(n):
                sources[i] = b[text, head, used[i]]
            to_sources[:n] = 0
            to_w = grad_w[text, head]
            for i in range(n):
                for j in range(n):
                    row[j] = grad[text, head, used[i], used[j]]
                to_target[:] = 0
                target = a[text, head, used[i]]
                _slope_row(target, sources[:n], kind, row, to_target, to_sources, to_w)
                for k in range(hidden):
                    grad_a[text, head, used[i], k] = to_target[k] * w[head, k]
            for j in range(n):
                for k in range(hidden):
                    grad_b[text, head, used[j], k] = to_sources[j, k] * w[head, k]
