"""The words that a model knows, and the vectors that they begin with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perron.data.ids import TextSettings
from perron.data.vectors import (
    Coverage,
    WordVectors,
    coverage,
    embedding_matrix,
    read_vectors,
    wanted_words,
)
from perron.data.vocabulary import choose_vocabulary
from perron.data.words import UNKNOWN, WordTokenizer

# Called with a source of word vectors, bytes done, and bytes in all.
VectorProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Lexicon:
    """A vocabulary and where the vectors of its words come from.

    Attributes:
        words: in the order of their ids.
        sources: word vectors, put side by side; none if vectors are to be random.
        counts: how often each word is in the training texts, if it is.
        tokenizer: finds the words in texts.
    """

    words: list[str]
    sources: dict[str, WordVectors]
    counts: dict[str, int]
    tokenizer: WordTokenizer

    @property
    def width(self) -> int | None:
        """Of the vectors, if they come from somewhere."""
        return sum(table.dim for table in self.sources.values()) or None

    def matrix(self, seed: int, spread: float | None = None) -> np.ndarray:
        """Return a vector for each word; random where no source has the word.

        Args:
            seed: of the random ones.
            spread: standard deviation to scale each source to, if to any.
        """
        sources = list(self.sources.values())
        return embedding_matrix(self.words, sources, seed=seed, spread=spread)[0]

    def coverage(self) -> dict[str, Coverage]:
        """Return how many of the words each source has."""
        return {
            name: coverage(table, self.counts) for name, table in self.sources.items()
        }

    def skipped(self) -> dict[str, int]:
        """Return how many bad rows were left out of each source."""
        return {name: table.skipped for name, table in self.sources.items()}


def choose_lexicon(
    counts: Mapping[str, int],
    text: TextSettings,
    sources: Sequence[str] = (),
    skip_bad: bool = False,
    progress: VectorProgress | None = None,
) -> Lexicon:
    """Choose the words of texts, and read vectors for them.

    Args:
        counts: how often each word is in the texts.
        text: which words count, and how many of the vectors' own join them.
        sources: names of word vectors.
        skip_bad: leave out rows of them that cannot be read.
        progress: told about the reading.
    """
    wanted = wanted_words(choose_vocabulary(counts, text.min_count)) - {UNKNOWN}
    tables = {
        name: read_vectors(
            name,
            wanted,
            first=text.vector_words,
            skip_bad=skip_bad,
            progress=None if progress is None else _about(progress, name),
        )
        for name in sources
    }
    others = [
        word for table in tables.values() for word in table.words[: text.vector_words]
    ]
    if text.case == "lower":  # as far as texts can have them
        others = [word for word in others if word == word.lower()]
    words = choose_vocabulary(counts, text.min_count, others)
    known = {word: counts[word] for word in words if word in counts}
    tokenizer = WordTokenizer.of_words(words, text.case)
    return Lexicon(words, tables, known, tokenizer)


def _about(progress: VectorProgress, name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)
