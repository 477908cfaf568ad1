"""Readers of tables: CSV, TSV, Parquet, JSON lines and plain text."""

import csv
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from perron.errors import DataError
from perron.text.formats.rows import (
    BadRow,
    BadRows,
    Row,
    not_utf8,
    numbered_lines,
    raw_lines,
)


class Columns(NamedTuple):
    """The columns that are read; a label of None is not looked for."""

    text: str
    pair: str | None
    label: str | None

    @property
    def names(self) -> list[str]:
        """The columns that must be there."""
        return [name for name in self if name is not None]

    def check(self, there: Collection[str], place: object) -> None:
        """Raise a DataError that lists the columns, should one be missing or double."""
        for name in self.names:
            count = list(there).count(name)
            if count != 1:
                problem = "no column" if count == 0 else f"{count} columns named"
                listed = ", ".join(there)
                raise DataError(
                    f"{problem} {name!r}; there are: {listed} "
                    "(--text, --text-pair and --label name them)",
                    str(place),
                )

    def row(self, number: int, record: Mapping[str, Any]) -> Row:
        """Pick the fields out of one record.

        Raises:
            BadRow: a field is missing or of a type that cannot be used.
        """
        for name in self.names:
            if name not in record:
                listed = ", ".join(record) or "none"
                raise BadRow(f"no field {name!r}; there are: {listed}")
        return Row(
            number,
            _text(record[self.text], self.text),
            None if self.label is None else _label(record[self.label], self.label),
            None if self.pair is None else _text(record[self.pair], self.pair),
        )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"{name} is {_kind(value)}, not a text")
    return value


def _label(value: Any, name: str) -> str | None:
    """Return the name of the class; 1.0 is how a table with gaps writes 1."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    raise BadRow(f"{name} is {_kind(value)}, not the name or number of a class")


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    return f"{value!r:.40} ({type(value).__name__})"


def read_jsonl(path: Path, columns: Columns, bad: BadRows) -> Iterator[Row]:
    """Yield a row for each object."""
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        try:
            yield columns.row(number, _object(line))
        except BadRow as problem:
            bad.report(path, number, str(problem))


def _object(line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:  # RecursionError: [[[[...
        raise BadRow(f"broken JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRow(f"a JSON {type(value).__name__}; one object a line is expected")
    return value


def read_lines(path: Path, bad: BadRows) -> Iterator[Row]:
    """Yield what follows the first blank or tab as the text of the label before it."""
    for number, line in numbered_lines(path, bad):
        label, *text = line.split(maxsplit=1) or [""]
        if label:
            yield Row(number, "".join(text), label)


def read_plain(path: Path, bad: BadRows) -> Iterator[Row]:
    """Yield every line as a text without a label, empty lines too."""
    for number, line in numbered_lines(path, bad):
        yield Row(number, line, None)


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
