"""The learned part of the word graph: a score for every pair of words."""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from perron.pooling.base import project, project_both
from perron.pooling.pair_scores import ACTIVATIONS, pair_scores
from perron.pooling.words import Words

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
