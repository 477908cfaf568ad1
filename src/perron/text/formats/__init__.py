"""Readers: from a file in its owner's format to rows, one at a time."""

from collections.abc import Iterator
from pathlib import Path

from perron.text.formats.corpora import read_packaged, read_snli, read_sst, read_stars
from perron.text.formats.rows import BadRows, Row
from perron.text.formats.tabular import (
    Columns,
    read_csv,
    read_jsonl,
    read_lines,
    read_parquet,
    read_tsv,
)
from perron.text.settings import PACKAGED, DataSettings

__all__ = ["READERS_WITH_COLUMNS", "Columns", "columns_of", "read_rows"]

READERS_WITH_COLUMNS = {
    "csv": read_csv,
    "tsv": read_tsv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
}
_OTHERS = {"snli": read_snli, "stars": read_stars, "lines": read_lines}


def columns_of(settings: DataSettings) -> Columns:
    """Return the columns that the settings name."""
    return Columns(settings.text, settings.text_pair, settings.label)


def read_rows(path: Path, settings: DataSettings, bad: BadRows) -> Iterator[Row]:
    """Yield the rows of a file in any format but hub, which has no file."""
    if settings.format in READERS_WITH_COLUMNS:
        return READERS_WITH_COLUMNS[settings.format](path, columns_of(settings), bad)
    if settings.format in PACKAGED:
        return read_packaged(path, settings.format, bad)
    if settings.format == "sst":
        return read_sst(path, bad, settings.binary, settings.phrases)
    return _OTHERS[settings.format](path, bad)
