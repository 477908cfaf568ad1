"""The estimators' parameters, checked, and the settings that they stand for."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from perron.layers import ENCODERS, Encoder
from perron.models.config import Count, ModelSettings, Settings, Share, problems
from perron.pooling import AGGREGATORS, CONNECTIVITIES, Aggregator
from perron.registry import Registry, options_of
from perron.text.encoding import TextSettings
from perron.training.recipe import Positive, TrainingSettings

Part = str | dict[str, Any]  # the name of a component, or its name and settings


def _check_connectivity(given: Part) -> Part:
    CONNECTIVITIES[given if isinstance(given, str) else str(given.get("name"))]
    return given


class Parameters(Settings):
    """What `fit` needs of the parameters, by their own names."""

    aggregator: Part
    heads: Count
    connectivity: Annotated[Part, AfterValidator(_check_connectivity)]
    encoder: Part
    hidden_size: Count
    embedding_size: Count
    vectors: str | tuple[str, ...] | None
    vector_words: Annotated[int, Field(ge=0)]
    dropout: Share
    lowercase: bool
    min_count: Count
    max_vocabulary: Count | None
    max_words: Count
    learning_rate: Positive
    alpha: Annotated[float, Field(ge=0)]
    batch_size: Count
    max_iter: Count
    early_stopping: bool
    validation_fraction: Annotated[float, Field(gt=0, lt=1)]
    n_iter_no_change: Count

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the word vectors."""
        if isinstance(self.vectors, str):
            return (self.vectors,)
        return self.vectors or ()

    @property
    def text(self) -> TextSettings:
        """How texts become words."""
        return TextSettings(
            case="lower" if self.lowercase else "keep",
            min_count=self.min_count,
            vector_words=self.vector_words,
            max_words=self.max_words,
        )

    def model(self, width: int | None = None) -> ModelSettings:
        """Return what the model is made of; ``width`` is that of word vectors."""
        table = {
            "embedding": {
                "dim": width or self.embedding_size,
                "dropout": self.dropout,
            },
            "encoder": _part(ENCODERS, self.encoder, self._encoder_options),
            "aggregator": _part(AGGREGATORS, self.aggregator, self._aggregator_options),
            "head": {"hidden": self.hidden_size, "dropout": self.dropout},
        }
        try:
            settings = ModelSettings.model_validate(table)
        except ValidationError as error:
            raise ValueError(problems(error)[0]) from error
        if settings.encoder.name == "hf":
            raise ValueError(
                "encoder='hf:...' cannot be made here: train it with perron train, "
                "and give the folder of the trained model as model=..."
            )
        return settings

    def _encoder_options(self, encoder: type[Encoder]) -> dict[str, Any]:
        if encoder.width_option is None:
            return {}
        return {encoder.width_option: self.hidden_size}

    def _aggregator_options(self, aggregator: type[Aggregator]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if aggregator.heads_option is not None:
            options[aggregator.heads_option] = self.heads
        if "connectivity" in options_of(aggregator):
            options["connectivity"] = self.connectivity
        return options

    def training(self, seed: int) -> TrainingSettings:
        """Return the settings of the loop; the batch size stays the same."""
        return TrainingSettings(
            seed=seed,
            learning_rate=self.learning_rate,
            l2=self.alpha,
            batch_size=self.batch_size,
            batch_size_low=self.batch_size,
            max_epochs=self.max_iter,
            patience=self.n_iter_no_change,
        )


def read_parameters(given: Mapping[str, Any]) -> Parameters:
    """Check an estimator's parameters.

    Raises:
        ValueError: names the parameter, what it must be and what it is.
    """
    try:
        names = Parameters.model_fields
        return Parameters(**{name: given[name] for name in names})
    except ValidationError as error:
        raise ValueError(problems(error)[0]) from error


def _part(
    registry: Registry[Any], given: Part, defaults: Callable[[Any], dict[str, Any]]
) -> Part:
    """Return the settings of a component; those that are given come before defaults."""
    table = {"name": given} if isinstance(given, str) else given
    name = str(table.get("name"))
    if name not in registry:  # it may be wrong, which the settings of the model say
        return given
    return {**defaults(registry[name]), **table}
