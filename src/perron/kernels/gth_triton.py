"""Grassmann-Taksar-Heyman elimination on a GPU: launches of `gth_triton_kernels`.

Inputs are float32. Nothing waits for the device.
"""

import torch
import triton
from torch import Tensor

from perron.kernels import gth_torch
from perron.kernels import gth_triton_kernels as kernels

# Warps of a program by block size, the next power of two of the number of words. A
# table instead of autotuning, since the number of words differs between batches.
WARPS = {16: 1, 32: 1, 64: 4}


def forward(
    edges: Tensor, mask: Tensor | None, keep_factors: bool
) -> tuple[Tensor, Tensor, None]:
    """Return the weights (B, N), the factors (B, N, N) or none of these, no plan."""
    batch, n = edges.shape[:2]
    edges = edges.contiguous()
    mask = _contiguous_mask(edges, mask)
    weights = edges.new_empty(batch, n)
    factors = edges.new_empty(batch if keep_factors else 0, n, n)
    if weights.numel():
        block = block_size(n)
        kernels.solve_short[(batch,)](
            edges, mask, weights, factors, n, int(keep_factors),
            BLOCK=block, num_warps=WARPS[block],
        )
    return weights, factors, None


def backward(
    grad: Tensor, factors: Tensor, mask: Tensor | None, plan: None = None
) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N) and the factors."""
    batch, n = grad.shape
    grad = grad.contiguous()
    mask = _contiguous_mask(factors, mask)
    grad_edges = torch.empty_like(factors)
    if grad.numel():
        block = block_size(n)
        kernels.adjoint_short[(batch,)](
            grad, factors, mask, grad_edges, n, BLOCK=block, num_warps=WARPS[block]
        )
    return grad_edges


def block_size(n: int) -> int:
    """Return the block size of a number of words."""
    return max(16, triton.next_power_of_2(n))


def _contiguous_mask(square: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return square.new_ones(square.shape[:-1], dtype=torch.bool)
    return mask.contiguous()


# (kernel, signature, constants, warps) of everything that is launched above, for the
# test that compiles it without a GPU.
_SQUARE = "*fp32"
COMPILED = [
    (kernel, signature, {"BLOCK": block}, warps)
    for kernel, signature in (
        (
            kernels.solve_short,
            {
                "edges": "*fp32",
                "mask": "*i1",
                "weights": "*fp32",
                "factors": "*fp32",
                "n": "i32",
                "keep": "i32",
            },
        ),
        (
            kernels.adjoint_short,
            {
                "grad": "*fp32",
                "factors": "*fp32",
                "mask": "*i1",
                "grad_edges": "*fp32",
                "n": "i32",
            },
        ),
    )
    for block, warps in WARPS.items()
]
