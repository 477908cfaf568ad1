"""Scores of all pairs of words, compiled: the hidden layer of a pair is never stored.

    s_ij = Σ_k w_k act(a_ik + b_jk)

The inner loop runs over the K hidden units, eight at a time. The backward pass computes
the hidden units anew. Work is proportional to the pairs of words that exist, and comes
in pieces of at most a certain size: a short text, or some target words of a long one.
"""

import math
from typing import Any

import numpy as np
import torch
from numba import extending
from numba.core import types
from torch import Tensor

from perron.solver.compiled import Array, jit, share_out, used_words
from perron.solver.lanes import (
    LANES,
    add_lanes,
    lane,
    put,
    spread,
    take,
    where_less,
    with_lane,
)

# What is known of a piece: its text, its target words first .. last - 1 among the words
# of this text, the number of words before this text, and where its gradient to the
# sources goes: 0 for the result itself, m for part m - 1, to be added later.
_TEXT, _FIRST, _LAST, _BEFORE, _PART = range(5)

_PIECES_PER_THREAD = 4  # so that a thread which got light ones takes more of them

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
    """Return the scores (B, H, N, N); see `pair_scores`."""
    texts, words = mask.shape
    used = mask.contiguous().numpy()
    pieces, work, count = _cut(used, _most(used, a), a.shape[1] * a.shape[2])
    scores = a.new_empty(texts, len(w), words, words)
    if count < texts * words:
        scores.zero_()
        scores.masked_fill_(~mask[:, None, :, None], torch.finfo(a.dtype).min)
    if count:
        arrays = (a.contiguous(), b.contiguous(), w.contiguous(), scores)
        arguments = [tensor.numpy() for tensor in arrays]
        relu = activation == "relu"
        share_out(_score_pieces, work, pieces, used, *arguments, relu)
    return scores


