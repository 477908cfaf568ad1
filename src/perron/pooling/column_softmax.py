"""The softmax that turns scores into edges: over the words i that a word j points at.

A compiled one of our own on the CPU, because it stands between two other compiled
kernels: after a parallel operation of torch, its threads spin for some milliseconds,
and the kernel that follows has to share the processors with them.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

from perron.pooling.words import may_compile


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
        from perron.pooling import column_softmax_cpu

        edges = column_softmax_cpu.forward(scores, mask)
        ctx.save_for_backward(edges)
        return edges

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (edges,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            mean = (edges * grad).sum(-2, keepdim=True)
            return edges * (grad - mean), None
        from perron.pooling import column_softmax_cpu

        return column_softmax_cpu.backward(grad, edges), None
