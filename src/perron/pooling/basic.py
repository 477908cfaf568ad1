"""Max, mean, first-token, self-attention and intra-attention pooling."""

import torch
from torch import nn

from perron.arguments import Device, check_at_least
from perron.pooling.base import Aggregator, Pooled, project, weighted_sum
from perron.pooling.words import Words


class MaxPool(Aggregator):
    """Take the largest value of each coordinate:  h̄_d = max_i h_id."""

    recipe_name = "max"
    has_weights = False

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        return Pooled(words.largest())


class MeanPool(Aggregator):
    """Give every word the same weight:  α_i = 1/n."""

    recipe_name = "mean"

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        return weighted_sum(words.mean_weights(), words)


class FirstPool(Aggregator):
    """Take the first word alone:  h̄ = h_1, and so α_1 = 1.

    For encoders that were pretrained to gather a text in its first mark, ``[CLS]``.
    """

    recipe_name = "first"

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        # Padding may lie before the first word, so that it is not always at place 0.
        first = words.mask & (words.mask.long().cumsum(1) == 1)  # (B, N)
        weights = first.unsqueeze(-1).to(words.states.dtype)
        return weighted_sum(words.packed(weights), words)


class SelfAttentionPool(Aggregator):
    """Weigh each word by how well it answers a learned query.

        α = softmax_i qᵀ tanh(W h_i + b)

    Several queries give several weightings, whose vectors are concatenated (the
    structured self-attention of Lin et al., 2017).
    """

    recipe_name = "self-attention"
    heads_option = "queries"

    def __init__(
        self,
        dim: int,
        queries: int = 1,
        hidden: int = 50,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up both layers.

        Args:
            dim: Width of the states.
            queries: Number of weightings.
            hidden: Width of the hidden layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(dim)
        check_at_least(1, queries=queries, hidden=hidden)
        self.queries = queries
        self.hidden = hidden
        self.out_dim = dim * queries
        self.key = nn.Linear(dim, hidden, device=device, dtype=dtype)
        self.query = nn.Linear(hidden, queries, bias=False, device=device, dtype=dtype)

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        scores = project(self.query, project(self.key, words.states).tanh())
        return weighted_sum(words.softmax(scores), words)

    def extra_repr(self) -> str:
        return f"{self.dim}, queries={self.queries}, hidden={self.hidden}"


class IntraAttentionPool(Aggregator):
    """Weigh each word by how well it answers the text's mean (Liu et al., 2016).

    α = softmax_i wᵀ tanh(W h_i + V m),    m = mean_i h_i
    """

    recipe_name = "intra-attention"

    def __init__(
        self,
        dim: int,
        hidden: int = 50,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up the layers.

        Args:
            dim: Width of the states.
            hidden: Width of the hidden layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(dim)
        check_at_least(1, hidden=hidden)
        self.hidden = hidden
        self.word = nn.Linear(dim, hidden, device=device, dtype=dtype)
        self.mean = nn.Linear(dim, hidden, bias=False, device=device, dtype=dtype)
        self.score = nn.Linear(hidden, 1, bias=False, device=device, dtype=dtype)

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        mean = words.weigh(words.mean_weights()).squeeze(1)  # (B, D)
        asked = words.of_text(project(self.mean, mean))
        hidden = (project(self.word, words.states) + asked).tanh()
        return weighted_sum(words.softmax(project(self.score, hidden)), words)

    def extra_repr(self) -> str:
        return f"{self.dim}, hidden={self.hidden}"
