"""Tabular and plain text formats: CSV, TSV, JSON lines, Parquet and lines."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from perron.errors import DataError
from perron.text.formats.base import DataFile, Format, Lines
from perron.text.formats.rows import InvalidRowError, Row

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1000
MAX_FIELD_SIZE = 2**24  # the default of the csv module, 2**17, is too small for books


class CsvFormat(Format):
    """Comma-separated values with a header. A quoted field may span several lines.

    If the header contains no comma, fields are separated by semicolons, or by tabs if
    it contains no semicolon either. Spreadsheets write such files in many locales.
    """

    name = "csv"
    summary = "comma- or semicolon-separated values with a header"
    extensions = (".csv",)
    has_columns = True

    def read(self, file: DataFile) -> Iterator[Row]:
        csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_SIZE))
        with file.open_text() as lines:
            header = next((line for line in lines if line), "")
        delimiter = next((sign for sign in ",;\t" if sign in header), ",")

        def split(lines: Iterable[str]) -> Iterator[list[str]]:
            ends = (line + "\n" for line in lines)
            return csv.reader(ends, delimiter=delimiter, strict=True)

        return _rows(file, split)


class TsvFormat(Format):
    """Tab-separated values with a header. Quotes have no special meaning."""

    name = "tsv"
    summary = "tab-separated values with a header, without quoting"
    extensions = (".tsv",)
    has_columns = True

    def read(self, file: DataFile) -> Iterator[Row]:
        def split(lines: Iterable[str]) -> Iterator[list[str]]:
            return (line.split("\t") if line else [] for line in lines)

        return _rows(file, split)


def _rows(
    file: DataFile, split: Callable[[Iterable[str]], Iterator[list[str]]]
) -> Iterator[Row]:
    with file.open_text() as lines:
        checked_lines = _CheckedLines(lines)
        reader = split(checked_lines)
        header: list[str] | None = None
        while True:
            start = lines.count + 1
            checked_lines.problem = None
            try:
                fields = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                file.report(start, f"not valid CSV: {error}")
                continue
            if not fields:  # empty line
                continue
            if header is None:
                if checked_lines.problem:  # no row can be read without the header
                    raise DataError(checked_lines.problem, file.path, start)
                header = fields
                file.columns.check(header, file.source_name, file.keep_columns)
                continue
            try:
                if checked_lines.problem:
                    raise InvalidRowError(checked_lines.problem)
                if len(fields) != len(header):
                    raise InvalidRowError(
                        f"expected {len(header)} fields, as in the header, "
                        f"got {len(fields)} fields"
                    )
                record = dict(zip(header, fields, strict=True))
                yield file.columns.row(start, record, file.keep_columns)
            except InvalidRowError as problem:
                file.report(start, str(problem))


class _CheckedLines:
    """Iterator over lines that remembers the first decoding problem.

    Attributes:
        problem: First problem since it was last set to None.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.problem: str | None = None

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.problem = self.problem or self._lines.problem
            yield line


class JsonLinesFormat(Format):
    """One JSON object per line."""

    name = "jsonl"
    summary = "one JSON object per line"
    extensions = (".jsonl", ".json", ".ndjson")
    has_columns = True

    def read(self, file: DataFile) -> Iterator[Row]:
        for number, line in file.lines():
            if not line.strip():
                continue
            try:
                yield file.columns.row(number, _parse_object(line), file.keep_columns)
            except InvalidRowError as problem:
                file.report(number, str(problem))


def _parse_object(line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:  # RecursionError: [[[[...
        raise InvalidRowError(f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRowError(
            f"expected one JSON object per line, got a JSON {type(value).__name__}"
        )
    return value


class ParquetFormat(Format):
    """Apache Parquet. Only one batch of rows is in memory at a time."""

    name = "parquet"
    summary = "Apache Parquet"
    extensions = (".parquet",)
    is_text = False
    has_columns = True

    def read(self, file: DataFile) -> Iterator[Row]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(file.path) as table:
                names = table.schema_arrow.names
                file.columns.check(names, file.source_name, file.keep_columns)
                row = 0
                columns = None if file.keep_columns else file.columns.names
                for batch in table.iter_batches(BATCH, columns=columns):
                    for record in _records(batch):
                        row += 1
                        try:
                            if isinstance(record, InvalidRowError):
                                raise record
                            yield file.columns.row(row, record, file.keep_columns)
                        except InvalidRowError as problem:
                            file.report(row, str(problem))
        except pa.ArrowException as error:
            raise DataError(f"not a valid Parquet file ({error})", file.path) from error

    def schema(self, file: DataFile) -> "pa.Schema | None":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_schema(file.path).remove_metadata()
        except pa.ArrowException:
            return None  # `read` will raise the error


def _records(batch: "pa.RecordBatch") -> Iterable[dict[str, Any] | InvalidRowError]:
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:  # Arrow does not check that strings are UTF-8
        return [_record(batch.slice(row, 1)) for row in range(len(batch))]


def _record(row: "pa.RecordBatch") -> dict[str, Any] | InvalidRowError:
    try:
        return row.to_pylist()[0]
    except UnicodeDecodeError as error:
        return InvalidRowError(f"not valid UTF-8: {error}")


class LinesFormat(Format):
    """A label, whitespace and a text per line; for prediction, one text per line."""

    name = "lines"
    summary = "label and text per line; for prediction, one text per line"
    extensions = (".txt",)

    def read(self, file: DataFile) -> Iterator[Row]:
        for number, line in file.lines():
            label, *text = line.split(maxsplit=1) or [""]
            if label:
                yield Row(number, "".join(text), label)

    def read_texts(self, file: DataFile) -> Iterator[Row]:
        """Yield each line, including empty ones, as a text without a label."""
        for number, line in file.lines():
            yield Row(number, line, None)
