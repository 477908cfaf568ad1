"""Grassmann-Taksar-Heyman elimination on a GPU: launches of its Triton kernels.

Inputs are float32. Nothing waits for the device. Up to 64 words, one launch solves all
graphs; N words take 2 ⌈N / 16⌉ + 1 launches, and the backward pass takes two.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from perron.kernels import gth_torch
from perron.kernels.gth_triton_kernels import PANEL, adjoint_short, solve_short
from perron.kernels.gth_triton_long import (
    adjoint_long,
    edge_grads,
    factor_panel,
    prepare,
    solve_long,
    update_panel,
)

# Warps of a program by block size, the next power of two of the number of words. This
# is a table instead of autotuning, because most batches have a new number of words.
SHORT = {16: 1, 32: 1, 64: 4}
LONG = {128: 4, 256: 8, 512: 16}
MAX_WORDS = max(LONG)  # plain torch for more

TILE = 64  # rows and columns that a program of `update_panel` updates
EDGE_GRADS_TILE = 32  # of `edge_grads`, which has float64 in registers
TILE_WARPS = 4
PANEL_WARPS = 1


def forward(
    edges: Tensor, mask: Tensor | None, keep_factors: bool
) -> tuple[Tensor, Tensor, None]:
    """Return the weights (B, N), the factors (B, N, N) or (0, N, N), and no plan."""
    batch, n = edges.shape[:2]
    if n > MAX_WORDS:
        return gth_torch.forward(edges, mask, keep_factors)
    edges, mask = edges.contiguous(), _contiguous_mask(edges, mask)
    weights = edges.new_empty(batch, n)
    block = block_size(n)
    factors = edges.new_empty(batch if keep_factors or block in LONG else 0, n, n)
    if not weights.numel():
        pass
    elif block in SHORT:
        solve_short[(batch,)](
            edges,
            mask,
            weights,
            factors,
            n,
            int(keep_factors),
            BLOCK=block,
            num_warps=SHORT[block],
        )
    else:
        _forward_long(edges, mask, weights, factors, block)
    return weights, factors if keep_factors else factors[:0], None


def _forward_long(
    edges: Tensor, mask: Tensor, weights: Tensor, factors: Tensor, block: int
) -> None:
    batch, n = weights.shape
    W, exponents = torch.empty_like(edges), edges.new_empty(batch)
    size = {"BLOCK": block, "num_warps": LONG[block]}
    prepare[(batch,)](edges, mask, W, exponents, n, **size)
    width = PANEL.value
    for begin in range((n - 1) // width * width, -1, -width):
        factor_panel[(batch,)](
            W, factors, exponents, begin, n, TILE=TILE, num_warps=PANEL_WARPS
        )
        if tiles := triton.cdiv(begin, TILE):
            update_panel[(batch, tiles, tiles)](
                W, factors, begin, n, TILE=TILE, num_warps=TILE_WARPS
            )
    solve_long[(batch,)](edges, mask, factors, exponents, weights, n, **size)


def backward(
    grad: Tensor, factors: Tensor, mask: Tensor | None, plan: None = None
) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N) and the factors."""
    batch, n = grad.shape
    if n > MAX_WORDS:
        return gth_torch.backward(grad, factors, mask)
    grad, mask = grad.contiguous(), _contiguous_mask(grad, mask)
    grad_edges = torch.empty_like(factors)
    block = block_size(n)
    if not grad.numel():
        pass
    elif block in SHORT:
        adjoint_short[(batch,)](
            grad, factors, mask, grad_edges, n, BLOCK=block, num_warps=SHORT[block]
        )
    else:
        vectors = grad.new_empty(batch, 3, n, dtype=torch.float64)
        adjoint_long[(batch,)](
            grad, factors, mask, vectors, n, BLOCK=block, num_warps=LONG[block]
        )
        tiles = triton.cdiv(n, EDGE_GRADS_TILE)
        edge_grads[(batch, tiles, tiles)](
            vectors, mask, grad_edges, n, TILE=EDGE_GRADS_TILE, num_warps=TILE_WARPS
        )
    return grad_edges


def block_size(n: int) -> int:
    """Return the padded size of a graph: a power of two, at least 16."""
    return max(16, triton.next_power_of_2(n))


def _contiguous_mask(words: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return words.new_ones(words.shape[:2], dtype=torch.bool)
    return mask.contiguous()


_TYPES = {"mask": "*i1", "vectors": "*fp64", "n": "i32", "keep": "i32", "begin": "i32"}


def _variants(kernel: Any, constant: str, warps: dict[int, int]) -> list[Any]:
    names = [name for name in kernel.arg_names if name != constant]
    signature = {name: _TYPES.get(name, "*fp32") for name in names}
    return [(kernel, signature, {constant: size}, warps[size]) for size in warps]


# (kernel, signature, constants, warps) of all launches above, for tests that compile
# them without a GPU.
COMPILED = [
    *_variants(solve_short, "BLOCK", SHORT),
    *_variants(adjoint_short, "BLOCK", SHORT),
    *_variants(prepare, "BLOCK", LONG),
    *_variants(factor_panel, "TILE", {TILE: PANEL_WARPS}),
    *_variants(update_panel, "TILE", {TILE: TILE_WARPS}),
    *_variants(solve_long, "BLOCK", LONG),
    *_variants(adjoint_long, "BLOCK", LONG),
    *_variants(edge_grads, "TILE", {EDGE_GRADS_TILE: TILE_WARPS}),
]
