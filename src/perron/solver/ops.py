"""The stationary vector as operators that torch.compile and torch.export accept.

`perron::stationary` has a compiled kernel for the CPU and plain torch operations for
every other device; `perron::stationary_backward` turns its factors into the gradient.
numba is imported when the first of them runs on a CPU.
"""

from typing import Any

import torch
from torch import Tensor

from perron.solver import gth_torch


@torch.library.custom_op("perron::stationary", mutates_args=())
def solve(edges: Tensor, mask: Tensor, keep_factors: bool) -> tuple[Tensor, Tensor]:
    """Return weights (B, N) and factors (B, N, N), the latter (0, N, N) if not kept."""
    return gth_torch.forward(edges, mask, keep_factors)


@solve.register_kernel("cpu")
def _solve_cpu(edges: Tensor, mask: Tensor, keep_factors: bool) -> Any:
    from perron.solver import gth_cpu

    return gth_cpu.forward(edges, mask, keep_factors)


@solve.register_fake
def _solve_fake(edges: Tensor, mask: Tensor, keep_factors: bool) -> Any:
    batch, words = mask.shape
    kept = batch if keep_factors else 0
    return edges.new_empty(batch, words), edges.new_empty(kept, words, words)


@torch.library.custom_op("perron::stationary_backward", mutates_args=())
def adjoint(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from ∂ℓ/∂α (B, N)."""
    return gth_torch.backward(grad, factors, mask)


@adjoint.register_kernel("cpu")
def _adjoint_cpu(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    from perron.solver import gth_cpu

    return gth_cpu.backward(grad, factors, mask)


@adjoint.register_fake
def _adjoint_fake(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    return torch.empty_like(factors)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # the factors' gradient is never wanted
    ctx.save_for_backward(output[1], inputs[1])


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> Any:
    factors, mask = ctx.saved_tensors
    if grad is None:
        return None, None, None
    return adjoint(grad, factors, mask), None, None


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "stationary() can be differentiated once, not twice. For second derivatives "
        'use power_method(..., gradient="unrolled").'
    )


solve.register_autograd(_backward, setup_context=_remember)
adjoint.register_autograd(_refuse)
