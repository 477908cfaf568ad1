"""Rows and columns of data files, and row validation."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from perron.errors import DataError, InvalidRows


class Row(NamedTuple):
    """A row of a data file: a text or a pair of texts.

    Attributes:
        line: Line or row number, starting at 1.
        text: Text, or first text of a pair.
        label: Class name, or None.
        pair: Second text of a pair.
        columns: All columns of the row, if `DataFile.keep_columns` is set.
    """

    line: int
    text: str
    label: str | None
    pair: str | None = None
    columns: Mapping[str, Any] | None = None


class InvalidRowError(ValueError):
    """Raised by a reader for a row that it cannot use."""


class Columns(NamedTuple):
    """Names of the columns to read. An optional column can be None."""

    text: str = "text"
    pair: str | None = None
    label: str | None = "label"

    @property
    def names(self) -> list[str]:
        """Names of the required columns."""
        return [name for name in self if name is not None]

    def check(
        self, available: Collection[str], source_name: object, keep: bool = False
    ) -> None:
        """Raise a DataError if a column is missing or its name is not unique.

        Args:
            available: Columns of the file.
            source_name: Name of the file in messages.
            keep: Whether all columns are kept, so that all names must be unique.
        """
        for name in [*self.names, *(available if keep else ())]:
            count = list(available).count(name)
            if count == 1:
                continue
            listed = ", ".join(available)
            raise DataError(
                f"no column {name!r}. Available columns: {listed}. Select columns with "
                "--text, --text-pair and --label."
                if count == 0
                else f"column names must be unique, but {count} columns are named "
                f"{name!r}. Available columns: {listed}.",
                str(source_name),
            )

    def row(self, number: int, record: Mapping[str, Any], keep: bool = False) -> Row:
        """Create a row from a record.

        Args:
            number: Line or row number.
            record: Values by column name.
            keep: Whether to keep all columns in `Row.columns`.

        Raises:
            InvalidRowError: If a field is missing or has the wrong type.
        """
        for name in self.names:
            if name not in record:
                listed = ", ".join(record) or "none"
                raise InvalidRowError(f"no field {name!r}; available fields: {listed}")
        return Row(
            number,
            _text(record[self.text], self.text),
            None if self.label is None else _label(record[self.label], self.label),
            None if self.pair is None else _text(record[self.pair], self.pair),
            record if keep else None,
        )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidRowError(f"{name} must be a string, got {_describe(value)}")
    return value


def _label(value: Any, name: str) -> str | None:
    """Return the class name. Accepts 1.0 for 1, as in integer columns with gaps."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    raise InvalidRowError(
        f"{name} must be a class name or an integer, got {_describe(value)}"
    )


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    return f"{value!r:.40} ({type(value).__name__})"


def usable_rows(
    rows: Iterable[Row],
    path: str | Path,
    invalid_rows: InvalidRows,
    drop: Collection[str] = (),
) -> Iterator[Row]:
    """Yield the rows that can be used for training.

    Args:
        rows: Rows of the file.
        path: Path of the file, for messages.
        invalid_rows: Policy for invalid rows.
        drop: Labels whose rows are dropped.

    Raises:
        DataError: If no usable rows are left.
    """
    count = 0
    for row in rows:
        if row.label in drop:
            invalid_rows.dropped[str(path)] += 1
            continue
        problem = text_problem(row) or _training_problem(row)
        if problem:
            invalid_rows.report(path, row.line, problem)
            continue
        count += 1
        yield row
    if not count:
        problems = invalid_rows.problems
        first = f" First problem: {problems[0]}" if problems else ""
        raise DataError(f"no usable rows.{first}", path)


def text_problem(row: Row) -> str | None:
    """Return why the row cannot be stored, or None if it can."""
    for text in (row.text, row.pair or "", row.label or ""):
        if "\0" in text:
            return "contains a NUL character"
        if not text.isascii() and not _is_encodable(text):
            return "contains an unpaired surrogate"
    if row.columns is not None:
        for name, value in row.columns.items():
            if isinstance(value, str) and not _is_encodable(value):
                return f"column {name!r} contains an unpaired surrogate"
    return None


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _training_problem(row: Row) -> str | None:
    """Return why the row cannot be used for training, or None if it can."""
    if not row.text.strip() or (row.pair is not None and not row.pair.strip()):
        return "empty text"
    return None if row.label else "missing label"
