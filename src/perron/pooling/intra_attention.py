"""Intra-attention: the mean of a text attends to its words."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from perron.pooling.base import (
    Aggregator,
    Pooled,
    masked_softmax,
    project,
    weighted_sum,
)


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

    def aggregate(
        self,
        states: Float[Tensor, "b n d"],
        mask: Bool[Tensor, "b n"],
        need_edges: bool,
    ) -> Pooled:
        mean = states.sum(1, keepdim=True) / mask.sum(1).clamp_min(1)[:, None, None]
        hidden = (project(self.word, states) + project(self.mean, mean)).tanh()
        scores = project(self.score, hidden)  # (B, N, 1)
        return weighted_sum(masked_softmax(scores.mT, mask.unsqueeze(1)), states)

    def extra_repr(self) -> str:
        return f"{self.dim}, hidden={self.hidden}"
