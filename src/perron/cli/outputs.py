"""Writers of result tables as JSON lines, CSV or Parquet, with the same columns."""

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

TableRow = Mapping[str, Any]  # values by column


@runtime_checkable
class TextStream(Protocol):
    """A writable text stream."""

    def write(self, text: str, /) -> object:
        """Write text."""

    def flush(self) -> object:
        """Flush the buffer."""


@runtime_checkable
class Writer(Protocol):
    """Writer of rows that combine the columns of the input and of the results."""

    def write(self, rows: Sequence[TableRow]) -> None:
        """Write rows."""

    def close(self) -> None:
        """Finish the output, which may be empty."""


class JsonLinesWriter:
    """Writes one JSON object per line."""

    def __init__(self, file: TextStream) -> None:
        self._file = file

    def write(self, rows: Sequence[TableRow]) -> None:
        for row in rows:
            self._file.write(to_json(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.flush()


class CsvWriter:
    """Writes CSV; nested values such as lists are written as JSON."""

    def __init__(self, file: TextStream, results: Sequence[str]) -> None:
        self._file = file
        self._writer = csv.writer(file)
        self._results = results
        self._header: list[str] | None = None

    def write(self, rows: Sequence[TableRow]) -> None:
        if self._header is None:
            names = dict.fromkeys(name for row in rows for name in row)
            self._header = [name for name in names if name not in self._results]
            self._header += self._results
            self._writer.writerow(self._header)
        known = set(self._header)
        for row in rows:
            if not row.keys() <= known:
                new = next(name for name in row if name not in known)
                raise DataError(
                    f"all rows of a CSV file must have the same columns, but {new!r} "
                    "appears only in a later row. Use --format jsonl."
                )
            self._writer.writerow([_cell(row.get(name)) for name in self._header])
        self._file.flush()

    def close(self) -> None:
        if self._header is None:
            self.write([])


class ParquetWriter:
    """Writes a Parquet file, which cannot be streamed to standard output.

    Args:
        path: Path of the file.
        results: Fields of the result columns.
        schema: Schema of the input columns. If None, types are inferred from the
            values. If later rows need a wider type, such as float instead of int, the
            earlier rows are rewritten.
    """

    def __init__(
        self, path: Path, results: Sequence[pa.Field], schema: pa.Schema | None
    ) -> None:
        self._path = path
        self._results = list(results)
        self._input_schema = schema
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
        results = {field.name: field.type for field in self._results}
        types = {field.name: field.type for field in self._input_schema or ()}
        inputs = dict.fromkeys([*types, *(name for row in rows for name in row)])
        types |= results
        names = [name for name in inputs if name not in results] + list(results)
        columns = {}
        for name in names:
            values = [row.get(name) for row in rows]
            try:
                columns[name] = pa.array(values, types.get(name))
            except (pa.ArrowException, OverflowError, UnicodeError) as error:
                raise _type_error(name, error) from error
        return pa.table(columns)

    def _widen(self, table: pa.Table) -> pa.Table:
        """Cast the file and a table to a common schema."""
        if self._schema is None:
            self._schema = table.schema
            return table
        try:
            unified = pa.unify_schemas(
                [self._schema, table.schema], promote_options="permissive"
            )
        except pa.ArrowException as error:
            raise _type_error("", error) from error
        results = [field.name for field in self._results]
        fields = [field for field in unified if field.name not in results]
        schema = pa.schema(fields + [unified.field(name) for name in results])
        if not schema.equals(self._schema):
            self._rewrite(schema)
        return _cast(table, schema)

    def _rewrite(self, schema: pa.Schema) -> None:
        """Rewrite the file with another schema."""
        assert self._writer is not None
        self._writer.close()
        previous = self._path.with_name(self._path.name + ".narrow")
        self._path.replace(previous)
        try:
            self._writer = pq.ParquetWriter(self._path, schema)
            with pq.ParquetFile(previous) as file:
                for batch in file.iter_batches(ROW_GROUP):
                    part = pa.Table.from_batches([batch])
                    self._writer.write_table(_cast(part, schema))
        finally:
            previous.unlink()
        self._schema = schema


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table to a schema, filling missing columns with nulls."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _type_error(name: str, error: Exception) -> DataError:
    column = f"column {name!r}" if name else "each column"
    return DataError(
        f"{column} must have values of a single type for Parquet ({error}). Use "
        "--format jsonl."
    )


def to_json(value: Any) -> str:
    """Serialize to valid JSON; NaN becomes null, unsupported types become strings."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape
        return json.dumps(value, allow_nan=False, default=_plain)
    except ValueError:
        return to_json(_without_nan(value))
    return text


def _plain(value: Any) -> Any:
    """Convert an Arrow or NumPy value to a type that JSON supports."""
    if isinstance(value, date | time):  # datetime is a subclass of date
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
    """Return the output format, from --format or from the extension of --out.

    Args:
        format: Value of --format.
        out: Value of --out.
        known: Supported formats and their file extensions.
        default: Format of standard output.
    """
    if str(out) == "-":
        raise SettingsError(
            "--out must be a file, got -. For standard output, omit --out."
        )
    choices = ", ".join(known)
    if format is not None:
        if format not in known:
            raise SettingsError(f"--format must be one of {choices}, got {format}.")
        return format
    if out is None:
        return default
    matches = match_extension(out, known)
    if not matches:
        raise SettingsError(
            f"--out {out}: unknown file extension. Choose the format with --format: "
            f"{choices}."
        )
    return matches[0]


@contextmanager
def open_writer(
    out: Path | None,
    format: str | None,
    results: Sequence[pa.Field],
    schema: pa.Schema | None = None,
) -> Iterator[Writer]:
    """Open a writer to a file or to standard output.

    A file is written under a temporary name and renamed at the end. On an error, an
    existing file is left unchanged.

    Args:
        out: Path of the file, or None for standard output.
        format: One of `FORMATS`. By default, inferred from the file extension.
        results: Fields of the result columns.
        schema: Schema of the input columns, if known.
    """
    resolved = output_format(format, out, FORMATS, "jsonl")
    names = [field.name for field in results]
    writer: Writer
    if out is None:
        if resolved == "parquet":
            raise SettingsError("--format parquet requires a file. Add --out FILE.")
        is_csv = resolved == "csv"
        writer = CsvWriter(sys.stdout, names) if is_csv else JsonLinesWriter(sys.stdout)
        yield writer
        writer.close()
        return
    out = resolve_output_path(out)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if resolved == "parquet":
            writer = ParquetWriter(part, results, schema)
            yield writer
            writer.close()
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                is_csv = resolved == "csv"
                writer = CsvWriter(file, names) if is_csv else JsonLinesWriter(file)
                yield writer
                writer.close()
        replace_file(part, out)
    except OSError as error:
        raise DataError(f"could not be written ({error.strerror})", out) from error
    finally:
        part.unlink(missing_ok=True)
