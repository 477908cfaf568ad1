"""Classifiers of texts, pairs of texts and documents, built from their settings."""

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from perron.arguments import bool_mask
from perron.errors import SettingsError
from perron.layers import ENCODERS, ClassifierHead, Encoder, WordEmbedding
from perron.models.config import (
    Files,
    HuggingFaceSettings,
    Kind,
    ModelConfig,
    PretrainedEncoderConfig,
    folder_files,
    load_weights,
    model_files,
    read_config,
    write_files,
)
from perron.pooling import AGGREGATORS, Aggregator, PoolingOutput


def build_encoder(
    settings: Any, embed_dim: int, pretrained: PretrainedEncoderConfig | None = None
) -> Encoder:
    """Make the encoder for vectors of this width; other settings are its arguments.

    Args:
        settings: of the encoder.
        embed_dim: width of the vectors.
        pretrained: what a pretrained model is; for ``hf`` alone.
    """
    if isinstance(settings, HuggingFaceSettings):
        assert pretrained is not None
        return _pretrained_encoder(settings, embed_dim, pretrained)
    return ENCODERS[settings.name](embed_dim, **settings.model_dump(exclude={"name"}))


def _pretrained_encoder(
    settings: HuggingFaceSettings, embed_dim: int, pretrained: PretrainedEncoderConfig
) -> Encoder:
    try:
        from perron.layers.pretrained import HuggingFaceEncoder
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"the encoder hf needs {error.name}: pip install 'perron[hf]'"
        ) from error
    return HuggingFaceEncoder(
        embed_dim,
        pretrained.config,
        len(pretrained.before),
        len(pretrained.after),
        settings.freeze,
    )


def build_aggregator(settings: Any, embed_dim: int) -> Aggregator:
    """Make the aggregator for states of this width."""
    return AGGREGATORS[settings.name](
        embed_dim, **settings.model_dump(exclude={"name"})
    )


class ClassifierOutput(NamedTuple):
    """What a classifier found.

    ``pooled`` has one entry for each pooling: the words of a text; the words of
    sentences, then the sentences of a document; the words of both texts of a pair.
    """

    logits: Float[Tensor, "b c"]
    vector: Float[Tensor, "b d"]
    pooled: tuple[PoolingOutput, ...]


