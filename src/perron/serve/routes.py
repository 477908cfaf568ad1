"""The routes of the HTTP API, and the OpenAPI document made from them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from perron import __version__
from perron.pipeline import Pipeline
from perron.serve import schemas
from perron.serve.limits import Limits
from perron.serve.middleware import needs_key
from perron.serve.operations import OPERATIONS, Operation
from perron.serve.schemas import ApiError, ErrorAnswer, gone, json_answer, json_text
from perron.serve.service import BatchKey, Service

_TEMPLATE = "#/components/schemas/{model}"
_ERRORS = {
    401: "The key is missing or wrong.",
    403: "The request is for another host, or from a page of another site.",
    404: "The model is unknown.",
    408: "The request did not arrive in time.",
    413: "The request has too many bytes.",
    415: "The request is not application/json.",
    422: "The request is not valid, or exceeds a limit.",
    429: "Too many texts are waiting already.",
    500: "The server failed.",
    503: "The request took too long, or the server is stopping.",
}


class Answer(NamedTuple):
    """A response: its schema, or None for plain text, and what it means."""

    model: type[BaseModel] | None
    description: str


class ApiRoute(Route):
    """A path of the API with its description.

    The docstring of the endpoint is the summary, its name the identifier.
    """

    def __init__(
        self,
        method: Literal["GET", "POST"],
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        answers: Mapping[int, Answer],
        errors: Iterable[int],
        requests: Iterable[type[BaseModel]] = (),
        name: str | None = None,
        summary: str | None = None,
    ) -> None:
        """Describe a path.

        Args:
            method: Method of HTTP.
            path: Path of the URL.
            endpoint: Function that answers a request.
            answers: Responses by status.
            errors: Statuses of errors.
            requests: Schemas of the body; a request has one of them.
            name: Identifier of the path. Defaults to the name of the endpoint.
            summary: One line. Defaults to the docstring of the endpoint.
        """
        super().__init__(path, endpoint, methods=[method], name=name)
        self.method = method.lower()
        self.summary = (summary or inspect.getdoc(endpoint) or "").splitlines()[0]
        self.requests = tuple(requests)
        self.answers = dict(answers) | {
            status: Answer(ErrorAnswer, _ERRORS[status]) for status in errors
        }


def openapi_document(routes: Iterable[ApiRoute], has_key: bool) -> dict[str, Any]:
    """Return the OpenAPI document of these routes.

    Args:
        routes: Paths of the API.
        has_key: Whether clients must send a key.
    """
    routes = list(routes)
    used: list[tuple[type[BaseModel], JsonSchemaMode]] = []
    for route in routes:
        used += [(model, "validation") for model in route.requests]
        used += [
            (answer.model, "serialization")
            for answer in route.answers.values()
            if answer.model is not None
        ]
    references, definitions = models_json_schema(
        list(dict.fromkeys(used)), ref_template=_TEMPLATE
    )
    components: dict[str, Any] = {"schemas": definitions["$defs"]}
    if has_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    paths: dict[str, Any] = {}
    for route in routes:
        described: dict[str, Any] = {
            "operationId": route.name,
            "summary": route.summary,
            "responses": {
                str(status): _response(answer, references)
                for status, answer in sorted(route.answers.items())
            },
        }
        if route.requests:
            forms = [references[model, "validation"] for model in route.requests]
            content = {"application/json": {"schema": {"oneOf": forms}}}
            described["requestBody"] = {"required": True, "content": content}
        if has_key and needs_key(route.path):
            described["security"] = [{"key": []}]
        paths.setdefault(route.path, {})[route.method] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perron",
            "description": "Text classification that pools words by eigenvector "
            "centrality.",
            "version": __version__,
        },
        "paths": paths,
        "components": components,
    }


def _response(answer: Answer, references: Mapping[Any, Any]) -> dict[str, Any]:
    if answer.model is None:
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    else:
        schema = references[answer.model, "serialization"]
        content = {"application/json": {"schema": schema}}
    return {"description": answer.description, "content": content}


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
            raise ApiError(
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
        raise ApiError(
            408,
            "body_too_slow",
            f"the request did not arrive within {limits.max_seconds:g} seconds.",
            headers={"connection": "close"},
        ) from None
    if size > limits.max_body:
        raise _too_large(limits)
    return b"".join(parts)


def _too_large(limits: Limits) -> ApiError:
    message = (
        f"a request must have at most {limits.max_body} bytes. Send fewer texts at "
        "once."
    )
    return ApiError(413, "body_too_large", message)


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "application/json"


def _stopping() -> ApiError:
    headers = {"retry-after": "1", "connection": "close"}
    message = "this server is stopping. Ask another one, or try again in a moment."
    return ApiError(503, "stopping", message, headers=headers)


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
