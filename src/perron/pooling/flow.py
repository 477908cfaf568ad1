"""Values that tell where a word's importance came from."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.pooling.base import project_both
from perron.pooling.words import Words


class FlowValues(nn.Module):
    """Pool each word together with the words that its importance flows in from.

        F_ij = A_ij α_j,    m_i = Σ_j F_ij h_j / Σ_j F_ij,
        h̄ = Σ_i α_i tanh(U h_i + V m_i)

    F_ij is the importance that goes from j to i. What flows into a word is its own
    weight, Σ_j F_ij = α_i, because Aα = α. So m_i is the mean word that a walker now at
    i came from. We divide by the sum and not by α_i: m is then a mean whatever the
    length of α, also where a power method has not quite converged. U and V are shared
    by all heads.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.own = nn.Linear(dim, dim)  # U
        self.source = nn.Linear(dim, dim, bias=False)  # V

    def reset_parameters(self) -> None:
        self.own.reset_parameters()
        self.source.reset_parameters()

    def forward(
        self,
        words: Words,
        edges: Float[Tensor, "b h n n"],
        weights: Float[Tensor, "b h n"],
    ) -> Float[Tensor, "b hd"]:
        """Return the vectors of all heads, concatenated; zeros without words.

        Edges and weights must be finite, and weights zero where there is no word.
        """
        both = words.padded(project_both(self.own, self.source, words.states))
        own, sources = both.unsqueeze(1).chunk(2, -1)  # (B, 1, N, D)
        flow = edges * weights.unsqueeze(-2)
        # Nothing flows into padding, and next to nothing into a word of next to no
        # weight: there the mean may be too short, but no slope of it is infinite.
        least = torch.finfo(flow.dtype).tiny ** 0.5
        total = flow.sum(-1, keepdim=True).clamp(min=least)
        values = (own + flow @ sources / total).tanh()  # (B, H, N, D)
        return (weights.unsqueeze(-2) @ values).squeeze(-2).flatten(1)
