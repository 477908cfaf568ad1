"""Classifiers for texts, documents and pairs of texts."""

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
    """Build an encoder from its settings.

    Args:
        settings: Settings of the encoder.
        embed_dim: Width of the input vectors.
        pretrained: Configuration of the pretrained model, for the encoder ``hf``.
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
            f"encoder hf requires {error.name}. Install it with: pip install "
            "'perron[hf]'"
        ) from error
    return HuggingFaceEncoder(
        embed_dim,
        pretrained.config,
        len(pretrained.before),
        len(pretrained.after),
        settings.freeze,
        settings.layers,
        settings.dropout,
    )


def build_aggregator(settings: Any, embed_dim: int) -> Aggregator:
    """Build an aggregator for states of width `embed_dim` from its settings."""
    return AGGREGATORS[settings.name](
        embed_dim, **settings.model_dump(exclude={"name"})
    )


class ClassifierOutput(NamedTuple):
    """Output of a classifier.

    Attributes:
        logits: Logits of the classes.
        vector: Input of the classifier head.
        pooled: Output of each call of an aggregator. A text has one. A document has
            two: one for the tokens of its sentences, one for the sentences. A pair has
            one per text.
    """

    logits: Float[Tensor, "b c"]
    vector: Float[Tensor, "b d"]
    pooled: tuple[PoolingOutput, ...]


class Classifier(nn.Module, ABC):
    """Base class for classifiers, which have an embedding and a head.

    Attributes:
        kind: Kind of input.
        vector_dim: Width of the input of the head.
        config: Configuration of the model.
    """

    kind: ClassVar[Kind]
    vector_dim: int
    head: ClassifierHead

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.settings.kind != self.kind:
            raise ValueError(
                f"kind must be {self.kind!r} for {type(self).__name__}, got "
                f"{config.settings.kind!r}."
            )
        self.config = config
        embedding = config.settings.embedding
        self.embedding = WordEmbedding(
            config.vocab_size,
            embedding.embedding_dim,
            embedding.freeze or self.has_frozen_encoder,
            # Dropout would feed a frozen encoder with inputs it was never trained on.
            0.0 if self.has_frozen_encoder else embedding.dropout,
        )

    @property
    def has_frozen_encoder(self) -> bool:
        """Whether the encoder is pretrained and frozen, so states can be cached."""
        encoder = self.config.settings.encoder
        return isinstance(encoder, HuggingFaceSettings) and encoder.freeze

    def _encode(
        self,
        ids: Tensor | None,
        mask: Tensor | None,
        lengths: Tensor | Sequence[int] | None,
        states: Tensor | None,
    ) -> Tensor:
        """Return the states of the tokens, from their ids or from cached states."""
        encoder: Any = self.encoder
        if states is not None:
            if ids is not None or lengths is None or not self.has_frozen_encoder:
                raise ValueError(
                    "states requires lengths and a frozen pretrained encoder, and "
                    "cannot be combined with ids."
                )
            return encoder.combine(states)
        if ids is None:
            raise ValueError("ids is required unless states is passed.")
        return encoder(self.embedding(ids), mask, lengths=lengths)

    def _build_head(self, embed_dim: int) -> ClassifierHead:
        head = self.config.settings.head
        self.vector_dim = embed_dim
        built = ClassifierHead(
            embed_dim, len(self.config.labels), head.hidden_dim, head.dropout
        )
        built.temperature = self.config.temperature
        return built

    def set_temperature(self, temperature: float) -> None:
        """Divide the logits by a temperature, which is saved with the model.

        It changes the probabilities, but not the predicted classes.
        """
        self.config = self.config.model_copy(update={"temperature": temperature})
        self.head.temperature = temperature

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model.safetensors and config.json, each atomically."""
        write_files(Path(folder), model_files(self.config, self.state_dict()))

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Classifier":
        """Load a model saved by `save_pretrained`. No code in the folder is run."""
        return _load(cls, folder_files(Path(folder)))


class TextClassifier(Classifier):
    """Classifier for single texts: embedding, encoder, aggregator, head."""

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
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        states: Tensor | None = None,
        need_edges: bool = False,
    ) -> ClassifierOutput:
        """Classify texts.

        Args:
            ids: Token ids, padded (B, N), or flat (M) with lengths.
            mask: True (or 1) for tokens, which come first in each row; (B, N).
            lengths: Number of tokens in each text, (B), for flat ids.
            states: Layer states of a frozen encoder, flat (M, L, H) with lengths,
                instead of ids; see `HuggingFaceEncoder.layer_states`.
            need_edges: Whether to return the word graph, if the aggregator has one.
        """
        states = self._encode(ids, mask, lengths, states)
        pooled = self.aggregator(states, mask, lengths=lengths, need_edges=need_edges)
        return ClassifierOutput(self.head(pooled.vector), pooled.vector, (pooled,))


