"""The web application: models in, HTTP out."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

import perron.explain
from perron.pipeline import Pipeline
from perron.serve.limits import Limits
from perron.serve.metrics import Measured
from perron.serve.openapi import openapi_document
from perron.serve.responses import Refused, json_answer, on_http, on_refused
from perron.serve.routes import create_routes
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
        exception_handlers={Refused: on_refused, HTTPException: on_http},
        middleware=[  # the first sees a request first, and its answer last
            Middleware(SafeHeaders),
            Middleware(Measured, metrics=service.metrics, paths=paths),
            Middleware(NoTraceback),
            Middleware(Guard, key=key),
        ],
    )
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.openapi = document
    return app
