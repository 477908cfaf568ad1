"""The folder that results are written to: a part for each piece, and who made them."""

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from perron.errors import DataError, SettingsError
from perron.files import write_whole
from perron.integrations.corpora.mapper import TextMapper
from perron.integrations.corpora.pieces import Corpus, Piece

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
    corpus: Corpus, mapper: TextMapper, piece_rows: int, skip_bad: bool
) -> dict[str, Any]:
    """Return what must be the same for a run to go on with another's parts."""
    settings = {
        "task": mapper.task,
        "text": mapper.text,
        "text_pair": mapper.text_pair,
        "batch_size": mapper.batch_size,
        "tokenised": mapper.tokenised,
        "prefix": mapper.prefix,
        "piece_rows": piece_rows,
        "skip_bad": skip_bad,
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
        write_whole(path, json.dumps(manifest, indent=1).encode())
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
    settings = before.get("settings", {})
    for name, value in now["settings"].items():
        if settings.get(name) != value:
            return f"{name} {settings.get(name)!r}, now {value!r}"
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
    write_whole(folder / END_MARK, json.dumps(told).encode())
    return Counts(rows, left_out)
