"""Data formats: the base class, its registry, and the files that formats read."""

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
_WIDE = {  # the first bytes of a file, and the encoding that they announce
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def find_file(name: str, root: Path | None = None) -> Path:
    """Return the path of a data file: below root, else in PERRON_DATA, else here."""
    path = Path(name).expanduser()
    if root is not None:
        path = root / path
    elif home := os.environ.get("PERRON_DATA"):
        path = Path(home) / path if (Path(home) / path).exists() else path
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "no such file"
        advice = "--data-dir or PERRON_DATA names the folder of the datasets"
        raise DataError(f"{problem}; {advice}", path)
    return path


def check_encoding(name: str) -> str:
    """Return the name if Python has a text encoding of that name."""
    try:
        "\n".encode(name)
    except (LookupError, ValueError) as error:
        raise SettingsError(
            f"encoding must be the name of a text encoding, such as utf-8, cp1252 or "
            f"utf-16, got {name!r}."
        ) from error
    return name


class Lines:
    r"""The lines of a binary stream as text, without their ends.

    Only ``\n`` and ``\r\n`` end a line: other characters that Unicode calls line
    breaks occur inside texts. A byte order mark is removed.

    Attributes:
        count: Lines read so far.
        problem: Why the last line cannot be decoded; None for a good line. A line that
            cannot is given with replacement characters, because a CSV row of several
            lines must be read to its end even so.
    """

    def __init__(
        self, stream: io.BufferedIOBase, place: str, encoding: str = UTF8
    ) -> None:
        self._stream = stream
        self._source_name = place
        self._encoding = UTF8 if encoding == "utf-8-sig" else encoding
        self.count = 0
        self.problem: str | None = None

    def __iter__(self) -> Iterator[str]:
        # In UTF-16 and the like, bytes cannot be split into lines before decoding.
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
        except UnicodeError as error:  # where the next line begins is unknown
            raise DataError(
                f"not {self._encoding.upper()}: {error}. --encoding names another "
                "encoding",
                self._source_name,
                self.count + 1,
            ) from error
        finally:
            text.detach()

    def _explain(self, error: UnicodeDecodeError, raw: bytes) -> str:
        byte = error.object[error.start]
        return (
            f"not {self._encoding.upper()}: byte 0x{byte:02x} at position "
            f"{error.start + 1} of the line; --encoding {self._guess(raw)} can read it"
        )

    def _guess(self, raw: bytes) -> str:
        """Return an encoding that can decode the line, the likeliest first."""
        if self.count == 1:
            for mark, encoding in _WIDE.items():
                if raw.startswith(mark):
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
    """A file to read, or a split of a dataset on the hub.

    Attributes:
        name: Name in the settings: a path or, on the hub, a split.
        bad: Policy for bad rows.
        columns: Columns to read, for formats that have any.
        encoding: Encoding of the text.
        options: The format's own settings, see `Format.options`, by name.
        keep_columns: Whether rows have `Row.columns`.
        path: Where the file is; `Format.open` finds it.
    """

    name: str
    bad: InvalidRows = field(default_factory=InvalidRows)
    columns: Columns = field(default_factory=Columns)
    encoding: str = UTF8
    options: Mapping[str, Any] = field(default_factory=dict)
    keep_columns: bool = False
    path: Path | None = None

    @property
    def place(self) -> str:
        """Name of the file in messages."""
        return self.name if self.path is None else str(self.path)

    def report(self, line: int, problem: str) -> None:
        """Raise a DataError for a bad row or, if bad rows are skipped, count it."""
        self.invalid_rows.report(self.path or self.name, line, problem)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield each line with its number; one that cannot be decoded is bad."""
        with self.decoded() as lines:
            for line in lines:
                if lines.problem is None:
                    yield lines.count, line
                else:
                    self.report(lines.count, lines.problem)

    @contextmanager
    def decoded(self) -> Iterator[Lines]:
        """Open the file as text; a ``.gz`` file is decompressed."""
        assert self.path is not None
        opener: Any = gzip.open if self.path.suffix == ".gz" else open
        try:
            with opener(self.path, "rb") as stream:
                yield Lines(stream, self.source_name, self.encoding)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise DataError(f"broken gzip file ({error})", self.path) from error


class Format(ABC):
    """A data format: how its files are read, and what is known about them.

    A subclass with a ``name`` is registered when it is defined, and can then be chosen
    as ``data.format``, with ``--data-format`` and by its file extensions.

    Attributes:
        name: Name in settings.
        summary: What it is, in a few words, for lists of formats.
        extensions: File extensions, such as ``.csv``.
        location: Where data of this format are: in files that are named in the
            settings, in an installed package, or on the Hugging Face hub.
        is_text: Whether files are text, possibly gzipped, with an encoding.
        has_columns: Whether the settings name the columns of text, pair and label.
        options: Settings of the data that are for this format, apart from columns.
        training_options: Those of them that are for training data alone.
        defaults: Default settings that differ from those of other formats.
        drop_labels: Labels whose rows are always left out.
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
        """Yield the rows of a file, one at a time; report bad ones to the file."""

    def read_texts(self, file: DataFile) -> Iterator[Row]:
        """Yield texts to predict, which need no label; by default as `read` does."""
        if self.location != "file":
            raise SettingsError(
                f"{file.name}: format must be that of a file, got {self.name!r}."
            )
        return self.read(file)

    def open(self, file: DataFile, root: Path | None = None) -> DataFile:
        """Find the file, below the folder ``root`` if there is one."""
        return replace(file, path=find_file(file.name, root))

    def files(self, names: Iterable[str], root: Path | None = None) -> list[Path]:
        """Return the files of a dataset, raising a DataError if one is missing."""
        return [find_file(name, root) for name in names]

    def facts(self, file: DataFile) -> dict[str, Any]:
        """Return what the rows of a file depend on, besides it and the settings."""
        return {}

    def schema(self, file: DataFile) -> Any:
        """Return the Arrow types of a file's columns; None if it has no types."""
        return None

    def labels(self, options: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the classes in their fixed order; None if the data decide."""
        return None

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise a ValueError if settings of the data do not go together."""
        if self.location == "file" and settings["train"] is None:
            raise ValueError("train is missing: name the file to train on")

    def fixed_split(
        self, texts: Iterable[str]
    ) -> tuple[tuple[float, float, float], list[int]] | None:
        """Return the fixed split of a dataset, None if the settings decide.

        Args:
            texts: All texts, in the order of the file.

        Returns:
            The fractions of train, dev and test; and an order of the rows, the first of
            which are test, the next dev, and the rest train.
        """
        return None


formats: Registry[type[Format]] = Registry("data format")


def get_format(name: str) -> Format:
    """Return the format of that name."""
    return formats[name]()


def infer_format(path: str | Path) -> str:
    """Return the name of a file's format by its extension, that before ``.gz`` too.

    Raises:
        SettingsError: The extension is that of no format, or of several.
    """
    name = str(path)
    unpacked = name.removesuffix(".gz")
    known = {
        key: format.extensions
        for key, format in formats.items()
        if format.is_text or unpacked == name
    }
    found = match_extension(unpacked, known)
    if len(found) == 1:
        return found[0]
    listed = "; ".join(
        " ".join([key, *format.extensions]) for key, format in formats.items()
    )
    raise SettingsError(
        f"{path}: the format is that of no known extension. Name it with --data-format "
        f"(data.format): {listed}."
        if not found
        else f"{path}: the extension is that of {' and '.join(found)}. Choose one with "
        "--data-format (data.format)."
    )
