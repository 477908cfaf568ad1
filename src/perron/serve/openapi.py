"""Routes of the API, and the OpenAPI document that describes them."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perron import __version__
from perron.serve.schemas import ErrorAnswer
from perron.serve.security import needs_key

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
