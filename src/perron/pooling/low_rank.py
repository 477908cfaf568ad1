"""A word graph of low rank: centrality in linear time, however long the text.

Word j chooses one of r topics, and the topic chooses word i:

    A = P Qᵀ,    P_ia = softmax_i f_ia,    Q_ja = softmax_a (g_ja + log Σ_i exp f_ia),

which is the graph A_ij ∝ φ_i·ψ_j of the positive features φ = exp f and ψ = exp g, each
column normalised. If γ is the Perron vector of the r-state chain G = QᵀP, then α = Pγ
is that of A, because Aα = P QᵀP γ = P Gγ = Pγ. No n×n matrix is ever needed.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.pooling.base import project, project_both
from perron.pooling.connectivity import scale_weights
from perron.pooling.pair_scores import ACTIVATIONS
from perron.pooling.words import Words

_LARGEST_GRAPH = 2_000_000_000  # bytes


class Topics(NamedTuple):
    """How words choose topics and topics words; (…, H r), as in `Words`."""

    of_words: Tensor  # Q, each word's r shares sum to one
    to_words: Tensor  # P, each topic's shares of the words of a text sum to one


class LowRankConnectivity(nn.Module):
    """Two small networks:  f = V act(W h + b),  g = V' act(W' h + b') + c."""

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
