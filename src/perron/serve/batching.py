"""Models of the server, and dynamic batching of concurrent requests to them."""

import asyncio
import math
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request

from perron.kernels import compile_in_background
from perron.pipeline import Pipeline
from perron.serve.limits import Limits
from perron.serve.middleware import Metrics
from perron.serve.operations import OPERATIONS, Operation
from perron.serve.schemas import ApiError, Item, client_disconnected

_MIN_SPLIT = 16  # smaller batches are not split across threads
Compute = Callable[[Any, list[Any]], Sequence[Any]]
_Future = asyncio.Future[list[Any]]


class QueueFull(Exception):
    """The queue has no space for the items."""


class _Job:
    """The items of one caller, and the future with their results.

    Args:
        key: Key of the batch.
        items: Items to compute.
        exclusive: Whether the job needs its own batch.
        due: Time at which to start the job, even if the batch is not full.
        future: Future with the results.
    """

    __slots__ = ("due", "exclusive", "future", "items", "key")

    def __init__(
        self,
        key: Hashable,
        items: Sequence[Any],
        exclusive: bool,
        due: float,
        future: _Future,
    ) -> None:
        self.key = key
        self.items = items
        self.exclusive = exclusive
        self.due = due
        self.future = future


class Batcher:
    """Queue that computes the items of concurrent callers in batches, in order.

    An idle thread waits a moment after the first item for other items to join the
    batch. While all threads are busy, items queue up, and the next free thread takes a
    batch from the queue.

    A job whose future is done, because the caller gave up, is removed from the queue
    and not computed.

    Args:
        compute: Function that maps a key and items to one result per item. It runs in
            the threads.
        max_batch: Maximum number of items per batch. Only the items of a single caller
            may exceed it.
        max_queue: Maximum number of items in the queue.
        wait: Seconds that an idle thread waits after the first item.
        threads: Number of batches computed in parallel.
        on_batch: Callback with the size of each batch.
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
        self.max_batch = max_batch
        self.max_queue = max_queue
        self.wait = wait
        self.threads = threads
        self.waiting = 0  # items in the queue
        self._compute = compute
        self._on_batch = on_batch
        self._jobs: dict[_Job, None] = {}  # ordered set of the jobs in the queue
        self._running = 0  # batches
        self._wake_up = asyncio.Event()  # a batch may be ready to start
        self._dispatcher: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="perron-compute")

    def submit(
        self, key: Hashable, items: Sequence[Any], exclusive: bool = False
    ) -> _Future:
        """Add items to the queue and return a future with their results.

        Args:
            key: Key of the batch. A batch never mixes keys.
            items: Items to compute. The results are in the same order.
            exclusive: Whether the items need their own batch.

        Raises:
            QueueFull: If the queue has no space for the items.
        """
        if self.waiting + len(items) > self.max_queue:
            raise QueueFull
        loop = asyncio.get_running_loop()
        due = loop.time() + (self.wait if self._running < self.threads else 0)
        job = _Job(key, items, exclusive, due, loop.create_future())
        self._jobs[job] = None
        self.waiting += len(items)
        job.future.add_done_callback(lambda _: self._remove(job))
        if self._running < self.threads:
            self._wake_up.set()
        if self._dispatcher is None:
            self._dispatcher = loop.create_task(self._dispatch())
        return job.future

    async def run(self, function: Callable[[], object]) -> None:
        """Run a function in a thread, outside the queue."""
        await asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def close(self) -> None:
        """Compute the items in the queue, then shut down the threads."""
        while self._dispatcher is not None:
            await self._dispatcher
        self._pool.shutdown()

    def _remove(self, job: _Job) -> None:
        if job in self._jobs:
            del self._jobs[job]
            self.waiting -= len(job.items)

    async def _dispatch(self) -> None:
        """Start batches until the queue is empty and all batches are done."""
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()  # the loop has only weak references
        while self._jobs or self._running:
            self._wake_up.clear()
            timer = None
            if self._jobs and self._running < self.threads:
                delay = next(iter(self._jobs)).due - loop.time()
                if delay <= 0 or self.waiting >= self.max_batch:
                    self._running += 1
                    task = loop.create_task(self._run_batch(self._next_batch()))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    continue
                timer = loop.call_later(delay, self._wake_up.set)
            await self._wake_up.wait()
            if timer is not None:
                timer.cancel()
        self._dispatcher = None

    async def _run_batch(self, jobs: list[_Job]) -> None:
        items = [item for job in jobs for item in job.items]
        self._on_batch(len(items))
        outcome = await asyncio.get_running_loop().run_in_executor(
            self._pool, self._compute_or_catch, jobs[0].key, items
        )
        self._deliver(jobs, outcome)
        self._running -= 1
        self._wake_up.set()

    def _next_batch(self) -> list[_Job]:
        """Remove the oldest job and those that fit in its batch from the queue.

        If several threads are free, the batch is limited to an equal part of the queue.
        """
        free = self.threads - self._running + 1
        max_size = min(self.max_batch, max(_MIN_SPLIT, math.ceil(self.waiting / free)))
        first = next(iter(self._jobs))
        jobs, size = [first], len(first.items)
        for job in self._jobs:
            if first.exclusive or size >= max_size:
                break
            if job is first or job.exclusive or job.key != first.key:
                continue
            if size + len(job.items) > max_size:
                break
            jobs.append(job)
            size += len(job.items)
        for job in jobs:
            self._remove(job)
        return jobs

    def _compute_or_catch(
        self, key: Hashable, items: list[Any]
    ) -> Sequence[Any] | Exception:
        try:
            return self._compute(key, items)
        except StopIteration as error:  # futures do not accept it
            return RuntimeError(f"the computation raised {error!r}")
        except Exception as error:
            return error

    def _deliver(self, jobs: list[_Job], outcome: Sequence[Any] | Exception) -> None:
        start = 0
        for job in jobs:
            end = start + len(job.items)
            if job.future.done():
                pass  # the caller gave up
            elif isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(list(outcome[start:end]))
            start = end


class BatchKey(NamedTuple):
    """Model and operation of a batch."""

    model: str
    operation: Operation


class Service:
    """Models by name, with one queue for all of them."""

    def __init__(
        self, models: Sequence[Pipeline], limits: Limits, threads: int = 1
    ) -> None:
        self.models = {pipeline.name: pipeline for pipeline in models}
        if not models or len(self.models) < len(models):
            names = [pipeline.name for pipeline in models]
            raise ValueError(
                f"models must be one or more models with unique names, got {names}."
            )
        self.limits = limits
        self.metrics = Metrics()
        self.stopping = False
        self.batcher = Batcher(
            self._compute,
            limits.max_batch,
            limits.max_queue,
            limits.batch_wait,
            threads,
            self.metrics.batches.observe,
        )
        self.metrics.set_queue_length(lambda: self.batcher.waiting)

    def find(self, name: str | None) -> Pipeline:
        """Return the model with this name. None selects the first model."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            message = f"Unknown model. The models are {', '.join(self.models)}."
            raise ApiError(404, "unknown_model", message, "model")
        return self.models[name]

    async def warm_up(self) -> None:
        """Run every operation of each model once, and start to compile its kernels."""
        compile_in_background()
        for name, pipeline in self.models.items():
            pair = "a" if pipeline.processor.kind == "pair" else None
            for operation in OPERATIONS:
                key = BatchKey(name, operation)
                items = [Item("a", pair if operation.accepts_pairs else None, 0)]
                await self.batcher.run(partial(self._compute, key, items))

    async def results(
        self, request: Request, key: BatchKey, items: list[Item], deadline: float
    ) -> list[Any]:
        """Return one result per item.

        Raises:
            ApiError: If the queue is full, the deadline passes, or the client
                disconnects.
        """
        jobs = self._submit(key, items)
        timer = asyncio.get_running_loop().call_at(
            deadline, _fail, jobs, self._timeout()
        )
        watcher = asyncio.ensure_future(_wait_for_disconnect(request))
        watcher.add_done_callback(lambda _: _fail(jobs, client_disconnected()))
        try:
            parts = await asyncio.gather(*jobs)
        finally:
            timer.cancel()
            watcher.cancel()
            for job in jobs:
                job.cancel()
        self.metrics.texts.labels(key.model, key.operation.name).inc(len(items))
        return [result for part in parts for result in part]

    def _submit(
        self, key: BatchKey, items: list[Item]
    ) -> "list[asyncio.Future[list[Any]]]":
        """Add texts to the queue, as one job or, without batching, as one job each."""
        exclusive = not key.operation.is_batched
        groups = [[item] for item in items] if exclusive else [items]
        jobs: list[asyncio.Future[list[Any]]] = []
        try:
            for group in groups:
                jobs.append(self.batcher.submit(key, group, exclusive))
        except QueueFull:
            for job in jobs:
                job.cancel()
            raise ApiError(
                429,
                "queue_full",
                f"{self.batcher.waiting} texts are already waiting. Try again in a "
                "moment.",
                headers={"retry-after": "1"},
            ) from None
        return jobs

    def _timeout(self) -> ApiError:
        return ApiError(
            503,
            "timeout",
            f"The request took longer than {self.limits.max_seconds:g} seconds. Try "
            "again later, or send fewer texts per request.",
            # An immediate retry would probably be slow again and delay other requests.
            headers={"retry-after": str(math.ceil(self.limits.max_seconds))},
        )

    def _compute(self, key: BatchKey, items: list[Item]) -> list[Any]:
        """Return one result per item. Runs in a thread of the batcher."""
        return key.operation.compute(self.models[key.model], items, self.limits)


def _fail(jobs: "list[asyncio.Future[list[Any]]]", error: ApiError) -> None:
    for job in jobs:
        if not job.done():
            job.set_exception(error)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
