"""Max, mean, first-token, self-attention and intra-attention pooling."""

from torch import nn

from perron.pooling.base import Aggregator, Pooled, project, weighted_sum
from perron.pooling.words import Words


class MaxPool(Aggregator):
    """Take the largest value of each coordinate:  h̄_d = max_i h_id."""

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        return Pooled(words.largest())

    def extra_repr(self) -> str:
        return f"{self.dim}"


class MeanPool(Aggregator):
    """Give every word the same weight:  α_i = 1/n."""

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        return weighted_sum(words.mean_weights(), words)

    def extra_repr(self) -> str:
        return f"{self.dim}"


class FirstPool(Aggregator):
    """Take the first word alone:  h̄ = h_1, and so α_1 = 1.

    For encoders that were pretrained to gather a text in its first mark, ``[CLS]``.
    """

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        # Padding may lie before the first word, so that it is not always at place 0.
        first = words.mask & (words.mask.long().cumsum(1) == 1)  # (B, N)
        weights = first.unsqueeze(-1).to(words.states.dtype)
        return weighted_sum(words.packed(weights), words)

    def extra_repr(self) -> str:
        return f"{self.dim}"


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


class IntraAttentionPool(Aggregator):
    """Weigh each word by how well it answers the text's mean (Liu et al., 2016).

    α = softmax_i wᵀ tanh(W h_i + V m),    m = mean_i h_i
    """

    def __init__(self, dim: int, hidden: int = 50) -> None:
        super().__init__(dim)
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, but came as {hidden}")
        self.hidden = hidden
        self.word = nn.Linear(dim, hidden)
        self.mean = nn.Linear(dim, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def reset_parameters(self) -> None:
        self.word.reset_parameters()
        self.mean.reset_parameters()
        self.score.reset_parameters()

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        mean = words.weigh(words.mean_weights()).squeeze(1)  # (B, D)
        asked = words.of_text(project(self.mean, mean))
        hidden = (project(self.word, words.states) + asked).tanh()
        return weighted_sum(words.softmax(project(self.score, hidden)), words)

    def extra_repr(self) -> str:
        return f"{self.dim}, hidden={self.hidden}"
