"""Readers: from a file in its owner's format to rows, one at a time."""

from collections.abc import Iterator
from pathlib import Path

from perron.data.readers.columns import Columns
from perron.data.readers.jsonl import read_jsonl
from perron.data.readers.lines import read_lines
from perron.data.readers.packaged import read_packaged
from perron.data.readers.rows import BadRows, Row
from perron.data.readers.snli import read_snli
from perron.data.readers.sst import read_sst
from perron.data.readers.stars import read_stars
from perron.data.readers.tables import read_csv, read_parquet, read_tsv
from perron.data.settings import PACKAGED, DataSettings

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
