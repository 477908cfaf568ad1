"""A recipe: everything that decides what a training run does."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, ValidationError, field_validator, model_validator

from perron.errors import SettingsError
from perron.files import read_toml
from perron.migrations import VERSION, migrate, stamp
from perron.models.config import (
    HuggingFaceSettings,
    ModelSettings,
    PositiveInt,
    Settings,
    named,
    problems,
)
from perron.text.encoding import TextSettings
from perron.text.settings import DataSettings
from perron.training.metrics import METRICS

SETTINGS = "settings.toml"  # the settings of a run, in its folder

Positive = Annotated[float, Field(gt=0)]


class TrainingSettings(Settings):
    """The loop. Where the paper is silent, its authors' released code decides."""

    seed: Annotated[int, Field(ge=0)] = 0
    learning_rate: Positive = 3e-4
    # Of embedding and encoder, which if pretrained want a smaller one; else the same.
    encoder_learning_rate: Positive | None = None
    # Staircase decay: the factor is applied every learning_rate_decay_steps steps.
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    learning_rate_decay_steps: PositiveInt = 500
    min_learning_rate: Annotated[float, Field(ge=0)] = 1e-5
    weight_decay: Annotated[float, Field(ge=0)] = 1e-6  # not for embeddings, biases
    max_grad_norm: Positive = 5.0  # norm of the gradient
    batch_size: PositiveInt = 128
    min_batch_size: PositiveInt = (
        16  # halved after an epoch without a new best, down to it
    )
    # Dev, test and the saved model take a moving average of the weights over the steps;
    # this is what stays of it at each step, such as 0.999. See `WeightAverage`.
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    num_micro_batches: PositiveInt = (
        1  # parts of a batch, one after the other: less memory
    )
    max_epochs: PositiveInt = 50
    patience: PositiveInt = 7  # epochs without a new best
    metric_for_best_model: str = "accuracy"  # on dev; of equals, the least log-loss
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 on GPUs with it
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 120.0  # and after each epoch

    @field_validator("metric_for_best_model")
    @classmethod
    def _is_metric(cls, name: str) -> str:
        METRICS[name]  # raises an error that lists the names
        return name

    @model_validator(mode="after")
    def _bounds(self) -> "TrainingSettings":
        if self.min_batch_size > self.batch_size:
            raise ValueError(
                f"min_batch_size = {self.min_batch_size} is above batch_size = "
                f"{self.batch_size}"
            )
        return self


class Recipe(Settings):
    """Data, text, word vectors, model and training."""

    data: DataSettings
    text: TextSettings = TextSettings()
    vectors: tuple[str, ...] = ()  # sources of word vectors, put side by side
    # Standard deviation that each source's numbers are scaled to; some packages' are
    # several times as large as others', and would drown them.
    vector_std: Positive | None = None
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()

    @model_validator(mode="after")
    def _kind_fits(self) -> "Recipe":
        if (self.model.kind == "pair") != (self.data.text_pair is not None):
            raise ValueError(
                "model.kind = 'pair' and data.text_pair go together: one is set, the "
                "other is not"
            )
        return self

    @model_validator(mode="after")
    def _pretrained_models_have_words(self) -> "Recipe":
        if not isinstance(self.model.encoder, HuggingFaceSettings):
            return self
        if self.vectors:
            raise ValueError(
                "vectors: the encoder hf has vectors of its own; leave out --vectors, "
                "or set vectors = []"
            )
        for key in ("case", "min_count", "vector_words"):
            if getattr(self.text, key) != TextSettings.model_fields[key].default:
                raise ValueError(
                    f"text.{key} does not apply: the encoder hf has its own words"
                )
        return self

    @property
    def infers_embedding_dim(self) -> bool:
        """Whether ``model.embedding.embedding_dim`` is that of vectors that are read."""
        return bool(self.vectors) or self.model.encoder.name == "hf"

    def to_toml(self) -> str:
        """Return what `read_recipe` reads; what is not set is left out."""
        table = self.model_dump(mode="json", exclude_none=True)
        return tomli_w.dumps(stamp("settings", table))


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    folder = files("perron") / "recipes"
    names = (Path(item.name) for item in folder.iterdir())
    return sorted(name.stem for name in names if name.suffix == ".toml")


def recipe_table(name: str) -> dict[str, Any]:
    """Return the settings in a recipe's file, in the newest format version.

    Args:
        name: Name of a recipe that comes with the package, or path of a TOML file.
    """
    path = Path(name)
    if name in recipe_names():
        path = Path(str(files("perron") / "recipes")) / f"{name}.toml"
    if not path.is_file():
        raise SettingsError(
            f"no recipe {name!r}: give the path of a TOML file, or one of "
            f"{', '.join(recipe_names())}"
        )
    table = read_toml(path, "To train on a file of texts, pass it with --data.")
    return migrate("settings", table, name)


def read_recipe(
    table: Mapping[str, Any], overrides: Sequence[str] = (), where: str = "settings"
) -> Recipe:
    """Check settings, with ``key=value`` overrides such as ``training.seed=3``.

    Args:
        table: Settings; of the newest format version if they do not contain theirs.
        overrides: Changes of the settings, in the order in which they are made.
        where: Name of the settings in errors.
    """
    changed = migrate("settings", table, where) if VERSION in table else dict(table)
    for override in overrides:
        changed = _overridden(changed, override)
    try:
        return Recipe.model_validate(changed)
    except ValidationError as error:
        lines = [f"{where}: {line}" for line in problems(error)]
        raise SettingsError("\n".join(lines)) from error


def read_settings(folder: Path) -> Recipe:
    """Read the effective settings of a run."""
    path = folder / SETTINGS
    if not path.is_file():
        raise SettingsError(f"{folder}: holds no run (no {SETTINGS} in it)")
    return read_recipe(recipe_table(str(path)), where=str(path))


def _overridden(table: Mapping[str, Any], override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise SettingsError(
            f"--set {override}: write key=value, as in training.learning_rate=1e-3"
        )
    return _with(table, key.split("."), _value(text))


def _value(text: str) -> Any:
    """Read a TOML value; what is none is a string without its quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _with(table: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = keys
    if not rest:
        return {**table, first: value}
    inner = table.get(first, {})
    if isinstance(inner, str):  # aggregator = "max" stands for {name = "max"}
        inner = named(inner)
    if not isinstance(inner, Mapping):
        raise SettingsError(f"--set {'.'.join(keys)}: {first} has no settings inside")
    return {**table, first: _with(inner, rest, value)}
