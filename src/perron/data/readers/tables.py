"""Tables with a header: csv, tsv and parquet."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from perron.data.readers.columns import Columns
from perron.data.readers.rows import BadRow, BadRows, Row, not_utf8, raw_lines
from perron.errors import DataError

BATCH = 1000
LONGEST_FIELD = 2**24  # the csv module's own limit, 2**17, cuts books off


def read_csv(path: Path, columns: Columns, bad: BadRows) -> Iterator[Row]:
    """Yield the rows of a comma-separated file; a field may span several lines."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    source = _Lines(path)
    reader = csv.reader(source, strict=True)
    return _rows(path, columns, bad, source, reader)


def read_tsv(path: Path, columns: Columns, bad: BadRows) -> Iterator[Row]:
    """Yield the rows of a tab-separated file; quotes are characters like any other."""
    source = _Lines(path)
    fields = ([] if line == "\n" else line[:-1].split("\t") for line in source)
    return _rows(path, columns, bad, source, fields)


class _Lines:
    """The lines of a file; remembers how many were read and whether one was bad."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self.problem: str | None = None
        self._raw = raw_lines(path)

    def __iter__(self) -> Iterator[str]:
        for raw in self._raw:
            self.count += 1
            try:
                yield raw.decode() + "\n"
            except UnicodeDecodeError as error:
                # The row must be read to its end even so, or the next would begin
                # in its middle.
                self.problem = not_utf8(error)
                yield raw.decode(errors="replace") + "\n"


def _rows(
    path: Path,
    columns: Columns,
    bad: BadRows,
    source: _Lines,
    reader: Iterator[list[str]],
) -> Iterator[Row]:
    header: list[str] | None = None
    while True:
        start = source.count + 1
        source.problem = None
        try:
            fields = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            bad.report(path, start, f"broken csv: {error}")
            continue
        if not fields:  # a blank line
            continue
        if header is None:
            header = fields
            columns.check(header, path)
            continue
        try:
            if source.problem:
                raise BadRow(source.problem)
            if len(fields) != len(header):
                counts = f"{len(fields)} fields, but the header has {len(header)}"
                raise BadRow(counts)
            yield columns.row(start, dict(zip(header, fields, strict=True)))
        except BadRow as problem:
            bad.report(path, start, str(problem))


def read_parquet(path: Path, columns: Columns, bad: BadRows) -> Iterator[Row]:
    """Yield the rows of a Parquet file, a batch in memory at a time."""
    try:
        with pq.ParquetFile(path) as file:
            columns.check(file.schema_arrow.names, path)
            row = 0
            for batch in file.iter_batches(BATCH, columns=columns.names):
                for record in batch.to_pylist():
                    row += 1
                    try:
                        yield columns.row(row, record)
                    except BadRow as problem:
                        bad.report(path, row, str(problem))
    except pa.ArrowException as error:
        raise DataError(
            f"not a Parquet file that can be read ({error})", path
        ) from error
