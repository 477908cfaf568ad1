"""A connectivity of one's own: words point at words like themselves."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perron import Connectivity, Words, project


class CosineConnectivity(Connectivity):
    """Score a pair by its direction:  s_ij = g cos(W h_i, W h_j)."""

    recipe_name = "cosine"

    def __init__(self, dim: int, hidden: int, heads: int, gain: float = 5.0) -> None:
        """Set up the projection.

        Args:
            dim: Width of the states.
            hidden: Width of the projection, in each head.
            heads: Number of graphs.
            gain: g, the score of two words of the same direction.
        """
        super().__init__()
        self.heads = heads
        self.gain = gain
        self.projection = nn.Linear(dim, heads * hidden, bias=False)

    def forward(self, words: Words) -> Tensor:
        x = words.padded(project(self.projection, words.states))
        x = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, N, K)
        x = F.normalize(x, dim=-1, eps=torch.finfo(x.dtype).tiny ** 0.5)
        return self.gain * (x @ x.mT)
