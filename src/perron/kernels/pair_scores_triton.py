"""Pair scores as Triton kernels, for GPUs.

    s_ij = Σ_k w_k act(a_ik + b_jk)

The hidden layer of a pair exists only in registers, in the forward pass and again in
the backward pass. Every program writes its own part of the result, without atomics, so
results are deterministic.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Edge length of a tile of pairs, hidden units per step of the backward pass, and warps.
# Not autotuned: the number of words changes with every batch.
TILE = 16
UNITS = 16
WARPS = 4


@triton.jit
def _tanh(x):
    # exp of a number that is not positive, so that it cannot overflow.
    e = tl.exp(-2 * tl.abs(x))
    t = (1 - e) / (1 + e)
    return tl.where(x < 0, -t, t)


@triton.jit
def _relu(x):
    return tl.where(x < 0, 0.0, x)  # a maximum would drop NaN


@triton.jit
def _rows(rows, text, words, n, valid):
    """Return the row of x for each word of a text; -1 for padding."""
    return tl.load(rows + text * n + words, mask=valid, other=-1)


@triton.jit(do_not_specialize=["n", "heads", "units"])
def scores_kernel(
    x, w, rows, scores, n, heads, units, lowest, RELU: tl.constexpr, TILE: tl.constexpr
):
    """Write one tile of the scores of one head of one text.

    x is (R, 2, H, K), w is (H, K), rows is (B, N), scores is (B, H, N, N).
    """
    tiles = tl.cdiv(n, TILE)
    text, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    i = tl.program_id(0) // tiles * TILE + tl.arange(0, TILE)
    j = tl.program_id(0) % tiles * TILE + tl.arange(0, TILE)
    row_i, row_j = _rows(rows, text, i, n, i < n), _rows(rows, text, j, n, j < n)
    a = x + (row_i.to(tl.int64) * 2 * heads + head) * units
    b = x + ((row_j.to(tl.int64) * 2 + 1) * heads + head) * units
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(units):
        target = tl.load(a + k, mask=row_i >= 0, other=0.0)
        source = tl.load(b + k, mask=row_j >= 0, other=0.0)
        pre = target[:, None] + source[None, :]
        hidden = _relu(pre) if RELU else _tanh(pre)
        total += tl.load(w + head * units + k) * hidden
    is_target, is_source = (row_i >= 0)[:, None], (row_j >= 0)[None, :]
    total = tl.where(is_target & is_source, total, 0.0)
    total = tl.where(is_target, total, lowest)
    place = (tl.program_id(1).to(tl.int64) * n + i[:, None]) * n + j[None, :]
    tl.store(scores + place, total, mask=(i < n)[:, None] & (j < n)[None, :])


@triton.jit(do_not_specialize=["n", "heads", "units", "stride_i", "stride_j"])
def grads_kernel(
    grad,
    x,
    w,
    rows,
    grad_x,
    grad_w,
    n,
    heads,
    units,
    stride_i,
    stride_j,
    RELU: tl.constexpr,
    OWN: tl.constexpr,
    TILE: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Write the gradients of one tile of words, as targets (OWN = 0) or sources (1).

    ``grad[text, head, i * stride_i + j * stride_j]`` belongs to the word i whose
    gradient is written and the other word j. Targets also write their share of the
    gradient of w to grad_w (B, H, tiles, K).
    """
    tiles = tl.cdiv(n, TILE)
    tile = tl.program_id(0)
    text, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    i = tile * TILE + tl.arange(0, TILE)
    k = tl.program_id(2) * UNITS + tl.arange(0, UNITS)
    row_i = _rows(rows, text, i, n, i < n)
    own = x + ((row_i.to(tl.int64)[:, None] * 2 + OWN) * heads + head) * units + k
    valid = (row_i >= 0)[:, None] & (k < units)[None, :]
    mine = tl.load(own, mask=valid, other=0.0)  # (TILE, UNITS)
    weight = tl.load(w + head * units + k, mask=k < units, other=0.0)
    to_mine = tl.zeros((TILE, UNITS), tl.float32)
    to_weight = tl.zeros((UNITS,), tl.float32)
    graph = grad + tl.program_id(1).to(tl.int64) * n * n
    for other in range(n):
        row_j = tl.load(rows + text * n + other)
        place = x + ((row_j.to(tl.int64) * 2 + 1 - OWN) * heads + head) * units + k
        theirs = tl.load(place, mask=(row_j >= 0) & (k < units), other=0.0)
        is_pair = (row_i >= 0) & (row_j >= 0)
        g = tl.load(graph + i * stride_i + other * stride_j, mask=is_pair, other=0.0)
        pre = mine + theirs[None, :]
        if RELU:
            hidden = _relu(pre)
            slope = tl.where(pre > 0, 1.0, 0.0)
        else:
            hidden = _tanh(pre)
            slope = 1 - hidden * hidden
        to_mine += g[:, None] * slope
        if OWN == 0:
            to_weight += tl.sum(tl.where(is_pair[:, None], g[:, None] * hidden, 0.0), 0)
    to_mine = to_mine * weight[None, :]
    written = grad_x + ((row_i.to(tl.int64)[:, None] * 2 + OWN) * heads + head) * units
    tl.store(written + k[None, :], to_mine, mask=valid)
    if OWN == 0:
        part = (tl.program_id(1).to(tl.int64) * tiles + tile) * units + k
        tl.store(grad_w + part, to_weight, mask=k < units)


