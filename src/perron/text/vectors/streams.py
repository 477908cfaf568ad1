"""Buffered reading of plain and compressed word vector files, and word2vec binary."""

import gzip
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import IO

import numpy as np

from perron.errors import DataError
from perron.text.vectors.table import VectorCollector

_HEAD_BYTES = 2**18  # about a hundred lines of 300 numbers
_HEAD_LINES = 100
_PRINTABLE = bytes([9, 10, 13, *range(32, 127)])


@dataclass(frozen=True)
class Layout:
    """Layout of a word vector file.

    Attributes:
        dim: Dimension of the vectors.
        rows: Number of rows according to the header, or None without a header.
        is_binary: Whether numbers are float32 values instead of decimals.
    """

    dim: int
    rows: int | None
    is_binary: bool


def detect_layout(source: str) -> Layout:
    """Detect the layout of a text or binary file from its first lines."""
    with open_stream(source) as stream:
        window = Window(stream, _HEAD_BYTES)
        window.refill(0)
    head = bytes(window.data[: window.length])
    if not head.strip():
        raise DataError(window.failure or "the file is empty", source)
    line, _, rest = head.partition(b"\n")
    fields = line.split()
    has_header = len(fields) == 2 and all(f.isdigit() and int(f) for f in fields)
    path, member = split_archive_member(source)
    has_binary_name = any(s == ".bin" for s in [*path.suffixes, (member or "")[-4:]])
    if has_header:
        rows, dim = int(fields[0]), int(fields[1])
        if has_binary_name or _looks_binary(rest, dim):
            return Layout(dim, rows, is_binary=True)
        # A word that is a number, with a vector of dimension 1, looks like a header.
        if dim == 1 or _most_common_dim(rest) != 1:
            return Layout(dim, rows, is_binary=False)
    elif has_binary_name:
        raise DataError(
            "not a word2vec binary file: the first line must be 'count dim', "
            f"got {line[:40]!r}.",
            source,
        )
    dim = _most_common_dim(head)
    if dim == 0:
        raise DataError(
            "not a word vector file. Each line must be a word and its numbers; "
            "supported formats are text (GloVe, word2vec), word2vec binary and .npy.",
            source,
        )
    return Layout(dim, None, is_binary=False)


def _looks_binary(rest: bytes, dim: int) -> bool:
    # As text, d numbers with d separators take at least 2d bytes.
    numbers = rest.partition(b" ")[2][: 2 * dim]
    return bool(numbers.translate(None, _PRINTABLE))


def _most_common_dim(head: bytes) -> int:
    """Return the most common number of trailing numbers per line, the first if tied."""
    lines = head.split(b"\n")
    if len(head) >= _HEAD_BYTES and len(lines) > 1:
        del lines[-1]  # incomplete
    dims = Counter(_count_numbers(line) for line in lines[:_HEAD_LINES] if line.strip())
    return dims.most_common(1)[0][0] if dims else 0


def _count_numbers(line: bytes) -> int:
    fields = line.split()
    count = 0
    for field in reversed(fields[1:]):  # the first is the word, even if it is a number
        if parse_number(field) is None:
            break
        count += 1
    return count


def parse_number(field: bytes) -> float | None:
    """Return the value of a decimal number, or None if it is not a number."""
    try:
        return None if b"_" in field else float(field)  # Python reads 1_0 as ten
    except ValueError:
        return None


CHUNK = 4 * 2**20  # bytes read at a time
_READ_BYTES = 2**18
_MAX_ROW_BYTES = 64 * 2**20  # a file with longer rows does not contain word vectors


@dataclass(frozen=True)
class Stream:
    """A decompressed file.

    Attributes:
        name: Name of the source in messages.
        reader: Decompressed bytes.
        position: Function that returns the current position, comparable to `size`.
        size: Size of the file.
    """

    name: str
    reader: BufferedIOBase
    position: Callable[[], int]
    size: int


def split_archive_member(source: str) -> tuple[Path, str | None]:
    """Split ``path::member`` into the path and the member, which may be None."""
    path, separator, member = source.partition("::")
    if not separator or Path(source).exists():
        return Path(source), None
    return Path(path), member