class Classifier(nn.Module, ABC):
    """An embedding, whatever a subclass puts in between, and a head."""

    kind: ClassVar[Kind]
    vector_dim: int  # of what goes into the head

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.settings.kind != self.kind:
            raise ValueError(
                f"{type(self).__name__} is for kind = {self.kind!r}, but the settings "
                f"came with {config.settings.kind!r}"
            )
        self.config = config
        embedding, encoder = config.settings.embedding, config.settings.encoder
        frozen = isinstance(encoder, HuggingFaceSettings) and encoder.freeze
        self.embedding = WordEmbedding(
            config.vocab_size,
            embedding.embedding_dim,
            embedding.freeze or frozen,
            embedding.dropout,
        )

    def _build_head(self, embed_dim: int) -> ClassifierHead:
        head = self.config.settings.head
        self.vector_dim = embed_dim
        return ClassifierHead(
            embed_dim, len(self.config.labels), head.hidden_dim, head.dropout
        )

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model.safetensors and config.json, each of them atomically."""
        write_files(Path(folder), model_files(self.config, self.state_dict()))

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Classifier":
        """Read what `save_pretrained` wrote; runs no code from the folder."""
        return _load(cls, folder_files(Path(folder)))


class TextClassifier(Classifier):
    """Embedding, encoder, pooling, head."""

    kind: ClassVar[Kind] = "text"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        parts = config.settings
        self.encoder = build_encoder(
            parts.encoder, self.embedding.embedding_dim, config.pretrained
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
    ) -> ClassifierOutput:
        """Classify texts.

        Args:
            ids: (B, N); or flat, (M), with lengths.
            mask: True (or 1) on tokens, which come first in each row; (B, N).
            lengths: (B), the number of tokens of each text, for flat ids.
            need_edges: Return the word graph too, if the aggregator has one.
        """
        words = self.embedding(ids)
        states = self.encoder(words, mask, lengths=lengths)
        pooled = self.aggregator(states, mask, lengths=lengths, need_edges=need_edges)
        return ClassifierOutput(self.head(pooled.vector), pooled.vector, (pooled,))


class PairClassifier(Classifier):
    """One encoder and one aggregator for both texts, then [p; h; |p-h|; p∘h]."""

    kind: ClassVar[Kind] = "pair"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        parts = config.settings
        self.encoder = build_encoder(
            parts.encoder, self.embedding.embedding_dim, config.pretrained
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
    ) -> ClassifierOutput:
        """Classify pairs of texts.

        Args:
            ids: of the first texts (premises), (B, N); or flat, (M), with lengths.
            pair_ids: of the second texts (hypotheses), (B, N') or flat.
            mask: True (or 1) on tokens, which come first in each row; (B, N).
            pair_mask: True (or 1) on the tokens of the second texts; (B, N').
            lengths: (B), the number of tokens of each first text, for flat ids.
            pair_lengths: (B), the number of tokens of each second text.
            need_edges: Return both graphs too, if the aggregator has them.
        """
        first = self.pool(ids, mask, lengths, need_edges)
        second = self.pool(pair_ids, pair_mask, pair_lengths, need_edges)
        p, h = first.vector, second.vector
        vector = torch.cat([p, h, (p - h).abs(), p * h], -1)
        return ClassifierOutput(self.head(vector), vector, (first, second))

    def pool(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
    ) -> PoolingOutput:
        """Pool texts of either side; the arguments are those of `forward`."""
        states = self.encoder(self.embedding(ids), mask, lengths=lengths)
        return self.aggregator(states, mask, lengths=lengths, need_edges=need_edges)


class DocumentClassifier(Classifier):
    """Encode and pool the words of each sentence, then the sentences of each document.

    Each level has its own encoder and its own aggregator.
    """

    kind: ClassVar[Kind] = "document"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        parts = config.settings
        self.encoder = build_encoder(
            parts.encoder, self.embedding.embedding_dim, config.pretrained
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
    ) -> ClassifierOutput:
        """Classify documents.

        Args:
            ids: (R, N), a row for each sentence, those of the first document first; or
                flat, (M), with lengths; or padded twice, (B, S, N), which is the form
                that `torch.compile(fullgraph=True)` and `torch.export` want.
            mask: True (or 1) on tokens, which come first in each row; (R, N), or
                (B, S, N). A document padded twice ends with its last sentence that has
                tokens.
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
        return ClassifierOutput(logits, document.vector, (words, document))

    def _classify_padded(
        self, ids: Tensor, mask: Tensor, need_edges: bool
    ) -> ClassifierOutput:
        mask = bool_mask(mask)
        rows = mask.flatten(0, 1)  # a row for each sentence, padding too
        states = self.encoder(self.embedding(ids.flatten(0, 1)), rows)
        words = self.aggregator(states, rows, need_edges=need_edges)
        # Sentences up to the last with words: no later one has any.
        later = mask.any(-1).long().flip(1).cumsum(1).flip(1) > 0
        states = self.sentence_encoder(words.vector.unflatten(0, mask.shape[:2]), later)
        document = self.sentence_aggregator(states, later, need_edges=need_edges)
        logits = self.head(document.vector)
        return ClassifierOutput(logits, document.vector, (words, document))


CLASSIFIERS: dict[str, type[Classifier]] = {
    "text": TextClassifier,
    "document": DocumentClassifier,
    "pair": PairClassifier,
}


def build_model(config: ModelConfig) -> Classifier:
    """Make a classifier with random weights."""
    return CLASSIFIERS[config.settings.kind](config)


def load_model(source: str | Path | Files) -> Classifier:
    """Load a saved classifier of any kind.

    The state of torch's random number generators is left as it is.

    Args:
        source: Folder of the model, or its files.
    """
    files = source if isinstance(source, Mapping) else folder_files(Path(source))
    return _load(build_model, files)


def _load(build: Callable[[ModelConfig], Classifier], files: Files) -> Classifier:
    config = read_config(files)
    with torch.random.fork_rng(devices=[]):  # for weights that are replaced
        model = build(config)
    load_weights(model, files)
    return model.eval()
