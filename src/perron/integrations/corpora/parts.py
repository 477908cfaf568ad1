"""Shards of a corpus of Parquet files, and the output folder with one part per shard.

A shard is a range of rows of an input file. A part is the output file of a shard.
"""

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

MAX_SHARD_ROWS = 50_000  # default maximum; at most half a minute of work
_MIN_SHARD_ROWS = 1000
_TARGET_SHARDS = 64  # for a medium-sized corpus, to balance the load of the workers


@dataclass(frozen=True)
class Shard:
    """A range of rows of a file.

    Attributes:
        number: Index among all shards, in the order of the corpus.
        file: Path of the file, relative to the corpus.
        start: Index of the first row, from 0.
        rows: Number of rows.
        bytes: Size of the file when the job was started.
        modified: Modification time of the file at that time, in nanoseconds.
    """

    number: int
    file: str
    start: int
    rows: int
    bytes: int
    modified: int


@dataclass(frozen=True)
class InputFile:
    """A file of the corpus, as it was when the job was started.

    Attributes:
        name: Path relative to the corpus.
        rows: Number of rows.
        bytes: Size.
        modified: Modification time, in nanoseconds.
    """

    name: str
    rows: int
    bytes: int
    modified: int


@dataclass(frozen=True)
class Corpus:
    """Files with the same schema, sorted by path.

    Attributes:
        root: Folder that the paths are relative to.
        files: At least one file. Files may be empty.
        schema: Schema of every file.
        is_folder: Whether the corpus is the whole root folder and not a single file.
    """

    root: Path
    files: tuple[InputFile, ...]
    schema: pa.Schema
    is_folder: bool

    @property
    def rows(self) -> int:
        """Number of rows in all files."""
        return sum(file.rows for file in self.files)

    def default_shard_rows(self) -> int:
        """Return a shard size that depends only on the number of rows."""
        return min(
            MAX_SHARD_ROWS, max(_MIN_SHARD_ROWS, -(-self.rows // _TARGET_SHARDS))
        )

    def shards(self, shard_rows: int) -> list[Shard]:
        """Split the corpus into shards; an empty corpus has one empty shard."""
        shards: list[Shard] = []
        for file in self.files:
            for start in range(0, file.rows, shard_rows):
                rows = min(shard_rows, file.rows - start)
                shards.append(_make_shard(len(shards), file, start, rows))
        return shards or [_make_shard(0, self.files[0], 0, 0)]


def _make_shard(number: int, file: InputFile, start: int, rows: int) -> Shard:
    return Shard(number, file.name, start, rows, file.bytes, file.modified)


def find_corpus(path: Path, columns: Columns) -> Corpus:
    """Find a Parquet file, or all Parquet files in a folder and its subfolders.

    Names that start with a dot or an underscore are ignored, as in other readers of
    Parquet datasets. Only the footers are read.

    Raises:
        DataError: If no file was found, a file cannot be read, a column is missing or
            does not contain text, or the schemas differ.
    """
    root, paths = _find_files(path)
    schema, first = None, paths[0]
    files = []
    for file in paths:
        state = file_state(file)
        rows, file_schema = _read_footer(file)
        if schema is None:
            columns.check(file_schema.names, file)
            for name in columns.names:
                _check_text_type(file_schema.field(name), file)
            schema = file_schema
        elif not file_schema.equals(schema):
            raise DataError(
                f"must have the same columns as {first}: "
                f"{_schema_difference(file_schema, schema)}.",
                file,
            )
        files.append(InputFile(file.relative_to(root).as_posix(), rows, *state))
    assert schema is not None
    return Corpus(root, tuple(files), schema, path.is_dir())


def file_state(path: Path) -> tuple[int, int]:
    """Return the size and the modification time of a file."""
    try:
        state = os.stat(path)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path) from error
    return state.st_size, state.st_mtime_ns


def _find_files(path: Path) -> tuple[Path, list[Path]]:
    path = path.absolute()
    if path.is_file():
        return path.parent, [path]
    if not path.is_dir():
        raise DataError("file or folder not found.", path)
    files = [
        file
        for file in sorted(path.rglob("*.parquet"))
        if file.is_file()
        and not any(p[0] in "._" for p in file.relative_to(path).parts)
    ]
    if not files:
        raise DataError("contains no *.parquet files.", path)
    return path, files


def _read_footer(path: Path) -> tuple[int, Any]:
    try:
        with pq.ParquetFile(path) as file:
            # Schema metadata, such as that of pandas, describes the input columns and
            # would be wrong for the output.
            return file.metadata.num_rows, file.schema_arrow.remove_metadata()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"is not a valid Parquet file ({error})", path) from error


def _check_text_type(field: pa.Field, path: Path) -> None:
    value_type = field.type
    if pa.types.is_dictionary(value_type):
        value_type = value_type.value_type
    if value_type not in (pa.string(), pa.large_string(), pa.string_view()):
        raise DataError(
            f"column {field.name!r} must contain strings, got {field.type}.", path
        )


def _schema_difference(schema: pa.Schema, expected: pa.Schema) -> str:
    """Describe the first difference between two schemas."""
    for name in dict.fromkeys([*expected.names, *schema.names]):
        if name not in schema.names:
            return f"column {name!r} is missing"
        if name not in expected.names:
            return f"column {name!r} is unexpected"
        actual, wanted = schema.field(name), expected.field(name)
        if not actual.equals(wanted):
            return f"column {name!r} is {_describe(actual)}, not {_describe(wanted)}"
    return "the columns are in a different order"


