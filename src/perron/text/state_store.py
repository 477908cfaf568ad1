"""On-disk cache of encoder states: memory-mapped, with one row per token.

States are stored flat, in one file per encoder and layer. A text is found by the hash
of its token ids, so that runs, splits and cross-validation folds share its states.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4
from zipfile import BadZipFile

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from perron.errors import DataError
from perron.files import atomic_write, make_folder
from perron.text.cache import cache_folder
from perron.text.sampling import Examples

CacheDtype = Literal["float16", "bfloat16", "float32"]

_META = "meta.json"
_STORE_NAME = re.compile(r"[0-9a-f]{32}-\d+")  # key of the encoder, number of the layer
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
        """Index of the first sequence of each row."""
        return np.cumsum(self.counts) - self.counts

    def select(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices of the sequences of some rows."""
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


class DamagedStoreError(DataError):
    """The files of a store are damaged, or were removed by another process.

    Attributes:
        folder: Folder of the store.
    """

    def __init__(self, problem: str, path: Path) -> None:
        super().__init__(problem, path)
        self.folder = path.parent


class LayerStore:
    """States of one layer of one encoder, in a folder.

    New states are appended to one file, then their index is written atomically. Bytes
    without an index, from a process that was killed, are overwritten by the next one.
    Readers need no lock; writers must hold `lock`.

    A store that is removed and created again gets another id. The id is part of the
    file names, so a process never combines an index with states of another id.
    """

    def __init__(
        self, folder: Path, dim: int, dtype: CacheDtype, meta: Mapping[str, Any]
    ) -> None:
        """Read the index. The folder is created when states are appended.

        Args:
            folder: Folder of the store.
            dim: Width of the states.
            dtype: Data type of the stored states.
            meta: Human-readable description of the store.

        Raises:
            DamagedStoreError: If the files are damaged. `remove_store` fixes this.
        """
        self.folder, self.dim = folder, dim
        self.lock = _lock(folder)
        self._meta = {**meta, "dtype": dtype, "dim": dim}
        self._dtype = getattr(torch, dtype)
        self._reset("")
        self.refresh()
        with suppress(OSError):  # missing, or read-only
            os.utime(folder)  # the time of the last use

    def _reset(self, store_id: str) -> None:
        self._id = store_id
        self._starts: dict[bytes, int] = {}
        self._chunks = 0  # number of index files read
        self._rows = 0  # number of token rows in them

    @property
    def row_bytes(self) -> int:
        """Size of the state of one token, in bytes."""
        return self.dim * self._dtype.itemsize

    @property
    def _states_path(self) -> Path:
        return self.folder / f"states-{self._id}.bin"

    def refresh(self) -> None:
        """Read the index entries that other processes have added."""
        meta = _read_meta(self.folder)
        if meta.get("id", "") != self._id:
            self._reset(meta.get("id", ""))
        if not self._id:
            return
        while (path := _index_path(self.folder, self._id, self._chunks)).exists():
            keys, lengths = _read_index(path)
            starts = self._rows + np.cumsum(lengths) - lengths
            self._starts.update(zip(keys, starts.tolist(), strict=True))
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
        if not self._id:
            self._create()
        content = states.to(self._dtype).contiguous().view(torch.uint8).numpy()
        path = self._states_path
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(self._rows * self.row_bytes)
            file.seek(0, os.SEEK_END)
            file.write(content.data)
            file.flush()
            os.fsync(file.fileno())
        key_array = np.frombuffer(b"".join(keys), np.uint8)
        buffer = BytesIO()
        np.savez(buffer, keys=key_array, lengths=lengths)
        path = _index_path(self.folder, self._id, self._chunks)
        atomic_write(path, buffer.getvalue())
        self.refresh()

    def _create(self) -> None:
        """Create the folder, and delete the rest of a partly removed store."""
        shutil.rmtree(self.folder, ignore_errors=True)
        make_folder(self.folder)
        self._reset(uuid4().hex[:8])
        content = json.dumps({**self._meta, "id": self._id}).encode()
        atomic_write(self.folder / _META, content)

    def open(self) -> Tensor:
        """Return all states, (rows, dim), memory-mapped.

        Raises:
            DamagedStoreError: If the file is shorter than the index says, or was
                removed.
        """
        if not self._rows:
            return torch.empty(0, self.dim, dtype=self._dtype)
        size = self._rows * self.row_bytes
        try:
            # Copy-on-write, because torch warns about read-only memory.
            content = np.memmap(self._states_path, np.uint8, "c", shape=(size,))
        except (FileNotFoundError, ValueError) as error:
            raise DamagedStoreError("is incomplete", self._states_path) from error
        return torch.from_numpy(content).view(self._dtype).view(-1, self.dim)


