"""Which words the training texts have, and which of them a model knows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from datasets import Dataset
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
    tokenizer = untrained({UNKNOWN: 0}, case)
    if tokenised:
        tokenizer.pre_tokenizer = at_blanks()
    trainer = WordLevelTrainer(
        vocab_size=2**31 - 1, special_tokens=[UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(map(list, batches), trainer)
    rows = tokenizer.get_vocab()
    counts = np.zeros(len(rows), np.int64)
    for batch in batches:
        encoded = tokenizer.encode_batch_fast(list(batch), add_special_tokens=False)
        ids = [np.asarray(encoding.ids, np.int64) for encoding in encoded]
        counts += np.bincount(np.concatenate(ids), minlength=len(rows))
    ordered = sorted(rows, key=lambda word: (-counts[rows[word]], word))
    return {word: int(counts[rows[word]]) for word in ordered if word != UNKNOWN}


def dataset_counts(
    dataset: Dataset, case: Case, settings: DataSettings
) -> dict[str, int]:
    """Count the words of a dataset, both texts of a pair; counted once, then kept."""
    columns = [name for name in ("text", "pair") if name in dataset.column_names]
    texts = _Texts(dataset, columns, settings.sentence_mark)
    facts = {
        "counts of": dataset._fingerprint,
        "case": case,
        "tokenised": settings.tokenised,
        "sentence_mark": settings.sentence_mark,
    }
    rows = (
        {"word": word, "count": count}
        for word, count in count_words(texts, case, settings.tokenised).items()
    )
    schema = pa.schema({"word": pa.string(), "count": pa.int64()})
    kept = stored(rows, schema, key_of(facts)).to_dict()
    return dict(zip(kept["word"], kept["count"], strict=True))


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
