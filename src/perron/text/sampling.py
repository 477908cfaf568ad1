"""Splits, shuffling and batches: which rows are used when."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from torch import Tensor

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


# Batches are cut from pools of this many, sorted by length: enough for little padding,
# few enough for neighbors to change from one epoch to the next.
POOL = 20


class Batch(NamedTuple):
    """Flat ids and lengths, by the names of the model's arguments, and labels.

    ``weights`` has the weight of each text; None if all count the same.
    """

    inputs: dict[str, Tensor]
    labels: Tensor
    weights: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on a device."""
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        weights = None if self.weights is None else self.weights.to(device)
        return Batch(inputs, self.labels.to(device), weights)


class Examples:
    """Encoded texts with labels, memory-mapped; any rows of them make a batch."""

    def __init__(self, dataset: Dataset, weights: np.ndarray | None = None) -> None:
        """Wrap a dataset.

        Args:
            dataset: Encoded texts and labels; see `TextProcessor.encode_dataset`.
            weights: Weight of each text. Defaults to the same weight for all.
        """
        self.weights = None if weights is None else weights.astype(np.float32)
        self._rows = dataset.with_format("arrow")
        columns = dataset.column_names
        self.is_document = "lengths" in columns
        self.is_pair = "pair_ids" in columns
        sizes = [
            _sizes(self._rows, name) for name in ("ids", "pair_ids") if name in columns
        ]
        self.sizes: np.ndarray = sum(sizes[1:], sizes[0])
        labels: pa.Table = self._rows.select_columns(["label"])[:]
        self.labels: np.ndarray = labels.column("label").to_numpy()

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, rows: Sequence[int] | np.ndarray) -> Batch:
        """Return these rows, one text after the other."""
        table: pa.Table = self._rows[np.asarray(rows)]
        labels = torch.from_numpy(table.column("label").to_numpy().copy())
        weights = None
        if self.weights is not None:
            weights = torch.from_numpy(self.weights[np.asarray(rows)])
        return Batch(_inputs(table), labels, weights)


def inputs_of(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Return the model's arguments for rows of `TextProcessor.rows`."""
    types = pa.schema({name: pa.list_(pa.int32()) for name in rows[0]})
    return _inputs(pa.Table.from_pylist(rows, schema=types))


def _inputs(table: pa.Table) -> dict[str, Tensor]:
    ids, counts = _flat(table, "ids")
    if "lengths" in table.column_names:
        lengths, sentences = _flat(table, "lengths")
        return {"ids": ids, "lengths": lengths, "sentences": sentences}
    inputs = {"ids": ids, "lengths": counts}
    if "pair_ids" in table.column_names:
        inputs["pair_ids"], inputs["pair_lengths"] = _flat(table, "pair_ids")
    return inputs


def _flat(table: pa.Table, name: str) -> tuple[Tensor, Tensor]:
    """Return all numbers of a column of lists, and how many each list has."""
    lists = table.column(name).combine_chunks()
    return _tensor(lists.flatten()), _tensor(lists.value_lengths())


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(array.to_numpy().astype(np.int64))


def _sizes(rows: Dataset, name: str) -> np.ndarray:
    lengths = [
        batch.column(name).combine_chunks().value_lengths().to_numpy()
        for batch in rows.select_columns([name]).iter(10_000)
    ]
    return np.concatenate([np.zeros(0, np.int64), *lengths])


def epoch_batches(
    sizes: np.ndarray, batch_size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Return the rows of each batch of an epoch: every row once, in a random order.

    Texts of like length share a batch. The order depends on the seed and the epoch, and
    on nothing else.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(sizes))
    batches = []
    for begin in range(0, len(order), POOL * batch_size):
        pool = order[begin : begin + POOL * batch_size]
        pool = pool[np.argsort(sizes[pool], kind="stable")]
        # The short batch is the first: texts of like length, not the odd ones out.
        cuts = np.arange(len(pool) % batch_size, len(pool), batch_size)
        batches += [part for part in np.split(pool, cuts) if len(part)]
    return [batches[place] for place in rng.permutation(len(batches))]


def batches_in_order(sizes: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Yield the rows of batches for evaluation: every row once, longest first."""
    order = np.argsort(-sizes, kind="stable")
    for begin in range(0, len(order), batch_size):
        yield order[begin : begin + batch_size]
