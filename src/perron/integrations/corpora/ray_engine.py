"""A corpus of Parquet files through a model, on Ray Data."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import ray.data
from ray.data import ActorPoolStrategy
from ray.exceptions import RayError, RayTaskError

from perron.errors import DataError, PerronError, SettingsError
from perron.files import locked, make_folder, remove_parts
from perron.integrations.corpora.mapper import TextMapper
from perron.integrations.corpora.outcome import Outcome, Progress
from perron.integrations.corpora.parts import (
    END_MARK,
    check_place,
    claim,
    close_folder,
    manifest_of,
    missing,
)
from perron.integrations.corpora.pieces import Piece, find_corpus
from perron.integrations.corpora.ray_session import ray_session
from perron.integrations.corpora.worker import PieceWorker, Work
from perron.text.formats import Columns

_BLOCKS = 10_000  # that Ray Data keeps track of; beyond, pieces share one


def run_on_ray(
    mapper: TextMapper,
    source: str | Path,
    out: str | Path,
    *,
    workers: int | None = None,
    address: str | None = None,
    piece_rows: int | None = None,
    skip_bad: bool = False,
    watch: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Compute every row of a corpus once, however often workers or this run die.

    The corpus is parted into pieces, and each has its part in the folder, written under
    another name and renamed when it is whole. A run that ended early is called again
    and goes on with the pieces that have none. In the order of the parts' names rows
    are as in the corpus: files by their names, rows as they are in them.

    Args:
        mapper: what is computed. Each worker has a model of its own, and one thread.
        source: a Parquet file, or a folder of them.
        out: folder for the parts; on a cluster all machines must see it, and the
            source and the model, under the same name.
        workers: unless given, one for each processor.
        address: of a Ray cluster; unless given, RAY_ADDRESS names it, or Ray is started
            on this machine.
        piece_rows: rows of a piece at most; unless given, chosen by the corpus's size.
        skip_bad: leave out rows without a text, and count them.
        watch: is told when a piece is done.

    Raises:
        DataError: something cannot be read, written or used.
        SettingsError: the folder belongs to something else.
    """
    source, out = Path(source), Path(out)
    for name, count in (("workers", workers), ("piece_rows", piece_rows)):
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1, but came as {count}")
    corpus = find_corpus(source, Columns(mapper.text, mapper.text_pair, None))
    try:
        mapper.check(corpus.schema.names)
    except ValueError as error:
        raise SettingsError(f"{source}: {error}") from error
    piece_rows = piece_rows or corpus.usual_piece_rows()
    check_place(out, corpus)
    make_folder(out)
    with locked(out):
        claim(out, manifest_of(corpus, mapper, piece_rows, skip_bad))
        remove_parts(out)
        pieces = corpus.pieces(piece_rows)
        todo = missing(out, pieces)
        processes: set[str] = set()
        if todo:
            (out / END_MARK).unlink(missing_ok=True)
            schema = pa.schema([*corpus.schema, *mapper.new_fields])
            work = Work(mapper, corpus.root, out.absolute(), schema, skip_bad)
            with ray_session(workers, address) as count:
                for progress in _run(work, todo, count, len(pieces), corpus.rows):
                    processes.add(progress.process)
                    if watch is not None:
                        watch(progress)
            remove_parts(out)
        counts = close_folder(out, pieces)
    return Outcome(*counts, len(pieces), len(todo), len(processes))


def _run(
    work: Work, todo: list[Piece], workers: int, all_pieces: int, all_rows: int
) -> Iterator[Progress]:
    """Yield whenever a piece is done, in whatever order they are."""
    items = [asdict(piece) for piece in todo]
    dataset = ray.data.from_items(items, override_num_blocks=min(len(items), _BLOCKS))
    # Ray Data restarts actors that die and repeats what they were at, without end.
    done = dataset.map(
        PieceWorker,  # type: ignore[arg-type]  # a class is legal, and needed here
        fn_constructor_args=[work],
        compute=ActorPoolStrategy(size=min(workers, len(items))),
        num_cpus=1,
    )
    finished, rows = all_pieces - len(todo), 0
    try:
        for answer in done.iter_rows():
            if answer["problem"]:
                raise DataError(answer["problem"] + _elsewhere(answer["process"]))
            finished += 1
            rows += answer["rows"] + answer["left_out"]
            yield Progress(finished, all_pieces, rows, all_rows, answer["process"])
    except RayTaskError:
        raise  # a fault of ours, with the worker's traceback
    except RayError as error:
        raise PerronError(
            f"Ray gave up ({error}); the same command goes on with the rest"
        ) from error


def _elsewhere(process: str) -> str:
    host = process.partition("/")[0]
    if host == socket.gethostname():
        return ""
    return f" (on {host}, which must see the same folders under the same names)"
