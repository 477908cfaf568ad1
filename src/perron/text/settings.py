"""Data settings: the source of texts and labels, and the split."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from perron.registry import check_setting_names
from perron.text.formats import Columns, Format, formats, get_format, infer_format
from perron.text.formats.base import check_encoding

_COLUMN_SETTINGS = ("text", "text_pair", "label")
_SPLIT_SETTINGS = ("train", "dev", "test", "split", "split_seed", "stratify")


def _format_condition(key: str) -> Callable[[type[Format]], bool] | None:
    """Return a predicate for the formats that have a setting, or None for all."""
    if key in _COLUMN_SETTINGS:
        return lambda format: format.has_columns
    if key in _SPLIT_SETTINGS:
        return lambda format: format.location != "package"
    if key == "encoding":
        return lambda format: format.is_text and format.location == "file"
    if any(key in format.options for format in formats.values()):
        return lambda format: key in format.options
    return None


def data_source(data: str, format: str | None = None) -> dict[str, Any]:
    """Return the settings for a data source named on the command line.

    Args:
        data: Name of a packaged dataset, ``hub:NAME``, or path of a file.
        format: Format of the file. By default, inferred from its extension.
    """
    for name, known_format in formats.items():
        if known_format.location == "package" and data == name:
            return {"format": name}
        if known_format.location == "hub" and data.startswith(f"{name}:"):
            return {"format": name, "name": data.removeprefix(f"{name}:")}
    return {"format": format or infer_format(data), "train": data}


class DataSettings(BaseModel):
    """Data settings. Settings that do not apply to the format are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _check_names = model_validator(mode="before")(check_setting_names)

    format: str = Field(
        description="Data format, such as csv; docs/training.md lists all formats."
    )
    train: str | None = Field(
        default=None, description="Training file. For hub: name of the split."
    )
    dev: str | None = Field(
        default=None,
        description="Dev file, used to select the best epoch. For hub: name of the "
        "split.",
    )
    test: str | None = Field(
        default=None, description="Test file. For hub: name of the split."
    )
    name: str | None = Field(
        default=None,
        description="For hub: name of the dataset, name:config, or path of a folder.",
    )
    text: str = Field(default="text", description="Name of the text column.")
    text_pair: str | None = Field(
        default=None, description="Name of the column of the second text, for pairs."
    )
    label: str = Field(default="label", description="Name of the label column.")
    encoding: str = Field(
        default="utf-8",
        description="Encoding of text files, such as utf-8, cp1252 or utf-16.",
    )
    split: tuple[float, float, float] | None = Field(
        default=None,
        description="Fractions of the training file to use as train, dev and test. "
        "Not allowed if dev or test is set. Defaults to 0.8, 0.1, 0.1 or, if test is "
        "set, to 0.9, 0.1, 0.",
    )
    split_seed: int = Field(
        default=0,
        description="Random seed of the split, independent of the training seed.",
    )
    stratify: bool = Field(
        default=True,
        description="Split each class separately, so that every class with at least "
        "three rows is in train, dev and test.",
    )
    max_train_rows: int | None = Field(
        default=None,
        ge=1,
        description="Number of training rows (or phrases), sampled with split_seed. "
        "Dev and test are not reduced. For the same seed, a smaller sample is a subset "
        "of a larger one. Defaults to all rows.",
    )
    binary: bool = Field(
        default=False,
        description="For sst: drop neutral sentences and merge the other classes into "
        "negative and positive (SST-2).",
    )
    phrases: bool = Field(
        default=False,
        description="For sst: train on every phrase of the trees. Dev and test always "
        "contain full sentences.",
    )
    pretokenized: bool = Field(
        default=False,
        description="Whether texts are already tokenized, with tokens separated by "
        "whitespace, as in sst, stars and rotten-tomatoes.",
    )
    sentence_separator: str | None = Field(
        default=None,
        description="String that separates sentences, such as <sssss>. Defaults to "
        "rule-based sentence splitting.",
    )
    skip_invalid: bool = Field(
        default=False,
        description="Skip and count invalid rows instead of raising an error.",
    )
    drop_labels: tuple[str, ...] = Field(
        default=(),
        description="Drop rows with these labels. For snli, '-' is always dropped.",
    )

    @model_validator(mode="before")
    @classmethod
    def _apply_format_defaults(cls, values: Any) -> Any:
        name = values.get("format") if isinstance(values, dict) else None
        if isinstance(name, str) and name in formats:
            return {**formats[name].defaults, **values}
        return values

    @field_validator("split", mode="before")
    @classmethod
    def _check_split_length(cls, split: Any) -> Any:
        if isinstance(split, list | tuple) and len(split) != 3:
            raise ValueError(
                "split must be three fractions, for train, dev and test, such as "
                f"0.8, 0.1, 0.1, got {', '.join(map(str, split))}."
            )
        return split

    @field_validator("format")
    @classmethod
    def _check_format(cls, name: str) -> str:
        return formats[name].name

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, name: str) -> str:
        return check_encoding(name)

    @model_validator(mode="after")
    def _check_settings_apply_to_format(self) -> "DataSettings":
        format = get_format(self.format)
        for key, field in type(self).model_fields.items():
            applies = _format_condition(key)
            if applies is None or applies(type(format)):
                continue
            # Compare with the default instead of `model_fields_set`, because a saved
            # file contains all settings and must load again.
            if getattr(self, key) != format.defaults.get(key, field.default):
                supported = [name for name, other in formats.items() if applies(other)]
                raise ValueError(
                    f"{key} does not apply to format {self.format}, only to "
                    f"{', '.join(supported)}. Remove it."
                )
        format.check(dict(self))
        return self

    @property
    def columns(self) -> Columns:
        """Columns to read."""
        return Columns(self.text, self.text_pair, self.label)

    @model_validator(mode="after")
    def _check_split(self) -> "DataSettings":
        if self.split is None:
            return self
        if self.dev is not None or self.test is not None:
            raise ValueError(
                "split divides the training file, so dev and test must not be set. "
                "Remove split, or remove dev and test."
            )
        if min(self.split) < 0 or not abs(sum(self.split) - 1) <= 1e-6:
            raise ValueError(
                f"split must be three fractions that sum to 1, got {self.split}."
            )
        if not (self.split[0] > 0 and self.split[1] > 0):
            raise ValueError(
                f"split must assign rows to train and dev, got {self.split}."
            )
        return self
