"""The exact Perron vector of a graph, without iteration."""

from jaxtyping import Float
from torch import Tensor

from perron.solver.checks import Norm, check_graphs, normalise
from perron.solver.ops import solve


def stationary(
    edges: Tensor, mask: Tensor | None = None, *, norm: Norm = "sum"
) -> Float[Tensor, "*batch n"]:
    r"""Return the share of time that a random walker spends on each word.

        K(A) = diag(1ᵀA) - A,    K α = 0,    α > 0,    1ᵀα = 1

    For edges whose columns sum to one this is the Perron vector, A α = α. The columns
    need not sum to one, though, and the diagonal plays no part: ``edges[..., i, j]`` is
    the rate of walking from j to i. α is found by state reduction (Grassmann, Taksar
    and Heyman, 1985), which never subtracts, so that every entry is right to a few
    units of rounding, however lopsided the graph; and so is the gradient

        ∂ℓ/∂A_ij = (u_i - u_j) α_j,    Kᵀu = γ - (γᵀα)1,    γ = ∂ℓ/∂α,

    for which two sweeps through the same factors suffice. It may be taken once; a
    second derivative is refused. `docs/mathematics.md` has the derivation.

    Args:
        edges: (..., N, N) rates, positive off the diagonal between words in use. A zero
            counts as a vanishingly weak edge. A negative, infinite or undefined rate
            makes the weights of its own text NaN. A slope that the dtype cannot hold
            (in float32, along an edge weaker than some 1e-38) is cut to what it can.
        mask: (..., N), True on words in use, any pattern; batch axes that it lacks are
            repeated. All others get weight 0 and
            influence nothing, whatever their edges hold. A text with no words gets
            weights 0 and gradient 0.
        norm: ``"sum"`` for weights that sum to one, ``"l2"`` for unit length.

    Returns:
        (..., N) weights. Half precision comes in and goes out; between, it is float32.
    """
    graphs = check_graphs(edges, mask, norm)
    weights = solve(graphs)
    if norm == "l2":
        weights = normalise(weights, norm)
    if weights.dtype != graphs.dtype:
        weights = weights.to(graphs.dtype)
    return weights if edges.ndim == 3 else weights.view(graphs.shape)
