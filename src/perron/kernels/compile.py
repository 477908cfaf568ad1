"""Compile kernels with numba, and share texts out among threads.

Kernels here release the interpreter lock and are serial; the threads are Python's own.
That keeps three promises which numba's thread layers do not: a fork is safe (no OpenMP
state to inherit), several Python threads may call at once, and the number of threads is
torch's, so that a DataLoader worker, where torch has one, does not start more.
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

# Below this many multiply-adds a thread costs more to wake than it saves.
_WORTH_A_THREAD = 1_500_000

_log = logging.getLogger("perron")

# A thread that gets on well takes more ranges than one that must wait for its processor
# (after each parallel operation, those of torch spin for a while).
_RANGES_PER_THREAD = 16


def jit(function: Kernel) -> Kernel:
    """Compile at first call, keep the machine code on disk where that is possible."""
    return _compile(function, {"contract"})


def jit_sums(function: Kernel) -> Kernel:
    """Compile likewise, and let a sum along a loop be taken in any order.

    That is what turns such a loop into vector instructions. NaN and infinity keep their
    meaning, but a product of several factors may be regrouped as well.
    """
    return _compile(function, {"contract", "reassoc", "nsz"})


def _compile(function: Kernel, fastmath: set[str]) -> Kernel:
    function = inspect.unwrap(function)  # a test run wraps it in a checker of shapes
    options: dict[str, Any] = {
        "nogil": True,
        "fastmath": fastmath,
        "error_model": "numpy",
    }
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no directory that it may write to
        return numba.njit(**options)(function)


@jit
def used_words(mask: Array, text: int, used: Array) -> int:
    """Write the places of a text's words to ``used``; return how many there are.

    A mask without rows stands for one that is True throughout.
    """
    if mask.shape[0] == 0:
        used[:] = np.arange(len(used))
        return len(used)
    n = 0
    for i in range(len(used)):
        if mask[text, i]:
            used[n] = i
            n += 1
    return n


class _Pool:
    """Threads that are started when first needed, and anew after a fork."""

    def __init__(self) -> None:
        self.executor: ThreadPoolExecutor | None = None
        self.size = 0

    def of(self, size: int) -> ThreadPoolExecutor:
        if self.executor is None or self.size < size:
            self.executor = ThreadPoolExecutor(size, thread_name_prefix="perron")
            self.size = size
        return self.executor

    def forget(self) -> None:
        self.executor, self.size = None, 0


_pool = _Pool()
os.register_at_fork(after_in_child=_pool.forget)


_called: set[Callable[..., None]] = set()


class CompilationNotice:
    """Logs a message, once, when compilation takes long.

    Args:
        after: Seconds until the message.
    """

    def __init__(self, after: float = 3.0) -> None:
        self.after = after
        self.given = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Log the message if what is inside takes longer than ``after`` seconds."""
        timer = Timer(self.after, self._give)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give(self) -> None:
        if not self.given:
            self.given = True
            _log.warning(
                "compiling kernels for this processor; this takes a minute, once. "
                "Set PERRON_KERNELS=torch to run without compiling."
            )


_notice = CompilationNotice()


def parallel_for(
    kernel: Callable[..., None],
    work: Array,
    *arguments: Any,
    notice: CompilationNotice = _notice,
) -> None:
    """Call ``kernel(first, last, *arguments)`` for ranges that cover all texts.

    Args:
        kernel: a compiled function that handles the texts ``first`` to ``last - 1``.
        work: an estimate of each text's multiply-adds; ranges get about equal sums.
        arguments: passed on.
        notice: Message for a first call that takes long.
    """
    if kernel not in _called:
        with notice.watch():
            kernel(0, 0, *arguments)  # compiles, or loads what was compiled before
        _called.add(kernel)
    threads = torch.get_num_threads()
    total = float(work.sum()) if threads > 1 else 0.0
    threads = min(threads, int(total / _WORTH_A_THREAD))
    if threads <= 1:
        kernel(0, len(work), *arguments)
        return
    most = int(2 * total / _WORTH_A_THREAD)
    ranges = deque(equal_ranges(work, min(threads * _RANGES_PER_THREAD, most)))

    def take_ranges() -> None:
        while True:
            try:
                first, last = ranges.popleft()  # atomic
            except IndexError:
                return
            kernel(first, last, *arguments)

    pool = _pool.of(threads - 1)
    others = [pool.submit(take_ranges) for _ in range(threads - 1)]
    take_ranges()
    for other in others:
        if not other.cancel():  # one that has not begun has nothing left to do
            other.result()


def equal_ranges(work: Array, count: int) -> Sequence[tuple[int, int]]:
    """Return up to ``count`` ranges of texts with about equal sums of work."""
    done = np.cumsum(work, dtype=np.float64)
    cuts = np.searchsorted(done, done[-1] * np.arange(1, count) / count) + 1
    edges = [0, *sorted({int(cut) for cut in cuts if cut < len(work)}), len(work)]
    return list(pairwise(edges))
