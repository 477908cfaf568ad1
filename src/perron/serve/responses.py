"""Answers as JSON; every error has one shape."""

import json
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_CODES = {404: "not_found", 405: "method_not_allowed"}


class Refused(Exception):
    """A request that is not answered as asked; the message says what to do."""

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
        """Return the answer that tells it."""
        error = {"code": self.code, "message": self.message, "where": self.where}
        return json_answer({"error": error}, self.status, self.headers)


def gone() -> Refused:
    """Return what a client that went away is not told; 499 is in the metrics."""
    return Refused(499, "client_gone", "the client went away")


def json_answer(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return JSON, never with NaN, which JSON has no word for."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return json_text(text, status, headers)


def json_text(
    text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return what is JSON already."""
    return Response(
        text.encode(), status, dict(headers or {}), media_type="application/json"
    )


async def on_refused(_: Request, error: Exception) -> Response:
    """Tell why a request was refused."""
    assert isinstance(error, Refused)
    return error.answer()


async def on_http(request: Request, error: Exception) -> Response:
    """Give Starlette's own errors, such as of an unknown path, our shape."""
    assert isinstance(error, HTTPException)
    messages = {
        404: "there is nothing at this path; GET /openapi.json lists what there is",
        405: f"{request.method} does not go with this path; GET /openapi.json tells "
        "what does",
    }
    status = error.status_code
    message = messages.get(status, str(error.detail))
    code = _CODES.get(status, "http_error")
    return Refused(status, code, message, headers=error.headers).answer()
