"""Connectivity functions: the learned scores of the edges between words."""

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
from perron.registry import Registry, options_of

Activation = Literal["tanh", "relu"]
CONNECTIVITIES: Registry[type["Connectivity"]] = Registry("connectivity")
"""The connectivity functions by their names."""

_WEAK = 0.01  # what is left of an edge that is dropped


class Connectivity(nn.Module, ABC):
    """Scores s_ij of the edge from word j to word i, for each of several heads.

    A subclass writes `forward`. With a ``recipe_name`` of its own,
    ``CentralityPool(embed_dim, connectivity=recipe_name)`` builds it: its constructor takes
    ``embed_dim``, and by name those of the pool's options that it uses, which are ``heads``,
    ``hidden``, ``activation``, ``rank`` and ``source_init_gain``, and ``device`` and
    ``dtype``. All its other arguments are options of its own, which are given as
    ``connectivity={"name": recipe_name, option: value}``.

    Attributes:
        recipe_name: Name in recipes; None for a class that recipes cannot name.
        masks_scores: Whether `forward` returns the lowest number of the dtype where i
            is not a word. Otherwise the pool does that.
        is_factored: Whether the graph is a product of two thin matrices that `factors`
            returns, as in `LowRankConnectivity`. The pool then never builds the edges.
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
        """Score the pairs of words.

        Whatever acts on one word at a time acts on the last axis of ``tokens.states``.
        ``tokens.to_padded`` then brings the result to (B, N, …), zero where there is no
        word. The scores must be finite everywhere.
        """

    def reset_parameters(self) -> None:
        """Initialize all parameters again, as the constructor did."""
        reset_children(self)


def build_connectivity(
    given: str | Mapping[str, Any] | nn.Module,
    embed_dim: int,
    shared: Mapping[str, Any],
    device: Device = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Return the module that scores pairs.

    Args:
        given: The name of a connectivity, its name and own options, or the module.
        embed_dim: Width of the states.
        shared: Options of the pool, for a connectivity that has them too.
        device: Device of the parameters.
        dtype: Data type of the parameters.
    """
    if isinstance(given, nn.Module):
        return given
    own = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = own.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(
            "connectivity must be a name, a table with a name and options, or a "
            f"module, got {given!r}. The names are {CONNECTIVITIES.options()}."
        )
    kind = CONNECTIVITIES[name]
    options = options_of(kind)
    for key in own:
        if key in shared:
            raise ValueError(
                f"connectivity must not contain {key}, got {own[key]!r}. It is an "
                "option of CentralityPool itself."
            )
        if key not in options:
            known = ", ".join(option for option in options if option not in shared)
            raise ValueError(
                f"connectivity has no option {key!r}. Options of {name!r}: "
                f"{known or 'none'}."
            )
    own |= {key: value for key, value in shared.items() if key in options}
    factory = {"device": device, "dtype": dtype}
    if factory.keys() <= signature(kind.__init__).parameters.keys():
        return kind(embed_dim, **own, **factory)
    return kind(embed_dim, **own).to(device=device, dtype=dtype)


