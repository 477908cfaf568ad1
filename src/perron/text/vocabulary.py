"""Vocabularies and their word vectors."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.trainers import WordLevelTrainer

from perron.text.cache import cache_key, cached_dataset
from perron.text.encoding import TextSettings
from perron.text.settings import DataSettings
from perron.text.tokenizers import (
    UNKNOWN,
    Case,
    WordTokenizer,
    whitespace_splitter,
    word_level_tokenizer,
)
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
    """Count the words of texts, sorted by descending count, then alphabetically.

    Both passes over the texts, one to collect the words and one to count them, run in
    `tokenizers` on all cores.

    Args:
        batches: Batches of texts. Must be iterable twice.
        case: Whether to lowercase the texts.
        pretokenized: Whether words are already separated by whitespace.
    """
    tokenizer = _tokenizer(case, pretokenized)
    trainer = WordLevelTrainer(vocab_size=2**31 - 1, show_progress=False)
    tokenizer.train_from_iterator(map(list, batches), trainer)
    counts: Counter[int] = Counter()
    for batch in batches:
        for encoding in tokenizer.encode_batch_fast(list(batch)):
            counts.update(encoding.ids)
    by_word = {word: counts[index] for word, index in tokenizer.get_vocab().items()}
    return dict(sorted(by_word.items(), key=lambda item: (-item[1], item[0])))


def count_dataset_words(
    dataset: Dataset, case: Case, settings: DataSettings
) -> dict[str, int]:
    """Count the words of a dataset, including second texts, with a cache on disk."""
    names = [name for name in ("text", "pair") if name in dataset.column_names]
    texts = _TextBatches(dataset, names, settings.sentence_separator)
    key_values = {
        "counted_dataset": dataset._fingerprint,
        "tokenizer": _tokenizer(case, settings.pretokenized).to_str(),
        "sentence_separator": settings.sentence_separator,
    }
    schema = pa.schema({"word": pa.string(), "count": pa.int64()})
    rows = _count_rows(texts, case, settings.pretokenized)
    columns = cached_dataset(rows, schema, cache_key(key_values)).to_dict()
    return dict(zip(columns["word"], columns["count"], strict=True))


def _count_rows(
    texts: Iterable[Sequence[str]], case: Case, pretokenized: bool
) -> Iterator[dict[str, Any]]:
    """Yield the counts as rows; counting starts when the first row is requested."""
    for word, count in count_words(texts, case, pretokenized).items():
        yield {"word": word, "count": count}


def _tokenizer(case: Case, pretokenized: bool) -> Tokenizer:
    tokenizer = word_level_tokenizer({UNKNOWN: 0}, case)
    if pretokenized:
        tokenizer.pre_tokenizer = whitespace_splitter()
    return tokenizer


def select_words(
    counts: Mapping[str, int], min_count: int, others: Iterable[str] = ()
) -> list[str]:
    """Return the words of a vocabulary, without duplicates; the first is `UNKNOWN`.

    Args:
        counts: Number of occurrences of each word.
        min_count: Minimum number of occurrences.
        others: Words to add.
    """
    frequent = (word for word, count in counts.items() if count >= min_count)
    return list(dict.fromkeys([UNKNOWN, *frequent, *others]))


class _TextBatches:
    """Batches of texts that can be iterated over repeatedly."""

    def __init__(
        self, dataset: Dataset, columns: list[str], separator: str | None
    ) -> None:
        self._dataset = dataset.select_columns(columns)
        self._separator = separator

    def __iter__(self) -> Iterator[list[str]]:
        for batch in self._dataset.iter(_BATCH):
            texts = [text for column in batch.values() for text in column]
            if self._separator is not None:
                texts = [text.replace(self._separator, " ") for text in texts]
            yield texts


# Called with the name of the word vectors, the bytes read so far, and the total.
VectorProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary with word vectors and a tokenizer.

    Attributes:
        words: Words in the order of their ids.
        sources: Word vectors by name, to be concatenated. Empty for random vectors.
        counts: Number of occurrences of each word in the training texts.
        tokenizer: Tokenizer for this vocabulary.
    """

    words: list[str]
    sources: dict[str, WordVectors]
    counts: dict[str, int]
    tokenizer: WordTokenizer

    @property
    def vector_dim(self) -> int | None:
        """Dimension of the concatenated vectors, or None without word vectors."""
        return sum(table.dim for table in self.sources.values()) or None

    def matrix(self, seed: int, std: float | None = None) -> np.ndarray:
        """Return one vector per word; missing vectors are random.

        Args:
            seed: Random seed.
            std: Standard deviation to scale each source to. Defaults to no scaling.
        """
        sources = list(self.sources.values())
        return embedding_matrix(self.words, sources, seed=seed, std=std)[0]

    def coverage(self) -> dict[str, Coverage]:
        """Return the coverage of the training words by each source."""
        return {
            name: coverage(table, self.counts) for name, table in self.sources.items()
        }

    def skipped(self) -> dict[str, int]:
        """Return the number of invalid rows skipped in each source."""
        return {name: table.skipped for name, table in self.sources.items()}


def build_vocabulary(
    counts: Mapping[str, int],
    text: TextSettings,
    sources: Sequence[str] = (),
    skip_invalid: bool = False,
    progress: VectorProgress | None = None,
) -> Vocabulary:
    """Build a vocabulary and read its word vectors.

    Args:
        counts: Number of occurrences of each word in the training texts.
        text: Text settings.
        sources: Word vectors to read; see `read_vectors`.
        skip_invalid: Whether to skip invalid rows of word vectors.
        progress: Progress callback.
    """
    wanted = wanted_words(select_words(counts, text.min_count)) - {UNKNOWN}
    tables = {
        name: read_vectors(
            name,
            wanted,
            first=text.vector_words,
            skip_invalid=skip_invalid,
            progress=None if progress is None else _bind_name(progress, name),
        )
        for name in sources
    }
    others = [
        word for table in tables.values() for word in table.words[: text.vector_words]
    ]
    if text.case == "lower":  # other words cannot occur in lowercased texts
        others = [word for word in others if word == word.lower()]
    words = select_words(counts, text.min_count, others)
    known = {word: counts[word] for word in words if word in counts}
    tokenizer = WordTokenizer.from_words(words, text.case)
    return Vocabulary(words, tables, known, tokenizer)


def _bind_name(progress: VectorProgress, name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)
