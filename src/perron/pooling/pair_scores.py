"""Scores of all pairs of tokens, and the column softmax that turns them into edges.

The hidden layers of the pairs are never stored. On the CPU, the softmax is also
compiled, because it runs between two other compiled kernels. After a parallel
operation, the threads of torch spin for some milliseconds, and the next kernel would
compete with them for the cores.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

from perron.kernels import Kernels, is_eager, select, select_for_graph


def pair_scores(
    x: Float[Tensor, "r 2 h k"],
    w: Float[Tensor, "h k"],
    mask: Bool[Tensor, "b n"],
    activation: str,
) -> Float[Tensor, "b h n n"]:
    """Return s_ij = Σ_k w_k act(a_ik + b_jk), where a is x[:, 0] and b is x[:, 1].

    If i is padding, the score is the minimum of the dtype, which a softmax over i turns
    into zero. If only j is padding, it is zero. The backward pass recomputes the hidden
    units. The result can be differentiated once.

    Args:
        x: Rows of all tokens, concatenated; or of all positions with padding, R = B N.
        w: Weights of the output layer of each head.
        mask: True on tokens.
        activation: Key of `ACTIVATIONS`.
    """
    if is_eager(x, w):
        return _PairScores.apply(x, w, mask, activation)
    return pair_scores_op(x, w, mask, activation)


class _PairScores(Function):
    """Eager call of the same kernels, as in `perron.solver.direct`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, mask: Tensor, activation: str
    ) -> Tensor:
        ctx.save_for_backward(x, w, mask)
        ctx.activation = activation
        ctx.kernels = select("pair_scores", x)
        return ctx.kernels.forward(x, w, mask, activation)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs = (grad, *ctx.saved_tensors, ctx.activation)
        if torch.is_grad_enabled():  # create_graph=True
            return (*_PairScoresBackward.apply(ctx.kernels, *inputs), None, None)
        return (*ctx.kernels.backward(*inputs), None, None)


class _PairScoresBackward(Function):
    """Backward of `_PairScores`, which cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, kernels: Kernels, *inputs: Any) -> tuple[Tensor, Tensor]:
        return kernels.backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        _raise_second_derivative(ctx, *grads)


@torch.library.custom_op("perron::pair_scores", mutates_args=())
def pair_scores_op(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Return the scores (B, H, N, N)."""
    return select_for_graph("pair_scores", x).forward(x, w, mask, activation)


@pair_scores_op.register_fake
def _(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    batch, tokens = mask.shape
    return x.new_empty(batch, len(w), tokens, tokens)


@torch.library.custom_op("perron::pair_scores_backward", mutates_args=())
def pair_scores_backward_op(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and w."""
    return select_for_graph("pair_scores", x).backward(grad, x, w, mask, activation)


@pair_scores_backward_op.register_fake
def _(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    # The kernels return contiguous gradients, whatever the strides of x.
    return x.new_empty(x.shape), w.new_empty(w.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.activation = inputs
    ctx.save_for_backward(*tensors)


def _op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (
        *pair_scores_backward_op(grad, *ctx.saved_tensors, ctx.activation),
        None,
        None,
    )


def _raise_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "The pair scores of CentralityPool can be differentiated only once."
    )


pair_scores_op.register_autograd(_op_backward, setup_context=_setup_context)
pair_scores_backward_op.register_autograd(_raise_second_derivative)


def column_softmax(
    scores: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "b h n n"]:
    """Return softmax_i s_ij over the tokens i.

    Scores of padding i must be the minimum of their dtype. Columns of padding j are
    undefined.
    """
    if is_eager(scores):
        return _ColumnSoftmax.apply(scores, mask)
    return scores.softmax(-2)


class _ColumnSoftmax(Function):
    """A = softmax_i s;  ∂ℓ/∂s_ij = A_ij (g_ij - Σ_i A_ij g_ij), g = ∂ℓ/∂A.

    With create_graph=True, the backward consists of differentiable operations.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor) -> Tensor:
        ctx.kernels = select("column_softmax", scores)
        edges = ctx.kernels.forward(scores, mask)
        ctx.save_for_backward(edges)
        return edges

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (edges,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            mean = (edges * grad).sum(-2, keepdim=True)
            return edges * (grad - mean), None
        return ctx.kernels.backward(grad, edges), None
