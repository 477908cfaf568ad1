"""Connectivity functions: the learned scores of the edges between words."""

import math
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from perron.pooling.base import project, project_both
from perron.pooling.pair_scores import ACTIVATIONS, pair_scores
from perron.pooling.words import Words

VALUES = ("states", "flow")


def check_activation(activation: str) -> None:
    """Refuse an activation that is not offered."""
    if activation not in ACTIVATIONS:
        options = " or ".join(f'"{name}"' for name in ACTIVATIONS)
        raise ValueError(f"activation must be {options}, but came as {activation!r}")


def check_options(
    connectivity: str,
    source_scale: float,
    edge_dropout: float,
    values: str,
    reach: int,
) -> None:
    """Refuse options of `CentralityPool` that are wrong or that change nothing."""
    if not 0 < source_scale < math.inf:
        raise ValueError(
            f"source_scale must be positive and finite, but came as {source_scale}"
        )
    if not 0 <= edge_dropout < 1:
        raise ValueError(
            f"edge_dropout must be at least 0 and below 1, but came as {edge_dropout}"
        )
    if reach < 0:
        raise ValueError(f"reach must be at least 0, but came as {reach}")
    if values not in VALUES:
        options = " or ".join(f'"{name}"' for name in VALUES)
        raise ValueError(f"values must be {options}, but came as {values!r}")
    if connectivity == "query" and source_scale != 1:
        raise ValueError(
            'source_scale must be 1 if connectivity is "query", whose edges do not '
            f"depend on where they come from, but came as {source_scale}"
        )
    if connectivity != "low_rank":
        return
    for name, value, usual in (
        ("edge_dropout", edge_dropout, 0),
        ("values", values, "states"),
        ("reach", reach, 0),
    ):
        if value != usual:
            raise ValueError(
                f'{name} must be {usual!r} if connectivity is "low_rank", which has no '
                f"matrix of edges, but came as {value!r}"
            )


Activation = Literal["tanh", "relu"]

_WEAK = 0.01  # what is left of an edge that is dropped


class Connectivity(nn.Module, ABC):
    """Scores s_ij of the edge from word j to word i, for each of several heads."""

    @abstractmethod
    def forward(self, words: Words) -> Float[Tensor, "b h n n"]:
        """Score the pairs of words; the lowest number where i is not one."""

    @abstractmethod
    def reset_parameters(self) -> None: ...


