"""Readers of word2vec binary files and of .npy matrices with a list of words."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from perron.errors import DataError
from perron.text.vectors import streams
from perron.text.vectors.streams import Layout, split_choice
from perron.text.vectors.table import Keeper


def read_binary(
    stream: streams.Stream,
    layout: Layout,
    keeper: Keeper,
    progress: Callable[[int, int], None],
) -> None:
    """Hand the rows that are wanted to the keeper.

    A newline after the numbers is optional. The encoding of every word is checked,
    numbers only if the word is wanted. What follows the last row is ignored.
    """
    stream.reader.readline()
    window = streams.Window(stream, streams.CHUNK)
    promised = layout.rows or 0
    row = used = 0
    while row < promised and not window.ended:
        window.refill(used)
        row, used = _read_rows(window, layout.dim, keeper, row, promised)
        progress(stream.position(), stream.size)
    if row < promised:
        why = window.failure or f"the header promises {promised} rows"
        keeper.bad(f"row {row + 1}: the file ends before or within this row ({why})")


def _read_rows(
    window: streams.Window, dim: int, keeper: Keeper, row: int, promised: int
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
            keeper.bad(f"row {row}: the word is not UTF-8")
            words.append("")
        begins.append(blank + 1)
        at = end
    kept: list[str] = []
    vectors: list[np.ndarray] = []
    for place in keeper.choose(words, before):
        vector = np.frombuffer(data, "<f4", dim, begins[place]).astype(np.float32)
        if np.isfinite(vector).all():
            kept.append(words[place])
            vectors.append(vector)
        else:
            problem = f"NaN or infinity in the vector of {words[place]!r}"
            keeper.bad(f"row {before + place + 1}: {problem}")
    if kept:
        keeper.add(kept, np.stack(vectors))
    return row, at


_BLOCK_BYTES = 16 * 2**20


def read_array(
    source: str, keeper: Keeper, progress: Callable[[int, int], None]
) -> int:
    """Hand the rows that are wanted to the keeper; return the width of a vector."""
    path, choice = split_choice(source)
    beside = [path.with_suffix(end) for end in (".txt", ".vocab")]
    lists = [Path(choice)] if choice else [p for p in beside if p.is_file()]
    if not lists:
        raise DataError(
            f"has no list of words beside it ({beside[0].name} or {beside[1].name}); "
            f"name it, as in {path.name}::words.txt",
            path,
        )
    return read_rows(path, _lines(lists[0]), keeper, progress)


def read_rows(
    path: Path,
    words: Iterable[str],
    keeper: Keeper,
    progress: Callable[[int, int], None],
) -> int:
    """Hand over the rows of the words that are wanted; return the width."""
    rows, dim = mapped(path).shape
    step = max(1, _BLOCK_BYTES // (4 * dim))
    words = iter(words)
    for begin in range(0, rows, step):
        here = list(islice(words, min(step, rows - begin)))
        wanted = keeper.choose(here, begin)
        # Mapped anew, lest the whole file stay in this process's memory.
        vectors = mapped(path)[begin : begin + len(here)][wanted].astype(np.float32)
        finite = np.isfinite(vectors).all(1)
        for k in np.flatnonzero(~finite):
            word = here[wanted[k]]
            row = begin + wanted[k] + 1
            keeper.bad(f"row {row}: NaN or infinity in the vector of {word!r}")
        kept = np.flatnonzero(finite)
        keeper.add([here[wanted[k]] for k in kept], vectors[kept])
        if len(here) < min(step, rows - begin):
            _mismatch(path, rows, begin + len(here))
        progress(min(begin + step, rows) * 4 * dim, rows * 4 * dim)
    more = sum(1 for _ in words)
    if more:
        _mismatch(path, rows, rows + more)
    return dim


def _mismatch(path: Path, rows: int, words: int) -> None:
    raise DataError(f"has {rows} rows, but the list beside it has {words} words", path)


def mapped(path: Path) -> np.ndarray:
    """Return the matrix without reading it; refuse pickled objects."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError("there is no such file", path) from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"is no .npy matrix ({error})", path) from None
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind not in "fiu":
        raise DataError(
            f"is no matrix of numbers, but {matrix.dtype} of shape {matrix.shape}", path
        )
    return matrix


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.rstrip(b"\r\n").decode()
                except UnicodeDecodeError:
                    raise DataError("is not UTF-8", path, number) from None
    except OSError as error:
        raise DataError(f"cannot be opened ({error.strerror})", path) from None
