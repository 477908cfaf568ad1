"""Max pooling."""

from perron.pooling.base import Aggregator, Pooled
from perron.pooling.words import Words


class MaxPool(Aggregator):
    """Take the largest value of each coordinate:  h̄_d = max_i h_id."""

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        return Pooled(words.largest())

    def extra_repr(self) -> str:
        return f"{self.dim}"
