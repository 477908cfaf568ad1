"""Corpora of Parquet files in pieces, and the folder with a part for each piece."""

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from perron.errors import DataError, SettingsError, differences
from perron.files import atomic_write
from perron.integrations.corpora.mapper import TextMapper
from perron.text.formats import Columns


@dataclass(frozen=True)
class CorpusProgress:
    """How far a run is.

    Attributes:
        pieces: that have their part.
        all_pieces: of the corpus.
        rows: computed in this run.
        all_rows: of the corpus.
        process: host and process number of the worker that was the last to finish.
    """

    pieces: int
    all_pieces: int
    rows: int
    all_rows: int
    process: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        rows: of all parts.
        left_out: rows that could not be used.
        pieces: parts in the folder.
        computed: those of them that this run computed.
        processes: that computed them; more than workers, if some died.
    """

    rows: int
    left_out: int
    pieces: int
    computed: int
    processes: int


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


# Readers of Parquet pass over names that begin with an underscore or a dot.
MANIFEST = "_perron.json"
END_MARK = "_SUCCESS"
LEFT_OUT = b"perron.left_out"  # in the footer of a part


class Counts(NamedTuple):
    """What became of some rows."""

    rows: int
    left_out: int


_PARTS = "part-*.parquet"


def part_name(number: int) -> str:
    """Return the name of a part; in the order of names, rows are as in the corpus."""
    return f"part-{number:07d}.parquet"


def manifest_of(
    corpus: Corpus, mapper: TextMapper, piece_rows: int, skip_invalid: bool
) -> dict[str, Any]:
    """Return what must be the same for a run to go on with another's parts."""
    settings = {
        "task": mapper.task,
        "text": mapper.text,
        "text_pair": mapper.text_pair,
        "batch_size": mapper.batch_size,
        "pretokenized": mapper.pretokenized,
        "prefix": mapper.prefix,
        "piece_rows": piece_rows,
        "skip_invalid": skip_invalid,
    }
    return {
        "format": "perron-corpus-1",
        "model": mapper.fingerprint,
        "settings": settings,
        "files": [asdict(file) for file in corpus.files],
    }


def check_place(folder: Path, corpus: Corpus) -> None:
    """Refuse a folder that is read, or that holds something else; write nothing."""
    inside = folder.resolve().is_relative_to(corpus.root.resolve())
    if corpus.is_folder and inside:
        raise SettingsError(
            f"{folder}: is in the folder that is read, {corpus.root}, where its parts "
            "would be taken for texts; name one outside"
        )
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    for path in sorted(folder.iterdir()):
        if path.name != ".lock":
            raise SettingsError(
                f"{folder}: holds {path.name!r} and was not made by this command; "
                "name an empty folder, or a new one"
            )


def claim(folder: Path, manifest: dict[str, Any]) -> None:
    """Make a folder the place of these parts, or see that it is.

    Raises:
        SettingsError: it has parts of another run.
    """
    path = folder / MANIFEST
    if not path.exists() or not any(folder.glob(_PARTS)):  # nothing is lost
        atomic_write(path, json.dumps(manifest, indent=1).encode())
    elif (before := _read(path)) != manifest:
        raise SettingsError(
            f"{folder}: was begun with {_change(before, manifest)}; name another "
            "folder, or remove this one to begin again"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"is no JSON: {error}", path) from error
    if not isinstance(content, dict):
        raise DataError("is no JSON object", path)
    return content


def _change(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Say what is another than it was, the first of all."""
    if before.get("format") != now["format"]:
        return "another version of this command"
    if before.get("model") != now["model"]:
        return "another model"
    if changed := differences(before.get("settings", {}), now["settings"]):
        return f"other settings: {changed[0]}"
    files = {file["name"]: file for file in before.get("files", [])}
    for file in now["files"]:
        if file["name"] not in files:
            return f"other texts: {file['name']} was not there"
        if files.pop(file["name"]) != file:
            return f"other texts: {file['name']} has been changed since"
    return f"other texts: {', '.join(sorted(files)[:1])} is gone"


def missing(folder: Path, pieces: Collection[Piece]) -> list[Piece]:
    """Return the pieces that have no part yet. A part that has its name is whole."""
    there = {path.name for path in folder.glob(_PARTS)}
    return [piece for piece in pieces if part_name(piece.number) not in there]


def counts_of(path: Path) -> Counts:
    """Read from a part's footer how many rows it has, and how many were left out."""
    try:
        with pq.ParquetFile(path) as file:
            notes = file.metadata.metadata or {}
            return Counts(file.metadata.num_rows, int(notes.get(LEFT_OUT, 0)))
    except FileNotFoundError as error:
        raise DataError(
            "is not there, though a worker wrote it: do all machines see this folder?",
            path,
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"cannot be read ({error}); remove it and run the same command again", path
        ) from error


def close_folder(folder: Path, pieces: Collection[Piece]) -> Counts:
    """Count every row against the corpus, then mark the folder as finished.

    Raises:
        DataError: a part is missing, or has not all rows of its piece.
    """
    rows = left_out = 0
    for piece in pieces:
        path = folder / part_name(piece.number)
        found = counts_of(path)
        if found.rows + found.left_out != piece.rows:
            raise DataError(
                f"has {found.rows} rows and {found.left_out} were left out, but "
                f"{piece.file} had {piece.rows}; remove it and run the same command "
                "again",
                path,
            )
        rows += found.rows
        left_out += found.left_out
    told = {"rows": rows, "left_out": left_out, "parts": len(pieces)}
    atomic_write(folder / END_MARK, json.dumps(told).encode())
    return Counts(rows, left_out)
