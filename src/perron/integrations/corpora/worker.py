"""Workers, which read a shard, compute it and write its part."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from perron.errors import DataError, InvalidRows, PerronError
from perron.integrations.corpora.mapper import TextMapper, set_num_threads
from perron.integrations.corpora.parts import (
    SKIPPED_ROWS_KEY,
    Shard,
    file_state,
    part_name,
    read_counts,
)
from perron.text.formats.rows import Row, text_problem

BATCH_ROWS = 8192  # rows in memory, and in a row group of a part
MAX_WORKER_DEATHS = 5  # per shard


@dataclass(frozen=True)
class WorkerConfig:
    """Settings of the workers. Every machine must be able to access the folders.

    Attributes:
        mapper: Model and task.
        corpus: Folder that the files of shards are relative to.
        out: Output folder.
        schema: Schema of a part.
        skip_invalid: Whether to skip rows without a valid text instead of raising an
            error.
    """

    mapper: TextMapper
    corpus: Path
    out: Path
    schema: pa.Schema
    skip_invalid: bool


class ShardWorker:
    """Computes the parts of shards, one at a time. Each Ray Data actor runs one worker.

    A part is written to a uniquely named temporary file and renamed when it is
    complete. A shard can therefore be started any number of times, even on several
    machines at once: it ends up with one part, with the same rows.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        # Must be set before oneDNN is first used. It caches one primitive per text
        # length; the default of a thousand takes 60 MB and saves no time.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
        set_num_threads(config.mapper.threads or 1)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Compute one shard and return its row counts, or the problem.

        Args:
            row: Fields of a `Shard`.
        """
        shard = Shard(**row)
        result = {"number": shard.number, "rows": 0, "skipped_rows": 0, "problem": ""}
        result |= {"process": f"{socket.gethostname()}/{os.getpid()}"}
        path = self.config.out / part_name(shard.number)
        try:
            if not path.exists():
                self._check_deaths(shard, path)
                self._write(shard, path)
            return result | read_counts(path)._asdict()
        except (PerronError, pa.ArrowException, OSError) as error:
            return result | {"problem": str(error)}

    def _check_deaths(self, shard: Shard, path: Path) -> None:
        """Reject a shard that kills its workers; each of them left a temporary file."""
        deaths = len(list(path.parent.glob(f".{path.name}.*.part")))
        if deaths >= MAX_WORKER_DEATHS:
            raise DataError(
                f"{deaths} workers died on rows {shard.start + 1} to "
                f"{shard.start + shard.rows}, possibly because they ran out of "
                "memory. Use fewer workers per machine.",
                self.config.corpus / shard.file,
            )

    def _write(self, shard: Shard, path: Path) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid4().hex[:8]}.part")
        invalid = InvalidRows(self.config.skip_invalid)
        try:
            with temporary.open("wb") as file:
                with pq.ParquetWriter(file, self.config.schema) as writer:
                    for batch in self._batches(shard, invalid):
                        output = self.config.mapper(batch)
                        writer.write_table(output.cast(self.config.schema))
                    skipped = str(invalid.skipped.total())
                    writer.add_key_value_metadata({SKIPPED_ROWS_KEY.decode(): skipped})
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise DataError(f"cannot be written ({error})", path) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _batches(self, shard: Shard, invalid: InvalidRows) -> Iterator[pa.Table]:
        """Yield the valid rows of a shard in batches."""
        path = self.config.corpus / shard.file
        self._check_unchanged(shard, path)
        for start, table in _read(path, shard.start, shard.start + shard.rows):
            valid = []
            for index, problem in enumerate(self._problems(table)):
                if problem is None:
                    valid.append(index)
                else:
                    invalid.report(path, start + index + 1, problem)
            yield table if len(valid) == len(table) else table.take(valid)
        self._check_unchanged(shard, path)

    def _check_unchanged(self, shard: Shard, path: Path) -> None:
        if file_state(path) != (shard.bytes, shard.modified):
            raise DataError("has changed since the job was started.", path)

    def _problems(self, table: pa.Table) -> Iterator[str | None]:
        """Yield the problem of each row, or None for a valid row."""
        mapper = self.config.mapper
        names = [name for name in (mapper.text, mapper.text_pair) if name is not None]
        # As bytes, because Arrow does not check that strings in a file are UTF-8.
        columns = [table[name].cast(pa.large_string()) for name in names]
        raw = [column.cast(pa.large_binary()).to_pylist() for column in columns]
        for row in zip(*raw, strict=True):
            yield next(filter(None, map(_problem, names, row)), None)


def _problem(name: str, raw: bytes | None) -> str | None:
    if raw is None:
        return f"{name} must be a string, got null"
    try:
        return text_problem(Row(0, raw.decode(), None))
    except UnicodeDecodeError as error:
        return f"{name} is not valid UTF-8 ({error})"


def _read(path: Path, start: int, stop: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows in `range(start, stop)` as tables, each with its first index."""
    try:
        # Buffered reads, so that a row group does not have to fit into memory.
        with pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as file:
            metadata = file.metadata
            sizes = [
                metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)
            ]
            offsets = [0, *accumulate(sizes)]
            groups = [
                k
                for k in range(len(sizes))
                if offsets[k] < stop and offsets[k + 1] > start
            ]
            row = offsets[groups[0]] if groups else stop
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups):
                first, last = max(start, row), min(stop, row + len(batch))
                if first < last:
                    rows = batch.slice(first - row, last - first)
                    yield first, pa.Table.from_batches([rows])
                row += len(batch)
                if row >= stop:
                    break
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read ({error})", path) from error
