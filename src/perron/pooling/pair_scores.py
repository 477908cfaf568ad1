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

from perron.pooling.words import may_compile

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}

# Bytes that the hidden layers of the pairs at work may take at a time, on devices
# without a kernel of their own.
_MOST_BYTES = 64_000_000


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
    plain = all(type(t) in (Tensor, torch.nn.Parameter) for t in (x, w))
    if torch.compiler.is_compiling() or not plain:
        return pair_scores_op(x, w, mask, activation)
    return _PairScores.apply(x, w, mask, activation)


class _PairScores(Function):
    """The eager way to the same kernels, as in `perron.solver.ops`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, mask: Tensor, activation: str
    ) -> Tensor:
        ctx.save_for_backward(x, w, mask)
        ctx.activation = activation
        return _forward(x, w, mask, activation)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs = (grad, *ctx.saved_tensors, ctx.activation)
        if torch.is_grad_enabled():  # create_graph=True
            return (*_Adjoint.apply(*inputs), None, None)
        return (*_backward(*inputs), None, None)


class _Adjoint(Function):
    """The backward of `_PairScores`, which has none itself."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        return _backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        _refuse(ctx, *grads)


def _forward(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    if x.device.type == "cpu":
        from perron.kernels import pair_scores_cpu

        return pair_scores_cpu.forward(x, w, mask, activation)
    return forward_in_blocks(x, w, mask, activation)


def _backward(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    if x.device.type == "cpu":
        from perron.kernels import pair_scores_cpu

        return pair_scores_cpu.backward(grad, x, w, mask, activation)
    return backward_in_blocks(grad, x, w, mask, activation)


def forward_in_blocks(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Score some target words against all sources at a time, in plain torch."""
    a, b = _padded(x, mask)
    b = b.unsqueeze(-3)
    column = w[:, None, :, None]
    blocks = [
        (ACTIVATIONS[activation](part.unsqueeze(-2) + b) @ column).squeeze(-1)
        for part in a.split(_rows(a), dim=-2)
    ]
    scores = torch.cat(blocks, -2).masked_fill(~_pairs(mask), 0)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask[:, None, :, None], lowest)


def backward_in_blocks(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients to x and w, computing the hidden units anew."""
    a, b = _padded(x, mask)
    grad = grad.masked_fill(~_pairs(mask), 0).unsqueeze(-1)  # (B, H, N, N, 1)
    grad_a, grad_b, grad_w = [], b.new_zeros(b.shape), torch.zeros_like(w)
    step = _rows(a)
    for part, slope in zip(a.split(step, -2), grad.split(step, -3), strict=True):
        total = part.unsqueeze(-2) + b.unsqueeze(-3)
        hidden = ACTIVATIONS[activation](total)
        grad_w += (slope * hidden).sum((0, 2, 3))
        steep = 1 - hidden.square() if activation == "tanh" else (total > 0).to(a.dtype)
        steep = steep * slope * w[:, None, None, :]
        grad_a.append(steep.sum(-2))
        grad_b += steep.sum(-3)
    both = torch.stack([torch.cat(grad_a, -2), grad_b]).permute(1, 3, 0, 2, 4)
    rows = both.flatten(0, 1)  # of padding too
    whole = len(x) == mask.numel()
    return rows.contiguous() if whole else rows[mask.flatten()], grad_w


def _rows(a: Tensor) -> int:
    batch, heads, words, hidden = a.shape
    row = max(1, batch * heads * words * hidden * a.element_size())
    return max(1, _MOST_BYTES // row)


def _padded(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return a and b (B, H, N, K), zero where the mask is False."""
    if len(x) != mask.numel():
        full = x.new_zeros(mask.numel(), *x.shape[1:])
        full[mask.flatten()] = x
        x = full
    x = x.unflatten(0, mask.shape).masked_fill(~mask[:, :, None, None, None], 0)
    a, b = x.permute(2, 0, 3, 1, 4)
    return a, b


def _pairs(mask: Tensor) -> Tensor:
    return (mask.unsqueeze(-1) & mask.unsqueeze(-2)).unsqueeze(1)


@torch.library.custom_op("perron::pair_scores", mutates_args=())
def pair_scores_op(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Return the scores (B, H, N, N)."""
    return _forward(x, w, mask, activation)


@pair_scores_op.register_fake
def _(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    batch, words = mask.shape
    return x.new_empty(batch, len(w), words, words)


@torch.library.custom_op("perron::pair_scores_backward", mutates_args=())
def adjoint_op(
    grad: Tensor, x: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients to x and w."""
    return _backward(grad, x, w, mask, activation)


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
    if may_compile(scores):
        return _ColumnSoftmax.apply(scores, mask)
    return scores.softmax(-2)


class _ColumnSoftmax(Function):
    """A = softmax_i s;  ∂ℓ/∂s_ij = A_ij (g_ij - Σ_i A_ij g_ij), g = ∂ℓ/∂A.

    The backward is made of differentiable operations when it is to be differentiated.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor) -> Tensor:
        from perron.kernels import column_softmax_cpu

        edges = column_softmax_cpu.forward(scores, mask)
        ctx.save_for_backward(edges)
        return edges

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (edges,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            mean = (edges * grad).sum(-2, keepdim=True)
            return edges * (grad - mean), None
        from perron.kernels import column_softmax_cpu

        return column_softmax_cpu.backward(grad, edges), None
