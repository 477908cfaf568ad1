"""Grassmann-Taksar-Heyman elimination in plain torch operations, for any device.

The result is the same as in `gth_cpu`. All texts are solved at once, with few
operations, because each of them is a kernel launch on a GPU: two per word, three per
panel of words, and a fixed number for everything else. Edges in float32 are solved in
float64, where matrix products are accurate on every device (no TF32), and weights are
rounded only once.

All rates of padding are zero, so the chain never visits it, wherever it is.
"""

import torch
from torch import Tensor
from torch.linalg import solve_triangular, vector_norm

# The rates of a text are scaled to about 2**SCALE_EXPONENT, and scaled rates below
# MIN_RATE are raised to MIN_RATE (see "Zeros" in docs/mathematics.md).
SCALE_EXPONENT = {torch.float32: 96, torch.float64: 400}
MIN_RATE = {torch.float32: 2.0**-126, torch.float64: 2.0**-400}

# The same on a device without float64. A lower value would let x exceed the range of
# float32.
MIN_RATE_WITHOUT_FLOAT64 = 2.0**-14

# In a nearly absorbing part of a graph, the level of u is clamped to this many times γ
# over the sum of the rates. A pair of doubles cannot hold more digits.
MAX_LEVEL = 1e30

# Words that are eliminated one by one before the rest of the matrix is updated.
PANEL = 32

# Each refinement of u gains about 15 digits, and a pair of doubles holds 32.
REFINEMENTS = 2


def forward(
    edges: Tensor, mask: Tensor | None, keep_factors: bool
) -> tuple[Tensor, Tensor, None]:
    """Return the weights (B, N), the factors (B, N, N) or (0, N, N), and no plan.

    The factors are those of K = U L, transposed: -P_ik at [k, i], -W_kj at [j, k] for
    i, j < k, s_k at [k, k], and the exponent of the largest rate at [0, 0].
    """
    if mask is None:
        mask = edges.new_ones(edges.shape[:-1], dtype=torch.bool)
    if edges.shape[-1] == 0:
        factors = edges.new_empty(len(edges) if keep_factors else 0, 0, 0)
        return edges.new_empty(mask.shape), factors, None
    padding = ~mask
    is_first, is_idle = _first_words(mask)
    A, exponent = _scaled_rates(edges, padding)
    K, s = _eliminate(A, is_idle)
    x = _back_substitute(K / s.unsqueeze(-2), is_first)
    weights = (x / x.sum(-1, keepdim=True)).to(edges.dtype).masked_fill_(padding, 0)
    if not keep_factors:
        return weights, edges.new_empty(0, *edges.shape[1:]), None
    factors = K.to(edges.dtype, memory_format=torch.contiguous_format, copy=True)
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    diagonal.copy_(s)
    diagonal[:, :1] = exponent
    return weights, factors, None


