"""Reader of GloVe and word2vec text files, with a compiled decimal parser."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perron.kernels.compile import jit
from perron.text.vectors import streams
from perron.text.vectors.streams import Layout, parse_number
from perron.text.vectors.table import VectorCollector

Array = NDArray[Any]

# Special results of `find_word_ends`.
AMBIGUOUS = -1
EMPTY_LINE = -2

_TAB, _RETURN, _SPACE, _PLUS, _MINUS, _POINT, _NINE = 9, 13, 32, 43, 45, 46, 57
_ZERO, _LARGE_E, _SMALL_E = 48, 69, 101
_MAX_EXACT = 2**53  # float64 represents integers up to this exactly,
_POWERS = np.array([10.0**k for k in range(23)])  # and these powers of ten
_MAX_DIGITS = 18  # always fit into an int64


@jit(entry=True)
def find_word_ends(
    text: Array, starts: Array, ends: Array, dim: int, word_ends: Array
) -> None:
    """Find the end of the word in each line, and strip trailing whitespace.

    If the line has ``dim`` separators, the word ends at the first one. Otherwise the
    result is AMBIGUOUS (the word contains spaces, or the number of values is wrong) or
    EMPTY_LINE.

    Args:
        text: Bytes of the file.
        starts: Start of each line.
        ends: End of each line. Modified in place to exclude trailing whitespace.
        dim: Dimension of the vectors.
        word_ends: Output.
    """
    for line in range(len(starts)):
        start, end = starts[line], ends[line]
        while end > start and (
            text[end - 1] == _SPACE or text[end - 1] == _TAB or text[end - 1] == _RETURN
        ):
            end -= 1
        ends[line] = end
        if end == start:
            word_ends[line] = EMPTY_LINE
            continue
        separators = 0
        for i in range(start, end):  # without early exit, so that it can be vectorized
            separators += (text[i] == _SPACE) | (text[i] == _TAB)
        if separators != dim:
            word_ends[line] = AMBIGUOUS
            continue
        i = start
        while text[i] != _SPACE and text[i] != _TAB:
            i += 1
        word_ends[line] = i


@jit(entry=True)
def read_numbers(
    text: Array, starts: Array, ends: Array, numbers: Array, is_parsed: Array
) -> None:
    """Parse the numbers of each row ``text[start:end]``.

    A mantissa of at most 18 digits and at most 2⁵³ (so any of 15 digits) with a power
    of ten within ±22 is one exact float64 multiplied or divided by another, and thus
    rounded once. Rounding this to float32 can differ from the nearest float32 by one
    unit in the last place, as can NumPy's conversion from text to float32.

    Rows with any other field, NaN, infinity or the wrong number of fields are not
    parsed.

    Args:
        text: Bytes of the file.
        starts: Start of each row.
        ends: End of each row.
        numbers: Output, one row of numbers per row.
        is_parsed: Output, whether each row was parsed.
    """
    for row in range(len(starts)):
        is_parsed[row] = _read_row(text, starts[row], ends[row], numbers[row])


@jit()
def _read_row(text: Array, i: int, end: int, numbers: Array) -> bool:
    for k in range(len(numbers)):
        if i >= end or (text[i] != _SPACE and text[i] != _TAB):
            return False
        i += 1
        is_negative = i < end and text[i] == _MINUS
        if is_negative or (i < end and text[i] == _PLUS):
            i += 1
        first = i
        mantissa = 0
        while i < end and _ZERO <= text[i] <= _NINE:
            mantissa = 10 * mantissa + (text[i] - _ZERO)
            i += 1
        digits = i - first
        power = 0
        if i < end and text[i] == _POINT:
            i += 1
            first = i
            while i < end and _ZERO <= text[i] <= _NINE:
                mantissa = 10 * mantissa + (text[i] - _ZERO)
                i += 1
            digits += i - first
            power = first - i
        if digits == 0 or digits > _MAX_DIGITS or mantissa > _MAX_EXACT:
            return False
        if i < end and (text[i] == _SMALL_E or text[i] == _LARGE_E):
            i += 1
            is_negative_power = i < end and text[i] == _MINUS
            if is_negative_power or (i < end and text[i] == _PLUS):
                i += 1
            first = i
            exponent = 0
            while i < end and _ZERO <= text[i] <= _NINE:
                exponent = 10 * exponent + (text[i] - _ZERO)
                i += 1
            if i == first or i - first > 4:
                return False
            power += -exponent if is_negative_power else exponent
        if power < -22 or power > 22:
            return False
        value = float(mantissa)
        value = value / _POWERS[-power] if power < 0 else value * _POWERS[power]
        numbers[k] = -value if is_negative else value
        if not np.isfinite(numbers[k]):  # too large for float32
            return False
    return i == end


_NEWLINE = 10


class _InvalidRowError(ValueError):
    """Raised for a line that cannot be parsed."""


def read_text(
    stream: streams.Stream,
    layout: Layout,
    collector: VectorCollector,
    progress: Callable[[int, int], None],
) -> None:
    """Read a GloVe or word2vec text file.

    The last ``dim`` fields of a line are numbers; the word before them may contain
    spaces. The number of fields and the encoding of the word are checked in every row,
    but numbers are only checked for wanted words.
    """
    window = streams.Window(stream, streams.CHUNK)
    has_header = layout.rows is not None
    lines = rows = 0  # in the file, before this window
    used = 0  # bytes of this window
    while not window.ended:
        window.refill(used)
        starts, ends = _line_bounds(window)
        used = int(ends[-1]) + 1 if len(ends) else 0
        if has_header and len(ends):
            starts, ends, lines, has_header = starts[1:], ends[1:], 1, False
        rows += _read_lines(window, starts, ends, layout.dim, collector, lines, rows)
        lines += len(starts)
        progress(stream.position(), stream.size)
    if window.failure:
        collector.report(window.failure, lines + 1)
    elif rows < (layout.rows or 0):
        problem = f"the header declares {layout.rows} rows, got {rows}"
        collector.report(problem, lines)


def _line_bounds(window: streams.Window) -> tuple[Array, Array]:
    """Return the starts and ends of the complete lines."""
    ends = np.flatnonzero(window.array[: window.length] == _NEWLINE)
    starts = np.concatenate([[0], ends + 1])
    if window.ended and not window.failure and starts[-1] < window.length:
        return starts, np.append(ends, window.length)  # no newline at end of file
    return starts[:-1], ends


def _read_lines(
    window: streams.Window,
    starts: Array,
    ends: Array,
    dim: int,
    collector: VectorCollector,
    lines_before: int,
    rows_before: int,
) -> int:
    """Collect the wanted words; return the number of nonempty lines."""
    data = window.data
    word_ends = np.empty(len(starts), np.int64)
    find_word_ends(window.array, starts, ends, dim, word_ends)
    words: list[str] = []
    spans: list[tuple[int, int, int]] = []  # line number; start and end of the numbers
    bounds = zip(starts.tolist(), word_ends.tolist(), ends.tolist(), strict=True)
    for line, (start, word_end, end) in enumerate(bounds, lines_before + 1):
        if word_end == EMPTY_LINE:
            continue
        word = ""
        try:
            if word_end == AMBIGUOUS:
                word_end = start + _word_length(bytes(data[start:end]), dim)
            if word_end == start:
                raise _InvalidRowError("no word before the numbers")
            word = data[start:word_end].decode()
        except UnicodeDecodeError:
            collector.report("the word is not valid UTF-8", line)
        except _InvalidRowError as error:
            collector.report(str(error), line)
        words.append(word)
        spans.append((line, word_end, end))
    selected = collector.select(words, rows_before)
    if selected:
        _collect(
            window,
            [words[k] for k in selected],
            [spans[k] for k in selected],
            dim,
            collector,
        )
    return len(words)


def _collect(
    window: streams.Window,
    words: list[str],
    spans: list[tuple[int, int, int]],
    dim: int,
    collector: VectorCollector,
) -> None:
    """Parse the vectors of these words, and pass the valid ones to the collector."""
    lines, starts, ends = np.array(spans).T.copy()
    vectors = np.empty((len(words), dim), np.float32)
    is_valid = np.empty(len(words), bool)
    read_numbers(window.array, starts, ends, vectors, is_valid)
    for index in np.flatnonzero(~is_valid).tolist():
        try:
            row = bytes(window.data[starts[index] : ends[index]])
            vectors[index] = _parse_slowly(row, dim)
            is_valid[index] = True
        except _InvalidRowError as error:
            collector.report(str(error), int(lines[index]))
    if is_valid.all():
        collector.add(words, vectors)
    else:
        valid = np.flatnonzero(is_valid)
        collector.add([words[k] for k in valid], vectors[valid])


def _fields(line: bytes) -> list[bytes]:
    return [f for f in line.replace(b"\t", b" ").split(b" ") if f]


def _word_length(line: bytes, dim: int) -> int:
    """Return the length of the word in a line with too few or too many separators."""
    fields = _fields(line)
    count = len(fields) - 1
    # In GloVe 840B, the last part of a word with spaces is a period or an address. A
    # decimal number in its place means that the row has too many numbers.
    extra = fields[-dim - 1] if count > dim else b""
    if count < dim or (b"." in extra and parse_number(extra) is not None):
        raise _InvalidRowError(f"expected {dim} numbers after the word, got {count}")
    line = line.replace(b"\t", b" ")
    for _ in range(dim):
        line = line.rstrip(b" ").rpartition(b" ")[0]
    return len(line.rstrip(b" "))


def _parse_slowly(row: bytes, dim: int) -> Array:
    """Parse rows that the kernel does not: long mantissas, double spaces, NaN."""
    fields = _fields(row)
    if len(fields) != dim:
        raise _InvalidRowError(
            f"expected {dim} numbers after the word, got {len(fields)}"
        )
    values = [parse_number(field) for field in fields]
    for field, value in zip(fields, values, strict=True):
        if value is None:
            shown = field.decode(errors="replace")[:40]
            raise _InvalidRowError(f"{shown!r} is not a number")
    with np.errstate(over="ignore"):
        vector = np.array(values, np.float64).astype(np.float32)
    finite = np.isfinite(vector)
    if not finite.all():
        shown = fields[int(np.argmin(finite))].decode()[:40]
        raise _InvalidRowError(f"{shown!r} is not a finite float32")
    return vector
