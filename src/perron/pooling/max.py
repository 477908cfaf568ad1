"""Max pooling."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from perron.pooling.base import Aggregator, Pooled


class MaxPool(Aggregator):
    """Take the largest value of each coordinate:  h̄_d = max_i h_id."""

    def aggregate(
        self,
        states: Float[Tensor, "b n d"],
        mask: Bool[Tensor, "b n"],
        need_edges: bool,
    ) -> Pooled:
        if states.shape[1] == 0:
            return Pooled(states.sum(1))  # zeros
        no_words = ~mask.any(1, keepdim=True)
        largest = states.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
        return Pooled(largest.masked_fill(no_words, 0))

    def extra_repr(self) -> str:
        return f"{self.dim}"
