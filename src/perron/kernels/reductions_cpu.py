"""Column softmax, per-text reductions and mixes of layers, compiled for the CPU."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from perron.kernels import reductions_torch
from perron.kernels.compile import Array, jit, parallel_for, valid_positions
from perron.kernels.simd import (
    LANES,
    exp,
    load,
    load_half,
    splat,
    store,
    sum_lanes,
    where_less,
    widen,
)

_WORK_PER_SCORE = 8.0  # cost of a softmax entry, in multiply-adds


def column_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return softmax_i s_ij (B, H, N, N) over valid tokens, zero elsewhere."""
    texts, heads, tokens, _ = scores.shape
    edges = scores.new_empty(scores.shape)
    if edges.numel():
        work = np.full(texts, _WORK_PER_SCORE * heads * tokens**2)
        arrays = (scores.contiguous(), mask.contiguous(), edges)
        parallel_for(_softmax_texts, work, *[t.numpy() for t in arrays])
    return edges


def column_softmax_backward(grad: Tensor, edges: Tensor) -> Tensor:
    """Return A_ij (g_ij - Σ_i A_ij g_ij)."""
    grad_scores = edges.new_empty(edges.shape)
    if grad_scores.numel():
        graphs, tokens = edges.shape[0] * edges.shape[1], edges.shape[-1]
        work = np.full(graphs, 2.0 * tokens**2)
        arrays = (grad.contiguous(), edges, grad_scores)
        flat = [t.numpy().reshape(graphs, tokens, tokens) for t in arrays]
        parallel_for(_softmax_backward_graphs, work, *flat)
    return grad_scores


@jit(entry=True)
def _softmax_texts(
    first: int, last: int, scores: Array, mask: Array, edges: Array
) -> None:
    heads, tokens = scores.shape[1], scores.shape[2]
    width = (tokens + LANES - 1) // LANES * LANES
    positions = np.empty(tokens, np.int64)
    top, total = np.empty(width, scores.dtype), np.empty(width)
    buffer = np.empty(width, scores.dtype)
    buffer[:] = 0
    for text in range(first, last):
        n = valid_positions(mask, text, positions)
        for head in range(heads):
            graph, out = scores[text, head], edges[text, head]
            if n < tokens:
                out[:] = 0
            if n == 0:
                continue
            _column_max(graph, positions[:n], top)
            total[:] = 0
            for a in range(n):
                _shift_and_exponentiate(graph[positions[a]], top, buffer, total)
                row = out[positions[a]]
                for j in range(tokens):
                    row[j] = buffer[j]
            for j in range(tokens):
                top[j] = 1 / total[j] if mask[text, j] else 0
            for a in range(n):
                row = out[positions[a]]
                for j in range(tokens):
                    row[j] *= top[j]


@jit()
def _column_max(graph: Array, positions: Array, top: Array) -> None:
    tokens = graph.shape[1]
    row = graph[positions[0]]
    for j in range(tokens):
        top[j] = row[j]
    top[tokens:] = 0
    for a in range(1, len(positions)):
        row = graph[positions[a]]
        for j in range(tokens):
            top[j] = row[j] if row[j] > top[j] else top[j]


@jit()
def _shift_and_exponentiate(row: Array, top: Array, out: Array, total: Array) -> None:
    """Compute out_j = exp(row_j - top_j), and add it to the total."""
    for j in range(len(row)):
        out[j] = row[j]
    low = splat(-700.0)
    for j in range(0, len(out), LANES):
        x = widen(load(out, j)) - widen(load(top, j))
        value = exp(where_less(x, low, low, x))
        store(out, j, value)
        store(total, j, load(total, j) + value)


@jit(entry=True)
def _softmax_backward_graphs(
    first: int, last: int, grad: Array, edges: Array, grad_scores: Array
) -> None:
    tokens = edges.shape[1]
    mean = np.empty(tokens, edges.dtype)
    for graph in range(first, last):
        mean[:] = 0
        for i in range(tokens):
            a, g = edges[graph, i], grad[graph, i]
            for j in range(tokens):
                mean[j] += a[j] * g[j]
        for i in range(tokens):
            a, g, out = edges[graph, i], grad[graph, i], grad_scores[graph, i]
            for j in range(tokens):
                out[j] = a[j] * (g[j] - mean[j])


