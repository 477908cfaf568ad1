"""The estimators' parameters, checked, and the settings that they stand for."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from perron.models.config import Count, ModelSettings, Settings, Share, what_is_wrong
from perron.text.encoding import TextSettings
from perron.training.recipe import Positive, TrainingSettings

Part = str | dict[str, Any]  # an encoder or an aggregator: its name or its settings


class Parameters(Settings):
    """What `fit` needs of the parameters, by their own names."""

    aggregator: Part
    heads: Count
    connectivity: Literal["mlp", "bilinear", "query", "low_rank"]
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
            "encoder": _part(
                self.encoder,
                {
                    "bilstm": {"hidden": self.hidden_size},
                    "cnn": {"filters": self.hidden_size},
                    "transformer": {"hidden": self.hidden_size},
                },
            ),
            "aggregator": _part(
                self.aggregator,
                {
                    "centrality": {
                        "heads": self.heads,
                        "connectivity": self.connectivity,
                    },
                    "self-attention": {"queries": self.heads},
                },
            ),
            "head": {"hidden": self.hidden_size, "dropout": self.dropout},
        }
        try:
            settings = ModelSettings.model_validate(table)
        except ValidationError as error:
            raise ValueError(_explained(error)) from error
        if settings.encoder.name == "hf":
            raise ValueError(
                "encoder='hf:...' cannot be made here: train it with perron train, "
                "and give the folder of the trained model as model=..."
            )
        return settings

    def training(self, seed: int) -> TrainingSettings:
        """Return what the loop goes by; no epoch changes the size of batches."""
        return TrainingSettings(
            seed=seed,
            learning_rate=self.learning_rate,
            l2=self.alpha,
            batch_size=self.batch_size,
            batch_size_low=self.batch_size,
            max_epochs=self.max_iter,
            # Without held-out texts no epoch is better than another.
            patience=self.n_iter_no_change if self.early_stopping else self.max_iter,
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
        raise ValueError(_explained(error)) from error


def _part(given: Part, defaults: Mapping[str, Mapping[str, Any]]) -> Part:
    """Return the settings of a part; those that are given go before parameters."""
    table = {"name": given} if isinstance(given, str) else given
    name = table.get("name")
    if name not in defaults:  # it may be wrong: the settings of a model tell
        return given
    return {**defaults[str(name)], **table}


def _explained(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(key) for key in first["loc"])
    if first["type"] in ("union_tag_invalid", "extra_forbidden"):
        return f"{place}: {what_is_wrong(first)}"
    return f"{place}: {what_is_wrong(first)} (is {first['input']!r})"
