"""Aggregation by dynamic routing (DR-AGG), standard and reverse."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.arguments import Device, check_at_least
from perron.pooling.base import Aggregator, Pooled, project
from perron.pooling.words import Words


class DynamicRoutingPool(Aggregator):
    """Let words send their votes to the capsules that agree with them.

    Gong, Qiu, Wang and Huang (2018). Every word i has a vote for every capsule c,
    v_ic = tanh(W_c h_i + b_c), by weights that all words share. From logits 0, repeat:

        r = softmax of the logits       over capsules; over words if ``reverse``
        o_c = squash(Σ_i r_ic v_ic),    squash(s) = s ‖s‖ / (1 + ‖s‖²)
        logit_ic += v_icᵀ o_c

    The vector is the capsules [o_1 … o_C] side by side. The weights are each capsule's
    share of r over the words.
    """

    recipe_name = "dynamic-routing"

    def __init__(
        self,
        dim: int,
        capsules: int = 5,
        iterations: int = 3,
        reverse: bool = False,
        capsule_dim: int | None = None,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up the votes.

        Args:
            dim: Width of the states.
            capsules: Number of capsules.
            iterations: Number of routing iterations.
            reverse: Let a capsule choose among words, not a word among capsules.
            capsule_dim: Width of a capsule. Defaults to ``dim / capsules``, rounded up.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(dim)
        check_at_least(1, capsules=capsules, iterations=iterations)
        self.capsules = capsules
        self.iterations = iterations
        self.reverse = reverse
        self.capsule_dim = -(-dim // capsules) if capsule_dim is None else capsule_dim
        check_at_least(1, capsule_dim=self.capsule_dim)
        self.out_dim = capsules * self.capsule_dim
        self.vote = nn.Linear(dim, self.out_dim, device=device, dtype=dtype)

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        votes = words.padded(project(self.vote, words.states).tanh())
        votes = votes.unflatten(-1, (self.capsules, self.capsule_dim))
        votes = votes.transpose(1, 2)  # (B, C, N, width)
        absent = ~words.mask[:, None, :]
        logits = votes.new_zeros(votes.shape[:-1])  # (B, C, N)
        for last in [False] * (self.iterations - 1) + [True]:
            lowest = torch.finfo(logits.dtype).min
            share = logits.masked_fill(absent, lowest).softmax(2 if self.reverse else 1)
            share = share.masked_fill(absent, 0)
            capsules = _squash((share.unsqueeze(-2) @ votes).squeeze(-2))  # (B, C, W)
            if not last:
                logits = logits + (votes @ capsules.unsqueeze(-1)).squeeze(-1)
        total = share.sum(-1, keepdim=True)
        weights = share / torch.where(total == 0, 1, total)
        return Pooled(capsules.flatten(1), head_weights=words.packed(weights.mT))

    def extra_repr(self) -> str:
        return (
            f"{self.dim}, capsules={self.capsules}, iterations={self.iterations}, "
            f"reverse={self.reverse}, capsule_dim={self.capsule_dim}"
        )


def _squash(s: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
    """Shrink to a length below one, keep the direction; zero stays zero."""
    square = s.square().sum(-1, keepdim=True)
    # The square root's slope at zero is infinite: an empty text must not meet it.
    length = torch.where(square == 0, 1, square).sqrt()
    return s * torch.where(square == 0, 0, length) / (1 + square)
