"""Centrality attention: each word is weighted by its eigenvector centrality."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from perron.pooling.base import Aggregator, Pooled, project_both, weighted_sum
from perron.pooling.connectivity import (
    Activation,
    BilinearConnectivity,
    Connectivity,
    DistanceBias,
    LowRankConnectivity,
    MLPConnectivity,
    QueryConnectivity,
    check_activation,
    check_options,
    weaken_some,
)
from perron.pooling.pair_scores import column_softmax
from perron.pooling.words import Words
from perron.solver import Gradient, Norm, SolverInfo, power_method, stationary
from perron.solver.checks import check_norm
from perron.solver.power import check_settings


class FlowValues(nn.Module):
    """Pool each word together with the words that its importance flows in from.

        F_ij = A_ij α_j,    m_i = Σ_j F_ij h_j / Σ_j F_ij,
        h̄ = Σ_i α_i tanh(U h_i + V m_i)

    F_ij is the importance that goes from j to i. What flows into a word is its own
    weight, Σ_j F_ij = α_i, because Aα = α. So m_i is the mean word that a walker now at
    i came from. We divide by the sum and not by α_i: m is then a mean whatever the
    length of α, also where a power method has not quite converged. U and V are shared
    by all heads.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.own = nn.Linear(dim, dim)  # U
        self.source = nn.Linear(dim, dim, bias=False)  # V

    def reset_parameters(self) -> None:
        self.own.reset_parameters()
        self.source.reset_parameters()

    def forward(
        self,
        words: Words,
        edges: Float[Tensor, "b h n n"],
        weights: Float[Tensor, "b h n"],
    ) -> Float[Tensor, "b hd"]:
        """Return the vectors of all heads, concatenated; zeros without words.

        Edges and weights must be finite, and weights zero where there is no word.
        """
        both = words.padded(project_both(self.own, self.source, words.states))
        own, sources = both.unsqueeze(1).chunk(2, -1)  # (B, 1, N, D)
        flow = edges * weights.unsqueeze(-2)
        # Nothing flows into padding, and next to nothing into a word of next to no
        # weight: there the mean may be too short, but no slope of it is infinite.
        least = torch.finfo(flow.dtype).tiny ** 0.5
        total = flow.sum(-1, keepdim=True).clamp(min=least)
        values = (own + flow @ sources / total).tanh()  # (B, H, N, D)
        return (weights.unsqueeze(-2) @ values).squeeze(-2).flatten(1)


ConnectivityName = Literal["mlp", "bilinear", "query", "low_rank"]


@dataclass(frozen=True)
class PowerSettings:
    """How `CentralityPool` uses the paper's power method; see `power_method`."""

    tol: float | None = None
    max_steps: int = 200
    gradient: Gradient = "reverse"
    grad_steps: int = 20

    def __post_init__(self) -> None:
        check_settings(self.tol, self.max_steps, self.gradient, self.grad_steps)