def backward(
    grad: Tensor, a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients to a, b and w from that to the scores."""
    used = mask.contiguous().numpy()
    pieces, work, count = _cut(used, _most(used, a), a.shape[1] * a.shape[2])
    whole = count == len(a)
    grad_a = a.new_empty(a.shape) if whole else a.new_zeros(a.shape)
    grad_b = b.new_empty(b.shape) if whole else b.new_zeros(b.shape)
    # Pieces run in parallel, and several of them may belong to one text.
    grad_w = w.new_zeros(len(pieces), *w.shape)
    if count:
        parts = b.new_empty(int(pieces[:, _PART].max()), mask.shape[1], *b.shape[1:])
        inputs = (grad.contiguous(), a.contiguous(), b.contiguous(), w.contiguous())
        arrays = (*inputs, grad_a, grad_b, grad_w, parts)
        arguments = [tensor.numpy() for tensor in arrays]
        relu = activation == "relu"
        share_out(_adjoint_pieces, 2 * work, pieces, used, *arguments, relu)
        _add_parts(pieces, used, parts.numpy(), grad_b.numpy())
    return grad_a, grad_b, grad_w.sum(0)


def _most(mask: Array, a: Tensor) -> float:
    """Return the multiply-adds that a piece may have, so that threads share fairly."""
    threads = torch.get_num_threads()
    if threads == 1:
        return math.inf
    pairs = float((mask.sum(-1, dtype=np.float64) ** 2).sum())
    return _PER_UNIT * pairs * a.shape[1] * a.shape[2] / threads / _PIECES_PER_THREAD


_PER_UNIT = 10.0  # multiply-adds that a hidden unit of a pair is worth


@jit
def _cut(mask: Array, most: float, units: int) -> tuple[Array, Array, int]:
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
def _add_parts(pieces: Array, mask: Array, parts: Array, grad_b: Array) -> None:
    """Add what the second and further pieces of a text gave to its sources."""
    used = np.empty(mask.shape[1], np.int64)
    for piece in pieces:
        if piece[_PART]:
            n = _rows(mask, len(grad_b), piece, used)
            part = parts[piece[_PART] - 1]
            for i in range(n):
                grad_b[used[i]] += part[i]


@jit
def _rows(mask: Array, rows: int, piece: Array, used: Array) -> int:
    """Write which rows of a and b a text's words have; return how many."""
    text = piece[_TEXT]
    n = used_words(mask, text, used)
    if rows == mask.shape[0] * mask.shape[1]:  # padding has rows too
        used[:n] += text * mask.shape[1]
    else:
        used[:n] = piece[_BEFORE] + np.arange(n)
    return n


@jit
def _gather(x: Array, rows: Array, head: int, out: Array) -> None:
    """Copy rows of x (R, H, K) side by side, zeros up to the next multiple of eight."""
    hidden, width = x.shape[2], out.shape[1]
    for i in range(len(rows)):
        for k in range(hidden):
            out[i, k] = x[rows[i], head, k]
        for k in range(hidden, width):
            out[i, k] = 0


def tanh(x: Any) -> Any:
    """Eight hyperbolic tangents: a fit in float32, exact ones in float64."""
    raise NotImplementedError("for compiled kernels only")


@extending.overload(tanh)
def _choose_tanh(x):  # type: ignore[no-untyped-def]  # its signature is the lambdas'
    if x.dtype == types.float32:
        return lambda x: _fitted_tanh(x)
    return lambda x: _exact_tanh(x)


@jit
def _fitted_tanh(x: Any) -> Any:
    high, low = spread(_NINE), spread(-_NINE)
    x = where_less(high, x, high, x)
    x = where_less(x, low, low, x)  # NaN stays NaN
    z = x * x
    p = spread(_P3) + z * spread(_P4)
    q = spread(_Q3) + z * spread(_Q4)
    p = spread(_P0) + z * (spread(_P1) + z * (spread(_P2) + z * p))
    q = spread(_ONE) + z * (spread(_Q1) + z * (spread(_Q2) + z * q))
    return x * p / q


@jit
def _exact_tanh(x: Any) -> Any:
    for t in range(LANES):
        x = with_lane(x, t, math.tanh(lane(x, t)))
    return x


@jit
def _score_pieces(
    first: int,
    last: int,
    pieces: Array,
    mask: Array,
    a: Array,
    b: Array,
    w: Array,
    scores: Array,
    relu: bool,
) -> None:
    words = mask.shape[1]
    heads, hidden = w.shape
    width = (hidden + LANES - 1) // LANES * LANES
    places, rows = np.empty(words, np.int64), np.empty(words, np.int64)
    sources, target = (
        np.zeros((words + 3, width), a.dtype),
        np.empty((1, width), a.dtype),
    )
    weights = np.zeros(width, a.dtype)
    line = np.empty(words + 3, a.dtype)
    flat = sources.reshape(-1)
    for p in range(first, last):
        piece = pieces[p]
        text = piece[_TEXT]
        n = used_words(mask, text, places)
        _rows(mask, len(a), piece, rows)
        for head in range(heads):
            _gather(b, rows[:n], head, sources)
            weights[:hidden] = w[head]
            for i in range(piece[_FIRST], piece[_LAST]):
                _gather(a, rows[i : i + 1], head, target)
                _score(target[0], flat, n, weights, relu, line)
                row = scores[text, head, places[i]]
                for j in range(n):
                    row[places[j]] = line[j]


@jit
def _activate(x: Any, zeros: Any, relu: bool) -> Any:
    return where_less(x, zeros, zeros, x) if relu else tanh(x)


@jit
def _score(a: Array, b: Array, n: int, w: Array, relu: bool, row: Array) -> None:
    """row_j = Σ_k w_k act(a_k + b_jk), four j in one go to keep the processor busy."""
    zeros, width = spread(w.dtype.type(0)), len(w)
    for j in range(0, n, 4):
        at = j * width
        s0 = s1 = s2 = s3 = zeros
        for k in range(0, width, LANES):
            own, factor = take(a, k), take(w, k)
            s0 += factor * _activate(own + take(b, at + k), zeros, relu)
            s1 += factor * _activate(own + take(b, at + k + width), zeros, relu)
            s2 += factor * _activate(own + take(b, at + k + 2 * width), zeros, relu)
            s3 += factor * _activate(own + take(b, at + k + 3 * width), zeros, relu)
        row[j] = add_lanes(s0)
        row[j + 1] = add_lanes(s1)
        row[j + 2] = add_lanes(s2)
        row[j + 3] = add_lanes(s3)


@jit
def _adjoint_pieces(
    first: int,
    last: int,
    pieces: Array,
    mask: Array,
    grad: Array,
    a: Array,
    b: Array,
    w: Array,
    grad_a: Array,
    grad_b: Array,
    grad_w: Array,
    parts: Array,
    relu: bool,
) -> None:
    words = mask.shape[1]
    heads, hidden = w.shape
    width = (hidden + LANES - 1) // LANES * LANES
    places, rows = np.empty(words, np.int64), np.empty(words, np.int64)
    sources, target = np.empty((words, width), a.dtype), np.empty((1, width), a.dtype)
    to_sources = np.empty((words, width), a.dtype)
    to_target, to_w = np.empty(width, a.dtype), np.empty(width, a.dtype)
    slopes = np.empty(words, a.dtype)
    for p in range(first, last):
        piece = pieces[p]
        text = piece[_TEXT]
        n = used_words(mask, text, places)
        _rows(mask, len(a), piece, rows)
        for head in range(heads):
            _gather(b, rows[:n], head, sources)
            to_sources[:n] = 0
            to_w[:] = 0
            for i in range(piece[_FIRST], piece[_LAST]):
                _gather(a, rows[i : i + 1], head, target)
                for j in range(n):
                    slopes[j] = grad[text, head, places[i], places[j]]
                _add_slopes(
                    target[0],
                    sources.reshape(-1),
                    n,
                    slopes,
                    to_target,
                    to_sources.reshape(-1),
                    to_w,
                    relu,
                )
                for k in range(hidden):
                    grad_a[rows[i], head, k] = to_target[k] * w[head, k]
            for k in range(hidden):
                grad_w[p, head, k] = to_w[k]
            for j in range(n):
                if piece[_PART]:
                    out = parts[piece[_PART] - 1, j, head]
                else:
                    out = grad_b[rows[j], head]
                for k in range(hidden):
                    out[k] = to_sources[j, k] * w[head, k]


@jit
def _add_slopes(
    a: Array,
    b: Array,
    n: int,
    grad: Array,
    grad_a: Array,
    grad_b: Array,
    grad_w: Array,
    relu: bool,
) -> None:
    """Write to grad_a, add to the others, all but for the factor w of a's and b's."""
    zeros = spread(a.dtype.type(0))
    width = len(a)
    for k in range(0, width, LANES):
        own, to_own, to_w = take(a, k), zeros, take(grad_w, k)
        for j in range(n):
            at = j * width + k
            x, g = own + take(b, at), spread(grad[j])
            h = _activate(x, zeros, relu)
            to_w += g * h
            slope = where_less(zeros, x, g, zeros) if relu else g - g * h * h
            to_own += slope
            put(grad_b, at, take(grad_b, at) + slope)
        put(grad_a, k, to_own)
        put(grad_w, k, to_w)
