"""Custom aggregator: tokens with larger states have more weight."""

import torch

from perron import Aggregator, PoolingOutput, TokenBatch, weighted_sum


class NormPool(Aggregator):
    """Weight each token by the norm of its state:  α = softmax_i ‖h_i‖ / T."""

    recipe_name = "norm"

    def __init__(self, embed_dim: int, temperature: float = 1.0) -> None:
        """Initialize the aggregator.

        Args:
            embed_dim: Dimension of the states.
            temperature: Temperature T. Larger values give more uniform weights.
        """
        super().__init__(embed_dim)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}.")
        self.temperature = temperature

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        norms = torch.linalg.vector_norm(tokens.states, dim=-1, keepdim=True)
        return weighted_sum(tokens.softmax(norms / self.temperature), tokens)
