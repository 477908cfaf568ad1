"""The state of the first word."""

from perron.pooling.base import Aggregator, Pooled, weighted_sum
from perron.pooling.words import Words


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
