"""Weights of a pretrained encoder, on their way into a classifier."""

from typing import Any

from torch import Tensor

from perron.layers.hugging_face import HuggingFaceEncoder, read_encoder
from perron.models.base import Classifier
from perron.models.settings import PretrainedConfig


class PretrainedWeights:
    """The layers of a model of `transformers`, and its vectors of subwords.

    Attributes:
        content: its configuration, as in its config.json.
        vectors: of its subwords, (V, E).
    """

    content: dict[str, Any]
    vectors: Tensor

    def __init__(self, name: str) -> None:
        """Read a model.

        Args:
            name: a folder, or a name on the hub.

        Raises:
            ValueError: it cannot be a fusion layer.
            OSError: it cannot be found or read.
        """
        self._model, self.content = read_encoder(name)
        vectors = self._model.get_input_embeddings().weight
        assert isinstance(vectors, Tensor)
        self.vectors = vectors.detach().clone()

    def fill(self, classifier: Classifier, config: PretrainedConfig) -> None:
        """Put the weights into a classifier that was built for them."""
        encoder = classifier.encoder
        assert isinstance(encoder, HuggingFaceEncoder)
        classifier.embedding.set_vectors(self.vectors)
        encoder.take_over(self._model, config.before, config.after)
