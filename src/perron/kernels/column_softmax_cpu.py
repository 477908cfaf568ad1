"""The softmax over the columns of each graph, compiled."""

import numpy as np
from torch import Tensor

from perron.kernels.compile import Array, jit, share_out, used_words
from perron.kernels.simd import LANES, exponential, put, spread, take, where_less, wide

_PER_SCORE = 8.0  # multiply-adds that an exponential and the rest are worth


def forward(scores: Tensor, mask: Tensor) -> Tensor:
    """Return softmax_i s_ij (B, H, N, N) over words in use, zero elsewhere."""
    texts, heads, words, _ = scores.shape
    edges = scores.new_empty(scores.shape)
    if edges.numel():
        work = np.full(texts, _PER_SCORE * heads * words**2)
        arrays = (scores.contiguous(), mask.contiguous(), edges)
        share_out(_softmax_texts, work, *[t.numpy() for t in arrays])
    return edges


def backward(grad: Tensor, edges: Tensor) -> Tensor:
    """Return A_ij (g_ij - Σ_i A_ij g_ij)."""
    slopes = edges.new_empty(edges.shape)
    if slopes.numel():
        graphs, words = edges.shape[0] * edges.shape[1], edges.shape[-1]
        work = np.full(graphs, 2.0 * words**2)
        arrays = (grad.contiguous(), edges, slopes)
        shape = (graphs, words, words)
        share_out(_slopes_of_graphs, work, *[t.numpy().reshape(shape) for t in arrays])
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
