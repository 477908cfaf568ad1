"""Corpora of Parquet files, labeled or encoded with Ray Data.

Ray Data has its own checkpoints; docs/scale.md explains why they are not used.
"""

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext
from ray.exceptions import RayError, RayTaskError

from perron.errors import DataError, PerronError, SettingsError
from perron.files import lock_folder, make_folder, remove_temporary_files
from perron.integrations.corpora.mapper import TextMapper
from perron.integrations.corpora.parts import (
    SUCCESS_MARKER,
    Shard,
    build_manifest,
    check_output_folder,
    find_corpus,
    finish_output,
    missing_shards,
    open_output,
)
from perron.integrations.corpora.worker import ShardWorker, WorkerConfig
from perron.text.formats import Columns
from perron.training.state import sigterm_as_interrupt

# Environment variables that Ray reads at startup: no usage reports, no log messages.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
_ADDRESS_VARIABLE = "RAY_ADDRESS"
_OBJECT_STORE = 100 * 2**20  # bytes; only descriptions of shards pass through it
# A socket path has at most 107 characters, and Ray appends its own part.
_MAX_FOLDER_LENGTH = 40
_MAX_BLOCKS = 10_000  # of Ray Data; in larger jobs, shards share a block


@dataclass(frozen=True)
class CorpusProgress:
    """Progress of a job.

    Attributes:
        shards_done: Number of shards that have a part.
        total_shards: Number of shards in the corpus.
        rows: Number of rows computed in this run.
        total_rows: Number of rows in the corpus.
        process: Host name and process id of the worker that finished last.
    """

    shards_done: int
    total_shards: int
    rows: int
    total_rows: int
    process: str = ""


@dataclass(frozen=True)
class JobResult:
    """Result of a job.

    Attributes:
        rows: Number of rows in all parts.
        skipped_rows: Number of invalid rows that were skipped.
        shards: Number of shards, and of parts in the folder.
        computed_shards: Number of shards computed in this run.
        num_processes: Number of worker processes that computed them. Larger than the
            number of workers if some died.
    """

    rows: int
    skipped_rows: int
    shards: int
    computed_shards: int
    num_processes: int


@contextmanager
def ray_session(workers: int | None, address: str | None) -> Iterator[int]:
    """Connect to Ray and yield the number of workers.

    If Ray is already initialized in this process, use it. Otherwise, connect to the
    cluster at `address` or RAY_ADDRESS, or else start Ray on this machine. Disconnect
    or stop Ray at the end, unless it was already initialized.

    Args:
        workers: Number of workers. Defaults to the number of CPUs.
        address: Address of a Ray cluster.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    context = DataContext.get_current()
    progress_bars, context.enable_progress_bars = context.enable_progress_bars, False
    try:
        if ray.is_initialized():
            yield workers or _num_cpus()
            return
        address = address or os.environ.get(_ADDRESS_VARIABLE)
        session = _connect(address) if address else _start(workers)
        with session, sigterm_as_interrupt():  # Ray's own handler would abort
            yield workers or _num_cpus()
    finally:
        context.enable_progress_bars = progress_bars
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _num_cpus() -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


@contextmanager
def _connect(address: str) -> Iterator[None]:
    try:
        with _redirect_stderr():
            ray.init(
                address=address, log_to_driver=False, logging_level=logging.CRITICAL
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise PerronError(
            f"cannot connect to Ray at {address} ({error}). If the cluster requires a "
            "token, set RAY_AUTH_MODE=token and the token here too."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _start(workers: int | None) -> Iterator[None]:
    folder = Path(tempfile.mkdtemp(prefix="perron-", dir=_short_folder()))
    try:
        with _redirect_stderr():
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
def _redirect_stderr() -> Iterator[None]:
    """Discard what Ray's native code writes to stderr at startup."""
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


def _short_folder() -> str:
    """Return a folder for temporary files that is short enough for socket paths."""
    default = tempfile.gettempdir()
    return default if len(default) <= _MAX_FOLDER_LENGTH else "/tmp"


