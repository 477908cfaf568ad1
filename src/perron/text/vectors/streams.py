"""Plain, gzip and zip files of word vectors as streams of byte windows."""

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

_HEAD = 2**18  # bytes looked at: about a hundred lines of 300 numbers
_LINES = 100
_PRINTABLE = bytes([9, 10, 13, *range(32, 127)])


@dataclass(frozen=True)
class Layout:
    """What comes in the file.

    Attributes:
        dim: numbers in a vector.
        rows: how many the header promises; None without a header.
        binary: whether numbers are float32 rather than decimal.
    """

    dim: int
    rows: int | None
    binary: bool


def find_layout(source: str) -> Layout:
    """Return the layout of a text or binary file, told by its first lines."""
    with opened(source) as stream:
        window = Window(stream, _HEAD)
        window.refill(0)
    head = bytes(window.data[: window.length])
    if not head.strip():
        raise DataError(window.failure or "is empty", source)
    line, _, rest = head.partition(b"\n")
    fields = line.split()
    has_header = len(fields) == 2 and all(f.isdigit() and int(f) for f in fields)
    path, member = split_archive_member(source)
    named_binary = any(s == ".bin" for s in [*path.suffixes, (member or "")[-4:]])
    if has_header:
        rows, dim = int(fields[0]), int(fields[1])
        if named_binary or _looks_binary(rest, dim):
            return Layout(dim, rows, binary=True)
        # Words that are numbers, with vectors of width one, look like headers too.
        if dim == 1 or _usual_width(rest) != 1:
            return Layout(dim, rows, binary=False)
    elif named_binary:
        raise DataError(
            "its first line is not 'count dim', so it is no word2vec binary", source
        )
    width = _usual_width(head)
    if width == 0:
        raise DataError(
            "has no lines of a word and its numbers; word vectors are expected as "
            "text (GloVe, word2vec), word2vec binary or .npy",
            source,
        )
    return Layout(width, None, binary=False)


def _looks_binary(rest: bytes, dim: int) -> bool:
    # As text, d numbers and as many separators are at least 2d bytes.
    numbers = rest.partition(b" ")[2][: 2 * dim]
    return bool(numbers.translate(None, _PRINTABLE))


def _usual_width(head: bytes) -> int:
    """Return how many numbers most lines end with; of equals, the first."""
    lines = head.split(b"\n")
    if len(head) >= _HEAD and len(lines) > 1:
        del lines[-1]  # cut off in the middle
    widths = Counter(_width(line) for line in lines[:_LINES] if line.strip())
    return widths.most_common(1)[0][0] if widths else 0


def _width(line: bytes) -> int:
    fields = line.split()
    numbers = 0
    for field in reversed(fields[1:]):  # the first is the word, even if it is a number
        if as_number(field) is None:
            break
        numbers += 1
    return numbers


def as_number(field: bytes) -> float | None:
    """Return the value of a decimal number, None if it is not one."""
    try:
        return None if b"_" in field else float(field)  # Python reads 1_0 as ten
    except ValueError:
        return None


CHUNK = 4 * 2**20  # bytes read at a time
_READ = 2**18
_LONGEST = 64 * 2**20  # bytes of a row: beyond it, this is no file of vectors


@dataclass(frozen=True)
class Stream:
    """The bytes of a file after decompression, and how far along its reading is."""

    name: str
    reader: BufferedIOBase
    position: Callable[[], int]
    size: int


def split_archive_member(source: str) -> tuple[Path, str | None]:
    """Return the path and, of ``path::choice``, the choice."""
    path, mark, choice = source.partition("::")
    if not mark or Path(source).exists():
        return Path(source), None
    return Path(path), choice


