"""What the server computes: one class for each path that takes texts."""

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
    Requests,
    TextRequest,
    json_answer,
    json_text,
)

_MOST_PAIRS = 2**24  # of words that are scored at once: some hundred megabytes


class Operation(ABC):
    """A computation on texts, served at ``POST /v1/NAME``.

    The first line of the docstring is the summary in the OpenAPI document. To add an
    operation, define a subclass here and append an instance to `OPERATIONS`: routes,
    warm-up, metrics and the OpenAPI document follow.
    """

    name: ClassVar[str]
    requests: ClassVar[Requests]
    answer: ClassVar[type[BaseModel]]
    takes_pairs: ClassVar[bool] = True
    is_batched: ClassVar[bool] = True

    @abstractmethod
    def compute(
        self, pipeline: Pipeline, items: list[Item], limits: Limits
    ) -> list[Any]:
        """Return one result per item. Runs in a thread of the batcher."""

    @abstractmethod
    def respond(self, pipeline: Pipeline, results: list[Any]) -> Response:
        """Return the response with the results."""

    def maxima(self, limits: Limits) -> tuple[int, int]:
        """Return the maximum number of texts, and of words per text."""
        return limits.max_texts, limits.max_words

    def check(
        self, sent: TextRequest, pipeline: Pipeline, limits: Limits
    ) -> list[Item]:
        """Return the texts of a request, or refuse it."""
        if self.takes_pairs:
            _check_pairs(sent, pipeline)
        items = sent.items()
        max_texts, max_words = self.maxima(limits)
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
    requests = schemas.CLASSIFY
    answer = schemas.PredictAnswer

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
        return json_answer({"model": pipeline.name, "predictions": predictions})


class Encode(Operation):
    """Return the pooled vector of each text."""

    name = "encode"
    requests = schemas.ENCODE
    answer = schemas.EncodeAnswer
    takes_pairs = False

    def compute(
        self, pipeline: Pipeline, items: list[Item], limits: Limits
    ) -> list[Any]:
        texts = [item.text for item in items]
        return pipeline.encode(texts, batch_size(pipeline)).tolist()

    def respond(self, pipeline: Pipeline, results: list[Any]) -> Response:
        return json_answer({"model": pipeline.name, "vectors": results})


class Explain(Operation):
    """Classify texts and return their words, weights and edges."""

    name = "explain"
    requests = schemas.CLASSIFY
    answer = schemas.ExplainAnswer
    is_batched = False

    def maxima(self, limits: Limits) -> tuple[int, int]:
        return limits.max_explained_texts, limits.max_explained_words

    def compute(
        self, pipeline: Pipeline, items: list[Item], limits: Limits
    ) -> list[Any]:
        return [self._explained(pipeline, item, limits) for item in items]

    def _explained(self, pipeline: Pipeline, item: Item, limits: Limits) -> str:
        # Punctuation marks are words too, so that whitespace does not tell how many
        # words there are.
        most = limits.max_explained_words
        found = pipeline.processor.find_words(item.text, item.pair)
        if any(len(part.words) > most for part in found.parts):
            raise _too_many_words(most, item.where("text"))
        record = pipeline.explain(item.text, item.pair)
        if not all(map(math.isfinite, record.probabilities.values())):
            raise FloatingPointError("the model gives no finite numbers")
        return record.to_json()

    def respond(self, pipeline: Pipeline, results: list[Any]) -> Response:
        name = json.dumps(pipeline.name)
        return json_text(f'{{"model": {name}, "records": [{", ".join(results)}]}}')


OPERATIONS: tuple[Operation, ...] = (Predict(), Encode(), Explain())


def batch_size(pipeline: Pipeline) -> int:
    """Return how many of the longest texts fit into memory together."""
    config = pipeline.model.config
    pairs = config.max_words**2
    if config.settings.kind == "document":
        pairs = config.max_sentences * pairs + config.max_sentences**2
    return max(1, min(64, _MOST_PAIRS // pairs))


def _check_pairs(sent: TextRequest, pipeline: Pipeline) -> None:
    is_pair = pipeline.processor.kind == "pair"
    if is_pair and not sent.has_pairs():
        fix = "Send the second texts too."
        message = pair_mismatch(True, fix, pipeline.name)
        raise ApiError(422, "pairs_missing", message, sent.pair_field)
    if not is_pair and sent.has_pairs():
        fix = f"Leave out {sent.pair_field}."
        message = pair_mismatch(False, fix, pipeline.name)
        raise ApiError(422, "pairs_not_wanted", message, sent.pair_field)


def _check_length(text: str, where: str, limits: Limits, max_words: int) -> None:
    if len(text) > limits.max_characters:
        raise ApiError(
            422,
            "too_many_characters",
            f"a text must have at most {limits.max_characters} characters, got "
            f"{len(text)}. Send a shorter one.",
            where,
        )
    # Words and the whitespace between them: a short text need not be split.
    if len(text) >= 2 * max_words and len(text.split()) > max_words:
        raise _too_many_words(max_words, where)


def _too_many_words(max_words: int, where: str) -> ApiError:
    return ApiError(
        422,
        "too_many_words",
        f"a text must have at most {max_words} words here. Send a shorter one.",
        where,
    )
