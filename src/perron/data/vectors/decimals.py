"""Compiled kernels that find the words of many lines and read decimal numbers."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

LOOK_CLOSER = -1
NOTHING = -2

_TAB, _RETURN, _BLANK, _PLUS, _MINUS, _POINT, _NINE = 9, 13, 32, 43, 45, 46, 57
_ZERO, _LARGE_E, _SMALL_E = 48, 69, 101
_EXACT = 2**53  # whole numbers up to this, and the powers below, are exact in float64
_POWERS = np.array([10.0**k for k in range(23)])
_DIGITS = 18  # as many as surely fit into an int64


def _jit(function: Kernel) -> Kernel:
    """Compile at first call, keep the machine code on disk where that is possible."""
    function = inspect.unwrap(function)  # a test run wraps it in a checker of types
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no directory that it may write to
        return numba.njit(**options)(function)


@_jit
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


@_jit
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


@_jit
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
