"""Routes of the HTTP API, and their OpenAPI document."""

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
from perron.serve.batching import BatchKey, Service
from perron.serve.limits import Limits
from perron.serve.middleware import requires_key
from perron.serve.operations import OPERATIONS, Operation
from perron.serve.schemas import (
    ApiError,
    ErrorResponse,
    client_disconnected,
    json_response,
    raw_json_response,
)

_TEMPLATE = "#/components/schemas/{model}"
_ERRORS = {
    401: "The API key is missing or not valid.",
    403: "The request is for another host or from another website.",
    404: "The model is unknown.",
    408: "The request body did not arrive in time.",
    413: "The request body is too large.",
    415: "The content type is not application/json.",
    422: "The request is not valid or exceeds a limit.",
    429: "Too many texts are waiting.",
    500: "Internal server error.",
    503: "The request timed out, or the server is stopping.",
}


class ResponseSpec(NamedTuple):
    """Description of a response. The model is None for plain text."""

    model: type[BaseModel] | None
    description: str


class ApiRoute(Route):
    """Route of the API with its OpenAPI description.

    Args:
        method: HTTP method.
        path: Path of the URL.
        endpoint: Function that handles a request.
        responses: Responses by status.
        errors: Statuses of errors.
        request_models: Schemas of the request body, of which a request matches one.
        name: Operation ID. Defaults to the name of the endpoint.
        summary: Summary. Defaults to the docstring of the endpoint.
    """

    def __init__(
        self,
        method: Literal["GET", "POST"],
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        responses: Mapping[int, ResponseSpec],
        errors: Iterable[int],
        request_models: Iterable[type[BaseModel]] = (),
        name: str | None = None,
        summary: str | None = None,
    ) -> None:
        super().__init__(path, endpoint, methods=[method], name=name)
        self.method = method.lower()
        self.summary = (summary or inspect.getdoc(endpoint) or "").splitlines()[0]
        self.request_models = tuple(request_models)
        self.responses = dict(responses) | {
            status: ResponseSpec(ErrorResponse, _ERRORS[status]) for status in errors
        }


def openapi_document(routes: Iterable[ApiRoute], has_key: bool) -> dict[str, Any]:
    """Return the OpenAPI document of the routes.

    Args:
        routes: Routes of the API.
        has_key: Whether clients must send an API key.
    """
    routes = list(routes)
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = []
    for route in routes:
        models += [(model, "validation") for model in route.request_models]
        models += [
            (response.model, "serialization")
            for response in route.responses.values()
            if response.model is not None
        ]
    references, definitions = models_json_schema(
        list(dict.fromkeys(models)), ref_template=_TEMPLATE
    )
    components: dict[str, Any] = {"schemas": definitions["$defs"]}
    if has_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    paths: dict[str, Any] = {}
    for route in routes:
        operation: dict[str, Any] = {
            "operationId": route.name,
            "summary": route.summary,
            "responses": {
                str(status): _response_object(response, references)
                for status, response in sorted(route.responses.items())
            },
        }
        if route.request_models:
            forms = [references[model, "validation"] for model in route.request_models]
            content = {"application/json": {"schema": {"oneOf": forms}}}
            operation["requestBody"] = {"required": True, "content": content}
        if has_key and requires_key(route.path):
            operation["security"] = [{"key": []}]
        paths.setdefault(route.path, {})[route.method] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perron",
            "description": "Text classification with pooling by eigenvector "
            "centrality.",
            "version": __version__,
        },
        "paths": paths,
        "components": components,
    }


def _response_object(
    response: ResponseSpec, references: Mapping[Any, Any]
) -> dict[str, Any]:
    if response.model is None:
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    else:
        schema = references[response.model, "serialization"]
        content = {"application/json": {"schema": schema}}
    return {"description": response.description, "content": content}


