"""Grassmann-Taksar-Heyman elimination in plain torch operations, for any device.

The same mathematics as `gth_cpu`, all texts at once, one word a step. The words in use
are sorted to the front; the rates of all others are zero, so that nobody walks there.
"""

import torch
from torch import Tensor

# The rates of a text are scaled to the order of 2**TOP; what is then below FLOOR counts
# as FLOOR (see "Zeros" in docs/mathematics.md).
TOP = {torch.float32: 96, torch.float64: 400}
FLOOR = {torch.float32: 2.0**-126, torch.float64: 2.0**-400}


# The level of u in a part of a graph that hardly anyone leaves is cut at this many
# times γ over the sum of the rates: two pieces of double precision hold no more digits.
HIGHEST = 1e30


def forward(
    edges: Tensor, mask: Tensor | None, keep_factors: bool
) -> tuple[Tensor, Tensor, None]:
    """Return the weights (B, N), the factors (B, N, N) or none of these, no plan."""
    mask = edges.new_ones(edges.shape[:-1], dtype=torch.bool) if mask is None else mask
    order, used = _words_first(mask)
    pairs = used.unsqueeze(-1) & used.unsqueeze(-2)
    pairs = pairs & ~torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
    W = _reorder(edges, order).masked_fill(~pairs, 0)
    largest = W.amax((-2, -1)) if W.numel() else W.sum((-2, -1))
    sound = (W >= 0).all(-1).all(-1) & (largest < torch.inf)
    exponent = torch.frexp(largest.masked_fill(~sound, 1)).exponent
    shift = (TOP[W.dtype] - exponent)[..., None, None]
    W = torch.ldexp(W, shift).clamp_min(FLOOR[W.dtype]).masked_fill(~pairs, 0)
    A = W.clone()
    for k in range(W.shape[-1] - 1, 0, -1):
        leaving = W[:, :k, k].sum(-1)
        leaving = leaving.masked_fill(leaving == 0, 1)  # a word not in use
        W[:, :k, k] /= leaving.unsqueeze(-1)
        W[:, :k, :k] += W[:, :k, k : k + 1] * W[:, k : k + 1, :k]
        W[:, k, k] = leaving
    x = _even_out(A, _balance(W, used))
    weights = torch.zeros_like(x).scatter(-1, order, x).to(edges.dtype)
    weights = torch.where(sound.unsqueeze(-1), weights, torch.nan)
    if W.numel():
        W[:, 0, 0] = exponent.to(W.dtype).masked_fill(~sound, torch.nan)
    factors = W if keep_factors else W.new_empty(0, *W.shape[1:])
    return weights.masked_fill(~mask, 0), factors, None


def backward(
    grad: Tensor, factors: Tensor, mask: Tensor | None, plan: None = None
) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N) and the factors."""
    mask = grad.new_ones(grad.shape, dtype=torch.bool) if mask is None else mask
    order, used = _words_first(mask)
    W = factors
    alpha = _balance(W, used)
    gamma = grad.to(alpha.dtype).gather(-1, order).masked_fill(~used, 0)
    n = mask.shape[-1]
    # Down: c_k = (γ_k - γᵀα + q_k) / s_k;  q_j += W_kj c_k for j < k.
    u = torch.zeros_like(alpha)
    q = torch.zeros_like(alpha)
    if n:
        gamma = gamma - gamma.gather(-1, alpha.argmax(-1, keepdim=True))
    slope = gamma - (gamma * alpha).sum(-1, keepdim=True)
    most = HIGHEST * 2.0 ** -TOP[W.dtype] * gamma.abs().amax(-1) if n else gamma.sum(-1)
    for k in range(n - 1, 0, -1):
        u[:, k] = ((slope[:, k] + q[:, k]) / W[:, k, k]).clamp(-most, most)
        q[:, :k] += W[:, k, :k] * u[:, k : k + 1]
    # Up: u_k = c_k + Σ_{i<k} P_ik u_i, in two pieces: see `gth_long`.
    rest = torch.zeros_like(u)
    for k in range(1, n):
        P = W[:, :k, k].to(u.dtype)
        total = P.sum(-1)
        total = total.masked_fill(total == 0, 1)
        near = (P * u[:, :k]).sum(-1) / total
        off = (P * ((u[:, :k] - near.unsqueeze(-1)) + rest[:, :k])).sum(-1)
        small = off / total + u[:, k]
        u[:, k] = near + small
        part = u[:, k] - near
        rest[:, k] = (near - (u[:, k] - part)) + (small - part)
    shift = TOP[W.dtype] - W[:, 0, 0] if n else W.new_zeros(len(W))
    shift = shift.to(alpha.dtype).unsqueeze(-1)  # NaN for a flawed text
    half = torch.exp2((shift / 2).floor())  # in two factors: one may be out of range
    rest_of_shift = torch.exp2(shift - (shift / 2).floor())
    steps = (u[:, :, None] - u[:, None]) + (rest[:, :, None] - rest[:, None])
    steps = steps * half.unsqueeze(-1)
    grad_edges = steps * (alpha * rest_of_shift).unsqueeze(-2)
    limit = torch.finfo(W.dtype).max
    grad_edges = grad_edges.clamp(-limit, limit).to(W.dtype)
    back = torch.argsort(order, dim=-1)
    pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
    return _reorder(grad_edges, back).masked_fill(~pairs, 0)


def _words_first(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return an order with the words in use in front, and the mask in that order."""
    order = torch.argsort(~mask, dim=-1, stable=True)
    return order, mask.gather(-1, order)


def _reorder(square: Tensor, order: Tensor) -> Tensor:
    rows = order.unsqueeze(-1).expand_as(square)
    columns = order.unsqueeze(-2).expand_as(square)
    return square.gather(-2, rows).gather(-1, columns)


def _balance(W: Tensor, used: Tensor) -> Tensor:
    """x_0 = 1, s_k x_k = Σ_{j<k} W_kj x_j, then x to sum one."""
    # Sums of rates times x span more than float32 does; not every device has float64.
    wide = torch.float32 if W.device.type == "mps" else torch.float64
    x = used.to(wide)
    for k in range(1, W.shape[-1]):
        x[:, k] = (W[:, k, :k] * x[:, :k]).sum(-1) / W[:, k, k]
        x[:, : k + 1] /= x[:, : k + 1].sum(-1, keepdim=True).clamp_min(1)
    return x / x.sum(-1, keepdim=True).masked_fill(~used[:, :1], 1)


def _even_out(A: Tensor, x: Tensor) -> Tensor:
    """One Jacobi step in double precision, as in `gth_long`."""
    dtype = A.dtype
    A = A.to(x.dtype)
    outflow = A.sum(-2)
    inflow = (A @ x.unsqueeze(-1)).squeeze(-1)
    cut_off = FLOOR[dtype] * A.shape[-1] * 2.0**64
    x = torch.where(outflow > cut_off, inflow / outflow, x)
    total = x.sum(-1, keepdim=True)
    return x / total.masked_fill(total == 0, 1)
