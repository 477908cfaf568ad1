"""Validation of inputs and parameters of the estimators."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from reprlib import repr as shorten
from typing import Annotated, Any

import numpy as np
from datasets import Dataset, Features, List, Value
from pydantic import AfterValidator, Field, ValidationError
from scipy import sparse
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from perron.layers import ENCODERS, Encoder
from perron.models.config import (
    Fraction,
    ModelSettings,
    PositiveInt,
    Settings,
    expand_name,
    problems,
)
from perron.pooling import AGGREGATORS, CONNECTIVITIES, Aggregator
from perron.registry import Registry, component_options
from perron.text.encoding import TextProcessor, TextSettings
from perron.text.sampling import Examples
from perron.training.recipe import (
    WORD_ENCODER,
    PositiveFloat,
    Schedule,
    TrainingSettings,
    default_encoder,
    recipe_table,
)


def check_texts(texts: Any) -> list[str]:
    """Return texts as a list of strings.

    Args:
        texts: List, tuple, one-dimensional array, series or other iterable.

    Raises:
        ValueError: If `texts` has another type, is empty, or has a row that is not a
            string. The message names the row.
    """
    if isinstance(texts, str | bytes):
        raise ValueError(
            "texts must be a list of strings, got a string. Pass one text as [text]."
        )
    if sparse.issparse(texts):
        raise ValueError("texts must be a list of strings. Sparse data was passed.")
    if hasattr(texts, "__array__"):
        texts = np.asarray(texts)
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(
            "texts must be one-dimensional, with one string per row, got shape "
            f"{tuple(texts.shape)}. Select one column, as in frame['text']."
        )
    if isinstance(texts, Mapping | Set) or not isinstance(texts, Iterable):
        raise ValueError(f"texts must be a list of strings, got {type(texts)}.")
    rows = list(texts)
    if not rows:
        raise ValueError("Found 0 sample(s), while a minimum of 1 is required.")
    for number, row in enumerate(rows):
        _check_text(row, number)
    return [str(row) for row in rows]


def _check_text(row: Any, number: int) -> None:
    if not isinstance(row, str):
        raise ValueError(
            f"texts must be strings, but row {number} is {shorten(row)}. Drop the row, "
            "or replace it with an empty string."
        )
    try:
        row.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"row {number} is not valid Unicode: {error}") from error


def check_labels(labels: Any, texts: list[str]) -> np.ndarray:
    """Return labels as a one-dimensional array of strings, integers or booleans."""
    if labels is None:
        raise ValueError(
            "requires y to be passed, but the target y is None. Pass one label per "
            "text."
        )
    if hasattr(labels, "__array__"):
        labels = np.asarray(labels)
    elif isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise ValueError(f"y must be a list of labels, got {type(labels)}.")
    else:
        labels = list(labels)
        _check_label_types(labels)  # NumPy would convert 1 to "1"
    array = column_or_1d(labels, warn=True)
    if array.dtype == object:
        _check_label_types(array.tolist())
    assert_all_finite(array, input_name="y")
    check_classification_targets(array)
    check_consistent_length(texts, array)
    return array


def _check_label_types(labels: list[Any]) -> None:
    """Raise a ValueError if strings and other types are mixed."""
    for number, label in enumerate(labels):
        if isinstance(label, str) != isinstance(labels[0], str):
            raise ValueError(
                "y must have labels of one type, got "
                f"row 0: {labels[0]!r} and row {number}: {label!r}."
            )


def check_weights(
    sample_weight: Any, class_weight: Any, texts: list[str], labels: np.ndarray
) -> np.ndarray:
    """Return the weight of each text: its sample weight times its class weight."""
    weights = _check_sample_weight(
        sample_weight,
        np.empty((len(texts), 1)),
        dtype=np.float64,
        ensure_non_negative=True,
    )
    used = weights > 0
    class_weights = np.zeros(len(texts))
    class_weights[used] = compute_sample_weight(class_weight, labels[used])
    weights = weights * class_weights
    if not weights.any():
        raise ValueError("at least one text must have a nonzero weight, got none.")
    return weights


def encode_texts(
    processor: TextProcessor,
    texts: Sequence[str],
    classes: np.ndarray,
    weights: np.ndarray,
) -> Examples:
    """Encode texts in memory, each with a class index and a weight.

    The weights are scaled to a mean of one.
    """
    rows = processor.encode(texts)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    types = {name: List(Value("int32")) for name in columns}  # for empty texts too
    dataset = Dataset.from_dict(
        {**columns, "label": classes.tolist()},
        Features({**types, "label": Value("int64")}),
    )
    scaled = weights / weights.mean()
    return Examples(dataset, None if (scaled == 1).all() else scaled)


Component = str | dict[str, Any]  # name, or name and options
WORD_DROPOUT = 0.4  # for word vectors and the head above them


def _check_connectivity(value: Component) -> Component:
    CONNECTIVITIES[value if isinstance(value, str) else str(value.get("name"))]
    return value


class Parameters(Settings):
    """Validated parameters of an estimator."""

    aggregator: Component
    num_heads: PositiveInt
    connectivity: Annotated[Component, AfterValidator(_check_connectivity)]
    encoder: Component
    hidden_dim: PositiveInt
    embedding_dim: PositiveInt
    vectors: str | tuple[str, ...] | None
    vector_words: Annotated[int, Field(ge=0)]
    dropout: Fraction | None
    lowercase: bool
    min_count: PositiveInt
    max_vocabulary: PositiveInt | None
    max_words: PositiveInt
    learning_rate: PositiveFloat
    lr_scheduler_type: Schedule
    warmup_ratio: Fraction
    alpha: Annotated[float, Field(ge=0)]
    batch_size: PositiveInt
    max_iter: PositiveInt
    early_stopping: bool
    validation_fraction: Annotated[float, Field(gt=0, lt=1)]
    n_iter_no_change: PositiveInt

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the word vectors."""
        if isinstance(self.vectors, str):
            return (self.vectors,)
        return self.vectors or ()

    @property
    def text(self) -> TextSettings:
        """Settings of the text processor."""
        if self._pretrained is not None:  # which has its own vocabulary
            return TextSettings(max_words=self.max_words)
        return TextSettings(
            case="lower" if self.lowercase else "keep",
            min_count=self.min_count,
            vector_words=self.vector_words,
            max_words=self.max_words,
        )

    def model(self, embedding_dim: int | None = None) -> ModelSettings:
        """Return the settings of the model.

        Args:
            embedding_dim: Dimension of the word vectors. Defaults to the parameter of
                the estimator.
        """
        table = {
            **self._encoder_table(embedding_dim),
            "aggregator": _component(
                AGGREGATORS, self.aggregator, self._aggregator_options
            ),
        }
        try:
            return ModelSettings.model_validate(table)
        except ValidationError as error:
            raise ValueError(problems(error)[0]) from error

    @cached_property
    def _encoder(self) -> dict[str, Any]:
        """Name and options of the encoder."""
        name = default_encoder().name if self.encoder == "auto" else self.encoder
        if self.encoder == "auto" and self.vectors:
            name = WORD_ENCODER
        table: dict[str, Any] = expand_name(name)
        return table

    @cached_property
    def _pretrained(self) -> dict[str, Any] | None:
        """Model settings of the recipe for pretrained encoders, if there is one."""
        if self._encoder.get("name") != "hf":
            return None
        if self.vectors:
            raise ValueError(
                "vectors must be None for a pretrained encoder, which has its own, got "
                f"{self.vectors!r}."
            )
        model: dict[str, Any] = recipe_table("frozen")["model"]
        return model

    def _encoder_table(self, embedding_dim: int | None) -> dict[str, Any]:
        """Return the settings of embedding, encoder and head."""
        recipe, dropout = self._pretrained, self.dropout
        if recipe is None:
            dropout = WORD_DROPOUT if dropout is None else dropout
            return {
                "embedding": {
                    "embedding_dim": embedding_dim or self.embedding_dim,
                    "dropout": dropout,
                },
                "encoder": _component(ENCODERS, self._encoder, self._encoder_options),
                "head": {"hidden_dim": self.hidden_dim, "dropout": dropout},
            }
        chosen = {} if dropout is None else {"dropout": dropout}
        head = {**recipe["head"], "hidden_dim": self.hidden_dim, **chosen}
        encoder = {**recipe["encoder"], **chosen, **self._encoder}
        embedding = {} if embedding_dim is None else {"embedding_dim": embedding_dim}
        return {"embedding": embedding, "encoder": encoder, "head": head}

    def _encoder_options(self, encoder: type[Encoder]) -> dict[str, Any]:
        if encoder.width_option is None:
            return {}
        return {encoder.width_option: self.hidden_dim}

    def _aggregator_options(self, aggregator: type[Aggregator]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if aggregator.heads_option is not None:
            options[aggregator.heads_option] = self.num_heads
        if "connectivity" in component_options(aggregator):
            options["connectivity"] = self.connectivity
        return options

    def training(self, seed: int) -> TrainingSettings:
        """Return the settings of the training loop, with a constant batch size."""
        return TrainingSettings(
            seed=seed,
            learning_rate=self.learning_rate,
            lr_scheduler_type=self.lr_scheduler_type,
            warmup_ratio=self.warmup_ratio,
            weight_decay=self.alpha,
            batch_size=self.batch_size,
            min_batch_size=self.batch_size,
            max_epochs=self.max_iter,
            patience=self.n_iter_no_change,
        )


def read_parameters(params: Mapping[str, Any]) -> Parameters:
    """Validate the parameters of an estimator.

    Raises:
        ValueError: If a parameter is invalid. The message names it and its value.
    """
    try:
        names = Parameters.model_fields
        return Parameters(**{name: params[name] for name in names})
    except ValidationError as error:
        raise ValueError(problems(error)[0]) from error


def _component(
    registry: Registry[Any],
    component: Component,
    defaults: Callable[[Any], dict[str, Any]],
) -> Component:
    """Return the options of a component, with defaults for those that are not set."""
    options = {"name": component} if isinstance(component, str) else component
    name = str(options.get("name"))
    if name not in registry:  # ModelSettings raises the error
        return component
    return {**defaults(registry[name]), **options}
