"""Middleware: API key, safe headers, errors without tracebacks, and metrics."""

import hmac
import logging
import re
import time
import traceback
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

from perron.serve.schemas import ApiError

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_RAW = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_NO_STORE = (b"cache-control", b"no-store")
_NO_CACHE = (b"cache-control", b"no-cache")  # kept, but asked for anew each time

_HERE = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")

log = logging.getLogger(__name__)


class SecurityHeadersMiddleware:
    """Adds the headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        is_page = path == "/" or path.startswith("/static/")
        added = [*_RAW, _NO_CACHE if is_page else _NO_STORE]

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self.app(scope, receive, with_headers)


class ErrorMiddleware:
    """Answers 500 for what went wrong; the log has where, but never with what text."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            if scope["type"] != "http":
                raise
            # Not the message, which may quote what was sent.
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in\n%s", type(error).__name__, frames)
            if not started:
                failed = ApiError(
                    500, "internal_error", "the server failed. Its log says where."
                )
                await failed.answer()(scope, receive, send)


def needs_key(path: str) -> bool:
    """Return whether a path is for clients with the key only, if there is a key."""
    return path.startswith("/v1/") or path == "/metrics"


class AuthMiddleware:
    """Lets in who has the key; without a key, only who comes from this machine.

    A web page somewhere may have its name point to 127.0.0.1 (DNS rebinding), so that a
    browser here asks this server on its behalf. The host that it asks for gives it
    away, and so does the origin of a page that asks across sites.
    """

    def __init__(self, app: ASGIApp, key: str | None) -> None:
        self.app = app
        self.key = None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := self._problem(scope)):
            await refused.answer()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _problem(self, scope: Scope) -> ApiError | None:
        if self.key is None:
            return _foreign(scope)
        if not needs_key(scope["path"]):
            return None
        scheme, _, given = _one(scope, b"authorization").partition(b" ")
        right = hmac.compare_digest(given.strip(), self.key)
        if right and scheme.lower() == b"bearer":
            return None
        return ApiError(
            401,
            "no_key" if not given else "wrong_key",
            "this server requires its key. Send the header Authorization: Bearer KEY.",
            headers={"www-authenticate": 'Bearer realm="perron"'},
        )


def _foreign(scope: Scope) -> ApiError | None:
    host = _one(scope, b"host").lower()
    if not _HERE.fullmatch(host):
        return ApiError(
            403,
            "foreign_host",
            "without a key this server answers localhost, 127.0.0.1 and [::1] only.",
            "host",
        )
    origins = [value for name, value in scope["headers"] if name == b"origin"]
    if any(origin.lower() not in _same(host) for origin in origins):
        return ApiError(
            403,
            "foreign_origin",
            "without a key this server does not answer pages of other sites.",
            "origin",
        )
    return None


def _same(host: bytes) -> tuple[bytes, bytes]:
    return b"http://" + host, b"https://" + host


def _one(scope: Scope, wanted: bytes) -> bytes:
    """Return the value of a header that is there exactly once, else nothing."""
    values = [value for name, value in scope["headers"] if name == wanted]
    return values[0] if len(values) == 1 else b""


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


class MetricsMiddleware:
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
