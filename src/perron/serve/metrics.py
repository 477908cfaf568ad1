"""Metrics of the server, for Prometheus."""

import time
from collections.abc import Callable, Collection

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "perron_requests",
            "Requests by path and status; 499 is a client that went away.",
            ["path", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "perron_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "perron_batch_texts",
            "Texts that were pooled together.",
            buckets=_SIZES,
            registry=self.registry,
        )
        self.texts = Counter(
            "perron_texts",
            "Texts by model and operation.",
            ["model", "operation"],
            registry=self.registry,
        )
        self._queue = Gauge(
            "perron_queue_texts",
            "Texts that wait to be computed.",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def watch_queue(self, length: Callable[[], int]) -> None:
        """Ask for the length of the queue whenever the metrics are read."""
        self._queue.set_function(length)

    def text(self) -> bytes:
        """Return the metrics as Prometheus reads them."""
        return generate_latest(self.registry)


class Measured:
    """Middleware that counts and times requests.

    Args:
        app: Application that answers them.
        metrics: Metrics to update.
        paths: Paths that are counted by name. Labels have no other values, so that
            requests for random paths cannot fill the memory.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, paths: Collection[str] = ()
    ) -> None:
        self.app = app
        self.metrics = metrics
        self.paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin = time.perf_counter()
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            path = self._label(scope["path"])
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - begin)

    def _label(self, path: str) -> str:
        if path in self.paths:
            return path
        return "/static/*" if path.startswith("/static/") else "other"
