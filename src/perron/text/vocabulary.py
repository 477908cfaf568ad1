"""Vocabularies, and the word vectors that initialize them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.trainers import WordLevelTrainer

from perron.text.cache import key_of, stored
from perron.text.encoding import TextSettings
from perron.text.settings import DataSettings
from perron.text.tokenizers import UNKNOWN, Case, WordTokenizer, at_blanks, untrained
from perron.text.vectors import (
    Coverage,
    WordVectors,
    coverage,
    embedding_matrix,
    read_vectors,
    wanted_words,
)

_BATCH = 1000


def count_words(
    batches: Iterable[Sequence[str]], case: Case, pretokenized: bool = False
) -> dict[str, int]:
    """Count the words of texts, most frequent first, then by the alphabet.

    Goes through the batches twice, so they must be there a second time: once to find
    the words and once to count them, both inside `tokenizers`, on all cores.
    """
    tokenizer = _tokenizer(case, pretokenized)
    trainer = WordLevelTrainer(vocab_size=2**31 - 1, show_progress=False)
    tokenizer.train_from_iterator(map(list, batches), trainer)
    counts: Counter[int] = Counter()
    for batch in batches:
        for encoding in tokenizer.encode_batch_fast(list(batch)):
            counts.update(encoding.ids)
    by_word = {word: counts[row] for word, row in tokenizer.get_vocab().items()}
    return dict(sorted(by_word.items(), key=lambda item: (-item[1], item[0])))


def dataset_counts(
    dataset: Dataset, case: Case, settings: DataSettings
) -> dict[str, int]:
    """Count the words of a dataset, both texts of a pair; counted once, then kept."""
    columns = [name for name in ("text", "pair") if name in dataset.column_names]
    texts = _Texts(dataset, columns, settings.sentence_separator)
    facts = {
        "counts of": dataset._fingerprint,
        "by": _tokenizer(case, settings.pretokenized).to_str(),
        "sentence_separator": settings.sentence_separator,
    }
    schema = pa.schema({"word": pa.string(), "count": pa.int64()})
    rows = _counted(texts, case, settings.pretokenized)
    kept = stored(rows, schema, key_of(facts)).to_dict()
    return dict(zip(kept["word"], kept["count"], strict=True))


def _counted(
    texts: Iterable[Sequence[str]], case: Case, pretokenized: bool
) -> Iterator[dict[str, Any]]:
    """Yield the counts as rows; nothing is counted before the first is drawn."""
    for word, count in count_words(texts, case, pretokenized).items():
        yield {"word": word, "count": count}


def _tokenizer(case: Case, pretokenized: bool) -> Tokenizer:
    tokenizer = untrained({UNKNOWN: 0}, case)
    if pretokenized:
        tokenizer.pre_tokenizer = at_blanks()
    return tokenizer


def select_words(
    counts: Mapping[str, int], min_count: int, others: Iterable[str] = ()
) -> list[str]:
    """Return `UNKNOWN`, the words seen often enough, and the others, each once."""
    often = (word for word, count in counts.items() if count >= min_count)
    return list(dict.fromkeys([UNKNOWN, *often, *others]))


class _Texts:
    """Batches of texts that can be gone through again and again."""

    def __init__(self, dataset: Dataset, columns: list[str], mark: str | None) -> None:
        self._dataset = dataset.select_columns(columns)
        self._mark = mark

    def __iter__(self) -> Iterator[list[str]]:
        for batch in self._dataset.iter(_BATCH):
            texts = [text for column in batch.values() for text in column]
            if self._mark is not None:
                texts = [text.replace(self._mark, " ") for text in texts]
            yield texts


# Called with a source of word vectors, bytes done, and bytes in all.
VectorProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Vocabulary:
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


def build_vocabulary(
    counts: Mapping[str, int],
    text: TextSettings,
    sources: Sequence[str] = (),
    skip_invalid: bool = False,
    progress: VectorProgress | None = None,
) -> Vocabulary:
    """Choose the words of texts, and read vectors for them.

    Args:
        counts: how often each word is in the texts.
        text: which words count, and how many of the vectors' own join them.
        sources: names of word vectors.
        skip_invalid: leave out rows of them that cannot be read.
        progress: told about the reading.
    """
    wanted = wanted_words(select_words(counts, text.min_count)) - {UNKNOWN}
    tables = {
        name: read_vectors(
            name,
            wanted,
            first=text.vector_words,
            skip_invalid=skip_invalid,
            progress=None if progress is None else _about(progress, name),
        )
        for name in sources
    }
    others = [
        word for table in tables.values() for word in table.words[: text.vector_words]
    ]
    if text.case == "lower":  # as far as texts can have them
        others = [word for word in others if word == word.lower()]
    words = select_words(counts, text.min_count, others)
    known = {word: counts[word] for word in words if word in counts}
    tokenizer = WordTokenizer.of_words(words, text.case)
    return Vocabulary(words, tables, known, tokenizer)


def _about(progress: VectorProgress, name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)
