"""The flat model: a text is one sequence of words."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from perron.models.base import Classified, Classifier
from perron.models.parts import build_aggregator, build_encoder
from perron.models.settings import Kind, ModelConfig


class TextClassifier(Classifier):
    """Embedding, encoder, pooling, head."""

    kind: ClassVar[Kind] = "text"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        parts = config.settings
        self.encoder = build_encoder(
            parts.encoder, self.embedding.dim, config.pretrained
        )
        self.aggregator = build_aggregator(parts.aggregator, self.encoder.out_dim)
        self.head = self._build_head(self.aggregator.out_dim)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> Classified:
        """Classify texts.

        Args:
            ids: (B, N); or flat, (M), with lengths.
            mask: (B, N), True on words, which come first in each row.
            lengths: (B), the number of words of each text, for flat ids.
            need_edges: return the word graph too, if the aggregator has one.
        """
        words = self.embedding(ids)
        states = self.encoder(words, mask, lengths=lengths)
        pooled = self.aggregator(states, mask, lengths=lengths, need_edges=need_edges)
        return Classified(self.head(pooled.vector), pooled.vector, (pooled,))
