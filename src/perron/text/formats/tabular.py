"""Tables and plain text: CSV, TSV, JSON lines, Parquet, and labeled lines."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from perron.errors import DataError
from perron.text.formats.base import DataFile, Format, Lines
from perron.text.formats.rows import InvalidRowError, Row

BATCH = 1000
LONGEST_FIELD = 2**24  # the csv module's own limit, 2**17, cuts books off


class CsvFormat(Format):
    """Comma-separated values with a header; a field may span several lines."""

    name = "csv"
    summary = "comma-separated values with a header"
    extensions = (".csv",)
    has_columns = True

    def read(self, file: DataFile) -> Iterator[Row]:
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))

        def split(lines: Iterable[str]) -> Iterator[list[str]]:
            return csv.reader((line + "\n" for line in lines), strict=True)

        return _rows(file, split)


class TsvFormat(Format):
    """Tab-separated values with a header; a quote is a character like any other."""

    name = "tsv"
    summary = "tab-separated values with a header, never quoted"
    extensions = (".tsv",)
    has_columns = True

    def read(self, file: DataFile) -> Iterator[Row]:
        def split(lines: Iterable[str]) -> Iterator[list[str]]:
            return (line.split("\t") if line else [] for line in lines)

        return _rows(file, split)


def _rows(
    file: DataFile, split: Callable[[Iterable[str]], Iterator[list[str]]]
) -> Iterator[Row]:
    with file.decoded() as lines:
        problems = _Problems(lines)
        reader = split(problems)
        header: list[str] | None = None
        while True:
            start = lines.count + 1
            problems.first = None
            try:
                fields = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                file.report(start, f"broken csv: {error}")
                continue
            if not fields:  # an empty line
                continue
            if header is None:
                if problems.first:  # without the header, nothing can be read
                    raise DataError(problems.first, file.path, start)
                header = fields
                file.columns.check(header, file.place, file.keep_columns)
                continue
            try:
                if problems.first:
                    raise InvalidRowError(problems.first)
                if len(fields) != len(header):
                    counts = f"{len(fields)} fields, but the header has {len(header)}"
                    raise InvalidRowError(counts)
                record = dict(zip(header, fields, strict=True))
                yield file.columns.row(start, record, file.keep_columns)
            except InvalidRowError as problem:
                file.report(start, str(problem))


class _Problems:
    """The lines of a table, and the first problem since it was last cleared."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.first: str | None = None

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.first = self.first or self._lines.problem
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
                yield file.columns.row(number, _object(line), file.keep_columns)
            except InvalidRowError as problem:
                file.report(number, str(problem))


def _object(line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:  # RecursionError: [[[[...
        raise InvalidRowError(f"broken JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRowError(
            f"a JSON {type(value).__name__}; one object per line is expected"
        )
    return value


class ParquetFormat(Format):
    """Apache Parquet; one batch of rows is in memory at a time."""

    name = "parquet"
    summary = "Apache Parquet"
    extensions = (".parquet",)
    is_text = False
    has_columns = True

    def read(self, file: DataFile) -> Iterator[Row]:
        try:
            with pq.ParquetFile(file.path) as table:
                names = table.schema_arrow.names
                file.columns.check(names, file.place, file.keep_columns)
                row = 0
                wanted = None if file.keep_columns else file.columns.names
                for batch in table.iter_batches(BATCH, columns=wanted):
                    for record in _records(batch):
                        row += 1
                        try:
                            if isinstance(record, InvalidRowError):
                                raise record
                            yield file.columns.row(row, record, file.keep_columns)
                        except InvalidRowError as problem:
                            file.report(row, str(problem))
        except pa.ArrowException as error:
            raise DataError(
                f"not a Parquet file that can be read ({error})", file.path
            ) from error

    def schema(self, file: DataFile) -> pa.Schema | None:
        try:
            return pq.read_schema(file.path).remove_metadata()
        except pa.ArrowException:
            return None  # `read` raises the error


def _records(batch: pa.RecordBatch) -> Iterable[dict[str, Any] | InvalidRowError]:
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:  # Arrow does not check that strings are UTF-8
        return [_record(batch.slice(row, 1)) for row in range(len(batch))]


def _record(row: pa.RecordBatch) -> dict[str, Any] | InvalidRowError:
    try:
        return row.to_pylist()[0]
    except UnicodeDecodeError as error:
        return InvalidRowError(f"not UTF-8: {error}")


class LinesFormat(Format):
    """A label, whitespace and a text on each line; to predict, a text per line."""

    name = "lines"
    summary = "label, whitespace, text on each line; to predict, one text per line"
    extensions = (".txt",)

    def read(self, file: DataFile) -> Iterator[Row]:
        for number, line in file.lines():
            label, *text = line.split(maxsplit=1) or [""]
            if label:
                yield Row(number, "".join(text), label)

    def read_texts(self, file: DataFile) -> Iterator[Row]:
        """Yield every line as a text without a label, empty lines too."""
        for number, line in file.lines():
            yield Row(number, line, None)