# A body without Content-Length is read up to this multiple of the limit. If the server
# closed the connection earlier, a client that is still sending would not receive the
# response.
_DRAIN_FACTOR = 4
_COMMON_ERRORS = (403, 500)
_KEY_ERRORS = (401, *_COMMON_ERRORS)
_BODY_ERRORS = (404, 408, 413, 415, 422, 429, 503, *_KEY_ERRORS)


def create_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of the API."""
    routes = [_operation_route(service, operation) for operation in OPERATIONS]

    async def models(request: Request) -> Response:
        """List the models and the limits."""
        response = schemas.ModelsResponse(
            models=[_model_entry(pipeline) for pipeline in service.models.values()],
            limits=service.limits,
            version=__version__,
        )
        return raw_json_response(response.model_dump_json())

    async def health(request: Request) -> Response:
        """Return whether the server accepts requests."""
        if service.stopping:
            return json_response({"status": "stopping"}, 503)
        return json_response({"status": "ok"})

    async def metrics(request: Request) -> Response:
        """Return metrics in the text format of Prometheus."""
        return Response(
            service.metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST}
        )

    listed = ResponseSpec(schemas.ModelsResponse, "The models and the limits.")
    healthy = ResponseSpec(schemas.Health, "The server accepts requests.")
    stopping = ResponseSpec(schemas.Health, "The server is stopping.")
    text = ResponseSpec(None, "Metrics in the text format of Prometheus.")
    return [
        *routes,
        ApiRoute("GET", "/v1/models", models, {200: listed}, _KEY_ERRORS),
        ApiRoute(
            "GET", "/healthz", health, {200: healthy, 503: stopping}, _COMMON_ERRORS
        ),
        ApiRoute("GET", "/metrics", metrics, {200: text}, _KEY_ERRORS),
    ]


def _operation_route(service: Service, operation: Operation) -> ApiRoute:
    limits = service.limits

    async def endpoint(request: Request) -> Response:
        if service.stopping:
            raise _stopping()
        if not _is_json(request):
            raise ApiError(
                415,
                "unsupported_media_type",
                "The body must be JSON. Send the header Content-Type: "
                "application/json.",
            )
        deadline = asyncio.get_running_loop().time() + limits.max_seconds
        body = await _read_body(request, limits, deadline)
        parsed = schemas.parse(operation.request_models, body)
        pipeline = service.find(parsed.model)
        items = operation.validate(parsed, pipeline, limits)
        key = BatchKey(pipeline.name, operation)
        results = await service.results(request, key, items, deadline)
        return operation.respond(pipeline, results)

    description = operation.response_model.__doc__ or ""
    return ApiRoute(
        "POST",
        f"/v1/{operation.name}",
        endpoint,
        {200: ResponseSpec(operation.response_model, description)},
        _BODY_ERRORS,
        request_models=operation.request_models,
        name=operation.name,
        summary=operation.__doc__,
    )


async def _read_body(request: Request, limits: Limits, deadline: float) -> bytes:
    """Return the body of a request, without keeping more of it than allowed."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.max_body:
        raise _too_large(limits)
    chunks, size = [], 0
    try:
        async with asyncio.timeout_at(deadline):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limits.max_body:
                    chunks.append(chunk)
                elif size > _DRAIN_FACTOR * limits.max_body:
                    break
    except ClientDisconnect:
        raise client_disconnected() from None
    except TimeoutError:
        raise ApiError(
            408,
            "request_timeout",
            f"The request did not arrive within {limits.max_seconds:g} seconds.",
            headers={"connection": "close"},
        ) from None
    if size > limits.max_body:
        raise _too_large(limits)
    return b"".join(chunks)


def _too_large(limits: Limits) -> ApiError:
    message = (
        f"The request body must have at most {limits.max_body} bytes. Send fewer texts "
        "per request."
    )
    return ApiError(413, "body_too_large", message)


def _is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == "application/json"


def _stopping() -> ApiError:
    headers = {"retry-after": "1", "connection": "close"}
    message = "The server is stopping. Try again in a moment."
    return ApiError(503, "stopping", message, headers=headers)


def _model_entry(pipeline: Pipeline) -> schemas.ModelEntry:
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
