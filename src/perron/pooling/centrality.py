"""Centrality attention: each word is weighted by its eigenvector centrality."""

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
from perron.registry import options_of
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
    """Pool each word together with the words that its importance flows in from.

        F_ij = A_ij α_j,    m_i = Σ_j F_ij h_j / Σ_j F_ij,
        h̄ = Σ_i α_i tanh(U h_i + V m_i)

    F_ij is the importance that goes from j to i. What flows into a word is its own
    weight, Σ_j F_ij = α_i, because Aα = α. So m_i is the mean word that a walker now at
    i came from. We divide by the sum and not by α_i: m is then a mean whatever the
    length of α, also where a power method has not quite converged. U and V are shared
    by all heads.
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
        """Return the vectors of all num_heads, concatenated; zeros without words.

        Edges and weights must be finite, and weights zero where there is no word.
        """
        both = tokens.to_padded(project_pair(self.own, self.source, tokens.states))
        own, sources = both.unsqueeze(1).chunk(2, -1)  # (B, 1, N, D)
        flow = edges * weights.unsqueeze(-2)
        # Nothing flows into padding, and next to nothing into a word of next to no
        # weight: there the mean may be too short, but no slope of it is infinite.
        least = torch.finfo(flow.dtype).tiny ** 0.5
        total = flow.sum(-1, keepdim=True).clamp(min=least)
        values = (own + flow @ sources / total).tanh()  # (B, H, N, D)
        return (weights.unsqueeze(-2) @ values).squeeze(-2).flatten(1)


@dataclass(frozen=True)
class PowerIteration:
    """How `CentralityPool` uses the paper's power method; see `power_iteration`."""

    tol: float | None = None
    max_iter: int = 200
    gradient: Gradient = "reverse"
    grad_iter: int = 20

    def __post_init__(self) -> None:
        check_settings(self.tol, self.max_iter, self.gradient, self.grad_iter)


