"""Part one file into train, dev and test, the same way on every machine."""

import hashlib
from collections.abc import Sequence

from datasets import Dataset

from perron.errors import DataError

DEFAULT_SPLIT = (0.8, 0.1, 0.1)
DEV_ALONE = (0.9, 0.1, 0.0)  # a test file is given: a tenth of train becomes dev


def shuffled(count: int, seed: int) -> list[int]:
    """Order 0, 1, ... by the SHA-256 of ``seed:index``: no generator may change it."""
    digests = [hashlib.sha256(f"{seed}:{i}".encode()).digest() for i in range(count)]
    return sorted(range(count), key=digests.__getitem__)


def part(
    rows: Dataset, fractions: tuple[float, float, float], order: Sequence[int]
) -> tuple[Dataset, Dataset, Dataset | None]:
    """Return train, dev and test, without copying a text.

    The first of ``order`` are tested on, the next are dev, the rest train. A part
    that is asked for gets at least one row; inside a part the file's order is kept.
    """
    total = len(rows)
    test = max(1, round(fractions[2] * total)) if fractions[2] > 0 else 0
    dev = max(1, round(fractions[1] * total))
    if test + dev >= total:
        raise DataError(f"{total} rows are too few to part as {fractions}")
    cuts = order[test + dev :], order[test : test + dev], order[:test]
    train_rows, dev_rows, test_rows = (rows.select(sorted(cut)) for cut in cuts)
    return train_rows, dev_rows, test_rows if test else None
