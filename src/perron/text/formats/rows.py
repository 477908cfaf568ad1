"""What every reader shares: rows, the policy for bad ones, numbered lines."""

import gzip
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from perron.errors import DataError

KEPT_PROBLEMS = 5
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One text, or pair of texts, of a file. Lines and rows are counted from 1."""

    line: int
    text: str
    label: str | None
    pair: str | None = None


class BadRow(ValueError):
    """What is wrong with a row, said by the one who takes it apart."""


class BadRows:
    """What happens to rows that cannot be used: an error, or skipped and counted.

    Attributes:
        skipped: bad rows of each file.
        dropped: rows of each file whose label was asked to be left out.
        problems: the first few messages, for a person to look at.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.problems: list[str] = []

    def report(self, path: str | Path, line: int, problem: str) -> None:
        """Raise, or count the row and go on."""
        if not self.skip:
            advice = "(--skip-bad leaves such rows out)"
            raise DataError(f"{problem} {advice}", path, line)
        self.skipped[str(path)] += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(str(DataError(problem, path, line)))


def checked(
    rows: Iterator[Row], path: str | Path, bad: BadRows, drop: Collection[str] = ()
) -> Iterator[Row]:
    """Yield the rows that can be trained on; the others go to ``bad``.

    Raises:
        DataError: not a single row is left.
    """
    usable = 0
    for row in rows:
        if row.label in drop:
            bad.dropped[str(path)] += 1
            continue
        problem = text_problem(row) or training_problem(row)
        if problem:
            bad.report(path, row.line, problem)
            continue
        usable += 1
        yield row
    if not usable:
        first = f"; the first bad one: {bad.problems[0]}" if bad.problems else ""
        raise DataError(f"no usable rows{first}", path)


def text_problem(row: Row) -> str | None:
    """Say what keeps the text from being stored at all, if anything does."""
    for text in (row.text, row.pair or "", row.label or ""):
        if "\0" in text:
            return "a NUL byte"
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return "half a surrogate pair"
    return None


def training_problem(row: Row) -> str | None:
    """Say what keeps the row from being trained on, though it may be classified."""
    if not row.text.strip() or (row.pair is not None and not row.pair.strip()):
        return "the text is empty"
    return None if row.label else "the label is missing"


def numbered_lines(path: Path, bad: BadRows) -> Iterator[tuple[int, str]]:
    r"""Yield each line that is valid UTF-8, with its number and without its end.

    Only ``\n`` and ``\r\n`` end a line: other characters that Unicode calls line
    breaks occur inside texts. A byte order mark is taken off; ``.gz`` is unpacked.
    """
    for number, raw in enumerate(raw_lines(path), start=1):
        try:
            yield number, raw.decode()
        except UnicodeDecodeError as error:
            bad.report(path, number, not_utf8(error))


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, plain or gzipped, as bytes without their ends."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, raw in enumerate(file):
                line = raw.removeprefix(BYTE_ORDER_MARK) if number == 0 else raw
                yield line.removesuffix(b"\n").removesuffix(b"\r")
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"broken gzip file ({error})", path) from error


def not_utf8(error: UnicodeDecodeError) -> str:
    """Name the byte that is not UTF-8 and its place in the line."""
    byte = error.object[error.start]
    return f"not UTF-8: byte 0x{byte:02x} at position {error.start + 1} of the line"
