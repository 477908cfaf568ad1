"""Read word2vec binary: after a header, a word, a blank and float32 numbers."""

from collections.abc import Callable

import numpy as np

from perron.data.vectors import streams
from perron.data.vectors.keeping import Keeper
from perron.data.vectors.layout import Layout


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
