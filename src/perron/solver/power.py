"""Power iteration (Algorithm 1 of the paper), with the paper's three gradients."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd import Function

from perron.solver.direct import Graphs, Norm, check_graphs, normalize

Gradient = Literal["unrolled", "truncated", "reverse"]


class SolverInfo(NamedTuple):
    """Convergence information, with one value per text.

    ``converged`` means that the stopping criterion was met, not that the result is
    accurate: on a nearly disconnected graph, it can be met far from the Perron vector.
    """

    iterations: Int[Tensor, "*batch"]
    residual: Float[Tensor, "*batch"]  # ‖Aα - θα‖₂ / |θ|
    converged: Bool[Tensor, "*batch"]


class PowerIterationResult(NamedTuple):
    """Dominant eigenvector and eigenvalue, and convergence information."""

    vector: Float[Tensor, "*batch n"]
    eigenvalue: Float[Tensor, "*batch"]
    info: SolverInfo


def default_tolerance(dtype: torch.dtype) -> float:
    """Return the default ε: 1e-10 (the paper's value) in float64, otherwise 1e-6.

    A residual of 1e-10 cannot be reached in float32 and would use up all iterations.
    """
    return 1e-10 if dtype == torch.float64 else 1e-6


def power_iteration(
    edges: Tensor,
    mask: Tensor | None = None,
    *,
    tol: float | None = None,
    max_iter: int = 200,
    gradient: Gradient = "reverse",
    grad_iter: int = 20,
    norm: Norm = "l2",
    start: Tensor | torch.Generator | None = None,
) -> PowerIterationResult:
    r"""Return the dominant eigenvector and eigenvalue of positive matrices.

    From y > 0, repeat  α = y/‖y‖₂,  y = Aα,  θ = αᵀy  until ‖y - θα‖₂ ≤ ε|θ|.

    A text that has converged keeps its α and costs no further time. The gradients,
    with γ = ∂ℓ/∂α, are:

    - ``"unrolled"`` differentiates through all iterations and one more, whose α is
      returned. Memory grows with the number of iterations. The error is about
      \|λ₂/λ₁\|^iterations, so the gradient is wrong if ``start`` is already close to
      the solution. Can be differentiated twice.
    - ``"truncated"`` iterates without gradients until convergence, then differentiates
      through ``grad_iter`` more iterations, whose α is returned. The error is about
      \|λ₂/λ₁\|^grad_iter. Can be differentiated twice.
    - ``"reverse"`` uses implicit differentiation: w = Σ_k (Jᵀ)^k γ with
      J = (A - ααᵀA)/λ, summed until a term is below ε‖w‖ or ``max_iter`` terms have
      been added, and ∂ℓ/∂A = (I - ααᵀ) w αᵀ/λ. Memory does not depend on the number
      of iterations.

    Args:
        edges: (..., N, N), positive between valid tokens; columns need not sum to one.
        mask: (..., N), True (or 1) on valid tokens. Masked tokens get 0, and their
            edges are ignored. Defaults to no padding.
        tol: ε. Defaults to the `default_tolerance` of the working dtype.
        max_iter: Maximum number of iterations; see `SolverInfo.converged`.
        gradient: ``"unrolled"``, ``"truncated"`` or ``"reverse"``.
        grad_iter: Number of differentiated iterations of ``"truncated"``.
        norm: ``"l2"`` as in the paper, or ``"sum"`` for entries that sum to one.
        start: Initial y: a positive tensor (..., N), or a generator for random positive
            values. Defaults to a uniform vector.
    """
    graphs = check_graphs(edges, mask, norm)
    check_settings(tol, max_iter, gradient, grad_iter)
    tol = default_tolerance(graphs.edges.dtype) if tol is None else tol
    valid = graphs.full_mask()
    pairs = valid.unsqueeze(-1) & valid.unsqueeze(-2)
    A, scale = _normalize_scale(graphs.edges.masked_fill(~pairs, 0))
    y = _initial_vector(start, graphs)
    if gradient == "unrolled":
        vector, info = _iterate(A, y, tol, max_iter)
        vector = normalize(_matvec(A, vector), "l2")
    else:
        with torch.no_grad():
            vector, info = _iterate(A, y, tol, max_iter)
        if gradient == "truncated":
            for _ in range(grad_iter):
                vector = normalize(_matvec(A, vector), "l2")
        else:
            vector = _ReverseSum.apply(A, vector, tol, max_iter)
    eigenvalue = (vector * _matvec(A, vector)).sum(-1) * scale
    if norm == "sum":
        vector = normalize(vector, norm)
    batch = graphs.shape[:-1]
    return PowerIterationResult(
        vector.to(graphs.dtype).reshape(graphs.shape),
        eigenvalue.to(graphs.dtype).reshape(batch),
        SolverInfo(*(value.reshape(batch) for value in info)),
    )


def _normalize_scale(A: Tensor) -> tuple[Tensor, Tensor]:
    """Divide by a power of two, so that squares do not overflow; return that power."""
    if A.numel() == 0:
        return A, A.new_ones(len(A))
    largest = A.detach().abs().amax((-2, -1))
    valid = (largest > 0) & largest.isfinite()
    exponent = torch.frexp(torch.where(valid, largest, 1)).exponent
    half = torch.ldexp(torch.ones_like(largest), exponent // 2)
    second_half = torch.ldexp(torch.ones_like(largest), exponent - exponent // 2)
    return A / half[:, None, None] / second_half[:, None, None], half * second_half


def check_settings(
    tol: float | None, max_iter: int, gradient: str, grad_iter: int
) -> None:
    """Raise ValueError unless the settings of the power iteration are valid."""
    if gradient not in get_args(Gradient):
        options = ", ".join(f'"{name}"' for name in get_args(Gradient))
        raise ValueError(f"gradient must be one of {options}, got {gradient!r}.")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}.")
    if grad_iter < 1:
        raise ValueError(f"grad_iter must be at least 1, got {grad_iter}.")
    if tol is not None and not tol >= 0:
        raise ValueError(f"tol must be at least 0, got {tol}.")


def _initial_vector(start: Tensor | torch.Generator | None, graphs: Graphs) -> Tensor:
    mask, dtype = graphs.full_mask(), graphs.edges.dtype
    if start is None:
        return mask.to(dtype)
    if isinstance(start, torch.Generator):
        shape, device = mask.shape, start.device
        y = 1 - torch.rand(shape, generator=start, dtype=dtype, device=device)
        return y.to(mask.device).masked_fill(~mask, 0)
    try:
        y = start.to(dtype).expand(graphs.shape).reshape(mask.shape)
    except RuntimeError as error:
        raise ValueError(
            f"start must have shape {tuple(graphs.shape)}, got {tuple(start.shape)}."
        ) from error
    if not (y > 0)[mask].all():
        raise ValueError("start must be positive on all valid tokens.")
    return y.masked_fill(~mask, 0)


def _matvec(A: Tensor, vector: Tensor) -> Tensor:
    return (A @ vector.unsqueeze(-1)).squeeze(-1)


def _iterate(
    A: Float[Tensor, "b n n"], y: Float[Tensor, "b n"], tol: float, max_iter: int
) -> tuple[Tensor, SolverInfo]:
    """Run Algorithm 1 on each text until its stopping criterion is met."""

    def step(inputs: list[Tensor], state: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        (A,) = inputs
        _, y, _ = state
        alpha = normalize(y, "l2")
        y = _matvec(A, alpha)
        theta = (alpha * y).sum(-1)
        error = torch.linalg.vector_norm(y - theta.unsqueeze(-1) * alpha, dim=-1)
        size = theta.abs()
        residual = error / torch.where(size == 0, 1, size)
        return [alpha, y, residual], error <= tol * size

    state = [torch.zeros_like(y), y, A.new_zeros(len(A))]
    state, iterations, converged = _iterate_until_done(step, [A], state, max_iter)
    alpha, _, residual = state
    diverged = ~residual.detach().isfinite()
    alpha = alpha.masked_fill(diverged.unsqueeze(-1), torch.nan)
    return alpha, SolverInfo(iterations, residual.detach(), converged)


class _ReverseSum(Function):
    r"""Unit eigenvector α(A), with the paper's reverse iteration as its gradient.

    Forward    returns the converged α unchanged
    Backward   given γ = ∂ℓ/∂α:  w = Σ_{k=0}^{N} (Jᵀ)^k γ,  J = (A - ααᵀA)/λ
               ∂ℓ/∂A = (I - ααᵀ) w αᵀ / λ
    Reason     α = f(α, A) with f = Aα/‖Aα‖ has ∂f/∂α = J at the fixed point, and
               Σ (Jᵀ)^k = (I - Jᵀ)⁻¹, as the largest eigenvalue of J is |λ₂/λ₁| < 1
    Domain     any positive A; exact in the limit of converged α and infinite N
    Second     raises an error
    """

    @staticmethod
    def forward(A: Tensor, alpha: Tensor, tol: float, max_iter: int) -> Tensor:
        return alpha.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        A, _, ctx.tol, ctx.max_iter = inputs
        ctx.save_for_backward(A, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        A, alpha = ctx.saved_tensors
        grad_A = _ReverseSumBackward.apply(A, alpha, grad, ctx.tol, ctx.max_iter)
        return grad_A, None, None, None


class _ReverseSumBackward(Function):
    """Backward of `_ReverseSum`, which cannot be differentiated."""

    @staticmethod
    def forward(
        A: Tensor, alpha: Tensor, grad: Tensor, tol: float, max_iter: int
    ) -> Tensor:
        eigenvalue = (alpha * _matvec(A, alpha)).sum(-1, keepdim=True)
        eigenvalue = torch.where(eigenvalue == 0, 1, eigenvalue)  # no tokens

        def add_term(
            inputs: list[Tensor], state: list[Tensor]
        ) -> tuple[list[Tensor], Tensor]:
            A, alpha, eigenvalue = inputs
            term, w = state
            term = _matvec(A.mT, _project_out(alpha, term)) / eigenvalue  # Jᵀ term
            w = w + term
            size = torch.linalg.vector_norm(term, dim=-1)
            return [term, w], size <= tol * torch.linalg.vector_norm(w, dim=-1)

        inputs, state = [A, alpha, eigenvalue], [grad, grad]
        (_, w), _, _ = _iterate_until_done(add_term, inputs, state, max_iter)
        w = _project_out(alpha, w) / eigenvalue
        return w.unsqueeze(-1) * alpha.unsqueeze(-2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            'power_iteration(gradient="reverse") can be differentiated only once. '
            'For second derivatives, use gradient="unrolled".'
        )


def _project_out(alpha: Tensor, vector: Tensor) -> Tensor:
    """Return (I - ααᵀ) vector, for α of unit length."""
    return vector - alpha * (alpha * vector).sum(-1, keepdim=True)


Step = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], Tensor]]


def _iterate_until_done(
    step: Step, inputs: list[Tensor], state: list[Tensor], max_iter: int
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Repeat a step on each text (first axis) until it reports that the text is done.

    A finished text keeps its final state. A text is abandoned when its state is no
    longer finite. When half of the active texts have ended, the others are gathered
    into a smaller batch, so that the ended ones cost nothing.

    Returns:
        Final state, number of iterations, and whether each text was done.
    """
    texts = len(inputs[0])
    iterations = torch.zeros(texts, dtype=torch.long, device=inputs[0].device)
    converged = torch.zeros_like(iterations, dtype=torch.bool)
    active = torch.arange(texts, device=inputs[0].device)
    running = torch.ones_like(converged)
    final = state
    for _ in range(max_iter):
        new, done = step(inputs, state)
        state = [
            torch.where(running.view(-1, *[1] * (now.ndim - 1)), now, before)
            for now, before in zip(new, state, strict=True)
        ]
        iterations[active] += running
        converged[active] |= running & done
        finite = state[-1].detach().isfinite()
        diverged = ~(finite if finite.ndim == 1 else finite.all(-1))
        running = running & ~done & ~diverged
        remaining = int(running.sum())
        if remaining == 0:
            break
        if 2 * remaining <= len(active):
            final = _replace_rows(final, active, state)
            keep = running.nonzero().squeeze(-1)
            active, running = active[keep], running[keep]
            inputs = [value.index_select(0, keep) for value in inputs]
            state = [value.index_select(0, keep) for value in state]
    return _replace_rows(final, active, state), iterations, converged


def _replace_rows(
    tensors: list[Tensor], rows: Tensor, values: list[Tensor]
) -> list[Tensor]:
    """Return the tensors with some rows replaced, differentiably."""
    if len(rows) == len(tensors[0]):
        return values
    return [
        old.index_copy(0, rows, new) for old, new in zip(tensors, values, strict=True)
    ]
