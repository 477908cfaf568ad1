"""ASGI application, and the server that runs it."""

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
from perron.serve.batching import Service
from perron.serve.limits import Limits
from perron.serve.middleware import (
    HEADERS,
    AuthMiddleware,
    ErrorMiddleware,
    MetricsMiddleware,
    SecurityHeadersMiddleware,
)
from perron.serve.routes import create_routes, openapi_document
from perron.serve.schemas import (
    ApiError,
    json_response,
    on_api_error,
    on_http_exception,
)

VIEWER_FOLDER = Path(__file__).parent / "static"
GRAPH_FOLDER = Path(perron.explain.__file__).parent / "static"

# `mimetypes` depends on the system and may be wrong, even for .js. Other suffixes are
# not served.
_MEDIA_TYPES = {
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


class ViewerFiles(StaticFiles):
    """Static files of the viewer. Symlinks that leave the folder are not followed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.config_checked = True  # a missing folder is 404, not an error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Ignore range requests, whose errors have a different format.
        headers = [pair for pair in scope["headers"] if pair[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, *args: Any
    ) -> Response:
        media_type = _MEDIA_TYPES.get(Path(full_path).suffix)
        if media_type is None:
            raise HTTPException(404)
        response = super().file_response(full_path, stat_result, scope, *args)
        response.headers["content-type"] = media_type
        response.headers["accept-ranges"] = "none"
        return response


def viewer_routes() -> list[BaseRoute]:
    """Return the routes of the viewer, at the root, and of its files."""
    files = ViewerFiles(VIEWER_FOLDER)

    async def index(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    return [
        Route("/", index),
        Mount("/static/graph", ViewerFiles(GRAPH_FOLDER)),
        Mount("/static", files),
    ]


def create_app(
    models: Sequence[Pipeline],
    limits: Limits | None = None,
    api_key: str | None = None,
    threads: int = 1,
) -> Starlette:
    """Create an ASGI application that serves the models.

    The OpenAPI document is served at ``/openapi.json`` and available as
    ``app.state.openapi``.

    Args:
        models: Models with unique names. The first is the default model.
        limits: Limits on requests. Defaults to ``Limits()``.
        api_key: API key that clients must send. Without a key, only requests to
            localhost are accepted.
        threads: Number of batches computed in parallel. Each of them also uses the
            threads of torch; see ``torch.set_num_threads``.
    """
    service = Service(models, limits or Limits(), threads)
    api_routes = create_routes(service)
    document = openapi_document(api_routes, api_key is not None)

    async def openapi(request: Request) -> Response:
        return json_response(document)

    routes = [*api_routes, Route("/openapi.json", openapi), *viewer_routes()]
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
        exception_handlers={ApiError: on_api_error, HTTPException: on_http_exception},
        middleware=[  # outermost first
            Middleware(SecurityHeadersMiddleware),
            Middleware(MetricsMiddleware, metrics=service.metrics, paths=paths),
            Middleware(ErrorMiddleware),
            Middleware(AuthMiddleware, api_key=api_key),
        ],
    )
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.openapi = document
    return app


API_KEY_VARIABLE = "PERRON_API_KEY"


def check_api_key(host: str, api_key: str | None) -> None:
    """Check that the key fits in a header, and is set if the host is not loopback."""
    if api_key is not None and not (
        api_key.isascii() and api_key.isprintable() and " " not in api_key
    ):
        raise SettingsError(
            f"{API_KEY_VARIABLE} must be printable ASCII without spaces."
        )
    if api_key is None and not is_loopback(host):
        raise SettingsError(
            f"--host {host} accepts requests from other machines and requires an API "
            f"key. Set {API_KEY_VARIABLE}, for example to the output of `openssl rand "
            "-hex 32`, or remove --host."
        )


def is_loopback(host: str) -> bool:
    """Return whether the host is reachable only from this machine."""
    addresses = [str(address[0]) for *_, address in _resolve(host, 0)]
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Connections queue up until the server starts."""
    family, kind, protocol, _, address = _resolve(host, port)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows, two servers could share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen()
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PerronError(
                f"port {port} on {host} is already in use. Choose another one with "
                "--port, or stop the program that uses it."
            ) from error
        raise PerronError(f"cannot listen on {host}:{port}: {error}.") from error
    return sock


def _resolve(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"--host {host} cannot be resolved: {error}.") from error


def server_url(sock: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Starlette, sock: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve requests until SIGTERM or SIGINT, then finish the requests in progress.

    Args:
        app: Application from `create_app`.
        sock: Socket from `listen`.
        on_start: Callback for when the server accepts requests.
    """
    service = app.state.service
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # mistyped URLs may contain texts
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(service.limits.max_seconds) + 5,
    )

    def on_stop() -> None:
        service.stopping = True

    _Server(config, on_start, on_stop).run([sock])


class _Server(uvicorn.Server):
    """Server with callbacks that exits normally after SIGTERM and SIGINT.

    uvicorn itself raises the signal again after the shutdown.
    """

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
        # A second Ctrl+C stops immediately.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self.on_stop()


class _Protocol(HttpToolsProtocol):
    """HTTP protocol that reports invalid HTTP in the format of all other errors."""

    def send_400_response(self, msg: str) -> None:
        error = ApiError(400, "bad_request", "Not a valid HTTP request.")
        response = error.response()
        headers = {**response.headers, **HEADERS, "cache-control": "no-store"}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        head = "".join([*lines, "connection: close\r\n\r\n"]).encode()
        self.transport.write(STATUS_LINE[400] + head + bytes(response.body))
        self.transport.close()
