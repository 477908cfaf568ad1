"""On-disk cache of encoder states: memory-mapped, with one row per token.

States are stored flat, in one file per encoder and layer. A text is found by the hash
of its token ids, so that runs, splits and cross-validation folds share its states.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from perron.errors import DataError
from perron.files import atomic_write, make_folder
from perron.text.cache import cache_folder
from perron.text.sampling import Examples

CacheDtype = Literal["float16", "bfloat16", "float32"]

_META, _STATES, _LOCK = "meta.json", "states.bin", ".lock"
_KEY_BYTES = 16


@dataclass(frozen=True)
class Sequences:
    """Token sequences that are encoded independently: texts or sentences.

    Attributes:
        ids: Token ids of all sequences, concatenated.
        lengths: Number of tokens in each sequence.
        counts: Number of sequences in each row of the data.
    """

    ids: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def _first(self) -> np.ndarray:
        """Number of the first sequence of each row."""
        return np.cumsum(self.counts) - self.counts

    def select(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of the sequences of some rows."""
        return ranges(self._first[rows], self.counts[rows])

    def ids_of(self, number: int) -> np.ndarray:
        """Return the token ids of a sequence."""
        start = self._starts[number]
        return self.ids[start : start + self.lengths[number]]

    @cached_property
    def keys(self) -> list[bytes]:
        """Hash of each sequence."""
        ids = self.ids.astype(np.int32)
        ends = (self._starts + self.lengths).tolist()
        return [
            blake2b(ids[start:end].tobytes(), digest_size=_KEY_BYTES).digest()
            for start, end in zip(self._starts.tolist(), ends, strict=True)
        ]


def read_sequences(examples: Examples, column: str) -> Sequences:
    """Return the token sequences in a column of ids."""
    ids, lengths = examples.column(column)
    if not examples.is_document:
        return Sequences(ids, lengths, np.ones_like(lengths))
    return Sequences(ids, *examples.column("lengths"))


class LayerStore:
    """States of one layer of one encoder, in a folder.

    New states are appended to one file, then their index is written atomically. Bytes
    without an index, from a process that was killed, are overwritten by the next one.
    Readers need no lock; writers must hold `lock`.
    """

    def __init__(
        self, folder: Path, dim: int, dtype: CacheDtype, meta: Mapping[str, Any]
    ) -> None:
        """Open the store, and create its folder if it does not exist.

        Args:
            folder: Folder of the store.
            dim: Width of the states.
            dtype: Data type of the stored states.
            meta: Description of the store, for people.
        """
        self.folder, self.dim = folder, dim
        make_folder(folder)
        if not (folder / _META).exists():
            content = {**meta, "dtype": dtype, "dim": dim}
            atomic_write(folder / _META, json.dumps(content).encode())
        os.utime(folder)  # the time of the last use
        self.lock = FileLock(folder / _LOCK)
        self._dtype = getattr(torch, dtype)
        self._starts: dict[bytes, int] = {}
        self._chunks = 0  # number of index files read
        self._rows = 0  # number of token rows in them
        self.refresh()

    @property
    def row_bytes(self) -> int:
        """Size of the state of one token."""
        return self.dim * self._dtype.itemsize

    def refresh(self) -> None:
        """Read what other processes have added."""
        while (path := self._index_path(self._chunks)).exists():
            with np.load(path) as chunk:
                keys, lengths = chunk["keys"].tobytes(), chunk["lengths"]
            starts = self._rows + np.cumsum(lengths) - lengths
            for number, start in enumerate(starts.tolist()):
                begin = _KEY_BYTES * number
                self._starts[keys[begin : begin + _KEY_BYTES]] = start
            self._rows += int(lengths.sum())
            self._chunks += 1

    def find(self, keys: Sequence[bytes]) -> np.ndarray:
        """Return the first row of each sequence, or -1 if it is not stored."""
        find = self._starts.get
        return np.fromiter((find(key, -1) for key in keys), np.int64, len(keys))

    def append(
        self, keys: Sequence[bytes], lengths: np.ndarray, states: Tensor
    ) -> None:
        """Store the states of new sequences, in order."""
        content = states.to(self._dtype).contiguous().view(torch.uint8).numpy()
        path = self.folder / _STATES
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(self._rows * self.row_bytes)
            file.seek(0, os.SEEK_END)
            file.write(content.data)
            file.flush()
            os.fsync(file.fileno())
        key_array = np.frombuffer(b"".join(keys), np.uint8)
        atomic_write(
            self._index_path(self._chunks), _npz(keys=key_array, lengths=lengths)
        )
        self.refresh()

    def open(self) -> Tensor:
        """Return all states, (rows, dim), memory-mapped."""
        if not self._rows:
            return torch.empty(0, self.dim, dtype=self._dtype)
        size = self._rows * self.row_bytes
        path = self.folder / _STATES
        if not path.exists() or path.stat().st_size < size:
            raise DataError(
                "is incomplete. Remove the cached states with perron cache clear", path
            )
        # Copy-on-write, because torch warns about read-only memory.
        content = np.memmap(path, np.uint8, "c", shape=(size,))
        return torch.from_numpy(content).view(self._dtype).view(-1, self.dim)

    def _index_path(self, number: int) -> Path:
        return self.folder / f"index-{number:06d}.npz"


