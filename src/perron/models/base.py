"""What all classifiers share: their configuration, and how they are saved."""

from abc import ABC
from pathlib import Path
from typing import ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from perron.layers import ClassifierHead, WordEmbedding
from perron.models.saving import load_weights, read_config, save_folder
from perron.models.settings import HuggingFaceSettings, Kind, ModelConfig
from perron.pooling import Pooled


class Classified(NamedTuple):
    """What a classifier found.

    ``pooled`` has one entry for each pooling: the words of a text; the words of
    sentences, then the sentences of a document; the words of both texts of a pair.
    """

    logits: Float[Tensor, "b c"]
    vector: Float[Tensor, "b d"]
    pooled: tuple[Pooled, ...]


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
            config.vocabulary,
            embedding.dim,
            embedding.freeze or frozen,
            embedding.dropout,
        )

    def _build_head(self, dim: int) -> ClassifierHead:
        head = self.config.settings.head
        self.vector_dim = dim
        return ClassifierHead(dim, len(self.config.labels), head.hidden, head.dropout)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors, whole or not at all."""
        save_folder(Path(folder), self.config, self.state_dict())

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Classifier":
        """Read what `save_pretrained` wrote; runs no code from the folder."""
        model = cls(read_config(Path(folder)))
        load_weights(model, Path(folder))
        return model.eval()
