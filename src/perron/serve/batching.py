"""Texts that arrive together are computed together, in a few threads."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any

_SMALL = 16  # items that it does not pay to share among threads
Compute = Callable[[Any, list[Any]], Sequence[Any]]
_Future = asyncio.Future[list[Any]]


class QueueFull(Exception):
    """More waits already than may wait."""


class _Job:
    """What one caller wants, when to begin it, and the future that it waits for."""

    __slots__ = ("alone", "due", "future", "items", "key")

    def __init__(
        self,
        key: Hashable,
        items: Sequence[Any],
        alone: bool,
        due: float,
        future: _Future,
    ) -> None:
        self.key = key
        self.items = items
        self.alone = alone
        self.due = due
        self.future = future


class Batcher:
    """Gathers what callers want and computes it in batches, first come first served.

    An idle thread waits a moment after the first arrival, for others that come at the
    same time. While all threads compute, arrivals gather, and what has gathered goes to
    the next thread that is free.

    A future that is done, because its caller gave up, leaves the queue and is not
    computed.
    """

    def __init__(
        self,
        compute: Compute,
        max_batch: int,
        max_queue: int,
        wait: float,
        threads: int = 1,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        """Make one that is idle.

        Args:
            compute: from a key and items to the result of each; runs in the threads.
            max_batch: items that are computed together; more only if one caller has.
            max_queue: items that may wait.
            wait: seconds after the first arrival.
            threads: batches that are computed at the same time.
            on_batch: is told the size of each batch.
        """
        self.max_batch = max_batch
        self.max_queue = max_queue
        self.wait = wait
        self.threads = threads
        self.waiting = 0  # items
        self._compute = compute
        self._on_batch = on_batch
        self._jobs: dict[_Job, None] = {}  # those that wait, in order
        self._computing = 0  # batches
        self._stirred = asyncio.Event()  # there may be something to begin
        self._work: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="perron-compute")

    def submit(
        self, key: Hashable, items: Sequence[Any], alone: bool = False
    ) -> _Future:
        """Return a future of the results for the items.

        Args:
            key: only what has the same key is computed together.
            items: in the order of the results.
            alone: not together with others at all.
        """
        if self.waiting + len(items) > self.max_queue:
            raise QueueFull
        loop = asyncio.get_running_loop()
        due = loop.time() + (self.wait if self._computing < self.threads else 0)
        job = _Job(key, items, alone, due, loop.create_future())
        self._jobs[job] = None
        self.waiting += len(items)
        job.future.add_done_callback(lambda _: self._leave(job))
        if self._computing < self.threads:
            self._stirred.set()
        if self._work is None:
            self._work = loop.create_task(self._run())
        return job.future

    async def run(self, compute: Callable[[], object]) -> None:
        """Run something else in a thread."""
        await asyncio.get_running_loop().run_in_executor(self._pool, compute)

    async def close(self) -> None:
        """Compute what waits still, then end the threads."""
        while self._work is not None:
            await self._work
        self._pool.shutdown()

    def _leave(self, job: _Job) -> None:
        if job in self._jobs:
            del self._jobs[job]
            self.waiting -= len(job.items)

    async def _run(self) -> None:
        """Give work to the threads until nothing is left."""
        loop = asyncio.get_running_loop()
        batches: set[asyncio.Task[None]] = set()  # so that none is thrown away
        while self._jobs or self._computing:
            self._stirred.clear()
            timer = None
            if self._jobs and self._computing < self.threads:
                patience = next(iter(self._jobs)).due - loop.time()
                if patience <= 0 or self.waiting >= self.max_batch:
                    self._computing += 1
                    batch = loop.create_task(self._one_batch(self._take()))
                    batches.add(batch)
                    batch.add_done_callback(batches.discard)
                    continue
                timer = loop.call_later(patience, self._stirred.set)
            await self._stirred.wait()
            if timer is not None:
                timer.cancel()
        self._work = None

    async def _one_batch(self, jobs: list[_Job]) -> None:
        items = [item for job in jobs for item in job.items]
        self._on_batch(len(items))
        outcome = await asyncio.get_running_loop().run_in_executor(
            self._pool, self._outcome, jobs[0].key, items
        )
        self._deliver(jobs, outcome)
        self._computing -= 1
        self._stirred.set()

    def _take(self) -> list[_Job]:
        """Take the oldest job out of the queue, and those that go with it.

        Not more than its share, if other threads are free too.
        """
        free = self.threads - self._computing + 1
        most = min(self.max_batch, max(_SMALL, ceil(self.waiting / free)))
        first = next(iter(self._jobs))
        jobs, size = [first], len(first.items)
        for job in self._jobs:
            if first.alone or size >= most:
                break
            if job is first or job.alone or job.key != first.key:
                continue
            if size + len(job.items) > most:
                break
            jobs.append(job)
            size += len(job.items)
        for job in jobs:
            self._leave(job)
        return jobs

    def _outcome(self, key: Hashable, items: list[Any]) -> Sequence[Any] | Exception:
        try:
            return self._compute(key, items)
        except StopIteration as error:  # no future takes it
            return RuntimeError(f"the computation raised {error!r}")
        except Exception as error:
            return error

    def _deliver(self, jobs: list[_Job], outcome: Sequence[Any] | Exception) -> None:
        begin = 0
        for job in jobs:
            end = begin + len(job.items)
            if job.future.done():
                pass  # its caller has gone
            elif isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(list(outcome[begin:end]))
            begin = end
