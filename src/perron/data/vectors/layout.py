"""Tell from its first bytes how a file of vectors is laid out."""

from collections import Counter
from dataclasses import dataclass

from perron.data.vectors.streams import Window, opened, split_choice
from perron.errors import DataError

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
    path, member = split_choice(source)
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