def _describe(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


# Readers of Parquet datasets ignore names that start with an underscore or a dot.
MANIFEST = "_perron.json"
SUCCESS_MARKER = "_SUCCESS"
SKIPPED_ROWS_KEY = b"perron.skipped_rows"  # in the footer of a part
_OLD_SKIPPED_ROWS_KEY = b"perron.left_out"  # of manifest format 1
_FORMAT = "perron-corpus-"
_OLD_SETTINGS = {  # of manifest format 1
    "tokenised": "pretokenized",
    "skip_bad": "skip_invalid",
    "piece_rows": "shard_rows",
}


class Counts(NamedTuple):
    """Numbers of rows that were written and skipped."""

    rows: int
    skipped_rows: int


_PARTS = "part-*.parquet"


def part_name(number: int) -> str:
    """Return the file name of a part. Sorted by name, parts are in corpus order."""
    return f"part-{number:07d}.parquet"


def build_manifest(
    corpus: Corpus, mapper: TextMapper, shard_rows: int, skip_invalid: bool
) -> dict[str, Any]:
    """Return everything that must be the same for a job to be resumed."""
    settings = {
        "task": mapper.task,
        "text": mapper.text,
        "text_pair": mapper.text_pair,
        "batch_size": mapper.batch_size,
        "pretokenized": mapper.pretokenized,
        "prefix": mapper.prefix,
        "shard_rows": shard_rows,
        "skip_invalid": skip_invalid,
    }
    return {
        "format": f"{_FORMAT}2",
        "model": mapper.fingerprint,
        "settings": settings,
        "files": [asdict(file) for file in corpus.files],
    }


def check_output_folder(folder: Path, corpus: Corpus) -> None:
    """Raise an error for a folder inside the corpus or with other content."""
    inside = folder.resolve().is_relative_to(corpus.root.resolve())
    if corpus.is_folder and inside:
        raise SettingsError(
            f"{folder}: the output folder must not be inside the input folder "
            f"{corpus.root}, or its parts would be read as input. Use a folder "
            "outside it."
        )
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    for path in sorted(folder.iterdir()):
        if path.name != ".lock":
            raise SettingsError(
                f"{folder}: contains {path.name!r} and was not created by this "
                "command. Use an empty or a new folder."
            )


def open_output(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of a new job, or check that a job can be resumed.

    Raises:
        SettingsError: If the folder has parts of a different job.
    """
    path = folder / MANIFEST
    if not path.exists() or not any(folder.glob(_PARTS)):  # no part would be lost
        atomic_write(path, json.dumps(manifest, indent=1).encode())
    elif (previous := _read_manifest(path)) != manifest:
        raise SettingsError(
            f"{folder}: the job was started with {_change(previous, manifest)}. Use "
            "another folder, or delete this one to start over."
        )


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"is not valid JSON: {error}", path) from error
    if not isinstance(content, dict):
        raise DataError("must contain a JSON object.", path)
    if content.get("format") == f"{_FORMAT}1":
        settings = content.get("settings", {}).items()
        content["settings"] = {_OLD_SETTINGS.get(k, k): v for k, v in settings}
        content["format"] = f"{_FORMAT}2"
    return content


def _change(previous: dict[str, Any], manifest: dict[str, Any]) -> str:
    """Describe the first difference between two manifests."""
    if previous.get("format") != manifest["format"]:
        return "a different version of this command"
    if previous.get("model") != manifest["model"]:
        return "a different model"
    if changes := differences(previous.get("settings", {}), manifest["settings"]):
        return f"different settings: {changes[0]}"
    files = {file["name"]: file for file in previous.get("files", [])}
    for file in manifest["files"]:
        if file["name"] not in files:
            return f"different texts: {file['name']} is new"
        if files.pop(file["name"]) != file:
            return f"different texts: {file['name']} has changed since then"
    return f"different texts: {', '.join(sorted(files)[:1])} no longer exists"


def missing_shards(folder: Path, shards: Collection[Shard]) -> list[Shard]:
    """Return the shards without a part. A part that exists is always complete."""
    names = {path.name for path in folder.glob(_PARTS)}
    return [shard for shard in shards if part_name(shard.number) not in names]


def read_counts(path: Path) -> Counts:
    """Read the numbers of written and skipped rows from the footer of a part."""
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata.metadata or {}
            old = metadata.get(_OLD_SKIPPED_ROWS_KEY, 0)
            skipped = int(metadata.get(SKIPPED_ROWS_KEY, old))
            return Counts(file.metadata.num_rows, skipped)
    except FileNotFoundError as error:
        raise DataError(
            "does not exist, although a worker wrote it. Check that all machines "
            "share this folder.",
            path,
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"cannot be read ({error}). Delete it and run the same command again.", path
        ) from error


def finish_output(folder: Path, shards: Collection[Shard]) -> Counts:
    """Check the number of rows of every part, then write the success marker.

    Raises:
        DataError: If a part is missing or does not account for all rows of its shard.
    """
    rows = skipped_rows = 0
    for shard in shards:
        path = folder / part_name(shard.number)
        counts = read_counts(path)
        if counts.rows + counts.skipped_rows != shard.rows:
            raise DataError(
                f"has {counts.rows} rows and {counts.skipped_rows} skipped rows, but "
                f"the shard of {shard.file} has {shard.rows} rows. Delete it and run "
                "the same command again.",
                path,
            )
        rows += counts.rows
        skipped_rows += counts.skipped_rows
    summary = {"rows": rows, "skipped_rows": skipped_rows, "parts": len(shards)}
    atomic_write(folder / SUCCESS_MARKER, json.dumps(summary).encode())
    return Counts(rows, skipped_rows)
