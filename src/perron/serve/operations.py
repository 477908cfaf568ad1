"""Operations of the server, one class per endpoint that accepts texts."""

import json
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pydantic import BaseModel
from starlette.responses import Response

from perron.pipeline import Pipeline, pair_mismatch
from perron.serve import schemas
from perron.serve.limits import Limits
from perron.serve.schemas import (
    ApiError,
    Item,
    RequestModels,
    TextRequest,
    json_response,
    raw_json_response,
)

_MAX_WORD_PAIRS = 2**24  # per batch, which takes a few hundred megabytes


class Operation(ABC):
    """A computation on texts, served at ``POST /v1/NAME``.

    To add an operation, define a subclass here and append an instance to `OPERATIONS`.
    The route, the warm-up, the metrics and the OpenAPI document are derived from it.
    The first line of the docstring is the summary in the OpenAPI document.

    Attributes:
        name: Name of the operation.
        request_models: Schemas of the request.
        response_model: Schema of the response.
        accepts_pairs: Whether pair models need the second texts.
        is_batched: Whether texts are computed in batches, not one at a time.
    """

    name: ClassVar[str]
    request_models: ClassVar[RequestModels]
    response_model: ClassVar[type[BaseModel]]
    accepts_pairs: ClassVar[bool] = True
    is_batched: ClassVar[bool] = True

    @abstractmethod
    def compute(
        self, pipeline: Pipeline, items: list[Item], limits: Limits
    ) -> list[Any]:
        """Return one result per item. Runs in a thread of the batcher."""

    @abstractmethod
    def respond(self, pipeline: Pipeline, results: list[Any]) -> Response:
        """Return the response with the results."""

    def text_limits(self, limits: Limits) -> tuple[int, int]:
        """Return the maximum number of texts, and of words per text."""
        return limits.max_texts, limits.max_words

    def validate(
        self, request: TextRequest, pipeline: Pipeline, limits: Limits
    ) -> list[Item]:
        """Return the texts of a request.

        Raises:
            ApiError: If the request does not fit the model or exceeds a limit.
        """
        if self.accepts_pairs:
            _check_pairs(request, pipeline)
        items = request.items()
        max_texts, max_words = self.text_limits(limits)
        if len(items) > max_texts:
            raise ApiError(
                422,
                "too_many_texts",
                f"texts must have at most {max_texts} entries, got {len(items)}. Send "
                "several requests.",
                "texts",
            )
        for item in items:
            _check_length(item.text, item.where("text"), limits, max_words)
        for item in items:
            if item.pair is not None:
                _check_length(item.pair, item.where("pair"), limits, max_words)
        return items


class Predict(Operation):
    """Classify texts."""

    name = "predict"
    request_models = schemas.CLASSIFY
    response_model = schemas.PredictResponse

    def compute(
        self, pipeline: Pipeline, items: list[Item], limits: Limits
    ) -> list[Any]:
        texts = [item.text for item in items]
        pairs = None
        if pipeline.processor.kind == "pair":
            pairs = [item.pair or "" for item in items]
        return pipeline.predict_proba(texts, pairs, batch_size(pipeline)).tolist()

    def respond(self, pipeline: Pipeline, results: list[Any]) -> Response:
        labels = pipeline.labels
        predictions = [
            {
                "label": labels[row.index(max(row))],
                "probabilities": dict(zip(labels, row, strict=True)),
            }
            for row in results
        ]
        return json_response({"model": pipeline.name, "predictions": predictions})


class Encode(Operation):
    """Return the pooled vector of each text."""

    name = "encode"
    request_models = schemas.ENCODE
    response_model = schemas.EncodeResponse
    accepts_pairs = False

    def compute(
        self, pipeline: Pipeline, items: list[Item], limits: Limits
    ) -> list[Any]:
        texts = [item.text for item in items]
        return pipeline.encode(texts, batch_size(pipeline)).tolist()

    def respond(self, pipeline: Pipeline, results: list[Any]) -> Response:
        return json_response({"model": pipeline.name, "vectors": results})


class Explain(Operation):
    """Classify texts and return their words, weights and edges."""

    name = "explain"
    request_models = schemas.CLASSIFY
    response_model = schemas.ExplainResponse
    is_batched = False

    def text_limits(self, limits: Limits) -> tuple[int, int]:
        return limits.max_explained_texts, limits.max_explained_words

    def compute(
        self, pipeline: Pipeline, items: list[Item], limits: Limits
    ) -> list[Any]:
        return [self._explain(pipeline, item, limits) for item in items]

    def _explain(self, pipeline: Pipeline, item: Item, limits: Limits) -> str:
        # Punctuation marks are words, too, so `validate` may have counted too few.
        max_words = limits.max_explained_words
        tokenized = pipeline.processor.tokenize(item.text, item.pair)
        if any(len(part.tokens) > max_words for part in tokenized.sequences):
            raise _too_many_words(max_words, item.where("text"))
        record = pipeline.explain(item.text, item.pair)
        if not all(map(math.isfinite, record.probabilities.values())):
            raise FloatingPointError("the probabilities are not finite")
        return record.to_json()

    def respond(self, pipeline: Pipeline, results: list[Any]) -> Response:
        name = json.dumps(pipeline.name)
        return raw_json_response(
            f'{{"model": {name}, "records": [{", ".join(results)}]}}'
        )


OPERATIONS: tuple[Operation, ...] = (Predict(), Encode(), Explain())


def batch_size(pipeline: Pipeline) -> int:
    """Return the batch size that fits into memory for texts of maximum length."""
    config = pipeline.model.config
    word_pairs = config.max_words**2
    if config.settings.kind == "document":
        word_pairs = config.max_sentences * word_pairs + config.max_sentences**2
    return max(1, min(64, _MAX_WORD_PAIRS // word_pairs))


def _check_pairs(request: TextRequest, pipeline: Pipeline) -> None:
    is_pair = pipeline.processor.kind == "pair"
    if is_pair and not request.has_pairs():
        fix = "Send the second texts, too."
        message = pair_mismatch(True, fix, pipeline.name)
        raise ApiError(422, "missing_pairs", message, request.pair_field)
    if not is_pair and request.has_pairs():
        fix = f"Remove {request.pair_field}."
        message = pair_mismatch(False, fix, pipeline.name)
        raise ApiError(422, "unexpected_pairs", message, request.pair_field)


def _check_length(text: str, where: str, limits: Limits, max_words: int) -> None:
    if len(text) > limits.max_characters:
        raise ApiError(
            422,
            "too_many_characters",
            f"A text must have at most {limits.max_characters} characters, got "
            f"{len(text)}. Send a shorter text.",
            where,
        )
    # Every word needs at least one character and a space; do not split short texts.
    if len(text) >= 2 * max_words and len(text.split()) > max_words:
        raise _too_many_words(max_words, where)


def _too_many_words(max_words: int, where: str) -> ApiError:
    return ApiError(
        422,
        "too_many_words",
        f"A text must have at most {max_words} words. Send a shorter text.",
        where,
    )
