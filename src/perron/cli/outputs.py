"""Writers of result tables: JSON lines, CSV and Parquet, with the same columns."""

import base64
import csv
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from perron.errors import DataError, SettingsError
from perron.files import match_extension, replace_file, resolve_output_path

FORMATS = {"jsonl": (".jsonl", ".json"), "csv": (".csv",), "parquet": (".parquet",)}
ROW_GROUP = 8192

TableRow = Mapping[str, Any]  # a row: values by column


@runtime_checkable
class TextStream(Protocol):
    """What text can be written to."""

    def write(self, text: str, /) -> object:
        """Take some text."""

    def flush(self) -> object:
        """Pass on what was taken."""


@runtime_checkable
class Writer(Protocol):
    """Writes rows: the columns of the input, then those of the results."""

    def write(self, rows: Sequence[TableRow]) -> None:
        """Write some rows."""

    def close(self) -> None:
        """Finish the output, which may have no rows."""


class JsonLinesWriter:
    """One JSON object per line."""

    def __init__(self, file: TextStream) -> None:
        self._file = file

    def write(self, rows: Sequence[TableRow]) -> None:
        for row in rows:
            self._file.write(to_json(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.flush()


class CsvWriter:
    """Comma-separated values; a value with parts, such as a list, is JSON."""

    def __init__(self, file: TextStream, results: Sequence[str]) -> None:
        self._file = file
        self._writer = csv.writer(file)
        self._results = results
        self._header: list[str] | None = None

    def write(self, rows: Sequence[TableRow]) -> None:
        if self._header is None:
            own = dict.fromkeys(name for row in rows for name in row)
            self._header = [name for name in own if name not in self._results]
            self._header += self._results
            self._writer.writerow(self._header)
        known = set(self._header)
        for row in rows:
            if not row.keys() <= known:
                new = next(name for name in row if name not in known)
                raise DataError(
                    f"columns of CSV must be those of the first rows, got {new!r} in "
                    "a later row. Write --format jsonl."
                )
            self._writer.writerow([_cell(row.get(name)) for name in self._header])
        self._file.flush()

    def close(self) -> None:
        if self._header is None:
            self.write([])


class ParquetWriter:
    """A Parquet file, which cannot be a stream and needs a name.

    Args:
        path: The file.
        results: Names and types of the results' columns.
        schema: Names and types of the input's columns. Without it, they are those of
            the values; where later rows need a wider type, such as float instead of
            int, the rows before are written again.
    """

    def __init__(
        self, path: Path, results: Sequence[pa.Field], schema: pa.Schema | None
    ) -> None:
        self._path = path
        self._results = list(results)
        self._given = schema
        self._rows: list[TableRow] = []
        self._schema: pa.Schema | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: Sequence[TableRow]) -> None:
        self._rows += rows
        if len(self._rows) >= ROW_GROUP:
            self._write_group()

    def close(self) -> None:
        if self._rows or self._writer is None:
            self._write_group()
        assert self._writer is not None
        self._writer.close()

    def _write_group(self) -> None:
        table = self._table(self._rows)
        self._rows = []
        if self._schema is None or not table.schema.equals(self._schema):
            table = self._widen(table)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, self._schema)
        self._writer.write_table(table)

    def _table(self, rows: Sequence[TableRow]) -> pa.Table:
        last = {field.name: field.type for field in self._results}
        types = {field.name: field.type for field in self._given or ()}
        own = dict.fromkeys([*types, *(name for row in rows for name in row)])
        types |= last
        names = [name for name in own if name not in last] + list(last)
        columns = {}
        for name in names:
            values = [row.get(name) for row in rows]
            try:
                columns[name] = pa.array(values, types.get(name))
            except (pa.ArrowException, OverflowError, UnicodeError) as error:
                raise _mixed(name, error) from error
        return pa.table(columns)

    def _widen(self, table: pa.Table) -> pa.Table:
        """Make the columns of the file and of a table the same."""
        if self._schema is None:
            self._schema = table.schema
            return table
        try:
            both = pa.unify_schemas(
                [self._schema, table.schema], promote_options="permissive"
            )
        except pa.ArrowException as error:
            raise _mixed("", error) from error
        last = [field.name for field in self._results]
        fields = [field for field in both if field.name not in last]
        wider = pa.schema(fields + [both.field(name) for name in last])
        if not wider.equals(self._schema):
            self._write_again(wider)
        return _cast(table, wider)

    def _write_again(self, schema: pa.Schema) -> None:
        assert self._writer is not None
        self._writer.close()
        before = self._path.with_name(self._path.name + ".narrow")
        self._path.replace(before)
        try:
            self._writer = pq.ParquetWriter(self._path, schema)
            with pq.ParquetFile(before) as file:
                for batch in file.iter_batches(ROW_GROUP):
                    part = pa.Table.from_batches([batch])
                    self._writer.write_table(_cast(part, schema))
        finally:
            before.unlink()
        self._schema = schema


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with these columns; those that it lacks have no values."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _mixed(name: str, error: Exception) -> DataError:
    where = f"column {name!r}" if name else "each column"
    return DataError(
        f"{where} must have values of one type for Parquet ({error}). Write --format "
        "jsonl."
    )