def backward(
    grad: Tensor, factors: Tensor, mask: Tensor | None, plan: None = None
) -> Tensor:
    """Return ∂ℓ/∂A (B, N, N) from γ = ∂ℓ/∂α (B, N) and the factors."""
    if factors.numel() == 0:
        return torch.zeros_like(factors)
    if mask is None:
        mask = grad.new_ones(grad.shape, dtype=torch.bool)
    padding = ~mask
    is_first, is_idle = _first_words(mask)
    K = factors.to(_wide_dtype(grad))
    s = K.diagonal(dim1=-2, dim2=-1)
    L = K / s.unsqueeze(-2)
    alpha = _back_substitute(L, is_first)
    alpha = alpha / alpha.sum(-1, keepdim=True)
    # Backward sweep: Lᵀw = γ - (γᵀα)1, c_k = w_k / s_k. w does not overflow, because an
    # entry of L⁻¹ is at most the ratio of two entries of x.
    gamma = grad.to(K.dtype).masked_fill(padding, 0)
    gamma = gamma - gamma.gather(-1, alpha.argmax(-1, keepdim=True))
    rhs = (gamma - (gamma * alpha).sum(-1, keepdim=True)).unsqueeze(-1)
    w = solve_triangular(L, rhs, upper=True, unitriangular=True).squeeze(-1)
    max_level = MAX_LEVEL * 2.0 ** -SCALE_EXPONENT[factors.dtype]
    bound = max_level * vector_norm(gamma, torch.inf, -1, keepdim=True)
    c = (w / s).clamp_(-bound, bound).masked_fill_(is_idle, 0)
    # Forward sweep: u_k = c_k + Σ_{i<k} P_ik u_i, where P is divided by its actual sum.
    P = K.tril(-1)
    P = P / torch.add(is_idle, P.sum(-1), alpha=-1).unsqueeze(-1)
    u, low = _solve_levels(P, c)
    # ∂ℓ/∂A_ij = (u_i - u_j) α_j 2**shift. The shift is NaN if the rates were invalid.
    half, second_half = _powers_of_two(SCALE_EXPONENT[factors.dtype] - K[:, :1, :1])
    alpha = alpha.unsqueeze(-2) * second_half
    grad_edges = _differences(u, low).mul_(half).mul_(alpha)
    limit = torch.finfo(factors.dtype).max
    grad_edges = grad_edges.clamp_(-limit, limit).to(factors.dtype)
    return grad_edges.masked_fill_(_in_either(padding), 0)


def _wide_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype of the computation: float64 if the device supports it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def _in_either(padding: Tensor) -> Tensor:
    """Return a mask (B, N, N) of the pairs in which at least one word is padding."""
    return padding.unsqueeze(-1) | padding.unsqueeze(-2)


