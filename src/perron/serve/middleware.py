"""Middleware: authentication, security headers, internal errors and metrics."""

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
_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_NO_STORE = (b"cache-control", b"no-store")
_NO_CACHE = (b"cache-control", b"no-cache")  # cached, but revalidated every time

_LOOPBACK_HOST = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")

log = logging.getLogger(__name__)


class SecurityHeadersMiddleware:
    """Middleware that adds security and cache headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        is_static = path == "/" or path.startswith("/static/")
        headers = [*_RAW_HEADERS, _NO_CACHE if is_static else _NO_STORE]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self.app(scope, receive, send_with_headers)


class ErrorMiddleware:
    """Middleware that turns uncaught exceptions into responses with status 500.

    It logs the type and the location of the exception, but not its message, which may
    quote a text.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def tracking_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, tracking_send)
        except Exception as error:
            if scope["type"] != "http":
                raise
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in\n%s", type(error).__name__, frames)
            if not started:
                internal_error = ApiError(
                    500,
                    "internal_error",
                    "Internal server error. See the server log.",
                )
                await internal_error.response()(scope, receive, send)


def requires_key(path: str) -> bool:
    """Return whether a path requires the API key, if one is set."""
    return path.startswith("/v1/") or path == "/metrics"


class AuthMiddleware:
    """Middleware that requires the API key or, if none is set, a loopback host.

    Checking the host prevents DNS rebinding, in which a web page points its own
    domain to 127.0.0.1 and uses the browser of a visitor to send requests to this
    server. Checking the origin prevents cross-site requests.

    Args:
        app: Next application.
        api_key: API key. None accepts only requests to localhost.
    """

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self.app = app
        self.api_key = None if api_key is None else api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._check(scope)):
            await error.response()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> ApiError | None:
        if self.api_key is None:
            return _check_host_and_origin(scope)
        if not requires_key(scope["path"]):
            return None
        scheme, _, token = _single_header(scope, b"authorization").partition(b" ")
        is_valid = hmac.compare_digest(token.strip(), self.api_key)
        if is_valid and scheme.lower() == b"bearer":
            return None
        code, problem = "missing_api_key", "missing"
        if token:
            code, problem = "invalid_api_key", "not valid"
        return ApiError(
            401,
            code,
            f"The API key is {problem}. Send it in the header Authorization: Bearer "
            "KEY.",
            headers={"www-authenticate": 'Bearer realm="perron"'},
        )


def _check_host_and_origin(scope: Scope) -> ApiError | None:
    host = _single_header(scope, b"host").lower()
    if not _LOOPBACK_HOST.fullmatch(host):
        return ApiError(
            403,
            "host_not_allowed",
            "Without an API key, this server accepts only requests to localhost, "
            "127.0.0.1 or [::1].",
            "host",
        )
    same_origin = (b"http://" + host, b"https://" + host)
    origins = [value for name, value in scope["headers"] if name == b"origin"]
    if any(origin.lower() not in same_origin for origin in origins):
        return ApiError(
            403,
            "origin_not_allowed",
            "Without an API key, this server does not accept requests from other "
            "websites.",
            "origin",
        )
    return None


def _single_header(scope: Scope, name: bytes) -> bytes:
    """Return the value of a header, or an empty value if it is missing or repeated."""
    values = [value for header, value in scope["headers"] if header == name]
    return values[0] if len(values) == 1 else b""


_SECOND_BUCKETS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
)
_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Prometheus metrics of an application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "perron_requests",
            "Requests by path and status. 499 means that the client disconnected.",
            ["path", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "perron_request_seconds",
            "Time from the headers of the request to the end of the response.",
            ["path"],
            buckets=_SECOND_BUCKETS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "perron_batch_texts",
            "Texts per batch.",
            buckets=_SIZE_BUCKETS,
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
            "Texts waiting to be computed.",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def set_queue_length(self, length: Callable[[], int]) -> None:
        """Set the function that returns the length of the queue."""
        self._queue.set_function(length)

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Middleware that counts and times requests.

    Args:
        app: Next application.
        metrics: Metrics to update.
        paths: Paths with their own label. All other paths share a label, so requests
            for random paths cannot fill the memory.
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
        start = time.perf_counter()
        status = 500

        async def tracking_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, tracking_send)
        finally:
            path = self._label(scope["path"])
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - start)

    def _label(self, path: str) -> str:
        if path in self.paths:
            return path
        return "/static/*" if path.startswith("/static/") else "other"
