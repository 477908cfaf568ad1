"""The `perron` command."""

import ctypes
import math
import os
import sys
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

_START = time.monotonic()

# Below this number of parameters without embeddings, two threads took 1.7 to 3.9 times
# as long as one (benchmarks/threads.py).
MIN_PARALLEL_PARAMETERS = 1_000_000


def main() -> None:
    """Run the `perron` command."""
    launch("perron.cli.app")


def launch(module: str) -> None:
    """Import a module and call its ``run`` function, reporting missing packages."""
    try:
        _launch(module)
    except KeyboardInterrupt:  # possibly while torch is imported
        sys.exit(130)


def _launch(module: str) -> None:
    # torch's threads spin while they wait for each other. On a busy machine, this made
    # an LSTM ten times slower. Without spinning, it was twice as slow on an idle
    # machine. A short spin is a compromise. torch reads the variable on import.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        import_module(module).run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perron"):
            raise
        print(
            f"perron: the package {error.name} is not installed. Install it with: "
            "pip install 'perron[train]'",
            file=sys.stderr,
        )
        sys.exit(1)


def limit_threads(model: Any = None, *, trains: bool = False) -> str | None:
    """Use fewer torch threads if all of them would be slower; return a message.

    The threads of an operation wait for each other. On cores that other programs use,
    and for operations on small models, this takes longer than the work itself.

    Returns None if all threads are used, or if you have set OMP_NUM_THREADS or
    MKL_NUM_THREADS.

    Args:
        model: Model that is run, if known.
        trains: Whether the model is trained, so that frozen weights do not count.
    """
    import torch

    threads = _available_threads()
    if {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & os.environ.keys() or threads == 1:
        return None
    load = _other_load()
    idle = 1 - load / (os.cpu_count() or 1)  # share of all cores, even in a container
    chosen = max(1, min(threads, round(threads * idle)))
    reason = f"the load average is {load:.1f}"
    if model is not None and _num_parameters(model, trains) < MIN_PARALLEL_PARAMETERS:
        chosen, reason = 1, "the model is small"
    torch.set_num_threads(chosen)
    if chosen == threads:
        return None
    return (
        f"Using {chosen} of {threads} threads: {reason}. To use more, set "
        "OMP_NUM_THREADS."
    )


# Parameters of mallopt(3) of glibc, and values in bytes. Larger values of the second
# one are rejected.
_MALLOC_SETTINGS = {-1: 1 << 30, -3: 32 << 20}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD


def keep_freed_memory() -> None:
    """Keep the memory of one batch for the next one.

    By default, glibc returns large blocks to the operating system, which then clears
    every page of the next block. Over cached states, this took a seventh of the CPU
    time of training. Has no effect with other C libraries.
    """
    with suppress(AttributeError, OSError, TypeError):  # TypeError on Windows
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _MALLOC_SETTINGS.items():
            mallopt(parameter, value)


@cache
def _available_threads() -> int:
    """Return the number of threads before it was first limited."""
    import torch

    return torch.get_num_threads()


def _other_load() -> float:
    """Return the load average of the last minute, excluding this process."""
    if not hasattr(os, "getloadavg"):  # on Windows
        return 0.0
    seconds = max(1.0, time.monotonic() - _START)
    own = time.process_time() / seconds * (1 - math.exp(-seconds / 60))
    return max(0.0, os.getloadavg()[0] - own)


def _num_parameters(model: Any, trains: bool) -> int:
    return sum(
        weight.numel()
        for name, weight in model.named_parameters()
        if not name.startswith("embedding.") and (weight.requires_grad or not trains)
    )
