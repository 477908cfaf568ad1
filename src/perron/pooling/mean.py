"""Average pooling."""

from jaxtyping import Bool, Float
from torch import Tensor

from perron.pooling.base import Aggregator, Pooled, weighted_sum


class MeanPool(Aggregator):
    """Give every word the same weight:  α_i = 1/n."""

    def aggregate(
        self,
        states: Float[Tensor, "b n d"],
        mask: Bool[Tensor, "b n"],
        need_edges: bool,
    ) -> Pooled:
        count = mask.sum(1, keepdim=True).clamp_min(1)
        weights = mask.to(states.dtype) / count
        return weighted_sum(weights.unsqueeze(1), states)

    def extra_repr(self) -> str:
        return f"{self.dim}"
