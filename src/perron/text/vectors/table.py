"""Word vectors in memory, and the collector that readers fill."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64

from perron.errors import InvalidRows, SettingsError

_BLOCK = 16_384  # rows per block, to keep float64 copies small


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: Distinct words, in the order of the file.
        matrix: One vector per word. All values are finite.
        skipped: Number of invalid rows that were skipped.
    """

    words: list[str]
    matrix: Float32[np.ndarray, "v e"]
    skipped: int = 0

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self.matrix.shape[1]

    def lookup(self, words: Sequence[str]) -> Int64[np.ndarray, " n"]:
        """Return the row of each word as written, else in lowercase; -1 if missing."""
        wanted = wanted_words(words)
        rows = {word: row for row, word in enumerate(self.words) if word in wanted}
        result = (rows.get(word, rows.get(word.lower(), -1)) for word in words)
        return np.fromiter(result, np.int64, len(words))


def wanted_words(words: Iterable[str]) -> set[str]:
    """Return the words to read for a vocabulary, and their lowercase forms."""
    wanted = set(words)
    return wanted | {word.lower() for word in wanted}


@dataclass(frozen=True)
class Coverage:
    """Coverage of a text by word vectors.

    Attributes:
        types: Number of distinct words.
        types_found: Number of distinct words with a vector.
        tokens: Number of occurrences of words.
        tokens_found: Number of occurrences of words with a vector.
    """

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
    """Return the coverage of a text by word vectors.

    Args:
        vectors: Word vectors.
        counts: Number of occurrences of each word.
    """
    words = list(counts)
    rows = vectors.lookup(words)
    found = [counts[word] for word, row in zip(words, rows, strict=True) if row >= 0]
    return Coverage(len(words), len(found), sum(counts.values()), sum(found))


def embedding_matrix(
    words: Sequence[str],
    sources: Sequence[WordVectors],
    *,
    seed: int,
    std: float | None = None,
) -> tuple[Float32[np.ndarray, "v e"], Bool[np.ndarray, " v"]]:
    """Return the embedding matrix of a vocabulary; vectors of sources are concatenated.

    A word is looked up as written, then in lowercase. Missing vectors are drawn
    uniformly from [-a, a] with a = √3·σ, where σ is the standard deviation of the
    vectors found (of the entire source if none was found, 1/√dim if it is empty).
    Besides σ, they depend only on the seed, the index of the source and the index of
    the word. The unknown word at index 0 is treated like any other missing word.

    Args:
        words: Vocabulary. Row i of the matrix belongs to ``words[i]``.
        sources: One or more tables of word vectors.
        seed: Random seed, at least 0.
        std: Standard deviation to scale the values of each source to, so that no source
            dominates. Defaults to no scaling.

    Returns:
        The matrix, and for each word whether at least one source has it.
    """
    dim = sum(source.dim for source in sources)
    matrix = np.empty((len(words), dim), np.float32)
    found = np.zeros(len(words), bool)
    start = 0
    for source_index, source in enumerate(sources):
        rows = source.lookup(words)
        part = matrix[:, start : start + source.dim]
        present = np.flatnonzero(rows >= 0)
        source_std = _std(source, rows[present])
        factor = 1.0 if std is None or source_std == 0 else std / source_std
        for i in range(0, len(present), _BLOCK):
            block = present[i : i + _BLOCK]
            part[block] = factor * source.matrix[rows[block]]
        limit = np.sqrt(3) * factor * source_std
        for word_index in np.flatnonzero(rows < 0).tolist():
            rng = np.random.default_rng((seed, source_index, word_index))
            part[word_index] = rng.uniform(-limit, limit, source.dim)
        found |= rows >= 0
        start += source.dim
    return matrix, found


def _std(source: WordVectors, rows: Int64[np.ndarray, " n"]) -> float:
    """Return the standard deviation of the values in these rows, in float64."""
    if len(rows) == 0:
        rows = np.arange(len(source.words))
    if len(rows) == 0:
        return float(source.dim**-0.5)
    total = squares = 0.0
    for i in range(0, len(rows), _BLOCK):
        block = source.matrix[rows[i : i + _BLOCK]].astype(np.float64)
        total += block.sum()
        squares += (block * block).sum()
    size = len(rows) * source.dim
    return float(np.sqrt(max(0.0, squares / size - (total / size) ** 2)))


# The matrix grows by this many bytes. For such large blocks, realloc on Linux remaps
# pages instead of copying them, so that the old and new matrix never coexist.
_GROWTH_BYTES = 32 * 2**20


class VectorCollector:
    """Collects the vectors of wanted words, and of the first words of the file.

    Only the first row of a repeated word counts, even if it is invalid and skipped.
    """

    def __init__(
        self, name: str, wanted: Set[str], first: int, skip_invalid: bool
    ) -> None:
        if first < 0:
            raise SettingsError(f"first must be at least 0, got {first}.")
        self.name = name
        self.wanted = wanted
        self.first = first
        self._invalid_rows = InvalidRows(skip_invalid)
        self._seen: set[str] = set()
        self._words: list[str] = []
        self._matrix: Float32[np.ndarray, "v e"] | None = None

    def select(self, words: list[str], row: int) -> list[int]:
        """Return the indices of the words to keep.

        Args:
            words: Words of consecutive rows. An empty word marks an invalid row.
            row: Index of the first of these rows.
        """
        wanted, seen, indices = self.wanted, self._seen, []
        keep_until = self.first - row
        for index, word in enumerate(words):
            if (word in wanted or index < keep_until) and word not in seen and word:
                seen.add(word)
                indices.append(index)
        return indices

    def report(self, problem: str, line: int | None = None) -> None:
        """Report an invalid row: raise a DataError, or count it if rows are skipped."""
        self._invalid_rows.report(self.name, line, problem)

    def add(self, words: list[str], vectors: Float32[np.ndarray, "n e"]) -> None:
        """Add words and their vectors."""
        dim = vectors.shape[1]
        if self._matrix is None:
            self._matrix = np.empty((0, dim), np.float32)
        start = len(self._words)
        end = start + len(words)
        if end > len(self._matrix):
            max_rows = len(self.wanted) + self.first
            step = max(end - start, _GROWTH_BYTES // (4 * dim))
            rows = max(end, min(max_rows, len(self._matrix) + step))
            self._matrix.resize((rows, dim), refcheck=False)  # there are no views
        self._matrix[start:end] = vectors
        self._words += words

    def result(self, dim: int) -> WordVectors:
        """Return the collected vectors, and release unused memory."""
        matrix = self._matrix
        if matrix is None:
            matrix = np.empty((0, dim), np.float32)
        matrix.resize((len(self._words), dim), refcheck=False)
        self._matrix = None
        return WordVectors(self._words, matrix, self._invalid_rows.skipped.total())
