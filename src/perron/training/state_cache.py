"""Cached states of frozen encoders, which encode each text only once."""

import errno
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import Timeout
from torch import Tensor

from perron.errors import PerronError
from perron.files import digest, make_folder, remove_temporary_files
from perron.models import Classifier
from perron.text.cache import cache_folder
from perron.text.sampling import Examples
from perron.text.state_store import (
    CachedStates,
    CacheDtype,
    DamagedStoreError,
    LayerStore,
    Sequences,
    list_stores,
    prune_stores,
    ranges,
    read_sequences,
    remove_store,
    states_folder,
)

EncodingProgress = Callable[[str, int, int], None]
"""Called with a message, the number of encoded texts, and the total."""

FORMAT_VERSION = 1  # increment when the same encoder gives different states
# Texts and bytes per commit: the work that is lost if the process is killed, and the
# states that are in memory at the same time.
_CHUNK_TEXTS, _CHUNK_BYTES = 2048, 2e8
# Including padding. Larger batches are slower on CPUs and faster on GPUs.
_BATCH_TOKENS, _GPU_BATCH_TOKENS = 2048, 65_536
_MAX_FREE_SHARE = 0.9  # of the free disk space; the rest is for the run
_MAX_ATTEMPTS = 3  # to repair damaged stores
_GIGABYTE = 1e9
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_BLOCK = re.compile(r"\blayer\.(\d+)\.")  # in the names of weights

log = logging.getLogger(__name__)


