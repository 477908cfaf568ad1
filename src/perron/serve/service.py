"""Models of the server, and the queue of texts to compute."""

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request

from perron.pipeline import Pipeline
from perron.serve.batching import Batcher, QueueFull
from perron.serve.limits import Limits
from perron.serve.middleware import Metrics
from perron.serve.operations import OPERATIONS, Operation
from perron.serve.schemas import ApiError, Item, client_disconnected


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
        """Return the model with this name. None is the first model."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            message = f"Unknown model. The models are {', '.join(self.models)}."
            raise ApiError(404, "unknown_model", message, "model")
        return self.models[name]

    async def warm_up(self) -> None:
        """Run every operation of each model once, to compile the kernels."""
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
        """Add texts to the queue, in one job or, if not batched, one job per text."""
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
