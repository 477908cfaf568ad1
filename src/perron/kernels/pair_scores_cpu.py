"""Scores of all pairs of words, compiled: the hidden layer of a pair is never stored.

    s_ij = Σ_k w_k act(a_ik + b_jk)

The inner loop runs over the K hidden units, eight at a time. The backward pass computes
the hidden units anew. Work is proportional to the pairs of words that exist, and comes
in pieces of at most a certain size: a short text, or some target words of a long one.
"""

import math

import numpy as np
import torch
from torch import Tensor

from perron.kernels.compile import Array, jit, parallel_for, used_words
from perron.kernels.pair_units import (
    EXPONENTIAL,
    RELU,
    TANH,
    add_slopes,
    are_near,
    score,
    to_exponentials,
)
from perron.kernels.simd import LANES

# What is known of a piece: its text, its target words first .. last - 1 among the words
# of this text, the number of words before this text, and where its gradient to the
# sources goes: 0 for the result itself, m for part m - 1, to be added later.
_TEXT, _FIRST, _LAST, _BEFORE, _PART = range(5)

_TARGET, _SOURCE = 0, 1  # sides of x: a and b

_BLOCK = 32  # sources that fit the fastest cache, with what is summed for them

_PIECES_PER_THREAD = 8  # so that a thread which got light ones takes more of them


