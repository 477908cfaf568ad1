"""Responses as JSON, and the one shape of every error."""

import json
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_CODES = {404: "not_found", 405: "method_not_allowed"}


class Refused(Exception):
    """An error response. The message says how to fix the request."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        where: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.where = where
        self.headers = dict(headers or {})

    def answer(self) -> Response:
        """Return the response."""
        error = {"code": self.code, "message": self.message, "where": self.where}
        return json_answer({"error": error}, self.status, self.headers)


def gone() -> Refused:
    """Return the response to a client that went away. Only the metrics see it."""
    return Refused(499, "client_gone", "the client went away.")


def json_answer(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response, never with NaN, which is not valid JSON."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return json_text(text, status, headers)


def json_text(
    text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with a text that is JSON already."""
    return Response(
        text.encode(), status, dict(headers or {}), media_type="application/json"
    )


async def on_refused(_: Request, error: Exception) -> Response:
    """Return the response of a refused request."""
    assert isinstance(error, Refused)
    return error.answer()


async def on_http(request: Request, error: Exception) -> Response:
    """Return Starlette's own errors, such as of an unknown path, in our shape."""
    assert isinstance(error, HTTPException)
    messages = {
        404: "this path is unknown. GET /openapi.json lists the paths.",
        405: f"this path does not support {request.method}. GET /openapi.json lists "
        "the methods.",
    }
    status = error.status_code
    message = messages.get(status, str(error.detail))
    code = _CODES.get(status, "http_error")
    return Refused(status, code, message, headers=error.headers).answer()
