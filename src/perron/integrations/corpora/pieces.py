"""A corpus of Parquet files, parted into pieces that are computed one by one."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from perron.errors import DataError
from perron.text.formats import Columns

PIECE_ROWS = 50_000  # at most, unless someone says so; half a minute of work or less
_FEWEST_ROWS = 1000
_PIECES = 64  # of a corpus of middling size, so that several workers share it evenly


@dataclass(frozen=True)
class Piece:
    """Some rows of a file, one after the other.

    Attributes:
        number: place among all pieces, in the order of the corpus.
        file: path of the file, relative to the corpus.
        start: its first row, from 0.
        rows: how many.
        bytes: size of the whole file when the work began.
        modified: when the file had been changed, in nanoseconds.
    """

    number: int
    file: str
    start: int
    rows: int
    bytes: int
    modified: int


@dataclass(frozen=True)
class InputFile:
    """A file as it was when the work began."""

    name: str
    rows: int
    bytes: int
    modified: int


@dataclass(frozen=True)
class Corpus:
    """Files of one schema, in the order of their names.

    Attributes:
        root: folder that their names are relative to.
        files: at least one; some may have no rows.
        schema: of all of them.
        is_folder: whether all that is in the root belongs to the corpus.
    """

    root: Path
    files: tuple[InputFile, ...]
    schema: pa.Schema
    is_folder: bool

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    def usual_piece_rows(self) -> int:
        """Return a size of pieces that depends on the number of rows alone."""
        return min(PIECE_ROWS, max(_FEWEST_ROWS, -(-self.rows // _PIECES)))

    def pieces(self, piece_rows: int) -> list[Piece]:
        """Return all pieces; one without rows if that is all there is."""
        found: list[Piece] = []
        for file in self.files:
            for start in range(0, file.rows, piece_rows):
                rows = min(piece_rows, file.rows - start)
                found.append(_piece(len(found), file, start, rows))
        return found or [_piece(0, self.files[0], 0, 0)]


def _piece(number: int, file: InputFile, start: int, rows: int) -> Piece:
    return Piece(number, file.name, start, rows, file.bytes, file.modified)


def find_corpus(path: Path, columns: Columns) -> Corpus:
    """Look at a Parquet file, or at all those in a folder and in the folders in it.

    Names that begin with a dot or an underscore are passed over, as other readers of
    Parquet do. Only footers are read.

    Raises:
        DataError: there is none, one cannot be read, a column is missing or is no
            text, or two have other columns.
    """
    root, paths = _paths(path)
    schema, first = None, paths[0]
    files = []
    for found in paths:
        state = state_of(found)
        rows, its_schema = _footer(found)
        if schema is None:
            columns.check(its_schema.names, found)
            for name in columns.names:
                _check_text(its_schema.field(name), found)
            schema = its_schema
        elif not its_schema.equals(schema):
            raise DataError(
                f"has other columns than {first}: {_difference(its_schema, schema)}",
                found,
            )
        files.append(InputFile(found.relative_to(root).as_posix(), rows, *state))
    assert schema is not None
    return Corpus(root, tuple(files), schema, path.is_dir())


def state_of(path: Path) -> tuple[int, int]:
    """Return a file's size and when it was changed."""
    try:
        state = os.stat(path)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from error
    return state.st_size, state.st_mtime_ns


def _paths(path: Path) -> tuple[Path, list[Path]]:
    path = path.absolute()
    if path.is_file():
        return path.parent, [path]
    if not path.is_dir():
        raise DataError("there is no such file or folder", path)
    found = [
        file
        for file in sorted(path.rglob("*.parquet"))
        if file.is_file()
        and not any(p[0] in "._" for p in file.relative_to(path).parts)
    ]
    if not found:
        raise DataError("there is no *.parquet file in it", path)
    return path, found


def _footer(path: Path) -> tuple[int, Any]:
    try:
        with pq.ParquetFile(path) as file:
            # Notes of whoever wrote the file, pandas for instance, are about its
            # columns, and ours are others.
            return file.metadata.num_rows, file.schema_arrow.remove_metadata()
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"not a Parquet file that can be read ({error})", path
        ) from error


def _check_text(field: pa.Field, path: Path) -> None:
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if kind not in (pa.string(), pa.large_string(), pa.string_view()):
        raise DataError(f"column {field.name!r} is {field.type}, not text", path)


def _difference(schema: pa.Schema, first: pa.Schema) -> str:
    """Say which column is another, the first of them."""
    for name in dict.fromkeys([*first.names, *schema.names]):
        if name not in schema.names:
            return f"no {name!r}"
        if name not in first.names:
            return f"{name!r}, which is not there"
        here, there = schema.field(name), first.field(name)
        if not here.equals(there):
            return f"{name!r} is {_told(here)}, there {_told(there)}"
    return "in another order"


def _told(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
