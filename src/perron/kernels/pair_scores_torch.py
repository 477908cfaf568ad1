"""Scores of all pairs of words in plain torch operations.

    s_ij = Σ_k w_k act(a_ik + b_jk)

The hidden layers of all pairs together would not fit into memory for long texts, so
that some target words at a time are scored against all sources.
"""

import torch
from torch import Tensor

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}

MAX_BYTES = 64_000_000


def forward(
    x: Tensor, w: Tensor, mask: Tensor, activation: str, *, max_bytes: int = MAX_BYTES
) -> Tensor:
    """Return the scores (B, H, N, N), some target words at a time against all sources.

    Args:
        x: (R, 2, H, K), see `perron.pooling.pair_scores`.
        w: (H, K), the output layer of each head.
        mask: (B, N), True on words in use.
        activation: Key of `ACTIVATIONS`.
        max_bytes: Size of the hidden layers held at a time. Defaults to 64 MB.
    """
    a, b = _padded(x, mask)
    b = b.unsqueeze(-3)
    column = w[:, None, :, None]
    blocks = [
        (ACTIVATIONS[activation](part.unsqueeze(-2) + b) @ column).squeeze(-1)
        for part in a.split(_rows(a, max_bytes), dim=-2)
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
    """Return the gradients to x and w; the hidden units are computed again."""
    a, b = _padded(x, mask)
    grad = grad.masked_fill(~_pairs(mask), 0).unsqueeze(-1)  # (B, H, N, N, 1)
    grad_a, grad_b, grad_w = [], b.new_zeros(b.shape), torch.zeros_like(w)
    step = _rows(a, max_bytes)
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


def _rows(a: Tensor, max_bytes: int) -> int:
    batch, heads, words, hidden = a.shape
    row = max(1, batch * heads * words * hidden * a.element_size())
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
    return (mask.unsqueeze(-1) & mask.unsqueeze(-2)).unsqueeze(1)