def _first_words(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return masks (B, N) of the first valid word, and of that word and all padding.

    The chain cannot move from words of the second mask to earlier words.
    """
    count = mask.cumsum(-1) * mask
    return count == 1, count <= 1


def _powers_of_two(exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Return two numbers whose product is 2**exponent, which itself may overflow."""
    half = exponent.div(2, rounding_mode="floor")
    return torch.exp2(half), torch.exp2(exponent - half)


def _scaled_rates(edges: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
    """Scale the rates and clamp them to at least MIN_RATE.

    Returns:
        (B, N, N) the rate from j to i at [j, i], in the wide dtype, and (B, 1) the
        exponent of the largest rate. Both are NaN if the text has invalid rates.
    """
    same = torch.eye(padding.shape[-1], dtype=torch.bool, device=padding.device)
    no_edge = _in_either(padding) | same
    A = edges.mT.to(_wide_dtype(edges)).masked_fill(no_edge, 0)
    smallest, largest = A.flatten(1).aminmax(dim=-1, keepdim=True)
    is_valid = (smallest >= 0) & (largest < torch.inf)
    exponent = torch.frexp(largest).exponent.to(A.dtype)
    exponent = exponent.masked_fill_(~is_valid, torch.nan)
    shift = SCALE_EXPONENT[edges.dtype] - exponent.unsqueeze(-1)
    half, second_half = _powers_of_two(shift)
    has_float64 = A.dtype == torch.float64
    min_rate = MIN_RATE[edges.dtype] if has_float64 else MIN_RATE_WITHOUT_FLOAT64
    A = A.mul_(half).mul_(second_half).clamp_min_(min_rate)
    return A.masked_fill_(no_edge, 0), exponent


def _eliminate(A: Tensor, is_idle: Tensor) -> tuple[Tensor, Tensor]:
    """Eliminate the words from the last one to the first.

    The exit rate s_k = Σ_{i<k} W_ik would take an extra sum per word. Instead, the sums
    C_ik = Σ_{h≤i} W_hk of the first rates of every column are updated together with
    the rates:

        s_k = C_{k-1,k},   P_ik = W_ik / s_k,   W_ij += P_ik W_kj,
                                                C_ij += C_ik / s_k · W_kj     i, j < k

    A row of the buffer V holds a column of C, from the last sum to the first, and then
    a column of -W. The rates and sums of the words before k are thus adjacent. Nothing
    cancels, as -W is negative.

    Within a panel of words, only the columns of the panel are updated. The rates W_kj
    from earlier words j follow from one triangular solve, and then all earlier columns
    are updated at once.

    Returns:
        (B, N, N) -P_ik at [k, i] and -W_kj at [j, k]; (B, N) s, where s_0 has no
        meaning.
    """
    n = A.shape[-1]
    # An idle word has no rates to earlier words. An exit rate of 1 avoids 0 / 0.
    C = (A.cumsum(-1) + is_idle.unsqueeze(-1)).flip(-1)
    V = torch.cat([C, -A], -1)
    s = V.flatten(1)[:, n :: 2 * n - 1]
    exit_rate = s.unsqueeze(-1).split(1, 1)  # (B, 1, 1) for each k
    column = V.split(1, 1)  # (B, 1, 2N) for each k: C_ik and -W_ik, then -P_ik
    row = V.split(1, 2)[n:]  # (B, N, 1) for each k: -W_kj
    for end in range(n, 1, -PANEL):
        begin = max(end - PANEL, 0)
        for k in range(end - 1, max(begin, 1) - 1, -1):
            before = slice(n + 1 - k, n + k)
            P = column[k][..., before].div_(exit_rate[k])
            V[:, begin:k, before].addcmul_(P, row[k][:, begin:k], value=-1)
        if begin > 0:
            panel, before = slice(n + begin, n + end), slice(n + 1 - begin, n + begin)
            P, W = V[:, begin:end], V[:, :begin, panel]
            W.copy_(
                solve_triangular(
                    P[..., panel], W, upper=False, left=False, unitriangular=True
                )
            )
            V[:, :begin, before].baddbmm_(W, P[..., before], alpha=-1)
    return V[..., n:], s


def _back_substitute(L: Tensor, is_first: Tensor) -> Tensor:
    """Solve x = 1 for the first word, s_k x_k = Σ_{j<k} W_kj x_j for the others.

    x cannot overflow: as no rate is below MIN_RATE, the ratio of two entries is at most
    the sum of the rates over MIN_RATE.

    Args:
        L: (B, N, N) with -W_kj / s_k at [j, k] for j < k; other entries are not used.
        is_first: (B, N) mask of the first valid word.
    """
    rhs = is_first.to(L.dtype).unsqueeze(-2)
    x = solve_triangular(L, rhs, upper=True, left=False, unitriangular=True)
    return x.squeeze(-2)


def _solve_levels(P: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Solve u_k = c_k + Σ_{i<k} P_ik u_i as an unevaluated sum of two numbers.

    The differences of u within a part of a nearly disconnected graph may be much
    smaller than the rounding errors of u. They are refined with the residual
    c_k + Σ_i P_ik (u_i - u_k), which depends on differences only.

    Args:
        P: (B, N, N) with -P_ik at [k, i] for i < k, and zeros elsewhere.
        c: (B, N).
    """

    def solve(rhs: Tensor) -> Tensor:
        rhs = rhs.unsqueeze(-1)
        return solve_triangular(P, rhs, upper=False, unitriangular=True).squeeze(-1)

    u = solve(c)
    low = torch.zeros_like(u)
    for _ in range(REFINEMENTS):
        residual = c + (P * _differences(u, low)).sum(-1)
        small = low + solve(residual)
        total = u + small
        u, low = total, small - (total - u)  # Dekker's two-sum
    return u, low


def _differences(u: Tensor, low: Tensor) -> Tensor:
    """Return (u_i - u_j) + (low_i - low_j) at [i, j]."""
    high = u.unsqueeze(-1) - u.unsqueeze(-2)
    return high.add_(low.unsqueeze(-1) - low.unsqueeze(-2))