class CentralityPool(Aggregator):
    """Weigh each word by its eigenvector centrality in a learned graph of the text.

        A_ij = softmax_i s(h_i, h_j),    A α = α,    h̄ = Σ_i α_i h_i

    Gong et al. (2019). A word matters as much as the words that point at it matter.
    Several heads have a graph each; their vectors are concatenated.

    Where A_ij hardly depends on j, this is self-attention. Four options may help the
    graph to be more: ``source_scale`` lets the network see j better at first,
    ``edge_dropout`` trains it without some of the edges, ``reach`` tells it how far
    apart two words stand, and ``values="flow"`` tells with each word where its weight
    came from, h̄ = Σ_i α_i tanh(U h_i + V m_i) with m_i = Σ_j A_ij α_j h_j / α_i.
    """

    def __init__(
        self,
        dim: int,
        hidden: int = 50,
        heads: int = 1,
        connectivity: ConnectivityName = "mlp",
        solver: Literal["direct"] | PowerSettings = "direct",
        norm: Norm = "sum",
        activation: Activation = "tanh",
        rank: int = 32,
        source_scale: float = 1.0,
        edge_dropout: float = 0.0,
        values: Literal["states", "flow"] = "states",
        reach: int = 0,
    ) -> None:
        """Set up the graph and its solver.

        Args:
            dim: width of the states.
            hidden: units of the network that scores a pair, in each head (shared by
                all heads if connectivity is ``"query"`` or ``"low_rank"``).
            heads: how many graphs.
            connectivity: ``"mlp"``, the paper's; ``"bilinear"``, a scaled dot product;
                ``"query"``, which makes this self-attention; ``"low_rank"``, whose time
                and memory grow with the words and not with the pairs of words.
            solver: ``"direct"``, exact; or settings of the paper's power method.
            norm: ``"sum"``, weights that sum to one; ``"l2"``, of unit length.
            activation: ``"tanh"`` or ``"relu"``, of the network that scores a pair;
                ``"bilinear"`` has none.
            rank: of the graph, if connectivity is ``"low_rank"``.
            source_scale: what the initial weights of the layer that sees the source j
                of an edge are multiplied with; ``"query"`` has no such layer.
            edge_dropout: probability with which, in training, an edge is weakened to a
                hundredth; not for ``"low_rank"``.
            values: ``"states"``, or ``"flow"`` for what the class says of it; not for
                ``"low_rank"``.
            reach: up to so many places apart, each distance and direction between two
                words has a learned share in the score of their edge; farther ones
                share the last. 0: the graph does not know the order of words. Not for
                ``"low_rank"``.
        """
        super().__init__(dim)
        if hidden < 1 or heads < 1 or rank < 1:
            raise ValueError(
                "hidden, heads and rank must be at least 1, but came as "
                f"{hidden}, {heads} and {rank}"
            )
        if solver != "direct" and not isinstance(solver, PowerSettings):
            raise ValueError(
                f'solver must be "direct" or PowerSettings(...), but came as {solver!r}'
            )
        check_activation(activation)
        check_norm(norm)
        check_options(connectivity, source_scale, edge_dropout, values, reach)
        self.hidden = hidden
        self.heads = heads
        self.solver = solver
        self.norm = norm
        self.activation = activation
        self.rank = rank
        self.source_scale = source_scale
        self.edge_dropout = edge_dropout
        self.values = values
        self.reach = reach
        self.out_dim = dim * heads
        self.connectivity_name = connectivity
        self.connectivity = self._build(connectivity)
        self.distance = DistanceBias(heads, reach) if reach > 0 else None
        self.flow = FlowValues(dim) if values == "flow" else None

    def _build(self, name: str) -> Connectivity | LowRankConnectivity:
        sizes = self.dim, self.hidden, self.heads
        if name == "mlp":
            return MLPConnectivity(*sizes, self.activation, self.source_scale)
        if name == "bilinear":
            return BilinearConnectivity(*sizes, self.source_scale)
        if name == "query":
            return QueryConnectivity(*sizes, self.activation)
        if name == "low_rank":
            return LowRankConnectivity(
                *sizes, self.activation, self.rank, self.source_scale
            )
        options = ", ".join(f'"{option}"' for option in get_args(ConnectivityName))
        raise ValueError(f"connectivity must be one of {options}, but came as {name!r}")

    def reset_parameters(self) -> None:
        self.connectivity.reset_parameters()
        for part in (self.distance, self.flow):
            if part is not None:
                part.reset_parameters()

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        if isinstance(self.connectivity, LowRankConnectivity):
            return self._aggregate_topics(self.connectivity, words, need_edges)
        mask = words.mask.unsqueeze(1)
        scores = self.connectivity(words)
        if self.distance is not None:
            scores = self.distance(scores, words.mask)
        edges = column_softmax(scores, words.mask)  # (B, H, N, N)
        if self.training and self.edge_dropout > 0:
            edges = weaken_some(edges, words.mask, self.edge_dropout)
        weights, info = self._solve(edges, mask, self.norm)
        of_words = words.packed(weights.mT)
        if self.flow is None:
            pooled = weighted_sum(of_words, words)._replace(info=info)
        else:
            vector = self.flow(words, edges, weights)
            pooled = Pooled(vector, info=info, head_weights=of_words)
        if not need_edges:
            return pooled
        return pooled._replace(head_edges=edges.masked_fill(~mask.unsqueeze(-2), 0))

    def _aggregate_topics(
        self, connectivity: LowRankConnectivity, words: Words, need_edges: bool
    ) -> Pooled:
        topics = connectivity(words)
        gamma, info = self._solve(connectivity.chain(topics, words), None, "sum")
        weights = connectivity.weights(topics, gamma, words)
        if self.norm == "l2":
            square = words.total(weights.square())
            length = torch.where(square == 0, 1, square).sqrt()
            weights = weights / words.of_text(length)
        edges = connectivity.edges(topics, words) if need_edges else None
        return weighted_sum(weights, words)._replace(info=info, head_edges=edges)

    def _solve(
        self,
        edges: Float[Tensor, "b h n n"],
        mask: Bool[Tensor, "b 1 n"] | None,
        norm: Norm,
    ) -> tuple[Float[Tensor, "b h n"], SolverInfo | None]:
        if isinstance(self.solver, PowerSettings):
            result = power_method(
                edges,
                mask,
                tol=self.solver.tol,
                max_steps=self.solver.max_steps,
                gradient=self.solver.gradient,
                grad_steps=self.solver.grad_steps,
                norm=norm,
            )
            return result.vector, result.info
        return stationary(edges, mask, norm=norm), None

    def extra_repr(self) -> str:
        told = f", rank={self.rank}" if self.connectivity_name == "low_rank" else ""
        usual = {"source_scale": 1, "edge_dropout": 0, "values": "states", "reach": 0}
        for name, value in usual.items():
            if getattr(self, name) != value:
                told += f", {name}={getattr(self, name)!r}"
        return (
            f"{self.dim}, hidden={self.hidden}, heads={self.heads}, "
            f"connectivity={self.connectivity_name!r}, solver={self.solver!r}, "
            f"norm={self.norm!r}, activation={self.activation!r}{told}"
        )
