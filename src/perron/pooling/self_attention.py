"""Attentive pooling with learned queries."""

from torch import nn

from perron.pooling.base import Aggregator, Pooled, project, weighted_sum
from perron.pooling.words import Words


class SelfAttentionPool(Aggregator):
    """Weigh each word by how well it answers a learned query.

        α = softmax_i qᵀ tanh(W h_i + b)

    Several queries give several weightings, whose vectors are concatenated (the
    structured self-attention of Lin et al., 2017).
    """

    def __init__(self, dim: int, queries: int = 1, hidden: int = 50) -> None:
        super().__init__(dim)
        if queries < 1:
            raise ValueError(f"queries must be at least 1, but came as {queries}")
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, but came as {hidden}")
        self.queries = queries
        self.hidden = hidden
        self.out_dim = dim * queries
        self.key = nn.Linear(dim, hidden)
        self.query = nn.Linear(hidden, queries, bias=False)

    def reset_parameters(self) -> None:
        self.key.reset_parameters()
        self.query.reset_parameters()

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        scores = project(self.query, project(self.key, words.states).tanh())
        return weighted_sum(words.softmax(scores), words)

    def extra_repr(self) -> str:
        return f"{self.dim}, queries={self.queries}, hidden={self.hidden}"
