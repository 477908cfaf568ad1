"""A corpus of Parquet files through a model, on Ray Data.

Ray Data has checkpoints of its own; docs/scale.md says why they are not used.
"""

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext
from ray.exceptions import RayError, RayTaskError

from perron.errors import DataError, PerronError, SettingsError
from perron.files import locked, make_folder, remove_parts
from perron.integrations.corpora.mapper import TextMapper
from perron.integrations.corpora.parts import (
    END_MARK,
    CorpusProgress,
    Outcome,
    Piece,
    check_place,
    claim,
    close_folder,
    find_corpus,
    manifest_of,
    missing,
)
from perron.integrations.corpora.worker import PieceWorker, WorkerConfig
from perron.text.formats import Columns
from perron.training.state import sigterm_as_interrupt

# Read when Ray starts: no reports to its makers, no chatter.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
ADDRESS = "RAY_ADDRESS"
_OBJECT_STORE = 100 * 2**20  # bytes; only names of pieces go through it
_LONGEST_FOLDER = 40  # characters: what is left of a socket's 107 when Ray adds its own


@contextmanager
def ray_session(workers: int | None, address: str | None) -> Iterator[int]:
    """Give the number of workers that Ray has room for.

    Ray that runs in this process is used as it is. Otherwise a cluster is joined, by
    its address or that in RAY_ADDRESS, or Ray is started on this machine alone. What
    was started is stopped at the end.

    Args:
        workers: unless given, as many as there are processors.
        address: of a cluster.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    context = DataContext.get_current()
    shown, context.enable_progress_bars = context.enable_progress_bars, False
    try:
        if ray.is_initialized():
            yield workers or _processors()
            return
        address = address or os.environ.get(ADDRESS)
        session = _joined(address) if address else _started(workers)
        with session, sigterm_as_interrupt():  # Ray's own handler would abort
            yield workers or _processors()
    finally:
        context.enable_progress_bars = shown
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _processors() -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


@contextmanager
def _joined(address: str) -> Iterator[None]:
    try:
        with _silent():
            ray.init(
                address=address, log_to_driver=False, logging_level=logging.CRITICAL
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise PerronError(
            f"no Ray that lets us in at {address} ({error}); where the cluster wants a "
            "token, RAY_AUTH_MODE=token and the token must be set here too"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _started(workers: int | None) -> Iterator[None]:
    folder = Path(tempfile.mkdtemp(prefix="perron-", dir=_short_folder()))
    try:
        with _silent():
            ray.init(
                address="local",
                num_cpus=workers or os.cpu_count(),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                object_store_memory=_OBJECT_STORE,
                _temp_dir=str(folder),
            )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what Ray's other languages write to standard error while it starts."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _short_folder() -> str:
    """Return a folder for temporary files in which the name of a socket has room."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _LONGEST_FOLDER else "/tmp"


_BLOCKS = 10_000  # that Ray Data keeps track of; beyond, pieces share one


def run_on_ray(
    mapper: TextMapper,
    source: str | Path,
    out: str | Path,
    *,
    workers: int | None = None,
    address: str | None = None,
    piece_rows: int | None = None,
    skip_invalid: bool = False,
    watch: Callable[[CorpusProgress], None] | None = None,
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
        skip_invalid: leave out rows without a text, and count them.
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
        claim(out, manifest_of(corpus, mapper, piece_rows, skip_invalid))
        remove_parts(out)
        pieces = corpus.pieces(piece_rows)
        todo = missing(out, pieces)
        processes: set[str] = set()
        if todo:
            (out / END_MARK).unlink(missing_ok=True)
            schema = pa.schema([*corpus.schema, *mapper.new_fields])
            work = WorkerConfig(
                mapper, corpus.root, out.absolute(), schema, skip_invalid
            )
            with ray_session(workers, address) as count:
                for progress in _run(work, todo, count, len(pieces), corpus.rows):
                    processes.add(progress.process)
                    if watch is not None:
                        watch(progress)
            remove_parts(out)
        counts = close_folder(out, pieces)
    return Outcome(*counts, len(pieces), len(todo), len(processes))


def _run(
    work: WorkerConfig, todo: list[Piece], workers: int, all_pieces: int, all_rows: int
) -> Iterator[CorpusProgress]:
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
            yield CorpusProgress(
                finished, all_pieces, rows, all_rows, answer["process"]
            )
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
