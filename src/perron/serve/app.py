"""The web application, and the server that runs it."""

import errno
import ipaddress
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

import perron.explain
from perron.errors import PerronError, SettingsError
from perron.pipeline import Pipeline
from perron.serve.limits import Limits
from perron.serve.middleware import (
    HEADERS,
    AuthMiddleware,
    ErrorMiddleware,
    MetricsMiddleware,
    SecurityHeadersMiddleware,
)
from perron.serve.routes import create_routes, openapi_document
from perron.serve.schemas import ApiError, json_answer, on_api_error, on_http
from perron.serve.service import Service

PAGES = Path(__file__).parent / "static"
GRAPH = Path(perron.explain.__file__).parent / "static"

# Not the system's table, in which .js may be anything; what is not here is not served.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


class Files(StaticFiles):
    """A folder; links that lead out of it are not followed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.config_checked = True  # a folder that is not there has no files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Whole files only, and so no errors about ranges.
        headers = [pair for pair in scope["headers"] if pair[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, *rest: Any
    ) -> Response:
        kind = _TYPES.get(Path(full_path).suffix)
        if kind is None:
            raise HTTPException(404)
        answer = super().file_response(full_path, stat_result, scope, *rest)
        answer.headers["content-type"] = kind
        answer.headers["accept-ranges"] = "none"
        return answer


def create_pages() -> list[BaseRoute]:
    """Return the viewer, at the root, and its files."""
    files = Files(PAGES)

    async def index(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    return [
        Route("/", index),
        Mount("/static/graph", Files(GRAPH)),
        Mount("/static", files),
    ]


def create_app(
    models: Sequence[Pipeline],
    limits: Limits | None = None,
    key: str | None = None,
    threads: int = 1,
) -> Starlette:
    """Return an ASGI application that serves the models.

    Its OpenAPI document is at ``/openapi.json`` and in ``app.state.openapi``.

    Args:
        models: One or more models with different names. The first one answers requests
            that name no model.
        limits: Limits of requests.
        key: Key that clients must send. Without a key, only this machine is answered.
        threads: Number of batches that are computed at the same time, each with as many
            threads as torch is set to use.
    """
    service = Service(models, limits or Limits(), threads)
    api = create_routes(service)
    document = openapi_document(api, key is not None)

    async def openapi(request: Request) -> Response:
        return json_answer(document)

    routes = [*api, Route("/openapi.json", openapi), *create_pages()]
    paths = {route.path for route in routes if isinstance(route, Route)}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.warm_up()
        yield
        service.stopping = True
        await service.batcher.close()

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={ApiError: on_api_error, HTTPException: on_http},
        middleware=[  # the first sees a request first, and its answer last
            Middleware(SecurityHeadersMiddleware),
            Middleware(MetricsMiddleware, metrics=service.metrics, paths=paths),
            Middleware(ErrorMiddleware),
            Middleware(AuthMiddleware, key=key),
        ],
    )
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.openapi = document
    return app


KEY = "PERRON_API_KEY"


def check_key(host: str, key: str | None) -> None:
    """Refuse keys that cannot be sent, and to be reached from elsewhere without one."""
    if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
        raise SettingsError(f"{KEY} must be printable ASCII without blanks")
    if key is None and not is_loopback(host):
        raise SettingsError(
            f"{host} can be reached from other machines, and that needs a key: set "
            f"{KEY}, for example to what `openssl rand -hex 32` prints, and let "
            "clients send it; or leave out --host"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what listens at the host."""
    addresses = [str(address[0]) for *_, address in _resolved(host, 0)]
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that has the port; who connects already waits."""
    family, kind, protocol, _, address = _resolved(host, port)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise PerronError(
                f"port {port} of {host} is taken: choose another one with --port, or "
                "stop what listens there"
            ) from error
        raise PerronError(f"cannot listen at {host}:{port}: {error}") from error
    return bound


def _resolved(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"--host {host}: no such host ({error})") from error


def address_of(bound: socket.socket) -> str:
    """Return where a browser finds what listens."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Starlette, bound: socket.socket, on_start: Callable[[], None]) -> None:
    """Answer until SIGTERM or SIGINT; then finish what is under way.

    Args:
        app: of `create_app`.
        bound: of `listen`.
        on_start: called as soon as requests are answered.
    """
    service = app.state.service
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # paths that are typed wrong may hold texts
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(service.limits.max_seconds) + 5,
    )

    def on_stop() -> None:
        service.stopping = True

    _Server(config, on_start, on_stop).run([bound])


class _Server(uvicorn.Server):
    """Tells when it starts and stops, and does not die of the signal that stops it."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_start: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.on_start = on_start
        self.on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A second Ctrl+C does not wait for anything.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self.on_stop()


class _Protocol(HttpToolsProtocol):
    """Gives what is no HTTP the same kind of answer as everything else."""

    def send_400_response(self, msg: str) -> None:
        refused = ApiError(400, "no_http", "this is not a valid HTTP request.")
        answer = refused.answer()
        headers = {**answer.headers, **HEADERS, "cache-control": "no-store"}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        head = "".join([*lines, "connection: close\r\n\r\n"]).encode()
        self.transport.write(STATUS_LINE[400] + head + bytes(answer.body))
        self.transport.close()
