"""The power method of the paper (its Algorithm 1), with the paper's three gradients."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd import Function

from perron.solver.direct import Graphs, Norm, check_graphs, normalize

Gradient = Literal["unrolled", "truncated", "reverse"]


class SolverInfo(NamedTuple):
    """How an iteration ended, a value for each text.

    ``converged`` says that the stopping rule was met, which is not the same as being
    right: a nearly disconnected graph can meet it far from its Perron vector.
    """

    iterations: Int[Tensor, "*batch"]
    residual: Float[Tensor, "*batch"]  # ‖Aα - θα‖₂ / |θ|
    converged: Bool[Tensor, "*batch"]


class PowerIterationResult(NamedTuple):
    """The dominant eigenvector and eigenvalue, and how they were reached."""

    vector: Float[Tensor, "*batch n"]
    eigenvalue: Float[Tensor, "*batch"]
    info: SolverInfo


def default_tolerance(dtype: torch.dtype) -> float:
    """Return the ε used when none is given: 1e-10 (the paper's) in float64, else 1e-6.

    A residual of 1e-10 cannot be reached in float32, where it would burn all steps.
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

    A text that is done keeps its α and stops costing. The gradients, with γ = ∂ℓ/∂α:

    - ``"unrolled"`` records every step and one more, whose α is returned. Memory grows
      with the steps. The error is about \|λ₂/λ₁\|^steps, so that a start at the answer
      spoils it. This one and the next can be differentiated twice.
    - ``"truncated"`` records nothing until done, then ``grad_iter`` steps, whose α is
      returned. The error is about \|λ₂/λ₁\|^grad_iter.
    - ``"reverse"`` records nothing: w = Σ_k (Jᵀ)^k γ with J = (A - ααᵀA)/λ, summed
      until a term is below ε‖w‖ or ``max_iter`` are added, and
      ∂ℓ/∂A = (I - ααᵀ) w αᵀ/λ. Memory does not depend on the steps.

    Args:
        edges: (..., N, N), positive between words in use; columns need not sum to one.
        mask: True (or 1) on words in use, (..., N). All others get 0 and influence
            nothing.
        tol: ε; `default_tolerance` of the working dtype if not given.
        max_iter: when to give up; `SolverInfo.converged` tells.
        gradient: which of the three.
        grad_iter: recorded steps of ``"truncated"``.
        norm: ``"l2"`` as in the paper, or ``"sum"`` for entries that sum to one.
        start: y to begin with: uniform if not given, random positive from a generator,
            or a positive tensor (..., N).
    """
    graphs = check_graphs(edges, mask, norm)
    check_settings(tol, max_iter, gradient, grad_iter)
    tol = default_tolerance(graphs.edges.dtype) if tol is None else tol
    words = graphs.words()
    pairs = words.unsqueeze(-1) & words.unsqueeze(-2)
    A, scale = _to_order_one(graphs.edges.masked_fill(~pairs, 0))
    y = _start(start, graphs)
    if gradient == "unrolled":
        vector, info = _iterate(A, y, tol, max_iter)
        vector = normalize(_times(A, vector), "l2")
    else:
        with torch.no_grad():
            vector, info = _iterate(A, y, tol, max_iter)
        if gradient == "truncated":
            for _ in range(grad_iter):
                vector = normalize(_times(A, vector), "l2")
        else:
            vector = _ReverseSum.apply(A, vector, tol, max_iter)
    eigenvalue = (vector * _times(A, vector)).sum(-1) * scale
    if norm == "sum":
        vector = normalize(vector, norm)
    batch = graphs.shape[:-1]
    return PowerIterationResult(
        vector.to(graphs.dtype).reshape(graphs.shape),
        eigenvalue.to(graphs.dtype).reshape(batch),
        SolverInfo(*(value.reshape(batch) for value in info)),
    )


def _to_order_one(A: Tensor) -> tuple[Tensor, Tensor]:
    """Divide by a power of two, so that squares stay in range; return that too."""
    if A.numel() == 0:
        return A, A.new_ones(len(A))
    largest = A.detach().abs().amax((-2, -1))
    usable = (largest > 0) & largest.isfinite()
    exponent = torch.frexp(torch.where(usable, largest, 1)).exponent
    half = torch.ldexp(torch.ones_like(largest), exponent // 2)
    rest = torch.ldexp(torch.ones_like(largest), exponent - exponent // 2)
    return A / half[:, None, None] / rest[:, None, None], half * rest


def check_settings(
    tol: float | None, max_iter: int, gradient: str, grad_iter: int
) -> None:
    """Refuse settings that the power method does not take."""
    if gradient not in get_args(Gradient):
        options = ", ".join(f'"{name}"' for name in get_args(Gradient))
        raise ValueError(f"gradient must be one of {options}, but came as {gradient!r}")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, but came as {max_iter}")
    if grad_iter < 1:
        raise ValueError(f"grad_iter must be at least 1, but came as {grad_iter}")
    if tol is not None and not tol >= 0:
        raise ValueError(f"tol must not be negative, but came as {tol}")


def _start(start: Tensor | torch.Generator | None, graphs: Graphs) -> Tensor:
    mask, dtype = graphs.words(), graphs.edges.dtype
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
            f"start must have shape {tuple(graphs.shape)}, but came as "
            f"{tuple(start.shape)}"
        ) from error
    if not (y > 0)[mask].all():
        raise ValueError("start must be positive on every word in use")
    return y.masked_fill(~mask, 0)


def _times(A: Tensor, vector: Tensor) -> Tensor:
    return (A @ vector.unsqueeze(-1)).squeeze(-1)


def _iterate(
    A: Float[Tensor, "b n n"], y: Float[Tensor, "b n"], tol: float, max_iter: int
) -> tuple[Tensor, SolverInfo]:
    """Run Algorithm 1 on each text until its rule is met."""

    def step(given: list[Tensor], state: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        (A,) = given
        _, y, _ = state
        alpha = normalize(y, "l2")
        y = _times(A, alpha)
        theta = (alpha * y).sum(-1)
        error = torch.linalg.vector_norm(y - theta.unsqueeze(-1) * alpha, dim=-1)
        size = theta.abs()
        residual = error / torch.where(size == 0, 1, size)
        return [alpha, y, residual], error <= tol * size

    state = [torch.zeros_like(y), y, A.new_zeros(len(A))]
    (alpha, _, residual), steps, converged = _until_done(step, [A], state, max_iter)
    lost = ~residual.detach().isfinite()
    alpha = alpha.masked_fill(lost.unsqueeze(-1), torch.nan)
    return alpha, SolverInfo(steps, residual.detach(), converged)


class _ReverseSum(Function):
    r"""α(A), unit length, with the paper's reverse iteration as its gradient.

    Forward    the converged α, as it is
    Backward   given γ = ∂ℓ/∂α:  w = Σ_{k=0}^{N} (Jᵀ)^k γ,  J = (A - ααᵀA)/λ
               ∂ℓ/∂A = (I - ααᵀ) w αᵀ / λ
    Because    α = f(α, A) with f = Aα/‖Aα‖ has ∂f/∂α = J at the fixed point, and
               Σ (Jᵀ)^k = (I - Jᵀ)⁻¹ as the largest eigenvalue of J is |λ₂/λ₁| < 1
    Domain     every positive A; exact in the limit of converged α and infinite N
    Twice      refused
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
        slope = _ReverseGradient.apply(A, alpha, grad, ctx.tol, ctx.max_iter)
        return slope, None, None, None


class _ReverseGradient(Function):
    """The backward of `_ReverseSum`, which has none itself."""

    @staticmethod
    def forward(
        A: Tensor, alpha: Tensor, grad: Tensor, tol: float, max_iter: int
    ) -> Tensor:
        eigenvalue = (alpha * _times(A, alpha)).sum(-1, keepdim=True)
        eigenvalue = torch.where(eigenvalue == 0, 1, eigenvalue)  # a text with no words

        def add_term(
            given: list[Tensor], state: list[Tensor]
        ) -> tuple[list[Tensor], Tensor]:
            A, alpha, eigenvalue = given
            term, w = state
            term = _times(A.mT, _across(alpha, term)) / eigenvalue  # Jᵀ term
            w = w + term
            size = torch.linalg.vector_norm(term, dim=-1)
            return [term, w], size <= tol * torch.linalg.vector_norm(w, dim=-1)

        given, state = [A, alpha, eigenvalue], [grad, grad]
        (_, w), _, _ = _until_done(add_term, given, state, max_iter)
        w = _across(alpha, w) / eigenvalue
        return w.unsqueeze(-1) * alpha.unsqueeze(-2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            'power_iteration(gradient="reverse") can be differentiated once, not twice. '
            'For second derivatives use gradient="unrolled".'
        )


def _across(alpha: Tensor, vector: Tensor) -> Tensor:
    """(I - ααᵀ) vector, for α of unit length."""
    return vector - alpha * (alpha * vector).sum(-1, keepdim=True)


Step = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], Tensor]]


