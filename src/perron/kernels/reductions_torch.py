"""Column softmax, per-text reductions and mixes of layers in plain torch.

The tokens of all texts are concatenated along the first axis; ``counts`` holds the
number of tokens in each text.
"""

import torch
from torch import Tensor


def segment_sum(weights: Tensor, states: Tensor, counts: Tensor) -> Tensor:
    """Return v_th = Σ_i α_ih x_i (B, H, D) of α (M, H) and x (M, D)."""
    products = weights.unsqueeze(-1) * states.unsqueeze(-2)  # (M, H, D)
    sums = states.new_zeros(len(counts), *products.shape[1:])
    return sums.index_add_(0, segment_ids(counts, len(states)), products)


def segment_sum_backward(
    grad: Tensor, weights: Tensor, states: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ∂ℓ/∂α_ih = x_iᵀ g_th and ∂ℓ/∂x_i = Σ_h α_ih g_th from g = ∂ℓ/∂v.

    The result is differentiable.
    """
    grad_rows = grad[segment_ids(counts, len(states))]  # (M, H, D)
    grad_weights = (grad_rows @ states.unsqueeze(-1)).squeeze(-1)
    return grad_weights, (weights.unsqueeze(-2) @ grad_rows).squeeze(-2)


def segment_argmax(x: Tensor, counts: Tensor) -> Tensor:
    """Return the row (B, D) with the largest x in each text and coordinate.

    NaN counts as the largest. The result is zero for a text with no tokens.
    """
    texts = segment_ids(counts, len(x))
    index = texts.unsqueeze(1).expand_as(x)
    top = x.new_full((len(counts), x.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, index, x, "amax")
    rows = torch.arange(len(x), device=x.device).unsqueeze(1).expand_as(x)
    is_max = (x == top[texts]) | x.isnan()
    rows = rows.masked_fill(~is_max, 0)
    return rows.new_zeros(top.shape).scatter_reduce(0, index, rows, "amax")


def segment_ids(counts: Tensor, rows: int) -> Tensor:
    """Return the index of the text that each row belongs to."""
    texts = torch.arange(len(counts), device=counts.device)
    return texts.repeat_interleave(counts, output_size=rows)


def mix_layers(weights: Tensor, states: Tensor) -> Tensor:
    """Return y = Σ_k w_k x_k (...) of w (K) and x (K, ...), in the dtype of w."""
    return torch.tensordot(weights, states.to(weights.dtype), 1)


def mix_layers_backward(grad: Tensor, weights: Tensor, states: Tensor) -> Tensor:
    """Return ∂ℓ/∂w_k = Σ x_k g from g = ∂ℓ/∂y. The result is differentiable."""
    return states.to(weights.dtype).flatten(1) @ grad.flatten()


def column_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return softmax_i s_ij; scores of padding i must be the minimum of their dtype."""
    return scores.softmax(-2)


def column_softmax_backward(grad: Tensor, edges: Tensor) -> Tensor:
    """Return A_ij (g_ij - Σ_i A_ij g_ij) with a fused operation."""
    return torch._softmax_backward_data(grad, edges, -2, edges.dtype)