def to_json(value: Any) -> str:
    """Return valid JSON; what it cannot hold becomes null (NaN) or a string."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape
        return json.dumps(value, allow_nan=False, default=_plain)
    except ValueError:
        return to_json(_without_nan(value))
    return text


def _plain(value: Any) -> Any:
    """Return what JSON can hold for a value of Arrow or NumPy."""
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    return value.tolist()


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return _without_nan(value.tolist()) if hasattr(value, "tolist") else value


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping | list | tuple) or hasattr(value, "tolist"):
        return to_json(value)
    return _plain(value)


def output_format(
    format: str | None,
    out: Path | None,
    known: Mapping[str, Sequence[str]],
    default: str,
) -> str:
    """Return the format of an output: as --format says, else by --out's extension.

    Args:
        format: The option --format.
        out: The option --out.
        known: The formats and their file extensions.
        default: The format of standard output.
    """
    if str(out) == "-":
        raise SettingsError(
            "--out must be a file, got -. For standard output, leave out --out."
        )
    listed = ", ".join(known)
    if format is not None:
        if format not in known:
            raise SettingsError(f"--format must be one of {listed}, got {format}.")
        return format
    if out is None:
        return default
    found = match_extension(out, known)
    if not found:
        raise SettingsError(
            f"--out {out}: the extension is that of no format. Choose one with "
            f"--format: {listed}."
        )
    return found[0]


@contextmanager
def open_writer(
    out: Path | None,
    format: str | None,
    results: Sequence[pa.Field],
    schema: pa.Schema | None = None,
) -> Iterator[Writer]:
    """Give a writer to a file, or to standard output.

    A file is written under a temporary name and renamed at the end: it is complete or,
    if something went wrong, as it was before.

    Args:
        out: The file; None for standard output.
        format: One of `FORMATS`. Defaults to that of the file's extension.
        results: Names and types of the results' columns.
        schema: Names and types of the input's columns, if they are known.
    """
    chosen = output_format(format, out, FORMATS, "jsonl")
    names = [field.name for field in results]
    made: Writer
    if out is None:
        if chosen == "parquet":
            raise SettingsError("--format parquet needs a file. Add --out FILE.")
        is_csv = chosen == "csv"
        made = CsvWriter(sys.stdout, names) if is_csv else JsonLinesWriter(sys.stdout)
        yield made
        made.close()
        return
    out = resolve_output_path(out)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if chosen == "parquet":
            made = ParquetWriter(part, results, schema)
            yield made
            made.close()
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                made = (
                    CsvWriter(file, names) if chosen == "csv" else JsonLinesWriter(file)
                )
                yield made
                made.close()
        replace_file(part, out)
    except OSError as error:
        raise DataError(f"could not be written ({error.strerror})", out) from error
    finally:
        part.unlink(missing_ok=True)
