"""The pair model: how does one text relate to another?"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from perron.models.base import Classified, Classifier
from perron.models.parts import build_aggregator, build_encoder
from perron.models.settings import Kind, ModelConfig
from perron.pooling import Pooled


class PairClassifier(Classifier):
    """One encoder and one aggregator for both texts, then [p; h; |p-h|; p∘h]."""

    kind: ClassVar[Kind] = "pair"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        parts = config.settings
        self.encoder = build_encoder(
            parts.encoder, self.embedding.dim, config.pretrained
        )
        self.aggregator = build_aggregator(parts.aggregator, self.encoder.out_dim)
        self.head = self._build_head(4 * self.aggregator.out_dim)

    def forward(
        self,
        ids: Tensor,
        pair_ids: Tensor,
        mask: Tensor | None = None,
        pair_mask: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        pair_lengths: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> Classified:
        """Classify pairs of texts.

        Args:
            ids: of the first texts (premises), (B, N); or flat, (M), with lengths.
            pair_ids: of the second texts (hypotheses), (B, N') or flat.
            mask: (B, N), True on words, which come first in each row.
            pair_mask: (B, N'), likewise.
            lengths: (B), the number of words of each first text, for flat ids.
            pair_lengths: (B), likewise of each second text.
            need_edges: return both graphs too, if the aggregator has them.
        """
        first = self.pool(ids, mask, lengths, need_edges)
        second = self.pool(pair_ids, pair_mask, pair_lengths, need_edges)
        p, h = first.vector, second.vector
        vector = torch.cat([p, h, (p - h).abs(), p * h], -1)
        return Classified(self.head(vector), vector, (first, second))

    def pool(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> Pooled:
        """Pool texts of either side; the arguments are those of `forward`."""
        states = self.encoder(self.embedding(ids), mask, lengths=lengths)
        return self.aggregator(states, mask, lengths=lengths, need_edges=need_edges)
