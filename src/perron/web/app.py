"""The application: models in, HTTP out."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from perron import __version__
from perron.pipeline import Pipeline
from perron.web.answers import Refused, on_http, on_refused
from perron.web.guard import Guard, NoTraceback, SafeHeaders
from perron.web.limits import Limits
from perron.web.metrics import Measured
from perron.web.pages import add_pages
from perron.web.routes import StraightTo, create_routes
from perron.web.service import Service

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
