"""Column softmax and per-text reductions, compiled for the CPU."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from perron.kernels.compile import Array, jit, jit_sums, parallel_for, used_words
from perron.kernels.simd import LANES, exponential, put, spread, take, where_less, wide

_PER_SCORE = 8.0  # multiply-adds that an exponential and the rest are worth


def column_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return softmax_i s_ij (B, H, N, N) over words in use, zero elsewhere."""
    texts, heads, words, _ = scores.shape
    edges = scores.new_empty(scores.shape)
    if edges.numel():
        work = np.full(texts, _PER_SCORE * heads * words**2)
        arrays = (scores.contiguous(), mask.contiguous(), edges)
        parallel_for(_softmax_texts, work, *[t.numpy() for t in arrays])
    return edges


def column_softmax_backward(grad: Tensor, edges: Tensor) -> Tensor:
    """Return A_ij (g_ij - Σ_i A_ij g_ij)."""
    slopes = edges.new_empty(edges.shape)
    if slopes.numel():
        graphs, words = edges.shape[0] * edges.shape[1], edges.shape[-1]
        work = np.full(graphs, 2.0 * words**2)
        arrays = (grad.contiguous(), edges, slopes)
        shape = (graphs, words, words)
        parallel_for(
            _slopes_of_graphs, work, *[t.numpy().reshape(shape) for t in arrays]
        )
    return slopes


@jit
def _softmax_texts(
    first: int, last: int, scores: Array, mask: Array, edges: Array
) -> None:
    heads, words = scores.shape[1], scores.shape[2]
    width = (words + LANES - 1) // LANES * LANES
    used = np.empty(words, np.int64)
    top, total = np.empty(width, scores.dtype), np.empty(width)
    line = np.zeros(width, scores.dtype)
    for text in range(first, last):
        n = used_words(mask, text, used)
        for head in range(heads):
            graph, out = scores[text, head], edges[text, head]
            if n < words:
                out[:] = 0
            if n == 0:
                continue
            _largest(graph, used[:n], top)
            total[:] = 0
            for a in range(n):
                _shift_and_exponentiate(graph[used[a]], top, line, total)
                out[used[a]] = line[:words]
            for j in range(words):
                top[j] = 1 / total[j] if mask[text, j] else 0
            for a in range(n):
                row = out[used[a]]
                for j in range(words):
                    row[j] *= top[j]


@jit
def _largest(graph: Array, used: Array, top: Array) -> None:
    words = graph.shape[1]
    top[:words] = graph[used[0]]
    top[words:] = 0
    for i in used[1:]:
        row = graph[i]
        for j in range(words):
            top[j] = row[j] if row[j] > top[j] else top[j]


@jit
def _shift_and_exponentiate(row: Array, top: Array, line: Array, total: Array) -> None:
    """line_j = exp(row_j - top_j), added to the total."""
    line[: len(row)] = row
    least = spread(-700.0)
    for j in range(0, len(line), LANES):
        x = wide(take(line, j)) - wide(take(top, j))
        value = exponential(where_less(x, least, least, x))
        put(line, j, value)
        put(total, j, take(total, j) + value)


@jit
def _slopes_of_graphs(
    first: int, last: int, grad: Array, edges: Array, slopes: Array
) -> None:
    words = edges.shape[1]
    mean = np.empty(words, edges.dtype)
    for graph in range(first, last):
        mean[:] = 0
        for i in range(words):
            a, g = edges[graph, i], grad[graph, i]
            for j in range(words):
                mean[j] += a[j] * g[j]
        for i in range(words):
            a, g, out = edges[graph, i], grad[graph, i], slopes[graph, i]
            for j in range(words):
                out[j] = a[j] * (g[j] - mean[j])


_LONG = 256  # words


def segment_sum(weights: Tensor, states: Tensor, counts: Tensor) -> Tensor:
    """Return v_th = Σ_i α_ih x_i (B, H, D) of α (M, H) and x (M, D)."""
    sums = states.new_empty(len(counts), weights.shape[1], states.shape[1])
    starts, work = _plan(counts, weights.shape[1] * states.shape[1])
    if _are_long(weights, counts):
        for text, (first, last) in enumerate(pairwise(starts.tolist())):
            torch.mm(weights[first:last].mT, states[first:last], out=sums[text])
    elif len(work):
        arrays = (weights.contiguous(), states.contiguous(), sums)
        parallel_for(_sum_texts, work, starts, *[t.numpy() for t in arrays])
    return sums


def segment_sum_backward(
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
        parallel_for(_adjoint_texts, 3 * work, starts, *[t.numpy() for t in arrays])
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


def segment_argmax(x: Tensor, counts: Tensor) -> Tensor:
    """Return the word (B, D) that has the largest x of each text and coordinate.

    An undefined number counts as the largest. Zero for a text without words.
    """
    which = counts.new_zeros(len(counts), x.shape[1])
    starts, work = _plan(counts, 2 * x.shape[1])
    if len(work):
        parallel_for(_find_texts, work, starts, x.contiguous().numpy(), which.numpy())
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
