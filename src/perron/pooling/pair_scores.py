"""Scores of all pairs of words without ever holding the hidden layer of a pair."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}

# Bytes that the hidden layers of the pairs at work may take at a time, on devices
# without a kernel of their own.
_MOST_BYTES = 64_000_000


def pair_scores(
    a: Float[Tensor, "r h k"],
    b: Float[Tensor, "r h k"],
    w: Float[Tensor, "h k"],
    mask: Bool[Tensor, "b n"],
    activation: str,
) -> Float[Tensor, "b h n n"]:
    """Return s_ij = Σ_k w_k act(a_ik + b_jk) for all pairs of words in use.

    Elsewhere they are the lowest number of their dtype where i is not in use, so that
    a softmax over i leaves nothing there, else zero. The backward pass computes the
    hidden units anew; it can be taken once.

    Args:
        a: a row for every word in use, text after text; or for padding too, R = B N.
        b: likewise.
        w: the output layer of each head.
        mask: True on words in use.
        activation: a key of `ACTIVATIONS`.
    """
    tensors = (a, b, w)
    plain = all(type(t) in (Tensor, torch.nn.Parameter) for t in tensors)
    if torch.compiler.is_compiling() or not plain:
        return pair_scores_op(a, b, w, mask, activation)
    return _PairScores.apply(a, b, w, mask, activation)


class _PairScores(Function):
    """The eager way to the same kernels, as in `perron.solver.ops`."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
    ) -> Tensor:
        ctx.save_for_backward(a, b, w, mask)
        ctx.activation = activation
        return _forward(a, b, w, mask, activation)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs = (grad, *ctx.saved_tensors, ctx.activation)
        if torch.is_grad_enabled():  # create_graph=True
            return (*_Adjoint.apply(*inputs), None, None)
        return (*_backward(*inputs), None, None)


class _Adjoint(Function):
    """The backward of `_PairScores`, which has none itself."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        return _backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        _refuse(ctx, *grads)


def _forward(a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    if a.device.type == "cpu":
        from perron.pooling import pair_scores_cpu

        return pair_scores_cpu.forward(a, b, w, mask, activation)
    return forward_in_blocks(a, b, w, mask, activation)


def _backward(
    grad: Tensor, a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    if a.device.type == "cpu":
        from perron.pooling import pair_scores_cpu

        return pair_scores_cpu.backward(grad, a, b, w, mask, activation)
    return backward_in_blocks(grad, a, b, w, mask, activation)


def forward_in_blocks(
    a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
) -> Tensor:
    """Score some target words against all sources at a time, in plain torch."""
    a, b = _padded(a, mask), _padded(b, mask).unsqueeze(-3)
    column = w[:, None, :, None]
    blocks = [
        (ACTIVATIONS[activation](part.unsqueeze(-2) + b) @ column).squeeze(-1)
        for part in a.split(_rows(a), dim=-2)
    ]
    scores = torch.cat(blocks, -2).masked_fill(~_pairs(mask), 0)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask[:, None, :, None], lowest)


def backward_in_blocks(
    grad: Tensor, a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients to a, b and w, computing the hidden units anew."""
    rows = len(a)
    a, b = _padded(a, mask), _padded(b, mask)
    grad = grad.masked_fill(~_pairs(mask), 0).unsqueeze(-1)  # (B, H, N, N, 1)
    grad_a, grad_b, grad_w = [], b.new_zeros(b.shape), torch.zeros_like(w)
    step = _rows(a)
    for part, slope in zip(a.split(step, -2), grad.split(step, -3), strict=True):
        x = part.unsqueeze(-2) + b.unsqueeze(-3)
        hidden = ACTIVATIONS[activation](x)
        grad_w += (slope * hidden).sum((0, 2, 3))
        steep = 1 - hidden.square() if activation == "tanh" else (x > 0).to(x.dtype)
        steep = steep * slope * w[:, None, None, :]
        grad_a.append(steep.sum(-2))
        grad_b += steep.sum(-3)
    to_a, to_b = (_rows_only(g, mask, rows) for g in (torch.cat(grad_a, -2), grad_b))
    return to_a, to_b, grad_w


def _rows(a: Tensor) -> int:
    batch, heads, words, hidden = a.shape
    row = max(1, batch * heads * words * hidden * a.element_size())
    return max(1, _MOST_BYTES // row)


def _padded(x: Tensor, mask: Tensor) -> Tensor:
    """Return (B, H, N, K), zero where the mask is False, of (R, H, K)."""
    if len(x) != mask.numel():
        full = x.new_zeros(mask.numel(), *x.shape[1:])
        full[mask.flatten()] = x
        x = full
    x = x.unflatten(0, mask.shape).transpose(1, 2)
    return x.masked_fill(~mask[:, None, :, None], 0)


def _rows_only(x: Tensor, mask: Tensor, rows: int) -> Tensor:
    """Undo `_padded`."""
    x = x.transpose(1, 2).flatten(0, 1)
    return x.contiguous() if rows == mask.numel() else x[mask.flatten()]


def _pairs(mask: Tensor) -> Tensor:
    return (mask.unsqueeze(-1) & mask.unsqueeze(-2)).unsqueeze(1)


@torch.library.custom_op("perron::pair_scores", mutates_args=())
def pair_scores_op(
    a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
) -> Tensor:
    """Return the scores (B, H, N, N)."""
    return _forward(a, b, w, mask, activation)


@pair_scores_op.register_fake
def _(a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    batch, words = mask.shape
    return a.new_empty(batch, len(w), words, words)


@torch.library.custom_op("perron::pair_scores_backward", mutates_args=())
def adjoint_op(
    grad: Tensor, a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients to a, b and w."""
    return _backward(grad, a, b, w, mask, activation)


@adjoint_op.register_fake
def _(
    grad: Tensor, a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    # Contiguous, as the kernels return them, whatever the strides of a and b.
    return tuple(t.new_empty(t.shape) for t in (a, b, w))  # type: ignore[return-value]


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
