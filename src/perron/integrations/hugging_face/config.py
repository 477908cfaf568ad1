"""The configuration of a classifier: an encoder, an aggregator, a head."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError
from transformers import PretrainedConfig

from perron.models.settings import AggregatorSettings

_AGGREGATOR: Any = TypeAdapter(AggregatorSettings)


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
        self.aggregator = checked_aggregator(aggregator)
        self.classifier_dropout = classifier_dropout


def checked_aggregator(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an aggregator in full.

    Raises:
        ValueError: there is no such aggregator, or it has no such setting.
    """
    try:
        settings = _AGGREGATOR.validate_python(
            given if isinstance(given, str) else dict(given)
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in ("aggregator", *first["loc"]))
        raise ValueError(f"{key}: {first['msg']}") from error
    return dict(settings.model_dump(mode="json"))
