"""The stationary vector as an operator, for eager use and for traced graphs.

`perron::stationary` and its backward are registered with torch, so that torch.compile
and torch.export take them as they are. The way through torch's dispatcher costs more
than the mathematics of a batch of sentences, though, so that an eager call takes a
shorter one, by an autograd Function around the same kernels: compiled ones on the CPU,
plain torch operations on every other device. numba is imported when first needed.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from perron.solver import gth_torch
from perron.solver.checks import Graphs


def solve(graphs: Graphs) -> Tensor:
    """Return the weights (B, N), differentiable once."""
    edges = graphs.edges
    keep_factors = torch.is_grad_enabled() and edges.requires_grad
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    traced = torch.compiler.is_compiling() or tracing
    if traced or type(edges) not in (Tensor, torch.nn.Parameter):
        weights, _ = stationary_op(edges, graphs.words(), keep_factors)
    else:
        weights, _ = _Stationary.apply(edges, graphs.mask, keep_factors)
    return weights


class _Stationary(Function):
    """x(A), the balance vector of the rates A; the mathematics is in `stationary`."""

    @staticmethod
    def forward(
        ctx: Any, edges: Tensor, mask: Tensor | None, keep_factors: bool
    ) -> tuple[Tensor, Tensor]:
        # The factors are an output, so that a second derivative finds its way through
        # them to `_Adjoint`, and is refused there instead of being silently wrong.
        weights, factors, ctx.plan = _forward(edges, mask, keep_factors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(factors, mask)
        return weights, factors

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, _: Tensor | None
    ) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        if torch.is_grad_enabled():  # create_graph=True
            return _Adjoint.apply(grad, *ctx.saved_tensors), None, None
        factors, mask = ctx.saved_tensors
        return _backward(grad, factors, mask, ctx.plan), None, None


class _Adjoint(Function):
    """The backward of `_Stationary`, which has none itself."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, factors: Tensor, mask: Any) -> Tensor:
        return _backward(grad, factors, mask)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        _refuse(ctx, *grads)


def _forward(
    edges: Tensor, mask: Tensor | None, keep_factors: bool
) -> tuple[Tensor, Tensor, Any]:
    """Return weights, factors, and a plan that `_backward` need not make again."""
    if edges.device.type == "cpu":
        from perron.solver import gth_cpu

        return gth_cpu.forward(edges, mask, keep_factors)
    return gth_torch.forward(edges, mask, keep_factors)


def _backward(
    grad: Tensor, factors: Tensor, mask: Tensor | None, plan: Any = None
) -> Tensor:
    assert len(factors) == len(grad), "the factors were not kept"
    if grad.device.type == "cpu":
        from perron.solver import gth_cpu

        return gth_cpu.backward(grad, factors, mask, plan)
    return gth_torch.backward(grad, factors, mask)


@torch.library.custom_op("perron::stationary", mutates_args=())
def stationary_op(
    edges: Tensor, mask: Tensor, keep_factors: bool
) -> tuple[Tensor, Tensor]:
    """Return weights (B, N) and factors (B, N, N), the latter (0, N, N) if not kept."""
    weights, factors, _ = _forward(edges, mask, keep_factors)
    return weights, factors


@stationary_op.register_fake
def _(edges: Tensor, mask: Tensor, keep_factors: bool) -> tuple[Tensor, Tensor]:
    batch, words = mask.shape
    kept = batch if keep_factors else 0
    return edges.new_empty(batch, words), edges.new_empty(kept, words, words)


@torch.library.custom_op("perron::stationary_backward", mutates_args=())
def adjoint_op(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from ∂ℓ/∂α (B, N)."""
    return _backward(grad, factors, mask)


@adjoint_op.register_fake
def _(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    return grad.new_empty(*mask.shape, mask.shape[1])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    edges, mask, keep_factors = inputs
    ctx.set_materialize_grads(False)  # the factors' gradient is never wanted
    # A graph may be traced without a gradient in sight and be differentiated later.
    ctx.kept = keep_factors
    ctx.save_for_backward(output[1] if keep_factors else edges, mask)


def _op_backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> Any:
    if grad is None:
        return None, None, None
    factors, mask = ctx.saved_tensors
    if not ctx.kept:
        _, factors = stationary_op(factors, mask, True)
    return adjoint_op(grad, factors, mask), None, None


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "stationary() can be differentiated once, not twice. For second derivatives "
        'use power_method(..., gradient="unrolled").'
    )


stationary_op.register_autograd(_op_backward, setup_context=_remember)
adjoint_op.register_autograd(_refuse)
