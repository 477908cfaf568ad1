"""What a worker does: read a piece, compute it, write its part."""

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
from perron.integrations.corpora.mapper import TextMapper, limit_threads
from perron.integrations.corpora.parts import (
    LEFT_OUT,
    Piece,
    counts_of,
    part_name,
    state_of,
)
from perron.text.formats.rows import Row, text_problem

BATCH = 8192  # rows in memory, and in a row group of a part
MOST_DEATHS = 5  # workers that a piece may cost


@dataclass(frozen=True)
class WorkerConfig:
    """What all workers are told. Every machine must see both folders.

    Attributes:
        mapper: what is computed.
        corpus: folder that the names of pieces are relative to.
        out: folder of the parts.
        schema: of a part.
        skip_invalid: leave out rows that have no text, instead of giving up.
    """

    mapper: TextMapper
    corpus: Path
    out: Path
    schema: pa.Schema
    skip_invalid: bool


class PieceWorker:
    """Turns pieces into parts, one at a time; Ray Data runs one in each actor.

    A part is written under a name of its own and renamed when it is whole. So a piece
    may be begun any number of times, here or on several machines at once: it has one
    part in the end, with the same rows.
    """

    def __init__(self, work: WorkerConfig) -> None:
        self.work = work
        # Before its first use: every length of text has a primitive of its own, and
        # the usual thousand of them are 60 MB that save no time.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
        limit_threads(work.mapper.threads or 1)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Compute the piece of that row; return how many rows, or what went wrong."""
        piece = Piece(**row)
        answer = {"number": piece.number, "rows": 0, "left_out": 0, "problem": ""}
        answer |= {"process": f"{socket.gethostname()}/{os.getpid()}"}
        path = self.work.out / part_name(piece.number)
        try:
            if not path.exists():
                self._count_deaths(piece, path)
                self._write(piece, path)
            rows, left_out = counts_of(path)
            return answer | {"rows": rows, "left_out": left_out}
        except (PerronError, pa.ArrowException, OSError) as error:
            return answer | {"problem": str(error)}

    def _count_deaths(self, piece: Piece, path: Path) -> None:
        """Give up on a piece that ends every worker: each left an unfinished file."""
        deaths = len(list(path.parent.glob(f".{path.name}.*.part")))
        if deaths >= MOST_DEATHS:
            raise DataError(
                f"{deaths} workers died over rows {piece.start + 1} to "
                f"{piece.start + piece.rows}, perhaps for want of memory; try with "
                "fewer workers on a machine",
                self.work.corpus / piece.file,
            )

    def _write(self, piece: Piece, path: Path) -> None:
        part = path.with_name(f".{path.name}.{os.getpid()}.{uuid4().hex[:8]}.part")
        bad = InvalidRows(self.work.skip_invalid)
        try:
            with part.open("wb") as file:
                with pq.ParquetWriter(file, self.work.schema) as writer:
                    for batch in self._batches(piece, bad):
                        computed = self.work.mapper(batch)
                        writer.write_table(computed.cast(self.work.schema))
                    notes = {LEFT_OUT.decode(): str(bad.skipped.total())}
                    writer.add_key_value_metadata(notes)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            raise DataError(f"could not be written ({error})", path) from error
        finally:
            part.unlink(missing_ok=True)

    def _batches(self, piece: Piece, bad: InvalidRows) -> Iterator[pa.Table]:
        """Yield the rows of a piece that can be used, some at a time."""
        path = self.work.corpus / piece.file
        self._check_unchanged(piece, path)
        for start, table in _read(path, piece.start, piece.start + piece.rows):
            good = []
            for place, problem in enumerate(self._problems(table)):
                if problem is None:
                    good.append(place)
                else:
                    bad.report(path, start + place + 1, problem)
            yield table if len(good) == len(table) else table.take(good)
        self._check_unchanged(piece, path)

    def _check_unchanged(self, piece: Piece, path: Path) -> None:
        if state_of(path) != (piece.bytes, piece.modified):
            raise DataError("has been changed since the work began", path)

    def _problems(self, table: pa.Table) -> Iterator[str | None]:
        """Say of each row what keeps it from being computed, if anything does."""
        mapper = self.work.mapper
        names = [name for name in (mapper.text, mapper.text_pair) if name is not None]
        # As bytes: Arrow takes a file's word for it that strings are UTF-8.
        columns = [table[name].cast(pa.large_string()) for name in names]
        raw = [column.cast(pa.large_binary()).to_pylist() for column in columns]
        for row in zip(*raw, strict=True):
            yield next(filter(None, map(_problem, names, row)), None)


def _problem(name: str, raw: bytes | None) -> str | None:
    if raw is None:
        return f"{name} is missing, not a text"
    try:
        return text_problem(Row(0, raw.decode(), None))
    except UnicodeDecodeError as error:
        return f"{name} is no UTF-8 ({error})"


def _read(path: Path, begin: int, end: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows from begin to end, with the number of the first of each table."""
    try:
        # A buffer for each column, so that a row group need not fit into memory.
        with pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as file:
            footer = file.metadata
            groups = [
                footer.row_group(k).num_rows for k in range(footer.num_row_groups)
            ]
            starts = [0, *accumulate(groups)]
            chosen = [
                k
                for k in range(len(groups))
                if starts[k] < end and starts[k + 1] > begin
            ]
            row = starts[chosen[0]] if chosen else end
            for batch in file.iter_batches(BATCH, row_groups=chosen):
                first, last = max(begin, row), min(end, row + len(batch))
                if first < last:
                    part = batch.slice(first - row, last - first)
                    yield first, pa.Table.from_batches([part])
                row += len(batch)
                if row >= end:
                    break
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read ({error})", path) from error