class PairClassifier(Classifier):
    """Classifier for pairs of texts, from the features [p; h; |p - h|; p ∘ h].

    Both texts share the encoder and the aggregator.
    """

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
        ids: Tensor | None = None,
        pair_ids: Tensor | None = None,
        mask: Tensor | None = None,
        pair_mask: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        pair_lengths: Tensor | Sequence[int] | None = None,
        states: Tensor | None = None,
        pair_states: Tensor | None = None,
        need_edges: bool = False,
    ) -> ClassifierOutput:
        """Classify pairs of texts.

        Args:
            ids: Token ids of the first texts (premises), padded (B, N), or flat (M)
                with lengths.
            pair_ids: Token ids of the second texts (hypotheses), (B, N') or flat.
            mask: True (or 1) for tokens, which come first in each row; (B, N).
            pair_mask: True (or 1) for the tokens of the second texts; (B, N').
            lengths: Number of tokens in each first text, (B), for flat ids.
            pair_lengths: Number of tokens in each second text, (B), for flat ids.
            states: Layer states of a frozen encoder for the first texts, flat
                (M, L, H) with lengths, instead of ids.
            pair_states: Layer states for the second texts, instead of pair_ids.
            need_edges: Whether to return both word graphs, if the aggregator has them.
        """
        first = self.pool(ids, mask, lengths, need_edges, states)
        second = self.pool(pair_ids, pair_mask, pair_lengths, need_edges, pair_states)
        p, h = first.vector, second.vector
        vector = torch.cat([p, h, (p - h).abs(), p * h], -1)
        return ClassifierOutput(self.head(vector), vector, (first, second))

    def pool(
        self,
        ids: Tensor | None,
        mask: Tensor | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        need_edges: bool = False,
        states: Tensor | None = None,
    ) -> PoolingOutput:
        """Encode and pool the texts of one side; see `forward` for the arguments."""
        states = self._encode(ids, mask, lengths, states)
        return self.aggregator(states, mask, lengths=lengths, need_edges=need_edges)


class DocumentClassifier(Classifier):
    """Hierarchical classifier for documents, from words to sentences to the document.

    Each level has its own encoder and aggregator.
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
        ids: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        sentences: Tensor | Sequence[int] | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        states: Tensor | None = None,
        need_edges: bool = False,
    ) -> ClassifierOutput:
        """Classify documents.

        Args:
            ids: Token ids, (R, N) with one row per sentence, in the order of the
                documents; or flat (M) with lengths; or padded documents (B, S, N), as
                required by `torch.compile(fullgraph=True)` and `torch.export`.
            mask: True (or 1) for tokens, which come first in each row; (R, N) or
                (B, S, N). A padded document ends with its last nonempty sentence.
            sentences: Number of sentences in each document, (B), R in total. Not for
                ids of shape (B, S, N).
            lengths: Number of tokens in each sentence, (R), for flat ids.
            states: Layer states of a frozen encoder, flat (M, L, H) with lengths,
                instead of ids.
            need_edges: Whether to return both graphs, if the aggregators have them.
        """
        if ids is not None and ids.ndim == 3:
            if mask is None or sentences is not None or lengths is not None:
                raise ValueError(
                    "ids of shape (B, S, N) require a mask, and cannot be combined "
                    "with sentences or lengths."
                )
            return self._classify_padded(ids, mask, need_edges)
        if sentences is None:
            shape = "" if ids is None else f" for ids of shape {tuple(ids.shape)}"
            raise ValueError(
                f"sentences is required{shape}. Pass it, or pass ids of shape "
                "(B, S, N)."
            )
        states = self._encode(ids, mask, lengths, states)
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
        rows = mask.flatten(0, 1)  # one row per sentence, including padding
        states = self.encoder(self.embedding(ids.flatten(0, 1)), rows)
        words = self.aggregator(states, rows, need_edges=need_edges)
        # True up to the last nonempty sentence of each document.
        sentence_mask = mask.any(-1).long().flip(1).cumsum(1).flip(1) > 0
        vectors = words.vector.unflatten(0, mask.shape[:2])
        states = self.sentence_encoder(vectors, sentence_mask)
        document = self.sentence_aggregator(
            states, sentence_mask, need_edges=need_edges
        )
        logits = self.head(document.vector)
        return ClassifierOutput(logits, document.vector, (words, document))


CLASSIFIERS: dict[str, type[Classifier]] = {
    "text": TextClassifier,
    "document": DocumentClassifier,
    "pair": PairClassifier,
}


def build_model(config: ModelConfig) -> Classifier:
    """Build a classifier with random weights."""
    return CLASSIFIERS[config.settings.kind](config)


def load_model(source: str | Path | Files) -> Classifier:
    """Load a saved classifier of any kind.

    The random state of torch is not changed.

    Args:
        source: Folder of the model, or the content or path of each of its files.
    """
    files = source if isinstance(source, Mapping) else folder_files(Path(source))
    return _load(build_model, files)


def _load(build: Callable[[ModelConfig], Classifier], files: Files) -> Classifier:
    config = read_config(files)
    with torch.random.fork_rng(devices=[]):  # the initial weights are replaced
        model = build(config)
    load_weights(model, files)
    return model.eval()
