"""Rows out: JSON lines, CSV or Parquet, as a stream."""

import csv
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from perron.errors import DataError, SettingsError
from perron.files import replaceable, take_name

FORMATS = ("jsonl", "csv", "parquet")
Row = Mapping[str, Any]

_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}


@runtime_checkable
class TextSink(Protocol):
    """What text can be written to."""

    def write(self, text: str, /) -> object:
        """Take some text."""

    def flush(self) -> object:
        """Pass on what was taken."""


@runtime_checkable
class Writer(Protocol):
    """Writes rows that all have the same columns."""

    def write(self, rows: Sequence[Row]) -> None:
        """Write some rows."""


class JsonLines:
    """An object a line."""

    def __init__(self, file: TextSink) -> None:
        self._file = file

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()


class Csv:
    """Columns by name; what a row nests gets a column for each part."""

    def __init__(self, file: TextSink) -> None:
        self._writer = csv.writer(file)
        self._begun = False

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            flat = _flattened(row)
            if not self._begun:
                self._writer.writerow(flat)
                self._begun = True
            self._writer.writerow(flat.values())


class Parquet:
    """A file that is read by column; needs a name, as it cannot be a stream."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, rows: Sequence[Row]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist([dict(row) for row in rows])
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Finish the file; without a row it has no columns, but is a Parquet file."""
        if self._writer is None:
            self.write([])
        self._writer.close()


def _flattened(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": part for name, part in value.items()}
        elif isinstance(value, list):
            flat |= {f"{key}.{place}": part for place, part in enumerate(value)}
        else:
            flat[key] = value
    return flat


def refuse_dash(out: Path | None) -> None:
    """Refuse what elsewhere means standard output, and here would be a file."""
    if str(out) == "-":
        raise SettingsError("--out -: for standard output, leave out --out")


@contextmanager
def writer(out: Path | None, format: str | None) -> Iterator[Writer]:
    """Give a writer to a file, or to standard output.

    A file is written under a temporary name and gets its own at the end: it is whole
    or, if something went wrong, not there.
    """
    refuse_dash(out)
    chosen = format or ("jsonl" if out is None else _BY_SUFFIX.get(out.suffix.lower()))
    if chosen is None:
        raise SettingsError(
            f"--out {out}: its name does not tell the format; say --format jsonl, csv "
            "or parquet"
        )
    if out is None:
        if chosen == "parquet":
            raise SettingsError("--format parquet: needs a file, --out FILE")
        yield JsonLines(sys.stdout) if chosen == "jsonl" else Csv(sys.stdout)
        sys.stdout.flush()
        return
    out = replaceable(out)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if chosen == "parquet":
            made = Parquet(part)
            yield made
            made.close()
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                yield JsonLines(file) if chosen == "jsonl" else Csv(file)
        take_name(part, out)
    except OSError as error:
        raise DataError(f"could not be written ({error.strerror})", out) from error
    finally:
        part.unlink(missing_ok=True)
