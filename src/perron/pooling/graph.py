"""Centrality in a graph that is given, for instance a transformer's own attention."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.pooling.base import Batch, Pooled, check_batch, run, weighted_sum
from perron.pooling.words import Words
from perron.solver import Norm, stationary
from perron.solver.checks import check_norm


class GraphCentralityPool(nn.Module):
    """Weigh each word by its eigenvector centrality in a given graph: no parameters.

        A = the graph with each word's outgoing edges scaled to sum to one,
        A α = α,    h̄ = Σ_i α_i h_i

    A word with no outgoing edge points at every word alike. From every word there
    should be a way to every other: in the attention map of a causal model all ways end
    at the first word, and so does all the weight; and where a graph falls apart, the
    share of each part means nothing.
    """

    def __init__(self, dim: int, axis: int = -2, norm: Norm = "sum") -> None:
        """Set up the pooling.

        Args:
            dim: width of the states.
            axis: along which the edges that leave a word lie, and so sum to one. -2,
                columns: ``graph[i, j]`` goes from j to i, as everywhere in Perron. -1,
                rows: from i to j, as in attention maps, where word i looks at words j.
            norm: ``"sum"``, weights that sum to one; ``"l2"``, of unit length.
        """
        super().__init__()
        if dim < 1:
            raise ValueError(f"dim must be at least 1, but came as {dim}")
        if axis not in (-2, -1):
            raise ValueError(f"axis must be -2 or -1, but came as {axis!r}")
        check_norm(norm)
        self.dim = dim
        self.axis = axis
        self.norm = norm
        self.out_dim = dim

    def forward(
        self,
        states: Tensor,
        graph: Tensor,
        mask: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        offsets: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> Pooled:
        """Pool each text.

        Args:
            states: (B, N, D), or flat (M, D) with ``lengths`` or ``offsets``, as for
                every aggregator.
            graph: (B, N, N) edges, none negative; N is the longest length for flat
                states. What it holds for words that are not there is never read. A
                negative, infinite or undefined edge makes its text's weights NaN.
            mask: as for every aggregator.
            lengths: likewise.
            offsets: likewise.
            need_edges: return the normalised graph too.
        """
        batch = check_batch(self.dim, states, mask, lengths, offsets)
        self._check_graph(graph, batch)

        def aggregate(words: Words) -> Pooled:
            edges = self._normalise(graph, words.mask).to(words.states.dtype)
            weights = stationary(edges, words.mask, norm=self.norm)
            flawed = edges.isnan().flatten(1).any(1, keepdim=True)
            weights = torch.where(flawed & words.mask, torch.nan, weights)
            pooled = weighted_sum(words.packed(weights.unsqueeze(-1)), words)
            return pooled._replace(
                head_edges=edges.unsqueeze(1) if need_edges else None
            )

        return run(aggregate, batch)

    def _check_graph(self, graph: Tensor, batch: Batch) -> None:
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

    def _normalise(
        self, graph: Float[Tensor, "b n n"], mask: Tensor
    ) -> Float[Tensor, "b n n"]:
        """Return edges from j to i, zero but between words, columns of sum one.

        A negative, infinite or undefined edge becomes NaN.
        """
        edges = graph if self.axis == -2 else graph.mT
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
        return f"{self.dim}, axis={self.axis}, norm={self.norm!r}"
