"""Scores of all pairs of words, and the column softmax that turns them into edges.

The hidden layer of a pair is never stored. The softmax has a compiled kernel of its own
on the CPU, because it stands between two other compiled kernels: after a parallel
operation of torch, its threads spin for some milliseconds, and the kernel that follows
would have to share the processors with them.
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
    """Return s_ij = Σ_k w_k act(a_ik + b_jk) of all pairs; a is x[:, 0], b is x[:, 1].

    Elsewhere they are the lowest number of their dtype where i is not in use, so that
    a softmax over i leaves nothing there, else zero. The backward pass computes the
    hidden units anew; it can be taken once.

    Args:
        x: a row for every word in use, text after text; or for padding too, R = B N.
        w: the output layer of each head.
        mask: True on words in use.
        activation: a key of `ACTIVATIONS`.
    """
    if is_eager(x, w):
        return _PairScores.apply(x, w, mask, activation)
    return pair_scores_op(x, w, mask, activation)


class _PairScores(Function):
    """The eager way to the same kernels, as in `perron.solver.direct`."""

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
            return (*_PairScoresAdjoint.apply(ctx.kernels, *inputs), None, None)
        return (*ctx.kernels.backward(*inputs), None, None)


class _PairScoresAdjoint(Function):
    """The backward of `_PairScores`, which has none itself."""

    @staticmethod
    def forward(ctx: Any, kernels: Kernels, *inputs: Any) -> tuple[Tensor, Tensor]:
        return kernels.backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        _refuse(ctx, *grads)


@torch.library.custom_op("perron::pair_scores", mutates_args=())
def pair_scores_op(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Return the scores (B, H, N, N)."""
    return select_for_graph("pair_scores", x).forward(x, w, mask, activation)


@pair_scores_op.register_fake
def _(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    batch, words = mask.shape
    return x.new_empty(batch, len(w), words, words)


@torch.library.custom_op("perron::pair_scores_backward", mutates_args=())
def adjoint_op(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients to x and w."""
    return select_for_graph("pair_scores", x).backward(grad, x, w, mask, activation)


@adjoint_op.register_fake
def _(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    # Contiguous, as the kernels return them, whatever the strides of x.
    return x.new_empty(x.shape), w.new_empty(w.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.activation = inputs
    ctx.save_for_backward(*tensors)


def _op_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (*adjoint_op(grad, *ctx.saved_tensors, ctx.activation), None, None)


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "the pair scores of CentralityPool can be differentiated once, not twice"
    )


pair_scores_op.register_autograd(_op_backward, setup_context=_remember)
adjoint_op.register_autograd(_refuse)


def column_softmax(
    scores: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "b h n n"]:
    """Return softmax_i s_ij over the words i in use.

    Scores of i that are not in use must be the lowest number of their dtype. What comes
    out for a j that is not in use means nothing.
    """
    if is_eager(scores):
        return _ColumnSoftmax.apply(scores, mask)
    return scores.softmax(-2)


class _ColumnSoftmax(Function):
    """A = softmax_i s;  ∂ℓ/∂s_ij = A_ij (g_ij - Σ_i A_ij g_ij), g = ∂ℓ/∂A.

    The backward is made of differentiable operations when it is to be differentiated.
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
