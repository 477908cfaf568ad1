"""Centrality attention: pooling by eigenvector centrality in a learned graph."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from perron.arguments import Device, check_at_least, check_choice, check_fraction
from perron.kernels.pair_scores_torch import ACTIVATIONS
from perron.pooling.base import Aggregator, PoolingOutput, project_pair, weighted_sum
from perron.pooling.connectivity import (
    Activation,
    DistanceBias,
    build_connectivity,
    dropout_edges,
    mask_scores,
)
from perron.pooling.pair_scores import column_softmax
from perron.pooling.tokens import TokenBatch
from perron.registry import component_options
from perron.solver import (
    Gradient,
    Norm,
    SolverInfo,
    power_iteration,
    stationary_distribution,
)
from perron.solver.direct import check_norm
from perron.solver.power import check_settings


class IncomingValue(nn.Module):
    """Pool each token together with the mean of its sources in the graph.

        F_ij = A_ij α_j,    m_i = Σ_j F_ij h_j / Σ_j F_ij,
        h̄ = Σ_i α_i tanh(U h_i + V m_i)

    F_ij is the importance that flows from j to i. The total flow into a token equals
    its weight, Σ_j F_ij = α_i, because Aα = α. Hence m_i is the expected state of the
    previous token of a random walk that is now at i. Dividing by the sum instead of α_i
    makes m a mean even if α is not normalized or the power iteration has not fully
    converged. U and V are shared by all heads.
    """

    def __init__(
        self, embed_dim: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.own = nn.Linear(embed_dim, embed_dim, device=device, dtype=dtype)  # U
        self.source = nn.Linear(
            embed_dim, embed_dim, bias=False, device=device, dtype=dtype
        )  # V

    def reset_parameters(self) -> None:
        self.own.reset_parameters()
        self.source.reset_parameters()

    def forward(
        self,
        tokens: TokenBatch,
        edges: Float[Tensor, "b h n n"],
        weights: Float[Tensor, "b h n"],
    ) -> Float[Tensor, "b hd"]:
        """Return the concatenated vectors of all heads; zeros for an empty text.

        Edges and weights must be finite, and the weights of padding must be zero.
        """
        pair = tokens.to_padded(project_pair(self.own, self.source, tokens.states))
        own, sources = pair.unsqueeze(1).chunk(2, -1)  # (B, 1, N, D)
        flow = edges * weights.unsqueeze(-2)
        # The flow into padding is zero, and into a token with almost no weight it is
        # almost zero. Clamping makes the mean too small there, but keeps its gradient
        # finite.
        min_total = torch.finfo(flow.dtype).tiny ** 0.5
        total = flow.sum(-1, keepdim=True).clamp(min=min_total)
        values = (own + flow @ sources / total).tanh()  # (B, H, N, D)
        return (weights.unsqueeze(-2) @ values).squeeze(-2).flatten(1)


@dataclass(frozen=True)
class PowerIteration:
    """Settings of the power iteration in `CentralityPool`; see `power_iteration`."""

    tol: float | None = None
    max_iter: int = 200
    gradient: Gradient = "reverse"
    grad_iter: int = 20

    def __post_init__(self) -> None:
        check_settings(self.tol, self.max_iter, self.gradient, self.grad_iter)


def resolve_solver(
    solver: str | Mapping[str, Any] | PowerIteration,
) -> Literal["direct"] | PowerIteration:
    """Return the solver for a name or a table of settings.

    ``"power"`` is the power iteration with default settings. ``{"max_iter": 50}`` and
    ``{"name": "power", "max_iter": 50}`` override a setting.
    """
    if isinstance(solver, PowerIteration):
        return solver
    options = dict(solver) if isinstance(solver, Mapping) else {"name": solver}
    name = options.pop("name", "power")
    if name not in ("direct", "power"):
        raise ValueError(
            'solver must be "direct", "power", a table of settings of the power '
            f"iteration, or PowerIteration(...), got {solver!r}."
        )
    known = [field.name for field in fields(PowerIteration)] if name == "power" else []
    for option in options:
        if option not in known:
            raise ValueError(
                f"solver has no option {option!r}. Options of {name!r}: "
                f"{', '.join(known) or 'none'}."
            )
    return "direct" if name == "direct" else PowerIteration(**options)


class CentralityPool(Aggregator):
    """Weight each token by its eigenvector centrality in a learned graph of the text.

        A_ij = softmax_i s(h_i, h_j),    A α = α,    h̄ = Σ_i α_i h_i

    Gong et al. (2019). A token is as important as the tokens that point to it. Each
    head has its own graph, and the vectors of all heads are concatenated.

    If A_ij hardly depends on j, this reduces to self-attention. Four options may help
    the model make more use of the graph. ``source_init_gain`` gives j more influence
    at initialization. ``edge_dropout`` weakens random edges during training.
    ``max_relative_distance`` adds a bias for the distance between two tokens.
    ``value="incoming"`` combines each token with the sources of its weight,
    h̄ = Σ_i α_i tanh(U h_i + V m_i) with m_i = Σ_j A_ij α_j h_j / α_i.
    """

    recipe_name = "centrality"
    has_graph = True
    heads_option = "num_heads"

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int = 50,
        num_heads: int = 1,
        connectivity: str | Mapping[str, Any] | nn.Module = "mlp",
        solver: str | Mapping[str, Any] | PowerIteration = "direct",
        norm: Norm = "sum",
        activation: Activation = "tanh",
        rank: int = 32,
        source_init_gain: float = 1.0,
        edge_dropout: float = 0.0,
        value: Literal["states", "incoming"] = "states",
        max_relative_distance: int = 0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Initialize the connectivity and the solver.

        Args:
            embed_dim: Dimension of the states.
            hidden_dim: Number of hidden units per head of the network that scores pairs
                (shared by all heads if connectivity is ``"query"`` or ``"low_rank"``).
            num_heads: Number of heads, each with its own graph.
            connectivity: Function that scores pairs. ``"mlp"`` is the paper's network,
                ``"bilinear"`` a scaled dot product, and ``"query"`` is equivalent to
                self-attention. ``"low_rank"`` takes time and memory linear in the
                number of tokens. Alternatively, the name of a registered
                `Connectivity`, a table with its name and options, or a module that maps
                a `TokenBatch` to scores (B, H, N, N).
            solver: ``"direct"``, which is exact, or ``"power"``, the paper's power
                iteration. Pass a `PowerIteration` or a table to change its settings.
            norm: ``"sum"`` for weights that sum to one, ``"l2"`` for unit length.
            activation: Activation of the network that scores pairs, ``"tanh"`` or
                ``"relu"``. Unused by ``"bilinear"``.
            rank: Rank of the graph if connectivity is ``"low_rank"``.
            source_init_gain: Factor on the initial weights of the layer applied to the
                source j of an edge. Not supported by ``"query"``.
            edge_dropout: Probability of scaling an edge by 0.01 during training. Not
                supported by ``"low_rank"``.
            value: ``"states"`` to pool the states, or ``"incoming"`` to combine each
                token with the sources of its weight, as described above. Not supported
                by ``"low_rank"``.
            max_relative_distance: Largest relative distance with its own learned bias
                on the edge score; larger distances are clipped to it. With 0, there is
                no bias, and the graph does not depend on the order of the tokens. Not
                supported by ``"low_rank"``.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(embed_dim)
        check_at_least(1, hidden_dim=hidden_dim, num_heads=num_heads, rank=rank)
        check_at_least(0, max_relative_distance=max_relative_distance)
        check_fraction(edge_dropout=edge_dropout)
        check_choice(ACTIVATIONS, activation=activation)
        check_choice(("states", "incoming"), value=value)
        check_norm(norm)
        if not 0 < source_init_gain < math.inf:
            raise ValueError(
                f"source_init_gain must be positive and finite, got {source_init_gain}."
            )
        self.hidden_dim = hidden_dim
        self.num_heads = num_heads
        self.solver = resolve_solver(solver)
        self.norm = norm
        self.activation = activation
        self.rank = rank
        self.source_init_gain = source_init_gain
        self.edge_dropout = edge_dropout
        self.value = value
        self.max_relative_distance = max_relative_distance
        self.out_dim = embed_dim * num_heads
        shared = {
            "num_heads": num_heads,
            "hidden_dim": hidden_dim,
            "activation": activation,
            "rank": rank,
            "source_init_gain": source_init_gain,
        }
        self.connectivity = build_connectivity(
            connectivity, embed_dim, shared, device, dtype
        )
        self.connectivity_name = _connectivity_name(connectivity)
        self._check_connectivity(isinstance(connectivity, nn.Module))
        factory: Any = {"device": device, "dtype": dtype}
        self.distance = (
            DistanceBias(num_heads, max_relative_distance, **factory)
            if max_relative_distance > 0
            else None
        )
        self.flow = IncomingValue(embed_dim, **factory) if value == "incoming" else None

    def _check_connectivity(self, is_module: bool) -> None:
        """Raise ValueError for options that the connectivity does not support."""
        module, name = self.connectivity, self.connectivity_name
        options = () if is_module else component_options(type(module))
        default = self.num_heads if is_module or "num_heads" in options else 1
        num_heads = getattr(module, "num_heads", default)
        if num_heads != self.num_heads:
            raise ValueError(
                f"num_heads must be {num_heads}, as in connectivity {name!r}, "
                f"got {self.num_heads}."
            )
        if "source_init_gain" not in options and self.source_init_gain != 1:
            raise ValueError(
                f"source_init_gain must be 1 if connectivity is {name!r}, which does "
                f"not support it, got {self.source_init_gain}."
            )
        default_rank = component_options(type(self))["rank"].default
        if "rank" not in options and self.rank != default_rank:
            raise ValueError(
                f'rank must not be set unless connectivity is "low_rank", got rank '
                f"{self.rank} for connectivity {name!r}. Set "
                'connectivity="low_rank", or remove rank.'
            )
        if not getattr(module, "is_factored", False):
            return
        for option, neutral in (
            ("edge_dropout", 0),
            ("value", "states"),
            ("max_relative_distance", 0),
        ):
            value = getattr(self, option)
            if value != neutral:
                raise ValueError(
                    f"{option} must be {neutral!r} if connectivity is {name!r}, which "
                    f"never builds the edge matrix, got {value!r}."
                )

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        if getattr(self.connectivity, "is_factored", False):
            return self._aggregate_factored(tokens, need_edges)
        mask = tokens.mask.unsqueeze(1)
        scores = self._scores(tokens)
        edges = column_softmax(scores, tokens.mask)  # (B, H, N, N)
        if self.training and self.edge_dropout > 0:
            edges = dropout_edges(edges, tokens.mask, self.edge_dropout)
        weights, info = self._solve(edges, mask, self.norm)
        token_weights = tokens.to_ragged(weights.mT)
        if self.flow is None:
            output = weighted_sum(token_weights, tokens)._replace(solver_info=info)
        else:
            vector = self.flow(tokens, edges, weights)
            output = PoolingOutput(vector, solver_info=info, head_weights=token_weights)
        if not need_edges:
            return output
        return output._replace(head_edges=edges.masked_fill(~mask.unsqueeze(-2), 0))

    def _scores(self, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        scores: Tensor = self.connectivity(tokens)
        texts, n = tokens.mask.shape
        expected = (texts, self.num_heads, n, n)
        if not torch.compiler.is_compiling() and scores.shape != expected:
            raise ValueError(
                f"connectivity must return scores of shape (B, H, N, N) = {expected}, "
                f"got {tuple(scores.shape)} from {self.connectivity_name!r}."
            )
        is_masked = getattr(self.connectivity, "masks_scores", False)
        if self.distance is not None:
            scores, is_masked = self.distance(scores, tokens.mask), False
        return scores if is_masked else mask_scores(scores, tokens.mask)

    def _aggregate_factored(
        self, tokens: TokenBatch, need_edges: bool
    ) -> PoolingOutput:
        connectivity: Any = self.connectivity
        topics = connectivity.factors(tokens)
        gamma, info = self._solve(connectivity.chain(topics, tokens), None, "sum")
        weights = connectivity.weights(topics, gamma, tokens)
        if self.norm == "l2":
            square = tokens.sum(weights.square())
            l2_norm = torch.where(square == 0, 1, square).sqrt()
            weights = weights / tokens.broadcast(l2_norm)
        edges = connectivity.edges(topics, tokens) if need_edges else None
        return weighted_sum(weights, tokens)._replace(
            solver_info=info, head_edges=edges
        )

    def _solve(
        self,
        edges: Float[Tensor, "b h n n"],
        mask: Bool[Tensor, "b 1 n"] | None,
        norm: Norm,
    ) -> tuple[Float[Tensor, "b h n"], SolverInfo | None]:
        if isinstance(self.solver, PowerIteration):
            result = power_iteration(
                edges,
                mask,
                tol=self.solver.tol,
                max_iter=self.solver.max_iter,
                gradient=self.solver.gradient,
                grad_iter=self.solver.grad_iter,
                norm=norm,
            )
            return result.vector, result.info
        return stationary_distribution(edges, mask, norm=norm), None

    def extra_repr(self) -> str:
        extra = f", rank={self.rank}" if hasattr(self.connectivity, "rank") else ""
        defaults = component_options(CentralityPool)
        for name in (
            "source_init_gain",
            "edge_dropout",
            "value",
            "max_relative_distance",
        ):
            value = getattr(self, name)
            if value != defaults[name].default:
                extra += f", {name}={value!r}"
        return (
            f"{self.embed_dim}, hidden_dim={self.hidden_dim}, "
            f"num_heads={self.num_heads}, connectivity={self.connectivity_name!r}, "
            f"solver={self.solver!r}, norm={self.norm!r}, "
            f"activation={self.activation!r}{extra}"
        )


def _connectivity_name(connectivity: str | Mapping[str, Any] | nn.Module) -> str:
    if isinstance(connectivity, nn.Module):
        return type(connectivity).__name__
    return connectivity if isinstance(connectivity, str) else str(connectivity["name"])