@contextmanager
def opened(source: str) -> Iterator[Stream]:
    """Open a file, decompressed according to its first bytes."""
    path, member = split_archive_member(source)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise DataError("there is no such file", path) from None
    except OSError as error:
        raise DataError(f"cannot be opened ({error.strerror})", path) from None
    with file:
        magic = file.read(4)
        file.seek(0)
        if magic == b"PK\3\4":
            with _opened_member(source, file, member) as stream:
                yield stream
            return
        if member is not None:
            raise DataError(f"is no zip archive that could hold {member}", path)
        size = path.stat().st_size
        if magic[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as reader:
                yield Stream(source, reader, file.tell, size)  # of compressed bytes
        else:
            yield Stream(source, file, file.tell, size)


@contextmanager
def _opened_member(
    source: str, file: IO[bytes], member: str | None
) -> Iterator[Stream]:
    """Open the member that was chosen, or the only one."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [i.filename for i in archive.infolist() if not i.is_dir()]
            if member is None and len(members) == 1:
                member = members[0]
            if member not in members:
                which = "several members" if member is None else f"no member {member}"
                raise DataError(
                    f"has {which}; choose one, as in {file.name}::{members[0]}, "
                    f"of {', '.join(members)}"
                    if members
                    else "holds no files",
                    source,
                )
            info = archive.getinfo(member)
            with archive.open(info) as reader:
                # Typed as IO[bytes], but a ZipExtFile.
                assert isinstance(reader, BufferedIOBase)
                yield Stream(source, reader, reader.tell, info.file_size)
    except (zipfile.BadZipFile, RuntimeError) as error:  # damaged; with a password
        raise DataError(f"cannot be unpacked ({error})", source) from None


class Window:
    """The part of a stream in memory: ``data[:length]``, also as an array.

    Attributes:
        ended: there is nothing behind the window.
        failure: why the stream ended early, if it did.
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
        """Forget the first ``used`` bytes and read until the window is full again.

        If none were used, a row is longer than the window, which is then doubled.
        """
        rest = self.data[used : self.length]
        if len(rest) == len(self.data):
            if len(rest) >= _LONGEST:
                raise DataError(
                    f"a row of more than {len(rest)} bytes: these are no word vectors",
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
            # One read at a time: of several, the first ones' bytes would be lost if a
            # later one failed.
            count = self._stream.reader.readinto1(view[:_READ])
        except (EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
            self.failure = f"cannot be read further ({error})"
            count = 0
        self.length += count
        self.ended = count == 0


def read_binary(
    stream: Stream,
    layout: Layout,
    collector: VectorCollector,
    progress: Callable[[int, int], None],
) -> None:
    """Hand the rows that are wanted to the collector.

    A newline after the numbers is optional. The encoding of every word is checked,
    numbers only if the word is wanted. What follows the last row is ignored.
    """
    stream.reader.readline()
    window = Window(stream, CHUNK)
    promised = layout.rows or 0
    row = used = 0
    while row < promised and not window.ended:
        window.refill(used)
        row, used = _read_rows(window, layout.dim, collector, row, promised)
        progress(stream.position(), stream.size)
    if row < promised:
        why = window.failure or f"the header promises {promised} rows"
        collector.bad(f"row {row + 1}: the file ends before or within this row ({why})")


def _read_rows(
    window: Window, dim: int, collector: VectorCollector, row: int, promised: int
) -> tuple[int, int]:
    """Keep what is wanted of the window's complete rows.

    Returns:
        How many rows of the file are behind us, and how many bytes of the window.
    """
    data, length = window.data, window.length
    words: list[str] = []
    begins: list[int] = []  # of the numbers
    before, at = row, 0
    while row < promised:
        blank = data.find(b" ", at, length)
        end = blank + 1 + 4 * dim
        if blank < 0 or end > length:
            break
        row += 1
        try:
            words.append(data[at:blank].lstrip(b"\n").decode())
        except UnicodeDecodeError:
            collector.bad(f"row {row}: the word is not UTF-8")
            words.append("")
        begins.append(blank + 1)
        at = end
    kept: list[str] = []
    vectors: list[np.ndarray] = []
    for place in collector.choose(words, before):
        vector = np.frombuffer(data, "<f4", dim, begins[place]).astype(np.float32)
        if np.isfinite(vector).all():
            kept.append(words[place])
            vectors.append(vector)
        else:
            problem = f"NaN or infinity in the vector of {words[place]!r}"
            collector.bad(f"row {before + place + 1}: {problem}")
    if kept:
        collector.add(kept, np.stack(vectors))
    return row, at
