"""The exact Perron vector of a graph, without iteration, and checks of graphs.

`perron::stationary` and its backward are registered with torch, so that torch.compile
and torch.export take them as they are. The way through torch's dispatcher costs more
than the mathematics of a batch of sentences, though, so that an eager call takes a
shorter one, by an autograd Function around the same kernels. `perron.kernels.dispatch`
selects them. Factors have a layout of their own in each of them, so that the backward
has to use the kernels of its forward.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

from perron.arguments import bool_mask
from perron.kernels import Kernels, is_eager, select, select_for_graph

Norm = Literal["sum", "l2"]


class Graphs(NamedTuple):
    """A batch of graphs in the form in which solvers work."""

    edges: Float[Tensor, "b n n"]  # float32 or float64
    mask: Bool[Tensor, "b n"] | None  # None: every word is in use
    shape: torch.Size  # of a vector over the words, as the caller has it
    dtype: torch.dtype  # the caller's

    def words(self) -> Bool[Tensor, "b n"]:
        """Return the mask, made if there is none."""
        if self.mask is not None:
            return self.mask
        return self.edges.new_ones(self.edges.shape[:-1], dtype=torch.bool)


def check_graphs(edges: Tensor, mask: Tensor | None, norm: str) -> Graphs:
    """Refuse what no solver takes; flatten the batch axes and widen half precision."""
    if edges.ndim < 2 or edges.shape[-1] != edges.shape[-2]:
        raise ValueError(
            f"edges must have shape (..., N, N), but came as {tuple(edges.shape)}"
        )
    if not edges.is_floating_point():
        raise ValueError(f"edges must be floating point, but came as {edges.dtype}")
    shape = edges.shape[:-1]
    if mask is not None:
        if mask.device != edges.device:
            raise ValueError(
                f"mask is on {mask.device}, but edges are on {edges.device}"
            )
        mask = bool_mask(mask)
        if mask.shape != shape:
            mask = _expand(mask, shape, edges.shape)
    check_norm(norm)
    dtype = edges.dtype
    if dtype not in (torch.float32, torch.float64):
        edges = edges.float()
    if edges.ndim != 3:
        n = shape[-1]
        texts = math.prod(shape[:-1])  # Size.numel() would fix a traced size
        edges = edges.reshape(texts, n, n)
        mask = mask if mask is None else mask.reshape(texts, n)
    return Graphs(edges, mask, shape, dtype)


def _expand(mask: Tensor, shape: torch.Size, edges: torch.Size) -> Tensor:
    """Repeat a mask along the batch axes that it lacks, never along the words."""
    try:
        if mask.shape[-1:] != shape[-1:]:
            raise RuntimeError("wrong number of words")
        return mask.expand(shape)
    except RuntimeError as error:
        raise ValueError(
            f"mask must have shape {tuple(shape)} to fit edges of shape "
            f"{tuple(edges)}, but came as {tuple(mask.shape)}"
        ) from error


def check_norm(norm: str) -> None:
    """Refuse a norm that is not offered."""
    if norm not in ("sum", "l2"):
        raise ValueError(f'norm must be "sum" or "l2", but came as {norm!r}')


def normalize(vector: Float[Tensor, "b n"], norm: str) -> Float[Tensor, "b n"]:
    """Scale to sum one, or to unit length; a zero vector stays zero."""
    if norm == "sum":
        size = vector.sum(-1, keepdim=True)
    else:
        size = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / torch.where(size == 0, 1, size)


def solve(graphs: Graphs) -> Tensor:
    """Return the weights (B, N), differentiable once."""
    edges = graphs.edges
    keep_factors = torch.is_grad_enabled() and edges.requires_grad
    if is_eager(edges):
        weights, _ = _Stationary.apply(edges, graphs.mask, keep_factors)
    else:
        weights, _ = stationary_op(edges, graphs.words(), keep_factors)
    return weights


class _Stationary(Function):
    """x(A), the balance vector of the rates A; the mathematics is in `stationary_distribution`."""

    @staticmethod
    def forward(
        ctx: Any, edges: Tensor, mask: Tensor | None, keep_factors: bool
    ) -> tuple[Tensor, Tensor]:
        # The factors are an output, so that a second derivative finds its way through
        # them to `_StationaryAdjoint`, and is refused there instead of being silently
        # wrong.
        ctx.kernels = select("stationary", edges)
        weights, factors, ctx.plan = ctx.kernels.forward(edges, mask, keep_factors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(factors, mask)
        return weights, factors

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, _: Tensor | None
    ) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        inputs = (ctx.kernels, grad, *ctx.saved_tensors, ctx.plan)
        if torch.is_grad_enabled():  # create_graph=True
            return _StationaryAdjoint.apply(*inputs), None, None
        return _backward(*inputs), None, None


class _StationaryAdjoint(Function):
    """The backward of `_Stationary`, which has none itself."""

    @staticmethod
    def forward(ctx: Any, kernels: Kernels, *inputs: Any) -> Tensor:
        return _backward(kernels, *inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        _refuse(ctx, *grads)


def _backward(
    kernels: Kernels, grad: Tensor, factors: Tensor, mask: Tensor | None, plan: Any
) -> Tensor:
    assert len(factors) == len(grad), "the factors were not kept"
    return kernels.backward(grad, factors, mask, plan)


@torch.library.custom_op("perron::stationary", mutates_args=())
def stationary_op(
    edges: Tensor, mask: Tensor, keep_factors: bool
) -> tuple[Tensor, Tensor]:
    """Return weights (B, N) and factors (B, N, N), the latter (0, N, N) if not kept."""
    kernels = select_for_graph("stationary", edges)
    weights, factors, _ = kernels.forward(edges, mask, keep_factors)
    return weights, factors


@stationary_op.register_fake
def _(edges: Tensor, mask: Tensor, keep_factors: bool) -> tuple[Tensor, Tensor]:
    batch, words = mask.shape
    kept = batch if keep_factors else 0
    return edges.new_empty(batch, words), edges.new_empty(kept, words, words)


@torch.library.custom_op("perron::stationary_backward", mutates_args=())
def adjoint_op(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from ∂ℓ/∂α (B, N)."""
    kernels = select_for_graph("stationary", grad)
    return _backward(kernels, grad, factors, mask, None)


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
        'use power_iteration(..., gradient="unrolled").'
    )


