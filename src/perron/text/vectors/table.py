"""Word vectors in memory, and the collector that readers fill."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64

from perron.errors import InvalidRows, SettingsError

_BLOCK = 16_384  # rows at a time, so that float64 copies stay small


@dataclass(frozen=True)
class WordVectors:
    """Words with a vector each: ``matrix[i]`` belongs to ``words[i]``.

    Attributes:
        words: in the order of the file, each once.
        matrix: their vectors, all finite.
        skipped: how many bad rows were left out on request.
    """

    words: list[str]
    matrix: Float32[np.ndarray, "v e"]
    skipped: int = 0

    @property
    def dim(self) -> int:
        """The width of a vector."""
        return self.matrix.shape[1]

    def lookup(self, words: Sequence[str]) -> Int64[np.ndarray, " n"]:
        """Return the row of each word, as written or else lower-cased; -1 if absent."""
        needed = wanted_words(words)
        rows = {word: row for row, word in enumerate(self.words) if word in needed}
        found = (rows.get(word, rows.get(word.lower(), -1)) for word in words)
        return np.fromiter(found, np.int64, len(words))


def wanted_words(words: Iterable[str]) -> set[str]:
    """Return what to read for a vocabulary: its words, and each lower-cased."""
    wanted = set(words)
    return wanted | {word.lower() for word in wanted}


@dataclass(frozen=True)
class Coverage:
    """How many different words have a vector, and how many of their occurrences."""

    types: int
    types_found: int
    tokens: int
    tokens_found: int

    def __str__(self) -> str:
        types, tokens = (
            100 * found / max(1, total)
            for found, total in (
                (self.types_found, self.types),
                (self.tokens_found, self.tokens),
            )
        )
        return (
            f"{self.types_found:,} of {self.types:,} words ({types:.1f} %), "
            f"{tokens:.1f} % of their occurrences"
        )


def coverage(vectors: WordVectors, counts: Mapping[str, int]) -> Coverage:
    """Return how much of a text, given as the count of each word, has a vector."""
    words = list(counts)
    rows = vectors.lookup(words)
    found = [counts[word] for word, row in zip(words, rows, strict=True) if row >= 0]
    return Coverage(len(words), len(found), sum(counts.values()), sum(found))


def embedding_matrix(
    words: Sequence[str],
    sources: Sequence[WordVectors],
    *,
    seed: int,
    spread: float | None = None,
) -> tuple[Float32[np.ndarray, "v e"], Bool[np.ndarray, " v"]]:
    """Return the vectors of a vocabulary, those of several sources side by side.

    A word is looked up as written, then lower-cased. What a source lacks is drawn
    uniformly from [-a, a], a = √3·σ, whose standard deviation σ is that of the numbers
    found (of the whole source if no word was found, 1/√dim if that is empty too). The
    numbers depend on the seed, the source and the word's place, besides σ. The unknown
    word at place 0 is drawn like any other that is missing.

    Args:
        words: the vocabulary; row i belongs to ``words[i]``.
        sources: one or more tables.
        seed: not negative.
        spread: standard deviation that the numbers of each source are scaled to, so
            that none drowns the others; as they are if not given.

    Returns:
        The matrix, and whether at least one source has the word.
    """
    width = sum(source.dim for source in sources)
    matrix = np.empty((len(words), width), np.float32)
    found = np.zeros(len(words), bool)
    begin = 0
    for number, source in enumerate(sources):
        rows = source.lookup(words)
        part = matrix[:, begin : begin + source.dim]
        present = np.flatnonzero(rows >= 0)
        own = _spread(source, rows[present])
        factor = 1.0 if spread is None or own == 0 else spread / own
        for at in range(0, len(present), _BLOCK):
            block = present[at : at + _BLOCK]
            part[block] = factor * source.matrix[rows[block]]
        limit = np.sqrt(3) * factor * own
        for place in np.flatnonzero(rows < 0).tolist():
            draw = np.random.default_rng((seed, number, place))
            part[place] = draw.uniform(-limit, limit, source.dim)
        found |= rows >= 0
        begin += source.dim
    return matrix, found


def _spread(source: WordVectors, rows: Int64[np.ndarray, " n"]) -> float:
    """Return the standard deviation of the numbers in these rows, in float64."""
    if len(rows) == 0:
        rows = np.arange(len(source.words))
    if len(rows) == 0:
        return float(source.dim**-0.5)
    total = squares = 0.0
    for at in range(0, len(rows), _BLOCK):
        block = source.matrix[rows[at : at + _BLOCK]].astype(np.float64)
        total += block.sum()
        squares += (block * block).sum()
    size = len(rows) * source.dim
    return float(np.sqrt(max(0.0, squares / size - (total / size) ** 2)))


# The matrix grows by this much. On Linux realloc moves pages of such large blocks, not
# bytes, so that the old and the new matrix never exist at once.
_GROWTH = 32 * 2**20


class VectorCollector:
    """The words wanted, plus the first of the file; of a repeated word the first row.

    That row counts even if it is bad and was skipped.
    """

    def __init__(
        self, name: str, wanted: Set[str], first: int, skip_invalid: bool
    ) -> None:
        if first < 0:
            raise SettingsError(f"first is {first}, but cannot be negative")
        self.name = name
        self.wanted = wanted
        self.first = first
        self._bad = InvalidRows(skip_invalid)
        self._seen: set[str] = set()
        self._words: list[str] = []
        self._matrix: Float32[np.ndarray, "v e"] | None = None

    def choose(self, words: list[str], row: int) -> list[int]:
        """Return which words to keep; they are those of row ``row`` and the next ones.

        A word is chosen only once, an empty one never: it stands for a bad row.
        """
        wanted, seen, places = self.wanted, self._seen, []
        always = self.first - row
        for place, word in enumerate(words):
            if (word in wanted or place < always) and word not in seen and word:
                seen.add(word)
                places.append(place)
        return places

    def bad(self, problem: str, line: int | None = None) -> None:
        """Raise a DataError or, if bad rows are skipped, count the row."""
        self._bad.report(self.name, line, problem)

    def add(self, words: list[str], vectors: Float32[np.ndarray, "n e"]) -> None:
        """Keep these words with their vectors."""
        dim = vectors.shape[1]
        if self._matrix is None:
            self._matrix = np.empty((0, dim), np.float32)
        begin = len(self._words)
        end = begin + len(words)
        if end > len(self._matrix):
            most = len(self.wanted) + self.first
            step = max(end - begin, _GROWTH // (4 * dim))
            rows = max(end, min(most, len(self._matrix) + step))
            self._matrix.resize((rows, dim), refcheck=False)  # nobody else has a view
        self._matrix[begin:end] = vectors
        self._words += words

    def result(self, dim: int) -> WordVectors:
        """Return what was kept; give the unused rest of the memory back."""
        matrix = self._matrix
        if matrix is None:
            matrix = np.empty((0, dim), np.float32)
        matrix.resize((len(self._words), dim), refcheck=False)
        self._matrix = None
        return WordVectors(self._words, matrix, self._bad.skipped.total())