@contextmanager
def open_stream(source: str) -> Iterator[Stream]:
    """Open a file; compression is detected from the first bytes."""
    path, member = split_archive_member(source)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise DataError("file not found", path) from None
    except OSError as error:
        raise DataError(f"cannot open the file ({error.strerror})", path) from None
    with file:
        magic = file.read(4)
        file.seek(0)
        if magic == b"PK\3\4":
            with _open_member(source, file, member) as stream:
                yield stream
            return
        if member is not None:
            raise DataError(f"cannot open {member}: not a zip archive", path)
        size = path.stat().st_size
        if magic[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as reader:
                yield Stream(source, reader, file.tell, size)  # compressed bytes
        else:
            yield Stream(source, file, file.tell, size)


@contextmanager
def _open_member(source: str, file: IO[bytes], member: str | None) -> Iterator[Stream]:
    """Open the given member of a zip archive, or its only member."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [i.filename for i in archive.infolist() if not i.is_dir()]
            if member is None and len(members) == 1:
                member = members[0]
            if member not in members:
                problem = "several members" if member is None else f"no member {member}"
                raise DataError(
                    f"the archive has {problem}. Select one of {', '.join(members)}, "
                    f"for example {file.name}::{members[0]}."
                    if members
                    else "the archive is empty",
                    source,
                )
            info = archive.getinfo(member)
            with archive.open(info) as reader:
                # Annotated as IO[bytes], but in fact a ZipExtFile.
                assert isinstance(reader, BufferedIOBase)
                yield Stream(source, reader, reader.tell, info.file_size)
    except (zipfile.BadZipFile, RuntimeError) as error:  # corrupt; encrypted
        raise DataError(f"cannot read the zip archive ({error})", source) from None


class Window:
    """A sliding window over a stream.

    Attributes:
        data: Buffer. The window is ``data[:length]``.
        array: The same buffer as a NumPy array.
        length: Number of bytes in the window.
        ended: Whether the stream has no more bytes.
        failure: Why the stream ended early, or None.
    """

    def __init__(self, stream: Stream, size: int) -> None:
        self._stream = stream
        self._allocate(size)
        self.length = 0
        self.ended = False
        self.failure: str | None = None

    def _allocate(self, size: int) -> None:
        self.data = bytearray(size)
        self.array = np.frombuffer(self.data, np.uint8)

    def refill(self, used: int) -> None:
        """Drop the first ``used`` bytes, and read until the window is full.

        If ``used`` is 0, a row is longer than the window, so the window is doubled.
        """
        rest = self.data[used : self.length]
        if len(rest) == len(self.data):
            if len(rest) >= _MAX_ROW_BYTES:
                raise DataError(
                    f"not a word vector file: a row has more than {len(rest)} bytes",
                    self._stream.name,
                )
            self._allocate(2 * len(rest))
        self.data[: len(rest)] = rest
        self.length = len(rest)
        with memoryview(self.data) as view:
            while self.length < len(view) and not self.ended:
                self._read_into(view[self.length :])

    def _read_into(self, view: memoryview) -> None:
        try:
            # A single read. If `readinto` made several and a later one failed, the
            # bytes of the earlier ones would be lost.
            count = self._stream.reader.readinto1(view[:_READ_BYTES])
        except (EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
            self.failure = f"cannot read the rest of the file ({error})"
            count = 0
        self.length += count
        self.ended = count == 0


def read_binary(
    stream: Stream,
    layout: Layout,
    collector: VectorCollector,
    progress: Callable[[int, int], None],
) -> None:
    """Read a word2vec binary file.

    A newline after the numbers is optional. The encoding of every word is checked, but
    numbers are only checked for wanted words. Data after the last row is ignored.
    """
    stream.reader.readline()
    window = Window(stream, CHUNK)
    expected = layout.rows or 0
    row = used = 0
    while row < expected and not window.ended:
        window.refill(used)
        row, used = _read_rows(window, layout.dim, collector, row, expected)
        progress(stream.position(), stream.size)
    if row < expected:
        reason = window.failure or f"the header declares {expected} rows"
        collector.report(f"row {row + 1}: unexpected end of file ({reason})")


def _read_rows(
    window: Window, dim: int, collector: VectorCollector, row: int, expected: int
) -> tuple[int, int]:
    """Collect the wanted words from the complete rows of the window.

    Returns:
        Number of rows read so far, and number of bytes used.
    """
    data, length = window.data, window.length
    words: list[str] = []
    starts: list[int] = []  # of the numbers
    first_row, position = row, 0
    while row < expected:
        space = data.find(b" ", position, length)
        end = space + 1 + 4 * dim
        if space < 0 or end > length:
            break
        row += 1
        try:
            words.append(data[position:space].lstrip(b"\n").decode())
        except UnicodeDecodeError:
            collector.report(f"row {row}: the word is not valid UTF-8")
            words.append("")
        starts.append(space + 1)
        position = end
    kept: list[str] = []
    vectors: list[np.ndarray] = []
    for index in collector.select(words, first_row):
        vector = np.frombuffer(data, "<f4", dim, starts[index]).astype(np.float32)
        if np.isfinite(vector).all():
            kept.append(words[index])
            vectors.append(vector)
        else:
            problem = f"NaN or infinity in the vector of {words[index]!r}"
            collector.report(f"row {first_row + index + 1}: {problem}")
    if kept:
        collector.add(kept, np.stack(vectors))
    return row, position
