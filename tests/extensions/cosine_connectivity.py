"""Custom connectivity: tokens point to similar tokens."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perron import Connectivity, TokenBatch, project


class CosineConnectivity(Connectivity):
    """Cosine similarity:  s_ij = g cos(W h_i, W h_j)."""

    recipe_name = "cosine"

    def __init__(
        self, embed_dim: int, hidden_dim: int, num_heads: int, gain: float = 5.0
    ) -> None:
        """Initialize the projection.

        Args:
            embed_dim: Dimension of the states.
            hidden_dim: Dimension of the projection per head.
            num_heads: Number of heads.
            gain: Score g of two tokens with the same direction.
        """
        super().__init__()
        self.num_heads = num_heads
        self.gain = gain
        self.projection = nn.Linear(embed_dim, num_heads * hidden_dim, bias=False)

    def forward(self, tokens: TokenBatch) -> Tensor:
        x = tokens.to_padded(project(self.projection, tokens.states))
        x = x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, N, K)
        x = F.normalize(x, dim=-1, eps=torch.finfo(x.dtype).tiny ** 0.5)
        return self.gain * (x @ x.mT)
