"""Direct solver for the exact Perron vector of a graph, and validation of graphs.

`perron::stationary` and its backward are registered as torch operators, which
torch.compile and torch.export treat as opaque. The overhead of torch's dispatcher
exceeds the cost of solving a batch of sentences, so eager calls bypass it with an
autograd Function around the same kernels. `perron.kernels.dispatch` selects the
kernels. Each backend has its own layout of the factors, so a backward pass must use the
kernels of its forward pass.
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
    """Batch of graphs in the form that solvers work with."""

    edges: Float[Tensor, "b n n"]  # float32 or float64
    mask: Bool[Tensor, "b n"] | None  # None if there is no padding
    shape: torch.Size  # shape of the weights to return
    dtype: torch.dtype  # dtype of the weights to return

    def full_mask(self) -> Bool[Tensor, "b n"]:
        """Return the mask, which is all True if there is no padding."""
        if self.mask is not None:
            return self.mask
        return self.edges.new_ones(self.edges.shape[:-1], dtype=torch.bool)


def check_graphs(edges: Tensor, mask: Tensor | None, norm: str) -> Graphs:
    """Validate the arguments, flatten the batch axes, and convert half to float32."""
    if edges.ndim < 2 or edges.shape[-1] != edges.shape[-2]:
        raise ValueError(
            f"edges must have shape (..., N, N), got {tuple(edges.shape)}."
        )
    if not edges.is_floating_point():
        raise ValueError(f"edges must be floating point, got {edges.dtype}.")
    shape = edges.shape[:-1]
    if mask is not None:
        if mask.device != edges.device:
            raise ValueError(
                f"mask must be on {edges.device}, like edges, got {mask.device}."
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
        texts = math.prod(shape[:-1])  # Size.numel() would specialize a traced size
        edges = edges.reshape(texts, n, n)
        mask = mask if mask is None else mask.reshape(texts, n)
    return Graphs(edges, mask, shape, dtype)


def _expand(mask: Tensor, shape: torch.Size, edges: torch.Size) -> Tensor:
    """Expand a mask along the batch axes, but never along the tokens."""
    try:
        if mask.shape[-1:] != shape[-1:]:
            raise RuntimeError("wrong number of tokens")
        return mask.expand(shape)
    except RuntimeError as error:
        raise ValueError(
            f"mask must have shape {tuple(shape)} to fit edges of shape "
            f"{tuple(edges)}, got {tuple(mask.shape)}."
        ) from error


def check_norm(norm: str) -> None:
    """Raise ValueError unless the norm is supported."""
    if norm not in ("sum", "l2"):
        raise ValueError(f'norm must be "sum" or "l2", got {norm!r}.')


def normalize(vector: Float[Tensor, "b n"], norm: str) -> Float[Tensor, "b n"]:
    """Scale a vector to sum to one or to unit length; a zero vector stays zero."""
    if norm == "sum":
        size = vector.sum(-1, keepdim=True)
    else:
        size = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / torch.where(size == 0, 1, size)


def solve(graphs: Graphs) -> Tensor:
    """Return the weights (B, N), which can be differentiated once."""
    edges = graphs.edges
    keep_factors = torch.is_grad_enabled() and edges.requires_grad
    if is_eager(edges):
        weights, _ = _Stationary.apply(edges, graphs.mask, keep_factors)
    else:
        weights, _ = stationary_op(edges, graphs.full_mask(), keep_factors)
    return weights


class _Stationary(Function):
    """Stationary distribution; see `stationary_distribution` for the formulas."""

    @staticmethod
    def forward(
        ctx: Any, edges: Tensor, mask: Tensor | None, keep_factors: bool
    ) -> tuple[Tensor, Tensor]:
        # The factors are an output, so that a second derivative reaches
        # `_StationaryBackward`, which raises, instead of being silently wrong.
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
            return _StationaryBackward.apply(*inputs), None, None
        return _backward(*inputs), None, None


class _StationaryBackward(Function):
    """Backward of `_Stationary`, which cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, kernels: Kernels, *inputs: Any) -> Tensor:
        return _backward(kernels, *inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        _raise_second_derivative(ctx, *grads)


def _backward(
    kernels: Kernels, grad: Tensor, factors: Tensor, mask: Tensor | None, plan: Any
) -> Tensor:
    assert len(factors) == len(grad), "the factors were not saved"
    return kernels.backward(grad, factors, mask, plan)


@torch.library.custom_op("perron::stationary", mutates_args=())
def stationary_op(
    edges: Tensor, mask: Tensor, keep_factors: bool
) -> tuple[Tensor, Tensor]:
    """Return the weights (B, N) and the factors (B, N, N) or (0, N, N)."""
    kernels = select_for_graph("stationary", edges)
    weights, factors, _ = kernels.forward(edges, mask, keep_factors)
    return weights, factors


@stationary_op.register_fake
def _(edges: Tensor, mask: Tensor, keep_factors: bool) -> tuple[Tensor, Tensor]:
    batch, tokens = mask.shape
    saved = batch if keep_factors else 0
    return edges.new_empty(batch, tokens), edges.new_empty(saved, tokens, tokens)


@torch.library.custom_op("perron::stationary_backward", mutates_args=())
def stationary_backward_op(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from ∂ℓ/∂α (B, N)."""
    kernels = select_for_graph("stationary", grad)
    return _backward(kernels, grad, factors, mask, None)


@stationary_backward_op.register_fake
def _(grad: Tensor, factors: Tensor, mask: Tensor) -> Tensor:
    return grad.new_empty(*mask.shape, mask.shape[1])


def _setup_context(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]
) -> None:
    edges, mask, keep_factors = inputs
    ctx.set_materialize_grads(False)  # the gradient of the factors is never needed
    # A graph may be traced without gradients and differentiated later.
    ctx.has_factors = keep_factors
    ctx.save_for_backward(output[1] if keep_factors else edges, mask)


def _op_backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> Any:
    if grad is None:
        return None, None, None
    factors, mask = ctx.saved_tensors
    if not ctx.has_factors:
        _, factors = stationary_op(factors, mask, True)
    return stationary_backward_op(grad, factors, mask), None, None


def _raise_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "stationary_distribution() can be differentiated only once. For second "
        'derivatives, use power_iteration(..., gradient="unrolled").'
    )


stationary_op.register_autograd(_op_backward, setup_context=_setup_context)
stationary_backward_op.register_autograd(_raise_second_derivative)


def stationary_distribution(
    edges: Tensor, mask: Tensor | None = None, *, norm: Norm = "sum"
) -> Float[Tensor, "*batch n"]:
    r"""Return the stationary distribution of the random walk on each graph.

        K(A) = diag(1ᵀA) - A,    K α = 0,    α > 0,    1ᵀα = 1

    If the columns of the edges sum to one, this is the Perron vector, A α = α. In
    general, ``edges[..., i, j]`` is the rate of transitions from j to i: the columns
    need not sum to one, and the diagonal is ignored. α is computed by state reduction
    (Grassmann, Taksar and Heyman, 1985), which has no subtractions, so every entry is
    accurate to a few ulps, no matter how unbalanced the graph is. So is the gradient

        ∂ℓ/∂A_ij = (u_i - u_j) α_j,    Kᵀu = γ - (γᵀα)1,    γ = ∂ℓ/∂α,

    which takes two sweeps with the same factors. The result can be differentiated once;
    a second derivative raises an error. See `docs/mathematics.md` for the derivation.

    Args:
        edges: (..., N, N) rates, positive off the diagonal between valid tokens. A zero
            is treated as a vanishingly weak edge. If a rate is negative, infinite or
            NaN, the weights of its text are NaN. Gradients that overflow the dtype (in
            float32, on an edge weaker than about 1e-38) are clamped.
        mask: (..., N), True (or 1) on valid tokens, in any pattern; broadcast along the
            batch axes. Masked tokens get weight 0, and their edges are ignored. A text
            with no tokens gets weights 0 and gradient 0. Defaults to no padding.
        norm: ``"sum"`` for weights that sum to one, ``"l2"`` for unit length.

    Returns:
        (..., N) weights. Half-precision inputs are solved in float32 and returned in
        their own dtype.
    """
    graphs = check_graphs(edges, mask, norm)
    weights = solve(graphs)
    if norm == "l2":
        weights = normalize(weights, norm)
    if weights.dtype != graphs.dtype:
        weights = weights.to(graphs.dtype)
    return weights if edges.ndim == 3 else weights.view(graphs.shape)
