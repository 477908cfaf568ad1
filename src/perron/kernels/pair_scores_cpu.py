"""Compiled scores of all pairs of tokens, without storing the hidden layers.

    s_ij = Σ_k w_k act(a_ik + b_jk)

The inner loop runs over the K hidden units, eight at a time. The backward pass
recomputes the hidden units. The work is proportional to the number of pairs of valid
tokens. It is split into tiles of limited size, each of which is a short text or some of
the target tokens of a long one.
"""

import math

import numpy as np
import torch
from torch import Tensor

from perron.kernels.compile import Array, jit, parallel_for, valid_positions
from perron.kernels.pair_units import (
    EXPONENTIAL,
    RELU,
    TANH,
    accumulate_grads,
    exponentiate,
    fits_exp_range,
    score,
)
from perron.kernels.simd import LANES

# Columns of a tile: its text, the range first .. last - 1 of its target tokens in this
# text, the number of tokens before this text, and the destination of the gradients of
# the source tokens. The destination is 0 for the result itself, and m for buffer m - 1,
# which is added to the result at the end.
_TEXT, _FIRST, _LAST, _OFFSET, _BUFFER = range(5)

_TARGET, _SOURCE = 0, 1  # indices of a and b in x

_BLOCK = 32  # source tokens that fit in the L1 cache together with their gradients

_TILES_PER_THREAD = 8  # several, for dynamic scheduling

_WORK_PER_UNIT = 10.0  # cost of a hidden unit of a pair, in multiply-adds


