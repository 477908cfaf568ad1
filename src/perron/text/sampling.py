"""Dataset splits, shuffling and batches."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from perron.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

Fractions = tuple[float, float, float]  # train, dev, test
Rows = Sequence[int]

_MIN_CLASS_SIZE = 3  # one row for each of train, dev and test


def stable_permutation(count: int, seed: int) -> list[int]:
    """Return a permutation of ``range(count)``, sorted by SHA-256 of ``seed:index``.

    Unlike the output of a random generator, it is the same in every library version.
    """
    digests = [hashlib.sha256(f"{seed}:{i}".encode()).digest() for i in range(count)]
    return sorted(range(count), key=digests.__getitem__)


def random_split(order: Rows, fractions: Fractions) -> tuple[Rows, Rows, Rows]:
    """Return the rows of train, dev and test.

    The first rows of ``order`` become test, the next ones dev, and the remaining ones
    train. Each split with a nonzero fraction has at least one row.

    Args:
        order: All rows, shuffled.
        fractions: Fractions of train, dev and test.
    """
    total = len(order)
    test = max(1, round(fractions[2] * total)) if fractions[2] > 0 else 0
    dev = max(1, round(fractions[1] * total))
    if test + dev >= total:
        raise DataError(
            f"{total} rows are too few for a split into train, dev and test with the "
            f"fractions {fractions}."
        )
    return order[test + dev :], order[test : test + dev], order[:test]


def stratified_split(
    labels: np.ndarray, order: Rows, fractions: Fractions
) -> tuple[Rows, Rows, Rows]:
    """Return the rows of train, dev and test, stratified by class.

    Within each class, the first rows of ``order`` become test, the next ones dev, and
    the remaining ones train. Counts per class are rounded by the largest remainder, so
    that the splits are as large as those of `random_split`. A class with at least three
    rows has at least one row in each split; smaller classes go to train. If no class
    has three rows, this is `random_split`.

    Args:
        labels: Class index of each row.
        order: All rows, shuffled.
        fractions: Fractions of train, dev and test.
    """
    classes: dict[int, list[int]] = {label: [] for label in sorted(set(labels))}
    for row in order:
        classes[labels[row]].append(row)
    sizes = [len(rows) for rows in classes.values()]
    if max(sizes) < _MIN_CLASS_SIZE:
        return random_split(order, fractions)
    test = _class_counts(sizes, fractions[2], [size - 2 for size in sizes])
    limits = [size - 1 - count for size, count in zip(sizes, test, strict=True)]
    dev = _class_counts(sizes, fractions[1], limits)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for rows, n_test, n_dev in zip(classes.values(), test, dev, strict=True):
        parts[2].extend(rows[:n_test])
        parts[1].extend(rows[n_test : n_test + n_dev])
        parts[0].extend(rows[n_test + n_dev :])
    return parts


def _class_counts(sizes: Rows, fraction: float, limits: Rows) -> list[int]:
    """Return the number of rows per class in a split, by the largest remainder."""
    if fraction == 0:
        return [0] * len(sizes)
    quotas = [fraction * size for size in sizes]
    counts = [
        min(max(1, int(quota)), limit) if size >= _MIN_CLASS_SIZE else 0
        for quota, size, limit in zip(quotas, sizes, limits, strict=True)
    ]
    remaining = round(fraction * sum(sizes)) - sum(counts)
    candidates = [
        label
        for label, size in enumerate(sizes)
        if size >= _MIN_CLASS_SIZE and counts[label] < limits[label]
    ]
    candidates.sort(key=lambda label: counts[label] - quotas[label])
    for label in candidates[: max(0, remaining)]:
        counts[label] += 1
    return counts


# Rows are sorted by length within pools of this many batches. Large pools reduce
# padding; small pools give each row different neighbors in each epoch.
BATCHES_PER_POOL = 20


class Batch(NamedTuple):
    """A batch of texts.

    Attributes:
        inputs: Arguments of the model by name: flat token ids and lengths.
        labels: Class index of each text.
        weights: Weight of each text, or None for equal weights.
    """

    inputs: dict[str, Tensor]
    labels: Tensor
    weights: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on the given device."""
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        weights = None if self.weights is None else self.weights.to(device)
        return Batch(inputs, self.labels.to(device), weights)


