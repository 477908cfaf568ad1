"""From a record with named fields to a row: which column is which, and its type."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from perron.data.readers.rows import BadRow, Row
from perron.errors import DataError


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