class StateCache:
    """The cached states of one frozen encoder."""

    def __init__(
        self,
        model: Classifier,
        dtype: CacheDtype = "float16",
        max_gigabytes: float = 20.0,
        progress: EncodingProgress | None = None,
    ) -> None:
        """Initialize the cache; nothing is read or written yet.

        Args:
            model: Classifier with a frozen pretrained encoder.
            dtype: Data type of the stored states.
            max_gigabytes: Maximum size of the states of all encoders on disk.
            progress: Callback for the progress of encoding.
        """
        if not model.has_frozen_encoder:
            raise ValueError("model must have a frozen pretrained encoder.")
        self._model, self._dtype = model, dtype
        self._max_bytes = max_gigabytes * _GIGABYTE
        self._progress = progress or (lambda message, done, total: None)
        encoder: Any = model.encoder
        self._encoder, self._layers = encoder, encoder.layers
        self._stores: list[LayerStore] = []
        self._states: list[Tensor] = []

    def attach(self, parts: Sequence[Examples | None]) -> list[Any]:
        """Encode the texts that are not cached, and return examples that use the cache.

        If the states do not fit into the cache, the examples are returned unchanged,
        and the model encodes each text whenever it is used.

        Args:
            parts: Examples, such as training and dev data. None is returned as is.
        """
        names = ["ids", "pair_ids"] if self._model.kind == "pair" else ["ids"]
        columns = [
            {} if part is None else {name: read_sequences(part, name) for name in names}
            for part in parts
        ]
        sequences = [item for part in columns for item in part.values()]
        try:
            problem = self._fill_and_repair(sequences)
        except (OSError, PerronError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            number = getattr(cause, "errno", None)
            if number not in _DISK_FULL + _READ_ONLY:
                raise
            if number in _DISK_FULL:  # the run needs some space, too
                for layer in self._layers:
                    remove_store(self._folder(layer))
            problem = f"{getattr(cause, 'strerror', cause)}: {states_folder()}"
        if problem:
            self._progress(
                f"The states of the encoder are not cached ({problem}). Texts are "
                "encoded again in every epoch, which is slow.",
                0,
                0,
            )
            return list(parts)
        return [
            None if part is None else part.with_source(self._source(part, items))
            for part, items in zip(parts, columns, strict=True)
        ]

    def _fill_and_repair(self, sequences: Sequence[Sequences]) -> str:
        """Fill and open the stores; drop them and start again if they are damaged."""
        for attempt in range(_MAX_ATTEMPTS):
            try:
                self._stores = [self._open_store(layer) for layer in self._layers]
                if problem := self._fill(sequences):
                    return problem
                self._states = [store.open() for store in self._stores]
                return ""
            except DamagedStoreError as error:
                # At first, another process may just have removed or replaced the store.
                if attempt:
                    log.warning("%s. The texts are encoded again.", error)
                    remove_store(error.folder)
        return "the cache is damaged or was removed; see perron cache list"

    def _open_store(self, layer: int) -> LayerStore:
        name = self._model.config.settings.encoder.model
        return LayerStore(
            self._folder(layer),
            self._encoder.state_dim,
            self._dtype,
            {"encoder": name, "layer": layer},
        )

    def _source(self, part: Examples, columns: Mapping[str, Sequences]) -> CachedStates:
        found = {
            name: (item, [store.find(item.keys) for store in self._stores])
            for name, item in columns.items()
        }
        return CachedStates(found, self._states, part.is_document)

    @property
    def _device(self) -> torch.device:
        return self._model.embedding.vectors.weight.device

    @cached_property
    def _use_bf16(self) -> bool:
        """Whether to encode in bfloat16.

        This is about three times as fast as float32 on processors that support it, but
        its errors are larger than those of storing float16.
        """
        if self._dtype != "bfloat16":
            return False
        if self._device.type == "cuda":
            return torch.cuda.is_bf16_supported(including_emulation=False)
        return self._device.type == "cpu" and (
            torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )

    def _folder(self, layer: int) -> Path:
        """Return the folder of the states of a layer, named by what determines them.

        Blocks above the layer do not matter if the model can be truncated, so runs that
        use other layers as well share its states.
        """
        from perron.layers.pretrained import TRUNCATABLE, layers_key

        pretrained = self._model.config.pretrained
        assert pretrained is not None
        config, blocks = dict(pretrained.config), self._block_digests
        if config["model_type"] in TRUNCATABLE:
            config.pop(layers_key(config), None)
            blocks = {number: blocks[number] for number in blocks if number < layer}
        settings = [FORMAT_VERSION, config, self._dtype, self._use_bf16, layer, blocks]
        content = json.dumps(settings, sort_keys=True, default=str)
        return states_folder() / f"{digest([content.encode()])[:32]}-{layer}"

    @cached_property
    def _block_digests(self) -> dict[int, str]:
        """Hash of the weights of each block; block -1 holds all other weights."""
        tensors = {
            **self._encoder.model.state_dict(),
            "embedding": self._model.embedding.vectors.weight,
            "before": self._encoder.before,
            "after": self._encoder.after,
        }
        content: dict[int, list[Any]] = {}
        for name, tensor in sorted(tensors.items()):
            match = _BLOCK.search(name)
            number = -1 if match is None else int(match[1])
            parts = content.setdefault(number, [])
            parts += [name.encode(), tensor_bytes(tensor)]
        return {number: digest(parts) for number, parts in content.items()}

    def _missing(self, sequences: Sequence[Sequences]) -> dict[bytes, np.ndarray]:
        """Return the token ids of nonempty sequences that are missing from a layer."""
        missing: dict[bytes, np.ndarray] = {}
        for item in sequences:
            is_stored = np.all(
                [store.find(item.keys) >= 0 for store in self._stores], 0
            )
            for number in np.flatnonzero(~is_stored & (item.lengths > 0)).tolist():
                missing[item.keys[number]] = item.ids_of(number)
        return missing

    def _fill(self, sequences: Sequence[Sequences]) -> str:
        """Encode missing texts; return why that is impossible, or an empty string."""
        missing = self._missing(sequences)
        if not missing:
            return ""
        row_bytes = sum(store.row_bytes for store in self._stores)
        needed = row_bytes * sum(map(len, missing.values()))
        if problem := self._make_room(needed):
            return problem
        with ExitStack() as locks:
            # All processes acquire locks in the same order, which prevents deadlocks.
            for store in sorted(self._stores, key=lambda store: store.folder):
                self._wait_for_lock(store, locks)
                store.refresh()
                remove_temporary_files(store.folder)
            missing = self._missing(sequences)  # another process may have added some
            message = (
                f"Encoding {len(missing):,} texts once; their states take "
                f"{needed / _GIGABYTE:.2f} GB in {states_folder()}."
            )
            if missing:
                self._encode_all(missing, message)
        return ""

    def _wait_for_lock(self, store: LayerStore, locks: ExitStack) -> None:
        make_folder(store.folder.parent)
        try:
            locks.enter_context(store.lock.acquire(timeout=0))
        except Timeout:
            self._progress(
                "Waiting for another process that is encoding texts with this encoder.",
                0,
                0,
            )
            locks.enter_context(store.lock.acquire())

    def _make_room(self, needed: int) -> str:
        """Prune the cache; return an empty string, or why there is too little room."""
        own = [store.folder for store in self._stores]
        own_size = sum(store.size for store in list_stores() if store.folder in own)
        gigabytes, limit = needed / _GIGABYTE, self._max_bytes / _GIGABYTE
        if own_size + needed <= self._max_bytes:
            prune_stores(self._max_bytes - needed, keep=own)
        if sum(store.size for store in list_stores()) + needed > self._max_bytes:
            return (
                f"they take {gigabytes:.2g} GB more, and the limit is {limit:g} GB; "
                "raise training.max_cache_gigabytes"
            )
        folder = cache_folder()
        make_folder(folder)
        free = shutil.disk_usage(folder).free
        if needed > _MAX_FREE_SHARE * free:
            return (
                f"they take {gigabytes:.2g} GB, and {free / _GIGABYTE:.2g} GB are free "
                f"in {folder}"
            )
        return ""

    def _encode_all(self, missing: Mapping[bytes, np.ndarray], message: str) -> None:
        """Encode sequences and store their states."""
        keys, texts = list(missing), list(missing.values())
        lengths = np.array([len(ids) for ids in texts])
        row_bytes = sum(store.row_bytes for store in self._stores)
        done = 0
        self._progress(message, 0, len(keys))
        for end in _chunk_ends(lengths * row_bytes):
            chunk = slice(done, end)
            progress = partial(self._progress_after, done, message, len(keys))
            states = self._encode_chunk(texts[chunk], lengths[chunk], progress)
            for number, store in enumerate(self._stores):
                _store(store, keys[chunk], lengths[chunk], states[:, number])
            done = end

    def _progress_after(self, done: int, message: str, total: int, count: int) -> None:
        self._progress(message, done + count, total)

    def _encode_chunk(
        self,
        texts: Sequence[np.ndarray],
        lengths: np.ndarray,
        progress: Callable[[int], None],
    ) -> Tensor:
        """Return the layer states of some sequences, flat (M, L, H)."""
        starts = np.cumsum(lengths) - lengths
        shape = int(lengths.sum()), len(self._stores), self._encoder.state_dim
        states = torch.empty(shape, dtype=getattr(torch, self._dtype))
        was_training = self._model.training
        self._model.eval()
        autocast = torch.autocast(
            self._device.type, torch.bfloat16, enabled=self._use_bf16
        )
        is_cpu = self._device.type == "cpu"
        max_tokens = _BATCH_TOKENS if is_cpu else _GPU_BATCH_TOKENS
        done = 0
        with torch.inference_mode(), autocast:
            for rows in length_batches(lengths, max_tokens):
                mask = np.arange(lengths[rows[0]]) < lengths[rows, None]
                ids = np.zeros(mask.shape, np.int64)
                ids[mask] = np.concatenate([texts[row] for row in rows])
                is_token = torch.from_numpy(mask).to(self._device)
                vectors = self._model.embedding(torch.from_numpy(ids).to(self._device))
                output = self._encoder.layer_states(vectors, is_token)[is_token]
                places = torch.from_numpy(ranges(starts[rows], lengths[rows]))
                states[places] = output.to("cpu", states.dtype)
                done += len(rows)
                progress(done)
        self._model.train(was_training)
        return states


def _store(
    store: LayerStore, keys: Sequence[bytes], lengths: np.ndarray, states: Tensor
) -> None:
    """Append the sequences that a store lacks; another run may have added some."""
    is_new = store.find(keys) < 0
    if is_new.all():
        store.append(keys, lengths, states)
    elif is_new.any():
        rows = torch.from_numpy(np.repeat(is_new, lengths))
        new_keys = [key for key, new in zip(keys, is_new, strict=True) if new]
        store.append(new_keys, lengths[is_new], states[rows])


def _chunk_ends(sizes: np.ndarray) -> Iterator[int]:
    """Yield the end of each chunk of sequences with the given sizes in bytes."""
    begin, total = 0, 0
    for number, size in enumerate(sizes.tolist()):
        is_full = total + size > _CHUNK_BYTES or number - begin == _CHUNK_TEXTS
        if is_full and number > begin:
            yield number
            begin, total = number, 0
        total += size
    yield len(sizes)


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return the content of a tensor, without a copy if it is on the CPU."""
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().data


def length_batches(
    lengths: np.ndarray, max_tokens: int = _BATCH_TOKENS
) -> Iterator[np.ndarray]:
    """Yield rows in batches of limited size, longest first."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        size = max(1, max_tokens // int(lengths[order[begin]]))
        yield order[begin : begin + size]
        begin += size