class MLPConnectivity(Connectivity):
    """The paper's network on a pair:  s_ij = w₂ᵀ act(W_a h_i + W_b h_j + b)."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        heads: int,
        activation: str,
        source_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.activation = activation
        self.source_scale = source_scale
        self.target = nn.Linear(dim, heads * hidden)
        self.source = nn.Linear(dim, heads * hidden, bias=False)
        self.score = nn.Parameter(torch.empty(heads, hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.target.reset_parameters()
        self.source.reset_parameters()
        scale_weights(self.source, self.source_scale)
        bound = 1 / math.sqrt(self.score.shape[-1])
        nn.init.uniform_(self.score, -bound, bound)

    def forward(self, words: Words) -> Float[Tensor, "b h n n"]:
        rows = words.states.flatten(0, -2)
        x = project_both(self.target, self.source, rows)
        x = x.unflatten(-1, (2, *self.score.shape))
        return pair_scores(x, self.score.to(x.dtype), words.mask, self.activation)


class BilinearConnectivity(Connectivity):
    """Scaled dot product:  s_ij = (W_a h_i)ᵀ (W_b h_j + b) / √K.

    A bias on the side of i would add the same to a whole column, which softmax removes.
    """

    def __init__(
        self, dim: int, hidden: int, heads: int, source_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.heads = heads
        self.source_scale = source_scale
        self.target = nn.Linear(dim, heads * hidden, bias=False)
        self.source = nn.Linear(dim, heads * hidden)
        scale_weights(self.source, source_scale)

    def reset_parameters(self) -> None:
        self.target.reset_parameters()
        self.source.reset_parameters()
        scale_weights(self.source, self.source_scale)

    def forward(self, words: Words) -> Float[Tensor, "b h n n"]:
        a, b = (
            words.padded(project(layer, words.states))
            .unflatten(-1, (self.heads, -1))
            .transpose(1, 2)
            for layer in (self.target, self.source)
        )
        return _targets_only(a @ b.mT / math.sqrt(a.shape[-1]), words.mask)


class QueryConnectivity(Connectivity):
    """Every word asks the same:  s_ij = qᵀ act(W h_i + b), whatever j.

    The columns of A are then all softmax(s), and so is α: self-attention.
    """

    def __init__(self, dim: int, hidden: int, heads: int, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.key = nn.Linear(dim, hidden)
        self.query = nn.Linear(hidden, heads, bias=False)

    def reset_parameters(self) -> None:
        self.key.reset_parameters()
        self.query.reset_parameters()

    def forward(self, words: Words) -> Float[Tensor, "b h n n"]:
        hidden = ACTIVATIONS[self.activation](project(self.key, words.states))
        scores = words.padded(project(self.query, hidden)).mT  # (B, H, N)
        scores = scores.unsqueeze(-1).expand(*scores.shape, scores.shape[-1])
        return _targets_only(scores, words.mask)


class DistanceBias(nn.Module):
    """Let the graph know the order of words:  s_ij + r_d,  d = i - j cut to ±reach.

    A learned number for each distance and head, zero at first. Words that are not there
    have no place, so that holes in a mask change no distance.
    """

    def __init__(self, heads: int, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.bias = nn.Parameter(torch.zeros(heads, 2 * reach + 1))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(
        self, scores: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b h n n"]:
        places = mask.long().cumsum(1)
        distance = places.unsqueeze(2) - places.unsqueeze(1)  # (B, N, N)
        rows = distance.clamp(-self.reach, self.reach) + self.reach
        # Not bias[:, rows]: its gradient is summed by all threads in any order.
        bias = F.embedding(rows, self.bias.to(scores.dtype).T).permute(0, 3, 1, 2)
        return _targets_only(scores + bias, mask)


def scale_weights(layer: nn.Linear, scale: float) -> None:
    """Multiply what a layer does to its input, and leave its bias as it is."""
    with torch.no_grad():
        layer.weight.mul_(scale)


def weaken_some(
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


def _targets_only(
    scores: Float[Tensor, "b h n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "b h n n"]:
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask[:, None, :, None], lowest)


_LARGEST_GRAPH = 2_000_000_000  # bytes


class Topics(NamedTuple):
    """How words choose topics and topics words; (…, H r), as in `Words`."""

    of_words: Tensor  # Q, each word's r shares sum to one
    to_words: Tensor  # P, each topic's shares of the words of a text sum to one


class LowRankConnectivity(nn.Module):
    """A graph of rank r: centrality in linear time, however long the text.

    Word j chooses one of r topics, and the topic chooses word i:

        A = P Qᵀ,  P_ia = softmax_i f_ia,  Q_ja = softmax_a (g_ja + log Σ_i exp f_ia)

    with two small networks  f = V act(W h + b)  and  g = V' act(W' h + b') + c. This is
    the graph A_ij ∝ φ_i·ψ_j of the positive features φ = exp f and ψ = exp g, with each
    column normalized. If γ is the Perron vector of the r-state chain G = QᵀP, then
    α = Pγ is that of A, because Aα = P QᵀP γ = P Gγ = Pγ. No n×n matrix is needed.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        heads: int,
        activation: str,
        rank: int,
        source_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.rank = rank
        self.activation = activation
        self.source_scale = source_scale
        self.target = nn.Linear(dim, hidden)
        self.to_words = nn.Linear(hidden, heads * rank, bias=False)  # softmax_i ends it
        self.source = nn.Linear(dim, hidden)
        self.of_words = nn.Linear(hidden, heads * rank)
        scale_weights(self.source, source_scale)

    def reset_parameters(self) -> None:
        for layer in (self.target, self.to_words, self.source, self.of_words):
            layer.reset_parameters()
        scale_weights(self.source, self.source_scale)

    def forward(self, words: Words) -> Topics:
        hidden = project_both(self.target, self.source, words.states)
        hidden = ACTIVATIONS[self.activation](hidden)
        target, source = hidden.chunk(2, -1)
        f, g = project(self.to_words, target), project(self.of_words, source)
        prior = words.logsumexp(f)
        chosen = (g + words.of_text(prior)).unflatten(-1, (self.heads, self.rank))
        return Topics(chosen.softmax(-1).flatten(-2), words.softmax(f))

    def chain(self, topics: Topics, words: Words) -> Float[Tensor, "b h r r"]:
        """Return G = QᵀP of each text and head."""
        heads = [
            words.weigh(of_words.contiguous(), to_words.contiguous())
            for of_words, to_words in zip(
                topics.of_words.split(self.rank, -1),
                topics.to_words.split(self.rank, -1),
                strict=True,
            )
        ]
        return torch.stack(heads, 1)

    def weights(
        self, topics: Topics, gamma: Float[Tensor, "b h r"], words: Words
    ) -> Tensor:
        """Return α = Pγ, (…, H)."""
        shares = topics.to_words * words.of_text(gamma.flatten(1))
        return shares.unflatten(-1, (self.heads, self.rank)).sum(-1)

    def edges(self, topics: Topics, words: Words) -> Float[Tensor, "b h n n"]:
        """Return A = PQᵀ, for looking at; zero where there is no word."""
        texts, n = words.mask.shape
        size = texts * self.heads * n * n * topics.of_words.element_size()
        if size > _LARGEST_GRAPH:
            raise ValueError(
                f"the graphs of {texts} texts of up to {n} words would take "
                f"{size / 1e9:.0f} GB; pool them without need_edges, or fewer at a time"
            )
        shape = (self.heads, self.rank)
        p, q = (
            words.padded(side).unflatten(-1, shape).transpose(1, 2)
            for side in (topics.to_words, topics.of_words)
        )
        return p @ q.mT
