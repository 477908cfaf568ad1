"""The configuration of a classifier: an encoder, an aggregator, a head."""

from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import PretrainedConfig

from perron.models.settings import read_aggregator


class CentralityConfig(PretrainedConfig):
    """What `CentralityForSequenceClassification` is made of."""

    model_type = "perron-centrality"
    # What a Trainer need not gather when it evaluates.
    keys_to_ignore_at_inference: ClassVar[list[str]] = [
        "weights",
        "edges",
        "hidden_states",
        "attentions",
    ]

    def __init__(
        self,
        encoder: Mapping[str, Any] | None = None,
        aggregator: str | Mapping[str, Any] = "centrality",
        classifier_dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        """Check what a classifier is made of.

        Args:
            encoder: the configuration of a model of `transformers`, as a dict with
                its ``model_type``.
            aggregator: name, or name and settings, as in a recipe:
                ``{"name": "centrality", "heads": 2}``.
            classifier_dropout: before the last layer.
            kwargs: what every configuration takes: num_labels, id2label, ….
        """
        super().__init__(**kwargs)
        self.encoder = None if encoder is None else dict(encoder)
        self.aggregator = read_aggregator(aggregator).model_dump(mode="json")
        self.classifier_dropout = classifier_dropout