stationary_op.register_autograd(_op_backward, setup_context=_remember)
adjoint_op.register_autograd(_refuse)


def stationary_distribution(
    edges: Tensor, mask: Tensor | None = None, *, norm: Norm = "sum"
) -> Float[Tensor, "*batch n"]:
    r"""Return the share of time that a random walker spends on each word.

        K(A) = diag(1ᵀA) - A,    K α = 0,    α > 0,    1ᵀα = 1

    For edges whose columns sum to one this is the Perron vector, A α = α. The columns
    need not sum to one, though, and the diagonal plays no part: ``edges[..., i, j]`` is
    the rate of walking from j to i. α is found by state reduction (Grassmann, Taksar
    and Heyman, 1985), which never subtracts, so that every entry is right to a few
    units of rounding, however lopsided the graph; and so is the gradient

        ∂ℓ/∂A_ij = (u_i - u_j) α_j,    Kᵀu = γ - (γᵀα)1,    γ = ∂ℓ/∂α,

    for which two sweeps through the same factors suffice. It may be taken once; a
    second derivative is refused. `docs/mathematics.md` has the derivation.

    Args:
        edges: (..., N, N) rates, positive off the diagonal between words in use. A zero
            counts as a vanishingly weak edge. A negative, infinite or undefined rate
            makes the weights of its own text NaN. A slope that the dtype cannot hold
            (in float32, along an edge weaker than some 1e-38) is cut to what it can.
        mask: True (or 1) on words in use, (..., N), any pattern; batch axes that it
            lacks are repeated. All others get weight 0 and
            influence nothing, whatever their edges hold. A text with no words gets
            weights 0 and gradient 0.
        norm: ``"sum"`` for weights that sum to one, ``"l2"`` for unit length.

    Returns:
        (..., N) weights. Half precision comes in and goes out; between, it is float32.
    """
    graphs = check_graphs(edges, mask, norm)
    weights = solve(graphs)
    if norm == "l2":
        weights = normalize(weights, norm)
    if weights.dtype != graphs.dtype:
        weights = weights.to(graphs.dtype)
    return weights if edges.ndim == 3 else weights.view(graphs.shape)
