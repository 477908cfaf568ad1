"""What a dataset is like: a line of the paper's Table 1."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from datasets import Dataset

from perron.files import digest
from perron.text.datasets import Splits
from perron.text.settings import DataSettings
from perron.text.tokenizers import Case
from perron.text.vocabulary import dataset_counts


@dataclass(frozen=True)
class Statistics:
    """Sizes, classes, length and vocabulary.

    Attributes:
        sizes: texts of each part.
        labels: texts of each class in the training data.
        mean_length: words of a training text; of both texts of a pair, each on its own.
        vocabulary: different words of the training data.
        skipped: bad rows left out.
        dropped: rows left out for their label.
        fingerprint: digest of all texts and labels, in their order.
    """

    sizes: dict[str, int]
    labels: dict[str, int]
    mean_length: float
    vocabulary: int
    skipped: int
    dropped: int
    fingerprint: str


def statistics(splits: Splits, settings: DataSettings, case: Case) -> Statistics:
    """Count; each word is counted once and the counts are kept on disk."""
    parts: dict[str, Dataset | None] = {
        "train": splits.train,
        "dev": splits.dev,
        "test": splits.test,
    }
    counts = dataset_counts(splits.train, case, settings)
    texts = len(splits.train) * (2 if splits.is_pair else 1)
    classes = Counter(splits.train["label"])
    return Statistics(
        {name: 0 if rows is None else len(rows) for name, rows in parts.items()},
        {label: classes[row] for row, label in enumerate(splits.labels)},
        sum(counts.values()) / max(1, texts),
        len(counts),
        sum(splits.skipped.values()),
        sum(splits.dropped.values()),
        _fingerprint(parts.values(), splits.labels),
    )


def _fingerprint(parts: Iterable[Dataset | None], labels: tuple[str, ...]) -> str:
    """Hash what the rows say; from which files, and how they are written, is not."""

    def content() -> Iterator[bytes]:
        yield json.dumps(labels).encode()
        for rows in parts:
            yield b"part"
            for batch in () if rows is None else rows.iter(batch_size=1000):
                columns = [batch.get(name) for name in ("text", "pair", "label")]
                yield json.dumps(columns).encode()

    return digest(content())[:16]