def _until_done(
    step: Step, given: list[Tensor], state: list[Tensor], max_iter: int
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Repeat a step on each text (first axis) until it says that the text is done.

    A finished text keeps the state it finished with, and a text whose state is not
    finite any more is given up. When half of the texts at work have ended, the others
    are moved together, so that the ended ones cost nothing.

    Returns:
        The final state, the steps taken, and whether the text was done.
    """
    texts = len(given[0])
    steps = torch.zeros(texts, dtype=torch.long, device=given[0].device)
    converged = torch.zeros_like(steps, dtype=torch.bool)
    at_work = torch.arange(texts, device=given[0].device)
    running = torch.ones_like(converged)
    final = state
    for _ in range(max_iter):
        new, done = step(given, state)
        state = [
            torch.where(running.view(-1, *[1] * (now.ndim - 1)), now, before)
            for now, before in zip(new, state, strict=True)
        ]
        steps[at_work] += running
        converged[at_work] |= running & done
        finite = state[-1].detach().isfinite()
        lost = ~(finite if finite.ndim == 1 else finite.all(-1))
        running = running & ~done & ~lost
        left = int(running.sum())
        if left == 0:
            break
        if 2 * left <= len(at_work):
            final = _put(final, at_work, state)
            keep = running.nonzero().squeeze(-1)
            at_work, running = at_work[keep], running[keep]
            given = [value.index_select(0, keep) for value in given]
            state = [value.index_select(0, keep) for value in state]
    return _put(final, at_work, state), steps, converged


def _put(into: list[Tensor], rows: Tensor, values: list[Tensor]) -> list[Tensor]:
    """Return ``into`` with these rows replaced, differentiably."""
    if len(rows) == len(into[0]):
        return values
    return [old.index_copy(0, rows, new) for old, new in zip(into, values, strict=True)]