def forward(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Return the scores (B, H, N, N); see `pair_scores`."""
    texts, tokens = mask.shape
    valid = mask.contiguous().numpy()
    tiles, work, count = make_tiles(valid, max_tile_work(valid, w), w.numel())
    scores = x.new_empty(texts, len(w), tokens, tokens)
    if count < texts * tokens:
        scores.zero_()
        scores.masked_fill_(~mask[:, None, :, None], torch.finfo(x.dtype).min)
    if count:
        arrays = (x.contiguous(), w.contiguous(), scores)
        arguments = [tensor.numpy() for tensor in arrays]
        relu = activation == "relu"
        parallel_for(_score_tiles, work, tiles, valid, *arguments, relu)
    return scores


def backward(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and w from the gradient of the scores."""
    valid = mask.contiguous().numpy()
    tiles, work, count = make_tiles(valid, max_tile_work(valid, w), w.numel())
    grad_x = x.new_empty(x.shape) if count == len(x) else x.new_zeros(x.shape)
    # One per tile: tiles run in parallel, and several may belong to the same text.
    grad_w = w.new_zeros(len(tiles), *w.shape)
    if count:
        num_buffers = int(tiles[:, _BUFFER].max())
        buffers = x.new_empty(num_buffers, mask.shape[1], *w.shape)
        inputs = (grad.contiguous(), x.contiguous(), w.contiguous())
        arguments = [t.numpy() for t in (*inputs, grad_x, grad_w, buffers)]
        relu = activation == "relu"
        parallel_for(_backward_tiles, 2 * work, tiles, valid, *arguments, relu)
        _add_partial_grads(tiles, valid, buffers.numpy(), grad_x.numpy())
    return grad_x, grad_w.sum(0)


def max_tile_work(mask: Array, w: Tensor) -> float:
    """Return the work limit of a tile, in multiply-adds, that balances the threads."""
    threads = torch.get_num_threads()
    if threads == 1:
        return math.inf
    pairs = float((mask.sum(-1, dtype=np.float64) ** 2).sum())
    return _WORK_PER_UNIT * pairs * w.numel() / threads / _TILES_PER_THREAD


@jit(entry=True)
def make_tiles(mask: Array, max_work: float, units: int) -> tuple[Array, Array, int]:
    """Return the tiles, the multiply-adds per tile, and the number of valid tokens.

    Args:
        mask: (B, N), True on valid tokens.
        max_work: Largest work of a tile, in multiply-adds. A tile has at least one
            target token.
        units: Number of hidden units per pair, in all heads.
    """
    texts, tokens = mask.shape
    tiles = np.empty((texts * tokens, 5), np.int64)
    work = np.empty(texts * tokens)
    size = count = buffer = 0
    for text in range(texts):
        n = 0
        for token in range(tokens):
            n += mask[text, token]
        row = _WORK_PER_UNIT * n * units
        step = int(max_work / row) if max_work < row * n else n
        step = step if step > 1 else 1
        for first in range(0, n, step):
            last = first + step if first + step < n else n
            buffer += first > 0
            tile = tiles[size]
            tile[_TEXT], tile[_FIRST], tile[_LAST] = text, first, last
            tile[_OFFSET], tile[_BUFFER] = count, buffer if first else 0
            work[size] = row * (last - first)
            size += 1
        count += n
    return tiles[:size], work[:size], count


@jit(entry=True)
def _add_partial_grads(
    tiles: Array, mask: Array, buffers: Array, grad_x: Array
) -> None:
    """Add the buffered gradients of the source tokens to the result."""
    rows = np.empty(mask.shape[1], np.int64)
    for tile in tiles:
        if tile[_BUFFER]:
            n = _row_indices(mask, len(grad_x), tile, rows)
            buffer = buffers[tile[_BUFFER] - 1]
            heads, hidden = buffer.shape[1], buffer.shape[2]
            for i in range(n):
                out = grad_x[rows[i], _SOURCE]
                for head in range(heads):
                    for k in range(hidden):
                        out[head, k] += buffer[i, head, k]


@jit()
def _row_indices(mask: Array, num_rows: int, tile: Array, rows: Array) -> int:
    """Write the rows of x that hold the tokens of a text; return their number."""
    text = tile[_TEXT]
    n = valid_positions(mask, text, rows)
    padded = num_rows == mask.shape[0] * mask.shape[1]  # x has rows for padding too
    for i in range(n):
        rows[i] = rows[i] + text * mask.shape[1] if padded else tile[_OFFSET] + i
    return n


@jit()
def _gather(x: Array, rows: Array, side: int, head: int, out: Array) -> None:
    """Copy rows of x (R, 2, H, K) to out[:, 0], padded with zeros.

    The padding is what `score` and `accumulate_grads` read: up to a multiple of eight
    units, and three additional rows.
    """
    hidden = x.shape[3]
    for i in range(len(rows)):
        token, row = out[i, 0], x[rows[i], side, head]
        for k in range(hidden):
            token[k] = row[k]
        for k in range(hidden, len(token)):
            token[k] = 0
    out[len(rows) : len(rows) + 3] = 0


@jit()
def _prepare(
    x: Array,
    head: int,
    target_rows: Array,
    source_rows: Array,
    relu: bool,
    targets: Array,
    sources: Array,
) -> int:
    """Gather the tokens of a tile; return the method for their hidden units."""
    m, n = len(target_rows), len(source_rows)
    _gather(x, target_rows, _TARGET, head, targets)
    _gather(x, source_rows, _SOURCE, head, sources)
    if relu:
        return RELU
    if targets.itemsize > 4:  # float64
        return TANH
    if not (fits_exp_range(targets[:m]) and fits_exp_range(sources[:n])):
        return TANH
    exponentiate(targets[:m], 2.0)
    exponentiate(sources[: n + 3], -2.0)
    return EXPONENTIAL


@jit(entry=True)
def _score_tiles(
    first: int,
    last: int,
    tiles: Array,
    mask: Array,
    x: Array,
    w: Array,
    scores: Array,
    relu: bool,
) -> None:
    """Compute the scores of a range of tiles."""
    tokens = mask.shape[1]
    heads, hidden = w.shape
    width = (hidden + LANES - 1) // LANES * LANES
    positions, rows = np.empty(tokens, np.int64), np.empty(tokens, np.int64)
    targets = np.empty((tokens + 3, 2, width), x.dtype)
    sources = np.empty((tokens + 3, 2, width), x.dtype)
    weights = np.empty(width, x.dtype)
    weights[:] = 0
    block_scores = np.empty(_BLOCK, x.dtype)
    for index in range(first, last):
        tile = tiles[index]
        text, start = tile[_TEXT], tile[_FIRST]
        m = tile[_LAST] - start
        n = valid_positions(mask, text, positions)
        _row_indices(mask, len(x), tile, rows)
        for head in range(heads):
            target_rows = rows[start : start + m]
            method = _prepare(x, head, target_rows, rows[:n], relu, targets, sources)
            for k in range(hidden):
                weights[k] = w[head, k]
            for j in range(0, n, _BLOCK):
                block = sources[j : j + _BLOCK + 3]
                size = n - j if n - j < _BLOCK else _BLOCK
                for i in range(m):
                    score(targets[i], block, size, weights, method, block_scores)
                    row = scores[text, head, positions[start + i]]
                    for s in range(size):
                        row[positions[j + s]] = block_scores[s]


@jit(entry=True)
def _backward_tiles(
    first: int,
    last: int,
    tiles: Array,
    mask: Array,
    grad: Array,
    x: Array,
    w: Array,
    grad_x: Array,
    grad_w: Array,
    buffers: Array,
    relu: bool,
) -> None:
    """Compute the gradients of a range of tiles."""
    tokens = mask.shape[1]
    heads, hidden = w.shape
    width = (hidden + LANES - 1) // LANES * LANES
    positions, rows = np.empty(tokens, np.int64), np.empty(tokens, np.int64)
    targets = np.empty((tokens + 3, 2, width), x.dtype)
    sources = np.empty((tokens + 3, 2, width), x.dtype)
    grad_targets = np.empty((tokens, width), x.dtype)
    grad_sources = np.empty((tokens + 3, width), x.dtype)
    sum_w = np.empty(width, x.dtype)
    grad_row = np.empty(_BLOCK, x.dtype)
    for index in range(first, last):
        tile = tiles[index]
        text, start = tile[_TEXT], tile[_FIRST]
        m = tile[_LAST] - start
        n = valid_positions(mask, text, positions)
        _row_indices(mask, len(x), tile, rows)
        for head in range(heads):
            target_rows = rows[start : start + m]
            method = _prepare(x, head, target_rows, rows[:n], relu, targets, sources)
            grad_targets[:m] = 0
            grad_sources[: n + 3] = 0
            sum_w[:] = 0
            for j in range(0, n, _BLOCK):
                block = sources[j : j + _BLOCK + 3]
                size = n - j if n - j < _BLOCK else _BLOCK
                grad_block = grad_sources[j : j + _BLOCK + 3]
                grad_row[size:] = 0
                for i in range(m):
                    row = grad[text, head, positions[start + i]]
                    for s in range(size):
                        grad_row[s] = row[positions[j + s]]
                    accumulate_grads(
                        targets[i],
                        block,
                        size,
                        method,
                        grad_row,
                        grad_targets[i],
                        grad_block,
                        sum_w,
                    )
            for k in range(hidden):
                grad_w[index, head, k] = sum_w[k]
            for i in range(m):
                out = grad_x[rows[start + i], _TARGET, head]
                for k in range(hidden):
                    out[k] = grad_targets[i, k] * w[head, k]
            for j in range(n):
                if tile[_BUFFER]:
                    out = buffers[tile[_BUFFER] - 1, j, head]
                else:
                    out = grad_x[rows[j], _SOURCE, head]
                for k in range(hidden):
                    out[k] = grad_sources[j, k] * w[head, k]
