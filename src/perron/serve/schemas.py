"""What is sent and answered, as JSON."""

from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perron.explain import Explanation
from perron.serve.limits import Limits
from perron.serve.responses import Refused

_MODEL = Field(None, description="name of a model; unless given, the first")
_PAIRS = Field(None, description="the second texts, for a model of pairs")


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EncodeRequest(_Request):
    """Texts to turn into vectors."""

    texts: list[str]
    model: str | None = _MODEL


class TextsRequest(_Request):
    """Texts, or pairs of them, to classify or to explain."""

    texts: list[str]
    pairs: list[str] | None = _PAIRS
    model: str | None = _MODEL


class Prediction(BaseModel):
    """The most probable class and the probability of each."""

    label: str
    probabilities: dict[str, float]


class PredictAnswer(BaseModel):
    """A prediction for each text."""

    model: str
    predictions: list[Prediction]


class EncodeAnswer(BaseModel):
    """A vector for each text."""

    model: str
    vectors: list[list[float]]


class ExplainAnswer(BaseModel):
    """A record for each text."""

    model: str
    records: list[Explanation]


class ModelEntry(BaseModel):
    """What a model is."""

    name: str
    kind: Literal["text", "pair", "document"]
    encoder: str
    aggregator: str
    labels: list[str]
    max_words: int = Field(description="of a text, or of a sentence, that it reads")
    max_sentences: int = Field(description="of a document that it reads")


class ModelsAnswer(BaseModel):
    """All models, and how much may be asked of them."""

    models: list[ModelEntry]
    limits: Limits
    version: str


class Health(BaseModel):
    """Whether the server takes requests."""

    status: Literal["ok", "stopping"]


class Problem(BaseModel):
    """What was wrong, what to do, and which part of the request it is about."""

    code: str
    message: str
    where: str | None


class ErrorAnswer(BaseModel):
    """The shape of every error."""

    error: Problem


_CODES = {
    "json_invalid": "invalid_json",
    "extra_forbidden": "unknown_field",
    "missing": "missing_field",
}
_LONGEST = 100  # characters of a field's name that are said back
_Parsed = TypeVar("_Parsed", bound=_Request)


def parse(kind: type[_Parsed], body: bytes) -> _Parsed:
    """Read a request, or refuse it and say what its first fault is."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
    # A misspelt field explains one that is missing.
    faults.sort(key=lambda fault: fault["type"] != "extra_forbidden")
    first = faults[0]
    where = ".".join(str(part) for part in first["loc"])[:_LONGEST]
    code = _CODES.get(first["type"], "wrong_type")
    message = first["msg"]
    if code == "unknown_field":
        message = f"no such field; there are {', '.join(kind.model_fields)}"
    raise Refused(422, code, message, where or None)
