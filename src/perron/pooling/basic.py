"""Max, mean, first-token, self-attention, intra-attention and routing pooling."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.arguments import Device, check_at_least
from perron.pooling.base import Aggregator, PoolingOutput, project, weighted_sum
from perron.pooling.tokens import TokenBatch


class MaxPool(Aggregator):
    """Take the largest value of each coordinate:  h̄_d = max_i h_id."""

    recipe_name = "max"
    has_weights = False

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        return PoolingOutput(tokens.max())


class MeanPool(Aggregator):
    """Give every word the same weight:  α_i = 1/n."""

    recipe_name = "mean"

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        return weighted_sum(tokens.mean_weights(), tokens)


class FirstPool(Aggregator):
    """Take the first word alone:  h̄ = h_1, and so α_1 = 1.

    For encoders that were pretrained to gather a text in its first mark, ``[CLS]``.
    """

    recipe_name = "first"

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        # Padding may lie before the first word, so that it is not always at place 0.
        first = tokens.mask & (tokens.mask.long().cumsum(1) == 1)  # (B, N)
        weights = first.unsqueeze(-1).to(tokens.states.dtype)
        return weighted_sum(tokens.to_ragged(weights), tokens)


class SelfAttentionPool(Aggregator):
    """Weigh each word by how well it answers a learned query.

        α = softmax_i qᵀ tanh(W h_i + b)

    Several queries give several weightings, whose vectors are concatenated (the
    structured self-attention of Lin et al., 2017).
    """

    recipe_name = "self-attention"
    heads_option = "num_queries"

    def __init__(
        self,
        embed_dim: int,
        num_queries: int = 1,
        hidden_dim: int = 50,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up both layers.

        Args:
            embed_dim: Width of the states.
            num_queries: Number of weightings.
            hidden_dim: Width of the hidden layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(embed_dim)
        check_at_least(1, num_queries=num_queries, hidden_dim=hidden_dim)
        self.num_queries = num_queries
        self.hidden_dim = hidden_dim
        self.out_dim = embed_dim * num_queries
        self.key = nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype)
        self.query = nn.Linear(
            hidden_dim, num_queries, bias=False, device=device, dtype=dtype
        )

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        scores = project(self.query, project(self.key, tokens.states).tanh())
        return weighted_sum(tokens.softmax(scores), tokens)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_queries={self.num_queries}, hidden_dim={self.hidden_dim}"


class IntraAttentionPool(Aggregator):
    """Weigh each word by how well it answers the text's mean (Liu et al., 2016).

    α = softmax_i wᵀ tanh(W h_i + V m),    m = mean_i h_i
    """

    recipe_name = "intra-attention"

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int = 50,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up the layers.

        Args:
            embed_dim: Width of the states.
            hidden_dim: Width of the hidden layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(embed_dim)
        check_at_least(1, hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.word = nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype)
        self.mean = nn.Linear(
            embed_dim, hidden_dim, bias=False, device=device, dtype=dtype
        )
        self.score = nn.Linear(hidden_dim, 1, bias=False, device=device, dtype=dtype)

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        mean = tokens.weighted_sum(tokens.mean_weights()).squeeze(1)  # (B, D)
        asked = tokens.broadcast(project(self.mean, mean))
        hidden_dim = (project(self.word, tokens.states) + asked).tanh()
        return weighted_sum(tokens.softmax(project(self.score, hidden_dim)), tokens)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, hidden_dim={self.hidden_dim}"


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
        embed_dim: int,
        num_capsules: int = 5,
        num_iterations: int = 3,
        reverse: bool = False,
        capsule_dim: int | None = None,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up the votes.

        Args:
            embed_dim: Width of the states.
            num_capsules: Number of capsules.
            num_iterations: Number of routing iterations.
            reverse: Let a capsule choose among words, not a word among capsules.
            capsule_dim: Width of a capsule. Defaults to ``embed_dim / num_capsules``, rounded up.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(embed_dim)
        check_at_least(1, num_capsules=num_capsules, num_iterations=num_iterations)
        self.num_capsules = num_capsules
        self.num_iterations = num_iterations
        self.reverse = reverse
        self.capsule_dim = (
            -(-embed_dim // num_capsules) if capsule_dim is None else capsule_dim
        )
        check_at_least(1, capsule_dim=self.capsule_dim)
        self.out_dim = num_capsules * self.capsule_dim
        self.vote = nn.Linear(embed_dim, self.out_dim, device=device, dtype=dtype)

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        votes = tokens.to_padded(project(self.vote, tokens.states).tanh())
        votes = votes.unflatten(-1, (self.num_capsules, self.capsule_dim))
        votes = votes.transpose(1, 2)  # (B, C, N, width)
        absent = ~tokens.mask[:, None, :]
        logits = votes.new_zeros(votes.shape[:-1])  # (B, C, N)
        for last in [False] * (self.num_iterations - 1) + [True]:
            lowest = torch.finfo(logits.dtype).min
            share = logits.masked_fill(absent, lowest).softmax(2 if self.reverse else 1)
            share = share.masked_fill(absent, 0)
            capsules = _squash((share.unsqueeze(-2) @ votes).squeeze(-2))  # (B, C, W)
            if not last:
                logits = logits + (votes @ capsules.unsqueeze(-1)).squeeze(-1)
        total = share.sum(-1, keepdim=True)
        weights = share / torch.where(total == 0, 1, total)
        return PoolingOutput(
            capsules.flatten(1), head_weights=tokens.to_ragged(weights.mT)
        )

    def extra_repr(self) -> str:
        return (
            f"{self.embed_dim}, num_capsules={self.num_capsules}, num_iterations={self.num_iterations}, "
            f"reverse={self.reverse}, capsule_dim={self.capsule_dim}"
        )


def _squash(s: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
    """Shrink to a length below one, keep the direction; zero stays zero."""
    square = s.square().sum(-1, keepdim=True)
    # The square root's slope at zero is infinite: an empty text must not meet it.
    length = torch.where(square == 0, 1, square).sqrt()
    return s * torch.where(square == 0, 0, length) / (1 + square)
