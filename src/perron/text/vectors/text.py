"""Readers of GloVe and word2vec text files, with a compiled decimal parser."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perron.kernels.compile import jit
from perron.text.vectors import streams
from perron.text.vectors.streams import Layout, as_number
from perron.text.vectors.table import VectorCollector

Array = NDArray[Any]

LOOK_CLOSER = -1
NOTHING = -2

_TAB, _RETURN, _BLANK, _PLUS, _MINUS, _POINT, _NINE = 9, 13, 32, 43, 45, 46, 57
_ZERO, _LARGE_E, _SMALL_E = 48, 69, 101
_EXACT = 2**53  # whole numbers up to this, and the powers below, are exact in float64
_POWERS = np.array([10.0**k for k in range(23)])
_DIGITS = 18  # as many as surely fit into an int64


@jit
def find_words(
    text: Array, begins: Array, ends: Array, dim: int, word_ends: Array
) -> None:
    """Write where the word of each line ends; move ``ends`` before trailing blanks.

    It is the first blank if the line has ``dim`` of them. LOOK_CLOSER stands for any
    other number (a word with blanks, a wrong width), NOTHING for an empty line.
    """
    for line in range(len(begins)):
        begin, end = begins[line], ends[line]
        while end > begin and (
            text[end - 1] == _BLANK or text[end - 1] == _TAB or text[end - 1] == _RETURN
        ):
            end -= 1
        ends[line] = end
        if end == begin:
            word_ends[line] = NOTHING
            continue
        blanks = 0
        for at in range(begin, end):  # no early exit: this becomes vector instructions
            blanks += (text[at] == _BLANK) | (text[at] == _TAB)
        if blanks != dim:
            word_ends[line] = LOOK_CLOSER
            continue
        at = begin
        while text[at] != _BLANK and text[at] != _TAB:
            at += 1
        word_ends[line] = at


@jit
def read_numbers(
    text: Array, begins: Array, ends: Array, numbers: Array, done: Array
) -> None:
    """Read a row of numbers from each ``text[begin:end]``; tell which ones were done.

    A number of at most 18 digits and 2⁵³ (thus any of 15 digits) whose power of ten is
    within ±22 is one exact float64 multiplied or divided by another, so rounded once;
    rounding that to float32 can miss the nearest one by one unit in the last place, as
    can NumPy's own way from text to float32. Rows with any other field, NaN, infinity
    or the wrong number of fields are left for the caller (``done`` is False).
    """
    for row in range(len(begins)):
        done[row] = _read_row(text, begins[row], ends[row], numbers[row])


@jit
def _read_row(text: Array, at: int, end: int, numbers: Array) -> bool:
    for k in range(len(numbers)):
        if at >= end or (text[at] != _BLANK and text[at] != _TAB):
            return False
        at += 1
        negative = at < end and text[at] == _MINUS
        if negative or (at < end and text[at] == _PLUS):
            at += 1
        first = at
        mantissa = 0
        while at < end and _ZERO <= text[at] <= _NINE:
            mantissa = 10 * mantissa + (text[at] - _ZERO)
            at += 1
        digits = at - first
        power = 0
        if at < end and text[at] == _POINT:
            at += 1
            first = at
            while at < end and _ZERO <= text[at] <= _NINE:
                mantissa = 10 * mantissa + (text[at] - _ZERO)
                at += 1
            digits += at - first
            power = first - at
        if digits == 0 or digits > _DIGITS or mantissa > _EXACT:
            return False
        if at < end and (text[at] == _SMALL_E or text[at] == _LARGE_E):
            at += 1
            below = at < end and text[at] == _MINUS
            if below or (at < end and text[at] == _PLUS):
                at += 1
            first = at
            exponent = 0
            while at < end and _ZERO <= text[at] <= _NINE:
                exponent = 10 * exponent + (text[at] - _ZERO)
                at += 1
            if at == first or at - first > 4:
                return False
            power += -exponent if below else exponent
        if power < -22 or power > 22:
            return False
        value = float(mantissa)
        value = value / _POWERS[-power] if power < 0 else value * _POWERS[power]
        numbers[k] = -value if negative else value
        if not np.isfinite(numbers[k]):  # too large for float32
            return False
    return at == end


_NEWLINE = 10


class _BadRowError(ValueError):
    """What is wrong with a line."""


def read_text(
    stream: streams.Stream,
    layout: Layout,
    collector: VectorCollector,
    progress: Callable[[int, int], None],
) -> None:
    """Hand the rows that are wanted to the collector.

    Every row's width and the encoding of every word are checked, numbers only if the
    word is wanted. Words may have blanks inside: the last ``dim`` fields are numbers.
    """
    window = streams.Window(stream, streams.CHUNK)
    header = layout.rows is not None
    lines = rows = used = 0  # of the file, before this window; bytes of the last one
    while not window.ended:
        window.refill(used)
        begins, ends = _lines(window)
        used = int(ends[-1]) + 1 if len(ends) else 0
        if header and len(ends):
            begins, ends, lines, header = begins[1:], ends[1:], 1, False
        rows += _read_lines(window, begins, ends, layout.dim, collector, lines, rows)
        lines += len(begins)
        progress(stream.position(), stream.size)
    if window.failure:
        collector.bad(window.failure, lines + 1)
    elif rows < (layout.rows or 0):
        promise = f"the header promises {layout.rows} rows, there are {rows}"
        collector.bad(promise, lines)


def _lines(window: streams.Window) -> tuple[Array, Array]:
    """Return where the complete lines begin and end."""
    ends = np.flatnonzero(window.array[: window.length] == _NEWLINE)
    begins = np.concatenate([[0], ends + 1])
    if window.ended and not window.failure and begins[-1] < window.length:
        return begins, np.append(ends, window.length)  # the last line has no end
    return begins[:-1], ends


def _read_lines(
    window: streams.Window,
    begins: Array,
    ends: Array,
    dim: int,
    collector: VectorCollector,
    lines_before: int,
    rows_before: int,
) -> int:
    """Keep the rows that are wanted; return how many lines are not empty."""
    data = window.data
    word_ends = np.empty(len(begins), np.int64)
    find_words(window.array, begins, ends, dim, word_ends)
    words: list[str] = []
    places: list[tuple[int, int, int]] = []  # line of the file; numbers from, to
    bounds = zip(begins.tolist(), word_ends.tolist(), ends.tolist(), strict=True)
    for line, (begin, word_end, end) in enumerate(bounds, lines_before + 1):
        if word_end == NOTHING:
            continue
        word = ""
        try:
            if word_end == LOOK_CLOSER:
                word_end = begin + _word_length(bytes(data[begin:end]), dim)
            if word_end == begin:
                raise _BadRowError("there is no word before the numbers")
            word = data[begin:word_end].decode()
        except UnicodeDecodeError:
            collector.bad("the word is not UTF-8", line)
        except _BadRowError as error:
            collector.bad(str(error), line)
        words.append(word)
        places.append((line, word_end, end))
    kept = collector.choose(words, rows_before)
    if kept:
        _keep(
            window, [words[k] for k in kept], [places[k] for k in kept], dim, collector
        )
    return len(words)


def _keep(
    window: streams.Window,
    words: list[str],
    places: list[tuple[int, int, int]],
    dim: int,
    collector: VectorCollector,
) -> None:
    """Read the numbers of these words and hand over those that are good."""
    lines, begins, ends = np.array(places).T.copy()
    vectors = np.empty((len(words), dim), np.float32)
    good = np.empty(len(words), bool)
    read_numbers(window.array, begins, ends, vectors, good)
    for place in np.flatnonzero(~good).tolist():
        try:
            row = bytes(window.data[begins[place] : ends[place]])
            vectors[place] = _slow_numbers(row, dim)
            good[place] = True
        except _BadRowError as error:
            collector.bad(str(error), int(lines[place]))
    if good.all():
        collector.add(words, vectors)
    else:
        which = np.flatnonzero(good)
        collector.add([words[k] for k in which], vectors[which])


def _fields(line: bytes) -> list[bytes]:
    return [f for f in line.replace(b"\t", b" ").split(b" ") if f]


def _word_length(line: bytes, dim: int) -> int:
    """Return the length of the word of a line with too few or too many blanks."""
    fields = _fields(line)
    numbers = len(fields) - 1
    # In GloVe 840B the last part of a word with blanks is a point or an address. A
    # decimal number in that place says that the row is too long.
    extra = fields[-dim - 1] if numbers > dim else b""
    if numbers < dim or (b"." in extra and as_number(extra) is not None):
        raise _BadRowError(f"{_count(numbers)} after the word, not {dim}")
    line = line.replace(b"\t", b" ")
    for _ in range(dim):
        line = line.rstrip(b" ").rpartition(b" ")[0]
    return len(line.rstrip(b" "))


def _count(numbers: int) -> str:
    return "1 number" if numbers == 1 else f"{numbers} numbers"


def _slow_numbers(row: bytes, dim: int) -> Array:
    """Read what the compiled kernel does not: long mantissas, doubled blanks, NaN."""
    fields = _fields(row)
    if len(fields) != dim:
        raise _BadRowError(f"{_count(len(fields))} after the word, not {dim}")
    values = [as_number(field) for field in fields]
    for field, value in zip(fields, values, strict=True):
        if value is None:
            shown = field.decode(errors="replace")[:40]
            raise _BadRowError(f"{shown!r} is not a number")
    with np.errstate(over="ignore"):
        vector = np.array(values, np.float64).astype(np.float32)
    finite = np.isfinite(vector)
    if not finite.all():
        shown = fields[int(np.argmin(finite))].decode()[:40]
        raise _BadRowError(f"{shown!r} is not a finite float32")
    return vector
