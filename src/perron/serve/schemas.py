"""Requests and responses as JSON, and the one shape of every error."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perron.explain import Explanation
from perron.serve.limits import Limits

_CODES_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}


class ApiError(Exception):
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


def gone() -> ApiError:
    """Return the response to a client that went away. Only the metrics see it."""
    return ApiError(499, "client_gone", "the client went away.")


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


async def on_api_error(_: Request, error: Exception) -> Response:
    """Return the response of a refused request."""
    assert isinstance(error, ApiError)
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
    code = _CODES_BY_STATUS.get(status, "http_error")
    return ApiError(status, code, message, headers=error.headers).answer()


_MODEL = Field(None, description="Name of a model. Defaults to the first.")


class Item(NamedTuple):
    """A text, or a pair of texts, and its position in the request."""

    text: str
    pair: str | None
    position: int | None  # None for a request with a single text

    def where(self, field: Literal["text", "pair"]) -> str:
        """Return the path of the text, or of its pair, in the request."""
        return field if self.position is None else f"{field}s.{self.position}"


class TextRequest(BaseModel):
    """A request that names a model and has one text or several."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    pair_field: ClassVar[str | None] = None

    model: str | None = _MODEL

    def items(self) -> list[Item]:
        """Return the texts, each with its pair if there is one."""
        raise NotImplementedError

    def has_pairs(self) -> bool:
        """Return whether second texts were sent."""
        return self.pair_field is not None and (
            getattr(self, self.pair_field) is not None
        )


class EncodeTexts(TextRequest):
    """Texts to encode."""

    texts: list[str]

    def items(self) -> list[Item]:
        return [Item(text, None, place) for place, text in enumerate(self.texts)]


class EncodeText(TextRequest):
    """One text to encode."""

    text: str

    def items(self) -> list[Item]:
        return [Item(self.text, None, None)]


class ClassifyTexts(TextRequest):
    """Texts, or pairs of texts, to classify or to explain."""

    pair_field = "pairs"

    texts: list[str]
    pairs: list[str] | None = Field(
        None, description="The second texts, for a model of pairs."
    )

    def items(self) -> list[Item]:
        pairs = [None] * len(self.texts) if self.pairs is None else self.pairs
        if len(pairs) != len(self.texts):
            raise ApiError(
                422,
                "pairs_not_as_many",
                f"pairs must have as many entries as texts, got {len(pairs)} pairs "
                f"and {len(self.texts)} texts.",
                "pairs",
            )
        both = zip(self.texts, pairs, strict=True)
        return [Item(text, pair, place) for place, (text, pair) in enumerate(both)]


class ClassifyText(TextRequest):
    """One text, or one pair of texts, to classify or to explain."""

    pair_field = "pair"

    text: str
    pair: str | None = Field(None, description="The second text, for a model of pairs.")

    def items(self) -> list[Item]:
        return [Item(self.text, self.pair, None)]


class Requests(NamedTuple):
    """The two forms of one request: with several texts, and with one."""

    several: type[TextRequest]
    one: type[TextRequest]


ENCODE = Requests(EncodeTexts, EncodeText)
CLASSIFY = Requests(ClassifyTexts, ClassifyText)


class Prediction(BaseModel):
    """The most probable class and the probability of each class."""

    label: str
    probabilities: dict[str, float]


class PredictAnswer(BaseModel):
    """One prediction per text."""

    model: str
    predictions: list[Prediction]


class EncodeAnswer(BaseModel):
    """One vector per text."""

    model: str
    vectors: list[list[float]]


class ExplainAnswer(BaseModel):
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
        description="Words that the model reads of a text, or of a sentence."
    )
    max_sentences: int = Field(description="Sentences that it reads of a document.")


class ModelsAnswer(BaseModel):
    """All models, and the limits of the server."""

    models: list[ModelEntry]
    limits: Limits
    version: str


class Health(BaseModel):
    """Whether the server accepts requests."""

    status: Literal["ok", "stopping"]


class Problem(BaseModel):
    """What is wrong, how to fix it, and which part of the request it concerns."""

    code: str
    message: str
    where: str | None


class ErrorAnswer(BaseModel):
    """The shape of every error."""

    error: Problem


_CODES = {"extra_forbidden": "unknown_field", "missing": "missing_field"}
_LONGEST = 100  # characters of a field's name that an error repeats


def parse(requests: Requests, body: bytes) -> TextRequest:
    """Parse a request, or refuse it with its first problem."""
    try:
        content = from_json(body)
    except ValueError as error:
        message = f"the body must be valid JSON, got: {error}."
        raise ApiError(422, "invalid_json", message) from None
    is_one = isinstance(content, dict) and bool({"text", "pair"} & content.keys())
    if is_one and "texts" in content:
        message = (
            "text and pair are for one text, texts and pairs for several. Send one of "
            "the two forms."
        )
        raise ApiError(422, "text_and_texts", message, "texts")
    kind = requests.one if is_one else requests.several
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise _refused(kind, problems) from None


def _refused(kind: type[TextRequest], problems: list[Any]) -> ApiError:
    # A misspelled field explains a missing one.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"])[:_LONGEST]
    code = _CODES.get(first["type"], "wrong_type")
    message = first["msg"]
    if code == "unknown_field":
        known = ", ".join(kind.model_fields)
        message = f"this field is unknown. The fields are {known}."
    elif where == "texts" and code == "missing_field":
        message = "texts is missing. Send texts, a list, or text, a string."
    return ApiError(422, code, message, where or None)
