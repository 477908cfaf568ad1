"""The paths of the API."""

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from perron import __version__
from perron.pipeline import Pipeline
from perron.serve import schemas
from perron.serve.limits import Limits
from perron.serve.openapi import Answer, ApiRoute
from perron.serve.operations import OPERATIONS, Operation
from perron.serve.responses import Refused, gone, json_answer, json_text
from perron.serve.service import BatchKey, Service

# A body that does not state its length is read up to this multiple of the limit: a
# client that is still sending when its connection is closed does not see the answer.
_PATIENCE = 4
_ANY_REQUEST = (403, 500)
_WITH_KEY = (401, *_ANY_REQUEST)
_WITH_BODY = (404, 408, 413, 415, 422, 429, 503, *_WITH_KEY)


def create_routes(service: Service) -> list[ApiRoute]:
    """Return the paths of the API, those that compute first."""
    routes = [_operation_route(service, operation) for operation in OPERATIONS]

    async def models(request: Request) -> Response:
        """List the models and the limits."""
        answer = schemas.ModelsAnswer(
            models=[_entry(pipeline) for pipeline in service.models.values()],
            limits=service.limits,
            version=__version__,
        )
        return json_text(answer.model_dump_json())

    async def health(request: Request) -> Response:
        """Report whether the server accepts requests."""
        if service.stopping:
            return json_answer({"status": "stopping"}, 503)
        return json_answer({"status": "ok"})

    async def metrics(request: Request) -> Response:
        """Report metrics for Prometheus."""
        return Response(
            service.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST}
        )

    listed = Answer(schemas.ModelsAnswer, "The models and the limits.")
    healthy = Answer(schemas.Health, "The server accepts requests.")
    stopping = Answer(schemas.Health, "The server is stopping.")
    measured = Answer(None, "Metrics in the text format of Prometheus.")
    return [
        *routes,
        ApiRoute("GET", "/v1/models", models, {200: listed}, _WITH_KEY),
        ApiRoute(
            "GET", "/healthz", health, {200: healthy, 503: stopping}, _ANY_REQUEST
        ),
        ApiRoute("GET", "/metrics", metrics, {200: measured}, _WITH_KEY),
    ]


def _operation_route(service: Service, operation: Operation) -> ApiRoute:
    limits = service.limits

    async def endpoint(request: Request) -> Response:
        if service.stopping:
            raise _stopping()
        if not _is_json(request):
            raise Refused(
                415,
                "no_json",
                "the body must be JSON. Send Content-Type: application/json.",
            )
        deadline = asyncio.get_running_loop().time() + limits.max_seconds
        body = await _read_body(request, limits, deadline)
        sent = schemas.parse(operation.requests, body)
        pipeline = service.find(sent.model)
        items = operation.check(sent, pipeline, limits)
        key = BatchKey(pipeline.name, operation)
        results = await service.results(request, key, items, deadline)
        return operation.respond(pipeline, results)

    description = operation.answer.__doc__ or ""
    return ApiRoute(
        "POST",
        f"/v1/{operation.name}",
        endpoint,
        {200: Answer(operation.answer, description)},
        _WITH_BODY,
        requests=operation.requests,
        name=operation.name,
        summary=operation.__doc__,
    )


async def _read_body(request: Request, limits: Limits, deadline: float) -> bytes:
    """Return the body, but never keep more of it than is allowed."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.max_body:
        raise _too_large(limits)
    parts, size = [], 0
    try:
        async with asyncio.timeout_at(deadline):
            async for part in request.stream():
                size += len(part)
                if size <= limits.max_body:
                    parts.append(part)
                elif size > _PATIENCE * limits.max_body:
                    break
    except ClientDisconnect:
        raise gone() from None
    except TimeoutError:
        raise Refused(
            408,
            "body_too_slow",
            f"the request did not arrive within {limits.max_seconds:g} seconds.",
            headers={"connection": "close"},
        ) from None
    if size > limits.max_body:
        raise _too_large(limits)
    return b"".join(parts)


def _too_large(limits: Limits) -> Refused:
    message = (
        f"a request must have at most {limits.max_body} bytes. Send fewer texts at "
        "once."
    )
    return Refused(413, "body_too_large", message)


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "application/json"


def _stopping() -> Refused:
    headers = {"retry-after": "1", "connection": "close"}
    message = "this server is stopping. Ask another one, or try again in a moment."
    return Refused(503, "stopping", message, headers=headers)


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
