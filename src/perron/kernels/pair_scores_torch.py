"""Scores of all pairs of tokens in plain torch operations.

    s_ij = Σ_k w_k act(a_ik + b_jk)

For long texts, the hidden layers of all pairs would not fit into memory. Therefore,
blocks of target tokens are scored against all source tokens.
"""

import torch
from torch import Tensor

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}

MAX_BYTES = 64_000_000


def forward(
    x: Tensor, w: Tensor, mask: Tensor, activation: str, *, max_bytes: int = MAX_BYTES
) -> Tensor:
    """Return the scores (B, H, N, N), computed in blocks of target tokens.

    Args:
        x: (R, 2, H, K); see `perron.pooling.pair_scores`.
        w: (H, K), weights of the output layer of each head.
        mask: (B, N), True on valid tokens.
        activation: Key of `ACTIVATIONS`.
        max_bytes: Memory limit for the hidden layers of a block. Defaults to 64 MB.
    """
    a, b = _padded(x, mask)
    b = b.unsqueeze(-3)
    column = w[:, None, :, None]
    blocks = [
        (ACTIVATIONS[activation](block.unsqueeze(-2) + b) @ column).squeeze(-1)
        for block in a.split(_block_size(a, max_bytes), dim=-2)
    ]
    scores = torch.cat(blocks, -2).masked_fill(~_pairs(mask), 0)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask[:, None, :, None], lowest)


def backward(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    mask: Tensor,
    activation: str,
    *,
    max_bytes: int = MAX_BYTES,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and w; the hidden units are recomputed."""
    a, b = _padded(x, mask)
    grad = grad.masked_fill(~_pairs(mask), 0).unsqueeze(-1)  # (B, H, N, N, 1)
    grad_a, grad_b, grad_w = [], b.new_zeros(b.shape), torch.zeros_like(w)
    size = _block_size(a, max_bytes)
    blocks = zip(a.split(size, -2), grad.split(size, -3), strict=True)
    for block, grad_block in blocks:
        total = block.unsqueeze(-2) + b.unsqueeze(-3)
        hidden = ACTIVATIONS[activation](total)
        grad_w += (grad_block * hidden).sum((0, 2, 3))
        if activation == "tanh":
            derivative = 1 - hidden.square()
        else:
            derivative = (total > 0).to(a.dtype)
        grad_total = derivative * grad_block * w[:, None, None, :]
        grad_a.append(grad_total.sum(-2))
        grad_b += grad_total.sum(-3)
    grad_x = torch.stack([torch.cat(grad_a, -2), grad_b]).permute(1, 3, 0, 2, 4)
    grad_x = grad_x.flatten(0, 1)
    has_padding_rows = len(x) == mask.numel()
    return grad_x.contiguous() if has_padding_rows else grad_x[mask.flatten()], grad_w


def _block_size(a: Tensor, max_bytes: int) -> int:
    """Return the number of target tokens per block."""
    batch, heads, tokens, hidden = a.shape
    row = max(1, batch * heads * tokens * hidden * a.element_size())
    return max(1, max_bytes // row)


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
    """Return a mask (B, 1, N, N) of the pairs of valid tokens."""
    return (mask.unsqueeze(-1) & mask.unsqueeze(-2)).unsqueeze(1)
