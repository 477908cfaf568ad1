"""Base class and registry of data formats, and decoding of data files."""

import codecs
import gzip
import io
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, cast

from perron.errors import DataError, InvalidRows, SettingsError
from perron.files import match_extension
from perron.registry import Registry
from perron.text.formats.rows import Columns, Row

UTF8 = "utf-8"
_BYTE_ORDER_MARK = "\ufeff"
_ENCODINGS_BY_BOM = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def find_file(name: str, root: Path | None = None) -> Path:
    """Return the path of a data file.

    Args:
        name: Path of the file, absolute or relative to the data folder.
        root: Data folder. Defaults to the folder in PERRON_DATA if it has the file,
            else the current folder.

    Raises:
        DataError: If the file does not exist.
    """
    path = Path(name).expanduser()
    if root is not None:
        path = root / path
    elif folder := os.environ.get("PERRON_DATA"):
        path = Path(folder) / path if (Path(folder) / path).exists() else path
    if not path.is_file():
        problem = "expected a file, got a folder" if path.is_dir() else "file not found"
        advice = "Check the path, or set the folder of the datasets with PERRON_DATA."
        raise DataError(f"{problem}. {advice}", path)
    return path


def check_encoding(name: str) -> str:
    """Return the name of a text encoding, or raise a SettingsError if it is unknown."""
    try:
        "\n".encode(name)
    except (LookupError, ValueError) as error:
        raise SettingsError(
            "encoding must be a text encoding such as utf-8, cp1252 or utf-16, "
            f"got {name!r}."
        ) from error
    return name


class Lines:
    r"""Decoded lines of a binary stream, without line endings.

    Only ``\n`` and ``\r\n`` end a line, because texts may contain other Unicode line
    breaks. A byte order mark is removed.

    A line that cannot be decoded is returned with replacement characters, so that a CSV
    row that spans several lines can be read to its end.

    Attributes:
        count: Number of lines read so far.
        problem: Why the last line could not be decoded, or None if it could.
    """

    def __init__(
        self, stream: io.BufferedIOBase, source_name: str, encoding: str = UTF8
    ) -> None:
        self._stream = stream
        self._source_name = source_name
        self._encoding = UTF8 if encoding == "utf-8-sig" else encoding
        self.count = 0
        self.problem: str | None = None

    def __iter__(self) -> Iterator[str]:
        # Encodings such as UTF-16 must be decoded before splitting into lines.
        is_wide = "\n".encode(self._encoding) != b"\n"
        return self._decode_all() if is_wide else self._decode_lines()

    def _decode_lines(self) -> Iterator[str]:
        encoding = self._encoding
        for count, raw in enumerate(self._stream, start=1):
            self.count = count
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
            try:
                line, self.problem = raw.decode(encoding), None
            except UnicodeDecodeError as error:
                self.problem = self._explain(error, raw)
                line = raw.decode(encoding, errors="replace")
            yield line if count > 1 else line.removeprefix(_BYTE_ORDER_MARK)

    def _decode_all(self) -> Iterator[str]:
        stream = cast(IO[bytes], self._stream)
        text = io.TextIOWrapper(stream, self._encoding, newline="\n")
        try:
            for count, line in enumerate(text, start=1):
                self.count = count
                line = line.removesuffix("\n").removesuffix("\r")
                yield line if count > 1 else line.removeprefix(_BYTE_ORDER_MARK)
        except UnicodeError as error:  # the start of the next line is unknown
            raise DataError(
                f"not valid {self._encoding.upper()}: {error}. Set another encoding "
                "with --encoding.",
                self._source_name,
                self.count + 1,
            ) from error
        finally:
            text.detach()

    def _explain(self, error: UnicodeDecodeError, raw: bytes) -> str:
        byte = error.object[error.start]
        return (
            f"not valid {self._encoding.upper()}: byte 0x{byte:02x} at position "
            f"{error.start + 1} of the line; try --encoding {self._guess(raw)}"
        )

    def _guess(self, raw: bytes) -> str:
        """Return the most likely encoding that can decode the line."""
        if self.count == 1:
            for bom, encoding in _ENCODINGS_BY_BOM.items():
                if raw.startswith(bom):
                    return encoding
        for encoding in (UTF8, "cp1252"):
            try:
                raw.decode(encoding)
            except UnicodeDecodeError:
                continue
            return encoding
        return "latin-1"


