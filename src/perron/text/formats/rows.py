"""Rows of data files: their columns, and what makes a row unusable."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from perron.errors import DataError, InvalidRows


class Row(NamedTuple):
    """One text, or pair of texts, of a file.

    Attributes:
        line: Line or row of the file, counted from 1.
        text: The text.
        label: Name of the class, if there is one.
        pair: Second text of a pair.
        columns: Every column of the row by name, where `DataFile.keep_columns` asks
            for them.
    """

    line: int
    text: str
    label: str | None
    pair: str | None = None
    columns: Mapping[str, Any] | None = None


class InvalidRowError(ValueError):
    """What is wrong with a row, raised by the code that takes it apart."""


class Columns(NamedTuple):
    """Names of the columns to read; a label of None is not looked for."""

    text: str = "text"
    pair: str | None = None
    label: str | None = "label"

    @property
    def names(self) -> list[str]:
        """The columns that must be there."""
        return [name for name in self if name is not None]

    def check(self, there: Collection[str], place: object, keep: bool = False) -> None:
        """Raise a DataError that lists the columns if one is missing or repeated.

        Args:
            there: The columns that the file has.
            place: Name of the file.
            keep: Whether the other columns are kept, and must differ too.
        """
        for name in [*self.names, *(there if keep else ())]:
            count = list(there).count(name)
            if count != 1:
                problem = "no column" if count == 0 else f"{count} columns named"
                listed = ", ".join(there)
                raise DataError(
                    f"{problem} {name!r}; there are: {listed} "
                    "(--text, --text-pair and --label name them)",
                    str(place),
                )

    def row(self, number: int, record: Mapping[str, Any], keep: bool = False) -> Row:
        """Pick the fields out of one record.

        Args:
            number: Line or row of the file.
            record: The values by column.
            keep: Keep the other columns too.

        Raises:
            InvalidRowError: A field is missing or of a type that cannot be used.
        """
        for name in self.names:
            if name not in record:
                listed = ", ".join(record) or "none"
                raise InvalidRowError(f"no field {name!r}; there are: {listed}")
        return Row(
            number,
            _text(record[self.text], self.text),
            None if self.label is None else _label(record[self.label], self.label),
            None if self.pair is None else _text(record[self.pair], self.pair),
            record if keep else None,
        )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidRowError(f"{name} is {_kind(value)}, not a text")
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
    raise InvalidRowError(
        f"{name} is {_kind(value)}, not the name or number of a class"
    )


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    return f"{value!r:.40} ({type(value).__name__})"


def checked(
    rows: Iterable[Row], path: str | Path, bad: InvalidRows, drop: Collection[str] = ()
) -> Iterator[Row]:
    """Yield the rows that can be trained on; the others go to ``bad``.

    Raises:
        DataError: Not a single row is left.
    """
    usable = 0
    for row in rows:
        if row.label in drop:
            bad.dropped[str(path)] += 1
            continue
        problem = text_problem(row) or _training_problem(row)
        if problem:
            bad.report(path, row.line, problem)
            continue
        usable += 1
        yield row
    if not usable:
        first = f"; the first bad one: {bad.problems[0]}" if bad.problems else ""
        raise DataError(f"no usable rows{first}", path)


def text_problem(row: Row) -> str | None:
    """Return what keeps the text from being stored at all, if anything does."""
    for text in (row.text, row.pair or "", row.label or ""):
        if "\0" in text:
            return "a NUL byte"
        if not text.isascii() and not _is_unicode(text):
            return "half a surrogate pair"
    if row.columns is not None:
        for name, value in row.columns.items():
            if isinstance(value, str) and not _is_unicode(value):
                return f"half a surrogate pair in {name}"
    return None


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _training_problem(row: Row) -> str | None:
    """Return what keeps the row from training, though it may be classified."""
    if not row.text.strip() or (row.pair is not None and not row.pair.strip()):
        return "the text is empty"
    return None if row.label else "the label is missing"
