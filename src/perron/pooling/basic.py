"""Max, mean, first-token, self-attention, intra-attention and routing pooling."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.arguments import Device, check_at_least
from perron.pooling.base import Aggregator, Pooled, project, weighted_sum
from perron.pooling.words import Words


class MaxPool(Aggregator):
    """Take the largest value of each coordinate:  h̄_d = max_i h_id."""

    recipe_name = "max"
    has_weights = False

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        return Pooled(words.largest())


class MeanPool(Aggregator):
    """Give every word the same weight:  α_i = 1/n."""

    recipe_name = "mean"

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        return weighted_sum(words.mean_weights(), words)


class FirstPool(Aggregator):
    """Take the first word alone:  h̄ = h_1, and so α_1 = 1.

    For encoders that were pretrained to gather a text in its first mark, ``[CLS]``.
    """

    recipe_name = "first"

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        # Padding may lie before the first word, so that it is not always at place 0.
        first = words.mask & (words.mask.long().cumsum(1) == 1)  # (B, N)
        weights = first.unsqueeze(-1).to(words.states.dtype)
        return weighted_sum(words.packed(weights), words)


class SelfAttentionPool(Aggregator):
    """Weigh each word by how well it answers a learned query.

        α = softmax_i qᵀ tanh(W h_i + b)

    Several queries give several weightings, whose vectors are concatenated (the
    structured self-attention of Lin et al., 2017).
    """

    recipe_name = "self-attention"
    heads_option = "queries"

    def __init__(
        self,
        dim: int,
        queries: int = 1,
        hidden: int = 50,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up both layers.

        Args:
            dim: Width of the states.
            queries: Number of weightings.
            hidden: Width of the hidden layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(dim)
        check_at_least(1, queries=queries, hidden=hidden)
        self.queries = queries
        self.hidden = hidden
        self.out_dim = dim * queries
        self.key = nn.Linear(dim, hidden, device=device, dtype=dtype)
        self.query = nn.Linear(hidden, queries, bias=False, device=device, dtype=dtype)

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        scores = project(self.query, project(self.key, words.states).tanh())
        return weighted_sum(words.softmax(scores), words)

    def extra_repr(self) -> str:
        return f"{self.dim}, queries={self.queries}, hidden={self.hidden}"


class IntraAttentionPool(Aggregator):
    """Weigh each word by how well it answers the text's mean (Liu et al., 2016).

    α = softmax_i wᵀ tanh(W h_i + V m),    m = mean_i h_i
    """

    recipe_name = "intra-attention"

    def __init__(
        self,
        dim: int,
        hidden: int = 50,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up the layers.

        Args:
            dim: Width of the states.
            hidden: Width of the hidden layer.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__(dim)
        check_at_least(1, hidden=hidden)
        self.hidden = hidden
        self.word = nn.Linear(dim, hidden, device=device, dtype=dtype)
        self.mean = nn.Linear(dim, hidden, bias=False, device=device, dtype=dtype)
        self.score = nn.Linear(hidden, 1, bias=False, device=device, dtype=dtype)

    def aggregate(self, words: Words, need_edges: bool) -> Pooled:
        mean = words.weigh(words.mean_weights()).squeeze(1)  # (B, D)
        asked = words.of_text(project(self.mean, mean))
        hidden = (project(self.word, words.states) + asked).tanh()
        return weighted_sum(words.softmax(project(self.score, hidden)), words)

    def extra_repr(self) -> str:
        return f"{self.dim}, hidden={self.hidden}"


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