def forward(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Return the scores (B, H, N, N), as `pair_scores_torch.forward` does."""
    (texts, n), (heads, units) = mask.shape, w.shape
    scores = x.new_empty(texts, heads, n, n)
    if scores.numel():
        tiles = triton.cdiv(n, TILE)
        scores_kernel[(tiles * tiles, texts * heads)](
            x.contiguous(),
            w.contiguous(),
            _row_of_word(mask, len(x)),
            scores,
            n,
            heads,
            units,
            torch.finfo(x.dtype).min,
            RELU=activation == "relu",
            TILE=TILE,
            num_warps=WARPS,
        )
    return scores


def backward(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and w; the hidden units are recomputed."""
    (texts, n), (heads, units) = mask.shape, w.shape
    grad_x = torch.zeros_like(x, memory_format=torch.contiguous_format)
    if not grad.numel() or not units:
        return grad_x, torch.zeros_like(w)
    tiles = triton.cdiv(n, TILE)
    partial = w.new_empty(texts, heads, tiles, units)
    grad, x, w = grad.contiguous(), x.contiguous(), w.contiguous()
    rows = _row_of_word(mask, len(x))
    grid = (tiles, texts * heads, triton.cdiv(units, UNITS))
    for own, stride_i, stride_j in ((0, n, 1), (1, 1, n)):
        grads_kernel[grid](
            grad,
            x,
            w,
            rows,
            grad_x,
            partial,
            n,
            heads,
            units,
            stride_i,
            stride_j,
            RELU=activation == "relu",
            OWN=own,
            TILE=TILE,
            UNITS=UNITS,
            num_warps=WARPS,
        )
    return grad_x, partial.sum((0, 2))


def _row_of_word(mask: Tensor, rows: int) -> Tensor:
    """Return the row of x for each word (B, N), -1 for padding; never synchronizes."""
    if rows == mask.numel():
        row = torch.arange(rows, device=mask.device).view(mask.shape)
    else:
        row = mask.flatten().cumsum(0).view(mask.shape) - 1
    return row.masked_fill(~mask, -1).to(torch.int32)


# Ahead-of-time compilation in tests: kernel, argument types, constants, warps.
_TYPES: dict[str, Any] = {
    "x": "*fp32",
    "w": "*fp32",
    "rows": "*i32",
    "n": "i32",
    "heads": "i32",
    "units": "i32",
}
COMPILED = [
    *(
        (
            scores_kernel,
            {**_TYPES, "scores": "*fp32", "lowest": "fp32"},
            {"RELU": relu, "TILE": TILE},
            WARPS,
        )
        for relu in (False, True)
    ),
    *(
        (
            grads_kernel,
            {
                **_TYPES,
                "grad": "*fp32",
                "grad_x": "*fp32",
                "grad_w": "*fp32",
                "stride_i": "i32",
                "stride_j": "i32",
            },
            {"RELU": relu, "OWN": own, "TILE": TILE, "UNITS": UNITS},
            WARPS,
        )
        for relu in (False, True)
        for own in (0, 1)
    ),
]
