"""Connectivity functions, which compute learned scores of the edges between tokens."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from inspect import signature
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from perron.arguments import Device, check_choice
from perron.kernels.pair_scores_torch import ACTIVATIONS
from perron.pooling.base import project, project_pair, reset_children
from perron.pooling.pair_scores import pair_scores
from perron.pooling.tokens import TokenBatch
from perron.registry import Registry, component_options

Activation = Literal["tanh", "relu"]
CONNECTIVITIES: Registry[type["Connectivity"]] = Registry("connectivity")
"""Connectivity functions by name."""

_DROPPED_EDGE_SCALE = 0.01


class Connectivity(nn.Module, ABC):
    """Base class for functions that score the edge from token j to token i.

    A subclass implements `forward`. If it defines a ``recipe_name``,
    ``CentralityPool(embed_dim, connectivity=recipe_name)`` creates it. Its constructor
    receives ``embed_dim`` and those options of the pool that it has parameters for:
    ``num_heads``, ``hidden_dim``, ``activation``, ``rank``, ``source_init_gain``,
    ``device`` and ``dtype``. Other parameters are options of the connectivity, set with
    ``connectivity={"name": recipe_name, option: value}``.

    Attributes:
        recipe_name: Name in recipes. None if recipes cannot refer to the class.
        masks_scores: Whether `forward` sets scores of padding i to the minimum of the
            dtype. If False, the pool does.
        is_factored: Whether the graph is a product of two thin matrices returned by
            `factors`, as in `LowRankConnectivity`. The pool never builds the edges.
    """

    recipe_name: ClassVar[str | None] = None
    masks_scores: ClassVar[bool] = False
    is_factored: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("recipe_name") is not None:
            CONNECTIVITIES.register(cls.__dict__["recipe_name"], cls)

    @abstractmethod
    def forward(self, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        """Score all pairs of tokens.

        Apply per-token operations to the last axis of ``tokens.states``, then use
        ``tokens.to_padded`` to convert the result to (B, N, …), with zeros as padding.
        The scores must be finite everywhere.
        """

    def reset_parameters(self) -> None:
        """Reinitialize all parameters as in the constructor."""
        reset_children(self)


def build_connectivity(
    spec: str | Mapping[str, Any] | nn.Module,
    embed_dim: int,
    shared: Mapping[str, Any],
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Return the module that scores pairs.

    Args:
        spec: Name, table with a name and options, or module.
        embed_dim: Dimension of the states.
        shared: Options of the pool, passed on if the connectivity has them too.
        device: Device of the parameters.
        dtype: Data type of the parameters.
    """
    if isinstance(spec, nn.Module):
        return spec
    own = dict(spec) if isinstance(spec, Mapping) else {"name": spec}
    name = own.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(
            "connectivity must be a name, a table with a name and options, or a "
            f"module, got {spec!r}. Valid names are {CONNECTIVITIES.options()}."
        )
    cls = CONNECTIVITIES[name]
    options = component_options(cls)
    for key in own:
        if key in shared:
            raise ValueError(
                f"connectivity must not contain {key}, got {own[key]!r}. Pass it to "
                "CentralityPool instead."
            )
        if key not in options:
            known = ", ".join(option for option in options if option not in shared)
            raise ValueError(
                f"connectivity has no option {key!r}. Options of {name!r}: "
                f"{known or 'none'}."
            )
    own |= {key: value for key, value in shared.items() if key in options}
    factory = {"device": device, "dtype": dtype}
    if factory.keys() <= signature(cls.__init__).parameters.keys():
        return cls(embed_dim, **own, **factory)
    return cls(embed_dim, **own).to(device=device, dtype=dtype)