class MLPConnectivity(Connectivity):
    """The paper's network on a pair:  s_ij = w₂ᵀ act(W_a h_i + W_b h_j + b)."""

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
        self.target = nn.Linear(embed_dim, width, device=device, dtype=dtype)
        self.source = nn.Linear(
            embed_dim, width, bias=False, device=device, dtype=dtype
        )
        score = torch.empty(num_heads, hidden_dim, device=device, dtype=dtype)
        self.score = nn.Parameter(score)
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

    A bias on the side of i would add the same to a whole column, which softmax removes.
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
        self.target = nn.Linear(
            embed_dim, width, bias=False, device=device, dtype=dtype
        )
        self.source = nn.Linear(embed_dim, width, device=device, dtype=dtype)
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
    """Every word asks the same:  s_ij = qᵀ act(W h_i + b), whatever j.

    The columns of A are then all softmax(s), and so is α: self-attention.
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
        self.key = nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype)
        self.query = nn.Linear(
            hidden_dim, num_heads, bias=False, device=device, dtype=dtype
        )

    def forward(self, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        hidden_dim = ACTIVATIONS[self.activation](project(self.key, tokens.states))
        scores = tokens.to_padded(project(self.query, hidden_dim)).mT  # (B, H, N)
        return scores.unsqueeze(-1).expand(*scores.shape, scores.shape[-1])


class DistanceBias(nn.Module):
    """Let the graph know the order of words:  s_ij + r_d,  d = i - j cut to ±max_relative_distance.

    A learned number for each distance and head, zero at first. Words that are not there
    have no place, so that holes in a mask change no distance.
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
        bias = torch.zeros(
            num_heads, 2 * max_relative_distance + 1, device=device, dtype=dtype
        )
        self.bias = nn.Parameter(bias)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(
        self, scores: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b h n n"]:
        places = mask.long().cumsum(1)
        distance = places.unsqueeze(2) - places.unsqueeze(1)  # (B, N, N)
        rows = (
            distance.clamp(-self.max_relative_distance, self.max_relative_distance)
            + self.max_relative_distance
        )
        # Not bias[:, rows]: its gradient is summed by all threads in any order.
        bias = F.embedding(rows, self.bias.to(scores.dtype).T).permute(0, 3, 1, 2)
        return scores + bias


def scale_weights(layer: nn.Linear, scale: float) -> None:
    """Multiply what a layer does to its input, and leave its bias as it is."""
    with torch.no_grad():
        layer.weight.mul_(scale)


def dropout_edges(
    edges: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"], share: float
) -> Float[Tensor, "b h n n"]:
    """Leave a hundredth of each edge with this probability, and columns of sum one.

    An edge is never removed: from each word there stays a way to every other, and so
    there is one stationary distribution. Columns of padding become zero.
    """
    weak = torch.rand_like(edges) < share
    edges = torch.where(weak, _WEAK * edges, edges)
    edges = edges.masked_fill(~mask[:, None, None, :], 0)
    total = edges.sum(-2, keepdim=True)
    return edges / torch.where(total == 0, 1, total)


def mask_scores(
    scores: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "b h n n"]:
    """Put the lowest number of the dtype where i is not a word."""
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask[:, None, :, None], lowest)


_LARGEST_GRAPH = 2_000_000_000  # bytes


class Topics(NamedTuple):
    """How words choose topics and topics choose words; (…, H r), as in `TokenBatch`."""

    of_words: Tensor  # Q, each word's r shares sum to one
    to_words: Tensor  # P, each topic's shares of the words of a text sum to one


class LowRankConnectivity(Connectivity):
    """A graph of rank r: centrality in linear time, however long the text.

    Word j chooses one of r topics, and the topic chooses word i:

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
        self.target = nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype)
        self.to_words = nn.Linear(  # a bias would be removed by softmax_i
            hidden_dim, topics, bias=False, device=device, dtype=dtype
        )
        self.source = nn.Linear(embed_dim, hidden_dim, device=device, dtype=dtype)
        self.of_words = nn.Linear(hidden_dim, topics, device=device, dtype=dtype)
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
        hidden_dim = project_pair(self.target, self.source, tokens.states)
        hidden_dim = ACTIVATIONS[self.activation](hidden_dim)
        target, source = hidden_dim.chunk(2, -1)
        f, g = project(self.to_words, target), project(self.of_words, source)
        prior = tokens.logsumexp(f)
        chosen = (g + tokens.broadcast(prior)).unflatten(
            -1, (self.num_heads, self.rank)
        )
        return Topics(chosen.softmax(-1).flatten(-2), tokens.softmax(f))

    def chain(self, topics: Topics, tokens: TokenBatch) -> Float[Tensor, "b h r r"]:
        """Return G = QᵀP of each text and head."""
        num_heads = [
            tokens.weighted_sum(of_words.contiguous(), to_words.contiguous())
            for of_words, to_words in zip(
                topics.of_words.split(self.rank, -1),
                topics.to_words.split(self.rank, -1),
                strict=True,
            )
        ]
        return torch.stack(num_heads, 1)

    def weights(
        self, topics: Topics, gamma: Float[Tensor, "b h r"], tokens: TokenBatch
    ) -> Tensor:
        """Return α = Pγ, (…, H)."""
        shares = topics.to_words * tokens.broadcast(gamma.flatten(1))
        return shares.unflatten(-1, (self.num_heads, self.rank)).sum(-1)

    def edges(self, topics: Topics, tokens: TokenBatch) -> Float[Tensor, "b h n n"]:
        """Return A = PQᵀ, for looking at; zero where there is no word."""
        texts, n = tokens.mask.shape
        size = texts * self.num_heads * n * n * topics.of_words.element_size()
        if size > _LARGEST_GRAPH:
            raise ValueError(
                f"the graphs of {texts} texts of up to {n} words would take "
                f"{size / 1e9:.0f} GB; pool them without need_edges, or fewer at a time"
            )
        shape = (self.num_heads, self.rank)
        p, q = (
            tokens.to_padded(side).unflatten(-1, shape).transpose(1, 2)
            for side in (topics.to_words, topics.of_words)
        )
        return p @ q.mT
