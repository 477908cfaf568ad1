"""The hierarchical model: a document is sentences, a sentence is words."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from perron.models.base import Classified, Classifier
from perron.models.parts import build_aggregator, build_encoder
from perron.models.settings import Kind, ModelConfig


class DocumentClassifier(Classifier):
    """Encode and pool the words of each sentence, then the sentences of each document.

    Each level has its own encoder and its own aggregator.
    """

    kind: ClassVar[Kind] = "document"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        parts = config.settings
        self.encoder = build_encoder(parts.encoder, self.embedding.dim)
        self.aggregator = build_aggregator(parts.aggregator, self.encoder.out_dim)
        self.sentence_encoder = build_encoder(
            parts.sentence_encoder or parts.encoder, self.aggregator.out_dim
        )
        self.sentence_aggregator = build_aggregator(
            parts.sentence_aggregator or parts.aggregator, self.sentence_encoder.out_dim
        )
        self.head = self._build_head(self.sentence_aggregator.out_dim)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        *,
        sentences: Tensor | Sequence[int],
        lengths: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> Classified:
        """Classify documents.

        Args:
            ids: (R, N), a row for each sentence, those of the first document first; or
                flat, (M), with lengths.
            mask: (R, N), True on words, which come first in each row.
            sentences: (B), the number of sentences of each document, R in all.
            lengths: (R), the number of words of each sentence, for flat ids.
            need_edges: return both graphs too, if the aggregators have them.
        """
        states = self.encoder(self.embedding(ids), mask, lengths=lengths)
        words = self.aggregator(states, mask, lengths=lengths, need_edges=need_edges)
        states = self.sentence_encoder(words.vector, lengths=sentences)
        document = self.sentence_aggregator(
            states, lengths=sentences, need_edges=need_edges
        )
        logits = self.head(document.vector)
        return Classified(logits, document.vector, (words, document))
