"""Splits of one file into train, dev and test, the same on every machine."""

import hashlib
from collections.abc import Sequence

import numpy as np

from perron.errors import DataError

Fractions = tuple[float, float, float]  # of train, dev and test
Rows = Sequence[int]

_SMALLEST_CLASS = 3  # a row for each of train, dev and test


def shuffled(count: int, seed: int) -> list[int]:
    """Order 0, 1, ... by the SHA-256 of ``seed:index``: no generator may change it."""
    digests = [hashlib.sha256(f"{seed}:{i}".encode()).digest() for i in range(count)]
    return sorted(range(count), key=digests.__getitem__)


def split_at_random(order: Rows, fractions: Fractions) -> tuple[Rows, Rows, Rows]:
    """Return the rows of train, dev and test.

    The first of ``order`` are test, the next dev, and the rest train. A part whose
    fraction is not 0 has at least one row.
    """
    total = len(order)
    test = max(1, round(fractions[2] * total)) if fractions[2] > 0 else 0
    dev = max(1, round(fractions[1] * total))
    if test + dev >= total:
        raise DataError(
            f"{total} rows are too few to split into train, dev and test as {fractions}"
        )
    return order[test + dev :], order[test : test + dev], order[:test]


def split_by_class(
    labels: np.ndarray, order: Rows, fractions: Fractions
) -> tuple[Rows, Rows, Rows]:
    """Return the rows of train, dev and test, with each class in all of them.

    Of each class, the first rows of ``order`` are test, the next dev, and the rest
    train. A part has as many rows of a class as its fraction of them, rounded so that
    the part has the size that it would have without classes; but at least one row of
    each class that has three or more. Smaller classes are train. Where no class has
    three rows, classes are not looked at.

    Args:
        labels: Class of each row, from 0.
        order: All rows, shuffled.
        fractions: Of train, dev and test.
    """
    classes: dict[int, list[int]] = {label: [] for label in sorted(set(labels))}
    for row in order:
        classes[labels[row]].append(row)
    sizes = [len(rows) for rows in classes.values()]
    if max(sizes) < _SMALLEST_CLASS:
        return split_at_random(order, fractions)
    test = _class_counts(sizes, fractions[2], [size - 2 for size in sizes])
    room = [size - 1 - count for size, count in zip(sizes, test, strict=True)]
    dev = _class_counts(sizes, fractions[1], room)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for rows, first, second in zip(classes.values(), test, dev, strict=True):
        parts[2].extend(rows[:first])
        parts[1].extend(rows[first : first + second])
        parts[0].extend(rows[first + second :])
    return parts


def _class_counts(sizes: Rows, fraction: float, room: Rows) -> list[int]:
    """Return how many rows of each class a part has, by the largest remainder."""
    if fraction == 0:
        return [0] * len(sizes)
    wanted = [fraction * size for size in sizes]
    counts = [
        min(max(1, int(share)), most) if size >= _SMALLEST_CLASS else 0
        for share, size, most in zip(wanted, sizes, room, strict=True)
    ]
    left = round(fraction * sum(sizes)) - sum(counts)
    growing = [
        place
        for place, size in enumerate(sizes)
        if size >= _SMALLEST_CLASS and counts[place] < room[place]
    ]
    growing.sort(key=lambda place: counts[place] - wanted[place])
    for place in growing[: max(0, left)]:
        counts[place] += 1
    return counts
