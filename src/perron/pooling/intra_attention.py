"""Intra-attention: the mean of a text attends to its words."""

from torch import nn

from perron.pooling.base import Aggregator, Pooled, project, weighted_sum
from perron.pooling.words import Words


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
