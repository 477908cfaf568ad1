"""Grassmann-Taksar-Heyman elimination in plain torch operations, for any device.

Same computation as in `gth_cpu`, applied to all texts at once, one token per step.
Valid tokens are sorted to the front. All rates of padding are zero, so the chain never
visits it.
"""

import torch
from torch import Tensor

# The rates of a text are scaled to about 2**SCALE_EXPONENT, and scaled rates below
# MIN_RATE are raised to MIN_RATE (see "Zeros" in docs/mathematics.md).
SCALE_EXPONENT = {torch.float32: 96, torch.float64: 400}
MIN_RATE = {torch.float32: 2.0**-126, torch.float64: 2.0**-400}


# In a nearly absorbing part of a graph, the level of u is clamped to this many times γ
# over the sum of the rates. A pair of doubles cannot hold more digits.
MAX_LEVEL = 1e30


def forward(
    edges: Tensor, mask: Tensor | None, keep_factors: bool
) -> tuple[Tensor, Tensor, None]:
    """Return the weights (B, N), the factors (B, N, N) or (0, N, N), and no plan."""
    mask = edges.new_ones(edges.shape[:-1], dtype=torch.bool) if mask is None else mask
    order, valid = _valid_first(mask)
    pairs = valid.unsqueeze(-1) & valid.unsqueeze(-2)
    pairs = pairs & ~torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
    W = _reorder(edges, order).masked_fill(~pairs, 0)
    largest = W.amax((-2, -1)) if W.numel() else W.sum((-2, -1))
    finite = (W >= 0).all(-1).all(-1) & (largest < torch.inf)
    exponent = torch.frexp(largest.masked_fill(~finite, 1)).exponent
    shift = (SCALE_EXPONENT[W.dtype] - exponent)[..., None, None]
    W = torch.ldexp(W, shift).clamp_min(MIN_RATE[W.dtype]).masked_fill(~pairs, 0)
    A = W.clone()
    for k in range(W.shape[-1] - 1, 0, -1):
        exit_rate = W[:, :k, k].sum(-1)
        exit_rate = exit_rate.masked_fill(exit_rate == 0, 1)  # padding
        W[:, :k, k] /= exit_rate.unsqueeze(-1)
        W[:, :k, :k] += W[:, :k, k : k + 1] * W[:, k : k + 1, :k]
        W[:, k, k] = exit_rate
    x = _jacobi_refine(A, _back_substitute(W, valid))
    weights = torch.zeros_like(x).scatter(-1, order, x).to(edges.dtype)
    weights = torch.where(finite.unsqueeze(-1), weights, torch.nan)
    if W.numel():
        W[:, 0, 0] = exponent.to(W.dtype).masked_fill(~finite, torch.nan)
    factors = W if keep_factors else W.new_empty(0, *W.shape[1:])
    return weights.masked_fill(~mask, 0), factors, None


def backward(
    grad: Tensor, factors: Tensor, mask: Tensor | None, plan: None = None
) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N) and the factors."""
    mask = grad.new_ones(grad.shape, dtype=torch.bool) if mask is None else mask
    order, valid = _valid_first(mask)
    W = factors
    alpha = _back_substitute(W, valid)
    gamma = grad.to(alpha.dtype).gather(-1, order).masked_fill(~valid, 0)
    n = mask.shape[-1]
    # Backward sweep: c_k = (γ_k - γᵀα + q_k) / s_k;  q_j += W_kj c_k for j < k.
    u = torch.zeros_like(alpha)
    q = torch.zeros_like(alpha)
    if n:
        gamma = gamma - gamma.gather(-1, alpha.argmax(-1, keepdim=True))
    rhs = gamma - (gamma * alpha).sum(-1, keepdim=True)
    max_level = MAX_LEVEL * 2.0 ** -SCALE_EXPONENT[W.dtype]
    bound = max_level * gamma.abs().amax(-1) if n else gamma.sum(-1)
    for k in range(n - 1, 0, -1):
        u[:, k] = ((rhs[:, k] + q[:, k]) / W[:, k, k]).clamp(-bound, bound)
        q[:, :k] += W[:, k, :k] * u[:, k : k + 1]
    # Forward sweep: u_k = c_k + Σ_{i<k} P_ik u_i, as a double-double; see `gth_long`.
    low = torch.zeros_like(u)
    for k in range(1, n):
        P = W[:, :k, k].to(u.dtype)
        total = P.sum(-1)
        total = total.masked_fill(total == 0, 1)
        level = (P * u[:, :k]).sum(-1) / total
        deviation = (P * ((u[:, :k] - level.unsqueeze(-1)) + low[:, :k])).sum(-1)
        small = deviation / total + u[:, k]
        u[:, k] = level + small
        part = u[:, k] - level
        low[:, k] = (level - (u[:, k] - part)) + (small - part)
    shift = SCALE_EXPONENT[W.dtype] - W[:, 0, 0] if n else W.new_zeros(len(W))
    shift = shift.to(alpha.dtype).unsqueeze(-1)  # NaN for a text with invalid rates
    half = torch.exp2((shift / 2).floor())  # 2**shift itself may overflow
    second_half = torch.exp2(shift - (shift / 2).floor())
    difference = (u[:, :, None] - u[:, None]) + (low[:, :, None] - low[:, None])
    difference = difference * half.unsqueeze(-1)
    grad_edges = difference * (alpha * second_half).unsqueeze(-2)
    limit = torch.finfo(W.dtype).max
    grad_edges = grad_edges.clamp(-limit, limit).to(W.dtype)
    inverse = torch.argsort(order, dim=-1)
    pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
    return _reorder(grad_edges, inverse).masked_fill(~pairs, 0)


def _valid_first(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the permutation that moves valid tokens first, and the permuted mask."""
    order = torch.argsort(~mask, dim=-1, stable=True)
    return order, mask.gather(-1, order)


def _reorder(square: Tensor, order: Tensor) -> Tensor:
    """Permute the rows and columns of a matrix."""
    rows = order.unsqueeze(-1).expand_as(square)
    columns = order.unsqueeze(-2).expand_as(square)
    return square.gather(-2, rows).gather(-1, columns)


def _back_substitute(W: Tensor, valid: Tensor) -> Tensor:
    """Solve x_0 = 1, s_k x_k = Σ_{j<k} W_kj x_j, then normalize x to sum to one."""
    # The sums exceed the range of float32, but not every device supports float64.
    dtype = torch.float32 if W.device.type == "mps" else torch.float64
    x = valid.to(dtype)
    for k in range(1, W.shape[-1]):
        x[:, k] = (W[:, k, :k] * x[:, :k]).sum(-1) / W[:, k, k]
        x[:, : k + 1] /= x[:, : k + 1].sum(-1, keepdim=True).clamp_min(1)
    return x / x.sum(-1, keepdim=True).masked_fill(~valid[:, :1], 1)


def _jacobi_refine(A: Tensor, x: Tensor) -> Tensor:
    """Refine x by one Jacobi iteration in double precision, as in `gth_long`."""
    dtype = A.dtype
    A = A.to(x.dtype)
    outflow = A.sum(-2)
    inflow = (A @ x.unsqueeze(-1)).squeeze(-1)
    min_outflow = MIN_RATE[dtype] * A.shape[-1] * 2.0**64
    x = torch.where(outflow > min_outflow, inflow / outflow, x)
    total = x.sum(-1, keepdim=True)
    return x / total.masked_fill(total == 0, 1)
