"""Numba compilation, parallel loops over texts, and functions shared by kernels.

Kernels are serial and release the GIL; the threads are Python threads. This gives three
guarantees that numba's threading layers do not. Forking is safe, because there is no
OpenMP state to inherit. Several Python threads can call a kernel concurrently. The
number of threads is torch's, so a DataLoader worker, where torch uses one thread, does
not start more.
"""

import hashlib
import inspect
import logging
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Timer, get_ident
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numpy.typing import NDArray

Array = NDArray[Any]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])

# In multiply-adds. With less work, waking a thread costs more than it saves.
_MIN_WORK_PER_THREAD = 1_500_000

_log = logging.getLogger("perron")

# Dynamic scheduling: a fast thread processes more ranges than one that has to wait for
# its core (after each parallel operation, the threads of torch spin for a while).
_RANGES_PER_THREAD = 16


def jit(*, entry: bool = False, reassoc: bool = False) -> Callable[[Kernel], Kernel]:
    """Compile a function at its first call.

    Most of the compilation time is spent in numba itself, on NumPy functions that a
    kernel calls. Therefore, kernels use loops and scalars, and avoid ``min``, ``max``,
    ``reshape`` and assignments of arrays to slices.

    Args:
        entry: Whether Python calls the function. Its machine code is cached on disk if
            possible, and includes that of the other compiled functions it calls.
        reassoc: Whether to allow floating-point reassociation, which lets LLVM
            vectorize sums over a loop. NaN and infinity are preserved, but products of
            several factors may be regrouped as well.
    """
    fastmath = {"contract", "reassoc", "nsz"} if reassoc else {"contract"}
    options: dict[str, Any] = {
        "nogil": True,
        "fastmath": fastmath,
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
        "no_cpython_wrapper": not entry,
    }

    def decorate(function: Kernel) -> Kernel:
        function = inspect.unwrap(function)  # tests wrap it in a shape checker
        compiled: Any = numba.njit(**options)(function)
        if entry:
            with suppress(RuntimeError):  # numba found no writable cache folder
                compiled._cache = _KernelCache(function)
        return compiled

    return decorate


class _KernelCache(FunctionCache):
    """Cache of machine code, in a folder named after a digest of all kernels.

    By itself, numba would notice changes to the file of an entry point, but not to the
    files of the functions that it calls. A file that cannot be read or written is
    ignored: the kernel is compiled, as if there were no cache.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        folder = f"perron-{_digest(inspect.getfile(function))}"
        self._cache_path = os.path.join(self._cache_path, folder)
        self._cache_file = _CodeFiles(self._cache_path, self._impl.filename_base, None)

    def load_overload(self, *arguments: Any) -> Any:
        try:
            return super().load_overload(*arguments)
        except Exception:  # a damaged pickle can raise anything
            return None

    def save_overload(self, *arguments: Any) -> None:
        with suppress(OSError):  # the disk may be full
            super().save_overload(*arguments)


class _CodeFiles(IndexDataCacheFile):
    """One file per kernel, argument types and CPU, without an index.

    Processes that compile at the same time could overwrite each other's entries in an
    index. Here they write the same file, which is replaced atomically.
    """

    def load(self, key: Any) -> Any:
        try:
            return self._load_data(self._data_name(key))
        except FileNotFoundError:
            return None

    def save(self, key: Any, data: Any) -> None:
        os.makedirs(self._cache_path, exist_ok=True)
        self._save_data(self._data_name(key), data)

    def _data_name(self, key: Any) -> str:
        code = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return self._index_name.replace(".nbi", f"-{code}.nbc")


@cache
def _digest(file: str) -> str:
    """Return a digest of the kernels, of another file, and of the version of numba."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted({*Path(__file__).parent.glob("*.py"), Path(file)}):
        source = path.read_bytes()
        if b"jit(" in source:  # not the kernels of other backends
            digest.update(source)
    return digest.hexdigest()[:16]


@jit()
def valid_positions(mask: Array, text: int, positions: Array) -> int:
    """Write the positions of a text's valid tokens; return their number.

    A mask with no rows means that all tokens are valid.
    """
    if mask.shape[0] == 0:
        for i in range(len(positions)):
            positions[i] = i
        return len(positions)
    n = 0
    for i in range(len(positions)):
        if mask[text, i]:
            positions[n] = i
            n += 1
    return n


@jit()
def clamp(value: float, limit: float) -> float:
    """Clamp a value to ±limit; NaN stays NaN."""
    if value > limit:
        return limit
    if value < -limit:
        return -limit
    return value


@jit()
def two_sum_error(large: float, small: float) -> float:
    """Return the rounding error of large + small (Knuth's TwoSum, 1969)."""
    total = large + small
    part = total - large
    return (large - (total - part)) + (small - part)


@jit()
def write_edge_grads(
    solution: Array, positions: Array, shift: float, limit: float, G: Array
) -> None:
    """Compute G_ij = (u_i - u_j) α_j for valid tokens, clamped to ±limit.

    Args:
        solution: Rows u, low-order part of u, and α.
        positions: Positions of the valid tokens in G.
        shift: Exponent of the scale 2**shift of the rates. NaN if they were invalid.
        limit: Largest finite number of the dtype of G.
        G: (N, N) output.
    """
    n = len(positions)
    u, low, alpha = solution[0], solution[1], solution[2]
    half = second_half = np.nan
    if shift == shift:
        half = math.ldexp(1.0, int(shift) // 2)
        second_half = math.ldexp(1.0, int(shift) - int(shift) // 2)
    max_u = max_alpha = 0.0
    for a in range(n):
        u[a] *= half
        low[a] *= half
        alpha[a] *= second_half
        size = abs(u[a])
        max_u = size if size > max_u else max_u
        max_alpha = alpha[a] if alpha[a] > max_alpha else max_alpha
    in_range = 2 * max_u * max_alpha < limit
    start = positions[0] if n else 0
    contiguous = n > 0 and positions[n - 1] - start == n - 1
    for a in range(n):
        if in_range and contiguous:  # the common case; this loop is vectorized
            row = G[positions[a]][start : start + n]
            for b in range(n):
                row[b] = ((u[a] - u[b]) + (low[a] - low[b])) * alpha[b]
        else:
            for b in range(n):
                grad = ((u[a] - u[b]) + (low[a] - low[b])) * alpha[b]
                G[positions[a], positions[b]] = clamp(grad, limit)


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
_silent_threads: set[int] = set()


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
        if get_ident() in _silent_threads:
            yield
            return
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
                "Waiting for kernels to be compiled for this CPU. This takes up to a "
                "minute and is done only once. Set PERRON_KERNELS=torch to run without "
                "compiled kernels."
            )


_notice = CompilationNotice()


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Call a function before each step of the compilations in the block.

    It may raise an exception to interrupt them. In the block, slow compilations log no
    message.
    """
    thread = get_ident()

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            if get_ident() == thread:
                check()

        def on_end(self, event: Any) -> None:
            pass

    _silent_threads.add(thread)
    try:
        with event.install_listener("numba:run_pass", Listener()):
            yield
    finally:
        _silent_threads.discard(thread)


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
