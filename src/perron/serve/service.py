"""The served models, and the queue of texts that they compute."""

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
from perron.serve.schemas import ApiError, Item, gone

_SOON = {"retry-after": "1"}


class BatchKey(NamedTuple):
    """What texts of one batch have in common."""

    model: str
    operation: Operation


class Service:
    """The models by name, and one queue for all of them."""

    def __init__(
        self, models: Sequence[Pipeline], limits: Limits, threads: int = 1
    ) -> None:
        self.models = {pipeline.name: pipeline for pipeline in models}
        if not models or len(self.models) < len(models):
            names = [pipeline.name for pipeline in models]
            raise ValueError(
                f"models must be one or more with different names, got {names}"
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
        self.metrics.watch_queue(lambda: self.batcher.waiting)

    def find(self, name: str | None) -> Pipeline:
        """Return the model of this name. Defaults to the first model."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            message = f"this model is unknown. The models are {', '.join(self.models)}."
            raise ApiError(404, "unknown_model", message, "model")
        return self.models[name]

    async def warm_up(self) -> None:
        """Run every operation of each model, so that no client waits for compilers."""
        for name, pipeline in self.models.items():
            pair = "a" if pipeline.processor.kind == "pair" else None
            for operation in OPERATIONS:
                key = BatchKey(name, operation)
                items = [Item("a", pair if operation.takes_pairs else None, 0)]
                await self.batcher.run(partial(self._compute, key, items))

    async def results(
        self, request: Request, key: BatchKey, items: list[Item], deadline: float
    ) -> list[Any]:
        """Return one result per item, unless time is up or the client has gone."""
        jobs = self._submit(key, items)
        late = asyncio.get_running_loop().call_at(
            deadline, _give_up, jobs, self._late()
        )
        leaving = asyncio.ensure_future(_disconnected(request))
        leaving.add_done_callback(lambda _: _give_up(jobs, gone()))
        try:
            parts = await asyncio.gather(*jobs)
        finally:
            late.cancel()
            leaving.cancel()
            for job in jobs:
                job.cancel()
        self.metrics.texts.labels(key.model, key.operation.name).inc(len(items))
        return [result for part in parts for result in part]

    def _submit(
        self, key: BatchKey, items: list[Item]
    ) -> "list[asyncio.Future[list[Any]]]":
        """Put texts into the queue, in one job or in a job for each."""
        alone = not key.operation.is_batched
        groups = [[item] for item in items] if alone else [items]
        jobs: list[asyncio.Future[list[Any]]] = []
        try:
            for group in groups:
                jobs.append(self.batcher.submit(key, group, alone))
        except QueueFull:
            for job in jobs:
                job.cancel()
            raise ApiError(
                429,
                "queue_full",
                f"{self.batcher.waiting} texts are waiting already. Try again in a "
                "moment.",
                headers=_SOON,
            ) from None
        return jobs

    def _late(self) -> ApiError:
        return ApiError(
            503,
            "too_slow",
            f"the request took longer than {self.limits.max_seconds:g} seconds. Try "
            "again later, or send fewer texts at once.",
            # Not soon: a request that took too long once would delay others again.
            headers={"retry-after": str(math.ceil(self.limits.max_seconds))},
        )

    def _compute(self, key: BatchKey, items: list[Item]) -> list[Any]:
        """Return one result per item. Runs in a thread of the batcher."""
        return key.operation.compute(self.models[key.model], items, self.limits)


def _give_up(jobs: "list[asyncio.Future[list[Any]]]", reason: ApiError) -> None:
    for job in jobs:
        if not job.done():
            job.set_exception(reason)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
