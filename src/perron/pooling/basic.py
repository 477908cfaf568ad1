"""Max, mean, first-token, attention and dynamic routing pooling."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.arguments import Device, check_at_least
from perron.pooling.base import Aggregator, PoolingOutput, project, weighted_sum
from perron.pooling.tokens import TokenBatch


class MaxPool(Aggregator):
    """Max pooling:  h̄_d = max_i h_id."""

    recipe_name = "max"
    has_weights = False

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        return PoolingOutput(tokens.max())


class MeanPool(Aggregator):
    """Mean pooling:  α_i = 1/n."""

    recipe_name = "mean"

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        return weighted_sum(tokens.mean_weights(), tokens)


class FirstPool(Aggregator):
    """First-token pooling:  h̄ = h_1, with α_1 = 1.

    Suited to encoders that were pretrained to represent a text by its first token, such
    as ``[CLS]``.
    """

    recipe_name = "first"

    def aggregate(self, tokens: TokenBatch, need_edges: bool) -> PoolingOutput:
        # Padding may precede the first token, so it is not always at position 0.
        first = tokens.mask & (tokens.mask.long().cumsum(1) == 1)  # (B, N)
        weights = first.unsqueeze(-1).to(tokens.states.dtype)
        return weighted_sum(tokens.to_ragged(weights), tokens)


class SelfAttentionPool(Aggregator):
    """Weight each token by its attention score for a learned query.

        α = softmax_i qᵀ tanh(W h_i + b)

    The vectors of several queries are concatenated (structured self-attention, Lin et
    al., 2017).
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
        """Initialize the layers.

        Args:
            embed_dim: Dimension of the states.
            num_queries: Number of queries.
            hidden_dim: Dimension of the hidden layer.
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
        return (
            f"{self.embed_dim}, num_queries={self.num_queries}, "
            f"hidden_dim={self.hidden_dim}"
        )


class IntraAttentionPool(Aggregator):
    """Weight each token by its attention to the mean of the text (Liu et al., 2016).

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
        """Initialize the layers.

        Args:
            embed_dim: Dimension of the states.
            hidden_dim: Dimension of the hidden layer.
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
        query = tokens.broadcast(project(self.mean, mean))
        hidden = (project(self.word, tokens.states) + query).tanh()
        return weighted_sum(tokens.softmax(project(self.score, hidden)), tokens)

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, hidden_dim={self.hidden_dim}"


class DynamicRoutingPool(Aggregator):
    """Route the votes of the tokens to capsules by agreement.

    Gong, Qiu, Wang and Huang (2018). Each token i votes for each capsule c with
    v_ic = tanh(W_c h_i + b_c). Starting with zero logits, repeat:

        r = softmax of the logits       over capsules; over tokens if ``reverse``
        o_c = squash(Σ_i r_ic v_ic),    squash(s) = s ‖s‖ / (1 + ‖s‖²)
        logit_ic += v_icᵀ o_c

    The pooled vector is the concatenation of the capsules, [o_1 … o_C]. The weights of
    a capsule are its r, normalized over the tokens.
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
        """Initialize the voting layer.

        Args:
            embed_dim: Dimension of the states.
            num_capsules: Number of capsules.
            num_iterations: Number of routing iterations.
            reverse: Whether to normalize the routing weights over tokens instead of
                capsules.
            capsule_dim: Dimension of a capsule. Defaults to
                ``embed_dim / num_capsules``, rounded up.
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
        votes = votes.transpose(1, 2)  # (B, C, N, W)
        padding = ~tokens.mask[:, None, :]
        logits = votes.new_zeros(votes.shape[:-1])  # (B, C, N)
        lowest = torch.finfo(logits.dtype).min
        for iteration in range(1, self.num_iterations + 1):
            routing = logits.masked_fill(padding, lowest)
            routing = routing.softmax(2 if self.reverse else 1).masked_fill(padding, 0)
            capsules = _squash((routing.unsqueeze(-2) @ votes).squeeze(-2))  # (B, C, W)
            if iteration < self.num_iterations:
                logits = logits + (votes @ capsules.unsqueeze(-1)).squeeze(-1)
        total = routing.sum(-1, keepdim=True)
        weights = routing / torch.where(total == 0, 1, total)
        return PoolingOutput(
            capsules.flatten(1), head_weights=tokens.to_ragged(weights.mT)
        )

    def extra_repr(self) -> str:
        return (
            f"{self.embed_dim}, num_capsules={self.num_capsules}, "
            f"num_iterations={self.num_iterations}, reverse={self.reverse}, "
            f"capsule_dim={self.capsule_dim}"
        )


def _squash(s: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch w"]:
    """Scale a vector to a length below one; a zero vector stays zero."""
    square = s.square().sum(-1, keepdim=True)
    # The gradient of sqrt at zero is infinite; this keeps empty texts away from it.
    length = torch.where(square == 0, 1, square).sqrt()
    return s * torch.where(square == 0, 0, length) / (1 + square)