@runtime_checkable
class InputSource(Protocol):
    """Source of the model's inputs other than token ids, such as cached states."""

    def inputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Return the arguments of the model for some rows, by name."""


class Examples:
    """Encoded texts and labels, memory-mapped.

    Attributes:
        weights: Weight of each text, or None for equal weights.
        sizes: Number of tokens in each row.
        labels: Class index of each row.
        is_document: Whether the rows are documents.
        is_pair: Whether the rows are pairs of texts.
    """

    def __init__(self, dataset: "Dataset", weights: np.ndarray | None = None) -> None:
        """Wrap a dataset.

        Args:
            dataset: Encoded texts and labels; see `TextProcessor.encode_dataset`.
            weights: Weight of each text. Defaults to equal weights.
        """
        self.weights = None if weights is None else weights.astype(np.float32)
        self._source: InputSource | None = None
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

    def with_source(self, source: InputSource | None) -> "Examples":
        """Return the same examples with inputs from another source.

        Args:
            source: Source of the inputs; None for token ids.
        """
        examples = copy(self)
        examples._source = source
        return examples

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the flattened values of a column of lists, and the list lengths."""
        table: pa.Table = self._rows.select_columns([name])[:]
        lists = table.column(name).combine_chunks()
        return lists.flatten().to_numpy(), lists.value_lengths().to_numpy()

    def batch(self, rows: Sequence[int] | np.ndarray) -> Batch:
        """Return a batch of the given rows, in the given order."""
        rows = np.asarray(rows)
        labels = torch.from_numpy(self.labels[rows])
        weights = None
        if self.weights is not None:
            weights = torch.from_numpy(self.weights[rows])
        if self._source is not None:
            return Batch(self._source.inputs(rows), labels, weights)
        table: pa.Table = self._rows[rows]
        names = {"ids", "lengths", "pair_ids"} & {*table.column_names}
        inputs = _inputs({name: _flat(table, name) for name in names})
        return Batch(inputs, labels, weights)


def collate(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Return the arguments of the model for rows from `TextProcessor.encode`."""
    columns = {}
    for name in rows[0]:
        lists = [row[name] for row in rows]
        flat = np.fromiter(chain.from_iterable(lists), np.int64)
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        columns[name] = torch.from_numpy(flat), torch.from_numpy(lengths)
    return _inputs(columns)


def _inputs(columns: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Return the arguments of the model for flattened lists and their lengths."""
    ids, counts = columns["ids"]
    if "lengths" in columns:
        lengths, sentences = columns["lengths"]
        return {"ids": ids, "lengths": lengths, "sentences": sentences}
    inputs = {"ids": ids, "lengths": counts}
    if "pair_ids" in columns:
        inputs["pair_ids"], inputs["pair_lengths"] = columns["pair_ids"]
    return inputs


def _flat(table: "pa.Table", name: str) -> tuple[Tensor, Tensor]:
    """Return the flattened values of a column of lists, and the list lengths."""
    lists = table.column(name).combine_chunks()
    return _tensor(lists.flatten()), _tensor(lists.value_lengths())


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(array.to_numpy().astype(np.int64))


def _sizes(rows: "Dataset", name: str) -> np.ndarray:
    lengths = [
        batch.column(name).combine_chunks().value_lengths().to_numpy()
        for batch in rows.select_columns([name]).iter(10_000)
    ]
    return np.concatenate([np.zeros(0, np.int64), *lengths])


def epoch_batches(
    sizes: np.ndarray, batch_size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Return the rows of each training batch; every row occurs once, in random order.

    Each batch has texts of similar length. The order depends only on the arguments.

    Args:
        sizes: Number of tokens in each row.
        batch_size: Number of rows per batch.
        seed: Random seed.
        epoch: Number of the epoch.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(sizes))
    batches = []
    for begin in range(0, len(order), BATCHES_PER_POOL * batch_size):
        pool = order[begin : begin + BATCHES_PER_POOL * batch_size]
        pool = pool[np.argsort(sizes[pool], kind="stable")]
        # If one batch is smaller, it gets the shortest texts.
        cuts = np.arange(len(pool) % batch_size, len(pool), batch_size)
        batches += [part for part in np.split(pool, cuts) if len(part)]
    return [batches[index] for index in rng.permutation(len(batches))]


def evaluation_batches(sizes: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Yield the rows of each evaluation batch, longest rows first."""
    order = np.argsort(-sizes, kind="stable")
    for begin in range(0, len(order), batch_size):
        yield order[begin : begin + batch_size]
