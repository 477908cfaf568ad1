"""Inputs and parameters of the estimators, checked, and the settings they stand for."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
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
    problems,
)
from perron.pooling import AGGREGATORS, CONNECTIVITIES, Aggregator
from perron.registry import Registry, options_of
from perron.text.encoding import TextProcessor, TextSettings
from perron.text.sampling import Examples
from perron.training.recipe import Positive, TrainingSettings


def check_texts(texts: Any) -> list[str]:
    """Return texts as a list of strings.

    Args:
        texts: a list, tuple, one-dimensional array, series or other iterable.

    Raises:
        ValueError: it is something else, has no rows, or has one that is no string;
            the message names the row.
    """
    if isinstance(texts, str | bytes):
        raise ValueError("texts must be a list of strings; for one text write [text]")
    if sparse.issparse(texts):
        raise ValueError("Sparse data were passed, but texts are a list of strings")
    if hasattr(texts, "__array__"):
        texts = np.asarray(texts)
    if getattr(texts, "ndim", 1) != 1:
        raise ValueError(
            "texts must be one-dimensional, a string a row, but came with shape "
            f"{tuple(texts.shape)}; take one column, as in frame['text']"
        )
    if isinstance(texts, Mapping | Set) or not isinstance(texts, Iterable):
        raise ValueError(f"texts must be a list of strings, but came as {type(texts)}")
    rows = list(texts)
    if not rows:
        raise ValueError("Found 0 sample(s), while a minimum of 1 is required.")
    for number, row in enumerate(rows):
        _check_text(row, number)
    return [str(row) for row in rows]


def _check_text(row: Any, number: int) -> None:
    if not isinstance(row, str):
        raise ValueError(
            f"texts must be strings, but row {number} is {shorten(row)}; drop it, or "
            "put an empty string there"
        )
    try:
        row.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"row {number} is not Unicode: {error}") from error


def check_labels(labels: Any, texts: list[str]) -> np.ndarray:
    """Return labels as a one-dimensional array: strings, whole numbers or booleans."""
    if labels is None:
        raise ValueError(
            "requires y to be passed, but the target y is None: give a label for each "
            "text"
        )
    if hasattr(labels, "__array__"):
        labels = np.asarray(labels)
    elif isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise ValueError(f"y must be a list of labels, but came as {type(labels)}")
    else:
        labels = list(labels)
        _check_kinds(labels)  # or NumPy would make "1" of 1
    array = column_or_1d(labels, warn=True)
    if array.dtype == object:
        _check_kinds(array.tolist())
    assert_all_finite(array, input_name="y")
    check_classification_targets(array)
    check_consistent_length(texts, array)
    return array


def _check_kinds(labels: list[Any]) -> None:
    """Refuse strings among labels that are none."""
    for number, label in enumerate(labels):
        if isinstance(label, str) != isinstance(labels[0], str):
            raise ValueError(
                "y must have labels of one kind, but row 0 is "
                f"{labels[0]!r} and row {number} is {label!r}"
            )


def check_weights(
    sample_weight: Any, class_weight: Any, texts: list[str], labels: np.ndarray
) -> np.ndarray:
    """Return the weight of each text: its own times that of its class."""
    weights = _check_sample_weight(
        sample_weight,
        np.empty((len(texts), 1)),
        dtype=np.float64,
        ensure_non_negative=True,
    )
    counted = weights > 0
    of_class = np.zeros(len(texts))
    of_class[counted] = compute_sample_weight(class_weight, labels[counted])
    weights = weights * of_class
    if not weights.any():
        raise ValueError("the weight of every text is zero: nothing to learn from")
    return weights


def encode_texts(
    processor: TextProcessor,
    texts: Sequence[str],
    classes: np.ndarray,
    weights: np.ndarray,
) -> Examples:
    """Encode texts in memory, with the number of a class and a weight each.

    The weights are scaled to a mean of one.
    """
    rows = processor.encode(texts)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    types = {name: List(Value("int32")) for name in columns}  # also if all are empty
    dataset = Dataset.from_dict(
        {**columns, "label": classes.tolist()},
        Features({**types, "label": Value("int64")}),
    )
    even = weights / weights.mean()
    return Examples(dataset, None if (even == 1).all() else even)


Part = str | dict[str, Any]  # the name of a component, or its name and settings


def _check_connectivity(given: Part) -> Part:
    CONNECTIVITIES[given if isinstance(given, str) else str(given.get("name"))]
    return given


class Parameters(Settings):
    """What `fit` needs of the parameters, by their own names."""

    aggregator: Part
    num_heads: PositiveInt
    connectivity: Annotated[Part, AfterValidator(_check_connectivity)]
    encoder: Part
    hidden_dim: PositiveInt
    embedding_dim: PositiveInt
    vectors: str | tuple[str, ...] | None
    vector_words: Annotated[int, Field(ge=0)]
    dropout: Fraction
    lowercase: bool
    min_count: PositiveInt
    max_vocabulary: PositiveInt | None
    max_words: PositiveInt
    learning_rate: Positive
    alpha: Annotated[float, Field(ge=0)]
    batch_size: PositiveInt
    max_iter: PositiveInt
    early_stopping: bool
    validation_fraction: Annotated[float, Field(gt=0, lt=1)]
    n_iter_no_change: PositiveInt

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
                "embedding_dim": width or self.embedding_dim,
                "dropout": self.dropout,
            },
            "encoder": _part(ENCODERS, self.encoder, self._encoder_options),
            "aggregator": _part(AGGREGATORS, self.aggregator, self._aggregator_options),
            "head": {"hidden_dim": self.hidden_dim, "dropout": self.dropout},
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
        return {encoder.width_option: self.hidden_dim}

    def _aggregator_options(self, aggregator: type[Aggregator]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if aggregator.heads_option is not None:
            options[aggregator.heads_option] = self.num_heads
        if "connectivity" in options_of(aggregator):
            options["connectivity"] = self.connectivity
        return options

    def training(self, seed: int) -> TrainingSettings:
        """Return the settings of the loop; the batch size stays the same."""
        return TrainingSettings(
            seed=seed,
            learning_rate=self.learning_rate,
            weight_decay=self.alpha,
            batch_size=self.batch_size,
            min_batch_size=self.batch_size,
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
