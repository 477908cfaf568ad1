"""Settings of the data: where texts and labels come from, and how they are split."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from perron.text.formats import Columns, Format, format_named, format_of, formats
from perron.text.formats.base import check_encoding

_COLUMNS = ("text", "text_pair", "label")
_FILES = ("train", "dev", "test", "split", "split_seed", "stratify")


def _applies(key: str) -> Callable[[type[Format]], bool] | None:
    """Return which formats have a setting; None if all have it."""
    if key in _COLUMNS:
        return lambda format: format.has_columns
    if key in _FILES:
        return lambda format: format.location != "package"
    if key == "encoding":
        return lambda format: format.is_text and format.location == "file"
    if any(key in format.options for format in formats.values()):
        return lambda format: key in format.options
    return None


def data_source(data: str, format: str | None = None) -> dict[str, Any]:
    """Return the settings of a data source as it is named on the command line.

    Args:
        data: A dataset that comes in a package, ``hub:NAME``, or a file.
        format: Name of a file's format. Defaults to that of its extension.
    """
    for name, known in formats.items():
        if known.location == "package" and data == name:
            return {"format": name}
        if known.location == "hub" and data.startswith(f"{name}:"):
            return {"format": name, "name": data.removeprefix(f"{name}:")}
    return {"format": format or format_of(data), "train": data}


class DataSettings(BaseModel):
    """What to read. Settings that do not apply to the format are refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = Field(
        description="Name of the data format, such as csv; docs/training.md lists them."
    )
    train: str | None = Field(
        default=None, description="File to train on; for hub, the name of the split."
    )
    dev: str | None = Field(
        default=None, description="File that chooses the best epoch, or the split."
    )
    test: str | None = Field(default=None, description="File to test on, or the split.")
    name: str | None = Field(
        default=None,
        description="For hub: name of the dataset, name:config, or a folder.",
    )
    text: str = Field(default="text", description="Column of the text.")
    text_pair: str | None = Field(
        default=None, description="Column of the second text, for pairs."
    )
    label: str = Field(default="label", description="Column of the label.")
    encoding: str = Field(
        default="utf-8",
        description="Encoding of text files, such as utf-8, cp1252 or utf-16.",
    )
    split: tuple[float, float, float] | None = Field(
        default=None,
        description="Fractions of the training file that become train, dev and test, "
        "if dev and test are not given. Defaults to 0.8, 0.1, 0.1 or, with a test "
        "file, to 0.9, 0.1, 0.",
    )
    split_seed: int = Field(
        default=0,
        description="Random seed of the split; independent of the seed of training.",
    )
    stratify: bool = Field(
        default=True,
        description="Split the rows of each class by themselves, so that every class "
        "with three rows or more is in each part.",
    )
    max_train_rows: int | None = Field(
        default=None,
        ge=1,
        description="Number of rows to train on (with phrases, of phrases), drawn at "
        "random by split_seed; dev and test are not reduced. With one seed, fewer rows "
        "are a subset of more rows. Defaults to all.",
    )
    binary: bool = Field(
        default=False,
        description="For sst: leave out neutral sentences and merge the rest into "
        "negative and positive (SST-2).",
    )
    phrases: bool = Field(
        default=False,
        description="For sst: train on every phrase of the trees; dev and test are "
        "always whole sentences.",
    )
    pretokenized: bool = Field(
        default=False,
        description="Whether words are already separated by spaces, as in sst, stars "
        "and rotten-tomatoes.",
    )
    sentence_separator: str | None = Field(
        default=None,
        description="Separator of sentences; for stars, <sssss>. Defaults to rules.",
    )
    skip_invalid: bool = Field(
        default=False, description="Leave out rows that cannot be used, and count them."
    )
    drop_labels: tuple[str, ...] = Field(
        default=(),
        description="Rows with these labels are left out (for snli, always '-').",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_what_the_format_implies(cls, given: Any) -> Any:
        name = given.get("format") if isinstance(given, dict) else None
        if isinstance(name, str) and name in formats:
            return {**formats[name].defaults, **given}
        return given

    @field_validator("format")
    @classmethod
    def _check_format(cls, name: str) -> str:
        return formats[name].name

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, name: str) -> str:
        return check_encoding(name)

    @model_validator(mode="after")
    def _refuse_what_does_not_apply(self) -> "DataSettings":
        format = format_named(self.format)
        for key, about in type(self).model_fields.items():
            applies = _applies(key)
            if applies is None or applies(type(format)):
                continue
            # Compared with the default, not with "was it set": settings that were
            # written to a file in full must be readable again.
            if getattr(self, key) != format.defaults.get(key, about.default):
                known = [name for name, other in formats.items() if applies(other)]
                raise ValueError(
                    f"{key} does not apply to format {self.format}; it is for "
                    f"{', '.join(known)}"
                )
        format.check(dict(self))
        return self

    @property
    def columns(self) -> Columns:
        """The columns that are read."""
        return Columns(self.text, self.text_pair, self.label)

    @model_validator(mode="after")
    def _check_the_split(self) -> "DataSettings":
        if self.split is None:
            return self
        if self.dev is not None or self.test is not None:
            raise ValueError("split is of the training file: leave out dev and test")
        if min(self.split) < 0 or not abs(sum(self.split) - 1) <= 1e-6:
            raise ValueError(
                f"split must be three fractions that sum to 1, got {self.split}"
            )
        if not (self.split[0] > 0 and self.split[1] > 0):
            raise ValueError(
                f"split must leave rows to train and dev, got {self.split}"
            )
        return self