def forward(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Return the scores (B, H, N, N); see `pair_scores`."""
    texts, words = mask.shape
    used = mask.contiguous().numpy()
    pieces, work, count = cut_pieces(used, max_work(used, w), w.numel())
    scores = x.new_empty(texts, len(w), words, words)
    if count < texts * words:
        scores.zero_()
        scores.masked_fill_(~mask[:, None, :, None], torch.finfo(x.dtype).min)
    if count:
        arrays = (x.contiguous(), w.contiguous(), scores)
        arguments = [tensor.numpy() for tensor in arrays]
        relu = activation == "relu"
        parallel_for(_score_pieces, work, pieces, used, *arguments, relu)
    return scores


def backward(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients to x and w from that to the scores."""
    used = mask.contiguous().numpy()
    pieces, work, count = cut_pieces(used, max_work(used, w), w.numel())
    grad_x = x.new_empty(x.shape) if count == len(x) else x.new_zeros(x.shape)
    # Pieces run in parallel, and several of them may belong to one text.
    grad_w = w.new_zeros(len(pieces), *w.shape)
    if count:
        parts = x.new_empty(int(pieces[:, _PART].max()), mask.shape[1], *w.shape)
        inputs = (grad.contiguous(), x.contiguous(), w.contiguous())
        arguments = [t.numpy() for t in (*inputs, grad_x, grad_w, parts)]
        relu = activation == "relu"
        parallel_for(_adjoint_pieces, 2 * work, pieces, used, *arguments, relu)
        _add_parts(pieces, used, parts.numpy(), grad_x.numpy())
    return grad_x, grad_w.sum(0)


def max_work(mask: Array, w: Tensor) -> float:
    """Return the multiply-adds that a piece may have, so that threads share fairly."""
    threads = torch.get_num_threads()
    if threads == 1:
        return math.inf
    pairs = float((mask.sum(-1, dtype=np.float64) ** 2).sum())
    return _PER_UNIT * pairs * w.numel() / threads / _PIECES_PER_THREAD


_PER_UNIT = 10.0  # multiply-adds that a hidden unit of a pair is worth


@jit
def cut_pieces(mask: Array, most: float, units: int) -> tuple[Array, Array, int]:
    """Return the pieces, the multiply-adds of each, and the number of words.

    Args:
        mask: (B, N).
        most: multiply-adds of a piece, unless that is less than one target word.
        units: hidden units of a pair.
    """
    texts, words = mask.shape
    pieces = np.empty((texts * words, 5), np.int64)
    work = np.empty(texts * words)
    size = count = part = 0
    for text in range(texts):
        n = 0
        for word in range(words):
            n += mask[text, word]
        row = _PER_UNIT * n * units
        step = max(1, int(min(most / row, n))) if n else 1
        for first in range(0, n, step):
            last = min(first + step, n)
            part += first > 0
            pieces[size] = (text, first, last, count, part if first else 0)
            work[size] = row * (last - first)
            size += 1
        count += n
    return pieces[:size], work[:size], count


@jit
def _add_parts(pieces: Array, mask: Array, parts: Array, grad_x: Array) -> None:
    """Add what the second and further pieces of a text gave to its sources."""
    used = np.empty(mask.shape[1], np.int64)
    for piece in pieces:
        if piece[_PART]:
            n = _rows(mask, len(grad_x), piece, used)
            part = parts[piece[_PART] - 1]
            for i in range(n):
                grad_x[used[i], _SOURCE] += part[i]


@jit
def _rows(mask: Array, rows: int, piece: Array, used: Array) -> int:
    """Write which rows of x a text's words have; return how many."""
    text = piece[_TEXT]
    n = used_words(mask, text, used)
    if rows == mask.shape[0] * mask.shape[1]:  # padding has rows too
        used[:n] += text * mask.shape[1]
    else:
        used[:n] = piece[_BEFORE] + np.arange(n)
    return n


@jit
def _gather(x: Array, rows: Array, side: int, head: int, out: Array) -> None:
    """Copy rows of x (R, 2, H, K) to out[:, 0], with zeros around them.

    As many as `score` and `add_slopes` read: up to a multiple of eight units, and three
    rows beyond the last.
    """
    hidden = x.shape[3]
    for i in range(len(rows)):
        word, row = out[i, 0], x[rows[i], side, head]
        for k in range(hidden):
            word[k] = row[k]
        for k in range(hidden, len(word)):
            word[k] = 0
    out[len(rows) : len(rows) + 3] = 0


@jit
def _prepare(
    x: Array,
    head: int,
    of_targets: Array,
    of_sources: Array,
    relu: bool,
    targets: Array,
    sources: Array,
) -> int:
    """Gather words by their rows, choose the way to their units; return that."""
    m, n = len(of_targets), len(of_sources)
    _gather(x, of_targets, _TARGET, head, targets)
    _gather(x, of_sources, _SOURCE, head, sources)
    if relu:
        return RELU
    if targets.itemsize > 4:  # float64
        return TANH
    if not (are_near(targets[:m]) and are_near(sources[:n])):
        return TANH
    to_exponentials(targets[:m], 2.0)
    to_exponentials(sources[: n + 3], -2.0)
    return EXPONENTIAL


@jit
def _score_pieces(
    first: int,
    last: int,
    pieces: Array,
    mask: Array,
    x: Array,
    w: Array,
    scores: Array,
    relu: bool,
) -> None:
    words = mask.shape[1]
    heads, hidden = w.shape
    width = (hidden + LANES - 1) // LANES * LANES
    places, rows = np.empty(words, np.int64), np.empty(words, np.int64)
    targets = np.empty((words + 3, 2, width), x.dtype)
    sources = np.empty((words + 3, 2, width), x.dtype)
    weights = np.zeros(width, x.dtype)
    line = np.empty(_BLOCK, x.dtype)
    for p in range(first, last):
        piece = pieces[p]
        text, start = piece[_TEXT], piece[_FIRST]
        m = piece[_LAST] - start
        n = used_words(mask, text, places)
        _rows(mask, len(x), piece, rows)
        for head in range(heads):
            own = rows[start : start + m]
            way = _prepare(x, head, own, rows[:n], relu, targets, sources)
            weights[:hidden] = w[head]
            for j in range(0, n, _BLOCK):
                block, size = sources[j : j + _BLOCK + 3], min(n - j, _BLOCK)
                for i in range(m):
                    score(targets[i], block, size, weights, way, line)
                    row = scores[text, head, places[start + i]]
                    for s in range(size):
                        row[places[j + s]] = line[s]


@jit
def _adjoint_pieces(
    first: int,
    last: int,
    pieces: Array,
    mask: Array,
    grad: Array,
    x: Array,
    w: Array,
    grad_x: Array,
    grad_w: Array,
    parts: Array,
    relu: bool,
) -> None:
    words = mask.shape[1]
    heads, hidden = w.shape
    width = (hidden + LANES - 1) // LANES * LANES
    places, rows = np.empty(words, np.int64), np.empty(words, np.int64)
    targets = np.empty((words + 3, 2, width), x.dtype)
    sources = np.empty((words + 3, 2, width), x.dtype)
    to_targets = np.empty((words, width), x.dtype)
    to_sources = np.empty((words + 3, width), x.dtype)
    to_w = np.empty(width, x.dtype)
    slopes = np.empty(_BLOCK, x.dtype)
    for p in range(first, last):
        piece = pieces[p]
        text, start = piece[_TEXT], piece[_FIRST]
        m = piece[_LAST] - start
        n = used_words(mask, text, places)
        _rows(mask, len(x), piece, rows)
        for head in range(heads):
            own = rows[start : start + m]
            way = _prepare(x, head, own, rows[:n], relu, targets, sources)
            to_targets[:m] = 0
            to_sources[: n + 3] = 0
            to_w[:] = 0
            for j in range(0, n, _BLOCK):
                block, size = sources[j : j + _BLOCK + 3], min(n - j, _BLOCK)
                to_block = to_sources[j : j + _BLOCK + 3]
                slopes[size:] = 0
                for i in range(m):
                    row = grad[text, head, places[start + i]]
                    for s in range(size):
                        slopes[s] = row[places[j + s]]
                    add_slopes(
                        targets[i],
                        block,
                        size,
                        way,
                        slopes,
                        to_targets[i],
                        to_block,
                        to_w,
                    )
            for k in range(hidden):
                grad_w[p, head, k] = to_w[k]
            for i in range(m):
                out = grad_x[rows[start + i], _TARGET, head]
                for k in range(hidden):
                    out[k] = to_targets[i, k] * w[head, k]
            for j in range(n):
                if piece[_PART]:
                    out = parts[piece[_PART] - 1, j, head]
                else:
                    out = grad_x[rows[j], _SOURCE, head]
                for k in range(hidden):
                    out[k] = to_sources[j, k] * w[head, k]
