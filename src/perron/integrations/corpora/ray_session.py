"""Ray, started quietly on this machine, or a cluster that runs already."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.data import DataContext

from perron.errors import PerronError
from perron.training.stopping import ended_by_term

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
        with session, ended_by_term():  # Ray's own handler would abort
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