def _index_path(folder: Path, store_id: str, number: int) -> Path:
    return folder / f"index-{store_id}-{number:06d}.npz"


def _lock(folder: Path) -> FileLock:
    """Return the lock of a store. Its file is outside the folder and never removed."""
    return FileLock(folder.with_name(f"{folder.name}.lock"))


def _read_meta(folder: Path) -> dict[str, Any]:
    """Return the description of a store; empty if there is no store in the folder."""
    try:
        meta = json.loads((folder / _META).read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DamagedStoreError("is not valid JSON", folder / _META) from error
    if not isinstance(meta, dict) or not isinstance(meta.get("id"), str):
        raise DamagedStoreError("has no id", folder / _META)
    return meta


def _read_index(path: Path) -> tuple[list[bytes], np.ndarray]:
    """Return the keys and lengths of the sequences in an index file."""
    try:
        # np.load would not close a damaged file.
        with np.load(BytesIO(path.read_bytes())) as chunk:
            content, lengths = chunk["keys"].tobytes(), chunk["lengths"]
    except FileNotFoundError as error:
        raise DamagedStoreError("was removed", path) from error
    except (BadZipFile, EOFError, KeyError, ValueError) as error:
        raise DamagedStoreError(f"is damaged ({error})", path) from error
    if lengths.ndim != 1 or len(content) != _KEY_BYTES * len(lengths):
        raise DamagedStoreError("is damaged", path)
    starts = range(0, len(content), _KEY_BYTES)
    return [content[start : start + _KEY_BYTES] for start in starts], lengths


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
            lengths = sequences.lengths[units].astype(np.int64)
            layer = self._layers[0]
            # (M, L, H), but each layer is contiguous: it is read into its place, and a
            # mix over layers needs no copy.
            shape = len(self._layers), int(lengths.sum()), layer.shape[1]
            states = torch.empty(shape, dtype=layer.dtype)
            for number, starts in enumerate(layer_starts):
                places = torch.from_numpy(ranges(starts[units], lengths))
                torch.index_select(self._layers[number], 0, places, out=states[number])
            inputs[f"{prefix}states"] = states.transpose(0, 1)
            inputs[f"{prefix}lengths"] = torch.from_numpy(lengths)
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
        encoder: Name of the encoder. Empty if the store is damaged.
        layer: Number of the layer.
        dtype: Data type of the stored states.
        texts: Number of stored texts, or of sentences of documents.
        size: Size in bytes.
        last_used: Time of the last use, in seconds since the epoch.
    """

    folder: Path
    encoder: str
    layer: int
    dtype: str
    texts: int
    size: int
    last_used: float


def list_stores() -> list[StoreInfo]:
    """Return all stores, least recently used first."""
    stores = []
    for folder in states_folder().glob("*"):
        if not _STORE_NAME.fullmatch(folder.name) or folder.is_symlink():
            continue  # not a store
        with suppress(OSError):  # removed by another process
            last_used = folder.stat().st_mtime
            size = sum(file.stat().st_size for file in folder.iterdir())
            encoder, layer, dtype, texts = _describe(folder)
            stores.append(
                StoreInfo(folder, encoder, layer, dtype, texts, size, last_used)
            )
    return sorted(stores, key=lambda store: store.last_used)


def _describe(folder: Path) -> tuple[str, int, str, int]:
    """Return encoder, layer, data type and number of texts of a store."""
    try:
        meta = _read_meta(folder)
        paths = folder.glob(f"index-{meta['id']}-*.npz")
        texts = sum(len(_read_index(path)[1]) for path in paths)
        return str(meta["encoder"]), int(meta["layer"]), str(meta["dtype"]), texts
    except (DamagedStoreError, KeyError, TypeError, ValueError):
        return "", 0, "", 0


def remove_store(folder: Path) -> bool:
    """Remove a store, unless a process is writing to it; return whether it was removed.

    Processes that have opened its states can still read them.
    """
    try:
        with _lock(folder).acquire(timeout=0):
            (folder / _META).unlink(missing_ok=True)  # nothing refers to the rest now
            shutil.rmtree(folder)
    except OSError:  # locked, removed by another process, or read-only
        return False
    return True


def prune_stores(max_bytes: float, keep: Sequence[Path] = ()) -> list[StoreInfo]:
    """Remove the least recently used stores until the rest take `max_bytes` or less.

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
