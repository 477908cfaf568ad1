"""Centrality in a graph that is given, for instance a transformer's own attention."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.arguments import Device, check_at_least, has_values
from perron.pooling.base import (
    PoolingInput,
    PoolingOutput,
    check_batch,
    run,
    weighted_sum,
)
from perron.pooling.tokens import TokenBatch
from perron.solver import Norm, stationary_distribution
from perron.solver.direct import check_norm

_NEAR_ONE = 0.02  # sums of attention maps in half precision are off by as much


class GraphCentralityPool(nn.Module):
    """Weigh each word by its eigenvector centrality in a given graph: no parameters.

        A = the graph with each word's outgoing edges scaled to sum to one,
        A α = α,    h̄ = Σ_i α_i h_i

    A word with no outgoing edge points at every word alike. From every word there
    should be a way to every other: in the attention map of a causal model all ways end
    at the first word, and so does all the weight; and where a graph falls apart, the
    share of each part means nothing.

    This is not an `Aggregator`, because it cannot be called like one: besides states
    and mask it needs a graph.
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
        """Set up the pooling.

        Args:
            embed_dim: Width of the states. Defaults to any width.
            dim: Axis along which the edges that leave a word lie, and so sum to one.
                Required. -1 for attention maps, whose rows sum to one because word i
                looks at words j. -2 for graphs whose columns sum to one because
                ``graph[i, j]`` goes from j to i, as the edges of `CentralityPool`.
            norm: ``"sum"`` for weights that sum to one, ``"l2"`` for unit length.
            device: Without effect; every pooling takes it.
            dtype: Without effect; every pooling takes it.
        """
        super().__init__()
        if embed_dim is not None:
            check_at_least(1, embed_dim=embed_dim)
        if dim not in (-2, -1):
            raise ValueError(
                f"dim must be -1 or -2, got {dim!r}. Take dim=-1 for attention maps "
                "and other graphs whose rows sum to one, dim=-2 if the columns do."
            )
        check_norm(norm)
        self.embed_dim = embed_dim
        self.dim = dim
        self.norm = norm
        if embed_dim is not None:
            self.out_dim = embed_dim

    def reset_parameters(self) -> None:
        """Do nothing: there are no parameters."""

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
            states: (B, N, D), or flat (M, D) with ``lengths`` or ``offsets``, as for
                every aggregator.
            graph: (B, N, N) edges, none negative; N is the longest length for flat
                states. What it holds for words that are not there is never read. A
                negative, infinite or undefined edge makes its text's weights NaN.
            mask: True (or 1) on tokens, False (or 0) on padding; (B, N), any pattern.
                Defaults to no padding.
            lengths: (B), the number of tokens of each text, for flat states.
            offsets: (B + 1), where each text begins and the last one ends.
            need_edges: Return the normalized graph too.

        Raises:
            ValueError: The graph sums to one along the other axis: it is an attention
                map and ``dim`` is -2, or the other way round. Traced graphs are not
                checked.
        """
        batch = check_batch(self.embed_dim, states, mask, lengths, offsets)
        self._check_graph(graph, batch)
        if has_values(graph):
            self._check_axis(graph.detach(), batch.mask)

        def aggregate(tokens: TokenBatch) -> PoolingOutput:
            edges = self._normalize(graph, tokens.mask).to(tokens.states.dtype)
            weights = stationary_distribution(edges, tokens.mask, norm=self.norm)
            flawed = edges.isnan().flatten(1).any(1, keepdim=True)
            weights = torch.where(flawed & tokens.mask, torch.nan, weights)
            pooled = weighted_sum(tokens.to_ragged(weights.unsqueeze(-1)), tokens)
            return pooled._replace(
                head_edges=edges.unsqueeze(1) if need_edges else None
            )

        return run(aggregate, batch)

    def _check_graph(self, graph: Tensor, batch: PoolingInput) -> None:
        texts, words = batch.mask.shape
        if not isinstance(graph, Tensor):
            raise ValueError(f"graph must be a tensor, but came as {type(graph)}")
        advice = "; average the heads of an attention map" if graph.ndim == 4 else ""
        if graph.shape != (texts, words, words):
            raise ValueError(
                f"graph must have shape {(texts, words, words)} to fit the states, but "
                f"came as {tuple(graph.shape)}{advice}"
            )
        if not graph.is_floating_point():
            raise ValueError(f"graph must be floating point, but came as {graph.dtype}")
        if graph.device != batch.states.device:
            raise ValueError(
                f"graph is on {graph.device}, but states are on {batch.states.device}"
            )

    def _check_axis(self, graph: Tensor, mask: Tensor) -> None:
        """Refuse a graph whose sums along the other axis, and those alone, are one."""
        pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
        edges = graph.float().masked_fill(~pairs, 0)
        along, across = (
            ((edges.sum(dim) - 1).abs() < _NEAR_ONE).masked_fill(~mask, True).all()
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
        """Return edges from j to i, zero but between words, columns of sum one.

        A negative, infinite or undefined edge becomes NaN.
        """
        edges = graph if self.dim == -2 else graph.mT
        edges = edges.float() if edges.element_size() < 4 else edges
        pairs = mask.unsqueeze(-1) & mask.unsqueeze(-2)
        edges = edges.masked_fill(~((edges >= 0) & (edges < torch.inf)), torch.nan)
        edges = edges.masked_fill(~pairs, 0)
        # Relative to the largest first: the sum of large edges may be out of range.
        top = edges.detach().amax(-2, keepdim=True) if edges.numel() else edges
        edges = edges / torch.where(top == 0, 1, top)
        edges = torch.where((top == 0) & pairs, 1.0, edges)  # none leaves this word
        total = edges.sum(-2, keepdim=True)
        return edges / torch.where(total == 0, 1, total)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, dim={self.dim}, norm={self.norm!r}"
