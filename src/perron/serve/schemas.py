"""JSON schemas of requests and responses, and the format of errors."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perron.errors import expected_value
from perron.explain import Explanation
from perron.serve.limits import Limits

_CODES_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}


class ApiError(Exception):
    """Exception that is returned to the client as an error response.

    Args:
        status: HTTP status.
        code: Machine-readable code.
        message: Problem and how to fix it.
        where: Part of the request that caused the error.
        headers: Additional headers.
    """

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

    def response(self) -> Response:
        """Return the response of the error."""
        error = {"code": self.code, "message": self.message, "where": self.where}
        return json_response({"error": error}, self.status, self.headers)


def client_disconnected() -> ApiError:
    """Return the error for a disconnected client, which only the metrics record."""
    return ApiError(499, "client_disconnected", "The client disconnected.")


def json_response(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response. NaN raises an error, because it is not valid JSON."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return raw_json_response(text, status, headers)


def raw_json_response(
    text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a JSON response with serialized content."""
    return Response(
        text.encode(), status, dict(headers or {}), media_type="application/json"
    )


async def on_api_error(_: Request, error: Exception) -> Response:
    """Return the response of an `ApiError`."""
    assert isinstance(error, ApiError)
    return error.response()


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Convert an error of Starlette, such as an unknown path, to our format."""
    assert isinstance(error, HTTPException)
    messages = {
        404: "Unknown path. GET /openapi.json lists the paths.",
        405: f"This path does not support {request.method}. GET /openapi.json lists "
        "the methods.",
    }
    status = error.status_code
    message = messages.get(status, str(error.detail))
    code = _CODES_BY_STATUS.get(status, "http_error")
    return ApiError(status, code, message, headers=error.headers).response()


_MODEL = Field(None, description="Name of the model. Defaults to the first model.")


class Item(NamedTuple):
    """A text or a pair of texts, with its position in the request."""

    text: str
    pair: str | None
    position: int | None  # None for a request with a single text

    def where(self, field: Literal["text", "pair"]) -> str:
        """Return the path of the text or its pair in the request."""
        return field if self.position is None else f"{field}s.{self.position}"


class TextRequest(BaseModel):
    """A request with one or more texts."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    pair_field: ClassVar[str | None] = None

    model: str | None = _MODEL

    def items(self) -> list[Item]:
        """Return the texts, with their pairs if any."""
        raise NotImplementedError

    def has_pairs(self) -> bool:
        """Return whether the request has second texts."""
        return self.pair_field is not None and (
            getattr(self, self.pair_field) is not None
        )


class EncodeTextsRequest(TextRequest):
    """Texts to encode."""

    texts: list[str]

    def items(self) -> list[Item]:
        return [Item(text, None, position) for position, text in enumerate(self.texts)]


class EncodeTextRequest(TextRequest):
    """One text to encode."""

    text: str

    def items(self) -> list[Item]:
        return [Item(self.text, None, None)]


class ClassifyTextsRequest(TextRequest):
    """Texts or pairs of texts to classify or explain."""

    pair_field = "pairs"

    texts: list[str]
    pairs: list[str] | None = Field(None, description="Second texts, for pair models.")

    def items(self) -> list[Item]:
        pairs = [None] * len(self.texts) if self.pairs is None else self.pairs
        if len(pairs) != len(self.texts):
            raise ApiError(
                422,
                "pairs_length_mismatch",
                f"pairs must have as many entries as texts, got {len(pairs)} pairs "
                f"and {len(self.texts)} texts.",
                "pairs",
            )
        return [
            Item(text, pair, position)
            for position, (text, pair) in enumerate(zip(self.texts, pairs, strict=True))
        ]


class ClassifyTextRequest(TextRequest):
    """One text or pair of texts to classify or explain."""

    pair_field = "pair"

    text: str
    pair: str | None = Field(None, description="Second text, for pair models.")

    def items(self) -> list[Item]:
        return [Item(self.text, self.pair, None)]


class RequestModels(NamedTuple):
    """The two forms of a request: a list of texts, or a single text."""

    several: type[TextRequest]
    single: type[TextRequest]


ENCODE = RequestModels(EncodeTextsRequest, EncodeTextRequest)
CLASSIFY = RequestModels(ClassifyTextsRequest, ClassifyTextRequest)


class Prediction(BaseModel):
    """The most probable class and the probability of each class."""

    label: str
    probabilities: dict[str, float]


class PredictResponse(BaseModel):
    """One prediction per text."""

    model: str
    predictions: list[Prediction]


class EncodeResponse(BaseModel):
    """One vector per text."""

    model: str
    vectors: list[list[float]]


class ExplainResponse(BaseModel):
    """One explanation per text."""

    model: str
    records: list[Explanation]


class ModelEntry(BaseModel):
    """Description of a model."""

    name: str
    kind: Literal["text", "pair", "document"]
    encoder: str
    aggregator: str
    labels: list[str]
    max_words: int = Field(
        description="Maximum number of words that the model reads per text, or per "
        "sentence of a document."
    )
    max_sentences: int = Field(
        description="Maximum number of sentences that the model reads per document."
    )


class ModelsResponse(BaseModel):
    """The models and the limits of the server."""

    models: list[ModelEntry]
    limits: Limits
    version: str


class Health(BaseModel):
    """Whether the server accepts requests."""

    status: Literal["ok", "stopping"]


class ErrorDetail(BaseModel):
    """Description of an error."""

    code: str = Field(description="Machine-readable code.")
    message: str = Field(description="Problem and how to fix it.")
    where: str | None = Field(description="Part of the request that caused the error.")


class ErrorResponse(BaseModel):
    """An error."""

    error: ErrorDetail


_CODES = {"extra_forbidden": "unknown_field", "missing": "missing_field"}
_MAX_WHERE = 100  # characters of a field name that are repeated in an error


def parse(models: RequestModels, body: bytes) -> TextRequest:
    """Parse the body of a request.

    Raises:
        ApiError: If the body is not valid. Only the first problem is reported.
    """
    try:
        content = from_json(body)
    except ValueError as error:
        message = f"The body must be valid JSON: {error}."
        raise ApiError(422, "invalid_json", message) from None
    is_single = isinstance(content, dict) and bool({"text", "pair"} & content.keys())
    if is_single and "texts" in content:
        message = (
            "text and pair cannot be combined with texts and pairs. Send either a "
            "single text or a list."
        )
        raise ApiError(422, "conflicting_fields", message, "texts")
    model = models.single if is_single else models.several
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise _validation_error(model, problems) from None


def _validation_error(model: type[TextRequest], problems: list[Any]) -> ApiError:
    # If a field is misspelled, report it and not the missing one.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"])[:_MAX_WHERE]
    code = _CODES.get(first["type"], "invalid_type")
    expected = expected_value(first) if where else "a JSON object"
    message = f"{where or 'The body'} must be {expected}."
    if code == "unknown_field":
        known = ", ".join(model.model_fields)
        message = f"Unknown field. The fields are {known}."
    elif code == "missing_field":
        fix = " Send a list as texts, or a string as text." if where == "texts" else ""
        message = f"{where} is missing.{fix}"
    return ApiError(422, code, message, where or None)