class MLPConnectivity(Connectivity):
    """Two-layer network of the paper:  s_ij = w₂ᵀ act(W_a h_i + W_b h_j + b)."""

    recipe_name = "mlp"
    masks_scores = True

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int = 50,
        num_heads: int = 1,
        activation: Activation = "tanh",
        source_init_gain: float = 1.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_choice(ACTIVATIONS, activation=activation)
        self.num_heads = num_heads
        self.activation = activation
        self.source_init_gain = source_init_gain
        width = num_heads * hidden_dim
        factory: Any = {"device": device, "dtype": dtype}
        self.target = nn.Linear(embed_dim, width, **factory)
        self.source = nn.Linear(embed_dim, width, bias=False, **factory)
        self.score = nn.Parameter(torch.empty(num_heads, hidden_dim, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.target.reset_parameters()
        self.source.reset_parameters()
        scale_weights(self.source, self.source_init_gain)
        bound = 1 / math.sqrt(self.score.shape[-1])
        nn.init.uniform_(self.score, -bound, bound)

    def forward(self, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        rows = tokens.states.flatten(0, -2)
        x = project_pair(self.target, self.source, rows)
        x = x.unflatten(-1, (2, *self.score.shape))
        return pair_scores(x, self.score.to(x.dtype), tokens.mask, self.activation)


class BilinearConnectivity(Connectivity):
    """Scaled dot product:  s_ij = (W_a h_i)ᵀ (W_b h_j + b) / √K.

    A bias on the other side would add a constant to each column, which softmax ignores.
    """

    recipe_name = "bilinear"

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int = 50,
        num_heads: int = 1,
        source_init_gain: float = 1.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.source_init_gain = source_init_gain
        width = num_heads * hidden_dim
        factory: Any = {"device": device, "dtype": dtype}
        self.target = nn.Linear(embed_dim, width, bias=False, **factory)
        self.source = nn.Linear(embed_dim, width, **factory)
        scale_weights(self.source, source_init_gain)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        scale_weights(self.source, self.source_init_gain)

    def forward(self, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        a, b = (
            tokens.to_padded(project(layer, tokens.states))
            .unflatten(-1, (self.num_heads, -1))
            .transpose(1, 2)
            for layer in (self.target, self.source)
        )
        return a @ b.mT / math.sqrt(a.shape[-1])


class QueryConnectivity(Connectivity):
    """Scores that do not depend on j:  s_ij = qᵀ act(W h_i + b).

    All columns of A are softmax(s), and so is α. This is self-attention.
    """

    recipe_name = "query"

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int = 50,
        num_heads: int = 1,
        activation: Activation = "tanh",
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_choice(ACTIVATIONS, activation=activation)
        self.num_heads = num_heads
        self.activation = activation
        factory: Any = {"device": device, "dtype": dtype}
        self.key = nn.Linear(embed_dim, hidden_dim, **factory)
        self.query = nn.Linear(hidden_dim, num_heads, bias=False, **factory)

    def forward(self, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        hidden = ACTIVATIONS[self.activation](project(self.key, tokens.states))
        scores = tokens.to_padded(project(self.query, hidden)).mT  # (B, H, N)
        return scores.unsqueeze(-1).expand(*scores.shape, scores.shape[-1])


class DistanceBias(nn.Module):
    """Relative position bias:  s_ij + r_d,  d = clamp(i - j, ±max_relative_distance).

    r is learned per distance and head, and initialized to zero. Padding does not count
    as a position, so gaps in a mask do not change distances.
    """

    def __init__(
        self,
        num_heads: int,
        max_relative_distance: int,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.max_relative_distance = max_relative_distance
        num_distances = 2 * max_relative_distance + 1
        bias = torch.zeros(num_heads, num_distances, device=device, dtype=dtype)
        self.bias = nn.Parameter(bias)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(
        self, scores: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b h n n"]:
        positions = mask.long().cumsum(1)
        distance = positions.unsqueeze(2) - positions.unsqueeze(1)  # (B, N, N)
        limit = self.max_relative_distance
        index = distance.clamp(-limit, limit) + limit
        # Unlike that of bias[:, index], this gradient is deterministic.
        bias = F.embedding(index, self.bias.to(scores.dtype).T).permute(0, 3, 1, 2)
        return scores + bias


def scale_weights(layer: nn.Linear, gain: float) -> None:
    """Multiply the weights of a layer, but not its bias, by a factor."""
    with torch.no_grad():
        layer.weight.mul_(gain)


def dropout_edges(
    edges: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"], p: float
) -> Float[Tensor, "b h n n"]:
    """Scale each edge by 0.01 with probability ``p``, then renormalize the columns.

    Edges are never removed entirely, which keeps the graph strongly connected and its
    stationary distribution unique. Columns of padding become zero.
    """
    dropped = torch.rand_like(edges) < p
    edges = torch.where(dropped, _DROPPED_EDGE_SCALE * edges, edges)
    edges = edges.masked_fill(~mask[:, None, None, :], 0)
    total = edges.sum(-2, keepdim=True)
    return edges / torch.where(total == 0, 1, total)


def mask_scores(
    scores: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "b h n n"]:
    """Set the scores of padding i to the minimum of the dtype."""
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask[:, None, :, None], lowest)


_MAX_GRAPH_BYTES = 2_000_000_000


class Topics(NamedTuple):
    """Transition probabilities between tokens and topics, (…, H r)."""

    token_to_topic: Tensor  # Q, sums to one over the topics of a token
    topic_to_token: Tensor  # P, sums to one over the tokens of a text


class LowRankConnectivity(Connectivity):
    """Graph of rank r, whose centrality takes time linear in the length of the text.

    Token j selects one of r topics, and the topic selects token i:

        A = P Qᵀ,  P_ia = softmax_i f_ia,  Q_ja = softmax_a (g_ja + log Σ_i exp f_ia)

    with two small networks  f = V act(W h + b)  and  g = V' act(W' h + b') + c. This is
    the graph A_ij ∝ φ_i·ψ_j of the positive features φ = exp f and ψ = exp g, with each
    column normalized. If γ is the Perron vector of the r-state chain G = QᵀP, then
    α = Pγ is that of A, because Aα = P QᵀP γ = P Gγ = Pγ. No n×n matrix is needed.
    """

    recipe_name = "low_rank"
    is_factored = True

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int = 50,
        num_heads: int = 1,
        activation: Activation = "tanh",
        rank: int = 32,
        source_init_gain: float = 1.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_choice(ACTIVATIONS, activation=activation)
        self.num_heads = num_heads
        self.rank = rank
        self.activation = activation
        self.source_init_gain = source_init_gain
        topics = num_heads * rank
        factory: Any = {"device": device, "dtype": dtype}
        self.target = nn.Linear(embed_dim, hidden_dim, **factory)
        # softmax_i would ignore a bias.
        self.to_words = nn.Linear(hidden_dim, topics, bias=False, **factory)
        self.source = nn.Linear(embed_dim, hidden_dim, **factory)
        self.of_words = nn.Linear(hidden_dim, topics, **factory)
        scale_weights(self.source, source_init_gain)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        scale_weights(self.source, self.source_init_gain)

    def forward(self, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        """Return log A_ij, the scores whose softmax over i is the graph."""
        edges = self.edges(self.factors(tokens), tokens)
        return edges.clamp(min=torch.finfo(edges.dtype).tiny).log()

    def factors(self, tokens: TokenBatch) -> Topics:
        """Return P and Q."""
        hidden = project_pair(self.target, self.source, tokens.states)
        target, source = ACTIVATIONS[self.activation](hidden).chunk(2, -1)
        f, g = project(self.to_words, target), project(self.of_words, source)
        logits = g + tokens.broadcast(tokens.logsumexp(f))
        logits = logits.unflatten(-1, (self.num_heads, self.rank))
        return Topics(logits.softmax(-1).flatten(-2), tokens.softmax(f))

    def chain(self, topics: Topics, tokens: TokenBatch) -> Float[Tensor, "b h r r"]:
        """Return G = QᵀP of each text and head."""
        q = topics.token_to_topic.split(self.rank, -1)
        p = topics.topic_to_token.split(self.rank, -1)
        chains = [
            tokens.weighted_sum(q_head.contiguous(), p_head.contiguous())
            for q_head, p_head in zip(q, p, strict=True)
        ]
        return torch.stack(chains, 1)

    def weights(
        self, topics: Topics, gamma: Float[Tensor, "b h r"], tokens: TokenBatch
    ) -> Tensor:
        """Return α = Pγ, (…, H)."""
        products = topics.topic_to_token * tokens.broadcast(gamma.flatten(1))
        return products.unflatten(-1, (self.num_heads, self.rank)).sum(-1)

    def edges(self, topics: Topics, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        """Return A = PQᵀ for inspection, with zeros as padding."""
        texts, n = tokens.mask.shape
        size = texts * self.num_heads * n * n * topics.token_to_topic.element_size()
        if size > _MAX_GRAPH_BYTES:
            raise ValueError(
                f"The graphs of {texts} texts of up to {n} tokens would take "
                f"{size / 1e9:.0f} GB. Pool them without need_edges or in smaller "
                "batches."
            )
        shape = (self.num_heads, self.rank)
        p, q = (
            tokens.to_padded(side).unflatten(-1, shape).transpose(1, 2)
            for side in (topics.topic_to_token, topics.token_to_topic)
        )
        return p @ q.mT
