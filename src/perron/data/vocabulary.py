"""Which words the training texts have, and which of them a model knows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.trainers import WordLevelTrainer

from perron.data.settings import DataSettings
from perron.data.store import key_of, stored
from perron.data.words import UNKNOWN, Case, at_blanks, untrained

_BATCH = 1000


def count_words(
    batches: Iterable[Sequence[str]], case: Case, tokenised: bool = False
) -> dict[str, int]:
    """Count the words of texts, most frequent first, then by the alphabet.

    Goes through the batches twice, so they must be there a second time: once to find
    the words and once to count them, both inside `tokenizers`, on all cores.
    """
    tokenizer = _tokenizer(case, tokenised)
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
    texts = _Texts(dataset, columns, settings.sentence_mark)
    facts = {
        "counts of": dataset._fingerprint,
        "by": _tokenizer(case, settings.tokenised).to_str(),
        "sentence_mark": settings.sentence_mark,
    }
    schema = pa.schema({"word": pa.string(), "count": pa.int64()})
    rows = _counted(texts, case, settings.tokenised)
    kept = stored(rows, schema, key_of(facts)).to_dict()
    return dict(zip(kept["word"], kept["count"], strict=True))


def _counted(
    texts: Iterable[Sequence[str]], case: Case, tokenised: bool
) -> Iterator[dict[str, Any]]:
    """Yield the counts as rows; nothing is counted before the first is drawn."""
    for word, count in count_words(texts, case, tokenised).items():
        yield {"word": word, "count": count}


def _tokenizer(case: Case, tokenised: bool) -> Tokenizer:
    tokenizer = untrained({UNKNOWN: 0}, case)
    if tokenised:
        tokenizer.pre_tokenizer = at_blanks()
    return tokenizer


def choose_vocabulary(
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
