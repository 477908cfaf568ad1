"""The paths of the API."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from perron import __version__
from perron.pipeline import Pipeline
from perron.serve import schemas
from perron.serve.limits import read_body
from perron.serve.responses import Refused, json_answer, json_text
from perron.serve.schemas import EncodeRequest, TextsRequest, parse
from perron.serve.service import Operation, Service, Work

_Asked = tuple[Pipeline, list[Any]]
_ERRORS = {
    401: "the key is missing or wrong",
    403: "asked by a page of another site, or for another host",
    404: "no model of this name",
    408: "the request did not arrive in time",
    413: "too many bytes",
    415: "not application/json",
    422: "no JSON of this form, or more than the limits allow",
    429: "too many texts wait already",
    500: "the server failed",
    503: "not done in time, or the server is stopping",
}


def create_routes(service: Service) -> APIRouter:
    """Return the paths that answer with what the service computes."""
    router = APIRouter()
    limits = service.limits

    async def asked(request: Request, kind: type[Any], operation: Operation) -> _Asked:
        """Read, check and compute what a request asks for."""
        if service.stopping:
            raise _stopping()
        if not _is_json(request):
            raise Refused(
                415, "no_json", "send JSON, with Content-Type: application/json"
            )
        deadline = asyncio.get_running_loop().time() + limits.max_seconds
        sent = parse(kind, await read_body(request, limits, deadline))
        pipeline = service.find(sent.model)
        pairs = getattr(sent, "pairs", None)
        if operation != "encode":
            _check_pairs(pipeline, sent.texts, pairs)
        most = (limits.max_texts, limits.max_words)
        if operation == "explain":
            most = (limits.max_explained_texts, limits.max_explained_words)
        limits.check("texts", sent.texts, *most)
        limits.check("pairs", pairs or (), *most)
        work = Work(pipeline.name, operation)
        found = await service.results(request, work, sent.texts, pairs, deadline)
        return pipeline, found

    @router.post("/v1/predict", **_described(TextsRequest, schemas.PredictAnswer))
    async def predict(request: Request) -> Response:
        """Classify texts."""
        pipeline, rows = await asked(request, TextsRequest, "predict")
        labels = pipeline.labels
        predictions = [
            {
                "label": labels[row.index(max(row))],
                "probabilities": dict(zip(labels, row, strict=True)),
            }
            for row in rows
        ]
        return json_answer({"model": pipeline.name, "predictions": predictions})

    @router.post("/v1/encode", **_described(EncodeRequest, schemas.EncodeAnswer))
    async def encode(request: Request) -> Response:
        """Return the pooled vector of each text."""
        pipeline, rows = await asked(request, EncodeRequest, "encode")
        return json_answer({"model": pipeline.name, "vectors": rows})

    @router.post("/v1/explain", **_described(TextsRequest, schemas.ExplainAnswer))
    async def explain(request: Request) -> Response:
        """Classify texts and return their words, weights and edges."""
        pipeline, records = await asked(request, TextsRequest, "explain")
        name = json.dumps(pipeline.name)
        return json_text(f'{{"model": {name}, "records": [{", ".join(records)}]}}')

    @router.get(
        "/v1/models", response_model=None, responses=_answers(schemas.ModelsAnswer)
    )
    async def models() -> Response:
        """List the models and the limits."""
        answer = schemas.ModelsAnswer(
            models=[_entry(pipeline) for pipeline in service.models.values()],
            limits=limits,
            version=__version__,
        )
        return json_text(answer.model_dump_json())

    @router.get(
        "/healthz",
        response_model=None,
        responses={200: {"model": schemas.Health}, 503: {"model": schemas.Health}},
    )
    async def health() -> Response:
        """Tell whether the server takes requests."""
        if service.stopping:
            return json_answer({"status": "stopping"}, 503)
        return json_answer({"status": "ok"})

    @router.get(
        "/metrics",
        response_model=None,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Tell Prometheus what the server has done."""
        return Response(
            service.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST}
        )

    return router


class StraightTo:
    """Takes the paths that compute past FastAPI's router.

    The way through it takes longer than all that is done here for a short text.
    """

    def __init__(self, app: ASGIApp, routes: APIRouter) -> None:
        self.app = app
        self.endpoints: dict[str, Callable[[Request], Awaitable[Response]]] = {
            route.path: route.endpoint
            for route in routes.routes
            if isinstance(route, APIRoute) and "POST" in (route.methods or ())
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = None
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = self.endpoints.get(scope["path"])
        if endpoint is None:
            await self.app(scope, receive, send)
            return
        try:
            answer = await endpoint(Request(scope, receive))
        except Refused as refused:
            answer = refused.answer()
        await answer(scope, receive, send)


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "application/json"


def _stopping() -> Refused:
    headers = {"retry-after": "1", "connection": "close"}
    message = "this server is stopping: ask another one, or try again in a moment"
    return Refused(503, "stopping", message, headers=headers)


def _check_pairs(pipeline: Pipeline, texts: list[str], pairs: list[str] | None) -> None:
    is_pair = pipeline.word_ids.kind == "pair"
    if is_pair and pairs is None:
        message = f"{pipeline.name} is for pairs: send their second texts as pairs"
        raise Refused(422, "pairs_missing", message, "pairs")
    if not is_pair and pairs is not None:
        message = f"{pipeline.name} is for single texts: leave out the pairs"
        raise Refused(422, "pairs_not_wanted", message, "pairs")
    if pairs is not None and len(pairs) != len(texts):
        message = f"{len(texts)} texts, but {len(pairs)} pairs: send as many of each"
        raise Refused(422, "pairs_not_as_many", message, "pairs")


def _entry(pipeline: Pipeline) -> schemas.ModelEntry:
    config = pipeline.model.config
    settings = config.settings
    return schemas.ModelEntry(
        name=pipeline.name,
        kind=settings.kind,
        encoder=settings.encoder.name,
        aggregator=settings.aggregator.name,
        labels=list(config.labels),
        max_words=config.max_words,
        max_sentences=config.max_sentences,
    )


def _described(request: type[Any], answer: type[Any]) -> dict[str, Any]:
    """Describe a path for OpenAPI; its bodies are read and written by hand."""
    body = {"application/json": {"schema": request.model_json_schema()}}
    return {
        "response_model": None,
        "responses": _answers(answer),
        "openapi_extra": {"requestBody": {"required": True, "content": body}},
    }


def _answers(answer: type[Any]) -> dict[int | str, dict[str, Any]]:
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": schemas.ErrorAnswer, "description": meaning}
        for status, meaning in _ERRORS.items()
    }
    return {200: {"model": answer}, **errors}
