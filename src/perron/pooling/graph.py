"""Centrality in a given graph, such as the attention map of a transformer."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.arguments import Device, check_at_least, has_values
from perron.pooling.base import (
    PoolingInput,
    PoolingOutput,
    check_inputs,
    pool_inputs,
    weighted_sum,
)
from perron.pooling.tokens import TokenBatch
from perron.solver import Norm, stationary_distribution
from perron.solver.direct import check_norm

_SUM_TOLERANCE = 0.02  # rounding error of the sums of half-precision attention maps


class GraphCentralityPool(nn.Module):
    """Weight each token by its eigenvector centrality in a given graph.

        A = the graph with the outgoing edges of each token normalized to sum to one,
        A α = α,    h̄ = Σ_i α_i h_i

    A token with no outgoing edges points to all tokens equally. The graph should be
    strongly connected. In the attention map of a causal model, all paths end at the
    first token, which gets all the weight. In a disconnected graph, the relative weight
    of the components is arbitrary.

    This module has no parameters. It is not an `Aggregator`, because its `forward` also
    needs a graph.
    """

    has_weights: ClassVar[bool] = True
    has_graph: ClassVar[bool] = True

    def __init__(
        self,
        embed_dim: int | None = None,
        dim: int | None = None,
        norm: Norm = "sum",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Initialize the module.

        Args:
            embed_dim: Dimension of the states. None accepts any dimension.
            dim: Axis of the outgoing edges of a token, along which they are normalized
                to sum to one. Required. Use -1 for attention maps, whose rows sum to
                one because token i attends to tokens j. Use -2 for graphs whose columns
                sum to one because ``graph[i, j]`` points from j to i, such as the edges
                of `CentralityPool`.
            norm: ``"sum"`` for weights that sum to one, ``"l2"`` for unit length.
            device: Unused. Accepted for consistency with other pooling modules.
            dtype: Unused. Accepted for consistency with other pooling modules.
        """
        super().__init__()
        if embed_dim is not None:
            check_at_least(1, embed_dim=embed_dim)
        if dim not in (-2, -1):
            raise ValueError(
                f"dim must be -1 or -2, got {dim!r}. Use dim=-1 for attention maps "
                "and other graphs whose rows sum to one, dim=-2 if the columns do."
            )
        check_norm(norm)
        self.embed_dim = embed_dim
        self.dim = dim
        self.norm = norm
        if embed_dim is not None:
            self.out_dim = embed_dim

    def reset_parameters(self) -> None:
        """Do nothing, as there are no parameters."""

    def forward(
        self,
        states: Tensor,
        graph: Tensor,
        mask: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        offsets: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> PoolingOutput:
        """Pool each text.

        Args:
            states: Padded states (B, N, D), or ragged states (M, D) with ``lengths`` or
                ``offsets``, as in `Aggregator.forward`.
            graph: (B, N, N), nonnegative edges. For ragged states, N is the length of
                the longest text. Edges of padding are never read. If an edge is
                negative, infinite or NaN, the weights of its text are NaN.
            mask: (B, N), True (or 1) on tokens and False (or 0) on padding, in any
                pattern. Defaults to no padding.
            lengths: (B), number of tokens in each text, for ragged states.
            offsets: (B + 1), start of each text, followed by M.
            need_edges: Whether to return the normalized graph.

        Raises:
            ValueError: If the graph sums to one along the other axis, for example if it
                is an attention map and ``dim`` is -2. Not checked in traced graphs.
        """
        inputs = check_inputs(self.embed_dim, states, mask, lengths, offsets)
        self._check_graph(graph, inputs)
        if has_values(graph):
            self._check_axis(graph.detach(), inputs.mask)

        def aggregate(tokens: TokenBatch) -> PoolingOutput:
            edges = self._normalize(graph, tokens.mask).to(tokens.states.dtype)
            weights = stationary_distribution(edges, tokens.mask, norm=self.norm)
            invalid = edges.isnan().flatten(1).any(1, keepdim=True)
            weights = torch.where(invalid & tokens.mask, torch.nan, weights)
            output = weighted_sum(tokens.to_ragged(weights.unsqueeze(-1)), tokens)
            return output._replace(
                head_edges=edges.unsqueeze(1) if need_edges else None
            )

        return pool_inputs(aggregate, inputs)

    def _check_graph(self, graph: Tensor, inputs: PoolingInput) -> None:
        texts, n = inputs.mask.shape
        if not isinstance(graph, Tensor):
            raise ValueError(f"graph must be a tensor, got {type(graph)}.")
        hint = " Average an attention map over its heads." if graph.ndim == 4 else ""
        if graph.shape != (texts, n, n):
            raise ValueError(
                f"graph must have shape {(texts, n, n)} to fit the states, got "
                f"{tuple(graph.shape)}.{hint}"
            )
        if not graph.is_floating_point():
            raise ValueError(f"graph must be floating point, got {graph.dtype}.")
        device = inputs.states.device
        if graph.device != device:
            raise ValueError(
                f"graph must be on {device}, like states, got {graph.device}."
            )

    def _check_axis(self, graph: Tensor, mask: Tensor) -> None:
        """Raise ValueError if the graph sums to one along the other axis only."""
        pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
        edges = graph.float().masked_fill(~pairs, 0)
        along, across = (
            ((edges.sum(dim) - 1).abs() < _SUM_TOLERANCE).masked_fill(~mask, True).all()
            for dim in (self.dim, -3 - self.dim)
        )
        if across & ~along:
            sums = ("rows", "columns") if self.dim == -2 else ("columns", "rows")
            raise ValueError(
                f"dim must be {-3 - self.dim} for this graph, got {self.dim}. Its "
                f"{sums[0]} sum to one and its {sums[1]} do not."
            )

    def _normalize(
        self, graph: Float[Tensor, "b n n"], mask: Tensor
    ) -> Float[Tensor, "b n n"]:
        """Return edges from j to i with normalized columns and zeros as padding.

        Negative, infinite and NaN edges become NaN.
        """
        edges = graph if self.dim == -2 else graph.mT
        edges = edges.float() if edges.element_size() < 4 else edges
        pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
        edges = edges.masked_fill(~((edges >= 0) & (edges < torch.inf)), torch.nan)
        edges = edges.masked_fill(~pairs, 0)
        # Divide by the largest edge first, because the sum of large edges may overflow.
        top = edges.detach().amax(-2, keepdim=True) if edges.numel() else edges
        edges = edges / torch.where(top == 0, 1, top)
        edges = torch.where((top == 0) & pairs, 1.0, edges)  # no outgoing edges
        total = edges.sum(-2, keepdim=True)
        return edges / torch.where(total == 0, 1, total)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, dim={self.dim}, norm={self.norm!r}"