def read_solver(
    given: str | Mapping[str, Any] | PowerIteration,
) -> Literal["direct"] | PowerIteration:
    """Return the solver for its name, or for a table of its settings.

    ``"power"`` is the power method with its defaults, ``{"max_iter": 50}`` and
    ``{"name": "power", "max_iter": 50}`` the same with settings.
    """
    if isinstance(given, PowerIteration):
        return given
    options = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = options.pop("name", "power")
    if name not in ("direct", "power"):
        raise ValueError(
            'solver must be "direct", "power", a table of the settings of the power '
            f"method, or PowerIteration(...), got {given!r}."
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
    """Weigh each word by its eigenvector centrality in a learned graph of the text.

        A_ij = softmax_i s(h_i, h_j),    A α = α,    h̄ = Σ_i α_i h_i

    Gong et al. (2019). A word matters as much as the words that point at it matter.
    Several heads have a graph each; their vectors are concatenated.

    Where A_ij hardly depends on j, this is self-attention. Four options may help the
    graph to be more: ``source_init_gain`` lets the network see j better at first,
    ``edge_dropout`` trains it without some of the edges, ``max_relative_distance`` tells it how far
    apart two words stand, and ``value="incoming"`` tells with each word where its weight
    came from, h̄ = Σ_i α_i tanh(U h_i + V m_i) with m_i = Σ_j A_ij α_j h_j / α_i.
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
        """Set up the graph and its solver.

        Args:
            embed_dim: Width of the states.
            hidden_dim: Units of the network that scores a pair, in each head (shared by
                all heads if connectivity is ``"query"`` or ``"low_rank"``).
            num_heads: Number of graphs.
            connectivity: How pairs are scored. ``"mlp"`` is the paper's network,
                ``"bilinear"`` a scaled dot product. ``"query"`` makes this
                self-attention. The time and memory of ``"low_rank"`` grow with the
                words and not with the pairs of words. Also the name of a `Connectivity`
                of your own, a table with its name and its options, or a module that
                returns scores (B, H, N, N) for `TokenBatch`.
            solver: ``"direct"``, which is exact; ``"power"``, the paper's power method;
                or its settings, as `PowerIteration` or as a table.
            norm: ``"sum"`` for weights that sum to one, ``"l2"`` for unit length.
            activation: ``"tanh"`` or ``"relu"``, of the network that scores a pair;
                ``"bilinear"`` has none.
            rank: Rank of the graph if connectivity is ``"low_rank"``.
            source_init_gain: Factor on the initial weights of the layer that sees the
                source j of an edge; ``"query"`` has no such layer.
            edge_dropout: Probability with which, in training, an edge is weakened to a
                hundredth; not for ``"low_rank"``.
            value: ``"states"``, or ``"incoming"`` for what the class says of it; not for
                ``"low_rank"``.
            max_relative_distance: Up to this many places apart, each distance and direction between two
                words has a learned share in the score of their edge; farther ones
                share the last. At 0 the graph does not know the order of words. Not for
                ``"low_rank"``.
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
                f"source_scale must be positive and finite, got {source_init_gain}."
            )
        self.hidden_dim = hidden_dim
        self.num_heads = num_heads
        self.solver = read_solver(solver)
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
        self.connectivity_name = _name(connectivity)
        self._check_connectivity(isinstance(connectivity, nn.Module))
        factory: Any = {"device": device, "dtype": dtype}
        self.distance = (
            DistanceBias(num_heads, max_relative_distance, **factory)
            if max_relative_distance > 0
            else None
        )
        self.flow = IncomingValue(embed_dim, **factory) if value == "incoming" else None

    def _check_connectivity(self, is_given: bool) -> None:
        """Refuse options that would be without effect on this connectivity."""
        module, name = self.connectivity, self.connectivity_name
        used = () if is_given else options_of(type(module))
        num_heads = getattr(
            module,
            "num_heads",
            self.num_heads if is_given or "num_heads" in used else 1,
        )
        if num_heads != self.num_heads:
            raise ValueError(
                f"num_heads must be {num_heads}, as in connectivity {name!r}, "
                f"got {self.num_heads}."
            )
        if "source_init_gain" not in used and self.source_init_gain != 1:
            raise ValueError(
                f"source_scale must be 1 if connectivity is {name!r}, which does not "
                f"have it, got {self.source_init_gain}."
            )
        if not getattr(module, "is_factored", False):
            return
        for option, default in (
            ("edge_dropout", 0),
            ("value", "states"),
            ("max_relative_distance", 0),
        ):
            value = getattr(self, option)
            if value != default:
                raise ValueError(
                    f"{option} must be {default!r} if connectivity is {name!r}, which "
                    f"has no matrix of edges, got {value!r}."
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
        of_words = tokens.to_ragged(weights.mT)
        if self.flow is None:
            pooled = weighted_sum(of_words, tokens)._replace(solver_info=info)
        else:
            vector = self.flow(tokens, edges, weights)
            pooled = PoolingOutput(vector, solver_info=info, head_weights=of_words)
        if not need_edges:
            return pooled
        return pooled._replace(head_edges=edges.masked_fill(~mask.unsqueeze(-2), 0))

    def _scores(self, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        scores: Tensor = self.connectivity(tokens)
        texts, n = tokens.mask.shape
        expected = (texts, self.num_heads, n, n)
        if not torch.compiler.is_compiling() and scores.shape != expected:
            raise ValueError(
                f"connectivity must return scores of shape (B, H, N, N) = {expected}, "
                f"got {tuple(scores.shape)} from {self.connectivity_name!r}."
            )
        masked = getattr(self.connectivity, "masks_scores", False)
        if self.distance is not None:
            scores, masked = self.distance(scores, tokens.mask), False
        return scores if masked else mask_scores(scores, tokens.mask)

    def _aggregate_factored(
        self, tokens: TokenBatch, need_edges: bool
    ) -> PoolingOutput:
        connectivity: Any = self.connectivity
        topics = connectivity.factors(tokens)
        gamma, info = self._solve(connectivity.chain(topics, tokens), None, "sum")
        weights = connectivity.weights(topics, gamma, tokens)
        if self.norm == "l2":
            square = tokens.sum(weights.square())
            length = torch.where(square == 0, 1, square).sqrt()
            weights = weights / tokens.broadcast(length)
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
        shown = f", rank={self.rank}" if hasattr(self.connectivity, "rank") else ""
        defaults = options_of(CentralityPool)
        for name in (
            "source_init_gain",
            "edge_dropout",
            "value",
            "max_relative_distance",
        ):
            value = getattr(self, name)
            if value != defaults[name].default:
                shown += f", {name}={value!r}"
        return (
            f"{self.embed_dim}, hidden_dim={self.hidden_dim}, num_heads={self.num_heads}, "
            f"connectivity={self.connectivity_name!r}, solver={self.solver!r}, "
            f"norm={self.norm!r}, activation={self.activation!r}{shown}"
        )


def _name(connectivity: str | Mapping[str, Any] | nn.Module) -> str:
    if isinstance(connectivity, nn.Module):
        return type(connectivity).__name__
    return connectivity if isinstance(connectivity, str) else str(connectivity["name"])
