"""On-disk cache of datasets: memory-mapped Arrow files of any size."""

import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perron.errors import DataError
from perron.files import digest

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

FORMAT_VERSION = 1  # increment when a reader yields different rows for the same file
BATCH = 1000
_METADATA_KEY = b"perron"
_DATASET_NAME = re.compile(r"[0-9a-f]{32}\.arrow")
_TEMPORARY_NAME = re.compile(r"tmp\w+\.part")

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the cache folder: PERRON_CACHE if set, else ``~/.cache/perron/data``."""
    folder = os.environ.get("PERRON_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "perron" / "data"


def dataset_files() -> list[Path]:
    """Return the cached datasets, and files that a killed process left behind."""
    day_ago = time.time() - 24 * 3600
    return [
        path
        for path in cache_folder().glob("*")
        if _DATASET_NAME.fullmatch(path.name)
        or (_TEMPORARY_NAME.fullmatch(path.name) and path.stat().st_mtime < day_ago)
    ]


def cache_key(values: Mapping[str, Any], files: Sequence[Path] = ()) -> str:
    """Return a key that changes if a value changes or a file is modified.

    Args:
        values: Settings and other values that determine the rows.
        files: Files that determine the rows. They are compared by path, size and
            modification time.
    """
    states = [(path, path.stat()) for path in (file.resolve() for file in files)]
    stamps = [[str(path), state.st_size, state.st_mtime_ns] for path, state in states]
    content = json.dumps([FORMAT_VERSION, values, stamps], sort_keys=True, default=str)
    return digest([content.encode()])[:32]


def cached_dataset(
    rows: Iterable[Mapping[str, Any]],
    schema: "pa.Schema",
    key: str,
    cache: Path | None = None,
    metadata: Callable[[], Mapping[str, Any]] = dict,
) -> "Dataset":
    """Return the rows as a memory-mapped dataset, writing it on the first call.

    Rows are written as they arrive, 1000 at a time, to a temporary file that is then
    renamed to ``<cache>/<key>.arrow``. The write is atomic; if two processes write the
    same key, the last one wins with identical content.

    Args:
        rows: Rows to write. Not consumed if the file exists.
        schema: Names and types of the columns. Other fields of a row are ignored.
        key: Name of the file; see `cache_key`.
        cache: Cache folder. Defaults to `cache_folder()`.
        metadata: Called after the last row. Its result is stored with the rows as JSON;
            see `read_metadata`.
    """
    import pyarrow as pa
    from datasets import Dataset

    path = (cache or cache_folder()) / f"{key}.arrow"
    if path.exists():
        try:
            read_metadata(dataset := Dataset.from_file(str(path)))
        except (pa.ArrowException, OSError, ValueError) as error:
            log.warning("%s is corrupt and will be rewritten (%s)", path, error)
        else:
            return dataset
    _write(rows, schema, path, metadata)
    return Dataset.from_file(str(path))


def read_metadata(dataset: "Dataset") -> dict[str, Any]:
    """Return the metadata of a dataset that `cached_dataset` returned.

    Raises:
        DataError: If the file is incomplete.
    """
    import pyarrow as pa

    path = dataset.cache_files[0]["filename"]
    with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
        metadata = None
        for _, batch_metadata in reader.iter_batches_with_custom_metadata():
            metadata = batch_metadata
    if metadata is None or _METADATA_KEY not in metadata:
        raise DataError("the file is incomplete", path)
    return dict(json.loads(metadata[_METADATA_KEY]))


def _write(
    rows: Iterable[Mapping[str, Any]],
    schema: "pa.Schema",
    path: Path,
    metadata: Callable[[], Mapping[str, Any]],
) -> None:
    import pyarrow as pa

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError as error:
        raise DataError(
            f"cannot write to the cache ({error}). Set PERRON_CACHE to a writable "
            "folder.",
            path,
        ) from error
    try:
        with os.fdopen(handle, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            remaining = iter(rows)
            while batch := list(islice(remaining, BATCH)):
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
            # The schema comes first in a stream, but the metadata is only known at the
            # end. It is attached to an empty last batch, whose presence also shows that
            # the file is complete.
            end = pa.RecordBatch.from_pylist([], schema)
            content = json.dumps(dict(metadata())).encode()
            writer.write_batch(end, {_METADATA_KEY: content})
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
