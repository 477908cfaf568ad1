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
        self.encoder = build_encoder(
            parts.encoder, self.embedding.dim, config.pretrained
        )
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
        sentences: Tensor | Sequence[int] | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> Classified:
        """Classify documents.

        Args:
            ids: (R, N), a row for each sentence, those of the first document first; or
                flat, (M), with lengths; or padded twice, (B, S, N), which is the form
                that `torch.compile(fullgraph=True)` and `torch.export` want.
            mask: (R, N), or (B, S, N), True on words, which come first in each row. A
                document padded twice ends with its last sentence that has words.
            sentences: (B), the number of sentences of each document, R in all; not
                for documents padded twice.
            lengths: (R), the number of words of each sentence, for flat ids.
            need_edges: return both graphs too, if the aggregators have them.
        """
        if ids.ndim == 3:
            if mask is None or sentences is not None or lengths is not None:
                raise ValueError("ids (B, S, N) go with a mask, and with nothing else")
            return self._classify_padded(ids, mask, need_edges)
        if sentences is None:
            raise ValueError(
                f"ids came as {tuple(ids.shape)}: say how many sentences each "
                "document has, or give ids (B, S, N)"
            )
        states = self.encoder(self.embedding(ids), mask, lengths=lengths)
        words = self.aggregator(states, mask, lengths=lengths, need_edges=need_edges)
        states = self.sentence_encoder(words.vector, lengths=sentences)
        document = self.sentence_aggregator(
            states, lengths=sentences, need_edges=need_edges
        )
        logits = self.head(document.vector)
        return Classified(logits, document.vector, (words, document))

    def _classify_padded(
        self, ids: Tensor, mask: Tensor, need_edges: bool
    ) -> Classified:
        rows = mask.flatten(0, 1)  # a row for each sentence, padding too
        states = self.encoder(self.embedding(ids.flatten(0, 1)), rows)
        words = self.aggregator(states, rows, need_edges=need_edges)
        # Sentences up to the last with words: no later one has any.
        later = mask.any(-1).long().flip(1).cumsum(1).flip(1) > 0
        states = self.sentence_encoder(words.vector.unflatten(0, mask.shape[:2]), later)
        document = self.sentence_aggregator(states, later, need_edges=need_edges)
        logits = self.head(document.vector)
        return Classified(logits, document.vector, (words, document))
