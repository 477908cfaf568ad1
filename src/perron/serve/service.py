"""The models that are served, and what is computed with them."""

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from starlette.requests import Request

from perron.pipeline import Pipeline
from perron.serve.batching import Batcher, QueueFull
from perron.serve.limits import Limits, too_many_words
from perron.serve.metrics import Metrics
from perron.serve.responses import Refused, gone

Operation = Literal["predict", "encode", "explain"]
_OPERATIONS: tuple[Operation, ...] = ("predict", "encode", "explain")
_SOON = {"retry-after": "1"}
_MOST_PAIRS = 2**24  # of words that are scored at once: some hundred megabytes


class Work(NamedTuple):
    """What is computed together: texts for one model and one operation."""

    model: str
    operation: Operation


class Item(NamedTuple):
    """One text, or one pair, and where in the request it was."""

    text: str
    pair: str | None
    place: int


class Service:
    """Models by name, one queue for all of them, and whether it is stopping."""

    def __init__(
        self, models: Sequence[Pipeline], limits: Limits, threads: int = 1
    ) -> None:
        self.models = {pipeline.name: pipeline for pipeline in models}
        if not models or len(self.models) < len(models):
            raise ValueError("models to serve, one or more, must differ in name")
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
        """Return the model of this name; the first, if there is no name."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            known = ", ".join(self.models)
            raise Refused(
                404,
                "unknown_model",
                f"no model of this name; there are {known}",
                "model",
            )
        return self.models[name]

    async def warm_up(self) -> None:
        """Compute something with each model, so that no client waits for compilers."""
        for name in self.models:
            pair = "a" if self.models[name].word_ids.kind == "pair" else None
            items = [Item("a", pair, 0)]
            for operation in _OPERATIONS:
                work = Work(name, operation)
                await self.batcher.run(partial(self._compute, work, items))

    async def results(
        self,
        request: Request,
        work: Work,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        deadline: float,
    ) -> list[Any]:
        """Return the result for each text, unless time is up or the client gone."""
        items = [
            Item(text, None if pairs is None else pairs[place], place)
            for place, text in enumerate(texts)
        ]
        jobs = self._submit(work, items)
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
        self.metrics.texts.labels(*work).inc(len(texts))
        return [result for part in parts for result in part]

    def _submit(
        self, work: Work, items: list[Item]
    ) -> "list[asyncio.Future[list[Any]]]":
        """Put texts into the queue: to explain one by one, else all together."""
        alone = work.operation == "explain"
        groups = [[item] for item in items] if alone else [items]
        jobs: list[asyncio.Future[list[Any]]] = []
        try:
            for group in groups:
                jobs.append(self.batcher.submit(work, group, alone))
        except QueueFull:
            for job in jobs:
                job.cancel()
            raise Refused(
                429,
                "queue_full",
                f"{self.batcher.waiting} texts wait already: try again in a moment",
                headers=_SOON,
            ) from None
        return jobs

    def _late(self) -> Refused:
        return Refused(
            503,
            "too_slow",
            f"not done within {self.limits.max_seconds:g} seconds, which is the limit: "
            "try again later, or send less at once",
            # Not soon: what took too long once would only take the time of others.
            headers={"retry-after": str(math.ceil(self.limits.max_seconds))},
        )

    def _compute(self, work: Work, items: list[Item]) -> list[Any]:
        """Return the results for the items; runs in the batcher's thread."""
        pipeline = self.models[work.model]
        if work.operation == "explain":
            return [self._explained(pipeline, item) for item in items]
        texts = [item.text for item in items]
        size = batch_size(pipeline)
        if work.operation == "encode":
            return pipeline.encode(texts, size).tolist()
        pairs = [item.pair or "" for item in items]
        is_pair = pipeline.word_ids.kind == "pair"
        rows = pipeline.predict_proba(texts, pairs if is_pair else None, size)
        return rows.tolist()

    def _explained(self, pipeline: Pipeline, item: Item) -> str:
        # Marks are words too, so that blanks do not tell how many there are.
        limit = self.limits.max_explained_words
        found = pipeline.word_ids.find_words(item.text, item.pair)
        if any(len(part.words) > limit for part in found.parts):
            raise too_many_words(limit, f"texts.{item.place}")
        record = pipeline.explain(item.text, item.pair)
        if not all(map(math.isfinite, record.probabilities.values())):
            raise FloatingPointError("the model gives no finite numbers")
        return record.to_json()


def batch_size(pipeline: Pipeline) -> int:
    """Return how many of the longest texts fit into memory together."""
    config = pipeline.model.config
    pairs = config.max_words**2
    if config.settings.kind == "document":
        pairs = config.max_sentences * pairs + config.max_sentences**2
    return max(1, min(64, _MOST_PAIRS // pairs))


def _give_up(jobs: "list[asyncio.Future[list[Any]]]", reason: Refused) -> None:
    for job in jobs:
        if not job.done():
            job.set_exception(reason)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
