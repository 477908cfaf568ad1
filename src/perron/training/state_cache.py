"""Cached states of frozen encoders, which encode each text only once."""

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perron.errors import PerronError
from perron.files import digest
from perron.models import Classifier
from perron.text.sampling import Examples
from perron.text.state_store import (
    CachedStates,
    CacheDtype,
    LayerStore,
    Sequences,
    list_stores,
    prune_stores,
    ranges,
    read_sequences,
    states_folder,
)

EncodingProgress = Callable[[str, int, int], None]
"""Called with a message, the number of encoded texts, and the total."""

FORMAT_VERSION = 1  # increment when the same encoder gives different states
_CHUNK_TEXTS = 2048  # texts per commit: the work that is lost if the process is killed
_BATCH_TOKENS = 4096  # including padding; larger batches are no faster on CPUs
_GIGABYTE = 1e9
# Errors of a disk that is full or cannot be written to.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


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
        self._encoder: Any = model.encoder

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
        try:
            problem = self._fill([item for part in columns for item in part.values()])
        except (OSError, PerronError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if getattr(cause, "errno", None) not in _DISK_ERRORS:
                raise
            problem = f"{getattr(cause, 'strerror', cause)}: {states_folder()}"
        if problem:
            self._progress(
                f"The states of the encoder are not cached ({problem}). Texts are "
                "encoded again in every epoch, which is slow.",
                0,
                0,
            )
            return list(parts)
        layers = [store.open() for store in self._stores]
        return [
            None
            if part is None
            else part.with_source(self._source(part, items, layers))
            for part, items in zip(parts, columns, strict=True)
        ]

    def _source(
        self, part: Examples, columns: Mapping[str, Sequences], layers: list[Tensor]
    ) -> CachedStates:
        found = {
            name: (item, [store.find(item.keys) for store in self._stores])
            for name, item in columns.items()
        }
        return CachedStates(found, layers, part.is_document)

    @property
    def _device(self) -> torch.device:
        return self._model.embedding.vectors.weight.device

    @cached_property
    def _use_bf16(self) -> bool:
        """Return whether to encode in bfloat16, which requires hardware support."""
        if self._dtype == "float32":
            return False
        if self._device.type == "cuda":
            return torch.cuda.is_bf16_supported(including_emulation=False)
        return self._device.type == "cpu" and (
            torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )

    @cached_property
    def _encoder_key(self) -> str:
        """Hash of everything that determines the states of given token ids."""
        config = self._model.config.pretrained
        assert config is not None
        settings = [FORMAT_VERSION, config.config, self._dtype, self._use_bf16]
        tensors = {
            **self._encoder.model.state_dict(),
            "embedding": self._model.embedding.vectors.weight,
            "before": self._encoder.before,
            "after": self._encoder.after,
        }
        content = [json.dumps(settings, sort_keys=True, default=str).encode()]
        for name, tensor in sorted(tensors.items()):
            flat = tensor.detach().cpu().contiguous().flatten()
            content += [name.encode(), flat.view(torch.uint8).numpy().data]
        return digest(content)[:32]

    @cached_property
    def _stores(self) -> list[LayerStore]:
        name = self._model.config.settings.encoder.model
        return [
            LayerStore(
                states_folder() / f"{self._encoder_key}-{layer}",
                self._encoder.state_dim,
                self._dtype,
                {"encoder": name, "layer": layer},
            )
            for layer in self._encoder.layers
        ]

    def _missing(self, sequences: Sequence[Sequences]) -> dict[bytes, np.ndarray]:
        """Return the token ids of each nonempty sequence that a layer lacks."""
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
        # Another process that needs the same texts waits here, and then finds them.
        with ExitStack() as locks:
            for store in sorted(self._stores, key=lambda store: store.folder):
                locks.enter_context(store.lock)
                store.refresh()
            missing = self._missing(sequences)
            message = (
                f"Encoding {len(missing):,} texts once; their states take "
                f"{needed / _GIGABYTE:.2f} GB in {states_folder()}."
            )
            self._progress(message, 0, len(missing))
            self._encode_all(missing, message)
        return ""

    def _make_room(self, needed: int) -> str:
        """Prune the cache; return an empty string, or why there is too little room."""
        gigabytes, limit = needed / _GIGABYTE, self._max_bytes / _GIGABYTE
        own = [store.folder for store in self._stores]
        prune_stores(self._max_bytes - needed, keep=own)
        if sum(store.size for store in list_stores()) + needed > self._max_bytes:
            return (
                f"they take {gigabytes:.1f} GB more, and the limit is {limit:g} GB; "
                "raise training.max_cache_gigabytes"
            )
        free = shutil.disk_usage(own[0]).free
        if needed > free:
            return (
                f"they take {gigabytes:.1f} GB, and {free / _GIGABYTE:.1f} GB are free"
            )
        return ""

    def _encode_all(self, missing: Mapping[bytes, np.ndarray], message: str) -> None:
        items = list(missing.items())
        for first in range(0, len(items), _CHUNK_TEXTS):
            chunk = items[first : first + _CHUNK_TEXTS]
            keys = [key for key, _ in chunk]
            lengths = np.array([len(ids) for _, ids in chunk])
            states = self._encode_chunk([ids for _, ids in chunk], lengths)
            for number, store in enumerate(self._stores):
                # A sequence that this layer has already is stored twice. This is rare:
                # it needs a process that was killed between two layers, or a run that
                # uses some of the same layers.
                store.append(keys, lengths, states[:, number])
            self._progress(message, first + len(chunk), len(items))

    def _encode_chunk(self, texts: Sequence[np.ndarray], lengths: np.ndarray) -> Tensor:
        """Return the layer states of some sequences, flat (M, L, H)."""
        starts = np.cumsum(lengths) - lengths
        shape = int(lengths.sum()), len(self._stores), self._encoder.state_dim
        states = torch.empty(shape, dtype=getattr(torch, self._dtype))
        was_training = self._model.training
        self._model.eval()
        autocast = (
            torch.autocast(self._device.type, torch.bfloat16)
            if self._use_bf16
            else nullcontext()
        )
        with torch.inference_mode(), autocast:
            for rows in _length_batches(lengths):
                mask = np.arange(lengths[rows[0]]) < lengths[rows, None]
                ids = np.zeros(mask.shape, np.int64)
                ids[mask] = np.concatenate([texts[row] for row in rows])
                is_token = torch.from_numpy(mask).to(self._device)
                vectors = self._model.embedding(torch.from_numpy(ids).to(self._device))
                output = self._encoder.layer_states(vectors, is_token)[is_token]
                places = torch.from_numpy(ranges(starts[rows], lengths[rows]))
                states[places] = output.to("cpu", states.dtype)
        self._model.train(was_training)
        return states


def _length_batches(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Yield rows in batches of limited size, longest first."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        size = max(1, _BATCH_TOKENS // int(lengths[order[begin]]))
        yield order[begin : begin + size]
        begin += size
