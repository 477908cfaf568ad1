"""Average pooling."""

from perron.pooling.base import Aggregator, Pooled, weighted_sum
from perron.pooling.words import Words


class MeanPool(Aggregator):
    """Give every word the same weight:  α_i = 1/n."""

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        return weighted_sum(words.mean_weights(), words)

    def extra_repr(self) -> str:
        return f"{self.dim}"
