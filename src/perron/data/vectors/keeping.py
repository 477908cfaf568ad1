"""Collect the rows that a reader keeps, and decide what becomes of bad ones."""

from collections.abc import Set

import numpy as np
from jaxtyping import Float32

from perron.data.vectors.table import WordVectors
from perron.errors import DataError, SettingsError

# The matrix grows by this much. On Linux realloc moves pages of such large blocks, not
# bytes, so that the old and the new matrix never exist at once.
_GROWTH = 32 * 2**20

_REMEDY = "mend the file, or leave such rows out with --skip-bad (skip_bad=True)"


class Keeper:
    """The words wanted, plus the first of the file; of a repeated word the first row.

    That row counts even if it is bad and was skipped.
    """

    def __init__(self, name: str, wanted: Set[str], first: int, skip_bad: bool) -> None:
        if first < 0:
            raise SettingsError(f"first is {first}, but cannot be negative")
        self.name = name
        self.wanted = wanted
        self.first = first
        self.skip_bad = skip_bad
        self.skipped = 0
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
        """Raise, or count the row if bad ones are to be skipped."""
        if not self.skip_bad:
            raise DataError(f"{problem}; {_REMEDY}", self.name, line)
        self.skipped += 1

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
        return WordVectors(self._words, matrix, self.skipped)
