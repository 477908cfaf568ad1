"""Rows kept on disk as Arrow and mapped into memory, so that any corpus fits."""

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset

from perron.errors import DataError
from perron.files import digest

FORMAT_VERSION = 1  # raise it whenever a reader yields other rows for the same file
BATCH = 1000
_FACTS = b"perron"

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the folder that PERRON_CACHE names, else one in the user's cache."""
    named = os.environ.get("PERRON_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "perron" / "data"


def key_of(what: Mapping[str, Any], files: Sequence[Path] = ()) -> str:
    """Name what was read: another setting or a touched file gives another key."""
    states = [(path, path.stat()) for path in (file.resolve() for file in files)]
    stamps = [[str(path), state.st_size, state.st_mtime_ns] for path, state in states]
    written = json.dumps([FORMAT_VERSION, what, stamps], sort_keys=True, default=str)
    return digest([written.encode()])[:32]


def stored(
    rows: Iterable[Mapping[str, Any]],
    schema: pa.Schema,
    key: str,
    cache: Path | None = None,
    facts: Callable[[], Mapping[str, Any]] = dict,
) -> Dataset:
    """Return the rows as a memory-mapped dataset; read them only if the key is new.

    The rows are written as they arrive, 1000 at a time, under a temporary name that
    becomes ``<cache>/<key>.arrow`` at the end: whoever looks sees all of it or
    nothing, and of two who write at once the later wins with the same content.

    Args:
        rows: drawn from at most once, and not at all if the file is there.
        schema: names and types of the columns; other fields of a row are ignored.
        key: see `key_of`.
        cache: unless given, `cache_folder`.
        facts: asked after the last row for what should be kept with the rows, as
            JSON; `facts_of` gives it back.
    """
    path = (cache or cache_folder()) / f"{key}.arrow"
    if path.exists():
        try:
            facts_of(found := Dataset.from_file(str(path)))
        except (pa.ArrowException, OSError, ValueError) as error:
            log.warning("%s is broken and is written again (%s)", path, error)
        else:
            return found
    _write(rows, schema, path, facts)
    return Dataset.from_file(str(path))


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """Return what was kept with the rows of a dataset that came from `stored`."""
    path = dataset.cache_files[0]["filename"]
    with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
        metadata = None
        for _, of_this_batch in reader.iter_batches_with_custom_metadata():
            metadata = of_this_batch
    if metadata is None or _FACTS not in metadata:
        raise DataError("the end of the file is missing", path)
    return dict(json.loads(metadata[_FACTS]))


def _write(
    rows: Iterable[Mapping[str, Any]],
    schema: pa.Schema,
    path: Path,
    facts: Callable[[], Mapping[str, Any]],
) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError as error:
        advice = "PERRON_CACHE names a folder that can be written"
        problem = f"cannot keep the data there ({error}); {advice}"
        raise DataError(problem, path) from error
    try:
        with os.fdopen(handle, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            remaining = iter(rows)
            while batch := list(islice(remaining, BATCH)):
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
            # A stream's schema comes first, but the facts are known last: they go
            # with an empty batch, which also marks the file as complete.
            end = pa.RecordBatch.from_pylist([], schema)
            writer.write_batch(end, {_FACTS: json.dumps(dict(facts())).encode()})
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
