"""Read the JSON files of vectors that winkNLP has on npm, as a stream."""

import json
import re
from collections.abc import Callable, Iterator

import numpy as np

from perron.data.vectors.keeping import Keeper
from perron.data.vectors.streams import CHUNK, Stream, opened
from perron.errors import DataError

_DIMENSIONS = re.compile(rb'"dimensions":(\d+)')
_VECTORS = b'"vectors":{'
_ENTRY = re.compile(rb',?"((?:[^"\\]|\\.)*)":\[([^]]*)\]')
_END = b"}"


def read_wink(source: str, keeper: Keeper, progress: Callable[[int, int], None]) -> int:
    """Hand the rows that are wanted to the keeper; return the width of a vector.

    ``{..., "dimensions": 100, ..., "vectors": {"the": [...], ...}, ...}``: of each
    word's numbers the first ``dimensions`` are its vector.
    """
    with opened(source) as stream:
        head = _head(stream)
        found = _DIMENSIONS.search(head)
        at = head.find(_VECTORS)
        if found is None or at < 0:
            raise DataError(
                'is JSON, but no vectors of winkNLP: those have "dimensions" and '
                '"vectors"',
                source,
            )
        dim = int(found[1])
        row = 0
        for entries in _entries(head[at + len(_VECTORS) :], stream):
            words = [_word(word, source) for word, _ in entries]
            kept: list[str] = []
            vectors: list[np.ndarray] = []
            for place in keeper.choose(words, row):
                vector = _numbers(entries[place][1], dim)
                if vector is None:
                    keeper.bad(f"the vector of {words[place]!r} is not {dim} numbers")
                else:
                    kept.append(words[place])
                    vectors.append(vector)
            if kept:
                keeper.add(kept, np.stack(vectors))
            row += len(entries)
            progress(stream.position(), stream.size)
    return dim


def _head(stream: Stream) -> bytes:
    """Return everything up to the first vectors, and what was read with it."""
    head = b""
    while _VECTORS not in head and (more := stream.reader.read(CHUNK)):
        head += more
    return head


def _entries(rest: bytes, stream: Stream) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield words and their numbers, as they stand in the file, in batches."""
    while True:
        batch = []
        at = 0
        while found := _ENTRY.match(rest, at):
            batch.append((found[1], found[2]))
            at = found.end()
        yield batch
        rest = rest[at:]
        if rest.startswith(_END):
            return
        more = stream.reader.read(CHUNK)
        if not more or len(rest) > CHUNK:
            problem = "is cut short" if not more else "is no list of numbers"
            raise DataError(f"{problem} in the vectors, at {rest[:40]!r}", stream.name)
        rest += more


def _word(text: bytes, source: str) -> str:
    try:
        return str(json.loads(b'"' + text + b'"'))
    except ValueError as error:
        raise DataError(f"has a word that is no JSON, {text!r}", source) from error


def _numbers(text: bytes, dim: int) -> np.ndarray | None:
    try:
        numbers = np.array(text.split(b",")[:dim], np.float32)
    except ValueError:
        return None
    return numbers if len(numbers) == dim and np.isfinite(numbers).all() else None