@dataclass(frozen=True)
class DataFile:
    """A data file, or a split of a dataset on the Hub.

    Attributes:
        name: Name in the settings: path of a file, or name of a split on the Hub.
        invalid_rows: Policy for invalid rows.
        columns: Columns to read, for formats with columns.
        encoding: Text encoding.
        options: Values of `Format.options`, by name.
        keep_columns: Whether to set `Row.columns`.
        path: Resolved path of the file, set by `Format.open`.
    """

    name: str
    invalid_rows: InvalidRows = field(default_factory=InvalidRows)
    columns: Columns = field(default_factory=Columns)
    encoding: str = UTF8
    options: Mapping[str, Any] = field(default_factory=dict)
    keep_columns: bool = False
    path: Path | None = None

    @property
    def source_name(self) -> str:
        """Name of the file in messages."""
        return self.name if self.path is None else str(self.path)

    def report(self, line: int, problem: str) -> None:
        """Report an invalid row: raise a DataError, or count it if rows are skipped."""
        self.invalid_rows.report(self.path or self.name, line, problem)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and text of each line; report undecodable lines."""
        with self.open_text() as lines:
            for line in lines:
                if lines.problem is None:
                    yield lines.count, line
                else:
                    self.report(lines.count, lines.problem)

    @contextmanager
    def open_text(self) -> Iterator[Lines]:
        """Open the file as text, decompressing ``.gz`` files."""
        assert self.path is not None
        opener: Any = gzip.open if self.path.suffix == ".gz" else open
        try:
            with opener(self.path, "rb") as stream:
                yield Lines(stream, self.source_name, self.encoding)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(f"not a valid gzip file ({error})", self.path) from error


class Format(ABC):
    """Base class of data formats.

    A subclass with a ``name`` is registered when it is defined. It can then be selected
    with ``data.format``, ``--data-format`` or a file extension.

    Attributes:
        name: Name in the settings.
        summary: Short description, for lists of formats.
        extensions: File extensions, such as ``.csv``.
        location: Location of the data: files named in the settings, an installed
            package, or the Hugging Face Hub.
        is_text: Whether files are text files, which have an encoding and may be
            gzipped.
        has_columns: Whether the settings name the text, pair and label columns.
        options: Names of data settings that apply to this format, besides columns.
        training_options: Names of options that apply to training data only.
        defaults: Default values of data settings for this format.
        drop_labels: Labels whose rows are always dropped.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    extensions: ClassVar[tuple[str, ...]] = ()
    location: ClassVar[Literal["file", "package", "hub"]] = "file"
    is_text: ClassVar[bool] = True
    has_columns: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ()
    training_options: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[Mapping[str, Any]] = {}
    drop_labels: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            formats.register(cls.name, cls)

    @abstractmethod
    def read(self, file: DataFile) -> Iterator[Row]:
        """Yield the rows of a file; pass invalid rows to `DataFile.report`."""

    def read_texts(self, file: DataFile) -> Iterator[Row]:
        """Yield texts to classify. Labels are optional. Calls `read` by default."""
        if self.location != "file":
            raise SettingsError(
                f"{file.name}: format must be a file format, got {self.name!r}."
            )
        return self.read(file)

    def open(self, file: DataFile, root: Path | None = None) -> DataFile:
        """Return the file with its path resolved; see `find_file`."""
        return replace(file, path=find_file(file.name, root))

    def files(self, names: Iterable[str], root: Path | None = None) -> list[Path]:
        """Return the paths of data files; raise a DataError if one is missing."""
        return [find_file(name, root) for name in names]

    def cache_key_values(self, file: DataFile) -> dict[str, Any]:
        """Return values that determine the rows, besides the file and the settings."""
        return {}

    def schema(self, file: DataFile) -> Any:
        """Return the Arrow schema of a file, or None if its columns have no types."""
        return None

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the class names in a fixed order, or None to infer them."""
        return None

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise a ValueError if data settings are missing or inconsistent."""
        if self.location == "file" and settings["train"] is None:
            raise ValueError(
                f"train is required for format {self.name}. Set it to a training file."
            )

    def fixed_split(
        self, texts: Iterable[str]
    ) -> tuple[tuple[float, float, float], list[int]] | None:
        """Return the fixed split of a dataset, or None to split by the settings.

        Args:
            texts: All texts, in the order of the file.

        Returns:
            Fractions of train, dev and test, and the order of the rows. The first rows
            become test, the next ones dev, and the remaining ones train.
        """
        return None


formats: Registry[type[Format]] = Registry("data format")


def get_format(name: str) -> Format:
    """Return the format with the given name."""
    return formats[name]()


def infer_format(path: str | Path) -> str:
    """Return the name of the format of a file, inferred from its extension.

    A ``.gz`` suffix is ignored for text formats.

    Raises:
        SettingsError: If no format, or more than one, has this extension.
    """
    name = str(path)
    unpacked = name.removesuffix(".gz")
    extensions = {
        key: format.extensions
        for key, format in formats.items()
        if format.is_text or unpacked == name
    }
    matches = match_extension(unpacked, extensions)
    if len(matches) == 1:
        return matches[0]
    listed = "; ".join(
        " ".join([key, *format.extensions]) for key, format in formats.items()
    )
    raise SettingsError(
        f"{path}: cannot infer the format from the file extension. Set --data-format "
        f"(data.format) to one of: {listed}."
        if not matches
        else f"{path}: the file extension is ambiguous. Set --data-format "
        f"(data.format) to {' or '.join(matches)}."
    )
