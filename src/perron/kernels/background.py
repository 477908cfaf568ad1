"""Compilation of kernels in a background thread, while plain torch does their work.

A process that pools a few texts is done before numba is even imported. Therefore,
nothing is imported or compiled until the process has been pooling for a while. The
thread then compiles the operations that were requested, one after another.

The thread never outlives the interpreter, and holds no locks while the process forks:
exiting and forking interrupt the compilation at its next step, within a fraction of a
second. After a fork, parent and child each continue at the next request.
"""

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

Key = tuple[str, torch.dtype]  # operation and dtype

# Seconds from the first call that uses plain torch to the start of the compilation.
PATIENCE = 0.5

# If something blocks the thread, do not block exits and forks for longer than this.
_MAX_PAUSE = 30.0


def example(operation: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """Return small arguments that make a forward function call all of its kernels."""
    tokens = torch.tensor([[1.0], [2.0]], dtype=dtype)
    graph = torch.ones(1, 1, 2, 2, dtype=dtype)
    mask, counts = torch.ones(1, 2, dtype=torch.bool), torch.tensor([2])
    arguments: dict[str, tuple[Any, ...]] = {
        # Eight texts are solved together, and the ninth one alone.
        "stationary": (torch.ones(9, 2, 2, dtype=dtype), None, False),
        "pair_scores": (tokens.new_ones(2, 2, 1, 1), tokens[:1], mask, "tanh"),
        "column_softmax": (graph, mask),
        "segment_sum": (tokens, tokens, counts),
        "segment_argmax": (tokens, counts),
        "mix_layers": (tokens[0], torch.ones(1, 8, dtype=torch.float16)),
    }
    return arguments[operation]


class Interrupted(BaseException):
    """Raised in the thread to interrupt a compilation."""


class BackgroundCompiler:
    """Thread that compiles operations on request.

    Args:
        build: Function that compiles an operation for a dtype. It calls its last
            argument often, which raises `Interrupted` to stop it.
        on_change: Callback, in the thread, when an operation is ready or has failed.
        patience: Seconds from the first request to the start of the thread.
    """

    def __init__(
        self,
        build: Callable[[str, torch.dtype, Callable[[], None]], None],
        on_change: Callable[[], None],
        patience: float = PATIENCE,
    ) -> None:
        self.ready: set[Key] = set()
        self.failed: dict[Key, Exception] = {}
        self.patience = patience
        self._build = build
        self._on_change = on_change
        self._first_request: float | None = None
        self._requested: dict[Key, None] = {}  # ordered set
        self._is_exiting = False
        self._is_interrupted = False
        self._reset()
        atexit.register(self._exit)
        os.register_at_fork(
            before=self._pause,
            after_in_parent=self._resume,
            after_in_child=self._reset,
        )

    def _reset(self) -> None:
        """Forget the thread and its locks, which are useless in a forked child."""
        self._thread: threading.Thread | None = None
        self._state_lock = threading.Lock()
        self._work_lock = threading.Lock()  # held by the thread while it compiles
        self._is_interrupted = self._is_exiting

    def request(self, key: Key) -> None:
        """Request an operation; start the thread if the first request is old enough."""
        now = time.monotonic()
        if self._first_request is None:
            self._first_request = now
        with self._state_lock:
            if key not in self.ready and key not in self.failed:
                self._requested[key] = None
            if (
                self._thread is None
                and self._requested
                and now - self._first_request >= self.patience
                and not self._is_exiting
            ):
                self._thread = threading.Thread(
                    target=self._run, name="perron-compile", daemon=True
                )
                self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has nothing to do."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._state_lock:
                key = next(iter(self._requested), None)
                if key is None or self._is_exiting:
                    self._thread = None
                    return
            with self._work_lock:
                try:
                    self._check()
                    self._build(*key, self._check)
                except Interrupted:
                    continue
                except Exception as error:  # a compiler can raise anything
                    self.failed[key] = error
                else:
                    self.ready.add(key)
            with self._state_lock:
                self._requested.pop(key, None)
            self._on_change()

    def _check(self) -> None:
        if self._is_interrupted:
            raise Interrupted

    def _pause(self) -> None:
        """Interrupt the compilation, and prevent another one until `_resume`."""
        if threading.current_thread() is not self._thread:
            self._is_interrupted = True
            self._work_lock.acquire(timeout=_MAX_PAUSE)

    def _resume(self) -> None:
        if threading.current_thread() is not self._thread:
            self._is_interrupted = self._is_exiting
            if self._work_lock.locked():
                self._work_lock.release()

    def _exit(self) -> None:
        self._is_exiting = True
        self._pause()
