"""Max pooling."""

import torch

from perron.pooling.base import Aggregator, Pooled
from perron.pooling.words import Words


class MaxPool(Aggregator):
    """Take the largest value of each coordinate:  h̄_d = max_i h_id."""

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        states, mask = words.padded(words.states), words.mask
        if mask.shape[1] == 0:
            return Pooled(states.sum(1))  # zeros
        no_words = ~mask.any(1, keepdim=True)
        largest = states.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
        return Pooled(largest.masked_fill(no_words, 0))

    def extra_repr(self) -> str:
        return f"{self.dim}"
