"""A connectivity of one's own: words point at words like themselves."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perron import Connectivity, TokenBatch, project


class CosineConnectivity(Connectivity):
    """Score a pair by its direction:  s_ij = g cos(W h_i, W h_j)."""

    recipe_name = "cosine"

    def __init__(
        self, embed_dim: int, hidden_dim: int, num_heads: int, gain: float = 5.0
    ) -> None:
        """Set up the projection.

        Args:
            embed_dim: Width of the states.
            hidden_dim: Width of the projection, in each head.
            num_heads: Number of graphs.
            gain: g, the score of two words of the same direction.
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