_MIN_MATMUL_LENGTH = 256  # mean tokens per text


def segment_sum(weights: Tensor, states: Tensor, counts: Tensor) -> Tensor:
    """Return v_th = Σ_i α_ih x_i (B, H, D) of α (M, H) and x (M, D)."""
    sums = states.new_empty(len(counts), weights.shape[1], states.shape[1])
    starts, work = _starts_and_work(counts, weights.shape[1] * states.shape[1])
    if _use_matmul(weights, counts):
        for text, (first, last) in enumerate(pairwise(starts.tolist())):
            torch.mm(weights[first:last].mT, states[first:last], out=sums[text])
    elif len(work):
        arrays = (weights.contiguous(), states.contiguous(), sums)
        parallel_for(_sum_texts, work, starts, *[t.numpy() for t in arrays])
    return sums


def segment_sum_backward(
    grad: Tensor, weights: Tensor, states: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the weights and the states."""
    grad_weights = weights.new_empty(weights.shape)
    grad_states = states.new_empty(states.shape)
    starts, work = _starts_and_work(counts, weights.shape[1] * states.shape[1])
    if _use_matmul(weights, counts):
        for text, (first, last) in enumerate(pairwise(starts.tolist())):
            rows = slice(first, last)
            torch.mm(states[rows], grad[text].mT, out=grad_weights[rows])
            torch.mm(weights[rows], grad[text], out=grad_states[rows])
    elif len(work):
        inputs = (grad.contiguous(), weights.contiguous(), states.contiguous())
        arrays = (*inputs, grad_weights, grad_states)
        parallel_for(
            _sum_backward_texts, 3 * work, starts, *[t.numpy() for t in arrays]
        )
    return grad_weights, grad_states


def _use_matmul(weights: Tensor, counts: Tensor) -> bool:
    """Return whether one matrix product per text is faster than the kernel."""
    return weights.shape[1] > 1 and len(weights) > _MIN_MATMUL_LENGTH * len(counts)


def _starts_and_work(counts: Tensor, work_per_word: int) -> tuple[Array, Array]:
    """Return the first row of each text, and its work in multiply-adds."""
    lengths: Array = counts.numpy()
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return starts, lengths * float(work_per_word)


@jit(entry=True)
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


@jit(reassoc=True)
def _dot(x: Array, y: Array) -> float:
    total = x.dtype.type(0)
    for d in range(len(x)):
        total += x[d] * y[d]
    return total


@jit(entry=True)
def _sum_backward_texts(
    first: int,
    last: int,
    starts: Array,
    grad: Array,
    weights: Array,
    states: Array,
    grad_weights: Array,
    grad_states: Array,
) -> None:
    width = states.shape[1]
    for text in range(first, last):
        for i in range(starts[text], starts[text + 1]):
            out = grad_states[i]
            for head in range(weights.shape[1]):
                g, weight = grad[text, head], weights[i, head]
                grad_weights[i, head] = _dot(g, states[i])
                if head == 0:
                    for d in range(width):
                        out[d] = weight * g[d]
                else:
                    for d in range(width):
                        out[d] += weight * g[d]


def segment_argmax(x: Tensor, counts: Tensor) -> Tensor:
    """Return the row (B, D) with the largest x in each text and coordinate.

    NaN counts as the largest. The result is zero for a text with no tokens.
    """
    indices = counts.new_zeros(len(counts), x.shape[1])
    starts, work = _starts_and_work(counts, 2 * x.shape[1])
    if len(work):
        parallel_for(
            _argmax_texts, work, starts, x.contiguous().numpy(), indices.numpy()
        )
    return indices


@jit(entry=True)
def _argmax_texts(
    first: int, last: int, starts: Array, x: Array, indices: Array
) -> None:
    width = x.shape[1]
    top = np.empty(width, x.dtype)
    for text in range(first, last):
        begin, end = starts[text], starts[text + 1]
        if begin == end:
            continue
        row, index = x[begin], indices[text]
        for d in range(width):
            top[d] = row[d]
            index[d] = begin
        for i in range(begin + 1, end):
            row = x[i]
            for d in range(width):
                larger = row[d] > top[d] or row[d] != row[d]
                top[d] = row[d] if larger else top[d]
                index[d] = i if larger else index[d]


_MIX_BLOCK = 1024  # numbers per layer; a block of the output stays in the L1 cache


def mix_layers(weights: Tensor, states: Tensor) -> Tensor:
    """Return y = Σ_k w_k x_k (...) of w (K) and x (K, ...), in the dtype of w.

    States in float16 are converted in registers. In plain torch, the float32 copy of
    all layers takes longer than the sum.
    """
    if not _can_mix(weights, states):
        return reductions_torch.mix_layers(weights, states)
    mixed = weights.new_empty(states.shape[1:])
    arrays = (weights.numpy(), _bits(states), mixed.numpy().reshape(-1))
    parallel_for(_mix_blocks, _mix_work(states), *arrays)
    return mixed


def mix_layers_backward(grad: Tensor, weights: Tensor, states: Tensor) -> Tensor:
    """Return ∂ℓ/∂w_k = Σ x_k g from g = ∂ℓ/∂y."""
    if not _can_mix(weights, states):
        return reductions_torch.mix_layers_backward(grad, weights, states)
    work = _mix_work(states)
    sums = np.empty((len(work), len(weights)))
    arrays = (grad.contiguous().numpy().reshape(-1), _bits(states), sums)
    parallel_for(_mix_backward_blocks, work, *arrays)
    return torch.from_numpy(sums.sum(0)).to(weights.dtype)


def _can_mix(weights: Tensor, states: Tensor) -> bool:
    return (
        states.dtype == torch.float16
        and weights.dtype == torch.float32
        and states.is_contiguous()
        and states.numel() > 0
        and states[0].numel() % LANES == 0
    )


def _bits(states: Tensor) -> Array:
    return states.detach().view(torch.int16).numpy().reshape(len(states), -1)


def _mix_work(states: Tensor) -> Array:
    """Return the work of each block. Reading memory takes most of the time."""
    blocks = -(-states[0].numel() // _MIX_BLOCK)
    return np.full(blocks, 2.0 * len(states) * _MIX_BLOCK)


@jit(entry=True)
def _mix_blocks(
    first: int, last: int, weights: Array, states: Array, mixed: Array
) -> None:
    begin, end = first * _MIX_BLOCK, last * _MIX_BLOCK
    end = end if end < len(mixed) else len(mixed)
    for i in range(begin, end, LANES):
        total = splat(weights[0]) * load_half(states[0], i)
        for layer in range(1, len(weights)):
            total += splat(weights[layer]) * load_half(states[layer], i)
        store(mixed, i, total)


@jit(entry=True)
def _mix_backward_blocks(
    first: int, last: int, grad: Array, states: Array, sums: Array
) -> None:
    for block in range(first, last):
        begin, end = block * _MIX_BLOCK, (block + 1) * _MIX_BLOCK
        end = end if end < len(grad) else len(grad)
        for layer in range(len(states)):
            x = states[layer]
            # Four sums, because each addition has to wait for the one before it.
            a = b = c = d = splat(np.float32(0))
            unrolled = begin + (end - begin) // (4 * LANES) * (4 * LANES)
            for i in range(begin, unrolled, 4 * LANES):
                a += load(grad, i) * load_half(x, i)
                b += load(grad, i + LANES) * load_half(x, i + LANES)
                c += load(grad, i + 2 * LANES) * load_half(x, i + 2 * LANES)
                d += load(grad, i + 3 * LANES) * load_half(x, i + 3 * LANES)
            for i in range(unrolled, end, LANES):
                a += load(grad, i) * load_half(x, i)
            sums[block, layer] = sum_lanes((a + b) + (c + d))