def run_on_ray(
    mapper: TextMapper,
    source: str | Path,
    out: str | Path,
    *,
    workers: int | None = None,
    address: str | None = None,
    shard_rows: int | None = None,
    skip_invalid: bool = False,
    on_progress: Callable[[CorpusProgress], None] | None = None,
) -> JobResult:
    """Label or encode every row of a corpus exactly once, even if workers die.

    The corpus is split into shards. Each shard has one output file, a part, which is
    written to a temporary file and renamed when it is complete. If a run is stopped or
    killed, call this function again: it resumes with the shards that have no part.
    Parts sorted by name have the rows in corpus order: files sorted by path, rows in
    the order of each file.

    Args:
        mapper: Model and task. Each worker has its own copy of the model and uses one
            thread unless ``mapper.threads`` is set.
        source: Parquet file, or folder of Parquet files.
        out: Output folder. In a cluster, all machines must be able to access it, the
            source and the model under the same paths.
        workers: Number of workers. Defaults to the number of CPUs.
        address: Address of a Ray cluster. Defaults to RAY_ADDRESS; if that is not set,
            Ray is started on this machine.
        shard_rows: Maximum number of rows per shard. The default depends on the size
            of the corpus.
        skip_invalid: Whether to skip and count rows without a valid text instead of
            raising an error.
        on_progress: Callback that is called after each shard.

    Raises:
        DataError: If a file cannot be read or written, or a row is invalid.
        SettingsError: If the output folder contains other files or another job.
    """
    source, out = Path(source), Path(out)
    for name, count in (("workers", workers), ("shard_rows", shard_rows)):
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}.")
    corpus = find_corpus(source, Columns(mapper.text, mapper.text_pair, None))
    try:
        mapper.check_columns(corpus.schema.names)
    except ValueError as error:
        raise SettingsError(f"{source}: {error}") from error
    shard_rows = shard_rows or corpus.default_shard_rows()
    check_output_folder(out, corpus)
    make_folder(out)
    with lock_folder(out):
        open_output(out, build_manifest(corpus, mapper, shard_rows, skip_invalid))
        remove_temporary_files(out)
        shards = corpus.shards(shard_rows)
        todo = missing_shards(out, shards)
        processes: set[str] = set()
        if todo:
            (out / SUCCESS_MARKER).unlink(missing_ok=True)
            schema = pa.schema([*corpus.schema, *mapper.new_fields])
            config = WorkerConfig(
                mapper, corpus.root, out.absolute(), schema, skip_invalid
            )
            with ray_session(workers, address) as count:
                for progress in _run(config, todo, count, len(shards), corpus.rows):
                    processes.add(progress.process)
                    if on_progress is not None:
                        on_progress(progress)
            remove_temporary_files(out)
        counts = finish_output(out, shards)
    return JobResult(*counts, len(shards), len(todo), len(processes))


def _run(
    config: WorkerConfig,
    todo: list[Shard],
    workers: int,
    total_shards: int,
    total_rows: int,
) -> Iterator[CorpusProgress]:
    """Yield the progress after each shard. Shards finish in any order."""
    items = [asdict(shard) for shard in todo]
    dataset = ray.data.from_items(
        items, override_num_blocks=min(len(items), _MAX_BLOCKS)
    )
    # Ray Data restarts dead actors and retries their tasks without limit.
    results = dataset.map(
        ShardWorker,  # type: ignore[arg-type]  # Ray accepts a class here
        fn_constructor_args=[config],
        compute=ActorPoolStrategy(size=min(workers, len(items))),
        num_cpus=1,
    )
    done, rows = total_shards - len(todo), 0
    try:
        for result in results.iter_rows():
            if result["problem"]:
                raise DataError(result["problem"] + _host_hint(result["process"]))
            done += 1
            rows += result["rows"] + result["skipped_rows"]
            yield CorpusProgress(
                done, total_shards, rows, total_rows, result["process"]
            )
    except RayTaskError:
        raise  # a bug: keep the traceback of the worker
    except RayError as error:
        raise PerronError(
            f"Ray failed ({error}). Run the same command again to resume."
        ) from error


def _host_hint(process: str) -> str:
    """Return a hint for errors of workers on other machines."""
    host = process.partition("/")[0]
    if host == socket.gethostname():
        return ""
    return f" (on {host}, which must be able to access the same paths)"