def _npz(**arrays: np.ndarray) -> bytes:
    buffer = BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


class CachedStates:
    """Inputs of a model from cached states, for the rows of a dataset."""

    def __init__(
        self,
        columns: Mapping[str, tuple[Sequences, Sequence[np.ndarray]]],
        layers: Sequence[Tensor],
        is_document: bool,
    ) -> None:
        """Initialize the source.

        Args:
            columns: Sequences of each column of token ids, and their first row in each
                layer.
            layers: States of each layer, memory-mapped.
            is_document: Whether the rows are documents.
        """
        self._columns, self._layers = columns, layers
        self._is_document = is_document

    def inputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Return the arguments of the model for some rows, by name."""
        inputs = {}
        for column, (sequences, layer_starts) in self._columns.items():
            prefix = column.removesuffix("ids")
            units = sequences.select(rows)
            lengths = sequences.lengths[units]
            states = [
                layer.index_select(0, torch.from_numpy(ranges(starts[units], lengths)))
                for layer, starts in zip(self._layers, layer_starts, strict=True)
            ]
            inputs[f"{prefix}states"] = torch.stack(states, 1)
            inputs[f"{prefix}lengths"] = torch.from_numpy(lengths.astype(np.int64))
            if self._is_document:
                counts = sequences.counts[rows].astype(np.int64)
                inputs["sentences"] = torch.from_numpy(counts)
        return inputs


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the concatenation of ``start, ..., start + count - 1`` for each pair."""
    counts = counts.astype(np.int64)
    offsets = starts - (np.cumsum(counts) - counts)
    return np.repeat(offsets, counts) + np.arange(counts.sum())


def states_folder() -> Path:
    """Return the folder of all stores, inside the cache folder."""
    return cache_folder() / "states"


@dataclass(frozen=True)
class StoreInfo:
    """A store in the cache.

    Attributes:
        folder: Folder of the store.
        encoder: Name of the encoder.
        layer: Number of the layer.
        dtype: Data type of the stored states.
        size: Size in bytes.
        last_used: Time of the last use, in seconds since the epoch.
    """

    folder: Path
    encoder: str
    layer: int
    dtype: str
    size: int
    last_used: float


def list_stores() -> list[StoreInfo]:
    """Return all stores, least recently used first."""
    stores = []
    for path in states_folder().glob(f"*/{_META}"):
        try:
            meta = json.loads(path.read_bytes())
            last_used = path.parent.stat().st_mtime
            size = sum(file.stat().st_size for file in path.parent.iterdir())
            info = StoreInfo(
                path.parent,
                meta["encoder"],
                meta["layer"],
                meta["dtype"],
                size,
                last_used,
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # removed by another process, or not a store
        stores.append(info)
    return sorted(stores, key=lambda store: store.last_used)


def remove_store(folder: Path) -> bool:
    """Remove a store, unless a process is writing to it; return whether it was removed.

    Processes that have opened its states can still read them.
    """
    try:
        with FileLock(folder / _LOCK).acquire(timeout=0):
            shutil.rmtree(folder)
    except (Timeout, FileNotFoundError):
        return False
    return True


def prune_stores(max_bytes: float, keep: Sequence[Path] = ()) -> list[StoreInfo]:
    """Remove stores, least recently used first, until the rest fits into `max_bytes`.

    Args:
        max_bytes: Maximum total size of the remaining stores.
        keep: Folders of stores that must not be removed.

    Returns:
        The removed stores.
    """
    stores = list_stores()
    total = sum(store.size for store in stores)
    removed = []
    for store in stores:
        if total <= max_bytes:
            break
        if store.folder not in keep and remove_store(store.folder):
            total -= store.size
            removed.append(store)
    return removed
