"""Numba compilation and parallel loops over texts.

Kernels are serial and release the GIL; the threads are Python threads. This gives three
guarantees that numba's threading layers do not. Forking is safe, because there is no
OpenMP state to inherit. Several Python threads can call a kernel concurrently. The
number of threads is torch's, so a DataLoader worker, where torch uses one thread, does
not start more.
"""

import inspect
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from threading import Timer
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

# In multiply-adds. With less work, waking a thread costs more than it saves.
_MIN_WORK_PER_THREAD = 1_500_000

_log = logging.getLogger("perron")

# Dynamic scheduling: a fast thread processes more ranges than one that has to wait for
# its core (after each parallel operation, the threads of torch spin for a while).
_RANGES_PER_THREAD = 16


def jit(function: Kernel) -> Kernel:
    """Compile at the first call, and cache the machine code on disk if possible."""
    return _compile(function, {"contract"})


def jit_reassoc(function: Kernel) -> Kernel:
    """Compile like `jit`, but allow floating-point reassociation.

    This lets LLVM vectorize sums over a loop. NaN and infinity are preserved, but
    products of several factors may be regrouped as well.
    """
    return _compile(function, {"contract", "reassoc", "nsz"})


def _compile(function: Kernel, fastmath: set[str]) -> Kernel:
    function = inspect.unwrap(function)  # tests wrap it in a shape checker
    options: dict[str, Any] = {
        "nogil": True,
        "fastmath": fastmath,
        "error_model": "numpy",
    }
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no writable cache directory
        return numba.njit(**options)(function)


@jit
def valid_positions(mask: Array, text: int, positions: Array) -> int:
    """Write the positions of a text's valid tokens; return their number.

    A mask with no rows means that all tokens are valid.
    """
    if mask.shape[0] == 0:
        positions[:] = np.arange(len(positions))
        return len(positions)
    n = 0
    for i in range(len(positions)):
        if mask[text, i]:
            positions[n] = i
            n += 1
    return n


class _ThreadPool:
    """Thread pool that starts when first needed, and again after a fork."""

    def __init__(self) -> None:
        self.executor: ThreadPoolExecutor | None = None
        self.size = 0

    def get_executor(self, size: int) -> ThreadPoolExecutor:
        """Return an executor with at least ``size`` threads."""
        if self.executor is None or self.size < size:
            self.executor = ThreadPoolExecutor(size, thread_name_prefix="perron")
            self.size = size
        return self.executor

    def reset(self) -> None:
        """Drop the executor, whose threads do not exist in a forked child."""
        self.executor, self.size = None, 0


_pool = _ThreadPool()
os.register_at_fork(after_in_child=_pool.reset)

_compiled: set[Callable[..., None]] = set()


class CompilationNotice:
    """Log a message, once, if compilation is slow.

    Args:
        after: Delay of the message in seconds.
    """

    def __init__(self, after: float = 3.0) -> None:
        self.after = after
        self.shown = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Log the message if the block takes longer than ``after`` seconds."""
        timer = Timer(self.after, self._show)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _show(self) -> None:
        if not self.shown:
            self.shown = True
            _log.warning(
                "Compiling kernels for this CPU. This takes about a minute and is done "
                "only once. Set PERRON_KERNELS=torch to run without compiled kernels."
            )


_notice = CompilationNotice()


def parallel_for(
    kernel: Callable[..., None],
    work: Array,
    *arguments: Any,
    notice: CompilationNotice = _notice,
) -> None:
    """Call ``kernel(first, last, *arguments)`` in parallel on ranges of all texts.

    Args:
        kernel: Compiled function that processes the texts ``first`` to ``last - 1``.
        work: Estimated number of multiply-adds per text, used to balance the ranges.
        arguments: Other arguments of the kernel.
        notice: Message to show if the first call is slow.
    """
    if kernel not in _compiled:
        with notice.watch():
            kernel(0, 0, *arguments)  # compiles, or loads from the cache
        _compiled.add(kernel)
    threads = torch.get_num_threads()
    total = float(work.sum()) if threads > 1 else 0.0
    threads = min(threads, int(total / _MIN_WORK_PER_THREAD))
    if threads <= 1:
        kernel(0, len(work), *arguments)
        return
    max_ranges = int(2 * total / _MIN_WORK_PER_THREAD)
    count = min(threads * _RANGES_PER_THREAD, max_ranges)
    ranges = deque(balanced_ranges(work, count))

    def process_ranges() -> None:
        while True:
            try:
                first, last = ranges.popleft()  # atomic
            except IndexError:
                return
            kernel(first, last, *arguments)

    executor = _pool.get_executor(threads - 1)
    futures = [executor.submit(process_ranges) for _ in range(threads - 1)]
    process_ranges()
    for future in futures:
        if not future.cancel():  # no ranges are left for one that has not started
            future.result()


def balanced_ranges(work: Array, count: int) -> Sequence[tuple[int, int]]:
    """Split the texts into up to ``count`` ranges with about the same work."""
    cumulative = np.cumsum(work, dtype=np.float64)
    cuts = np.searchsorted(cumulative, cumulative[-1] * np.arange(1, count) / count) + 1
    bounds = [0, *sorted({int(cut) for cut in cuts if cut < len(work)}), len(work)]
    return list(pairwise(bounds))
