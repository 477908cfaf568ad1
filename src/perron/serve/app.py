"""The web application: models in, HTTP out."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

import perron.explain
from perron import __version__
from perron.pipeline import Pipeline
from perron.serve.limits import Limits
from perron.serve.metrics import Measured
from perron.serve.responses import Refused, on_http, on_refused
from perron.serve.routes import StraightTo, create_routes
from perron.serve.security import Guard, NoTraceback, SafeHeaders
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


def add_pages(app: FastAPI) -> None:
    """Add the viewer, at the root, and its files."""
    files = Files(PAGES)
    app.mount("/static/graph", Files(GRAPH))
    app.mount("/static", files)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)


# Spans and logs have the messages of errors, and these may have texts.
_NO_TELEMETRY: Any = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}


def create_app(
    models: Sequence[Pipeline],
    limits: Limits | None = None,
    key: str | None = None,
    threads: int = 1,
) -> FastAPI:
    """Return an ASGI application that serves the models.

    Args:
        models: one or more, of different names; the first answers where none is named.
        limits: how much may be asked.
        key: who asks must know it; without one, only this machine is answered.
        threads: batches that are computed at the same time, each with as many threads
            as torch is told to use.
    """
    service = Service(models, limits or Limits(), threads)
    routes = create_routes(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.warm_up()
        yield
        service.stopping = True
        await service.batcher.close()

    app = FastAPI(
        title="Perron",
        version=__version__,
        description="Text classification by pooling words with eigenvector centrality.",
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        lifespan=lifespan,
        exception_handlers={Refused: on_refused, HTTPException: on_http},
        middleware=[  # the first sees a request first, and its answer last
            Middleware(SafeHeaders),
            Middleware(Measured, metrics=service.metrics),
            Middleware(NoTraceback),
            Middleware(Guard, key=key),
            Middleware(StraightTo, routes=routes),
        ],
    )
    app.state.service = service
    app.include_router(routes)
    add_pages(app)
    if key is not None:
        _tell_of_key(app.openapi())
    return app


def _tell_of_key(document: dict[str, Any]) -> None:
    """Say in the OpenAPI document which paths want the key."""
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    document["components"]["securitySchemes"] = schemes
    for path, methods in document["paths"].items():
        if path != "/healthz":
            for method in methods.values():
                method["security"] = [{"key": []}]
